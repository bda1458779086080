"""A Parquet file for the privacy check: its rows, and all that lies beside them.

Rows are not all it can say. The footer has the writer's name, texts under any key, and the least
and greatest value of each column; between its parts there can be bytes that no reader ever uses.
"""

import base64
import binascii
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import polars as pl

from collectors.sanitize.found import ABSOLUTE_TIMES, EACH, Found, scan_value
from replay.errors import InputError
from replay.parquet import bounded_decoder, open_batches, readable
from replay.strict import open_regular, parse_json

_SCHEMA_COPY = "ARROW:schema"  # columns' names and types once more, in a form of its own
_TEXT = re.compile(rb"[\x20-\x7e]{6,}")
_LONG_TEXT = re.compile(rb"[\x20-\x7e]{10,}")  # shorter ones are in any numbers
_LOOK_BYTES = 2**20
_OVERLAP_BYTES = 2**8
# Names that writers give to what only holds other columns.
_ROOTS = {"root", "schema", "duckdb_schema", "spark_schema", "arrow_schema", "hive_schema"}
_LISTS = {"list", "array", "bag", "key_value"}
_WRAPPERS = {*_LISTS, "element", "item", "array_element"}
_UNCUT = 48  # characters that every writer keeps of a column's least and greatest text
_MOST_CUT = 10_000
_MARK = 4  # bytes of the word that begins and ends a file
_TAIL = 8  # the footer's length, and that word

_FILE = (
    "SELECT created_by, footer_signing_key_metadata, encryption_algorithm, footer_size,"
    " file_size_bytes FROM parquet_file_metadata($1)"
)
_KEYS = "SELECT key, value FROM parquet_kv_metadata($1)"
_NODES = "SELECT name FROM parquet_schema($1)"
_CHUNKS = "SELECT * FROM parquet_metadata($1)"
_BOUNDS = ("stats_min", "stats_max", "stats_min_value", "stats_max_value")
_STARTS = ("dictionary_page_offset", "index_page_offset", "data_page_offset")
_INDEXES = ("column_index", "offset_index", "bloom_filter")
Parts = list[tuple[int, int]]


def scan_parquet(path: Path, place: Path) -> Iterator[Found]:
    """Names and values of the columns, then what the footer says, then what lies between."""
    long: set[str] = set()
    with open_batches(path) as (_, _, columns, batches):
        names = set(_names(columns))
        for name in columns:
            yield Found(place, (name,), name=name)
        for batch in batches:
            for name in batch.columns:
                for found in _scan_column(place, (name,), batch[name]):
                    if len(long) < _MOST_CUT:
                        long |= {text for text in found.texts if len(text) > _UNCUT}
                    yield found
    with open_regular(path) as file:
        yield from _scan_footer(file, place, names, long)


def _names(columns: pl.Schema) -> Iterator[str]:
    """Every name within the columns' types."""
    todo: list[tuple[str, Any]] = list(columns.items())
    while todo:
        name, kind = todo.pop()
        yield name
        if isinstance(kind, pl.List):
            todo.append((name, kind.inner))
        elif isinstance(kind, pl.Struct):
            todo += [(inner.name, inner.dtype) for inner in kind.fields]


def _scan_column(place: Path, column: tuple[str, ...], values: pl.Series) -> Iterator[Found]:
    kind = values.dtype
    if isinstance(kind, pl.List):
        yield from _scan_column(place, (*column, EACH), values.explode())
    elif isinstance(kind, pl.Struct):
        for inner in kind.fields:
            below = (*column, inner.name)
            yield Found(place, below, name=inner.name)
            yield from _scan_column(place, below, values.struct.field(inner.name))
    elif kind == pl.String:
        yield Found(place, column, tuple(values.drop_nulls().unique(maintain_order=True)))
    elif kind.is_numeric():
        yield Found(place, column, (), _number(values.min()), _number(values.max()))
    elif kind in (pl.Date, pl.Datetime, pl.Time):
        yield Found(place, column, odd=ABSOLUTE_TIMES)
    elif kind not in (pl.Boolean, pl.Null):
        yield Found(place, column, odd="values of a type that nobody looks into")


def _number(value: object) -> float | None:
    """As a float; what is no number (no value at all) has none."""
    return None if value is None else float(value)  # type: ignore[arg-type]


def _scan_footer(file: IO[bytes], place: Path, names: set[str], long: set[str]) -> Iterator[Found]:
    source = f"/dev/fd/{file.fileno()}"
    made_by, signed, encrypted, footer_bytes, size = next(_rows(_FILE, source, place)).values()
    for key, text in (("created_by", made_by), ("signing_key", signed), ("encryption", encrypted)):
        if text:
            yield Found(place, ("footer", key), (_text(text),))
    for one in _rows(_KEYS, source, place):
        yield from _scan_key(place, _text(one["key"]), _text(one["value"]), names)
    nodes = {one["name"] for one in _rows(_NODES, source, place)}
    for name in sorted(nodes - names - _ROOTS - _WRAPPERS):
        yield Found(place, ("footer",), name=name)
    parts: Parts = [(0, _MARK), (size - _TAIL - footer_bytes, size)]
    packed: Parts = []
    bounds: set[str] = set()
    for one in _rows(_CHUNKS, source, place):
        bounds |= {text for key in _BOUNDS if (text := one[key])}
        yield from _scan_bounds(place, one, long)
        for key, value in (one["key_value_metadata"] or {}).items():
            yield from _scan_key(place, _text(key), _text(value), names)
        (parts if one["compression"] == "UNCOMPRESSED" else packed).append(_chunk(one))
        indexes = ((one[f"{name}_offset"], one[f"{name}_length"]) for name in _INDEXES)
        parts += [(start, start + length) for start, length in indexes if start and length]
    for data in _read(file, parts):
        told = tuple(run.decode("ascii") for run in _LONG_TEXT.findall(data))
        yield Found(place, ("bytes",), beside=told)
    # Some writers repeat there what the footer says of a column.
    said = names | _WRAPPERS | bounds
    for data in _read(file, _gaps([*parts, *packed], size)):
        yield Found(place, ("bytes",), _texts_but(data, said))


def _rows(query: str, source: str, place: Path) -> Iterator[dict[str, Any]]:
    with bounded_decoder().cursor() as decoder, readable(str(place)):
        found = decoder.execute(query, [source])
        names = [column[0] for column in found.description or ()]
        while row := found.fetchone():
            yield dict(zip(names, row, strict=True))


def _text(value: object) -> str:
    return value.decode(errors="replace") if isinstance(value, bytes) else str(value)


def _scan_key(place: Path, key: str, text: str, names: set[str]) -> Iterator[Found]:
    column = ("metadata", key)
    yield Found(place, column, name=key)
    if key == _SCHEMA_COPY:
        yield Found(place, column, _beside_names(text, names | _WRAPPERS))
        return
    try:
        value = parse_json(text, str(place))
    except InputError:
        value = text
    yield from scan_value(place, column, value)


def _beside_names(text: str, names: set[str]) -> tuple[str, ...]:
    """Texts in a copy of the schema that are no column's name."""
    try:
        left = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return (text,)
    return _texts_but(left, names)


def _texts_but(data: bytes, said: set[str]) -> tuple[str, ...]:
    """What reads as text, without what was said elsewhere."""
    for text in sorted(said, key=len, reverse=True):
        data = data.replace(text.encode(), b"\0")
    return tuple(run.decode("ascii") for run in _TEXT.findall(data))


def _scan_bounds(place: Path, chunk: Mapping[str, Any], long: set[str]) -> Iterator[Found]:
    """What the footer says of a column's least and greatest value, which no row has to have."""
    first, *inner = str(chunk["path_in_schema"]).split(", ")
    inner = [EACH if name in _LISTS else name for name in inner]
    column = (first, *(name for name in inner if name not in _WRAPPERS))
    told = [_text(chunk[key]) for key in _BOUNDS if chunk[key] is not None]
    if chunk["type"] == "BOOLEAN":
        return
    if chunk["type"] != "BYTE_ARRAY":
        try:
            numbers = [float(text) for text in told]
        except ValueError:
            pass  # a date, or bytes: texts as any
        else:
            if numbers:
                yield Found(place, column, (), min(numbers), max(numbers))
            return
    # The greatest can be cut off and its last letter counted up.
    cut = {text for text in told if any(one.startswith(text[:-1]) for one in long)}
    yield Found(place, column, tuple(text for text in told if text not in cut))


def _chunk(found: Mapping[str, Any]) -> tuple[int, int]:
    start = min(found[key] for key in _STARTS if found[key])
    return start, start + found["total_compressed_size"]


def _gaps(parts: Parts, size: int) -> Parts:
    """What of a file no part covers."""
    gaps, end = list[tuple[int, int]](), 0
    for start, stop in sorted(parts):
        if start > end:
            gaps.append((end, min(start, size)))
        end = max(end, stop)
    return gaps


def _read(file: IO[bytes], parts: Parts) -> Iterator[bytes]:
    for start, stop in parts:
        for at in range(start, stop, _LOOK_BYTES):
            file.seek(at)
            yield file.read(min(_LOOK_BYTES + _OVERLAP_BYTES, stop - at))
