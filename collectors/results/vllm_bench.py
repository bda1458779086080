"""Result files of `vllm bench serve --save-result --save-detailed`, of all that have send times.

One object a run, its requests as arrays by index in the order they were sent; `--append-result`
puts several objects after each other. Failures keep their places: a request failed if it has an
error or no output, whatever its times say. Keys not read here can be the user's own
(`--metadata`), so they are stepped over whatever they hold.
"""

from array import array
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from collectors.results.rows import Definitions, Measured, Result, gather, model_of
from collectors.results.stream import Cursor, Scalar, opened
from collectors.results.units import add, count, duration, ns, number, tpot_us, us
from collectors.traces.likely import says_what_else
from collectors.traces.lines import place_of
from collectors.traces.result import Source
from replay.errors import InputError, describe
from replay.workload import MAX_REQUESTS

SOURCE = Source(
    name="vllm-bench",
    title="vllm bench serve",
    license="the measurer's own",
    attribution="measured with vLLM, https://github.com/vllm-project/vllm",
    time_field="start_times",
    notes=(
        "arrival_us = start_times - the earliest of them, in whole microseconds",
        "ordered by arrival_us, ties in the order of sending",
        "output_tokens as the server's usage counted them, or the client where it had none",
    ),
)
DEFINITIONS = Definitions(
    ttft="from just before the POST to the first chunk with choices (chat: the role chunk, which"
    " vLLM sends with its first output); the wait for --max-concurrency is not in it; kept",
    tpot="(latency - TTFT) / (output tokens - 1), of successes with two tokens or more; kept,"
    " computed from the two",
    itl="gaps between chunks, which can hold several tokens; not kept",
    e2e="from just before the POST to the last chunk with choices; a file without latencies:"
    " TTFT + the sum of its gaps, which in chat can reach to the usage chunk; kept",
)
CLOCK = "client perf_counter, seconds from an unknown moment"
SOURCES = (SOURCE,)
_ARRAYS = ("input_lens", "output_lens", "ttfts", "itls", "start_times", "errors")
_MARKS = ("completed", "model_id")
# What --metadata can have written in a file that lacks them: compared where they are numbers.
_TOTALS = ("failed", "total_output_tokens")
_KNOWN = (*_ARRAYS, "latencies", *_MARKS, *_TOTALS)
_NEEDED = "record it with vllm bench serve --save-result --save-detailed"
_UNKNOWN = -1


@says_what_else(SOURCE.name)
def read(path: Path, max_requests: int = MAX_REQUESTS) -> list[Measured]:
    """Each object of the file at `path` (plain or gzip; `-`: standard input)."""
    place = place_of(path)
    found: list[Measured] = []
    with opened(path, place) as source:
        cursor = Cursor(source, place)
        while cursor.more():
            cursor.place = f"{place}: object {len(found) + 1}" if found else place
            found.append(_measured(cursor, max_requests))
    return found


def _measured(cursor: Cursor, max_requests: int) -> Measured:
    place = cursor.place
    columns = _columns(cursor, max_requests)
    rows = gather(_rows(columns, place), place, max_requests)
    model = model_of(columns["model_id"], place, "model_id")
    return Measured(SOURCE, DEFINITIONS, CLOCK, rows, model=model)


def _columns(cursor: Cursor, most: int) -> dict[str, Any]:
    """The arrays by name, and the single values."""
    found: dict[str, Any] = {}
    for key in cursor.object(_KNOWN, ""):
        if key in _MARKS:
            found[key] = cursor.scalar(key)
        elif key in _TOTALS:
            found[key] = cursor.scalar_or_none()
        elif key == "itls":
            found[key] = list(_sums(cursor, most))
        else:
            found[key] = _READERS[key](_entries(cursor, key, most), cursor.place)
    for key in _MARKS:
        if key not in found:
            rule = "is required in a result of vllm bench serve"
            raise InputError(cursor.place, key, rule, "nothing")
    missing = [key for key in _ARRAYS if key not in found]
    if missing:
        raise InputError(cursor.place, ", ".join(missing), f"must be there: {_NEEDED}", "nothing")
    lengths = {key: len(found[key]) for key in (*_ARRAYS, "latencies") if key in found}
    wanted = lengths["start_times"]
    for key, length in lengths.items():
        if length != wanted:
            rule = f"must have {wanted} entries, as start_times has"
            raise InputError(cursor.place, key, rule, str(length))
    return found


def _entries(cursor: Cursor, key: str, most: int) -> Iterator[Scalar]:
    for k, value in enumerate(cursor.scalars(key)):
        if k >= most:
            raise InputError(cursor.place, key, f"must hold at most {most} requests", "more")
        yield value


def _counts(values: Iterator[Scalar], place: str, key: str) -> "array[int]":
    return array("q", (count(v, place, f"{key}[{k}]") for k, v in enumerate(values)))


def _input_lens(values: Iterator[Scalar], place: str) -> "array[int]":
    return _counts(values, place, "input_lens")


def _output_lens(values: Iterator[Scalar], place: str) -> "array[int]":
    return _counts(values, place, "output_lens")


def _ttfts(values: Iterator[Scalar], place: str) -> list[Decimal]:
    return [duration(value, place, f"ttfts[{k}]") for k, value in enumerate(values)]


def _latencies(values: Iterator[Scalar], place: str) -> list[Decimal]:
    return [duration(value, place, f"latencies[{k}]") for k, value in enumerate(values)]


def _start_times(values: Iterator[Scalar], place: str) -> "array[int]":
    """Nanoseconds; 0.0 is how the tool says that nothing was sent."""
    found = array("q")
    for k, value in enumerate(values):
        start = number(value, place, f"start_times[{k}]")
        if start < 0:
            raise InputError(place, f"start_times[{k}]", "must be >= 0", "a negative one")
        found.append(ns(start) if start else _UNKNOWN)
    return found


def _errors(values: Iterator[Scalar], place: str) -> bytearray:
    """1 for each that is a text, 0 for each that is empty or null."""
    found = bytearray()
    for k, value in enumerate(values):
        if value is not None and not isinstance(value, str):
            raise InputError(place, f"errors[{k}]", "must be a text", describe(value))
        found.append(bool(value))
    return found


_READERS = {
    "input_lens": _input_lens,
    "output_lens": _output_lens,
    "ttfts": _ttfts,
    "latencies": _latencies,
    "start_times": _start_times,
    "errors": _errors,
}


def _sums(cursor: Cursor, most: int) -> Iterator[Decimal]:
    """Sum of each request's gaps."""
    for k in cursor.array("itls"):
        if k >= most:
            raise InputError(cursor.place, "itls", f"must hold at most {most} requests", "more")
        yield _sum(cursor, f"itls[{k}]")


def _sum(cursor: Cursor, name: str) -> Decimal:
    total = Decimal(0)
    for value in cursor.scalars(name):
        # Of these a file holds millions, so the usual ones are not looked at twice.
        if type(value) is not Decimal or value.is_signed() or value.adjusted() > 0:
            value = duration(value, cursor.place, name)  # noqa: PLW2901
        total = add(total, value)
    return total


def _rows(columns: dict[str, Any], place: str) -> Iterator[Result]:
    whole = _all_succeeded(columns, place)
    latencies = columns.get("latencies")
    for k, failed in enumerate(columns["errors"]):
        prompt, output = columns["input_lens"][k], columns["output_lens"][k]
        first, gaps = columns["ttfts"][k], columns["itls"][k]
        ok = not failed and (output > 0 or whole)
        first = first or None  # 0.0: no chunk ever came, or nothing saw when
        last = None
        if ok and latencies is not None:
            last = latencies[k] if first or latencies[k] else None
        elif ok and first:
            last = add(first, gaps)
        ttft_us, e2e_us = (None if t is None else us(t) for t in (first, last))
        if e2e_us is not None and ttft_us is not None and e2e_us < ttft_us:
            raise InputError(place, f"latencies[{k}]", "must be at least ttfts", "less")
        sent = columns["start_times"][k]
        yield Result(
            line=k + 1,
            time_ns=None if sent == _UNKNOWN else sent,
            prompt_tokens=prompt,
            generated_tokens=output if ok else None,  # of a failure the tool always says 0
            status="ok" if ok else "error",
            ttft_us=ttft_us,
            tpot_us=tpot_us(first, last, output) if ok else None,
            e2e_us=e2e_us,
        )


def _all_succeeded(columns: dict[str, Any], place: str) -> bool:
    """Whether even those without output count as successes, held to the tool's own count."""
    completed = count(columns["completed"], place, "completed")
    errors = columns["errors"]
    most: int = len(errors) - sum(errors)
    least = sum(n > 0 and not e for n, e in zip(columns["output_lens"], errors, strict=True))
    if not least <= completed <= most:
        span = str(most) if least == most else f"{least} to {most}"
        rule = f"must be {span}, the requests without an error"
        raise InputError(place, "completed", rule, str(completed))
    _check_totals(columns, place, completed)
    return completed == most


def _check_totals(columns: dict[str, Any], place: str, completed: int) -> None:
    """Refuse a sum that the arrays contradict.

    Not that of the prompts: releases differ in whether it is the client's count or the server's.
    """
    wanted = {
        "failed": (len(columns["errors"]) - completed, "the requests that are not completed"),
        "total_output_tokens": (sum(columns["output_lens"]), "the sum of output_lens"),
    }
    for key, (number_of, what) in wanted.items():
        told = columns.get(key)
        if type(told) in (int, Decimal) and told != number_of:
            raise InputError(place, key, f"must be {number_of}, {what}", describe(told))
