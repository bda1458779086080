"""Scraping the engine while it is driven: pages go to the run's journal, and are read afterwards.

Reading a page takes longer than a request may be late.
"""

import asyncio
import time
from pathlib import Path

from collectors.scrape.clock import Clock
from collectors.scrape.entry import Entry, fetched_entry
from collectors.scrape.fetch import Fetcher
from collectors.scrape.journal import Journal, journal_numbers

_JOURNAL_BYTES, JOURNAL_ENTRIES = 8 * 2**20, 500


async def scrape(
    run: Path, fetcher: Fetcher, clock: Clock, zero_ns: int, interval_us: int, stop: asyncio.Event
) -> int:
    """Scrape at zero, and every interval until `stop`; returns how many the disk did not take."""
    loop = asyncio.get_running_loop()
    number, slot, count, in_journal, lost = 0, 0, 0, 0, 0
    journal = Journal(run, number)
    try:
        while True:
            await clock.sleep_until(zero_ns + slot * interval_us * 1000, stop)
            ending = stop.is_set()  # one more: counters as the last request left them
            entry = await _entry(fetcher, clock, zero_ns, count)
            try:
                if journal.bytes >= _JOURNAL_BYTES or in_journal >= JOURNAL_ENTRIES:
                    journal.close()
                    number, in_journal = number + 1, 0
                    journal = Journal(run, number)
                await loop.run_in_executor(None, journal.append, entry)
                in_journal += 1
            except OSError:  # there may be room again for the next one
                lost += 1
            count += 1
            if ending:
                return lost
            passed = (clock.monotonic_ns() - zero_ns) // (interval_us * 1000) + 1
            slot = max(slot + 1, passed)
    finally:
        journal.close()


async def _entry(fetcher: Fetcher, clock: Clock, zero_ns: int, count: int) -> Entry:
    unix_ns, monotonic_ns = clock.unix_ns(), clock.monotonic_ns()
    fetched = await fetcher.page()
    return fetched_entry(
        fetched,
        unix_ns,
        monotonic_ns,
        (clock.monotonic_ns() - monotonic_ns) // 1000,
        scrape=count,
        time_us=max(0, monotonic_ns - zero_ns) // 1000,
    )


def unsettled(run: Path) -> int:
    """How many journals of pages wait to be read."""
    return len(journal_numbers(run))


def settle(run: Path, interval_us: int) -> None:
    """Read the pages of a finished drive into samples, as for a collector that was killed."""
    from collectors.scrape.retention import Retention
    from collectors.scrape.run import ScrapeRun, Tally

    unix_ns = time.time_ns()
    scrapes = ScrapeRun.resume(run, interval_us, unix_ns, time.monotonic_ns(), Tally())
    scrapes.finish(Retention(), unix_ns)
