"""What an engine is doing now, out of two looks at its page. Pure."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from collectors.exposition.samples import Canonical, MetricSample

PREEMPTIONS, USAGE = "num_preemptions", "kv_cache_usage_frac"
RUNNING, WAITING = "num_requests_running", "num_requests_waiting"
TOKENS = ("prompt_tokens", "generation_tokens")
_START_TOLERANCE_S = 1.0
_Series = tuple[int | None, str | None, str]


@dataclass(frozen=True)
class Now:
    """Totals over engines and models, of the second look; None is not on the page.

    `between` are preemptions from the first look to the second, None where they cannot be told
    apart from a restart. `usage` is by engine.
    """

    preemptions: float | None
    between: float | None
    running: float | None
    waiting: float | None
    usage: dict[int | None, float]
    tokens: float | None
    elapsed_s: float
    fell: bool
    other_process: bool

    @property
    def stale(self) -> bool:
        """Whether requests are shown as running while no token was counted."""
        return bool(self.running) and self.tokens == 0


def now_of(first: Canonical, second: Canonical, elapsed_s: float) -> Now:
    """What happened from one page to the next."""
    preemptions, fell = _increase(first, second, {PREEMPTIONS})
    tokens, tokens_fell = _increase(first, second, set(TOKENS))
    moved = first.process_start_s, second.process_start_s
    restarted = None not in moved and abs(moved[1] - moved[0]) > _START_TOLERANCE_S  # type: ignore[operator]
    fell = fell or tokens_fell or restarted
    return Now(
        preemptions=_total(second, PREEMPTIONS, sum),
        between=None if fell else preemptions,
        running=_total(second, RUNNING, sum),
        waiting=_total(second, WAITING, sum),
        usage={sample.engine: value for sample, value in _of(second, {USAGE})},
        tokens=None if fell else tokens,
        elapsed_s=elapsed_s,
        fell=fell,
        other_process=restarted,
    )


def _increase(first: Canonical, second: Canonical, names: set[str]) -> tuple[float | None, bool]:
    """How much counters rose, and whether one fell; None where neither page has one."""
    before, after = _counts(first, names), _counts(second, names)
    if not after:
        return None, bool(before)
    fell = any(value < before.get(series, 0.0) for series, value in after.items())
    return sum(after.values()) - sum(before.values()), fell or bool(before.keys() - after.keys())


def _counts(page: Canonical, names: set[str]) -> dict[tuple[str, _Series], float]:
    return {
        (sample.name, (sample.engine, sample.model, sample.labels)): value
        for sample, value in _of(page, names)
    }


def _total(page: Canonical, name: str, over: Callable[[Iterable[float]], float]) -> float | None:
    values = [value for _, value in _of(page, {name})]
    return over(values) if values else None


def _of(page: Canonical, names: set[str]) -> list[tuple[MetricSample, float]]:
    """Samples of these names that have a number."""
    return [
        (sample, sample.value)
        for sample in page.samples
        if sample.name in names and sample.value is not None and math.isfinite(sample.value)
    ]
