"""What a run was found to be before this start, so that its counts go on where they stood."""

from collections.abc import Iterable

from collectors.scrape.entry import Entry
from collectors.scrape.journal import journal_entries, journal_path
from collectors.scrape.observe import Observer
from collectors.scrape.outcome import Outcome
from collectors.scrape.pages import page_parts, read_pages
from collectors.scrape.reading import read_entry
from collectors.writer import RunWriter
from replay.errors import InputError


def found_before(
    writer: RunWriter, numbers: list[int], interval_us: int
) -> tuple[Observer, Entry | None]:
    """The findings of a run so far, what only journals have counted in; and its last scrape."""
    observer = Observer.resumed(writer.manifest, interval_us)
    last = None
    parts = page_parts(writer.path)
    if any(part.number is None for part in parts):
        rule = "was recorded elsewhere; choose another path"
        raise InputError(str(writer.path), "", rule)
    for part in [part for part in parts if part.number not in numbers][-1:]:
        for entry in _last_of(read_pages(part)):
            last = entry
            observer.prime(read_entry(entry))
    if last is not None:
        observer.pass_over(last.scrape + 1, told=True)
    counted = observer.seen
    for number in numbers:
        for entry in journal_entries(journal_path(writer.path, number)):
            last = entry
            if entry.scrape < counted:
                observer.prime(read_entry(entry))
                continue
            observer.watch.reopen_gap()
            observer.pass_over(entry.scrape)
            observer.see(read_entry(entry))
    observer.watch.reopen_gap()
    return observer, last


def _last_of(entries: Iterable[Entry]) -> list[Entry]:
    """The last scrape that had a page, and all after it."""
    found: list[Entry] = []
    for entry in entries:
        if entry.outcome is Outcome.OK:
            found.clear()
        found.append(entry)
    return found
