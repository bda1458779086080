"""Samples of a run made again from its pages, by whatever the parser has become since.

New parts are made whole in a hidden run inside the run, and only then put in the old ones' places.
A reader finds the old or the new part of each number at any time; a reparse that was killed while
it put them there is finished by the next one.
"""

import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.columns import DIRECTORIES
from collectors.exposition.samples import MetricSample
from collectors.scrape.entry import Entry
from collectors.scrape.journal import PAGES, journal_numbers
from collectors.scrape.observe import Observer, said_once
from collectors.scrape.pages import RECORDED, PagePart, page_parts, read_pages
from collectors.scrape.reading import Reading, read_entry
from collectors.scrape.retention import Retention
from collectors.scrape.run import ScrapeRun, Tally
from collectors.scrape.settle import TABLE, frame_of
from collectors.scrape.troubles import NOT_WRITTEN, TROUBLES
from collectors.writer import RunWriter
from replay.errors import InputError

_NEW, _WHOLE = ".reparse", "whole"
_RECORDED_PART_BYTES = 32 * 2**20
_ZERO = "samples of recorded pages: time zero is the first page"


@dataclass(frozen=True)
class Reparsed:
    """What was read: pages, those with samples, rows, parts; `kept` parts had no pages any more."""

    pages: int
    with_samples: int
    rows: int
    parts: int
    kept: int


def reparse(run: Path, unix_ns: int) -> Reparsed:
    """Make a run's samples again; raises `OutputExists` while a collector writes it."""
    if not page_parts_or_none(run):
        raise InputError(str(run / PAGES), "", "must hold pages to read again", "none")
    if journal_numbers(run) and not (run / PAGES / RECORDED).exists():
        _settle_left(run, unix_ns)
    with RunWriter.resume(run) as writer:
        _put_in_place(run)
        parts = page_parts(run)
        observer = Observer(writer.manifest["scrape_interval_us"] or 1, _version(writer))
        new = run / _NEW
        shutil.rmtree(new, ignore_errors=True)
        first = parts[0].number or 0
        done = _make(new, writer, parts, observer)
        complete = first == 0
        if complete and parts[0].number is not None:
            outcomes = (writer.manifest.get("collection") or {}).get("outcomes") or {}
            observer.pass_over(sum(outcomes.values()), told=True)
        (new / _WHOLE).write_text(str(first), encoding="ascii")
        _put_in_place(run)
        writer.write_manifest(_manifest(writer, observer, parts, complete=complete))
    folder = run / DIRECTORIES[TABLE]
    there = len(list(folder.glob("part-*.parquet")))
    pages = observer.seen - observer.outcomes["not_kept"]
    return Reparsed(pages, observer.outcomes["ok"], done[1], done[0], there - done[0])


def page_parts_or_none(run: Path) -> list[PagePart]:
    """Parts with pages; none where the run has no such directory."""
    return page_parts(run) if (run / "manifest.json").exists() else []


def _settle_left(run: Path, unix_ns: int) -> None:
    """Settle what a killed collector left, as its next start would."""
    with RunWriter.resume(run) as writer:
        interval_us = writer.manifest["scrape_interval_us"] or 1
    ScrapeRun.resume(run, interval_us, unix_ns, 0, Tally()).finish(Retention(), unix_ns)


def _make(
    new: Path, writer: RunWriter, parts: list[PagePart], observer: Observer
) -> tuple[int, int]:
    made, rows, lost = 0, 0, _lost_gaps(writer.manifest)
    with RunWriter.create(new, writer.manifest) as fresh:
        for part in parts:
            for entries in _chunks(part):
                whole = part.number is not None
                known = _numbered(entries, observer, lost) if whole else entries
                readings = _observed(known, observer)
                frame = frame_of(writer.manifest["run_id"], readings)
                fresh.write_part(TABLE, frame)
                made, rows = made + 1, rows + frame.height
    return made, rows


def _observed(
    entries: Iterator[Entry], observer: Observer
) -> Iterator[tuple[int, int, list[MetricSample]]]:
    for entry in entries:
        reading: Reading = read_entry(entry)
        observer.see(reading)
        if reading.canonical is not None:
            yield entry.scrape, entry.time_us, reading.canonical.samples


def _numbered(
    entries: Iterator[Entry], observer: Observer, lost: list[dict[str, Any]]
) -> Iterator[Entry]:
    """Entries, counting those that are missing between them."""
    for entry in entries:
        told = any(
            gap["start_us"] <= entry.time_us and gap["end_us"] >= observer.last_us for gap in lost
        )
        observer.pass_over(entry.scrape, told=told)
        yield entry


def _lost_gaps(manifest: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Gaps of scrapes that were made and not written: no page shows them."""
    return [gap for gap in manifest["gaps"] or () if gap["reason"].startswith(NOT_WRITTEN)]


def _chunks(part: PagePart) -> Iterator[Iterator[Entry]]:
    """Entries of one part; recorded pages are many parts, cut by their bytes alone."""
    entries = read_pages(part)
    if part.number is not None:
        yield entries
        return
    held = next(entries, None)
    while held is not None:

        def chunk(first: Entry) -> Iterator[Entry]:
            nonlocal held
            size = first.page_bytes
            yield first
            for entry in entries:
                if size >= _RECORDED_PART_BYTES:
                    held = entry
                    return
                size += entry.page_bytes
                yield entry
            held = None

        yield chunk(held)


def _put_in_place(run: Path) -> None:
    """Move parts that are all made to where they belong; begun once, it is finished."""
    new = run / _NEW
    mark = new / _WHOLE
    if not mark.exists():
        return
    first = int(mark.read_text(encoding="ascii"))
    folder = run / DIRECTORIES[TABLE]
    folder.mkdir(mode=0o700, exist_ok=True)
    for path in sorted((new / DIRECTORIES[TABLE]).glob("part-*.parquet")):
        number = first + int(path.stem.removeprefix("part-"))
        path.replace(folder / f"part-{number:05d}.parquet")
    shutil.rmtree(new)


def _manifest(
    writer: RunWriter, observer: Observer, parts: list[PagePart], *, complete: bool
) -> dict[str, Any]:
    """The manifest with what the pages say now, as far as all of them are there."""
    before = writer.manifest
    filled = observer.fill(before)
    known = {key: value for key, value in before["cache"].items() if value is not None}
    filled["cache"] = {**filled["cache"], **known}
    recorded = parts[0].number is None
    kept = ["drain_end_us", "clocks", "scrape_interval_us"] if recorded else ["drain_end_us"]
    if not complete:
        kept += ["gaps", "counter_resets", "scrapes", "collection"]
    for key in kept:
        filled[key] = before.get(key, filled[key])
    if recorded and before["scrape_interval_us"] is None:
        filled["gaps"] = before["gaps"]
    collection = dict(filled.get("collection") or {})
    notes = list(collection.get("notes") or ())
    for note in said_once((before.get("collection") or {}).get("notes") or ()):
        if note not in notes:
            notes.append(note)
    if recorded and _ZERO not in notes:
        notes.append(_ZERO)
    filled["collection"] = {**collection, "notes": notes}
    if complete:
        _keep_losses(filled, before)
    return filled


def _keep_losses(filled: dict[str, Any], before: Mapping[str, Any]) -> None:
    """Put back what became of scrapes that left no page."""
    known = (before.get("collection") or {}).get("problems") or {}
    troubles = {kind: count for kind, count in known.items() if kind in TROUBLES}
    problems = {**filled["collection"]["problems"], **troubles}
    filled["collection"]["problems"] = dict(sorted(problems.items()))
    gaps = filled["gaps"] or []
    lost = [gap for gap in _lost_gaps(before) if gap not in gaps]
    if lost:
        filled["gaps"] = sorted([*gaps, *lost], key=lambda gap: (gap["start_us"], gap["end_us"]))


def _version(writer: RunWriter) -> str | None:
    version: str | None = writer.manifest["engine"]["version"]
    return version
