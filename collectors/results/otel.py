"""vLLM's `llm_request` spans as the OpenTelemetry Collector's file exporter writes them.

OTLP as JSON, one export a line. Each span is one request that the engine finished, with the
engine's own latencies; what it aborted has no span, and no span says that it was preempted. Other
spans, metrics and logs in the file are stepped over, and a span that came twice counts once.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from collectors.results.rows import Definitions, Measured, Result, gather, start_of
from collectors.results.stream import ENDED, line_cursor
from collectors.results.units import digits, duration, moment_ns, tokens, tpot_us, us
from collectors.traces.likely import says_what_else
from collectors.traces.lines import numbered_lines, place_of
from collectors.traces.result import Source
from replay.errors import InputError
from replay.workload import MAX_REQUESTS

MAX_LINE_BYTES = 64 * 2**20
SPAN = "llm_request"
SOURCE = Source(
    name="otel",
    title="vLLM's OpenTelemetry spans",
    license="the measurer's own",
    attribution="measured with vLLM, https://github.com/vllm-project/vllm",
    time_field="startTimeUnixNano",
    notes=(
        "arrival_us = startTimeUnixNano - the earliest of them, in whole microseconds",
        "ordered by arrival_us, ties in the order of the file",
        "finished requests only: what was aborted or refused has no span",
    ),
)
DEFINITIONS = Definitions(
    ttft="gen_ai.latency.time_to_first_token: from the request's arrival at the frontend to its"
    " first output there, wall clock; kept",
    tpot="time_in_model_decode (first to last token, engine monotonic) / (output tokens - 1);"
    " computed",
    itl="not in the file",
    e2e="gen_ai.latency.e2e: from arrival to the last output at the frontend, wall clock; kept",
)
CLOCK = "frontend wall clock"
TWICE = "spans that came more than once are counted once"
CUT = "the last line is cut and is left out"
SOURCES = (replace(SOURCE, notes=(*SOURCE.notes, TWICE, CUT)),)
_TTFT, _E2E = "gen_ai.latency.time_to_first_token", "gen_ai.latency.e2e"
_QUEUE = "gen_ai.latency.time_in_queue"
_PREFILL, _DECODE = (f"gen_ai.latency.time_in_model_{part}" for part in ("prefill", "decode"))
_PROMPT, _OUTPUT = "gen_ai.usage.prompt_tokens", "gen_ai.usage.completion_tokens"
_MOST_TOKENS = "gen_ai.request.max_tokens"
_SENT = "startTimeUnixNano"
_ID = "gen_ai.request.id"
_WANTED = {_ID, _TTFT, _E2E, _QUEUE, _PREFILL, _DECODE, _PROMPT, _OUTPUT, _MOST_TOKENS}
_ATTRIBUTE = {"key": None, "value": dict.fromkeys(("intValue", "doubleValue", "stringValue"))}
_SPANS = {
    "spans": [
        dict.fromkeys(("name", "traceId", "spanId", "startTimeUnixNano"))
        | {"attributes": [_ATTRIBUTE]}
    ]
}
_EXPORT: dict[str, Any] = {"resourceSpans": [{"scopeSpans": [_SPANS]}]}
_OTHERS: dict[str, Any] = {
    key: [{}] for key in ("resourceMetrics", "resourceLogs", "resourceProfiles")
}
_NEEDED = "must hold resourceSpans (OTLP as JSON: the file exporter with format json)"


@dataclass
class _Seen:
    spans: set[int] = field(default_factory=set)
    twice: bool = False
    cut: bool = False


@says_what_else(SOURCE.name)
def read(path: Path, max_requests: int = MAX_REQUESTS) -> list[Measured]:
    """The one benchmark of the file at `path` (plain or gzip; `-`: standard input)."""
    place, seen = place_of(path), _Seen()
    rows = gather(_rows(path, seen), place, max_requests)
    if not rows.height:
        raise InputError(place, "", f"must hold a span {SPAN}", "none")
    notes = (*((TWICE,) if seen.twice else ()), *((CUT,) if seen.cut else ()))
    return [Measured(SOURCE, DEFINITIONS, CLOCK, rows, start=start_of(rows), notes=notes)]


def _rows(path: Path, seen: _Seen) -> Iterator[Result]:
    number, cut = 0, None
    for _, place, text in numbered_lines(path, MAX_LINE_BYTES):
        if cut is not None:
            raise cut  # of a line that is not the last, no crash is to blame
        cursor = line_cursor(text, place)
        try:
            export = cursor.pick(_EXPORT | _OTHERS, "") or {}
        except InputError as exc:
            if exc.found != ENDED:
                raise
            cut = exc
            continue
        cursor.end()
        if not export:
            raise InputError(place, "resourceSpans", _NEEDED, "nothing")
        for span in _spans(export):
            if span.get("name") == SPAN:
                found = dict(_attributes(span, place))
                if _is_new(span, found, seen):
                    number += 1
                    yield _row(span, found, number, f"{place}: {SPAN} {number}")
    seen.cut = cut is not None


def _spans(export: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for resource in export.get("resourceSpans") or ():
        for scope in (resource or {}).get("scopeSpans") or ():
            for span in (scope or {}).get("spans") or ():
                yield span or {}


def _is_new(span: dict[str, Any], found: dict[str, Any], seen: _Seen) -> bool:
    """Whether it is the first of its kind: an exporter that tries again writes a span again.

    Span ids alone do not tell: vLLM seeds the generator that makes them, so they come twice.
    """
    told = (span.get(key) for key in ("traceId", "spanId", _SENT))
    one = hash((*map(str, told), *(str(found.get(key)) for key in (_ID, _E2E))))
    seen.twice |= (known := one in seen.spans)
    seen.spans.add(one)
    return not known


def _row(span: dict[str, Any], values: dict[str, Any], line: int, place: str) -> Result:
    exact = {k: _duration(values, k, place) for k in (_TTFT, _E2E, _QUEUE, _PREFILL, _DECODE)}
    times = {key: None if value is None else us(value) for key, value in exact.items()}
    counts = (_PROMPT, _OUTPUT, _MOST_TOKENS)
    prompt, output, most = (tokens(digits(values.get(k)), place, k) for k in counts)
    for key, found in ((_PROMPT, prompt), (_OUTPUT, output), (_E2E, times[_E2E])):
        if found is None:
            raise InputError(place, key, f"is required in a span {SPAN} of vLLM", "nothing")
    ok = bool(output)
    ttft_us, e2e_us = times[_TTFT], times[_E2E]
    if ok and ttft_us is not None and e2e_us is not None and e2e_us < ttft_us:
        raise InputError(place, _E2E, f"must be at least {_TTFT}", "less")
    return Result(
        line=line,
        time_ns=moment_ns(digits(span.get(_SENT)), place, _SENT),
        prompt_tokens=prompt,
        generated_tokens=output,
        max_tokens=most,
        queue_time_us=times[_QUEUE],
        prefill_time_us=times[_PREFILL] if ok else None,
        decode_time_us=times[_DECODE] if ok else None,
        ttft_us=ttft_us if ok else None,  # without a token vLLM writes 0
        tpot_us=tpot_us(Decimal(0), exact[_DECODE], output),
        e2e_us=e2e_us if ok else None,
    )


def _attributes(span: dict[str, Any], place: str) -> Iterator[tuple[str, Any]]:
    """Values of the attributes that are read here, each there once."""
    seen = set()
    for one in span.get("attributes") or ():
        key = (one or {}).get("key")
        if key not in _WANTED:
            continue
        if key in seen:
            raise InputError(place, key, "must be there once", "twice")
        seen.add(key)
        value = one.get("value") or {}
        yield key, next((v for v in value.values() if v is not None), None)


def _duration(values: dict[str, Any], key: str, place: str) -> Decimal | None:
    value = values.get(key)
    return None if value is None else duration(value, place, key)
