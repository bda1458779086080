"""Which run scrapes go to: the latest one, another one beside it, or none for now.

Nothing here is called on the event loop: all of it may wait for a disk.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.columns import DIRECTORIES
from collectors.scrape.backlog import Backlog
from collectors.scrape.entry import Entry
from collectors.scrape.names import latest_run, next_run
from collectors.scrape.reading import Reading, read_entry
from collectors.scrape.run import ScrapeRun
from collectors.writer import RunWriter
from replay.errors import OutputExists, ReplayError

if TYPE_CHECKING:
    from collectors.scrape.loop import Counters, Settings


class Housing:
    """The run in hand, and the scrapes that wait until there is one."""

    def __init__(self, settings: "Settings", counters: "Counters") -> None:
        self.run: ScrapeRun | None = None
        self.last_path: Path | None = None
        self._settings, self._counters = settings, counters
        self._homeless = Backlog()  # scrapes whose run vanished, and no other could be made yet
        self._unhoused = 0  # scrapes that were dropped before there was a run
        self._rescued = False

    def open(self, unix_ns: int, monotonic_ns: int) -> None:
        """Take up the latest run, if there is one and none is in hand.

        Raises `OutputExists` where another process writes it, or another command made it.
        """
        path = latest_run(self._settings.out)
        if self.run is None and path is not None:
            writer, tally = _scraped(path), self._counters.tally
            interval_us = self._settings.interval_us
            self._moved_in(ScrapeRun.go_on(writer, interval_us, unix_ns, monotonic_ns, tally))

    def store(self, reading: Reading, facts: Mapping[str, Mapping[str, Any]]) -> ScrapeRun | None:
        """Give a scrape to the run, or to one that is begun; None where none can be.

        `facts` is what the engine says of itself beside its pages.
        """
        run = self.run or self._begin(reading.entry)
        if run is None:
            self._wait(reading.entry)
            return None
        for kept in self._homeless.drain():
            run.add(read_entry(kept))
        run.troubles["not_written"] += self._unhoused
        self._unhoused = 0
        run.learn(facts)
        run.add(reading)
        return run

    def leave(self) -> ScrapeRun | None:
        """Let the run in hand go; the next scrape begins another beside it."""
        run, self.run = self.run, None
        return run

    def rescue(self, run: ScrapeRun) -> None:
        """Take what could not be written out of a run that is gone."""
        self._lose(run.backlog.forget()[1])
        for entry in run.backlog.drain():
            self._wait(entry)
        run.journal.close()
        run.writer.close()
        self.run, self._rescued = None, True

    def give_up(self) -> None:
        """Count what waits as not written: no scrape comes any more."""
        self._counters.tally.not_written += len(self._homeless)

    def _begin(self, entry: Entry) -> ScrapeRun | None:
        first = self._homeless.first() if len(self._homeless) else entry
        settings, tally = self._settings, self._counters.tally
        path = next_run(settings.out, self.last_path)
        try:
            run = ScrapeRun.create(path, first, settings.interval_us, settings.facts, tally)
        except (OSError, ReplayError):
            tally.trouble("run_not_made")
            return None
        if self._rescued:
            self._rescued = False
            run.observer.watch.note("the run before this one vanished while it was written")
        self._moved_in(run)
        return run

    def _moved_in(self, run: ScrapeRun) -> None:
        self.run, self.last_path = run, run.writer.path
        self._counters.runs += 1
        if self._settings.spool is not None:
            run.watch_spool(self._settings.spool)

    def _wait(self, entry: Entry) -> None:
        """Keep a scrape until there is a run; what finds no room is counted."""
        self._homeless.add(entry)
        _, dropped = self._homeless.forget()
        self._lose(dropped)

    def _lose(self, scrapes: int) -> None:
        self._counters.tally.not_written += scrapes
        self._unhoused += scrapes


def _scraped(path: Path) -> RunWriter:
    """A run to go on with; one that is finished is refused.

    That is a drive's, one that was packed, or taken from Prometheus.
    """
    writer = RunWriter.resume(path)
    rows = any((path / folder).is_dir() for folder in DIRECTORIES.values())
    if writer.manifest["kind"] == "driven" or (rows and not (path / "pages").is_dir()):
        writer.close()
        raise OutputExists(f"{path}: is a run that no collector of metrics made; choose another")
    return writer
