"""The service's own metrics, read off its workers whenever somebody asks."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from collectors.scrape.loop import Counters
from collectors.service.supervise import Supervisor, Worker
from replay.version import __version__

if TYPE_CHECKING:
    from prometheus_client import CollectorRegistry
    from prometheus_client.core import Metric

_PREFIX = "preempt_collector"
_US, _NS = 1_000_000, 1_000_000_000
_Of = tuple[str, str, Callable[[Counters], float]]
_COUNTED: tuple[_Of, ...] = (
    ("scrape_failures", "Scrapes without samples.", lambda c: c.failures),
    ("scrapes_skipped", "Scrapes left out because one took too long.", lambda c: c.skipped),
    ("page_bytes", "Bytes of pages, decompressed.", lambda c: c.page_bytes),
    ("written_bytes", "Bytes written to journals.", lambda c: c.tally.written_bytes),
    ("scrapes_dropped", "Scrapes that no disk took.", lambda c: c.tally.not_written),
    ("runs", "Runs begun or taken up.", lambda c: c.runs),
)
_SHOWN: tuple[_Of, ...] = (
    ("lag_seconds", "How late the last scrape began.", lambda c: c.lag_us / _US),
    ("scrape_duration_seconds", "How long the last scrape took.", lambda c: c.duration_us / _US),
)


@dataclass
class State:
    """What the service knows beside its workers; all of it is shown."""

    instances: dict[str, int] = field(default_factory=dict)  # by target, None known: absent
    unknown: dict[str, str] = field(default_factory=dict)  # target -> why its engines are not known
    discovery_failures: dict[str, int] = field(default_factory=dict)
    reloads_failed: int = 0
    reload_error: str | None = None
    output_bytes: int | None = None
    deleted_runs: int = 0
    trouble: str | None = None  # of housekeeping


def registry_of(supervisor: Supervisor, state: State) -> "CollectorRegistry":
    """A registry of its own, with the process's memory and descriptors in it."""
    from prometheus_client import CollectorRegistry, ProcessCollector
    from prometheus_client.registry import Collector

    class Ours(Collector):
        def collect(self) -> "Iterator[Metric]":
            yield from _of_service(supervisor, state)
            yield from _of_workers(list(supervisor.workers.values()))

    registry = CollectorRegistry(auto_describe=False)
    registry.register(Ours())
    ProcessCollector(registry=registry)
    return registry


def _of_service(supervisor: Supervisor, state: State) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge

    info = Gauge(f"{_PREFIX}_build_info", "Release of this collector.", labels=["version"])
    info.add_metric([__version__], 1)
    yield info
    targets = Gauge(f"{_PREFIX}_targets", "Engines found for a target.", labels=["target"])
    for target, count in state.instances.items():
        targets.add_metric([target], count)
    yield targets
    failed = Counter(
        f"{_PREFIX}_discovery_failures", "Times a target's engines were unknown.", labels=["target"]
    )
    for target, count in state.discovery_failures.items():
        failed.add_metric([target], count)
    yield failed
    for name, text, value in (
        ("collectors_begun", "Collectors that were begun.", supervisor.begun),
        ("reload_failures", "Reloads of the file that were refused.", state.reloads_failed),
        ("deleted_runs", "Ended runs that retention deleted.", state.deleted_runs),
    ):
        yield Counter(f"{_PREFIX}_{name}", text, value=value)
    if state.output_bytes is not None:
        text = "Bytes of all runs when they were last looked at."
        yield Gauge(f"{_PREFIX}_output_bytes", text, value=state.output_bytes)


def _of_workers(workers: list[Worker]) -> "Iterator[Metric]":
    from prometheus_client.core import CounterMetricFamily as Counter
    from prometheus_client.core import GaugeMetricFamily as Gauge

    by = ["target", "instance"]
    running = Gauge(f"{_PREFIX}_running", "Whether the engine is being collected.", labels=by)
    outcomes = Counter(f"{_PREFIX}_scrapes", "Scrapes by outcome.", labels=[*by, "outcome"])
    problems = Counter(f"{_PREFIX}_disk_problems", "What the disk refused.", labels=[*by, "kind"])
    success = Gauge(
        f"{_PREFIX}_last_success_timestamp_seconds", "When samples last came.", labels=by
    )
    counters = [(Counter(f"{_PREFIX}_{name}", text, labels=by), of) for name, text, of in _COUNTED]
    gauges = [(Gauge(f"{_PREFIX}_{name}", text, labels=by), of) for name, text, of in _SHOWN]
    for worker in workers:
        names = [worker.job.instance.target, worker.job.instance.name]
        running.add_metric(names, not worker.over)
        if worker.collector is None:
            continue
        found = worker.collector.counters
        for counter, of in counters:
            counter.add_metric(names, of(found))
        for gauge, of in gauges:
            gauge.add_metric(names, of(found))
        for outcome, count in sorted(found.outcomes.items()):
            outcomes.add_metric([*names, outcome], count)
        for kind, count in sorted(found.tally.problems.items()):
            problems.add_metric([*names, kind], count)
        if found.last_ok_unix_ns is not None:
            success.add_metric(names, found.last_ok_unix_ns / _NS)
    yield from (running, outcomes, problems, success)
    yield from (counter for counter, _ in counters)
    yield from (gauge for gauge, _ in gauges)
