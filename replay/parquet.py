"""Parquet from strangers: sizes and types are checked before any row is read."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replay.errors import InputError
from replay.strict import named_version, only_keys, open_regular

if TYPE_CHECKING:
    import polars as pl

_DECODER: dict[str, str | bool | int | float | list[str]] = {
    "autoload_known_extensions": False,
    "memory_limit": "2GB",
    "threads": 2,
}
_ROWS = "SELECT num_rows FROM parquet_file_metadata($1)"
_METADATA = "SELECT key, value FROM parquet_kv_metadata($1)"
_FRAME = "FROM read_parquet($1, hive_partitioning = false)"


def read_frame(path: Path, most_rows: int) -> tuple["pl.DataFrame", dict[str, str]]:
    """Rows and key-value metadata of one file of at most `most_rows` rows.

    DuckDB decodes it, within a memory limit: on some damaged files polars aborts the process.
    """
    import duckdb
    import polars as pl

    with open_regular(path) as file, duckdb.connect(config=_DECODER) as decoder:
        # By descriptor: a path is never a pattern, and what was checked is what is read.
        source = [f"/dev/fd/{file.fileno()}"]
        try:
            rows = decoder.execute(_ROWS, source).fetchall()[0][0]
            if rows > most_rows:
                raise InputError(str(path), "", f"must hold at most {most_rows} rows", str(rows))
            metadata = decoder.execute(_METADATA, source).fetchall()
            frame = pl.DataFrame(decoder.sql(_FRAME, params=source))
            return frame, {key.decode(): value.decode() for key, value in metadata}
        except (duckdb.Error, RuntimeError, UnicodeDecodeError, pl.exceptions.PolarsError) as exc:
            raise InputError(str(path), "", "must be a readable Parquet file") from exc


def check_schema_name(metadata: Mapping[str, str], schema: str, place: str) -> None:
    """Refuse another schema or version by name."""
    found = metadata.get("schema")
    if found != schema:
        raise InputError(place, "schema", f"must be {schema}", named_version(found))


def check_columns(
    found: Mapping[str, Any], types: Mapping[str, str], place: str, optional: tuple[str, ...] = ()
) -> None:
    """Refuse unknown columns, missing ones that are not `optional`, and other types."""
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
