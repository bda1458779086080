"""Pages scraped during a drive are journalled, and a disk that refuses one costs that one."""

import asyncio
from pathlib import Path
from typing import cast

import pytest
from fault_server import page
from scrape_tools import SECOND, FakeClock

from collectors.drive import scrapes
from collectors.scrape.entry import Entry
from collectors.scrape.fetch import Fetcher
from collectors.scrape.journal import Journal, journal_entries, journal_path
from collectors.scrape.outcome import Fetched, Outcome


class Engine:
    """Answers with one page more each time, and says when it is enough."""

    def __init__(self, pages: int, stop: asyncio.Event) -> None:
        self.left, self.stop = pages, stop

    async def page(self) -> Fetched:
        """The next page."""
        self.left -= 1
        if not self.left:
            self.stop.set()
        return Fetched(Outcome.OK, 200, "text/plain", page(self.left + 1))


def test_a_page_that_finds_no_room_is_counted_and_scraping_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk may have room again for the next one."""
    append, refused = Journal.append, [2]

    def sometimes(self: Journal, entry: Entry) -> None:
        if entry.scrape in refused:
            raise OSError(28, "No space left on device")
        append(self, entry)

    monkeypatch.setattr(Journal, "append", sometimes)

    async def drive() -> int:
        stop = asyncio.Event()
        fetcher = cast("Fetcher", Engine(4, stop))
        clock = FakeClock()
        return await scrapes.scrape(
            tmp_path, fetcher, clock, clock.monotonic_ns(), SECOND // 1000, stop
        )

    assert 1 == asyncio.run(drive())
    written = [entry.scrape for entry in journal_entries(journal_path(tmp_path, 0))]
    assert [0, 1, 3, 4] == written
