"""inference-perf's `per_request_lifecycle_metrics.json`: one list, each request with its text.

The report exists only if `report.request_lifecycle.per_request` is true. Of the text nothing is
read. `output_token_times` follow the client's own count of tokens, so the chunks' times are read.
"""

from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from collectors.results.rows import Definitions, Measured, Result, gather
from collectors.results.stream import ENDS, Cursor, Ends, opened
from collectors.results.units import between_us, ns, number, tokens, tpot_us
from collectors.traces.likely import says_what_else
from collectors.traces.lines import place_of
from collectors.traces.result import Source
from replay.errors import InputError
from replay.workload import MAX_REQUESTS

SOURCE = Source(
    name="inference-perf",
    title="inference-perf",
    license="the measurer's own",
    attribution="measured with inference-perf, https://github.com/kubernetes-sigs/inference-perf",
    time_field="start_time",
    notes=(
        "arrival_us = start_time - the earliest of them, in whole microseconds",
        "ordered by arrival_us, ties in the order of the file",
        "token counts are the server's usage, or inference-perf's own where it had none",
    ),
)
DEFINITIONS = Definitions(
    ttft="from the first dispatch of the request (retries are inside) to the first chunk with"
    " content; kept, of streamed answers",
    tpot="time_per_output_token = (last token - first token) / (output tokens - 1) is the"
    " project's TPOT and is computed anew from the server's count of tokens, null without one;"
    " normalized_time_per_output_token, which holds TTFT, is not kept",
    itl="gaps between token times, tokens of one chunk having one time; not kept",
    e2e="request_latency goes on to the end of the response; kept is the last token - the start,"
    " and of an answer that was not streamed the end of the response",
)
CLOCK = "client perf_counter, seconds from an unknown moment"
SOURCES = (SOURCE,)
_USAGE = dict.fromkeys(("prompt_tokens", "completion_tokens", "input_tokens", "output_tokens"))
_ENTRY = {
    "start_time": None,
    "end_time": None,
    "info": {
        "request_metrics": {"text": {"input_tokens": None}},
        "input_tokens": None,
        "response_metrics": {
            "output_tokens": None,
            "server_usage": _USAGE,
            "chunk_times": ENDS,
        },
    },
    "error": {"error_type": None},
}
_RULE = (
    "must be a list of requests: per_request_lifecycle_metrics.json, written with"
    " report.request_lifecycle.per_request: true"
)


@says_what_else(SOURCE.name)
def read(path: Path, max_requests: int = MAX_REQUESTS) -> list[Measured]:
    """The one benchmark of the file at `path` (plain or gzip; `-`: standard input)."""
    place = place_of(path)
    with opened(path, place) as source:
        cursor = Cursor(source, place)
        if not cursor.is_list():
            raise InputError(place, "", _RULE, "something else")
        rows = gather(_rows(cursor), place, max_requests)
        cursor.end()
    if not rows.height:
        raise InputError(place, "", "must hold at least one request", "none")
    return [Measured(SOURCE, DEFINITIONS, CLOCK, rows)]


def _rows(cursor: Cursor) -> Iterator[Result]:
    for k in cursor.array(""):
        place = f"{cursor.place}: request {k + 1}"
        yield _row(cursor.pick(_ENTRY, f"[{k}]") or {}, k + 1, place)


def _row(entry: dict[str, Any], line: int, place: str) -> Result:
    start, end = (number(entry.get(key), place, key) for key in ("start_time", "end_time"))
    took_us = between_us(start, end, place, "end_time")
    ok = entry.get("error") is None
    if ok and entry.get("info") is None:
        rule = "is required (report.request_lifecycle.per_request_fields.info: true)"
        raise InputError(place, "info", rule, "nothing")
    info = entry.get("info") or {}
    answer = info.get("response_metrics") or {}
    usage = answer.get("server_usage") or {}
    told = _first(usage, ("completion_tokens", "output_tokens"), place, "server_usage")
    own = tokens(answer.get("output_tokens"), place, "output_tokens")
    streamed = "chunk_times" in answer
    first, last = _ends(answer.get("chunk_times"), place)
    ttft_us, last_us = (
        None if at is None else between_us(start, at, place, "chunk_times") for at in (first, last)
    )
    if last is not None and last > end:
        raise InputError(place, "chunk_times", "must not be after end_time", "after it")
    e2e_us = last_us if streamed else took_us
    return Result(
        line=line,
        time_ns=ns(start),
        prompt_tokens=_prompt(info, usage, place),
        generated_tokens=own if told is None else told,
        status="ok" if ok else "error",
        ttft_us=ttft_us,
        tpot_us=tpot_us(first, last, told) if ok else None,
        e2e_us=e2e_us if ok else None,
    )


def _prompt(info: dict[str, Any], usage: dict[str, Any], place: str) -> int | None:
    told = _first(usage, ("prompt_tokens", "input_tokens"), place, "server_usage")
    text = (info.get("request_metrics") or {}).get("text") or info
    return tokens(text.get("input_tokens"), place, "input_tokens") if told is None else told


def _first(usage: dict[str, Any], keys: tuple[str, ...], place: str, field: str) -> int | None:
    found = (tokens(usage.get(key), place, f"{field}.{key}") for key in keys)
    return next((n for n in found if n is not None), None)


def _ends(times: Ends | None, place: str) -> tuple[Decimal, Decimal] | tuple[None, None]:
    """Moments of the first and the last chunk with content."""
    if times is None or not times.entries:
        return None, None
    first, last = (number(value, place, "chunk_times") for value in times[:2])
    if last < first:
        raise InputError(place, "chunk_times", "must not fall", "a fall")
    return first, last
