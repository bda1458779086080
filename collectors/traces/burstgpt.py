"""BurstGPT traces: requests to a campus's ChatGPT and GPT-4 service, seconds apart, as CSV.

The first release has six columns; the second has two more, and not at the end: `Session ID` and
`Elapsed time` stand second and third. A response of no tokens is a request that failed, and often
its prompt is not known either: an attempt. Every row that is not of its file's form raises
`InputError`.
"""

from functools import partial
from pathlib import Path

import polars as pl

from collectors.traces.cells import integer_column, integer_of
from collectors.traces.csv_rows import CsvFormat, read_csv
from collectors.traces.likely import says_what_else
from collectors.traces.result import ImportResult, Source
from collectors.traces.rows import Row
from collectors.traces.seconds import Seconds
from replay.workload import MAX_REQUESTS

HEADER = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
HEADER_2 = (
    "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type"
)
FAILED = "failed"
_TIME = Seconds("Timestamp")
_NOTES = (
    "arrival_us = (Timestamp - the earliest) * 1000000",
    "Timestamp is in whole seconds: rows of one second arrive at once, in file order",
    "ordered by arrival_us, ties in file order",
    "rows whose Response tokens are 0 are attempts (failed): their output is not known, nor their"
    " prompt where Request tokens are 0",
    "Model, Total tokens and Log Type dropped",
)
_NOTE_2 = (
    "Session ID (a conversation, not a tenant) and Elapsed time (to the last token on the source's"
    " own system, not TTFT) dropped"
)


@says_what_else("burstgpt")
def read(path: Path, max_requests: int = MAX_REQUESTS) -> ImportResult:
    """Workload of the file at `path` (plain or gzip; `-` is standard input)."""
    return read_csv(path, _FORMATS, max_requests)


def _row(names: list[str], cells: list[str], line: int, place: str) -> Row:
    found = dict(zip(names, cells, strict=True))
    time_ns = _TIME.ns(found["Timestamp"], place)
    prompt, output, _ = (
        integer_of(found[name], place, name)
        for name in ("Request tokens", "Response tokens", "Total tokens")
    )
    if output == 0:
        return Row(line, time_ns, prompt or None, None, reason=FAILED)
    return Row(line, time_ns, prompt, output)


def _columns(cells: pl.DataFrame, zero_ns: int) -> pl.DataFrame:
    sure = integer_column("Total tokens").is_not_null()
    read = cells.select(
        time_ns=pl.when(sure).then(_TIME.column_ns(pl.col("Timestamp"), zero_ns)),
        prompt=integer_column("Request tokens"),
        output=integer_column("Response tokens"),
    )
    # A prompt that could not be read is not one that is not known.
    failed = pl.col("prompt").is_not_null() & (pl.col("output") == 0)
    nothing = failed & (pl.col("prompt") == 0)
    return read.select(
        "time_ns",
        prompt_tokens=pl.when(~nothing).then("prompt"),
        output_tokens=pl.when(~failed).then("output"),
        reason=pl.when(failed).then(pl.lit(FAILED)),
    )


def _format(header: str, version: int, *notes: str) -> CsvFormat:
    source = Source(
        name="burstgpt",
        title=f"BurstGPT trace v{version}",
        license="CC-BY-4.0",
        attribution="HPMLL, https://github.com/HPMLL/BurstGPT",
        time_field="Timestamp",
        notes=(*_NOTES, *notes),
    )
    return CsvFormat(header, source, partial(_row, header.split(",")), _columns)


_FORMATS = (_format(HEADER, 1), _format(HEADER_2, 2, _NOTE_2))
SOURCES = tuple(one.source for one in _FORMATS)
