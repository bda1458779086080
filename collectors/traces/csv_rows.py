"""CSV traces of millions of rows: a few megabytes at a time, by columns where all is as it should.

A format says twice how a row is read: `row` exactly, one line, with every error; `columns` the same
for many lines at once, with a null wherever it is not sure. A piece with a null, or that is not
plain lines of the header's cells, is read again line by line: `row` has the last word, so that what
`columns` cannot do is slow and never wrong. Nothing is quoted in these files.
"""

import io
import re
from codecs import BOM_UTF8
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import polars as pl

from collectors.traces.lines import Block, blocks, numbered, place_of
from collectors.traces.result import ImportResult, Source, build
from collectors.traces.rows import SCHEMA, Row, piece
from replay.errors import InputError, describe

MAX_LINE_BYTES = 1024


@dataclass(frozen=True)
class CsvFormat:
    """`row` takes a line's cells, its number and its place; `columns` a frame of text.

    The frame's columns are the header's; `columns` gives `time_ns` after the nanosecond it is
    given, `prompt_tokens`, `output_tokens` and whichever other columns of a piece the format has; a
    token count that is null is in doubt, unless the row has a `reason`.
    Where formats share a header, `first` is how the first cell of the first row tells them apart.
    """

    header: str
    source: Source
    row: Callable[[list[str], int, str], Row]
    columns: Callable[[pl.DataFrame, int], pl.DataFrame]
    first: str = ""


def read_csv(path: Path, formats: tuple[CsvFormat, ...], max_requests: int) -> ImportResult:
    """Workload of the file at `path` (plain or gzip; `-`: standard input), one of the formats."""
    place = place_of(path)
    read = blocks(path, MAX_LINE_BYTES)
    head = next(read)
    number, where, header = next(numbered(head, place, MAX_LINE_BYTES))
    told = [one for one in formats if one.header == header]
    if not told:
        wanted = " or ".join(dict.fromkeys(one.header for one in formats))
        raise InputError(where, "header", f"must be {wanted}", describe(header))
    left = Block(head.data.partition(b"\n")[2], number + 1)
    left = left if left.data else next(read, left)
    first_cell = left.data.partition(b"\n")[0].partition(b",")[0].decode(errors="replace")
    chosen = next((one for one in told if re.search(one.first, first_cell)), None)
    if chosen is None:
        _refuse_first(left, told, place)
        chosen = told[0]
    found = _pieces(chain([left], read), chosen, place)
    return build(found, chosen.source, place, max_requests)


def _refuse_first(block: Block, told: list[CsvFormat], place: str) -> None:
    """Refuse a first row that is in the form of none of these, by what they all ask for."""
    faults: list[InputError] = []
    for one in told:
        try:
            next(_rows(block, one, place), None)
        except InputError as exc:
            faults.append(exc)
    if faults:
        rule = ", or ".join(dict.fromkeys(fault.rule for fault in faults))
        raise InputError(faults[0].place, faults[0].field, rule, faults[0].found)


def _pieces(read: Iterable[Block], chosen: CsvFormat, place: str) -> Iterator[pl.DataFrame]:
    zero_ns = None
    for block in read:
        if not block.data:
            continue
        if zero_ns is None:
            zero_ns = next(_rows(block, chosen, place)).time_ns
        found = _by_columns(block, chosen, zero_ns)
        if found is None:
            rows = list(_rows(block, chosen, place))
            found = piece(rows, zero_ns, place, chosen.source.time_field)
        yield found


def _by_columns(block: Block, chosen: CsvFormat, zero_ns: int) -> pl.DataFrame | None:
    names = chosen.header.split(",")
    rows = block.data.count(b"\n") + (not block.data.endswith(b"\n"))
    # polars fills up a short row, and takes a byte-order mark for its own.
    if block.data.count(b",") != rows * (len(names) - 1) or block.data.startswith(BOM_UTF8):
        return None
    try:
        cells = pl.read_csv(
            io.BytesIO(block.data),
            has_header=False,
            new_columns=names,
            schema_overrides=dict.fromkeys(names, pl.String),
            quote_char=None,
            empty_string_is_null=False,
        )
        if (rows, names) != (cells.height, cells.columns):
            return None
        longest = cells.select(pl.sum_horizontal(pl.all().str.len_bytes()).max()).item()
        if longest + len(names) + 1 > MAX_LINE_BYTES:
            return None
        cells = cells.with_columns(pl.col(names[-1]).str.strip_suffix("\r"))
        found = chosen.columns(cells, zero_ns)
    except pl.exceptions.PolarsError:
        return None
    found = found.with_columns(line=pl.int_range(block.line, block.line + rows, dtype=pl.Int64))
    absent = [pl.lit(None, kind).alias(name) for name, kind in SCHEMA.items() if name not in found]
    found = found.with_columns(absent).select(SCHEMA.names())
    unread = pl.col("prompt_tokens").is_null() | pl.col("output_tokens").is_null()
    doubt = pl.col("time_ns").is_null() | (pl.col("reason").is_null() & unread)
    return None if found.select(doubt.any()).item() else found


def _rows(block: Block, chosen: CsvFormat, place: str) -> Iterator[Row]:
    most = chosen.header.count(",") + 1
    for number, where, text in numbered(block, place, MAX_LINE_BYTES):
        cells = text.split(",")
        if len(cells) != most:
            raise InputError(where, "", f"must have {most} columns", f"{len(cells)}")
        yield chosen.row(cells, number, where)
