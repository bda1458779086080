"""A drive from its options to a finished run: look, create, send, write, complete."""

import asyncio
import gc
import os
import resource
import signal
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from collectors.drive.client import Endpoint, body_of, send
from collectors.drive.engine import Engine, look
from collectors.drive.finish import Driven, Told, complete
from collectors.drive.journal import End, Journal, Settings
from collectors.drive.loop import Driver, Stop
from collectors.drive.prompts import Prompts, TokenIds
from collectors.drive.pulse import Pulse
from collectors.drive.schedule import Plan
from collectors.drive.scrapes import scrape
from collectors.drive.seen import Seen
from collectors.drive.store import Summary, finish_run
from collectors.scrape.clock import SystemClock
from collectors.scrape.credentials import Credentials
from collectors.scrape.device import device_facts, is_here
from collectors.scrape.fetch import MOST_PAGE_BYTES, Fetcher
from collectors.scrape.urls import Urls, urls_of
from collectors.spool import list_parts
from collectors.writer import RunWriter, configuration_sha256, new_manifest, run_id_of
from replay.output import check_new_directory
from replay.workload import Request, Workload

if TYPE_CHECKING:
    import aiohttp

KEY_VARIABLE = "OPENAI_API_KEY"
CLOCK = "client, wall clock at the run's zero, moved on by its monotonic clock; arrival is the send"
_LEAD_NS = 500_000_000
_PROGRESS_S = 0.5
_PAGE_TIMEOUT_US = 5_000_000
_YOUNG_OBJECTS = 50_000
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class Chosen:
    """What the options of one drive say."""

    plan: Plan
    urls: Urls
    credentials: Credentials
    model: str | None
    out: Path
    settings: Settings
    ids: TokenIds
    drain_us: int
    give_up_us: int | None
    comparison: Mapping[str, Any]
    spool: Path | None = None


class Signals:
    """SIGINT and SIGTERM stop a drive, a second one the waiting; none keeps it from being written.

    Before anything can be stopped they interrupt, as anywhere.
    """

    def __init__(self) -> None:
        self.came = False
        self._stop: Stop | None = None
        self._before: dict[signal.Signals, Any] = {}

    def bind(self, stop: Stop) -> None:
        """From now on stop this, by the running event loop."""
        self._stop, self._loop = stop, asyncio.get_running_loop()

    def __enter__(self) -> Self:
        for number in (signal.SIGINT, signal.SIGTERM):
            self._before[number] = signal.signal(number, self._take)
        return self

    def __exit__(self, *_: object) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)

    def _take(self, number: int, _: object) -> None:
        if self._stop is None:
            raise KeyboardInterrupt
        self.came = True
        if not self._loop.is_closed():
            name = signal.Signals(number).name
            self._loop.call_soon_threadsafe(self._stop.stop, name)


Shown = Callable[[Driver], None]


def credentials_of(key_file: Path | None, given: Mapping[str, Path | None]) -> Credentials:
    """Where the API key and certificates lie; one that cannot be read now is an `InputError`."""
    variable = KEY_VARIABLE if key_file is None and os.environ.get(KEY_VARIABLE) else None
    found = Credentials(
        key_file, variable, given.get("ca_file"), given.get("cert_file"), given.get("key_file")
    )
    found.headers()
    return found


def endpoint_urls(url: str) -> Urls:
    """Addresses under a base URL, with or without /v1 at its end."""
    return urls_of(url.rstrip("/").removesuffix("/v1"))


def drive(chosen: Chosen, shown: Shown | None, say: Told, told: Told) -> Driven:
    """Offer the workload and write the run; nothing is written before the server answered.

    `say` takes warnings, `told` what takes long.
    """
    check_new_directory(chosen.out, force=False, owned=())
    if chosen.spool is not None:
        list_parts(chosen.spool)  # not there afterwards is not there now
    with Signals() as signals:
        stopped = asyncio.run(_drive(chosen, signals, shown, say))
        summary = _written(chosen, signals)
    packed = complete(chosen.out, chosen.settings.interval_us, chosen.spool, told)
    return Driven(chosen.out, summary, stopped, signals.came, packed)


def ask(urls: Urls, credentials: Credentials, model: str | None) -> Engine:
    """Who answers there, without sending anything; `InputError` where nobody does."""

    async def asking() -> Engine:
        async with Fetcher(urls, credentials, _PAGE_TIMEOUT_US, MOST_PAGE_BYTES) as fetcher:
            return await look(fetcher, model)

    return asyncio.run(asking())


def refused_for_length(workload: Workload, engine: Engine) -> str | None:
    """A line on requests that the engine is known to refuse, if there are any."""
    if not (count := engine.too_long(workload.requests)):
        return None
    longest = f"the server's max_model_len of {engine.max_model_len} tokens"
    return f"longer than {longest}, and refused by it: {count} of {len(workload)} requests"


def _written(chosen: Chosen, signals: Signals) -> Summary:
    """Finish the run, whatever signals still come."""
    while True:
        try:
            with RunWriter.resume(chosen.out) as writer:
                return finish_run(writer, chosen.plan.workload)
        except KeyboardInterrupt:  # polars takes SIGINT to itself while it works
            signals.came = True


async def _drive(chosen: Chosen, signals: Signals, shown: Shown | None, say: Told) -> str | None:
    workload = chosen.plan.workload
    async with Fetcher(
        chosen.urls, chosen.credentials, _PAGE_TIMEOUT_US, MOST_PAGE_BYTES
    ) as fetcher:
        engine = await look(fetcher, chosen.model)
        if line := refused_for_length(workload, engine):
            say(line)
        priorities = any(r.priority for r in workload.requests)
        prompts = Prompts(workload, chosen.settings.token_seed, chosen.ids)

        def make(place: int, request: Request) -> bytes:
            tokens = prompts.tokens(place, request)
            return body_of(request, engine.model, tokens, priorities=priorities)

        manifest = _manifest(chosen, engine)
        with RunWriter.create(chosen.out, manifest) as writer:
            writer.write_offered(workload)
            journal = Journal(chosen.out, chosen.settings)
            try:
                return await _send_all(chosen, signals, writer, journal, make, fetcher, shown, say)
            except BaseException:
                journal.close(None)
                raise


async def _send_all(
    chosen: Chosen,
    signals: Signals,
    writer: RunWriter,
    journal: Journal,
    make: Callable[[int, Request], bytes],
    fetcher: Fetcher,
    shown: Shown | None,
    say: Told,
) -> str | None:
    clock, stop, settings = SystemClock(), Stop(), chosen.settings
    pulse = Pulse(chosen.give_up_us)
    zero_ns = clock.monotonic_ns() + _LEAD_NS
    start = _EPOCH + timedelta(microseconds=(clock.unix_ns() + _LEAD_NS) // 1000)
    writer.write_manifest(writer.manifest | {"start": f"{start.replace(tzinfo=None).isoformat()}Z"})
    async with _session(chosen) as session:
        endpoint = Endpoint(
            session,
            f"{chosen.urls.base}/v1/completions",
            chosen.credentials.tls() if chosen.urls.base.startswith("https:") else True,
            settings.timeout_us / 1_000_000,
            lambda: (clock.monotonic_ns() - zero_ns) // 1000,
            pulse.alive,
        )

        async def one(request: Request, body: bytes, seen: Seen) -> None:
            await send(endpoint, request, body, seen)

        driver = Driver(
            chosen.plan.workload.requests,
            chosen.plan.due_us,
            make,
            one,
            journal,
            clock,
            zero_ns,
            stop,
            lateness_limit_us=settings.lateness_limit_us,
            concurrency=settings.concurrency,
            drain_us=chosen.drain_us,
            pulse=pulse,
            told=say,
        )
        signals.bind(stop)
        ended = asyncio.Event()
        scraping = None
        if settings.interval_us is not None:
            scraping = asyncio.create_task(
                scrape(chosen.out, fetcher, clock, zero_ns, settings.interval_us, ended)
            )
        showing = asyncio.create_task(_show(driver, shown))
        with _quiet_collector():
            try:
                await driver.run()
            finally:
                ended.set()
                showing.cancel()
                lost = 0 if scraping is None else await scraping
    lag_us = driver.counters.loop_lag_us
    # After the last scrape, which shows the counters as the last request left them.
    drain_end_us = max(0, driver.now_us())
    journal.close(End(driver.send_end_us, drain_end_us, lag_us, stop.why, lost))
    return stop.why


@asynccontextmanager
async def _session(chosen: Chosen) -> AsyncIterator["aiohttp.ClientSession"]:
    import aiohttp

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    async with aiohttp.ClientSession(
        headers={
            **chosen.credentials.headers(),
            "User-Agent": "preemption-ledger",
            "Accept": "text/event-stream",
            "Accept-Encoding": "identity",
        },
        auto_decompress=False,
        trust_env=False,
        cookie_jar=aiohttp.DummyCookieJar(),
        # A queue for connections in here would pass for the server's.
        connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=4.0),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
    ) as session:
        yield session


class _quiet_collector:  # noqa: N801 (used as a block)
    """Keep Python's garbage collector from looking through a whole workload while we send."""

    def __enter__(self) -> None:
        self._threshold = gc.get_threshold()
        gc.collect()
        gc.freeze()
        gc.set_threshold(_YOUNG_OBJECTS, *self._threshold[1:])

    def __exit__(self, *_: object) -> None:
        gc.set_threshold(*self._threshold)
        gc.unfreeze()


async def _show(driver: Driver, shown: Shown | None) -> None:
    while shown is not None:
        shown(driver)
        await asyncio.sleep(_PROGRESS_S)


def _manifest(chosen: Chosen, engine: Engine) -> dict[str, Any]:
    settings, workload = chosen.settings, chosen.plan.workload
    now = datetime.now(UTC)
    manifest = new_manifest(
        run_id_of(now, workload.sha256, str(time.monotonic_ns())), "driven", start=None
    )
    for key, values in engine.facts.items():
        manifest[key] = {**manifest[key], **values}
    # An engine with a recorder tells its own.
    if chosen.spool is None and is_here(chosen.urls.base):
        manifest["device"] = {**manifest["device"], **device_facts()}
    manifest["workload"] = {
        **manifest["workload"],
        "workload_sha256": workload.sha256,
        "requests": len(workload),
        "prefix_block_tokens": workload.prefix_block_tokens,
    }
    manifest["comparison"] = {**manifest["comparison"], **chosen.comparison}
    manifest["clocks"] = {**manifest["clocks"], "arrival": CLOCK}
    manifest["driver"] = {
        "behind": None,
        "late_requests": None,
        "lateness_limit_us": settings.lateness_limit_us,
        "max_lateness_us": None,
        "speed": _number(settings.speed),
        "concurrency": settings.concurrency,
        "token_seed": settings.token_seed,
        "notes": ["sending"],
    }
    manifest["configuration_sha256"] = configuration_sha256(manifest)
    return manifest


def _number(speed: str) -> float:
    over, _, under = speed.partition("/")
    return int(over) / int(under or 1)
