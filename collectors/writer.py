"""Writing a run directory so that a reader finds a whole run at any moment (SPEC §9).

One writer at a time, by lock. The manifest and every part appear whole or not at all; whatever
kills the writer, `read_run` reads what was there before.
"""

import fcntl
import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from collectors.columns import DIRECTORIES, SCHEMA, TABLES, nullable
from collectors.manifest import check_manifest, manifest_schema, read_manifest, value_at
from replay.canonical import canonical_json, sha256
from replay.errors import InputError, OutputExists
from replay.output import new_directory, new_file
from replay.parquet import write_frame
from replay.version import __version__
from replay.workload import Workload
from replay.workload_file import write_workload

if TYPE_CHECKING:
    import polars as pl

LOCK = ".lock"
_PART = re.compile(r"part-([0-9]{5})\.parquet")
_LEFT_BEHIND = re.compile(r"\.(manifest\.json|offered\.jsonl|part-[0-9]{5}\.parquet)\..+")
_MOST_PARTS = 100_000


class RunWriter:
    """The one writer of a run directory, until it is closed (a context manager closes it).

    `create` and `resume` raise `OutputExists` where another process writes the run already. A run
    that vanished under its writer is `OutputExists`, too: nothing is made anew in its place.
    """

    def __init__(self, path: Path, manifest: dict[str, Any], lock: int) -> None:
        self.path, self.manifest, self._lock = path, manifest, lock
        first: Mapping[str, int] = value_at(manifest, "collection.first_parts") or {}
        self._next = {
            table: max(_next_part(path / name), first.get(name, 0))
            for table, name in DIRECTORIES.items()
        }

    @classmethod
    def create(cls, path: Path, manifest: dict[str, Any]) -> Self:
        """Make a new run that holds nothing but its manifest; `path` must not exist."""
        check_manifest(manifest, str(path / "manifest.json"))
        if path.exists():
            raise OutputExists(f"{path}: exists; choose another path")
        with new_directory(path, force=False, owned=()) as temporary:
            (temporary / "manifest.json").write_text(_text(manifest), encoding="utf-8")
            (temporary / "manifest.json").chmod(0o600)
            # Locked before anybody can see it.
            lock = _locked(temporary, path)
        path.chmod(0o700)
        return cls(path, manifest, lock)

    @classmethod
    def resume(cls, path: Path) -> Self:
        """Go on with a run; what a killed writer left half written is removed."""
        if path.exists() and not (path / "manifest.json").exists():
            raise OutputExists(f"{path}: exists and is no run; choose another path")
        manifest = read_manifest(path / "manifest.json")
        writer = cls(path, manifest, _locked(path, path))
        for folder in (path, *(path / name for name in DIRECTORIES.values())):
            for entry in folder.iterdir() if folder.is_dir() else ():
                if _LEFT_BEHIND.fullmatch(entry.name):
                    entry.unlink(missing_ok=True)
        return writer

    def write_manifest(self, manifest: dict[str, Any]) -> None:
        """Put a new manifest in the old one's place."""
        place = self._there("manifest.json")
        check_manifest(manifest, str(place))
        if manifest["run_id"] != self.manifest["run_id"]:
            raise InputError(str(place), "run_id", "must stay the run's")
        with new_file(place, force=True, mode=0o600) as temporary:
            temporary.write_text(_text(manifest), encoding="utf-8")
        self.manifest = manifest

    def write_offered(self, workload: Workload) -> None:
        """Keep the workload that is offered, in its text form."""
        with new_file(self._there("offered.jsonl"), force=False, mode=0o600) as temporary:
            write_workload(workload, temporary, suffix=".jsonl")

    def next_part(self, table: str) -> int:
        """Number of the part that `write_part` writes next."""
        return self._next[table]

    def write_part(self, table: str, frame: "pl.DataFrame") -> Path:
        """Append rows as the table's next part, every value held to its column's rule.

        Columns that may be null can be left out, and `run_id` is filled in.
        """
        number = self._next[table]
        if number >= _MOST_PARTS:
            raise OutputExists(f"{self.path}: holds {number} parts of {table}; begin another run")
        place = self._there(DIRECTORIES[table], f"part-{number:05d}.parquet")
        place.parent.mkdir(mode=0o700, exist_ok=True)
        checked = _checked(frame, table, self.manifest["run_id"], str(place))
        with new_file(place, force=False, mode=0o600) as temporary:
            write_frame(checked, temporary, {"schema": SCHEMA})
        self._next[table] = number + 1
        return place

    def close(self) -> None:
        """Let another writer have the run."""
        with suppress(OSError):
            os.close(self._lock)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _there(self, *names: str) -> Path:
        if not (self.path / "manifest.json").exists():
            raise OutputExists(f"{self.path}: is gone; nothing was written")
        return self.path.joinpath(*names)


def new_manifest(run_id: str, kind: str, *, start: datetime | None) -> dict[str, Any]:
    """A manifest with every key that must be there, what is not known yet being null.

    `start` is zero of the run's times, aware of its zone.
    """
    manifest = _nulls(manifest_schema())
    manifest |= {"schema": SCHEMA, "run_id": run_id, "kind": kind, "privacy": "raw"}
    manifest["engine"]["name"] = "vllm"
    manifest["start"] = start and f"{start.astimezone(UTC).replace(tzinfo=None).isoformat()}Z"
    manifest["collector_version"] = __version__
    return manifest


def run_id_of(start: datetime, *salt: str) -> str:
    """Name for a run that began then, told apart from others by `salt`."""
    return f"{start.astimezone(UTC):%Y%m%dT%H%M%SZ}-{sha256(canonical_json(salt))[:8]}"


def configuration_sha256(manifest: Mapping[str, Any]) -> str:
    """Hash of what makes two engines the same: release, model, sizes, cache and scheduler."""
    same = {key: manifest[key] for key in ("engine", "parallel", "cache", "scheduler")}
    return sha256(canonical_json(same | {"model": manifest["model"]["name"]}))


def _text(manifest: Mapping[str, Any]) -> str:
    return json.dumps(manifest, indent=1, ensure_ascii=False) + "\n"


def _nulls(schema: Mapping[str, Any]) -> dict[str, Any]:
    """An object of a schema's required keys, null as deep as they go."""
    found: dict[str, Any] = {}
    for key in schema["required"]:
        inner = schema["properties"][key]
        found[key] = _nulls(inner) if inner["type"] == "object" else None
    return found


def _locked(held: Path, path: Path) -> int:
    lock = os.open(held / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError as exc:
        os.close(lock)
        raise OutputExists(f"{path}: another process writes this run; choose another path") from exc
    return lock


def _next_part(folder: Path) -> int:
    names = (entry.name for entry in folder.iterdir()) if folder.is_dir() else ()
    return max((int(m[1]) + 1 for m in map(_PART.fullmatch, names) if m), default=0)


def _checked(frame: "pl.DataFrame", table: str, run_id: str, place: str) -> "pl.DataFrame":
    """The frame in the contract's columns and types."""
    import polars as pl

    from collectors.values import checked, dtype_of

    kinds = TABLES[table]
    frame = frame.with_columns(run_id=pl.lit(run_id))
    for name in [name for name in frame.columns if name not in kinds]:
        raise InputError(place, name, f"is no column of {table}")
    columns = []
    for name, kind in kinds.items():
        if name in frame.columns:
            columns.append(checked(frame[name], kind, lambda row: f"{place}: row {row}"))
        elif nullable(kind):
            unknown = pl.repeat(None, frame.height, dtype=dtype_of(kind), eager=True)
            columns.append(unknown.alias(name))
        else:
            raise InputError(place, name, "is required", "no such column")
    return pl.DataFrame(columns)
