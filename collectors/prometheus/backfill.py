"""A run made of what a Prometheus server has: whole or not at all.

Memory holds one window's answer and the samples of one part, however long the range is.
"""

import json
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from collectors.exposition.names import canonical
from collectors.exposition.samples import samples_frame
from collectors.prometheus.api import PLACE, Api, TooMuch
from collectors.prometheus.scrapes import Scraped, interval_ms
from collectors.prometheus.source import Range, RawSource, Source, StepSource, find_target
from collectors.scrape.entry import Entry
from collectors.scrape.observe import Observer, page_identity
from collectors.scrape.outcome import Outcome
from collectors.scrape.reading import Reading
from collectors.writer import RunWriter, configuration_sha256, new_manifest, run_id_of
from replay.errors import InputError
from replay.output import new_directory

if TYPE_CHECKING:
    import polars as pl

TABLE = "metric_samples"
CLOCK = "wall clock of the Prometheus server, in milliseconds: when it began the scrape"
_ROWS = 400_000  # of a part
_FIRST_MS, _LONGEST_MS = 300_000, 3_600_000
_SCRAPES = 256  # of some six hundred samples: an answer of four megabytes
_UNKNOWN_INTERVAL_MS = 15_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
Told = Callable[[int, int], None]


@dataclass(frozen=True)
class Wanted:
    """What to take: `more` are matchers, `step_ms` None takes samples as they were stored."""

    when: Range
    more: str = ""
    step_ms: int | None = None


@dataclass
class Findings:
    """What was found so far; `observer` comes with the usual time between scrapes."""

    when: Range
    run_id: str
    observer: Observer | None = None
    waiting: list[Scraped] = field(default_factory=list)
    rows: int = 0
    session: int = 0
    last_ms: int | None = None
    knows_up: bool = False

    def take(self, scraped: list[Scraped], *, last: bool = False) -> "pl.DataFrame | None":
        """Samples of the next scrapes; None while they wait for the interval to be known."""
        self.waiting += scraped
        if self.observer is None:
            usual = interval_ms(one.time_ms for one in self.waiting)
            if usual is None and not last:
                return None
            self.observer = self._begun((usual or _UNKNOWN_INTERVAL_MS) * 1000)
        ready, self.waiting = self.waiting, []
        kept = []
        for one in ready:
            reading = self._reading(one, self.observer)
            self.observer.see(reading)
            if reading.canonical is not None:
                entry = reading.entry
                kept.append((entry.scrape, entry.time_us, reading.canonical.samples))
        frame = samples_frame(self.run_id, kept)
        self.rows += frame.height
        return frame

    def _begun(self, interval_us: int) -> Observer:
        observer = Observer(interval_us)
        if self.waiting:
            first_us = (self.waiting[0].time_ms - self.when.start_ms) * 1000
            if missing := first_us // interval_us:
                observer.watch.lost(0, first_us, missing, "no scrape since the start")
        return observer

    def _reading(self, one: Scraped, observer: Observer) -> Reading:
        """What a direct scrape would have been, as far as Prometheus knows."""
        found = canonical(one.page())
        self.knows_up = self.knows_up or one.up is not None
        if one.up is False:
            outcome = Outcome.UNREACHABLE
        else:
            outcome = Outcome.OK if found.vllm else Outcome.NOT_VLLM
        between_us = observer.watch.interval_us
        if self.last_ms is not None and one.time_ms - self.last_ms > 1.5 * between_us / 1000:
            self.session += 1  # nobody scraped, which is not an engine that was slow
        self.last_ms = one.time_ms
        if outcome is Outcome.OK and observer.identity.differs(page_identity(found)):
            rule = f"must end before {_iso(one.time_ms)}: another engine configuration begins there"
            raise InputError("options", "--query-range", rule)
        entry = Entry(
            scrape=observer.seen,
            time_us=(one.time_ms - self.when.start_ms) * 1000,
            unix_ns=one.time_ms * 1_000_000,
            monotonic_ns=one.time_ms * 1_000_000,
            duration_us=0,
            session=self.session,
            outcome=outcome,
        )
        return Reading(entry, found if outcome is Outcome.OK else None)

    def fill(self, manifest: Mapping[str, Any], api: Api, step_ms: int | None) -> dict[str, Any]:
        """The manifest of it all; `InputError` where there was no scrape of vLLM."""
        observer = self.observer
        if observer is None or not observer.outcomes["ok"]:
            rule = "must have a scrape with samples of vLLM's in this time"
            raise InputError(PLACE, "", rule, "none")
        self._edges(observer)
        for note in self._notes(api, step_ms):
            observer.watch.note(note)
        filled = observer.fill(manifest)
        if observer.seen == 1:
            filled["scrape_interval_us"] = None
        filled["drain_end_us"] = (self.when.end_ms - self.when.start_ms) * 1000
        filled["clocks"]["scrape"] = CLOCK
        filled["collection"]["page_bytes"] = None
        filled["configuration_sha256"] = configuration_sha256(filled)
        return filled

    def _edges(self, observer: Observer) -> None:
        """Times without a scrape at either end of what was asked for."""
        between_us = observer.watch.interval_us
        end_us = (self.when.end_ms - self.when.start_ms) * 1000
        missing = round((end_us - observer.last_us) / between_us) - 1
        if missing > 0:
            observer.watch.lost(observer.last_us, end_us, missing, "no scrape until the end")

    def _notes(self, api: Api, step_ms: int | None) -> list[str]:
        notes = ["made of what a Prometheus server stored; there are no pages"]
        if step_ms is not None:
            notes.append(f"seen at steps of {step_ms} ms: samples in between are not here")
        if self.knows_up:
            notes.append("unreachable is where up was 0, whatever the reason was")
        else:
            notes.append("the server has no series of up: failed scrapes look like missing ones")
        if api.histograms:
            notes.append("native histograms were left out")
        return notes


async def backfill(
    api: Api, wanted: Wanted, out: Path, told: Told = lambda _, __: None
) -> dict[str, Any]:
    """Write the run `out`, which must not exist, and return its manifest.

    `told` hears after each window how many seconds of the range are done, and of how many. What
    the server refuses, or has not, is an `InputError`, and then nothing was written.
    """
    when, more = wanted.when, wanted.more
    with new_directory(out, force=False, owned=()) as temporary:
        target = await find_target(api, when, more)
        source: Source
        if wanted.step_ms is None:
            source = RawSource(api, target, more)
        else:
            source = await StepSource.of(api, target, more, when, wanted.step_ms)
        start = _EPOCH + timedelta(milliseconds=when.start_ms)
        salt = (str(when.end_ms), *(f"{k}={v}" for k, v in sorted(target.labels.items())))
        found = Findings(when, run_id_of(start, *salt))
        manifest = new_manifest(found.run_id, "observed", start=start)
        place = temporary / "manifest.json"
        place.write_text(json.dumps(manifest), encoding="utf-8")
        place.chmod(0o600)
        with RunWriter.resume(temporary) as writer:
            await _write_parts(writer, source, found, told)
            writer.write_manifest(found.fill(manifest, api, wanted.step_ms))
            filled = writer.manifest
    _private(out)
    return filled


def _private(run: Path) -> None:
    run.chmod(0o700)


async def _write_parts(writer: RunWriter, source: Source, found: Findings, told: Told) -> None:
    import polars as pl

    frames: list[pl.DataFrame] = []
    start_ms, total_s = found.when.start_ms, (found.when.end_ms - found.when.start_ms) // 1000
    async for scraped, end_ms in _windows(source, found):
        last = end_ms == found.when.end_ms
        told((end_ms - start_ms) // 1000, total_s)
        frame = found.take(scraped, last=last)
        if frame is not None:
            frames.append(frame)
        if frames and (last or sum(one.height for one in frames) >= _ROWS):
            whole = pl.concat(frames)
            frames = []
            if whole.height:
                writer.write_part(TABLE, whole)


async def _windows(source: Source, found: Findings) -> AsyncIterator[tuple[list[Scraped], int]]:
    """Scrapes window by window, and where it ends; windows shrink to what fits."""
    when, unit_ms = found.when, source.unit_ms
    most_ms = min(_LONGEST_MS, source.most_ms or _LONGEST_MS)
    begin, width_ms = when.start_ms, min(_FIRST_MS, most_ms)
    while begin < when.end_ms:
        width_ms = max(unit_ms, width_ms // unit_ms * unit_ms)
        end = min(begin + width_ms, when.end_ms)
        try:
            scraped = await source.window(begin, end)
        except TooMuch as exc:
            if width_ms <= max(unit_ms, 2):
                rule = "must answer for a single scrape within --timeout, its limits and 8 MiB"
                raise InputError(PLACE, "query", rule, str(exc.outcome)) from exc
            width_ms = most_ms = width_ms // 2
            continue
        yield scraped, end
        begin = end
        if found.observer is not None:
            usual_ms = _SCRAPES * found.observer.watch.interval_us // 1000
            width_ms = min(usual_ms, most_ms)
        elif not found.waiting:
            width_ms = min(width_ms * 2, most_ms)


def _iso(time_ms: int) -> str:
    moment = (_EPOCH + timedelta(milliseconds=time_ms)).replace(tzinfo=None)
    return f"{moment.isoformat(timespec='milliseconds')}Z"
