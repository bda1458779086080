"""Parquet from strangers: sizes and types are checked before any row is read."""

import errno
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
    import duckdb
    import polars as pl

    place = str(path)
    with open_regular(path) as file, _decoder().cursor() as decoder:
        # By descriptor: a path is never a pattern, and what was checked is what is read.
        source = [f"/dev/fd/{file.fileno()}"]
        try:
            rows = decoder.execute(_ROWS, source).fetchall()[0][0]
            if rows > most_rows:
                raise InputError(place, "", f"must hold at most {most_rows} rows", str(rows))
            found = decoder.execute(_METADATA, source).fetchall()
            metadata = {key.decode(): value.decode() for key, value in found}
            check_schema(metadata.get("schema"), schema, place)
            relation = decoder.sql(_FRAME, params=source)
            _check_columns(pl.DataFrame(relation.limit(0)).schema, types, place, optional)
            return pl.DataFrame(relation), metadata
        except (duckdb.Error, RuntimeError, UnicodeDecodeError, pl.exceptions.PolarsError) as exc:
            if is_interrupt(exc):
                raise KeyboardInterrupt from exc
            raise InputError(place, "", "must be a readable Parquet file") from exc


def write_frame(frame: "pl.DataFrame", path: Path, metadata: dict[str, str]) -> None:
    """Write a file with key-value metadata; what cannot be written is an `OSError`."""
    import polars as pl

    try:
        with path.open("wb") as file:  # polars takes no path that is not UTF-8
            frame.write_parquet(file, metadata=metadata)
    except pl.exceptions.PolarsError as exc:
        raise OSError(
            errno.EIO, "Parquet could not be written, is the disk full?", str(path)
        ) from exc


@cache
def _decoder() -> "duckdb.DuckDBPyConnection":
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
