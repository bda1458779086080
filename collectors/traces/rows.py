"""Rows of a trace as a reader checked them, and as columns, a piece of the file at a time.

A piece is a frame of `SCHEMA`. Times are nanoseconds after any moment that is the same for the
whole file; token counts are null where the source has none. A row with a `reason` is a request
somebody made that cannot be replayed.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import polars as pl

from replay.errors import InputError
from replay.strict import MAX_SAFE_INTEGER

PIECE_ROWS = 2**15
PIECE_CHUNKS = 2**20  # a long prompt has thousands
SCHEMA = pl.Schema(
    {
        "line": pl.Int64(),
        "time_ns": pl.Int64(),
        "prompt_tokens": pl.Int64(),
        "output_tokens": pl.Int64(),
        "tenant": pl.String(),
        "prefix_blocks": pl.List(pl.Int64()),
        "reason": pl.String(),
    }
)
# No row is further from the first: the span of two such rows has 64 bit with room.
_MOST_NS = MAX_SAFE_INTEGER * 1000 + 999


class Row(NamedTuple):
    """One row: its line in the file from 1, its time on the file's own clock."""

    line: int
    time_ns: int
    prompt_tokens: int | None
    output_tokens: int | None
    tenant: str | None = None
    prefix_blocks: tuple[int, ...] | None = None
    reason: str | None = None


def why_not(prompt_tokens: int | None, output_tokens: int | None) -> str | None:
    """Reason why such a request is an attempt; None if it can be a workload row."""
    if not prompt_tokens:
        return "no_prompt"
    return None if output_tokens else "no_output"


def pieces(rows: Iterable[Row], place: str, time_field: str) -> Iterator[pl.DataFrame]:
    """Rows as pieces, their times after the first row's."""
    zero_ns, part, chunks = None, list[Row](), 0
    for row in rows:
        zero_ns = row.time_ns if zero_ns is None else zero_ns
        part.append(row)
        chunks += len(row.prefix_blocks or ())
        if len(part) == PIECE_ROWS or chunks >= PIECE_CHUNKS:
            yield piece(part, zero_ns, place, time_field)
            part, chunks = [], 0
    if zero_ns is not None and part:
        yield piece(part, zero_ns, place, time_field)


def piece(rows: list[Row], zero_ns: int, place: str, time_field: str) -> pl.DataFrame:
    """One piece, its times after `zero_ns`."""
    for row in rows:
        if abs(row.time_ns - zero_ns) > _MOST_NS:
            raise too_far(f"{place}:{row.line}", time_field)
    after = [row._replace(time_ns=row.time_ns - zero_ns) for row in rows]
    return pl.DataFrame(after, schema=SCHEMA, orient="row")


def too_far(place: str, time_field: str) -> InputError:
    """The fault of a row that no microsecond of a workload can hold."""
    rule = "must be within 2^53 - 1 microseconds of the earliest row"
    return InputError(place, time_field, rule, "more")
