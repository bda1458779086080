"""One query of a stranger against a store or lake: it only reads, reaches nothing else, and ends.

The statement must be one that reads; that is decided by DuckDB's own parser, and what the parser
lets through meets a database that is opened read-only, with external access off and its
configuration locked. Refusals, faults of the query and its end by timeout are `QueryError`.
"""

import os
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import duckdb

from analysis.database import CONFIG, Setting, check_version, one_line, open_file
from analysis.errors import QueryError
from analysis.lake.views import make_views
from analysis.sqlfiles import literal, quoted
from replay.canonical import canonical_json
from replay.limitations import LIMITATIONS

SCHEMA = "preemption-query/1"  # of the Parquet files that hold a result
MAX_QUERY_CHARACTERS = 2**20
MEMORY_LIMIT = "3GB"
TEMPORARY_LIMIT = "10GB"  # what does not fit the memory is spilled to a private directory
MAX_THREADS = 8
CHUNK_ROWS = 2048
_T = TypeVar("_T")
_SLICE_SECONDS = 0.2
_READING = "SELECT, FROM, WITH, VALUES, DESCRIBE, SHOW, SUMMARIZE, EXPLAIN"
# Parquet has no 128-bit integers (DuckDB would write floats) and few readers of its JSON type.
_PARQUET_CASTS = {"HUGEINT": "BIGINT", "UHUGEINT": "BIGINT", "JSON": "VARCHAR"}


@dataclass(frozen=True)
class Column:
    """Name and DuckDB type of one column of a result."""

    name: str
    type: str


@dataclass(frozen=True)
class Result:
    """A running query: its columns, and its rows in chunks of bounded size, once."""

    columns: Sequence[Column]
    is_plan: bool  # EXPLAIN: the text of a plan, not rows of data
    _text: str
    _directory: Path
    _db: duckdb.DuckDBPyConnection
    _runner: "_Runner"

    def chunks(self) -> Iterator[list[tuple[Any, ...]]]:
        """Rows as Python values, NULL as None."""
        while True:
            rows = self._runner.run(self._db.fetchmany, CHUNK_ROWS)
            if not rows:
                return
            yield rows

    def to_parquet(self) -> Path:
        """Path of a Parquet file of the result, which lives as long as the query is open.

        Integers are 64-bit, JSON is text; the file's metadata names its schema and what the
        modelled numbers in it leave out. The query runs anew for it.
        """
        names = [c.name for c in self.columns]
        check_unique(names, "Parquet")
        if self.is_plan:
            raise QueryError("query: EXPLAIN gives a text; use --format table, csv or json")
        chosen = [
            f"CAST(c{k} AS {_PARQUET_CASTS[c.type]})" if c.type in _PARQUET_CASTS else f"c{k}"
            for k, c in enumerate(self.columns)
        ]
        columns = ", ".join(f"{v} AS {quoted(n)}" for v, n in zip(chosen, names, strict=True))
        aliases = ", ".join(f"c{k}" for k in range(len(names)))
        limitations = literal(canonical_json(list(LIMITATIONS)).decode())
        path = self._directory / "result.parquet"
        copy = (
            f"COPY (SELECT {columns} FROM (\n{self._text}\n) AS result({aliases}))"  # noqa: S608
            f" TO {literal(str(path))} (FORMAT parquet,"
            f" KV_METADATA {{schema: {literal(SCHEMA)}, limitations: {limitations}}})"
        )
        self._runner.run(self._db.execute, copy)
        return path


@contextmanager
def open_query(
    path: Path,
    text: str,
    *,
    lake: bool = False,
    timeout_seconds: float = 60.0,
    wait_seconds: float = 10.0,
) -> Iterator[Result]:
    """Run one reading statement against the store at `path`; rows come as they are fetched.

    `lake`: `path` is the directory of a lake. `timeout_seconds` counts everything until the block
    ends. `wait_seconds` is for a store that is being loaded.
    """
    _check_text(text)
    with tempfile.TemporaryDirectory(prefix="preempt-sql-") as directory:
        db = _lake_sandbox(path, directory) if lake else _sandbox(path, directory, wait_seconds)
        runner = _Runner(db, timeout_seconds)
        try:
            check_version(db, str(path))
            # Parsed by this connection, because some statements read files even then.
            is_plan = _is_plan(runner.run(db.extract_statements, text))
            if lake and is_plan and not runner.run(_explains_reading, db, text):
                raise QueryError(f"query: must only read ({_READING}), got EXPLAIN of another")
            found = runner.run(db.execute, text)
            columns = [Column(d[0], str(d[1])) for d in found.description or ()]
            yield Result(columns, is_plan, _without_end(text), Path(directory), db, runner)
        finally:
            runner.stop()
            db.close()


def check_unique(names: Sequence[str], form: str) -> None:
    """Refuse two columns of one name where a row is keyed by names."""
    if len(set(names)) != len(names):
        raise QueryError(f"query: {form} needs columns of different names; rename with AS")


def _check_text(text: str) -> None:
    if len(text) > MAX_QUERY_CHARACTERS:
        raise QueryError(f"query: must have at most {MAX_QUERY_CHARACTERS} characters")
    if not text.isascii() and any("\ud800" <= c <= "\udfff" for c in text):
        raise QueryError("query: must be UTF-8 text")


def _is_plan(statements: list[duckdb.Statement]) -> bool:
    """Refuse all but one statement that reads; whether it is an EXPLAIN."""
    if len(statements) != 1:
        raise QueryError(f"query: must be one statement, got {len(statements) or 'none'}")
    try:
        kind = statements[0].type
    except ValueError:  # a kind that only the engine knows
        raise QueryError(f"query: must only read ({_READING})") from None
    if kind == duckdb.StatementType.MULTI:
        hint = "a PIVOT must name its values: PIVOT … ON column IN (…)"
        raise QueryError(f"query: must be one statement; {hint}")
    if kind not in (duckdb.StatementType.SELECT, duckdb.StatementType.EXPLAIN):
        raise QueryError(f"query: must only read ({_READING}), got {kind.name}")
    return bool(kind == duckdb.StatementType.EXPLAIN)


def _explains_reading(db: duckdb.DuckDBPyConnection, text: str) -> bool:
    """Whether what an EXPLAIN is of only reads: EXPLAIN ANALYZE runs it, and COPY writes files.

    What is explained stands behind EXPLAIN, EXPLAIN ANALYZE or EXPLAIN (options).
    """
    data = text.encode()
    tokens = [at for at, kind in duckdb.tokenize(text) if kind != duckdb.token_type.comment]
    begins = [1]
    if data[tokens[1] :].upper().startswith((b"ANALYZE", b"ANALYSE")):
        begins.append(2)
    elif data[tokens[1] :].startswith(b"("):
        begins += [k + 1 for k, at in enumerate(tokens) if data[at : at + 1] == b")"][:1]
    return any(_selects(db, data[tokens[k] :].decode()) for k in begins if k < len(tokens))


def _selects(db: duckdb.DuckDBPyConnection, text: str) -> bool:
    try:
        (statement,) = db.extract_statements(text)
        return bool(statement.type == duckdb.StatementType.SELECT)
    except (duckdb.Error, ValueError):
        return False


def _without_end(text: str) -> str:
    """The statement up to the semicolon that ends it, if one does, for use inside another."""
    data = text.encode()
    end = len(data)
    for offset, kind in reversed(duckdb.tokenize(text)):
        if kind == duckdb.token_type.comment:
            continue
        if data[offset : offset + 1] != b";":
            break
        end = offset
    return data[:end].decode()


def _sandbox(path: Path, directory: str, wait_seconds: float) -> duckdb.DuckDBPyConnection:
    settings = _settings(directory) | {
        "enable_external_access": "false",
        "lock_configuration": "true",
    }
    return open_file(path, read_only=True, wait_seconds=wait_seconds, config=settings)


def _lake_sandbox(root: Path, directory: str) -> duckdb.DuckDBPyConnection:
    """Views on a lake, in a database of their own that is as closed, but for the lake's files."""
    views = Path(directory) / "lake.duckdb"
    files = make_views(root, views)
    db = open_file(views, read_only=True, wait_seconds=0, config=_settings(directory))
    allowed = ", ".join(literal(str(file)) for file in files)
    db.execute(f"SET allowed_paths = [{allowed}]")
    db.execute("SET enable_external_access = false")
    db.execute("SET lock_configuration = true")
    return db


def _settings(directory: str) -> dict[str, Setting]:
    return {
        **CONFIG,
        "allow_community_extensions": "false",
        "memory_limit": MEMORY_LIMIT,
        "threads": str(min(MAX_THREADS, os.cpu_count() or 1)),
        "temp_directory": directory,
        "max_temp_directory_size": TEMPORARY_LIMIT,
    }


class _Runner:
    """Runs calls on a connection within one deadline, in a thread that can be interrupted.

    In the main thread a long step of DuckDB would hold back Ctrl-C until it ends.
    """

    def __init__(self, db: duckdb.DuckDBPyConnection, seconds: float) -> None:
        self._db, self._seconds = db, seconds
        self._deadline = time.monotonic() + seconds
        self._pool = ThreadPoolExecutor(max_workers=1)

    def run(self, call: Callable[..., _T], *arguments: Any) -> _T:
        """What the call gives; what DuckDB raises, and the deadline, come as `QueryError`."""
        # Made before it is handed over, so that a Ctrl-C in between still finds it.
        future: Future[_T] = Future()
        try:
            self._pool.submit(_settle, future, call, arguments)
            while not future.done():
                if (left := self._deadline - time.monotonic()) <= 0:
                    self._interrupt(future)
                    rule = f"stopped after {self._seconds:g} s; --timeout allows more"
                    raise QueryError(f"query: {rule}")
                # In slices: a signal that comes just before the wait does not end it.
                wait([future], min(left, _SLICE_SECONDS))
            return future.result()
        except duckdb.Error as exc:
            raise QueryError(f"query: {one_line(exc)}") from exc
        except KeyboardInterrupt:
            self._interrupt(future)
            raise

    def stop(self) -> None:
        self._pool.shutdown()

    def _interrupt(self, future: "Future[Any]") -> None:
        # One that comes between two statements is forgotten, so it is repeated.
        while not (future.cancel() or future.done()):
            self._db.interrupt()
            wait([future], 0.05)


def _settle(future: "Future[_T]", call: Callable[..., _T], arguments: tuple[Any, ...]) -> None:
    if not future.set_running_or_notify_cancel():
        return
    try:
        future.set_result(call(*arguments))
    except BaseException as exc:  # noqa: BLE001 (it is raised where the result is asked for)
        future.set_exception(exc)
