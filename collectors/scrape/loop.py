"""Scraping one target on a schedule, whatever the target, the disk or the clock do meanwhile.

Scrapes are due at start + k * interval. One that takes longer makes the next ones late, and those
are left out, never doubled up. Nothing that waits for a disk or reads a page runs on the event
loop, so targets of one process do not delay each other.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from collectors.scrape.asking import Asking
from collectors.scrape.belonging import Belonging
from collectors.scrape.clock import Clock
from collectors.scrape.entry import Entry, fetched_entry
from collectors.scrape.housing import Housing
from collectors.scrape.journal import Journal
from collectors.scrape.outcome import Fetched, Outcome
from collectors.scrape.probe import Probed
from collectors.scrape.reading import Reading, read_entry
from collectors.scrape.retention import Retention
from collectors.scrape.run import Rotation, ScrapeRun, Tally
from replay.errors import ReplayError

T = TypeVar("T")
_MANIFEST_US = 30_000_000
_SYNC_US = 5_000_000
_MOST_PARTS = 99_000  # a run can hold 100,000


@dataclass(frozen=True)
class Settings:
    """How one target is collected; times in microseconds."""

    out: Path
    interval_us: int = 1_000_000
    rotation: Rotation = field(default_factory=Rotation)
    retention: Retention = field(default_factory=Retention)
    manifest_us: int = _MANIFEST_US
    facts: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    spool: Path | None = None


@dataclass
class Counters:
    """What a collector has done, for its own metrics and for whoever watches it."""

    outcomes: Counter[str] = field(default_factory=Counter)
    skipped: int = 0
    page_bytes: int = 0
    lag_us: int = 0
    duration_us: int = 0
    last_ok_unix_ns: int | None = None
    runs: int = 0
    tally: Tally = field(default_factory=Tally)

    @property
    def scrapes(self) -> int:
        """Scrapes made."""
        return self.outcomes.total()

    @property
    def failures(self) -> int:
        """Scrapes that gave no samples."""
        return self.scrapes - self.outcomes["ok"]


class Collector:
    """Collects one target into `settings.out`; `run` returns when `stop` is set, all written.

    `fetch` gives a page, `ask` what the engine says of itself. `executor` does what takes seconds,
    `reader` what every scrape waits for: one must not stand behind the other. `counters` may be
    read at any time, `run_path` is where scrapes go now.
    """

    def __init__(
        self,
        settings: Settings,
        fetch: Callable[[], Awaitable[Fetched]],
        ask: Callable[[], Awaitable[Probed]],
        clock: Clock,
        executor: Executor | None = None,
        seen: Callable[["Collector"], None] | None = None,
        reader: Executor | None = None,
    ) -> None:
        self.settings, self.counters = settings, Counters()
        self._fetch, self._clock = fetch, clock
        self._asking = Asking(ask, clock, settings.interval_us)
        self._executor, self._seen, self._reader = executor, seen, reader
        self._housing = Housing(settings, self.counters)
        self._belonging = Belonging()
        self._written_ns = self._synced_ns = 0
        self._busy: asyncio.Task[None] | None = None
        self._at_work: asyncio.Future[Any] | None = None  # the scrape's own part of it

    @property
    def run_path(self) -> Path | None:
        """The run that is being written."""
        return self._housing.run.writer.path if self._housing.run else None

    @property
    def last_path(self) -> Path | None:
        """The last run that was written, or is."""
        return self._housing.last_path

    @property
    def now(self) -> Mapping[str, float | None]:
        """The last page's preemptions and cache usage."""
        return self._housing.run.observer.now if self._housing.run else {}

    def open(self) -> None:
        """Take up the latest run; called by `run` unless it was called to see early that it can.

        Raises `OutputExists` where another process writes it, or another command made it.
        """
        self._housing.open(self._clock.unix_ns(), self._clock.monotonic_ns())

    async def run(
        self,
        stop: asyncio.Event,
        until_ns: int | None = None,
        duration_us: int | None = None,
    ) -> None:
        """Scrape until `stop`, for a time, or until a moment of the wall clock; then write all."""
        await self._off_loop(self.open)
        start_ns, slot = self._clock.monotonic_ns(), 0
        self._written_ns = self._synced_ns = start_ns
        try:
            while not stop.is_set():
                due_ns = start_ns + slot * self.settings.interval_us * 1000
                end_ns = self._end_ns(start_ns, until_ns, duration_us)
                await self._clock.sleep_until(
                    due_ns if end_ns is None else min(due_ns, end_ns), stop
                )
                if stop.is_set():
                    break
                if end_ns is not None and due_ns >= end_ns:
                    break
                await self._scrape(due_ns)
                done_ns = self._clock.monotonic_ns() - start_ns
                passed = -(-done_ns // (self.settings.interval_us * 1000))
                self.counters.skipped += max(0, passed - slot - 1)
                slot = max(slot + 1, passed)
        finally:
            await asyncio.shield(self._finish())

    def _end_ns(self, start_ns: int, until_ns: int | None, duration_us: int | None) -> int | None:
        """The end by the monotonic clock, as the clocks stand now."""
        ends = []
        if duration_us is not None:
            ends.append(start_ns + duration_us * 1000)
        if until_ns is not None:
            ends.append(self._clock.monotonic_ns() + until_ns - self._clock.unix_ns())
        return min(ends, default=None)

    async def _scrape(self, due_ns: int) -> None:
        unix_ns, monotonic_ns = self._clock.unix_ns(), self._clock.monotonic_ns()
        self.counters.lag_us = max(0, monotonic_ns - due_ns) // 1000
        fetched = await self._fetch()
        taken_us = (self._clock.monotonic_ns() - monotonic_ns) // 1000
        reading = await self._work(
            lambda: read_entry(fetched_entry(fetched, unix_ns, monotonic_ns, taken_us))
        )
        await self._take(reading)
        if self._seen is not None:
            self._seen(self)

    async def _take(self, reading: Reading) -> None:
        entry = reading.entry
        self._count(entry)
        run = self._housing.run
        if entry.outcome is Outcome.OK:
            await self._ask_when_due(run, reading)
            version = self._asking.probed.version
            if run is not None and self._belonging.is_another(run, reading, version):
                await self._leave(run)
                run = None
        else:
            self._asking.again()
        if run is not None and run.vanished:
            await self._rescue(run)
            run = None
        if run is not None and run.journal.number >= _MOST_PARTS:
            run.observer.watch.note("a run can hold no more parts: another one goes on")
            await self._leave(run)
            run = None
        facts = self._asking.probed.facts()
        now = await self._work(lambda: self._housing.store(reading, facts))
        if now is not None:
            if now is not run:
                self._written_ns = self._synced_ns = self._clock.monotonic_ns()
            await self._keep_house(now)

    def _count(self, entry: Entry) -> None:
        counters = self.counters
        counters.outcomes[str(entry.outcome)] += 1
        counters.page_bytes += entry.page_bytes
        counters.duration_us = entry.duration_us
        if entry.outcome is Outcome.OK:
            counters.last_ok_unix_ns = entry.unix_ns

    async def _ask_when_due(self, run: ScrapeRun | None, reading: Reading) -> None:
        """Ask who it is whenever it may have become another one."""
        found = reading.canonical
        before = None if run is None else run.last_process_start_s
        if before is not None and found is not None and found.process_start_s != before:
            await self._asking.anew()
        await self._asking.when_due()

    async def _leave(self, run: ScrapeRun) -> None:
        """End the run; the next scrape begins another beside it."""
        self._housing.leave()
        self._belonging.left(run)
        await self.settled()
        self._busy = asyncio.create_task(self._off_loop(lambda: self._end(run, final=True)))

    async def _rescue(self, run: ScrapeRun) -> None:
        await self.settled()
        await self._work(lambda: self._housing.rescue(run))

    async def _keep_house(self, run: ScrapeRun) -> None:
        """Start what can wait, unless it is still going on."""
        if self._busy is not None and not self._busy.done():
            return
        now_ns = self._clock.monotonic_ns()
        full = run.full(self.settings.rotation, now_ns)
        stale = now_ns - self._written_ns >= self.settings.manifest_us * 1000
        if full or stale:
            self._written_ns = self._synced_ns = now_ns
        elif now_ns - self._synced_ns >= _SYNC_US * 1000:
            self._synced_ns = now_ns
        else:
            return
        closed, manifest = await self._work(
            lambda: _prepared(run, full=full, written=full or stale)
        )
        unix_ns, retention = self._clock.unix_ns(), self.settings.retention

        def work() -> None:
            if full or stale:
                run.pack_spool()
            try:
                run.maintain(closed, manifest, retention, unix_ns)
            except (OSError, ReplayError) as exc:
                run.failed(exc)

        self._busy = asyncio.create_task(self._off_loop(work))

    async def settled(self) -> None:
        """Wait for what was given to the disk; a clock that is faster than a disk has to."""
        if self._busy is not None:
            await self._busy

    async def _finish(self) -> None:
        if self._at_work is not None:  # cancelled midway: a thread is not
            await asyncio.wait({self._at_work})
        await self._asking.stop()
        self._housing.give_up()
        await self.settled()
        run = self._housing.leave()
        if run is not None:
            run.learn(self._asking.probed.facts())
            await self._off_loop(lambda: self._end(run, final=False))

    def _end(self, run: ScrapeRun, *, final: bool) -> None:
        run.finish(self.settings.retention, self._clock.unix_ns(), final=final)

    async def _off_loop(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, work)

    async def _work(self, work: Callable[[], T]) -> T:
        """Do what this scrape waits for, and nothing else does."""
        future = asyncio.get_running_loop().run_in_executor(self._reader, work)
        self._at_work = future
        return await asyncio.shield(future)


def _prepared(
    run: ScrapeRun, *, full: bool, written: bool
) -> tuple[Journal | None, dict[str, Any] | None]:
    """The journal that is closed now, and the manifest that is to be written."""
    closed = None
    if full and not run.vanished:
        try:
            closed = run.rotate()
        except OSError as exc:
            run.failed(exc)
    return closed, run.manifest() if written else None
