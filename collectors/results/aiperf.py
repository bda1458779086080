"""AIPerf's `profile_export.jsonl` (`--export-level records`): one JSON object a request, each line.

Every metric names its unit there, and a unit that is not known is refused. Requests of a warm-up
are no part of what was measured: they are attempts of the workload, and no rows of the run.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from collectors.results.rows import Definitions, Measured, Result, gather, start_of
from collectors.results.stream import line_cursor
from collectors.results.units import duration, moment_ns, tokens, tpot_us, us
from collectors.traces.likely import says_what_else
from collectors.traces.lines import numbered_lines, place_of
from collectors.traces.result import Source
from replay.errors import InputError
from replay.strict import boolean, choice
from replay.workload import MAX_REQUESTS

MAX_LINE_BYTES = 16 * 2**20
SOURCE = Source(
    name="aiperf",
    title="AIPerf",
    license="the measurer's own",
    attribution="measured with AIPerf, https://github.com/ai-dynamo/aiperf",
    time_field="request_start_ns",
    notes=(
        "arrival_us = request_start_ns - the earliest of them, in whole microseconds",
        "ordered by arrival_us, ties in the order of the file",
        "token counts are the server's usage, or AIPerf's own where it had none",
    ),
)
DEFINITIONS = Definitions(
    ttft="time_to_first_token: from the start of the request to the first response with content,"
    " reasoning too; kept",
    tpot="inter_token_latency = (request latency - TTFT) / (output tokens - 1) is the project's"
    " TPOT where AIPerf counts as the server does; computed anew from the server's count of tokens,"
    " null without one",
    itl="inter_chunk_latency: gaps between chunks, which can hold several tokens; not kept",
    e2e="request_latency: from the start of the request to the last response with content; kept",
)
CLOCK = "client wall clock (time.time_ns); latencies by its monotonic clock"
TWICE = "records that came more than once are counted once"
SOURCES = (replace(SOURCE, notes=(*SOURCE.notes, TWICE)),)
_UNITS = {"ns": 9, "us": 6, "ms": 3, "sec": 0, "s": 0}
_TIME = ("time_to_first_token", "request_latency")
_TOKENS = (
    "usage_prompt_tokens",
    "input_sequence_length",
    "error_isl",
    "usage_completion_tokens",
    "output_sequence_length",
    "usage_prompt_cache_read_tokens",
)
_METRIC = {"value": None, "unit": None}
_RECORD = {
    "metadata": dict.fromkeys(
        (
            *("request_start_ns", "benchmark_phase", "was_cancelled", "context_overflow_skip"),
            "x_request_id",
        )
    ),
    "metrics": dict.fromkeys((*_TIME, *_TOKENS), _METRIC),
    "error": {"code": None},
}
_FILE = "AIPerf's profile_export.jsonl (--export-level records)"
_NEEDED = f"is required in {_FILE}"


@dataclass
class _Seen:
    records: set[int] = field(default_factory=set)
    twice: bool = False


@says_what_else(SOURCE.name)
def read(path: Path, max_requests: int = MAX_REQUESTS) -> list[Measured]:
    """The one benchmark of the file at `path` (plain or gzip; `-`: standard input)."""
    place, seen = place_of(path), _Seen()
    rows = gather(_rows(path, seen), place, max_requests)
    notes = (TWICE,) if seen.twice else ()
    return [Measured(SOURCE, DEFINITIONS, CLOCK, rows, start=start_of(rows), notes=notes)]


def _rows(path: Path, seen: _Seen) -> Iterator[Result]:
    for line, place, text in numbered_lines(path, MAX_LINE_BYTES):
        if line == 1 and text.strip() in ("{", "["):  # the aggregate beside it, ..._aiperf.json
            raise InputError(place, "", f"must be a record of {_FILE}", "JSON over several lines")
        cursor = line_cursor(text, place)
        record = cursor.pick(_RECORD, "") or {}
        cursor.end()
        row = _row(record, line, place)
        if _is_new(record["metadata"].get("x_request_id"), row, seen):
            yield row


def _is_new(request_id: Any, row: Result, seen: _Seen) -> bool:
    """Whether it is the first of its kind: a file put together of others can hold a record twice.

    An id alone does not tell: what else the record says must be the same too.
    """
    if request_id is None:
        return True
    one = hash((str(request_id), row._replace(line=0)))
    seen.twice |= (known := one in seen.records)
    seen.records.add(one)
    return not known


def _row(record: dict[str, Any], line: int, place: str) -> Result:
    metadata, metrics = record.get("metadata"), record.get("metrics")
    for key, value in (("metadata", metadata), ("metrics", metrics)):
        if value is None:
            raise InputError(place, key, _NEEDED, "nothing")
    assert metadata is not None  # noqa: S101
    status = _status(record, metadata, place)
    ok = status == "ok"
    first, last = (_duration(metrics, key, place) for key in _TIME)
    ttft_us, e2e_us = (None if value is None else us(value) for value in (first, last))
    if ttft_us is not None and e2e_us is not None and e2e_us < ttft_us:
        raise InputError(place, "request_latency", "must be at least time_to_first_token", "less")
    prompt, own, failed, output, counted, cached = (_tokens(metrics, k, place) for k in _TOKENS)
    return Result(
        line=line,
        time_ns=moment_ns(metadata.get("request_start_ns"), place, "metadata.request_start_ns"),
        prompt_tokens=next((n for n in (prompt, own, failed) if n is not None), None),
        generated_tokens=counted if output is None else output,
        cached_tokens=cached,
        status=status,
        ttft_us=ttft_us,
        tpot_us=tpot_us(first, last, output) if ok else None,
        e2e_us=e2e_us if ok else None,
    )


def _status(record: dict[str, Any], metadata: dict[str, Any], place: str) -> str:
    phase = metadata.get("benchmark_phase", "profiling")
    choice(phase, place, "metadata.benchmark_phase", ("profiling", "warmup"))
    if phase == "warmup":
        return "warmup"
    cancelled, too_long = (
        metadata.get(key) is not None and boolean(metadata[key], place, f"metadata.{key}")
        for key in ("was_cancelled", "context_overflow_skip")
    )
    if cancelled:
        return "aborted"
    return "error" if too_long or record.get("error") is not None else "ok"


def _metric(metrics: Any, key: str) -> tuple[Any, Any]:
    found = metrics.get(key)
    return (None, None) if found is None else (found.get("value"), found.get("unit"))


def _duration(metrics: Any, key: str, place: str) -> Decimal | None:
    value, unit = _metric(metrics, key)
    if value is None:
        return None
    known = choice(unit, place, f"metrics.{key}.unit", _UNITS)
    return duration(value, place, f"metrics.{key}.value", _UNITS[known])


def _tokens(metrics: Any, key: str, place: str) -> int | None:
    value, unit = _metric(metrics, key)
    if value is not None:
        choice(unit, place, f"metrics.{key}.unit", ("tokens",))
    return tokens(value, place, f"metrics.{key}.value")
