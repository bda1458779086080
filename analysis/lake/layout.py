"""Where a lake keeps what: one Parquet file per table and ledger or run, in Hive partitions.

Names come from strangers and become part of a path only behind `key=`, percent-encoded as Hive does
it, so that none of them leads anywhere else. A lake is listed without following a symbolic link.
"""

import os
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from analysis.errors import StoreError
from replay.errors import InputError
from replay.strict import printable

KEYS = ("engine_version", "run_id")
# Of each group the last is its record: written last and taken away first, so that what has one
# is whole.
RUN_TABLES = (
    "measured_workloads",
    "measured_requests",
    "measured_events",
    "measured_steps",
    "metric_samples",
    "measured_runs",
)
LEDGER_TABLES = ("modelled_requests", "modelled_events", "modelled_ledgers")
REPORT_TABLES = ("gate_results",)
GROUPS = (RUN_TABLES, LEDGER_TABLES, REPORT_TABLES)
RUN_FILE = "run.parquet"
UNFINISHED = ".loading-"  # begins the directory of a load that is running, or was killed
HIVE_NULL = "__HIVE_DEFAULT_PARTITION__"
# Hive's own list (FileUtils.charToEscape), of which DuckDB's patterns are a part.
_ESCAPED = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")
_MOST_BYTES = 255  # of a name, on every usual file system
_IGNORED = (".", "_")  # how names begin that no reader of a lake looks at
_PATTERN = re.compile(r"[*?\[=]")  # of DuckDB, or of a partition
_FILE = re.compile(r"(run|[0-9a-f]{64})\.parquet")


@dataclass(frozen=True)
class Entry:
    """One ledger, run or gate report of a lake: its tables' files, the record's last."""

    engine_version: str | None
    run_id: str | None
    name: str  # of its file in each table
    files: Mapping[str, Path]


def partition(engine_version: str | None, run_id: str | None, place: str) -> str:
    """Directories below a table's for these two; what no directory can be named is refused."""
    values = dict(zip(KEYS, (engine_version, run_id), strict=True))
    return "/".join(f"{key}={_encoded(key, value, place)}" for key, value in values.items())


def entries(root: Path, tables: tuple[str, ...], *, whole: bool = False) -> list[Entry]:
    """Everything of one of `GROUPS` that a lake has a record of, in order of path.

    What lacks the file of another table is a `StoreError`, or left out if only what is `whole` is
    asked for. Links, and names that a lake does not give, are a `StoreError`.
    """
    record = tables[-1]
    depth = 0 if tables == REPORT_TABLES else len(KEYS)
    found = []
    for file in _files(root / record, depth):
        beside = file.relative_to(root / record)
        files = {name: root / name / beside for name in tables}
        for path in files.values():
            refuse_links(root, path)
        lacking = [path for path in files.values() if not path.is_file()]
        if lacking and whole:
            continue
        if lacking:
            _refuse(lacking[0], "is missing; it is being loaded, or preempt load --lake adds it")
        values = [_decoded(part) for part in beside.parts[:-1]] or [None, None]
        found.append(Entry(values[0], values[1], file.name, files))
    ids = Counter(_id(entry, tables) for entry in found)
    for entry in found:
        if ids[_id(entry, tables)] > 1:
            _refuse(entry.files[record], "is there under another engine_version, too; remove one")
    return found


def _id(entry: Entry, tables: tuple[str, ...]) -> tuple[str | None, str]:
    return entry.run_id, "" if tables == RUN_TABLES else entry.name


def leftovers(root: Path, name: str, keep: Iterable[Path]) -> list[Path]:
    """Files of the run whose directories have this name, the record first, without those to keep.

    They are of another engine version, which was not known yet when the run was first loaded.
    """
    kept = set(keep)
    found = []
    for table in reversed(RUN_TABLES):
        versions = [v for v in _directories(root / table) if v.name.startswith("engine_version=")]
        files = [version / name / RUN_FILE for version in versions]
        found += [file for file in files if file not in kept and os.path.lexists(file)]
    for file in found:
        refuse_links(root, file)
    return found


def check_root(root: Path) -> Path:
    """Its absolute path, links resolved; refused where DuckDB would read more out of it."""
    place = printable(str(root), 200)
    try:
        resolved = root.resolve()
        str(resolved).encode()
    except (OSError, RuntimeError, UnicodeEncodeError) as exc:
        raise StoreError(f"{place}: must be a path in UTF-8; choose another directory") from exc
    if _PATTERN.search(str(resolved)):
        raise StoreError(f"{place}: must hold none of * ? [ =; choose another directory")
    return resolved


def check_contents(root: Path) -> None:
    """Refuse a directory that holds anything but a lake's tables."""
    known = {table for group in GROUPS for table in group}
    try:
        foreign = sorted(n for n in os.listdir(root) if n not in known and not _ignored(n))  # noqa: PTH208
    except OSError as exc:
        place = printable(str(root), 200)
        raise StoreError(f"{place}: must be a directory, {exc.strerror}") from exc
    if foreign:
        _refuse(root / foreign[0], "is no table of a lake; choose another directory")


def refuse_links(root: Path, path: Path) -> None:
    """Refuse a path in a lake that is a symbolic link, or leads through one."""
    for part in (*path.relative_to(root).parents[:-1], path.relative_to(root)):
        if (root / part).is_symlink():
            _refuse(root / part, "is a symbolic link, which a lake does not follow")


def _encoded(key: str, value: str | None, place: str) -> str:
    if value is None:
        return HIVE_NULL
    if value == HIVE_NULL:
        rule = f"must not be {HIVE_NULL} in a lake, which is Hive's word for none; use --db"
        raise InputError(printable(place, 200), key, rule)
    # Some readers take the word for none.
    first = 1 if value.lower() == "null" else 0
    encoded = "".join(f"%{ord(c):02X}" for c in value[:first])
    encoded += _ESCAPED.sub(lambda found: f"%{ord(found[0]):02X}", value[first:])
    length = len(f"{key}={encoded}".encode())
    if length > _MOST_BYTES:
        rule = f"must fit into a directory name of {_MOST_BYTES} bytes in a lake; use --db"
        raise InputError(printable(place, 200), key, rule, f"{length} bytes")
    return encoded


def _decoded(name: str) -> str | None:
    value = name.partition("=")[2]
    return None if value == HIVE_NULL else unquote(value)


def _files(table: Path, depth: int) -> Iterator[Path]:
    """Files of the partitions of a table, as a lake has them, in order."""
    for entry in _listed(table):
        path = Path(entry.path)
        if depth == 0:
            if not entry.is_file(follow_symlinks=False) or not _FILE.fullmatch(entry.name):
                _refuse(path, "is no file of a lake; move it away")
            yield path
        elif not entry.is_dir(follow_symlinks=False) or not _is_partition(entry.name, depth):
            _refuse(path, f"is no directory {KEYS[-depth]}=…; move it away")
        else:
            yield from _files(path, depth - 1)


def _is_partition(name: str, depth: int) -> bool:
    """Whether a lake would have named it so."""
    key = KEYS[-depth]
    if not name.startswith(f"{key}="):
        return False
    try:
        return name == f"{key}={_encoded(key, _decoded(name), '')}"
    except (InputError, UnicodeEncodeError):
        return False


def _directories(path: Path) -> list[Path]:
    return [Path(e.path) for e in _listed(path) if e.is_dir(follow_symlinks=False)]


def _listed(path: Path) -> list[os.DirEntry[str]]:
    """What is in a directory and not to be ignored, by name; nothing where there is none."""
    if path.is_symlink():
        _refuse(path, "is a symbolic link, which a lake does not follow")
    try:
        with os.scandir(path) as found:
            return sorted((e for e in found if not _ignored(e.name)), key=lambda e: e.name)
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise StoreError(f"{printable(str(path), 200)}: cannot be read; {exc.strerror}") from exc


def _ignored(name: str) -> bool:
    return name.startswith(_IGNORED)


def _refuse(path: Path, rule: str) -> None:
    raise StoreError(f"{printable(str(path), 200)}: {rule}")
