"""Ledgers and runs into a lake, after the same checks as into a database, because they are those.

A load fills a database of its own beside the lake, which begins with what the lake has of the same
ids, and what came to be in it is written as Parquet and renamed into place. So an id is skipped,
brought up to date or refused exactly as in a store.
"""

import os
import tempfile
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import duckdb

from analysis import store
from analysis.errors import ContentConflict
from analysis.lake.files import check_versions, columns, export, selection
from analysis.lake.held import held, staging, worded
from analysis.lake.layout import (
    GROUPS,
    LEDGER_TABLES,
    REPORT_TABLES,
    RUN_FILE,
    RUN_TABLES,
    Entry,
    check_root,
    entries,
    leftovers,
    partition,
    refuse_links,
)
from analysis.sqlfiles import literal
from analysis.store import Loaded, Notice
from replay.errors import InputError
from replay.output import sync
from replay.strict import parse_json, printable, read_text

MEMORY_LIMIT = "1GB"  # beside what is being loaded; the rest is spilled into the lake
MAX_THREADS = 4  # each holds row groups
Files: TypeAlias = Mapping[Path, Path]  # by place in the lake, where each was written
_GROUP = {"run": RUN_TABLES, "ledger": LEDGER_TABLES, "gate report": REPORT_TABLES}
_NOT_COMPARED = ("modelled_events",)  # the ledger's id holds them


def load_path(
    root: Path,
    path: Path,
    notice: Notice = lambda _: None,
    *,
    refresh: bool = False,
    check: str = store.AUTO,
    wait_seconds: float = 30.0,
) -> list[Loaded]:
    """Add what `path` holds to the lake at `root`, made if missing; as `store.load_path`.

    Everything is checked and written before the first file is renamed into place. A load that is
    killed while it renames leaves whole files; what they are of has no record yet, and loading
    again completes it.
    """
    root = check_root(root)
    claimed = {found for source in store.sources(path) if (found := _claimed(source)) is not None}
    with held(root, wait_seconds), staging(root) as stage:
        with store.connect(stage / "stage.duckdb") as db:
            with worded(root):
                db.execute(f"SET memory_limit = '{MEMORY_LIMIT}'")
                db.execute(f"SET threads = {min(MAX_THREADS, os.cpu_count() or 1)}")
                db.execute(f"SET temp_directory = {literal(str(stage / 'spilled'))}")
                _seed(db, root, claimed)
            loaded = store.load_path(db, path, notice, refresh=refresh, check=check)
            new = [item for item in loaded if item.state != store.THERE]
            for item in new:
                if item.id not in claimed:  # so nobody looked whether the lake has it
                    place = printable(str(item.path), 200)
                    raise ContentConflict(f"{place}: changed while it was read; load it again")
            with worded(root):
                written = [_write(db, root, stage, item) for item in new]
        with worded(root):
            for files in written:
                _publish(root, files)
    return loaded


def _seed(db: duckdb.DuckDBPyConnection, root: Path, ids: Collection[str]) -> None:
    """What the lake holds of these ids, put into an empty store."""
    for tables in GROUPS:
        known = entries(root, tables, whole=True)
        check_versions(db, [entry.files[tables[-1]] for entry in known])
        wanted = [entry for entry in known if _id_of(entry, tables) in ids]
        for name in tables:
            if wanted and name not in _NOT_COMPARED:
                rows = selection(columns(db, name), name, [entry.files[name] for entry in wanted])
                db.execute(f"INSERT INTO {name} BY NAME {rows}")


def _id_of(entry: Entry, tables: tuple[str, ...]) -> str | None:
    return entry.run_id if tables == RUN_TABLES else entry.name.removesuffix(".parquet")


def _claimed(path: Path) -> str | None:
    """The id that a ledger, run or gate report gives itself, before anything of it is checked."""
    for name, key in (("receipt.json", "receipt_sha256"), ("manifest.json", "run_id")):
        if (path / name).exists():
            return _value(path / name, key)
    return _value(path, "report_sha256")


def _value(path: Path, key: str) -> str | None:
    try:
        found = parse_json(read_text(path), str(path))
    except InputError:
        return None  # the load says what is wrong
    value = found.get(key) if isinstance(found, dict) else None
    return value if isinstance(value, str) else None


def _write(db: duckdb.DuckDBPyConnection, root: Path, stage: Path, item: Loaded) -> Files:
    """Files of a ledger, run or report: those written, by where they belong, the record last."""
    directory = Path(tempfile.mkdtemp(dir=stage))
    where: dict[str, str | None]
    match item.kind:
        case "run":
            below, name, where = _run_partition(db, item), RUN_FILE, {"run_id": item.id}
        case "ledger":
            below, name = _ledger_partition(db, item), f"{item.id}.parquet"
            where = {"ledger_id": item.id, "run_id": item.run_id}
        case _:
            below, name, where = "", f"{item.id}.parquet", {"report_sha256": item.id}
    tables = _GROUP[item.kind]
    if item.kind == "ledger" and item.state == store.REFRESHED:
        tables = tables[-1:]  # it was checked more closely, that is all
    files = {}
    for table in tables:
        written = directory / f"{table}.parquet"
        export(db, table, where, written)
        files[root / table / below / name] = written
    return files


def _run_partition(db: duckdb.DuckDBPyConnection, item: Loaded) -> str:
    query = "SELECT engine_version FROM measured_runs WHERE run_id = ?"
    ((version,),) = db.execute(query, [item.id]).fetchall()
    return partition(version, item.id, str(item.path))


def _ledger_partition(db: duckdb.DuckDBPyConnection, item: Loaded) -> str:
    """Under the release whose rule was replayed; the lab's rule is no engine's."""
    query = "SELECT profile, rule FROM modelled_ledgers WHERE ledger_id = ?"
    profile, rule = db.execute(query, [item.id]).fetchall()[0]
    version = None if profile == "lab" else rule.removeprefix("vllm-")
    return partition(version, item.run_id, str(item.path))


def _publish(root: Path, files: Files) -> None:
    """Rename into place; while files of an older load are replaced, there is no record."""
    *_, record = files
    refuse_links(root, record)
    record.unlink(missing_ok=True)
    if record.name == RUN_FILE:
        for old in leftovers(root, record.parent.name, files):
            old.unlink()
            with suppress(OSError):  # not empty
                old.parent.rmdir()
                old.parent.parent.rmdir()
    for place, written in files.items():
        refuse_links(root, place)
        sync(written)
        made = [above for above in place.parents if not above.exists()]
        for above in reversed(made):
            above.mkdir(mode=0o700)
        written.chmod(0o600)
        written.replace(place)
        for above in (place.parent, *(a.parent for a in made)):
            sync(above)
