"""Azure LLM inference traces of 2023: `TIMESTAMP,ContextTokens,GeneratedTokens` as CSV.

The published files have CRLF, seven fraction digits, no zone and no newline after the last row.
Their timestamps are read digit by digit into integers: `strptime` refuses the seventh digit and
other readers cut it. Every row that is not exactly of this form raises `InputError`.
"""

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from collectors.traces.lines import numbered_lines, place_of
from collectors.traces.result import ImportResult, Row, Source, build
from replay.errors import InputError, Oversized, describe
from replay.strict import integer
from replay.workload import MAX_REQUESTS

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
MAX_LINE_BYTES = 1024
SOURCE = Source(
    name="azure",
    title="Azure LLM inference trace 2023",
    license="CC-BY-4.0",
    attribution="Microsoft Azure, https://github.com/Azure/AzurePublicDataset",
    time_field="TIMESTAMP",
    notes=(
        "arrival_us counts whole microseconds since the earliest row, finer digits dropped",
        "ordered by arrival_us, ties in file order",
    ),
)
_TIMESTAMP = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2}) ([0-9]{2}):([0-9]{2}):([0-9]{2})(?:\.([0-9]{1,9}))?"
)
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_MAX_DIGITS = 30


def read(path: Path, max_requests: int = MAX_REQUESTS) -> ImportResult:
    """Workload of the file at `path` (plain or gzip; `-` is standard input).

    `arrival_us` is the nanosecond difference from the earliest row, divided by 1000 and rounded
    down: digits below the microsecond are dropped only after subtracting.
    """
    return build(_rows(path), SOURCE, place_of(path), max_requests)


def timestamp_ns(text: str, place: str) -> int:
    """Nanoseconds since 0001-01-01 of `YYYY-MM-DD HH:MM:SS` with up to nine fraction digits."""
    match = _TIMESTAMP.fullmatch(text)
    if match is None:
        rule = "must be YYYY-MM-DD HH:MM:SS with at most 9 fraction digits and no zone"
        raise InputError(place, "TIMESTAMP", rule, describe(text))
    year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
    try:
        days = date(year, month, day).toordinal() - 1
    except ValueError as exc:
        raise InputError(place, "TIMESTAMP", "must be a date that exists", "another") from exc
    if hour > 23 or minute > 59 or second > 59:  # noqa: PLR2004  # a clock's own numbers
        raise InputError(place, "TIMESTAMP", "must be a time of day up to 23:59:59", "a later one")
    seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
    return seconds * 10**9 + int((match[7] or "").ljust(9, "0"))


def _rows(path: Path) -> Iterator[Row]:
    lines = numbered_lines(path, MAX_LINE_BYTES)
    _, place, header = next(lines)
    if header != HEADER:
        raise InputError(place, "header", f"must be {HEADER}", describe(header))
    for number, place, text in lines:
        cells = text.split(",")
        if len(cells) != 3:  # noqa: PLR2004  # the header's
            raise InputError(place, "", "must have 3 columns", f"{len(cells)}")
        yield Row(
            line=number,
            time_ns=timestamp_ns(cells[0], place),
            prompt_tokens=_tokens(cells[1], place, "ContextTokens"),
            output_tokens=_tokens(cells[2], place, "GeneratedTokens"),
        )


def _tokens(text: str, place: str, field: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise InputError(place, field, "must be an integer in plain digits", describe(text))
    value = int(text) if len(text) <= _MAX_DIGITS else Oversized(len(text.lstrip("-")))
    return integer(value, place, field)
