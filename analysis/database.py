"""The database file: made whole, opened under DuckDB's lock, of one known version.

DuckDB lets one process write, or several read. A file that is locked for too long, is no store, or
is one of another version raises `StoreError` on one line.
"""

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from analysis.errors import StoreError
from analysis.sqlfiles import TABLES, VIEWS, first_comment, literal, sql
from replay.errors import OutputExists, is_interrupt
from replay.output import new_file
from replay.strict import named_version, printable
from replay.version import __version__

SCHEMA = "preemption-store/9"
REBUILD = "delete it and load again"  # it is disposable
MEMORY_LIMIT = "2GB"
Setting = str | bool | int | float | list[str]
# No extension is fetched, no variable of this program is mistaken for a table.
CONFIG: dict[str, Setting] = {
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "python_enable_replacements": "false",
}


def connect(
    path: Path | None, *, read_only: bool = False, wait_seconds: float = 30.0
) -> duckdb.DuckDBPyConnection:
    """Open the store at `path`, created where missing unless `read_only`; None is one in memory.

    DuckDB lets one process write: a locked file is waited for, then `StoreError` is raised, as it
    is for a file that is no store or one of another version.
    """
    if path is not None and not _utf8(path):
        raise StoreError(f"{printable(str(path), 200)}: must be UTF-8; choose another path")
    if path is None:
        db = duckdb.connect(config=CONFIG)
        create(db)
        return db
    if not read_only and not path.exists():
        _make(path)
    # What does not fit is spilled beside the file. No question relies on the order of rows.
    config = CONFIG | {"memory_limit": MEMORY_LIMIT, "preserve_insertion_order": "false"}
    db = open_file(path, read_only=read_only, wait_seconds=wait_seconds, config=config)
    try:
        check_version(db, str(path))
    except BaseException:
        db.close()
        raise
    return db


def open_file(
    path: Path, *, read_only: bool, wait_seconds: float, config: Mapping[str, Setting]
) -> duckdb.DuckDBPyConnection:
    """DuckDB connection to an existing file, whatever it holds; waits for a lock."""
    place = printable(str(path), 200)
    if not path.is_file():
        found = "no such file" if not path.exists() else "not a file"
        raise StoreError(f"{place}: {found}; preempt load --db makes the database")
    deadline = time.monotonic() + wait_seconds
    while True:
        try:
            # Absolute, because DuckDB gives prefixes such as md: and :memory: a meaning.
            return duckdb.connect(path.absolute(), read_only=read_only, config=dict(config))
        except duckdb.IOException as exc:
            if "Could not set lock" not in str(exc):
                hint = f"; {REBUILD}" if "newer version" in str(exc) else ""
                raise StoreError(f"{place}: cannot be opened; {one_line(exc)}{hint}") from exc
            if time.monotonic() >= deadline:
                raise StoreError(
                    f"{place}: another process has it open; nothing was done, try again later"
                ) from exc
        except duckdb.Error as exc:
            raise StoreError(f"{place}: cannot be opened; {one_line(exc)}") from exc
        time.sleep(0.05)


def create(db: duckdb.DuckDBPyConnection) -> None:
    """Make every table and view in an empty database; one that has them is only checked."""
    if _own_tables(db):
        check_version(db, "database")
        return
    with transaction(db, "database"):
        for name in TABLES:
            db.execute(sql("tables", name))
        create_views(db)
        db.execute("INSERT INTO store_info VALUES (?, ?)", [SCHEMA, __version__])


def create_views(db: duckdb.DuckDBPyConnection) -> None:
    """Make every view, on whatever stands for the tables."""
    for name in VIEWS:
        db.execute(sql("views", name))
        comment = literal(first_comment(sql("views", name)).replace("\n", " "))
        db.execute(f"COMMENT ON VIEW {name} IS {comment}")


@contextmanager
def transaction(db: duckdb.DuckDBPyConnection, place: str) -> Iterator[None]:
    """All of the block or nothing of it; what DuckDB refuses is a `StoreError`."""
    try:
        db.execute("BEGIN TRANSACTION")
        yield
        db.execute("COMMIT")
    except BaseException as exc:
        with suppress(duckdb.Error):
            db.execute("ROLLBACK")
        if is_interrupt(exc):
            raise KeyboardInterrupt from exc
        if isinstance(exc, duckdb.Error):
            raise StoreError(f"{place}: nothing was loaded; {one_line(exc)}") from exc
        raise


def one_line(error: Exception) -> str:
    """What DuckDB says, without the excerpt of the statement, on one printable line."""
    text = str(error).split("\nLINE ")[0]
    return printable(" ".join(text.split()), 300)


def check_version(db: duckdb.DuckDBPyConnection, place: str) -> None:
    """Refuse a database that is no store, or one of another version, by name."""
    place = printable(place, 200)
    try:
        found = (
            db.execute("SELECT schema FROM main.store_info").fetchone()
            if "store_info" in _own_tables(db)
            else None
        )
    except duckdb.Error as exc:
        raise StoreError(f"{place}: cannot be read; {one_line(exc)}") from exc
    if found is None:
        raise StoreError(f"{place}: is not a database made by preempt load; choose another file")
    if found[0] != SCHEMA:
        raise StoreError(f"{place}: must be {SCHEMA}, got {named_version(found[0])}; {REBUILD}")


def _make(path: Path) -> None:
    """A new store appears whole, so a killed creation never leaves a file that cannot be read."""
    try:
        with new_file(path, force=False, mode=0o600) as temporary:
            temporary.unlink()  # DuckDB takes no empty file
            try:
                with duckdb.connect(temporary.absolute(), config=CONFIG) as db:
                    create(db)
                    db.execute("CHECKPOINT")  # closing would keep a full disk to itself
            finally:
                Path(f"{temporary}.wal").unlink(missing_ok=True)
    except duckdb.Error as exc:
        raise StoreError(f"{printable(str(path), 200)}: cannot be made; {one_line(exc)}") from exc
    except OutputExists:
        if not path.is_file():  # else another process was faster, and its store is as good
            raise


def _utf8(path: Path) -> bool:
    try:
        str(path.absolute()).encode()
    except UnicodeEncodeError:
        return False
    return True


def _own_tables(db: duckdb.DuckDBPyConnection) -> set[str]:
    query = "SELECT table_name FROM duckdb_tables() WHERE NOT temporary"
    return {name for (name,) in db.execute(query).fetchall()}
