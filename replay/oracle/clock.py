"""When steps of the vllm-v1 walk begin and end: constant ticks, or durations by `[timing]`.

SPEC §6; docs/vllm-v1.md, "Timed steps".
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from replay.oracle.requests import Progress
from replay.timed_steps import Greatest, TimedSteps
from replay.timing import Calibration, Timing
from replay.workload import Request


class Clock(Protocol):
    """Time in a replay; `tick` is the number of the step at hand."""

    tick: int

    @property
    def timed_steps(self) -> TimedSteps | None:
        """What timed steps came to so far; None where ticks are constant."""

    def now_us(self) -> int:
        """Return the time: the step's begin, after `run` its end."""

    def shown_us(self, request: Request, /) -> int:
        """Return the time that an arrival is shown at."""

    def is_due(self, request: Request, /) -> bool:
        """Whether the step that begins now can schedule a request."""

    def idle(self, request: Request, /) -> None:
        """Let the next step begin at an arrival."""

    def run(self, batch: Mapping[Progress, int], /) -> None:
        """Let the time of a step pass, whose batch is known and not computed yet."""

    def run_quiet(self, running: Sequence[Progress], most: int, coming: Request | None, /) -> int:
        """Let up to `most` steps pass in which everybody running decodes, until an arrival.

        Gives how many.
        """


class Ticks:
    """Every step takes `tick_us`."""

    timed_steps = None

    def __init__(self, tick_us: int) -> None:
        self.tick = 0
        self._tick_us = tick_us

    def now_us(self) -> int:
        """Return the begin of the tick."""
        return self.tick * self._tick_us

    def shown_us(self, _request: Request, /) -> int:
        """Return the begin of the tick that it falls into."""
        return self.now_us()

    def is_due(self, request: Request, /) -> bool:
        """Whether it falls into this tick or an earlier one."""
        return request.arrival_us // self._tick_us <= self.tick

    def idle(self, request: Request, /) -> None:
        """Skip the ticks before an arrival."""
        self.tick = max(self.tick, request.arrival_us // self._tick_us)

    def run(self, _batch: Mapping[Progress, int], /) -> None:
        """Leave it to the tick."""

    def run_quiet(self, _running: Sequence[Progress], most: int, coming: Request | None, /) -> int:
        """Pass over the ticks before an arrival."""
        if coming is not None:
            most = max(min(most, coming.arrival_us // self._tick_us - self.tick), 0)
        self.tick += most
        return most


class Steps:
    """Every step takes what its batch, or the one it delivers, costs."""

    def __init__(
        self, timing: Timing, calibration: Calibration | None, *, asynchronous: bool
    ) -> None:
        self.tick = 0
        self._timing, self._calibration = timing, calibration
        self._asynchronous = asynchronous
        self._now_ns = 0
        self._in_flight_ns: int | None = None  # what the batch in flight takes
        self._steps = self._outside = 0
        self._beyond = [0, 0, 0]
        self._greatest = [0, 0, 0]
        self._outside_since: int | None = None

    @property
    def timed_steps(self) -> TimedSteps:
        """What the steps came to so far."""
        return TimedSteps(
            self._steps,
            Greatest(*self._greatest),
            self._outside,
            Greatest(*self._beyond),
            self._outside_since,
        )

    def now_us(self) -> int:
        """Return the step's begin, after `run` its end."""
        return self._now_ns // 1000

    def shown_us(self, request: Request, /) -> int:
        """Return its own time."""
        return request.arrival_us

    def is_due(self, request: Request, /) -> bool:
        """Whether it has come when the step begins."""
        return request.arrival_us * 1000 <= self._now_ns

    def idle(self, request: Request, /) -> None:
        """Begin the next step at an arrival."""
        self._now_ns = max(self._now_ns, request.arrival_us * 1000)

    def run(self, batch: Mapping[Progress, int], /) -> None:
        """Let the time of a step pass, whose batch is known and not computed yet."""
        prefill = sum(n for who, n in batch.items() if who.computed < who.prefill_to)
        decodes = sum(who.computed >= who.prefill_to for who in batch)
        kv = sum(who.computed + n for who, n in batch.items())
        self._pass(self._cost(prefill, decodes, kv) if batch else None)

    def run_quiet(self, running: Sequence[Progress], most: int, coming: Request | None, /) -> int:
        """Let steps pass, whether everybody running decodes in them or nobody runs."""
        kv, first = sum(who.computed for who in running), self.tick
        if not running:
            most = self._run_empty(most, coming)
        while self.tick < first + most and not (coming is not None and self.is_due(coming)):
            kv += len(running)
            self._pass(self._cost(0, len(running), kv))
            self.tick += 1
        return self.tick - first

    def _run_empty(self, most: int, coming: Request | None) -> int:
        """Let steps pass that schedule nothing; gives 0, nothing being left to pass."""
        takes = self._timing.step_ns
        if coming is not None and takes:
            most = min(most, -(-(coming.arrival_us * 1000 - self._now_ns) // takes))
        self._now_ns += most * takes
        self.tick += most
        return 0

    def _pass(self, cost_ns: int | None) -> None:
        """Let a step pass that schedules a batch of this cost, or nothing."""
        nothing_ns = self._timing.step_ns
        if not self._asynchronous:
            self._now_ns += nothing_ns if cost_ns is None else cost_ns
            return
        if self._in_flight_ns is not None:
            self._now_ns += self._in_flight_ns
        elif cost_ns is None:
            self._now_ns += nothing_ns
        self._in_flight_ns = cost_ns

    def _cost(self, prefill: int, decodes: int, kv: int) -> int:
        size = (prefill, decodes, kv)
        self._steps += 1
        self._greatest = [max(pair) for pair in zip(self._greatest, size, strict=True)]
        if (fitted := self._calibration) is not None:
            most = (fitted.prefill_tokens, fitted.decode_requests, fitted.kv_tokens)
            self._compare([own > limit for own, limit in zip(size, most, strict=True)])
        t = self._timing
        costs_ps = (t.prefill_token_ps, t.decode_request_ps, t.kv_token_ps)
        tokens_ps = sum(n * cost for n, cost in zip(size, costs_ps, strict=True))
        return t.step_ns + tokens_ps // 1000

    def _compare(self, beyond: Sequence[bool]) -> None:
        if not any(beyond):
            return
        self._outside += 1
        self._beyond = [n + more for n, more in zip(self._beyond, beyond, strict=True)]
        if self._outside_since is None:
            self._outside_since = self.tick


def clock_of(
    tick_us: int | None, timing: Timing | None, calibration: Calibration | None, *, ahead: int
) -> Clock:
    """Clock that a configuration asks for; `ahead` is 1 under asynchronous scheduling."""
    if timing is None:
        return Ticks(tick_us or 1)
    return Steps(timing, calibration, asynchronous=ahead > 0)
