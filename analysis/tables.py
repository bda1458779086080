"""Rows into a table of the store, and whether it holds them already.

Checked frames go in through a private temporary Parquet file: DuckDB reads polars frames only with
pyarrow. A large file that was checked goes in itself, if it has not changed since.
"""

import os
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import duckdb

from replay.errors import InputError
from replay.strict import open_regular

if TYPE_CHECKING:
    import polars as pl


def insert_row(
    db: duckdb.DuckDBPyConnection, name: str, row: Mapping[str, Any], *, replace: bool = False
) -> None:
    """Add one row; `replace` puts it where one of the same primary key is."""
    columns, marks = ", ".join(row), ", ".join("?" * len(row))
    insert = "INSERT OR REPLACE" if replace else "INSERT"
    db.execute(f"{insert} INTO {name} ({columns}) VALUES ({marks})", list(row.values()))


@dataclass(frozen=True)
class Unchanged:
    """A Parquet file that was read and checked, and may go in as it is if it still is as it was."""

    path: Path
    columns: tuple[str, ...]
    signature: tuple[int, ...]

    @classmethod
    def before_reading(cls, path: Path, columns: Iterable[str]) -> "Unchanged":
        """To be called before the file is read."""
        return cls(path, tuple(columns), _signature(path.stat()))

    @contextmanager
    def opened(self) -> Iterator[str]:
        """Path of the file by descriptor; `InputError` if it is another, or changes."""
        with open_regular(self.path) as file:
            self._check(file)
            yield f"/dev/fd/{file.fileno()}"
            self._check(file)

    def _check(self, file: BinaryIO) -> None:
        if _signature(os.fstat(file.fileno())) != self.signature:
            rule = "must not change while it is loaded; load it again"
            raise InputError(str(self.path), "", rule)


def _signature(found: os.stat_result) -> tuple[int, ...]:
    return (found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)


def insert_file(
    db: duckdb.DuckDBPyConnection,
    name: str,
    file: Unchanged,
    keys: Mapping[str, str | None],
) -> None:
    """Add the rows of a file, as `insert_frame` does those of a frame."""
    with file.opened() as path:
        _insert(db, name, path, ", ".join(file.columns), keys)


def insert_frame(
    db: duckdb.DuckDBPyConnection,
    name: str,
    frame: "pl.DataFrame",
    keys: Mapping[str, str | None] | None = None,
) -> None:
    """Add the rows of a frame, whose columns are the table's but for the `keys` of all rows."""
    if frame.is_empty():
        return
    with _parquet(frame) as path:
        _insert(db, name, path, "*", keys or {})


def _insert(
    db: duckdb.DuckDBPyConnection,
    name: str,
    path: str,
    columns: str,
    keys: Mapping[str, str | None],
) -> None:
    constants = "".join(f"CAST(${key} AS VARCHAR) AS {key}, " for key in keys)
    db.execute(
        f"INSERT INTO {name} BY NAME SELECT {constants}{columns}"  # noqa: S608 - own names
        " FROM read_parquet($path, hive_partitioning = false)",
        {**keys, "path": path},
    )


def same_rows(
    db: duckdb.DuckDBPyConnection,
    name: str,
    frame: "pl.DataFrame",
    where: Mapping[str, str | None],
) -> bool:
    """Whether the table holds exactly these rows for the keys, in whatever order.

    Compared by a sum of 64-bit hashes: a chance of equality only decides whether a load says
    "already there" or refuses, it never mixes rows.
    """
    condition = " AND ".join(f"{key} IS NOT DISTINCT FROM ${key}" for key in where)
    digest = f"SELECT count(*), sum(CAST(hash({', '.join(frame.columns)}) AS HUGEINT)) FROM"
    stored = db.execute(f"{digest} {name} WHERE {condition}", dict(where)).fetchone()
    if frame.is_empty():
        return stored == (0, None)
    with _parquet(frame) as path:
        source = "read_parquet(?, hive_partitioning = false)"
        return stored == db.execute(f"{digest} {source}", [path]).fetchone()


@contextmanager
def _parquet(frame: "pl.DataFrame") -> Iterator[str]:
    """Path of a nameless file of the frame: nothing is left behind, even by a killed load."""
    with tempfile.TemporaryFile() as file:
        frame.write_parquet(file, compression="uncompressed")
        file.flush()
        yield f"/dev/fd/{file.fileno()}"
