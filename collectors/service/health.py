"""Whether evidence is coming in, and if not, why not and since when. Pure."""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any

from collectors.service.meters import State
from collectors.service.supervise import Worker

_INTERVALS = 5
_LEAST_US = 15_000_000
_MOST_REASONS = _MOST_DOWN = 50


def health(workers: Iterable[Worker], state: State, unix_ns: int) -> dict[str, Any]:
    """What /healthz says: `status` is ok or unhealthy, with every reason, and each engine down.

    Unhealthy is: an engine gave no samples for five intervals and a time-out, at least 15 s, or is
    not collected; a disk or spool refuses; engines of a target are unknown or none; a reload was
    refused; the output cannot be looked through.
    """
    found = list(workers)
    down = [worker for worker in found if _down(worker, unix_ns) is not None]
    why = reasons(found, state, unix_ns)
    return {
        "status": "unhealthy" if why else "ok",
        "reasons": why,
        "engines": len(found),
        "engines_down": len(down),
        "down": [_facts(worker) for worker in down[:_MOST_DOWN]],
    }


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
        if (down := _down(worker, unix_ns)) is not None:
            yield f"{name}: {down}"
        yield from (f"{name}: {trouble}" for trouble in worker.standing.troubles())


def _down(worker: Worker, unix_ns: int) -> str | None:
    """Why an engine counts as down; None while its samples come in."""
    if worker.over:
        return f"not collecting: {worker.failed or 'ended'}"
    collect, standing = worker.job.collect, worker.standing
    patience_us = max(_INTERVALS * collect.interval_us + collect.timeout_us, _LEAST_US)
    silent_ns = unix_ns - (standing.last_ok_ns or standing.began_ns)
    if silent_ns // 1000 <= patience_us:
        return None
    return f"no samples for {silent_ns // 1_000_000_000} s: {standing.last_error or 'no scrape'}"


def _facts(worker: Worker) -> dict[str, Any]:
    standing = worker.standing
    return {
        "target": worker.job.instance.target,
        "instance": worker.job.instance.name,
        "since": _moment(standing.failing_since_ns or standing.last_ok_ns or standing.began_ns),
        "last_error": worker.failed or standing.last_error,
        "last_success": _moment(standing.last_ok_ns),
    }


def _moment(unix_ns: int | None) -> str | None:
    if unix_ns is None:
        return None
    moment = datetime.fromtimestamp(unix_ns // 1_000_000_000, UTC).replace(tzinfo=None)
    return f"{moment.isoformat()}Z"
