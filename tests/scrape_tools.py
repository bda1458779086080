"""What tests of the collector share: a clock that moves when it is told, and scripted pages."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor, Future
from pathlib import Path
from typing import TypeVar

from fault_server import page

from collectors.scrape.loop import Collector, Settings
from collectors.scrape.outcome import Fetched, Outcome
from collectors.scrape.probe import Probed
from collectors.scrape.run import Rotation

T = TypeVar("T")
START_NS = 1_795_986_000_000_000_000
SECOND = 1_000_000_000


class FakeClock:
    """Sleeping takes no time, and passes it."""

    def __init__(self) -> None:
        self.passed_ns, self.step_ns = 5 * SECOND, 0

    def unix_ns(self) -> int:
        """Wall clock."""
        return START_NS + self.passed_ns + self.step_ns

    def monotonic_ns(self) -> int:
        """Monotonic clock."""
        return self.passed_ns

    async def sleep_until(self, monotonic_ns: int, stop: asyncio.Event) -> None:
        """Be there at once."""
        del stop
        self.passed_ns = max(self.passed_ns, monotonic_ns)
        for _ in range(10):  # what waits for the disk gets it meanwhile
            await asyncio.sleep(0)


class Now(Executor):
    """A disk that is done before anybody looks."""

    def submit(self, fn: Callable[..., T], /, *args: object, **kwargs: object) -> "Future[T]":
        """Do it at once."""
        future: Future[T] = Future()
        try:
            future.set_result(fn(*args, **kwargs))
        except BaseException as exc:  # noqa: BLE001 (whatever it is, it is the future's)
            future.set_exception(exc)
        return future


class Scripted:
    """Answers of one engine, one call after the other; each call may do something first."""

    def __init__(self, clock: FakeClock, answers: list[Fetched | Callable[[], Fetched]]) -> None:
        self.clock, self.answers, self.version = clock, answers, "0.32.0"
        self.stop = asyncio.Event()

    async def fetch(self) -> Fetched:
        """The next answer; the last one ends the collection."""
        answer = self.answers.pop(0)
        if not self.answers:
            self.stop.set()
        return answer if isinstance(answer, Fetched) else answer()

    async def ask(self) -> Probed:
        """Who the engine is."""
        return Probed(self.version, "tiny", 960)


def ok(count: int, **about: float | None) -> Fetched:
    """A page whose counters stand at `count`."""
    return Fetched(Outcome.OK, 200, "text/plain", page(count, **about))  # type: ignore[arg-type]


def collect(
    out: Path,
    answers: list[Fetched | Callable[[], Fetched]],
    clock: FakeClock | None = None,
    **settings: object,
) -> Collector:
    """Collect these answers, a second apart."""
    clock = clock or FakeClock()
    chosen = Settings(out=out, **settings)  # type: ignore[arg-type]

    async def once() -> Collector:
        script = Scripted(clock, answers)
        collector = Collector(chosen, script.fetch, script.ask, clock, Now())
        await collector.run(script.stop)
        return collector

    return asyncio.run(once())


SMALL = Rotation(rows=6)  # two pages
