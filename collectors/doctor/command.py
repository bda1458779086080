"""One diagnosis, from the options to the end: the only place where a clock and a loop are made."""

import asyncio
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from collectors.doctor.diagnose import diagnose
from collectors.doctor.finding import Diagnosis
from collectors.doctor.look import Looked, look
from collectors.doctor.seen import Asked
from collectors.doctor.spooled import spooled
from collectors.durations import duration_text, duration_us
from collectors.scrape.clock import SystemClock
from collectors.scrape.credentials import Credentials
from collectors.scrape.fetch import Fetcher
from collectors.scrape.urls import urls_of
from replay.errors import InputError

_LONGEST_WATCH_US = 600_000_000
RECORDER = "preemption-ledger-recorder"


def look_at(
    url: str,
    credentials: Credentials,
    *,
    timeout: str,
    watch: str,
    spool: Path | None,
    asked: Asked,
) -> Diagnosis:
    """Look at a server and at a spool; an option that breaks a rule is an `InputError`."""
    urls = urls_of(url)
    credentials.headers()  # a file that cannot be read is a mistake in the options
    watch_s = _watch_us(watch) / 1_000_000
    fetcher = Fetcher(urls, credentials, duration_us(timeout, "--timeout"))
    clock = SystemClock()

    async def looking() -> Looked:
        async with fetcher:
            return await look(fetcher, watch_s, clock)

    looked = asyncio.run(looking())
    # After the second look: what the engine did meanwhile is in the spool by then.
    found = None if spool is None else spooled(spool, clock.unix_ns())
    return diagnose(looked, found, replace(asked, installed=_installed()))


def _watch_us(text: str) -> int:
    """Time between two looks; a bare number is seconds."""
    found = duration_us(text if text[-1:].isalpha() else f"{text}s", "--watch", minimum_us=0)
    if found > _LONGEST_WATCH_US:
        raise InputError(
            "options", "--watch", f"must be at most {duration_text(_LONGEST_WATCH_US)}"
        )
    return found


def _installed() -> str | None:
    try:
        return version(RECORDER)
    except PackageNotFoundError:
        return None
