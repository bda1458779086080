"""Sending on schedule: no request waits for an earlier one, unless a limit was asked for.

Bodies are made ahead, while there is time, so that making one delays no send.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from collectors.drive.client import unanswered
from collectors.drive.journal import Journal
from collectors.drive.pulse import Pulse
from collectors.drive.seen import Seen
from collectors.scrape.clock import Clock
from replay.workload import Request

Send = Callable[[Request, bytes, Seen], Awaitable[None]]
_AHEAD, _AHEAD_BYTES = 1024, 64 * 2**20
_LEAST_SPARE_NS = 3_000_000
_FIRST = 5  # so many failures of one kind, and no success, and it is not going to work
_LOOK_S = 0.05
_STOOD_STILL_US = 1_000_000


@dataclass
class Counters:
    """What was done so far; statuses count requests that ended."""

    sent: int = 0
    late: int = 0
    held: int = 0  # waited because as many as the limit were in flight
    loop_lag_us: int = 0
    statuses: Counter[str] = field(default_factory=Counter)
    problems: Counter[str] = field(default_factory=Counter)

    @property
    def done(self) -> int:
        """Requests that ended."""
        return self.statuses.total()


@dataclass
class Stop:
    """`sending` ends sending, `waiting` ends waiting for what is in flight, too."""

    sending: asyncio.Event = field(default_factory=asyncio.Event)
    waiting: asyncio.Event = field(default_factory=asyncio.Event)
    why: str | None = None

    def stop(self, why: str) -> None:
        """The first call ends sending, a second one everything."""
        if self.sending.is_set():
            self.waiting.set()
        self.why = self.why or why
        self.sending.set()

    def end(self, why: str) -> None:
        """End everything at once: nothing that is in flight will come."""
        self.stop(why)
        self.waiting.set()


class Driver:
    """Sends every request of a schedule once; `run` returns when nothing is in flight."""

    def __init__(
        self,
        requests: Sequence[Request],
        due_us: Sequence[int],
        make: Callable[[int, Request], bytes],
        send: Send,
        journal: Journal,
        clock: Clock,
        zero_ns: int,
        stop: Stop,
        *,
        lateness_limit_us: int,
        concurrency: int | None = None,
        drain_us: int = 30_000_000,
        pulse: Pulse | None = None,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.counters = Counters()
        self.send_end_us: int | None = None
        self._requests, self._due_us, self._make, self._send = requests, due_us, make, send
        self._journal, self._clock, self._zero_ns, self._stop = journal, clock, zero_ns, stop
        self._lateness_limit_us, self._drain_us = lateness_limit_us, drain_us
        self._pulse, self._told = pulse or Pulse(None), told
        self._slots = None if concurrency is None else asyncio.Semaphore(concurrency)
        self._tasks: set[asyncio.Task[None]] = set()
        self._bodies: deque[bytes] = deque()
        self._made = self._bytes = 0
        self._fault: BaseException | None = None

    def now_us(self) -> int:
        """Microseconds since the run's zero."""
        return (self._clock.monotonic_ns() - self._zero_ns) // 1000

    @property
    def in_flight(self) -> int:
        """Requests sent that have not ended."""
        return len(self._tasks)

    def prepare(self) -> bool:
        """Make one more body ahead; False if enough are there."""
        if self._made == len(self._requests) or len(self._bodies) >= _AHEAD:
            return False
        if self._bodies and self._bytes >= _AHEAD_BYTES:
            return False
        body = self._make(self._made, self._requests[self._made])
        self._bodies.append(body)
        self._made, self._bytes = self._made + 1, self._bytes + len(body)
        return True

    async def run(self) -> None:
        """Send, then wait; after a stop no longer than the drain."""
        watch = asyncio.create_task(self._watch())
        try:
            await self._send_all()
            await self._wait()
            self._look()
        finally:
            watch.cancel()
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, watch, return_exceptions=True)
        if self._fault is not None:
            raise self._fault

    async def _send_all(self) -> None:
        for place, request in enumerate(self._requests):
            due_us = self._due_us[place]
            due_ns = self._zero_ns + due_us * 1000
            while self._spare(due_ns) and self.prepare():  # noqa: ASYNC110 (work, no waiting)
                await asyncio.sleep(0)  # whoever is ready goes first
            await self._clock.sleep_until(due_ns, self._stop.sending)
            free_us = due_us if self._slots is None else await self._slot(self._slots, due_us)
            if self._stop.sending.is_set():
                return
            if not self._bodies:
                self.prepare()
            body = self._bodies.popleft()
            self._bytes -= len(body)
            task = asyncio.create_task(self._one(place, request, body, free_us))
            self._tasks.add(task)
            task.add_done_callback(self._over)
        await asyncio.sleep(0)  # the last one has yet to begin
        self.send_end_us = self.now_us()

    def _spare(self, due_ns: int) -> bool:
        return due_ns - self._clock.monotonic_ns() > _LEAST_SPARE_NS

    async def _slot(self, slots: asyncio.Semaphore, due_us: int) -> int:
        """Wait for fewer in flight; when there were, or the due time if that is later."""
        if not slots.locked():
            await slots.acquire()
            return due_us
        self.counters.held += 1
        taking = asyncio.create_task(slots.acquire())
        stopping = asyncio.create_task(self._stop.sending.wait())
        await asyncio.wait((taking, stopping), return_when=asyncio.FIRST_COMPLETED)
        for task in (taking, stopping):
            task.cancel()
        await asyncio.gather(taking, stopping, return_exceptions=True)
        return max(due_us, self.now_us())

    async def _one(self, place: int, request: Request, body: bytes, free_us: int) -> None:
        sent_us = self.now_us()
        seen = Seen(self._due_us[place], max(0, sent_us - free_us), sent_us)
        self.counters.sent += 1
        self.counters.late += seen.lateness_us > self._lateness_limit_us
        self._journal.sent(place, seen)
        self._pulse.sent(sent_us)
        try:
            await self._send(request, body, seen)
        finally:
            self._journal.ended(place, seen)
            self._pulse.ended(self.now_us(), self.in_flight - 1, unanswered(seen))
            self._count(seen)
            if self._slots is not None:
                self._slots.release()

    def _count(self, seen: Seen) -> None:
        counters = self.counters
        counters.statuses[seen.status] += 1
        if seen.problem is not None:
            counters.problems[seen.problem] += 1
        hopeless = counters.done >= _FIRST and counters.statuses["error"] == counters.done
        if hopeless and len(counters.problems) == 1 and not self._stop.sending.is_set():
            self._stop.stop(f"the first {counters.done} requests failed alike: {seen.problem}")

    def _over(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (fault := task.exception()) is not None:
            self._fault = fault
            self._stop.stop("internal error")

    async def _wait(self) -> None:
        """Until nothing is in flight, or a stop and the drain after it."""
        if self._tasks and not self._stop.sending.is_set():
            await self._until(self._stop.sending, None)
        if self._tasks:
            await self._until(self._stop.waiting, self._drain_us / 1_000_000)

    async def _until(self, event: asyncio.Event, most_s: float | None) -> None:
        waiting = asyncio.create_task(event.wait())
        over = asyncio.gather(*self._tasks, return_exceptions=True)
        shielded = asyncio.shield(over)
        await asyncio.wait((waiting, shielded), timeout=most_s, return_when=asyncio.FIRST_COMPLETED)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)

    async def _watch(self) -> None:
        """How long others had to wait for the event loop, and whether the server is still there."""
        loop = asyncio.get_running_loop()
        while True:
            before = loop.time()
            await asyncio.sleep(_LOOK_S)
            lag_us = int((loop.time() - before - _LOOK_S) * 1_000_000)
            self.counters.loop_lag_us = max(self.counters.loop_lag_us, lag_us)
            if lag_us <= _STOOD_STILL_US:  # else what came meanwhile has yet to be read
                self._look()

    def _look(self) -> None:
        """Tell when the server falls silent, and end when it is gone."""
        line, gone = self._pulse.look(self.now_us(), self.in_flight)
        if line is not None:
            self._told(line)
        if gone is not None:
            self._stop.end(gone)
