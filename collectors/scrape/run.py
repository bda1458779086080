"""One run being written: its journal, its findings, and what of both is on the disk.

Everything that may wait for a disk (`maintain`, `finish`) is called off the event loop, one call at
a time; `add` only appends to a file.
"""

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from collectors.scrape.backlog import Backlog
from collectors.scrape.before import found_before
from collectors.scrape.device import OF_THIS_HOST
from collectors.scrape.entry import Entry
from collectors.scrape.journal import Journal, Vanished
from collectors.scrape.observe import Observer
from collectors.scrape.reading import Reading
from collectors.scrape.retention import Retention, delete, expired, first_samples
from collectors.scrape.settle import (
    TABLE,
    drop_journal,
    repair_journals,
    samples_path,
    settle,
)
from collectors.scrape.troubles import NOT_WRITTEN, trouble_of
from collectors.writer import RunWriter, configuration_sha256, new_manifest, run_id_of
from replay.errors import ReplayError

if TYPE_CHECKING:
    from collectors.scrape.spool_hook import SpoolHook

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Rotation:
    """When a journal is full: by rows of samples, by bytes of pages, or by age."""

    rows: int = 100_000
    page_bytes: int = 16 * 2**20
    age_us: int = 900_000_000


@dataclass
class Tally:
    """What the disk did, for the collector's own metrics."""

    written_bytes: int = 0
    not_written: int = 0
    parts: int = 0
    problems: dict[str, int] = field(default_factory=dict)

    def trouble(self, kind: str) -> None:
        """Count one failure of the disk."""
        self.problems[kind] = self.problems.get(kind, 0) + 1


class ScrapeRun:
    """A run directory that this process writes; made by `create` or `resume`."""

    def __init__(self, writer: RunWriter, observer: Observer, session: int, tally: Tally) -> None:
        self.writer, self.observer, self.session, self.tally = writer, observer, session, tally
        self.base: dict[str, Any] = deepcopy(writer.manifest)
        self.vanished = False
        self.last_process_start_s: float | None = None
        self.backlog = Backlog()
        self.troubles: Counter[str] = Counter()
        self.spool: SpoolHook | None = None
        self._unsettled: list[int] = []
        self._zero_us, self._zero_monotonic_ns = 0, 0
        self._rows = self._page_bytes = self._entries = 0
        self._since_ns: int | None = None
        self.journal = Journal(writer.path, writer.next_part(TABLE))

    @classmethod
    def create(
        cls,
        path: Path,
        first: Entry,
        interval_us: int,
        facts: Mapping[str, Any],
        tally: Tally,
    ) -> Self:
        """A new run whose zero is its first scrape; `facts` are parts of the manifest."""
        start = _EPOCH + timedelta(microseconds=first.unix_ns // 1000)
        manifest = new_manifest(run_id_of(start, str(path)), "observed", start=start)
        for key, value in facts.items():
            manifest[key] = {**manifest[key], **value}
        observer = Observer(interval_us)
        if manifest["device"]["kind"] is not None:
            observer.watch.note(OF_THIS_HOST)
        run = cls(RunWriter.create(path, observer.fill(manifest)), observer, 0, tally)
        run._zero_monotonic_ns = first.monotonic_ns
        return run

    @classmethod
    def resume(
        cls, path: Path, interval_us: int, unix_ns: int, monotonic_ns: int, tally: Tally
    ) -> Self:
        """Go on with the run of a path."""
        return cls.go_on(RunWriter.resume(path), interval_us, unix_ns, monotonic_ns, tally)

    @classmethod
    def go_on(
        cls, writer: RunWriter, interval_us: int, unix_ns: int, monotonic_ns: int, tally: Tally
    ) -> Self:
        """Go on with a run; what a killed collector left is read, counted and settled."""
        path = writer.path
        try:
            numbers = repair_journals(path)
            observer, last = found_before(writer, numbers, interval_us)
            for number in numbers:
                if number == numbers[-1] and not samples_path(path, number).exists():
                    break
                settle(writer, number)
            writer.write_manifest(observer.fill(writer.manifest))
            for number in numbers:
                if samples_path(path, number).exists():
                    drop_journal(path, number)
            run = cls(writer, observer, last.session + 1 if last else 0, tally)
            run._take_up(last, unix_ns, monotonic_ns)
        except BaseException:
            writer.close()
            raise
        return run

    def time_us(self, monotonic_ns: int) -> int:
        """Time of the run at a moment of this process."""
        return self._zero_us + max(0, monotonic_ns - self._zero_monotonic_ns) // 1000

    def add(self, reading: Reading) -> None:
        """Count one scrape and append it to the journal, or keep it until that can be done."""
        entry = replace(
            reading.entry,
            scrape=self.observer.seen,
            session=self.session,
            time_us=self.time_us(reading.entry.monotonic_ns),
        )
        found = reading.canonical
        if found is not None:
            self._rows += len(found.samples)
            self.last_process_start_s = found.process_start_s
        self._page_bytes += entry.page_bytes
        self._since_ns = self._since_ns or entry.monotonic_ns
        self._entries += 1
        self.observer.see(replace(reading, entry=entry))
        self.backlog.add(entry)
        self._write_backlog()

    def full(self, rotation: Rotation, monotonic_ns: int) -> bool:
        """Whether the journal should become a part now."""
        since = self._since_ns
        return since is not None and (
            self._rows >= rotation.rows
            or self._page_bytes >= rotation.page_bytes
            or monotonic_ns - since >= rotation.age_us * 1000
        )

    def manifest(self) -> dict[str, Any]:
        """The manifest as it should be now."""
        manifest = self.observer.fill(self.base)
        if self.spool is not None:
            manifest = self.spool.fill(manifest)
        if self.observer.outcomes["ok"]:
            manifest["configuration_sha256"] = configuration_sha256(manifest)
        problems = self.observer.problems + self.troubles  # without those that are zero
        manifest["collection"]["problems"] = dict(sorted(problems.items()))
        return manifest

    def learn(self, facts: Mapping[str, Mapping[str, Any]]) -> None:
        """Take parts of the manifest that no page has; what is known already stays."""
        for key, values in facts.items():
            known = {k: v for k, v in self.base[key].items() if v is not None}
            self.base[key] = {**self.base[key], **values, **known}

    def watch_spool(self, spool: Path) -> None:
        """Pack this spool into the run from now on."""
        from collectors.scrape.spool_hook import SpoolHook

        self.spool = SpoolHook(self.writer, spool)

    def pack_spool(self, *, final: bool = False) -> None:
        """Pack what is new in the spool; what is wrong with it is counted."""
        if self.spool is not None:
            try:
                for _ in range(self.spool.pack(final=final)):
                    self._trouble("spool_not_deleted")
            except (OSError, ReplayError):
                self._trouble("spool_failed")

    def rotate(self) -> Journal:
        """Begin the next journal; the old one is handed to `maintain`."""
        closed = self.journal
        self.journal = Journal(self.writer.path, closed.number + 1)
        self._rows = self._page_bytes = self._entries = 0
        self._since_ns = None
        return closed

    def maintain(
        self,
        closed: Journal | None,
        manifest: dict[str, Any] | None,
        retention: Retention,
        now_ns: int,
    ) -> None:
        """Bring to the disk what can wait: settle a closed journal, write the manifest, sync."""
        if closed is not None:
            closed.sync()
            closed.close()
            self._unsettled.append(closed.number)
        else:
            self.journal.sync()
        self._settle_all(manifest)
        if closed is not None and not self._unsettled:
            self._retain(retention, now_ns)

    def finish(self, retention: Retention, now_ns: int, *, final: bool = False) -> None:
        """Settle everything and let the run go; `final`: its engine is another one's now."""
        self.pack_spool(final=final)
        try:
            self._write_backlog()
            self._note_lost()
            self.tally.not_written += len(self.backlog)
            self.troubles["not_written"] += len(self.backlog)
            if self.journal.bytes:
                self._unsettled.append(self.journal.number)
            self.journal.close()
            self._settle_all(self.manifest())
            if not self.journal.bytes and not self.vanished:
                drop_journal(self.writer.path, self.journal.number)
            self._retain(retention, now_ns)
        except (OSError, ReplayError) as exc:
            self.failed(exc)
            with suppress(OSError, ReplayError):  # what is not settled is by the next start
                self.writer.write_manifest(self.manifest())
        finally:
            self.writer.close()

    def failed(self, exc: Exception) -> None:
        """Take note of what the disk refused; collection goes on."""
        gone = not (self.writer.path / "manifest.json").exists()
        self.vanished = self.vanished or gone
        self._trouble(trouble_of(exc, gone=gone))

    def _trouble(self, kind: str) -> None:
        self.troubles[kind] += 1
        self.tally.trouble(kind)

    def _write_backlog(self) -> None:
        try:
            while len(self.backlog) and not self.vanished:
                self.tally.written_bytes += self.journal.append(self.backlog.first())
                self.backlog.next_out()
        except Vanished:
            self.vanished = True
            self._trouble("run_vanished")
        except OSError as exc:
            self._trouble(trouble_of(exc))
        else:
            self._note_lost()

    def _note_lost(self) -> None:
        gone, count = self.backlog.forget()
        if gone:
            self.tally.not_written += count
            self.troubles["not_written"] += count
            self.observer.watch.lost(
                gone[0].time_us, gone[-1].time_us, count, f"{NOT_WRITTEN}the disk took nothing"
            )

    def _settle_all(self, manifest: dict[str, Any] | None) -> None:
        done = []
        for number in self._unsettled:
            settle(self.writer, number)
            done.append(number)
        if manifest is not None:
            self.writer.write_manifest(manifest)
        for number in done if manifest is not None else ():
            drop_journal(self.writer.path, number)
            self._unsettled.remove(number)
            self.tally.parts += 1

    def _retain(self, retention: Retention, now_ns: int) -> None:
        gone = expired(self.writer.path, retention, now_ns)
        if not gone:
            return
        if retention.samples:
            # Said before it is done: a reader passes over parts before the first.
            before = self.base.get("collection") or {}
            first = {**(before.get("first_parts") or {}), **first_samples(gone)}
            self.base["collection"] = {**before, "first_parts": first}
            written = self.writer.manifest
            collection = {**(written.get("collection") or {}), "first_parts": first}
            self.writer.write_manifest({**written, "collection": collection})
        delete(self.writer.path, gone, samples=retention.samples)

    def _take_up(self, last: Entry | None, unix_ns: int, monotonic_ns: int) -> None:
        start = self.base["start"]
        since_us = 0
        if start is not None:
            since_us = unix_ns // 1000 - (datetime.fromisoformat(start) - _EPOCH) // timedelta(
                microseconds=1
            )
        after_us = max(self.observer.last_us, last.time_us if last else 0) + 1
        if since_us < after_us:
            self.observer.watch.note(
                "the wall clock was behind when the collector started again: times since then"
                " follow its start"
            )
        self._zero_us, self._zero_monotonic_ns = max(since_us, after_us), monotonic_ns
