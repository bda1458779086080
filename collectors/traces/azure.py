"""Azure inference traces: `TIMESTAMP,ContextTokens,GeneratedTokens` as CSV.

The files of 2023 have CRLF, seven fraction digits, no zone and no newline after the last row; those
of 2024 six fraction digits or none, and `+00:00`; those of 2025 (multimodal, with `NumImages`) a
`T` and a `Z`. Every row that is not exactly of its file's form raises `InputError`.
"""

from functools import partial
from pathlib import Path

import polars as pl

from collectors.traces.cells import integer_column, integer_of
from collectors.traces.csv_rows import CsvFormat, read_csv
from collectors.traces.likely import says_what_else
from collectors.traces.result import ImportResult, Source
from collectors.traces.rows import Row
from collectors.traces.stamps import Stamp
from replay.workload import MAX_REQUESTS

HEADER = "TIMESTAMP,ContextTokens,GeneratedTokens"
HEADER_2025 = "TIMESTAMP,NumImages,ContextTokens,GeneratedTokens"
_NOTES = (
    "arrival_us counts whole microseconds since the earliest row, finer digits dropped",
    "ordered by arrival_us, ties in file order",
)
_ATTRIBUTION = "Microsoft Azure, https://github.com/Azure/AzurePublicDataset"


@says_what_else("azure")
def read(path: Path, max_requests: int = MAX_REQUESTS) -> ImportResult:
    """Workload of the file at `path` (plain or gzip; `-` is standard input).

    `arrival_us` is the nanosecond difference from the earliest row, divided by 1000 and rounded
    down: digits below the microsecond are dropped only after subtracting.
    """
    return read_csv(path, _FORMATS, max_requests)


def _row(stamp: Stamp, names: list[str], cells: list[str], line: int, place: str) -> Row:
    found = dict(zip(names, cells, strict=True))
    if "NumImages" in found:
        integer_of(found["NumImages"], place, "NumImages")
    return Row(
        line=line,
        time_ns=stamp.ns(found["TIMESTAMP"], place),
        prompt_tokens=integer_of(found["ContextTokens"], place, "ContextTokens"),
        output_tokens=integer_of(found["GeneratedTokens"], place, "GeneratedTokens"),
    )


def _columns(stamp: Stamp, cells: pl.DataFrame, zero_ns: int) -> pl.DataFrame:
    sure = integer_column("NumImages").is_not_null() if "NumImages" in cells else pl.lit(value=True)
    return cells.select(
        time_ns=pl.when(sure).then(stamp.column_ns(pl.col("TIMESTAMP"), zero_ns)),
        prompt_tokens=integer_column("ContextTokens"),
        output_tokens=integer_column("GeneratedTokens"),
    )


def _format(year: int, header: str, stamp: Stamp, title: str, *notes: str) -> CsvFormat:
    source = Source(
        name="azure",
        title=f"{title} {year}",
        license="CC-BY-4.0",
        attribution=_ATTRIBUTION,
        time_field="TIMESTAMP",
        notes=(*_NOTES, *notes),
    )
    names = header.split(",")
    return CsvFormat(
        header, source, partial(_row, stamp, names), partial(_columns, stamp), stamp.pattern
    )


_LLM, _LMM = "Azure LLM inference trace", "Azure LMM inference trace"
_FORMATS = (
    _format(2023, HEADER, Stamp("TIMESTAMP"), _LLM),
    _format(2024, HEADER, Stamp("TIMESTAMP", zone="+00:00"), _LLM),
    _format(
        2025,
        HEADER_2025,
        Stamp("TIMESTAMP", separator="T", zone="Z"),
        _LMM,
        "NumImages dropped: the work of images is not modelled, and nothing says whether"
        " ContextTokens counts it",
    ),
)
SOURCES = tuple(one.source for one in _FORMATS)
