"""Where the pages of one target are: people give the server's address, or that of its metrics."""

import re
from dataclasses import dataclass
from urllib.parse import urlsplit

from replay.errors import InputError

_ODD = re.compile(r"[\x00-\x20\x7f-\uffff\\]")
_METRICS = re.compile(r"^(?P<base>.*?)/metrics(?P<slash>/?)$")


@dataclass(frozen=True)
class Urls:
    """`metrics` are tried in order until one is a page; the others live under `base`."""

    base: str
    metrics: tuple[str, ...]

    @property
    def version(self) -> str:
        """Where vLLM says which release it is."""
        return f"{self.base}/version"

    @property
    def models(self) -> str:
        """Where vLLM lists what it serves."""
        return f"{self.base}/v1/models"


def urls_of(url: str, place: str = "options") -> Urls:
    """Addresses under a base or metrics URL; what could hold a secret is refused and not shown."""
    rule = "must be http://host:port or https://host:port, with or without /metrics"
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as exc:
        raise InputError(place, "url", rule) from exc
    if parts.scheme not in {"http", "https"} or not host or port == 0 or _ODD.search(url):
        raise InputError(place, "url", rule)
    if parts.username is not None or parts.password is not None or parts.query or parts.fragment:
        rule = "must have no user, password, query or fragment; a token comes from a file"
        raise InputError(place, "url", rule)
    root = f"{parts.scheme}://{parts.netloc}"
    if found := _METRICS.match(parts.path):
        # Both spellings are answered by different code, and proxies may know only one.
        pages = [f"/metrics{found['slash']}", "/metrics" if found["slash"] else "/metrics/"]
        base = root + found["base"]
        return Urls(base, tuple(base + page for page in pages))
    base = root + parts.path.rstrip("/")
    own = (url,) if parts.path.strip("/") else ()
    return Urls(base, (f"{base}/metrics", f"{base}/metrics/", *own))
