"""Rows into a table of the store, and whether it holds them already.

They go in through a private temporary Parquet file of the checked frames: DuckDB reads polars
frames only with pyarrow, and reading the source files a second time could find something else in
them than what was checked.
"""

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import duckdb

if TYPE_CHECKING:
    import polars as pl


def insert_row(
    db: duckdb.DuckDBPyConnection, name: str, row: Mapping[str, Any], *, replace: bool = False
) -> None:
    """Add one row; `replace` puts it where one of the same primary key is."""
    columns, marks = ", ".join(row), ", ".join("?" * len(row))
    insert = "INSERT OR REPLACE" if replace else "INSERT"
    db.execute(f"{insert} INTO {name} ({columns}) VALUES ({marks})", list(row.values()))


def insert_frame(db: duckdb.DuckDBPyConnection, name: str, frame: "pl.DataFrame") -> None:
    """Add the rows of a frame, whose columns are the table's."""
    if frame.is_empty():
        return
    with _parquet(frame) as path:
        db.execute(
            f"INSERT INTO {name} BY NAME FROM read_parquet(?, hive_partitioning = false)",
            [path],
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
