"""The engines of a target as they are now: one URL, a file, or what a name resolves to.

What cannot be asked is `Unknown`, which is not the same as there being none: engines that were
there before are kept then.
"""

import asyncio
import socket
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.scrape.urls import urls_of
from collectors.service.names import ONLY, instance_name
from collectors.service.settings import Target
from replay.errors import InputError, describe
from replay.strict import parse_json, read_text, table

MOST_INSTANCES = 500
_MOST_FILE_BYTES = 2**20
_RESOLVE_S = 10.0
# The name is there and has no address, or is not there: nobody is.
_NOBODY = {socket.EAI_NONAME, getattr(socket, "EAI_NODATA", socket.EAI_NONAME)}
Resolve = Callable[[str, int], Awaitable[list[str]]]


@dataclass(frozen=True, order=True)
class Instance:
    """One engine: the target's name, its own below that, and where it answers."""

    target: str
    name: str
    url: str


class Unknown(Exception):
    """Nobody could say; the text says why, in our words."""


async def instances_of(target: Target, resolve: Resolve) -> list[Instance]:
    """Engines of a target in a fixed order; `Unknown` where that cannot be found out."""
    if target.url is not None:
        return [Instance(target.name, ONLY, target.url)]
    try:
        if target.file_sd is not None:
            urls = await asyncio.to_thread(file_sd_urls, target.file_sd)
        else:
            urls = await _dns_urls(target, resolve)
    except InputError as exc:
        raise Unknown(str(exc)) from exc
    found = {(name := instance_name(url)): Instance(target.name, name, url) for url in urls}
    if len(found) > MOST_INSTANCES:
        raise Unknown(f"more than {MOST_INSTANCES} engines")
    return sorted(found.values())


def file_sd_urls(path: Path) -> list[str]:
    """URLs of a Prometheus `file_sd` file in JSON; `InputError` for anything else.

    `__scheme__` and `__metrics_path__` among the labels count; other labels are Prometheus's.
    """
    place = str(path)
    if path.suffix in {".yml", ".yaml"}:
        rule = "must be the JSON form of a file_sd file, with a name that ends in .json"
        raise InputError(place, "", rule, "YAML")
    groups = parse_json(read_text(path, _MOST_FILE_BYTES), place, ("targets", "labels"))
    if not isinstance(groups, list):
        raise InputError(place, "", "must be a list of target groups", describe(groups))
    urls = []
    for k, one in enumerate(groups):
        group, name = table(one, place, f"[{k}]"), f"[{k}].targets"
        labels = table(group.get("labels", {}), place, f"[{k}].labels")
        found = group.get("targets")
        if not isinstance(found, list):
            raise InputError(place, name, "must be a list of host:port", describe(found))
        urls += [_url(address, labels, place, name) for address in found]
    return urls


def _url(address: Any, labels: Any, place: str, name: str) -> str:
    scheme, path = labels.get("__scheme__", "http"), labels.get("__metrics_path__", "")
    if not all(isinstance(text, str) for text in (address, scheme, path)):
        raise InputError(place, name, "must be strings, and so their labels")
    if "/" in address or (path and not path.startswith("/")):
        raise InputError(place, name, "must be host:port, with a metrics path that begins with /")
    url = f"{scheme}://{address}{path}"
    try:
        urls_of(url)
    except InputError as exc:
        raise InputError(place, name, exc.rule) from exc
    return url


async def _dns_urls(target: Target, resolve: Resolve) -> list[str]:
    try:
        async with asyncio.timeout(_RESOLVE_S):
            addresses = await resolve(target.dns or "", target.port)
    except TimeoutError as exc:
        raise Unknown(f"resolving took more than {_RESOLVE_S:.0f} s") from exc
    except socket.gaierror as exc:
        if exc.errno in _NOBODY:
            return []
        raise Unknown("the name could not be resolved just now") from exc
    except (OSError, UnicodeError) as exc:
        raise Unknown("the name could not be resolved") from exc
    shown = [f"[{address}]" if ":" in address else address for address in addresses]
    return [f"{target.scheme}://{address}:{target.port}" for address in shown]


def system_resolver(executor: Executor) -> Resolve:
    """The machine's resolver, in threads of its own: it can hang, and must not hold up scrapes."""

    async def resolve(host: str, port: int) -> list[str]:
        def ask() -> list[str]:
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
            # A scope (fe80::1%eth0) says by which interface, not which engine.
            return sorted({str(address[0]) for *_, address in found if "%" not in str(address[0])})

        return await asyncio.get_running_loop().run_in_executor(executor, ask)

    return resolve
