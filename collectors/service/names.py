"""A directory's name for an engine that was found: nothing that a network says gets into a path."""

from hashlib import sha256
from ipaddress import IPv4Address, ip_address
from urllib.parse import urlsplit

# What a target that is a URL is called below its own, configured, name.
ONLY = "run"
_DIGITS = 16


def instance_name(url: str) -> str:
    """Address and port in digits, or a hash of the host's name; the same whenever it is seen.

    One address can answer differently under https, so that is another name.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        address = ip_address(host)
    except ValueError:
        name = f"h{sha256(host.encode('utf-8', 'surrogatepass')).hexdigest()[:_DIGITS]}"
    else:
        v4 = isinstance(address, IPv4Address)
        name = str(address) if v4 else f"v6-{int(address):032x}"
    path = parts.path.strip("/")
    other = path not in {"", "metrics"}
    behind = f"_{sha256(path.encode()).hexdigest()[:_DIGITS]}" if other else ""
    secure = "_https" if parts.scheme == "https" else ""
    return f"{name}_{port}{secure}{behind}"
