"""The service's configuration contract: one TOML file, every key checked, every default here.

Unknown keys, keys that do not go together and values out of range raise `InputError` naming the
file, the table and the key. Secrets are never in it: it names the files that hold them.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from collectors.durations import duration_us, size_bytes
from collectors.scrape.credentials import TOKEN_VARIABLE, Credentials
from collectors.scrape.fetch import LARGEST_PAGE_BYTES, MOST_PAGE_BYTES
from collectors.scrape.run import Rotation
from collectors.scrape.urls import urls_of
from replay.errors import InputError, describe
from replay.strict import choice, integer, only_keys, read_toml, table

MOST_TARGETS = 200
_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")
_HOST = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,251}[A-Za-z0-9_.])?")
_LISTEN = re.compile(r"(?P<host>\[[0-9a-fA-F:.]+\]|[A-Za-z0-9.-]+):(?P<port>[0-9]{1,5})")
_NO_ADDRESS = "off"
_MOST_PORT = 65_535
_SHORTEST_US = 10_000
_SECOND_US = 1_000_000


@dataclass(frozen=True)
class Collect:
    """What holds for every target; times in microseconds, None keeps everything."""

    output: Path
    interval_us: int = _SECOND_US
    timeout_us: int = 5 * _SECOND_US
    rediscover_us: int = 30 * _SECOND_US
    most_page_bytes: int = MOST_PAGE_BYTES
    rotation: Rotation = field(default_factory=Rotation)
    keep_age_us: int | None = None
    keep_bytes: int | None = None
    listen: tuple[str, int] | None = ("127.0.0.1", 9108)


@dataclass(frozen=True)
class Target:
    """One table of [[targets]]: `url`, `file_sd` or `dns` says where its engines are."""

    name: str
    url: str | None = None
    file_sd: Path | None = None
    dns: str | None = None
    port: int = 8000
    scheme: str = "http"
    bearer_token_file: Path | None = None
    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    spool: Path | None = None

    def credentials(self, environment: Mapping[str, str]) -> Credentials:
        """Where the secrets of this target are; a token file of its own comes first."""
        variable = TOKEN_VARIABLE if environment.get(TOKEN_VARIABLE) else None
        if self.bearer_token_file is not None:
            variable = None
        return Credentials(
            self.bearer_token_file, variable, self.ca_file, self.cert_file, self.key_file
        )


@dataclass(frozen=True)
class Settings:
    """The whole file."""

    collect: Collect
    targets: tuple[Target, ...]


def read_settings(path: Path) -> Settings:
    """Settings of a file; paths in it are relative to its directory."""
    return parse_settings(read_toml(path), str(path), path.parent)


def parse_settings(tables: Mapping[str, Any], place: str, base: Path) -> Settings:
    """Check nested tables against every rule of their keys."""
    only_keys(tables, ("collect", "targets"), place, quote=True)
    for name in ("collect", "targets"):
        if name not in tables:
            raise InputError(place, name, "is required", "nothing")
    collect = _collect(table(tables["collect"], place, "collect"), place, base)
    found = tables["targets"]
    if not isinstance(found, list) or not 1 <= len(found) <= MOST_TARGETS:
        rule = f"must be 1 to {MOST_TARGETS} tables [[targets]]"
        raise InputError(place, "targets", rule, describe(found))
    targets: list[Target] = []
    for k, raw in enumerate(found):
        target = _target(table(raw, place, f"targets[{k}]"), place, f"targets[{k}]", base)
        if target.name in {other.name for other in targets}:
            raise InputError(place, f"targets[{k}].name", "must be unique: it names a directory")
        if target.spool is not None and target.spool in {other.spool for other in targets}:
            raise InputError(place, f"targets[{k}].spool", "must be unique: it is one engine's")
        targets.append(target)
    return Settings(collect, tuple(targets))


Read = Callable[[Any, str, str, Path], Any]


def _path(value: Any, place: str, name: str, base: Path) -> Path:
    text = _text(value, place, name)
    if not text or "\0" in text:
        raise InputError(place, name, "must be a path", describe(value))
    return base / text


def _time(minimum_us: int) -> Read:
    def read(value: Any, place: str, name: str, _: Path) -> int:
        return duration_us(_text(value, place, name), name, place, minimum_us)

    return read


def _size(value: Any, place: str, name: str, _: Path, most_bytes: int | None = None) -> int:
    text = str(value) if type(value) is int else _text(value, place, name)
    return size_bytes(text, name, place, most_bytes)


def _listen(value: Any, place: str, name: str, _: Path) -> tuple[str, int] | None:
    text = _text(value, place, name)
    if text == _NO_ADDRESS:
        return None
    match = _LISTEN.fullmatch(text)
    if not match or int(match["port"]) > _MOST_PORT:
        rule = f'must be host:port, e.g. "127.0.0.1:9108", or "{_NO_ADDRESS}"'
        raise InputError(place, name, rule, describe(value))
    return match["host"].strip("[]"), int(match["port"])


def _count(value: Any, place: str, name: str, _: Path) -> int:
    return integer(value, place, name, 1)


def _name(value: Any, place: str, name: str, _: Path) -> str:
    if not _NAME.fullmatch(text := _text(value, place, name)):
        rule = "must be 1 to 63 of a-z, 0-9 and -, and not begin with -: it names a directory"
        raise InputError(place, name, rule, describe(text))
    return text


def _url(value: Any, place: str, name: str, _: Path) -> str:
    text = _text(value, place, name)
    try:
        urls_of(text)
    except InputError as exc:
        raise InputError(place, name, exc.rule) from exc
    return text


def _host(value: Any, place: str, name: str, _: Path) -> str:
    if not _HOST.fullmatch(text := _text(value, place, name)):
        raise InputError(place, name, "must be a name to resolve", describe(text))
    return text


def _port(value: Any, place: str, name: str, _: Path) -> int:
    if integer(value, place, name, 1) > _MOST_PORT:
        raise InputError(place, name, f"must be <= {_MOST_PORT}", describe(value))
    return int(value)


def _scheme(value: Any, place: str, name: str, _: Path) -> str:
    return choice(value, place, name, ("http", "https"))


_COLLECT: Mapping[str, Read] = {
    "output": _path,
    "interval": _time(_SHORTEST_US),
    "timeout": _time(_SHORTEST_US),
    "rediscover": _time(_SECOND_US),
    "most_page": partial(_size, most_bytes=LARGEST_PAGE_BYTES),
    "rotate_every": _time(_SECOND_US),
    "rotate_rows": _count,
    "keep_age": _time(_SECOND_US),
    "keep_bytes": _size,
    "listen": _listen,
}
_FIELDS = {
    "interval": "interval_us",
    "timeout": "timeout_us",
    "rediscover": "rediscover_us",
    "most_page": "most_page_bytes",
    "keep_age": "keep_age_us",
}
_TARGET: Mapping[str, Read] = {
    "name": _name,
    "url": _url,
    "file_sd": _path,
    "dns": _host,
    "port": _port,
    "scheme": _scheme,
    "bearer_token_file": _path,
    "ca_file": _path,
    "cert_file": _path,
    "key_file": _path,
    "spool": _path,
}
_WHERE = ("url", "file_sd", "dns")


def _collect(raw: Mapping[str, Any], place: str, base: Path) -> Collect:
    only_keys(raw, _COLLECT, f"{place}: collect", quote=True)
    if "output" not in raw:
        raise InputError(place, "collect.output", "is required", "nothing")
    found = {k: _COLLECT[k](v, place, f"collect.{k}", base) for k, v in raw.items()}
    rotation = Rotation()
    if "rotate_every" in found:
        rotation = replace(rotation, age_us=found.pop("rotate_every"))
    if "rotate_rows" in found:
        rotation = replace(rotation, rows=found.pop("rotate_rows"))
    return Collect(rotation=rotation, **{_FIELDS.get(k, k): v for k, v in found.items()})


def _target(raw: Mapping[str, Any], place: str, name: str, base: Path) -> Target:
    only_keys(raw, _TARGET, f"{place}: {name}", quote=True)
    if "name" not in raw:
        raise InputError(place, f"{name}.name", "is required", "nothing")
    found = {k: _TARGET[k](v, place, f"{name}.{k}", base) for k, v in raw.items()}
    where = [key for key in _WHERE if key in found]
    if len(where) != 1:
        rule = f"must have one of {', '.join(_WHERE)}"
        raise InputError(place, name, rule, ", ".join(where) or "none")
    for key in ("port", "scheme"):
        if key in found and where != ["dns"]:
            raise InputError(place, f"{name}.{key}", "goes with dns only")
    if "spool" in found and where != ["url"]:
        rule = "goes with url only: a spool is one engine's"
        raise InputError(place, f"{name}.spool", rule)
    if "key_file" in found and "cert_file" not in found:
        raise InputError(place, f"{name}.key_file", "needs cert_file beside it")
    return Target(**found)


def _text(value: Any, place: str, name: str) -> str:
    if not isinstance(value, str):
        raise InputError(place, name, "must be a string", describe(value))
    return value
