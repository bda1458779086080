"""Reports of GuideLLM (`benchmarks.json`): every request of every benchmark, by how it ended.

Only the requests' own moments are read: GuideLLM's aggregates make a missing value 0. A report that
kept only a sample of its requests is no workload and is refused.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import Decimal
from pathlib import Path
from typing import Any

from collectors.manifest import value_at
from collectors.results.rows import (
    Definitions,
    Measured,
    Result,
    gather,
    known_version,
    model_of,
    start_of,
    version_of,
)
from collectors.results.stream import Cursor, opened
from collectors.results.units import between_us, epoch, ns, tokens, tpot_us
from collectors.traces.likely import says_what_else
from collectors.traces.lines import place_of
from collectors.traces.result import Source
from replay.errors import InputError, describe
from replay.workload import MAX_REQUESTS

SOURCE = Source(
    name="guidellm",
    title="GuideLLM",
    license="the measurer's own",
    attribution="measured with GuideLLM, https://github.com/vllm-project/guidellm",
    time_field="request_start",
    notes=(
        "arrival_us = request_start - the earliest of them, in whole microseconds",
        "ordered by arrival_us, ties in the order of the file",
        "output_tokens as the server's usage counted them, or GuideLLM where it had none",
    ),
)
DEFINITIONS = Definitions(
    ttft="from the start of the request to the first iteration with a token, reasoning too; kept",
    tpot="inter_token_latency_ms = (last token - first token) / (output tokens - 1) is the"
    " project's TPOT and is computed anew; time_per_output_token_ms, which holds the first token,"
    " is not kept",
    itl="a request's mean, weighted by tokens in GuideLLM's own summary; not kept apart",
    e2e="request_latency goes on to the end of the response; kept is the last token - the start",
)
CLOCK = "client wall clock (time.time)"
PHASES = {
    "warmup": "requests of the warm-up are not in the file",
    "cooldown": "requests of the cool-down are not in the file",
}
IN_FLIGHT = "requests that were in flight at the end are not in the file"
SOURCES = (replace(SOURCE, notes=(*SOURCE.notes, *PHASES.values(), IN_FLIGHT)),)
VERSIONS = (1, 2)
STATUSES = {"successful": "ok", "errored": "error", "incomplete": "censored"}
_COMPLETED = "completed"
_OLD_ENDS = {"errored": None, "canceled": None}
_USAGE = {"total_tokens": None, "cached_tokens": None}
_METADATA = {"version": None, "guidellm_version": None}
_MADE = {"requests_made": dict.fromkeys(STATUSES)}
_KNOWN: dict[str, Any] = {
    "config": {"backend": {"model": None}}
    | {phase: {"percent": None, "value": None} for phase in PHASES},
    "scheduler_state": {"processing_requests": None},
    "scheduler_metrics": _MADE,
    "requests": None,
    # Before there was a schema version:
    "worker": {"backend_model": None},
    "run_stats": _MADE,
}


@dataclass(frozen=True)
class _Shape:
    """Where a row has the moments of its start, first and last token, and its token counts."""

    keys: dict[str, Any]
    times: tuple[str, str, str]
    prompt: str
    output: str
    cached: str


_OLD = _Shape(
    dict.fromkeys(
        ("start_time", "first_token_time", "last_token_time", "prompt_tokens", "output_tokens")
    )
    | {"scheduler_info": _OLD_ENDS},
    ("start_time", "first_token_time", "last_token_time"),
    "prompt_tokens",
    "output_tokens",
    "cached_tokens",
)
_TIMES = ("request_start", "first_token_iteration", "last_token_iteration")
_NEW = _Shape(
    {
        "info": {"status": None, "error": None, "timings": dict.fromkeys(_TIMES)},
        "input_metrics": _USAGE,
        "output_metrics": _USAGE,
    },
    tuple(f"info.timings.{name}" for name in _TIMES),  # type: ignore[arg-type]
    "input_metrics.total_tokens",
    "output_metrics.total_tokens",
    "input_metrics.cached_tokens",
)
_ROW = _OLD.keys | _NEW.keys


@says_what_else(SOURCE.name)
def read(path: Path, max_requests: int = MAX_REQUESTS) -> list[Measured]:
    """Each benchmark of the report at `path` (plain or gzip; `-`: standard input)."""
    place = place_of(path)
    found: list[Measured] = []
    old: set[bool] = set()
    version, versioned = None, False
    with opened(path, place) as source:
        cursor = Cursor(source, place)
        for key in cursor.object(("metadata", "benchmarks"), ""):
            if key == "metadata":
                metadata = cursor.pick(_METADATA, key) or {}
                told = metadata.get("version")
                known_version(told, place, "metadata.version", VERSIONS, "GuideLLM")
                told = metadata.get("guidellm_version")
                version, versioned = version_of(told, place, "metadata.guidellm_version"), True
            else:
                places = (f"{place}: benchmark {k + 1}" for k in cursor.array(key))
                found += [_benchmark(cursor, old, one, max_requests) for one in places]
        cursor.end()
    # Perhaps the file's keys were sorted: only at its end it is known which rows there may be.
    if versioned in old:
        rule = "must be in a report with such requests, and in no other"
        raise InputError(place, "metadata", rule, "one" if versioned else "none")
    if not found:
        raise InputError(place, "benchmarks", "must hold at least one benchmark", "none")
    return [replace(one, tool_version=version) for one in found]


def _benchmark(cursor: Cursor, old: set[bool], place: str, most: int) -> Measured:
    outer, cursor.place = cursor.place, place
    told: dict[str, dict[str, Any]] = {}
    kept: dict[str, int] = {}
    rows = None
    for key in cursor.object(_KNOWN, ""):
        if key == "requests":
            rows = gather(_requests(cursor, old, kept), place, most)
        else:
            told[key] = cursor.pick(_KNOWN[key], key) or {}
    if rows is None:
        raise InputError(place, "requests", "is required in a benchmark of GuideLLM", "nothing")
    for key in ("scheduler_metrics", "run_stats"):
        _check_whole(kept, told.get(key, {}).get("requests_made") or {}, place)
    cursor.place = outer
    field = "scheduler_state.processing_requests"
    unseen = tokens(value_at(told, field), place, field) or 0
    model = value_at(told, "config.backend.model") or value_at(told, "worker.backend_model")
    return Measured(
        SOURCE,
        DEFINITIONS,
        CLOCK,
        rows,
        model=model_of(model, place, "config.backend.model"),
        start=start_of(rows),
        notes=(*_notes(told), *((IN_FLIGHT,) if unseen else ())),
        unseen=unseen,
    )


def _notes(told: dict[str, Any]) -> Iterator[str]:
    for phase, note in PHASES.items():
        if any(value is not None for value in (value_at(told, f"config.{phase}") or {}).values()):
            yield note


def _requests(cursor: Cursor, old: set[bool], kept: dict[str, int]) -> Iterator[Result]:
    line = 0
    for name in cursor.object(tuple(STATUSES), "requests"):
        kept[name] = 0
        for k in cursor.array(f"requests.{name}"):
            line, kept[name] = line + 1, kept[name] + 1
            entry = f"requests.{name}[{k}]"
            record = cursor.pick(_ROW, entry) or {}
            shape = _OLD if _OLD.times[0] in record else _NEW
            old.add(shape is _OLD)
            yield _request(record, shape, line, STATUSES[name], f"{cursor.place}: {entry}")


def _request(record: dict[str, Any], shape: _Shape, line: int, status: str, place: str) -> Result:
    _check_end(record, status, place)
    sent, first, last = (_moment(record, key, place) for key in shape.times)
    if status == "ok" and sent is None:
        raise InputError(place, shape.times[0], "must be a number", "null or nothing")
    ttft_us = last_us = None
    if sent is not None:
        ttft_us = None if first is None else between_us(sent, first, place, shape.times[1])
        last_us = None if last is None else between_us(sent, last, place, shape.times[2])
    elif status == "censored":
        status = "unsent"
    if ttft_us is not None and last_us is not None and last_us < ttft_us:
        raise InputError(place, shape.times[2], "must not be before the first token", "before it")
    prompt, output, cached = (
        tokens(value_at(record, name), place, name)
        for name in (shape.prompt, shape.output, shape.cached)
    )
    ok = status == "ok"
    return Result(
        line=line,
        time_ns=None if sent is None else ns(sent),
        prompt_tokens=prompt,
        generated_tokens=output,
        cached_tokens=cached,
        status=status,
        ttft_us=ttft_us,
        tpot_us=tpot_us(first, last, output) if ok and sent is not None else None,
        e2e_us=last_us if ok else None,
    )


def _moment(record: dict[str, Any], name: str, place: str) -> Decimal | None:
    value = value_at(record, name)
    return None if value is None else epoch(value, place, name)


def _check_end(record: dict[str, Any], status: str, place: str) -> None:
    """Refuse a request that ended otherwise than the list it is in says."""
    told = value_at(record, "info.status")
    if status != "ok":
        if told == _COMPLETED:
            raise InputError(place, "info.status", "must not be completed in this list", told)
        return
    if told is not None and told != _COMPLETED:
        raise InputError(place, "info.status", "must be completed in this list", describe(told))
    for field in ("info.error", *(f"scheduler_info.{key}" for key in _OLD_ENDS)):
        told = value_at(record, field)
        if told is not None and told is not False:
            rule = "must be null or false: the request is among the successful"
            raise InputError(place, field, rule, describe(told))


def _check_whole(kept: dict[str, int], made: dict[str, Any], place: str) -> None:
    """Refuse a report that kept some of its requests only."""
    for name in STATUSES:
        count = tokens(made.get(name), place, f"requests_made.{name}")
        if count is not None and count != kept.get(name, 0):
            rule = f"must hold all {count} (run guidellm without a sample size)"
            raise InputError(place, f"requests.{name}", rule, str(kept.get(name, 0)))
