"""Two looks at one server, some seconds apart: a single one cannot tell a rate from a total."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from collectors.scrape.clock import Clock
from collectors.scrape.entry import fetched_entry
from collectors.scrape.fetch import Fetcher
from collectors.scrape.outcome import Outcome
from collectors.scrape.probe import Probed, probe
from collectors.scrape.reading import Reading, read_entry

Wait = Callable[[float], Awaitable[None]]


@dataclass(frozen=True)
class Looked:
    """What was seen; `second` is None where the first look saw no vLLM metrics."""

    url: str
    probed: Probed
    first: Reading
    second: Reading | None


async def look(
    fetcher: Fetcher, watch_s: float, clock: Clock, wait: Wait = asyncio.sleep
) -> Looked:
    """Fetch the page, ask for version and models, wait, and fetch the page again."""
    first = await _page(fetcher, clock, 0)
    # A server that cannot be reached at all is not asked twice more, each with a time-out.
    reached = first.entry.status is not None or first.entry.outcome is Outcome.TRUNCATED
    probed = await probe(fetcher) if reached else Probed()
    second = None
    if first.canonical is not None:
        await wait(watch_s)
        second = await _page(fetcher, clock, 1)
    return Looked(fetcher.urls.base, probed, first, second)


async def _page(fetcher: Fetcher, clock: Clock, number: int) -> Reading:
    unix_ns, began_ns = clock.unix_ns(), clock.monotonic_ns()
    answer = await fetcher.page()
    duration_us = (clock.monotonic_ns() - began_ns) // 1000
    return read_entry(fetched_entry(answer, unix_ns, began_ns, duration_us, scrape=number))
