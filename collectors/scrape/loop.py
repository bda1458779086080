"""Scraping one target on a schedule, whatever the target, the disk or the clock do meanwhile.

Scrapes are due at start + k * interval. One that takes longer makes the next ones late, and those
are left out, never doubled up. Nothing that waits for a disk runs on the event loop, so targets of
one process do not delay each other.
"""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collectors.scrape.backlog import Backlog
from collectors.scrape.clock import Clock
from collectors.scrape.entry import Entry, page_text
from collectors.scrape.facts import Identity
from collectors.scrape.names import latest_run, next_run
from collectors.scrape.observe import page_identity
from collectors.scrape.outcome import Fetched, Outcome
from collectors.scrape.probe import Probed
from collectors.scrape.reading import Reading, read_entry
from collectors.scrape.retention import Retention
from collectors.scrape.run import Rotation, ScrapeRun, Tally
from replay.errors import ReplayError

_MANIFEST_US = 30_000_000
_SYNC_US = 5_000_000
_PROBE_AGAIN_US = 60_000_000
_ALTERNATION = 10  # scrapes within which a configuration that comes back was never gone
_START_TOLERANCE_S = 1.0


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

    `fetch` gives a page, `ask` what the engine says of itself. `counters` may be read at any time,
    `run_path` is where scrapes go now.
    """

    def __init__(
        self,
        settings: Settings,
        fetch: Callable[[], Awaitable[Fetched]],
        ask: Callable[[], Awaitable[Probed]],
        clock: Clock,
        executor: Executor | None = None,
        seen: Callable[["Collector"], None] | None = None,
    ) -> None:
        self.settings, self.counters = settings, Counters()
        self._fetch, self._ask, self._clock = fetch, ask, clock
        self._executor, self._seen = executor, seen
        self._run: ScrapeRun | None = None
        self._homeless = Backlog()  # scrapes whose run vanished, and no other could be made yet
        self._before: Identity | None = None
        self._alternating = self._rescued = False
        self._kept: ScrapeRun | None = None  # one that a later start will go on with
        self.last_path: Path | None = None
        self.ended = False  # at the time that was set, or by a person: nobody will go on
        self._ask_at_ns: int | None = 0
        self._probed = Probed()
        self._written_ns = self._synced_ns = 0
        self._busy: asyncio.Task[None] | None = None

    @property
    def run_path(self) -> Path | None:
        """The run that is being written."""
        return self._run.writer.path if self._run else None

    @property
    def now(self) -> Mapping[str, float | None]:
        """The last page's preemptions and cache usage."""
        return self._run.observer.now if self._run else {}

    def open(self) -> None:
        """Take up the latest run; called by `run` unless it was called to see early that it can.

        Raises `OutputExists` where another process writes it.
        """
        path = latest_run(self.settings.out)
        if self._run is None and path is not None:
            self._run = ScrapeRun.resume(
                path,
                self.settings.interval_us,
                self._clock.unix_ns(),
                self._clock.monotonic_ns(),
                self.counters.tally,
            )
            self.counters.runs += 1
            self.last_path = path
            self._watch_spool(self._run)

    def _watch_spool(self, run: ScrapeRun) -> None:
        if self.settings.spool is not None:
            run.watch_spool(self.settings.spool)

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
                    self.ended = True
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
        entry = Entry(
            scrape=0,
            time_us=0,
            unix_ns=unix_ns,
            monotonic_ns=monotonic_ns,
            duration_us=(self._clock.monotonic_ns() - monotonic_ns) // 1000,
            session=0,
            outcome=fetched.outcome,
            status=fetched.status,
            content_type=fetched.content_type and fetched.content_type[:1024],
            page=None if fetched.body is None else page_text(fetched.body),
        )
        await self._take(read_entry(entry))
        if self._seen is not None:
            self._seen(self)

    async def _take(self, reading: Reading) -> None:
        entry = reading.entry
        self._count(entry)
        if entry.outcome is Outcome.OK:
            await self._ask_when_due(reading)
            if self._run is not None and self._is_another(self._run, reading):
                await self._leave()
        else:
            self._ask_at_ns = self._ask_at_ns or 0
        if self._run is not None and self._run.vanished:
            await self._rescue(self._run)
        run = self._run or self._begin(entry)
        if run is None:
            self._homeless.add(entry)
            return
        for kept in self._homeless.drain():
            run.add(read_entry(kept))
        run.learn(self._probed.facts())
        run.add(reading)
        await self._keep_house(run)

    def _count(self, entry: Entry) -> None:
        counters = self.counters
        counters.outcomes[str(entry.outcome)] += 1
        counters.page_bytes += len(entry.page or "")
        counters.duration_us = entry.duration_us
        if entry.outcome is Outcome.OK:
            counters.last_ok_unix_ns = entry.unix_ns

    async def _ask_when_due(self, reading: Reading) -> None:
        """Ask who it is whenever it may have become another one."""
        run, found = self._run, reading.canonical
        before = None if run is None else run.last_process_start_s
        if before is not None and found is not None and found.process_start_s != before:
            self._ask_at_ns = 0
        now_ns = self._clock.monotonic_ns()
        if self._ask_at_ns is not None and now_ns >= self._ask_at_ns:
            self._probed = await self._ask()
            known = self._probed.version is not None
            self._ask_at_ns = None if known else now_ns + _PROBE_AGAIN_US * 1000

    def _is_another(self, run: ScrapeRun, reading: Reading) -> bool:
        """Whether the page is of another engine configuration than the run."""
        found = reading.canonical
        if found is None or self._alternating:
            return False
        seen = page_identity(found)
        seen = Identity(self._probed.version, seen.models, seen.cache)
        if not run.observer.identity.differs(seen):
            run.observer.identity = run.observer.identity.joined(seen)
            return False
        back = self._before is not None and not self._before.differs(seen)
        if back and not self._restarted(run, found.process_start_s):
            self._alternating = True
            run.observer.watch.note(
                "engines of several configurations answer at this address, and they alternate:"
                " give each an address, or this run is none of them"
            )
            return False
        return True

    def _restarted(self, run: ScrapeRun, start_s: float | None) -> bool:
        if start_s is None or run.last_process_start_s is None:
            return run.observer.outcomes["ok"] >= _ALTERNATION
        return start_s > run.last_process_start_s + _START_TOLERANCE_S

    async def _leave(self) -> None:
        """End the run; the next scrape begins another beside it."""
        run, self._run = self._run, None
        if run is not None:
            self._before = run.observer.identity
            await self.settled()
            self._busy = asyncio.create_task(self._off_loop(lambda: self._end(run)))

    async def _rescue(self, run: ScrapeRun) -> None:
        """Take what could not be written out of a run that is gone."""
        await self.settled()
        for entry in run.backlog.drain():
            self._homeless.add(entry)
        run.journal.close()
        run.writer.close()
        self._run, self._rescued = None, True

    def _begin(self, entry: Entry) -> ScrapeRun | None:
        first = self._homeless.first() if len(self._homeless) else entry
        path = next_run(self.settings.out, self.last_path)
        settings = self.settings
        try:
            self._run = ScrapeRun.create(
                path, first, settings.interval_us, settings.facts, self.counters.tally
            )
        except (OSError, ReplayError):
            self.counters.tally.trouble("run_not_made")
            return None
        self.last_path = path
        self._watch_spool(self._run)
        if self._rescued:
            self._rescued = False
            self._run.observer.watch.note("the run before this one vanished while it was written")
        self.counters.runs += 1
        self._written_ns = self._synced_ns = self._clock.monotonic_ns()
        return self._run

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
        closed = None
        if full and not run.vanished:
            try:
                closed = run.rotate()
            except OSError as exc:
                run.failed(exc)
        manifest = run.manifest() if full or stale else None
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
        await self.settled()
        run, self._run = self._run, None
        if run is not None:
            self._kept = None if self.ended else run
            await self._off_loop(lambda: self._end(run))

    def _end(self, run: ScrapeRun) -> None:
        run.finish(self.settings.retention, self._clock.unix_ns(), final=run is not self._kept)

    async def _off_loop(self, work: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(self._executor, work)
