"""Parquet from strangers: sizes and types are checked before any row is read."""

import errno
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from replay.errors import InputError, is_interrupt
from replay.strict import check_schema, only_keys, open_regular

if TYPE_CHECKING:
    import duckdb
    import polars as pl

_DECODER: dict[str, str | bool | int | float | list[str]] = {
    "autoload_known_extensions": False,
    "memory_limit": "2GB",
    "threads": 2,
}
# Counted, not taken from the footer, which can say anything.
_ROWS = "SELECT count(*) FROM read_parquet($1, hive_partitioning = false)"
_METADATA = "SELECT key, value FROM parquet_kv_metadata($1)"
_FRAME = "FROM read_parquet($1, hive_partitioning = false)"
_PART = (
    "SELECT * EXCLUDE (file_row_number)"
    " FROM read_parquet($1, hive_partitioning = false, file_row_number = true)"
    " WHERE file_row_number >= $2 AND file_row_number < $3"
)
_BATCH_ROWS = 2**18


def read_frame(
    path: Path,
    most_rows: int,
    schema: str,
    types: Mapping[str, str],
    optional: Collection[str] = (),
) -> tuple["pl.DataFrame", dict[str, str]]:
    """Rows and key-value metadata of one file of at most `most_rows` rows.

    `schema` is the name its metadata must give, `types` names each column's kind; `optional`
    columns may be absent or untyped nulls. DuckDB decodes it, within a memory limit: on some
    damaged files polars aborts the process.
    """
    import polars as pl

    with read_batches(path, most_rows, schema, types, optional) as (metadata, batches):
        frames = list(batches)
    return pl.concat(frames), metadata


@contextmanager
def read_batches(
    path: Path,
    most_rows: int,
    schema: str,
    types: Mapping[str, str],
    optional: Collection[str] = (),
) -> Iterator[tuple[dict[str, str], Iterator["pl.DataFrame"]]]:
    """Metadata and, in frames of at most 262,144 rows, what `read_frame` gives whole.

    The first frame has the columns even if there is no row.
    """
    with open_batches(path) as (rows, metadata, columns, batches):
        if rows > most_rows:
            raise InputError(str(path), "", f"must hold at most {most_rows} rows", str(rows))
        check_schema(metadata.get("schema"), schema, str(path))
        _check_columns(columns, types, str(path), optional)
        yield metadata, batches


@contextmanager
def open_batches(
    path: Path,
) -> Iterator[tuple[int, dict[str, str], "pl.Schema", Iterator["pl.DataFrame"]]]:
    """Rows, metadata, columns and frames of any Parquet file, whoever made it."""
    import polars as pl

    place = str(path)
    with open_regular(path) as file, bounded_decoder().cursor() as decoder:
        # By descriptor: a path is never a pattern, and what was checked is what is read.
        source = f"/dev/fd/{file.fileno()}"
        with readable(place):
            rows = decoder.execute(_ROWS, [source]).fetchall()[0][0]
            found = decoder.execute(_METADATA, [source]).fetchall()
            metadata = {key.decode(): value.decode() for key, value in found}
            columns = pl.DataFrame(decoder.sql(_FRAME, params=[source]).limit(0)).schema

        def batches() -> Iterator[pl.DataFrame]:
            for start in range(0, max(rows, 1), _BATCH_ROWS):
                part = [source, start, start + _BATCH_ROWS]
                with readable(place):
                    frame = pl.DataFrame(decoder.sql(_PART, params=part))
                yield frame

        yield rows, metadata, columns, batches()


@contextmanager
def readable(place: str) -> Iterator[None]:
    """Say of what cannot be decoded that it cannot."""
    import duckdb
    import polars as pl

    try:
        yield
    except (duckdb.Error, RuntimeError, UnicodeDecodeError, pl.exceptions.PolarsError) as exc:
        if is_interrupt(exc):
            raise KeyboardInterrupt from exc
        raise InputError(place, "", "must be a readable Parquet file") from exc


def write_frame(frame: "pl.DataFrame", path: Path, metadata: dict[str, str]) -> None:
    """Write a file with key-value metadata; what cannot be written is an `OSError`."""
    with _to(path) as file:  # polars takes no path that is not UTF-8
        frame.write_parquet(file, metadata=metadata)


def write_batches(
    batches: Iterable["pl.DataFrame"],
    schema: Mapping[str, "pl.DataType"],
    path: Path,
    metadata: dict[str, str],
) -> None:
    """Write frames of one schema as one file, its bytes depending on nothing but their rows.

    What the iterable raises comes through.
    """
    from polars.io.plugins import register_io_source

    def source(*_: object) -> Iterator["pl.DataFrame"]:
        yield from batches

    lazy = register_io_source(source, schema=schema)
    with _to(path) as file:
        lazy.sink_parquet(file, metadata=metadata, row_group_size=_BATCH_ROWS)


@contextmanager
def _to(path: Path) -> Iterator[IO[bytes]]:
    """A file to write; that it cannot be written is an `OSError`."""
    import polars as pl

    try:
        with path.open("wb") as file:
            yield file
    except pl.exceptions.PolarsError as exc:
        raise OSError(
            errno.EIO, "Parquet could not be written, is the disk full?", str(path)
        ) from exc


@cache
def bounded_decoder() -> "duckdb.DuckDBPyConnection":
    """One for the process: starting it takes longer than reading most files."""
    import duckdb

    return duckdb.connect(config=_DECODER)


def _check_columns(
    found: Mapping[str, Any], types: Mapping[str, str], place: str, optional: Collection[str]
) -> None:
    only_keys(found, types, place, quote=False)
    for name, kind in types.items():
        if name not in found:
            if name in optional:
                continue
            raise InputError(place, name, "is required", "no such column")
        if not _fits(found[name], kind) and not (name in optional and found[name] == _null()):
            raise InputError(place, name, f"must be a column of type {kind}", _name(found[name]))


def _fits(dtype: Any, kind: str) -> bool:
    import polars as pl

    match kind:
        case "int64":
            return bool(dtype == pl.Int64)
        case "integer":
            return bool(dtype.is_integer())
        case "float":
            return bool(dtype.is_float())
        case "string":
            return bool(dtype == pl.String)
        case "boolean":
            return bool(dtype == pl.Boolean)
        case "list of integers":
            return isinstance(dtype, pl.List) and bool(dtype.inner.is_integer())
    raise AssertionError(kind)


def _name(dtype: Any) -> str:
    """Name of a type without what it is made of: a structure's field names are data."""
    return str(dtype.base_type().__name__)


def _null() -> Any:
    import polars as pl

    return pl.Null
