"""One collector in a process of its own: options in, signals handled, everything written.

`preempt collect metrics` is this with a progress line; a service runs many collectors and does its
own.
"""

import asyncio
import os
import signal
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from collectors.durations import duration_us, moment_ns, size_bytes
from collectors.scrape.clock import SystemClock
from collectors.scrape.credentials import TOKEN_VARIABLE, Credentials
from collectors.scrape.device import device_facts, is_here
from collectors.scrape.fetch import LARGEST_PAGE_BYTES, Fetcher
from collectors.scrape.loop import Collector, Settings
from collectors.scrape.probe import probe
from collectors.scrape.retention import Retention
from collectors.scrape.run import Rotation
from collectors.scrape.urls import Urls, urls_of

_TIMEOUT = "5s"
_SHORTEST_US = 1_000


@dataclass(frozen=True)
class Chosen:
    """What the options of one collection say."""

    urls: Urls
    credentials: Credentials
    timeout_us: int
    most_page_bytes: int
    settings: Settings
    until_ns: int | None = None
    duration_us: int | None = None


def choices(given: Mapping[str, Any]) -> Chosen:
    """Options as the command line has them, checked; what breaks a rule is an `InputError`."""

    def optional(name: str, read: Callable[[str, str], int]) -> int | None:
        text = given.get(name)
        return None if text is None else read(text, f"--{name.replace('_', '-')}")

    urls, spool = urls_of(given["url"]), given.get("spool")
    token_file = given.get("bearer_token_file")
    variable = TOKEN_VARIABLE if token_file is None and TOKEN_VARIABLE in os.environ else None
    credentials = Credentials(
        token_file, variable, given.get("ca_file"), given.get("cert_file"), given.get("key_file")
    )
    credentials.headers()  # a file that is not there now is a mistake, later it is an outcome
    rotation = Rotation(
        rows=given["rotate_rows"], age_us=duration_us(given["rotate_every"], "--rotate-every")
    )
    retention = Retention(
        optional("keep_pages", duration_us),
        optional("keep_bytes", size_bytes),
        samples=given["drop_samples"],
    )
    settings = Settings(
        out=given["out"],
        interval_us=duration_us(given["interval"], "--interval", minimum_us=_SHORTEST_US),
        rotation=rotation,
        retention=retention,
        # A recorder names the device that its engine really uses.
        facts={"device": device_facts()} if is_here(urls.base) and spool is None else {},
        spool=spool,
    )
    return Chosen(
        urls,
        credentials,
        duration_us(given.get("timeout") or _TIMEOUT, "--timeout"),
        size_bytes(given["most_page"], "--most-page", most_bytes=LARGEST_PAGE_BYTES),
        settings,
        optional("until", moment_ns),
        optional("duration", duration_us),
    )


def collect(chosen: Chosen, seen: Callable[[Collector], None] | None) -> tuple[Collector, bool]:
    """Collect until the end or a signal; returns the collector, and whether SIGINT ended it."""
    return asyncio.run(_collect(chosen, seen))


async def _collect(
    chosen: Chosen, seen: Callable[[Collector], None] | None
) -> tuple[Collector, bool]:
    stop, interrupted = asyncio.Event(), False

    def interrupt() -> None:
        nonlocal interrupted
        interrupted = True
        stop.set()

    loop = asyncio.get_running_loop()
    fetcher = Fetcher(chosen.urls, chosen.credentials, chosen.timeout_us, chosen.most_page_bytes)
    # One thread for each: more would only take memory, a heap of their own each.
    with ThreadPoolExecutor(1) as disk, ThreadPoolExecutor(1) as reader:
        async with fetcher:
            collector = Collector(
                chosen.settings,
                fetcher.page,
                lambda: probe(fetcher),
                SystemClock(),
                disk,
                seen,
                reader,
            )
            loop.add_signal_handler(signal.SIGTERM, stop.set)
            loop.add_signal_handler(signal.SIGINT, interrupt)
            await collector.run(stop, chosen.until_ns, chosen.duration_us)
    return collector, interrupted
