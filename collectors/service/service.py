"""The process: finds engines, keeps their collectors, rereads its file, and ends when it is told.

SIGTERM and SIGINT finish the files in hand; SIGHUP rereads the configuration, and one that breaks
a rule changes nothing but /healthz.
"""

import asyncio
import signal
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from collectors.scrape.loop import Collector
from collectors.service.begin import Outside, Told, collector_of, machine, retention_of
from collectors.service.diary import Diary
from collectors.service.discover import Instance, Resolve, Unknown, instances_of
from collectors.service.health import health
from collectors.service.housekeeping import prepare, tidy
from collectors.service.meters import State, registry_of
from collectors.service.settings import Settings, Target, read_settings
from collectors.service.supervise import Job, Seen, Supervisor, Worker
from collectors.service.web import serving
from replay.errors import InputError, OutputExists

_HOUSEKEEPING_S = 60.0
_ONE_SCRAPE_US = 1  # the first is due at once, the second never


class Service:
    """Collects what `path` says until `stop`; `port` is where its own pages are, once it runs."""

    def __init__(self, path: Path, outside: Outside) -> None:
        self.settings = read_settings(path)
        self.state, self.stop = State(), asyncio.Event()
        self.port: int | None = None
        self._path, self._outside = path, outside
        self._diary = Diary(outside.told)
        self.supervisor = Supervisor(self._make, outside.clock.unix_ns, diary=self._diary)
        self._found: dict[str, list[Instance]] = {}
        self._watching: dict[Target, asyncio.Task[None]] = {}

    async def run(self) -> None:
        """Serve, collect, and write everything when `stop` is set."""
        prepare(self.settings)
        async with AsyncExitStack() as stack:
            if self.settings.collect.listen is not None:
                registry = registry_of(self.supervisor, self.state)
                serve = serving(self.settings.collect.listen, registry, self.health)
                self.port = await stack.enter_async_context(serve)
            stack.push_async_callback(self.supervisor.close)
            house = asyncio.create_task(self._keep_house())
            stopped = asyncio.create_task(self.stop.wait())
            try:
                self._watch()
                while not self.stop.is_set():
                    changed = asyncio.create_task(self.supervisor.changed.wait())
                    await asyncio.wait({changed, stopped}, return_when=asyncio.FIRST_COMPLETED)
                    changed.cancel()
                    self.supervisor.changed.clear()
                    if not self.stop.is_set():
                        self.supervisor.reconcile(self.jobs())
            finally:
                self._outside.told("stopping: every run is written and closed")
                await _cancelled([house, stopped, *self._watching.values()])

    def health(self) -> dict[str, Any]:
        """What /healthz says."""
        return health(self.supervisor.workers.values(), self.state, self._outside.clock.unix_ns())

    def reload(self) -> None:
        """Read the file again; what it says holds from the next scrapes on."""
        try:
            settings = read_settings(self._path)
            self._check_same_address(settings)
            prepare(settings)
        except (InputError, OutputExists) as exc:
            self.state.reload_error = str(exc)
            self.state.reloads_failed += 1
            self._outside.told(f"reload refused, the old configuration goes on: {exc}")
            return
        self.settings, self.state.reload_error = settings, None
        self._watch()
        self._outside.told("configuration reloaded")

    def _check_same_address(self, settings: Settings) -> None:
        if settings.collect.listen != self.settings.collect.listen:
            rule = "takes effect with a restart only"
            raise InputError(str(self._path), "collect.listen", rule)

    def jobs(self) -> list[Job]:
        """What should be collected now, as far as it is known."""
        return [
            Job(instance, target, self.settings.collect)
            for target in self.settings.targets
            for instance in self._found.get(target.name, ())
        ]

    def _watch(self) -> None:
        """One task a target looks for its engines, so that a slow one holds up no other."""
        for target in [t for t in self._watching if t not in self.settings.targets]:
            self._watching.pop(target).cancel()
            for known in (self._found, self.state.instances, self.state.unknown):
                known.pop(target.name, None)
        for target in self.settings.targets:
            if target not in self._watching:
                self._watching[target] = asyncio.create_task(self._discover_on(target))
        self.supervisor.changed.set()

    async def _discover_on(self, target: Target) -> None:
        while True:
            await discover(target, self._outside.resolve, self._found, self.state)
            if target.url is None:
                unknown = self.state.unknown.get(target.name)
                self._diary.engines(target.name, unknown or self.state.instances[target.name])
            self.supervisor.changed.set()
            await asyncio.sleep(self.settings.collect.rediscover_us / 1_000_000)

    async def _keep_house(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            written = {
                worker.collector.run_path
                for worker in self.supervisor.workers.values()
                if worker.collector is not None and not worker.over
            }
            paths = {path for path in written if path is not None}
            now_ns = self._outside.clock.unix_ns()
            try:
                done = await loop.run_in_executor(
                    self._outside.disk, tidy, self.settings, paths, now_ns
                )
            except OSError as exc:
                self.state.trouble = exc.strerror or "cannot be read"
                self._diary.trouble(self.state.trouble)
            else:
                self.state.trouble, self.state.output_bytes = None, done.left_bytes
                self.state.deleted_runs += len(done.gone)
                self._diary.tidied(done)
                self._share()
            await asyncio.sleep(_HOUSEKEEPING_S)

    def _share(self) -> None:
        """What one run may take of all; shares are even, for nobody knows who will write more."""
        workers = self.supervisor.workers.values()
        retention = retention_of(self.settings.collect, len(workers))
        for collector in [worker.collector for worker in workers if worker.collector is not None]:
            collector.settings = replace(collector.settings, retention=retention)

    def _make(self, job: Job, seen: Seen) -> tuple[Collector, AbstractAsyncContextManager[Any]]:
        return collector_of(job, seen, self._outside, len(self.supervisor.workers))


async def discover(
    target: Target, resolve: Resolve, found: dict[str, list[Instance]], state: State
) -> None:
    """Bring `found` up to date; what is unknown stays as it was and is counted."""
    try:
        engines = await instances_of(target, resolve)
    except Unknown as exc:
        _unknown(target, str(exc), state)
    except Exception as exc:  # noqa: BLE001 (looking for engines must never end)
        _unknown(target, type(exc).__name__, state)
    else:
        found[target.name] = engines
        state.instances[target.name] = len(engines)
        state.unknown.pop(target.name, None)


def _unknown(target: Target, why: str, state: State) -> None:
    state.unknown[target.name] = why
    state.discovery_failures[target.name] = state.discovery_failures.get(target.name, 0) + 1


async def once(path: Path, outside: Outside) -> tuple[list[Worker], State]:
    """One scrape of every engine there is now, written; then it is over."""
    settings, state = read_settings(path), State()
    prepare(settings)
    found: dict[str, list[Instance]] = {}
    looked = (discover(t, outside.resolve, found, state) for t in settings.targets)
    await asyncio.gather(*looked)
    jobs = [
        Job(instance, target, settings.collect)
        for target in settings.targets
        for instance in found.get(target.name, ())
    ]
    supervisor = Supervisor(
        lambda job, seen: collector_of(job, seen, outside, len(jobs)),
        outside.clock.unix_ns,
        _ONE_SCRAPE_US,
    )
    supervisor.reconcile(jobs)
    await supervisor.finished()
    written: set[Path] = set()
    tidy_all = asyncio.get_running_loop().run_in_executor(
        outside.disk, tidy, settings, written, outside.clock.unix_ns()
    )
    state.deleted_runs = len((await tidy_all).gone)
    return list(supervisor.workers.values()), state


def run_service(path: Path, environment: Mapping[str, str], told: Told) -> None:
    """Run until a signal says otherwise."""
    with machine(environment, told) as outside:

        async def run() -> None:
            service, loop = Service(path, outside), asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, service.stop.set)
            loop.add_signal_handler(signal.SIGHUP, service.reload)
            await service.run()

        asyncio.run(run())


def run_once(path: Path, environment: Mapping[str, str], told: Told) -> tuple[list[Worker], State]:
    """As `once`, with the machine's own clocks, resolver and threads."""
    with machine(environment, told) as outside:
        return asyncio.run(once(path, outside))


async def _cancelled(tasks: list[asyncio.Task[Any]]) -> None:
    for task in tasks:
        task.cancel()
    for task in tasks:
        with suppress(asyncio.CancelledError):
            await task
