"""A collector for an engine, made of what the file says of it and of the machine's threads."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

from collectors.scrape.clock import Clock, SystemClock
from collectors.scrape.device import device_facts, is_here
from collectors.scrape.fetch import Fetcher
from collectors.scrape.loop import Collector
from collectors.scrape.loop import Settings as Scraping
from collectors.scrape.probe import probe
from collectors.scrape.retention import Retention
from collectors.scrape.urls import urls_of
from collectors.service.discover import Resolve, system_resolver
from collectors.service.settings import Collect
from collectors.service.supervise import Job, Seen

# Reading a page holds a thread for as long as the page is large; the small ones go past it.
READERS, DISKS, RESOLVERS = 8, 2, 2
_LEAST_SHARE_BYTES = 2**20
Told = Callable[[str], None]


@dataclass
class Outside:
    """What the service takes from the machine; `disk` may be slow, `reader` is never to be."""

    environment: Mapping[str, str]
    resolve: Resolve
    disk: Executor
    reader: Executor
    told: Told
    clock: Clock = field(default_factory=SystemClock)


@contextmanager
def machine(environment: Mapping[str, str], told: Told) -> Iterator[Outside]:
    """The machine's own clocks, resolver and threads.

    Nothing of ours waits in asyncio's own threads: names are looked up there, and that can hang.
    """
    with ExitStack() as stack:
        disk, reader, names = (
            stack.enter_context(ThreadPoolExecutor(count, name))
            for count, name in ((DISKS, "disk"), (READERS, "read"), (RESOLVERS, "resolve"))
        )
        yield Outside(environment, system_resolver(names), disk, reader, told)


def collector_of(
    job: Job, seen: Seen, outside: Outside, shares: int
) -> tuple[Collector, AbstractAsyncContextManager[Any]]:
    """A collector of one engine, and its connections; what is wrong with files is `InputError`."""
    collect, target, instance = job.collect, job.target, job.instance
    urls = urls_of(instance.url)
    credentials = target.credentials(outside.environment)
    fetcher = Fetcher(urls, credentials, collect.timeout_us, collect.most_page_bytes)
    folder = collect.output / target.name
    folder.mkdir(mode=0o700, exist_ok=True)
    scraping = Scraping(
        out=folder / instance.name,
        interval_us=collect.interval_us,
        rotation=collect.rotation,
        retention=retention_of(collect, shares),
        facts={} if target.spool else _device(urls.base),
        spool=target.spool,
    )
    collector = Collector(
        scraping,
        fetcher.page,
        lambda: probe(fetcher),
        outside.clock,
        outside.disk,
        seen,
        outside.reader,
    )
    return collector, fetcher


def _device(url: str) -> dict[str, dict[str, Any]]:
    """This host's device, for an engine on it; an engine with a recorder tells its own."""
    found = device_facts() if is_here(url) else {}
    return {"device": found} if found.get("kind") is not None else {}


def retention_of(collect: Collect, shares: int) -> Retention:
    """What one of so many runs keeps: as long as all, and an even share of the bytes."""
    most = collect.keep_bytes
    share = None if most is None else max(_LEAST_SHARE_BYTES, most // max(1, shares))
    return Retention(collect.keep_age_us, share, samples=True)
