"""One collector for each engine there is: new ones begin, gone ones end, changed ones begin anew.

Engines share nothing but the event loop and the threads that write, so that one that hangs or
fails delays no other.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from collectors.scrape.loop import Collector
from collectors.service.diary import Diary
from collectors.service.discover import Instance
from collectors.service.settings import Collect, Target
from collectors.service.standing import Standing
from replay.errors import ReplayError


@dataclass(frozen=True)
class Job:
    """An engine and all that says how it is collected: another job means a new start."""

    instance: Instance
    target: Target
    collect: Collect


@dataclass
class Worker:
    """A job that was begun; `failed` says why it could not be, or ended by itself."""

    job: Job
    standing: Standing
    collector: Collector | None = None
    stop: asyncio.Event = field(default_factory=asyncio.Event)
    task: asyncio.Task[None] | None = None
    failed: str | None = None

    @property
    def over(self) -> bool:
        """Whether it collects no more."""
        return self.task is None or self.task.done()


Seen = Callable[[Collector], None]
# A collector for a job that calls back after each scrape, and what must be open while it runs.
Make = Callable[[Job, Seen], tuple[Collector, AbstractAsyncContextManager[Any]]]


class Supervisor:
    """Keeps `workers` like the jobs it is told; `duration_us` ends each collector by itself."""

    def __init__(
        self,
        make: Make,
        unix_ns: Callable[[], int],
        duration_us: int | None = None,
        diary: Diary | None = None,
    ) -> None:
        self.workers: dict[Instance, Worker] = {}
        self.begun = 0
        self.changed = asyncio.Event()
        self._make, self._unix_ns, self._duration_us = make, unix_ns, duration_us
        self._ending: set[asyncio.Task[None]] = set()
        self._diary = diary or Diary(lambda _: None)

    def reconcile(self, jobs: Iterable[Job]) -> None:
        """End what is no longer wanted, begin what is new; what failed is tried again in time.

        What ends has files to finish. A job that comes again for the same engine waits for that:
        `changed` is set when it is worth looking again.
        """
        wanted = {job.instance: job for job in jobs}
        for instance, worker in list(self.workers.items()):
            if worker.job != wanted.get(instance) or self._to_retry(worker):
                del self.workers[instance]
                if worker.job != wanted.get(instance):
                    self._diary.ended(instance)
                self._end(worker)
        still = {task.get_name() for task in self._ending if not task.done()}
        for instance, job in wanted.items():
            if instance not in self.workers and _named(instance) not in still:
                self._begin(job)

    async def close(self) -> None:
        """End all, and wait until everything is written."""
        for worker in self.workers.values():
            self._end(worker)
        self.workers = {}
        await asyncio.gather(*self._ending)

    async def finished(self) -> None:
        """Wait until every collector has ended by itself."""
        await asyncio.gather(*(worker.task for worker in self.workers.values() if worker.task))

    def _begin(self, job: Job) -> None:
        worker = self.workers[job.instance] = Worker(job, Standing(self._unix_ns()))
        self.begun += 1
        try:
            worker.collector, opened = self._make(job, partial(self._seen, worker))
        except (ReplayError, OSError) as exc:
            self._failed(worker, exc)
        else:
            self._diary.began(job.instance, job.collect)
            work = self._work(worker, worker.collector, opened)
            worker.task = asyncio.create_task(work, name=_named(job.instance))

    async def _work(
        self, worker: Worker, collector: Collector, opened: AbstractAsyncContextManager[Any]
    ) -> None:
        try:
            async with opened:
                await collector.run(worker.stop, duration_us=self._duration_us)
        except Exception as exc:  # noqa: BLE001 (one engine's trouble must not end the others)
            self._failed(worker, exc)

    def _failed(self, worker: Worker, exc: Exception) -> None:
        worker.failed = _said(exc)
        self._diary.failed(worker.job.instance, worker.failed, worker.job.collect)

    def _seen(self, worker: Worker, collector: Collector) -> None:
        self._diary.scraped(worker.job.instance, worker.standing, collector, self._unix_ns())

    def _to_retry(self, worker: Worker) -> bool:
        waited_us = (self._unix_ns() - worker.standing.began_ns) // 1000
        return worker.over and waited_us >= worker.job.collect.rediscover_us

    def _end(self, worker: Worker) -> None:
        worker.stop.set()
        if worker.task is not None:
            self._ending.add(worker.task)
            worker.task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._ending.discard(task)
        self.changed.set()


def _named(instance: Instance) -> str:
    return f"{instance.target}/{instance.name}"


def _said(exc: Exception) -> str:
    """Our own errors say it themselves; of others only the kind, they may quote a server."""
    return str(exc) if isinstance(exc, ReplayError) else type(exc).__name__
