"""Whether evidence is coming in, and if not, why not. Pure."""

from collections.abc import Iterable, Iterator

from collectors.service.meters import State
from collectors.service.supervise import Worker

_INTERVALS = 5
_LEAST_US = 15_000_000
_MOST_REASONS = 50


def reasons(workers: Iterable[Worker], state: State, unix_ns: int) -> list[str]:
    """Why the service is not healthy, one line each; empty when it is."""
    found = [*_of_service(state), *_of_workers(workers, unix_ns)]
    more = len(found) - _MOST_REASONS
    return found if more <= 0 else [*found[:_MOST_REASONS], f"and {more} more"]


def _of_service(state: State) -> Iterator[str]:
    for target, why in sorted(state.unknown.items()):
        yield f"{target}: engines unknown: {why}"
    for target, count in sorted(state.instances.items()):
        if not count:
            yield f"{target}: no engine found"
    if state.reload_error is not None:
        yield f"reload refused, the old configuration goes on: {state.reload_error}"
    if state.trouble is not None:
        yield f"output: {state.trouble}"


def _of_workers(workers: Iterable[Worker], unix_ns: int) -> Iterator[str]:
    for worker in workers:
        name = f"{worker.job.instance.target}/{worker.job.instance.name}"
        if worker.over:
            yield f"{name}: not collecting: {worker.failed or 'ended'}"
            continue
        collect = worker.job.collect
        patience_us = max(_INTERVALS * collect.interval_us + collect.timeout_us, _LEAST_US)
        counters = worker.collector.counters if worker.collector else None
        last_ns = (counters and counters.last_ok_unix_ns) or worker.began_unix_ns
        if (unix_ns - last_ns) // 1000 > patience_us:
            yield f"{name}: no samples for {(unix_ns - last_ns) // 1_000_000_000} s"
        if counters and counters.tally.not_written:
            yield f"{name}: {counters.tally.not_written} scrapes lost, the disk took none"
