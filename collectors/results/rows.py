"""What a result file says of each request, in the project's units, whatever tool wrote it.

From the same rows come the workload (by `collectors.traces.result.build`, like every trace's) and
the rows of a measured run, under the same ids. Of texts in a file only the model's name is kept,
and that only in a run, which is private.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import NamedTuple

import polars as pl

from collectors.results.stream import Scalar
from collectors.traces.result import ImportResult, Source, build
from collectors.traces.rows import SCHEMA as TRACE
from replay.errors import InputError, describe
from replay.strict import MAX_SAFE_INTEGER

PIECE_ROWS = 2**14
SCHEMA = pl.Schema(
    {
        "line": pl.Int64(),
        "time_ns": pl.Int64(),
        "prompt_tokens": pl.Int64(),
        "generated_tokens": pl.Int64(),
        "max_tokens": pl.Int64(),
        "cached_tokens": pl.Int64(),
        "status": pl.String(),
        "finish_reason": pl.String(),
        "queue_time_us": pl.Int64(),
        "prefill_time_us": pl.Int64(),
        "decode_time_us": pl.Int64(),
        "ttft_us": pl.Int64(),
        "tpot_us": pl.Int64(),
        "e2e_us": pl.Int64(),
    }
)
_VERSION = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,9}){1,3}(?:(?:a|b|rc|\.post|\.dev)[0-9]{1,9})?)")
_MODEL_CODE_POINTS = 4096
_UNPRINTABLE = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


class Result(NamedTuple):
    """One request, `line` its place in the file from 1; what the file does not say is None.

    `time_ns` is when it was sent, on any clock that is one for the whole file. A status other than
    ok makes it an attempt, whatever it generated.
    """

    line: int
    time_ns: int | None
    prompt_tokens: int | None
    generated_tokens: int | None
    max_tokens: int | None = None
    cached_tokens: int | None = None
    status: str = "ok"
    finish_reason: str | None = None
    queue_time_us: int | None = None
    prefill_time_us: int | None = None
    decode_time_us: int | None = None
    ttft_us: int | None = None
    tpot_us: int | None = None
    e2e_us: int | None = None


@dataclass(frozen=True)
class Definitions:
    """What a tool means by its latencies, in words, and what became of them here."""

    ttft: str
    tpot: str
    itl: str
    e2e: str


@dataclass(frozen=True, eq=False)
class Measured:
    """One benchmark of a result file: its requests as a frame of `SCHEMA`, and about them.

    `start` is the moment of the earliest request, if the file has absolute times. `notes`, whole
    sentences of the format's own, say what else a reader of the numbers must know; `unseen` counts
    requests that were made and are not in the file.
    """

    source: Source
    definitions: Definitions
    clock: str
    rows: pl.DataFrame = field(repr=False)
    tool_version: str | None = None
    engine_version: str | None = None
    model: str | None = None
    start: datetime | None = None
    notes: tuple[str, ...] = ()
    unseen: int = 0

    def workload(self, place: str, max_requests: int) -> ImportResult:
        """Its requests that ended well as a workload; all others are attempts."""
        status = pl.col("status")
        reason = pl.coalesce(
            pl.when(status == "error").then(pl.lit("failed")),
            pl.when(status != "ok").then(status),
            pl.when(pl.col("time_ns").is_null()).then(pl.lit("no_send_time")),
        )
        output = pl.when(pl.col("status") == "ok").then("generated_tokens")
        own = self.rows.with_columns(reason=reason, output_tokens=output)
        # A trace's times count from its first row, which here may have none.
        own = own.with_columns(pl.col("time_ns") - pl.col("time_ns").min())
        absent = [pl.lit(None, kind).alias(k) for k, kind in TRACE.items() if k not in own]
        piece = own.with_columns(absent).select(TRACE.names())
        if not self.rows.select((pl.col("status") == "ok").any()).item():
            rule = "must hold at least one request that ended well"
            raise InputError(place, "", rule, f"{self.rows.height} that did not")
        source = replace(self.source, notes=(*self.source.notes, *self.notes))
        return build([piece], source, place, max_requests)


def gather(rows: Iterable[Result], place: str, max_requests: int) -> pl.DataFrame:
    """Rows as one frame; objects of some thousand of them at a time."""
    rows, pieces, count, first_ns = iter(rows), [SCHEMA.to_frame()], 0, None
    while part := list(islice(rows, PIECE_ROWS)):
        count += len(part)
        if count > max_requests:
            raise InputError(place, "", f"must hold at most {max_requests} requests", "more")
        for row in part:
            if row.time_ns is not None:
                first_ns = row.time_ns if first_ns is None else first_ns
                if abs(row.time_ns - first_ns) > MAX_SAFE_INTEGER * 1000:
                    rule = "must be sent within 2^53 - 1 microseconds of the others"
                    raise InputError(place, f"request {row.line}", rule, "more")
        pieces.append(pl.DataFrame(part, schema=SCHEMA, orient="row"))
    return pl.concat(pieces)


def start_of(rows: pl.DataFrame) -> datetime | None:
    """Moment of the earliest request, of rows whose times count from 1970; None if none was sent.

    Nothing is rounded up: the run's microsecond 0 holds it.
    """
    first_ns = rows["time_ns"].min()
    if not isinstance(first_ns, int):
        return None
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=first_ns // 1000)


def version_of(value: Scalar, place: str, field: str) -> str | None:
    """A version number, without a local part that could be any text; null stays null."""
    if value is None:
        return None
    match = _VERSION.match(value) if isinstance(value, str) else None
    if match is None:
        raise InputError(place, field, "must be a version number", describe(value))
    return match[1]


def model_of(value: Scalar, place: str, field: str) -> str | None:
    """A model's name for the manifest of a private run; null stays null."""
    if value is None or value == "":
        return None
    rule = f"must be a text of at most {_MODEL_CODE_POINTS} code points on one line"
    if not isinstance(value, str) or len(value) > _MODEL_CODE_POINTS or _UNPRINTABLE.search(value):
        raise InputError(place, field, rule, describe(value))
    return value


def known_version(value: Scalar, place: str, field: str, versions: Iterable[int], tool: str) -> int:
    """A schema's major version, one of those that can be read; `2`, `"2"` and `"2.1"` are 2."""
    text = str(value) if type(value) is not bool and value is not None else ""
    match = re.fullmatch(r"([0-9]{1,4})(?:\.[0-9]{1,4}){0,2}", text)
    if match is None or int(match[1]) not in (versions := tuple(versions)):
        found = text if match else describe(value)
        rule = f"must be {' or '.join(map(str, versions))} (schema versions of {tool} read here)"
        raise InputError(place, field, rule, found)
    return int(match[1])
