"""When each request of a workload is due, in microseconds from the run's zero. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any

from replay.errors import InputError
from replay.workload import Workload

_WINDOWS_US = (1_000_000, 10_000_000)


def due_times(arrivals_us: Iterable[int], speed: Fraction, max_gap_us: int | None) -> list[int]:
    """Arrivals, their gaps first cut to `max_gap_us`, then `speed` times as fast.

    The time before the first arrival is a gap like any other. Rounded down, each on its own, so
    that nothing adds up.
    """
    due, before, at = [], 0, 0
    for arrival in arrivals_us:
        gap = arrival - before
        at += gap if max_gap_us is None else min(gap, max_gap_us)
        before = arrival
        due.append(at * speed.denominator // speed.numerator)
    return due


def speed_of(text: str) -> Fraction:
    """Factor such as `2`, `2.2` or `0.5`, exactly; from 0.001 to 1000000."""
    try:
        found = Fraction(text) if len(text) <= 20 and "/" not in text else None  # noqa: PLR2004
    except ValueError:
        found = None
    if found is None or not Fraction(1, 1000) <= found <= 1_000_000:  # noqa: PLR2004
        rule = "must be a factor from 0.001 to 1000000, e.g. 2 or 0.5"
        raise InputError("options", "--speed", rule, f"{len(text)} characters")
    return found


def most_within(due_us: Sequence[int], window_us: int) -> int:
    """Most requests due within any `window_us`: how many overlap if each takes that long."""
    most = first = 0
    for last, due in enumerate(due_us):
        while due - due_us[first] >= window_us:
            first += 1
        most = max(most, last - first + 1)
    return most


def scheduled(workload: Workload, speed: Fraction, max_gap_us: int | None) -> Workload:
    """The workload that is really offered: each request arrives when it is due.

    Another speed is another workload, with another hash: nothing that reads the run has to know.
    When an engine took the requests once is left out: this one takes them anew.
    """
    due = due_times((r.arrival_us for r in workload.requests), speed, max_gap_us)
    moved = (
        replace(r, arrival_us=at, engine_arrival_us=None)
        for r, at in zip(workload.requests, due, strict=True)
    )
    return replace(workload, requests=tuple(moved))


@dataclass(frozen=True)
class Plan:
    """What is to be sent when, before any of it is."""

    workload: Workload

    @property
    def due_us(self) -> tuple[int, ...]:
        """When each request is due, from the run's zero."""
        return tuple(request.arrival_us for request in self.workload.requests)

    def summary(self) -> dict[str, Any]:
        """The same in numbers, for a person or a machine."""
        requests, due_us = self.workload.requests, self.due_us
        return {
            "requests": len(requests),
            "prompt_tokens": sum(r.prompt_tokens for r in requests),
            "output_tokens": sum(r.output_tokens for r in requests),
            "longest_request_tokens": max(r.prompt_tokens + r.output_tokens for r in requests),
            "first_due_us": due_us[0],
            "duration_us": due_us[-1],
            "in_flight_if_each_took_us": {
                str(window): most_within(due_us, window) for window in _WINDOWS_US
            },
            "workload_sha256": self.workload.sha256,
        }
