"""Forks collectors for the kill test: imports are done once, so that a start takes milliseconds.

Reads lines `URL OUT SPOOL` (`-` for none) and prints the process id of a collector of each.
"""

import asyncio
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import aiohttp  # noqa: F401 (before the fork)
import jsonschema  # noqa: F401
import polars as pl  # noqa: F401

import collectors.scrape.spool_hook
import collectors.values  # noqa: F401
from collectors.manifest import check_manifest
from collectors.scrape.clock import SystemClock
from collectors.scrape.credentials import Credentials
from collectors.scrape.fetch import Fetcher
from collectors.scrape.loop import Collector, Settings
from collectors.scrape.probe import Probed
from collectors.scrape.run import Rotation
from collectors.scrape.urls import urls_of
from collectors.writer import new_manifest


async def collect(url: str, out: Path, spool: Path | None) -> None:
    """Scrape as fast as it goes, rotating all the time, until SIGTERM."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    settings = Settings(out, 2_000, Rotation(rows=12), manifest_us=10_000, spool=spool)

    async def ask() -> Probed:
        return Probed("0.32.0")

    with ThreadPoolExecutor(1) as disk:
        async with Fetcher(urls_of(url), Credentials(), 60_000_000) as fetcher:
            await Collector(settings, fetcher.page, ask, SystemClock(), disk).run(stop)


def main() -> None:
    """Fork until the input ends."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    check_manifest(new_manifest("run", "observed", start=None), "")  # its schema is compiled once
    for line in sys.stdin:
        url, out, spool = line.split()
        sys.stdout.flush()
        pid = os.fork()
        if pid == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            asyncio.run(collect(url, Path(out), None if spool == "-" else Path(spool)))
            os._exit(0)
        print(pid, flush=True)  # noqa: T201 (the answer)


if __name__ == "__main__":
    main()
