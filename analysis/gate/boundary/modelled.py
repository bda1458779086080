"""The gate's statistics of a replay: the formulas of measured runs over modelled times.

Times are microseconds where the replay is timed, else ticks; the gate's microseconds are then
counted in ticks of the configuration's declared length. Everybody is followed to the end, so that
eligible is who arrives after the warm-up, at the unchanged rate: the same requests at every rate.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from math import expm1, fsum, inf, isnan, log, log1p
from typing import TYPE_CHECKING, Any, TypeAlias

from analysis.gate.contract import SLICE_COLUMNS, Design, Gate, Predicate, Slice
from analysis.gate.statistics import rounded
from replay.workload import Workload

if TYPE_CHECKING:
    import polars as pl

WITHIN, BEYOND = "within", "beyond"
_QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
# Where a time begins and ends: columns of timed replays, then of others.
_TIMED = {
    "queue_time_us": "modelled_queue_us",
    "ttft_us": "modelled_ttft_us",
    "tpot_us": "modelled_tpot_us",
    "e2e_us": "modelled_e2e_us",
}
_TICKS = {
    "queue_time_us": ("arrival_tick", "first_admit_tick"),
    "ttft_us": ("arrival_tick", "first_token_tick"),
    "e2e_us": ("arrival_tick", "completion_tick"),
}
MODELLED_FIELDS = tuple(_TIMED)
_REQUEST_COLUMN = {"max_tokens": "output_tokens"}  # what a workload calls a measured column
Tables: TypeAlias = "tuple[pl.DataFrame, pl.DataFrame]"  # a replay of each side


@dataclass(frozen=True)
class LimitTest:
    """One limit over latencies: what has to stay on its side."""

    predicate: Predicate
    statistic: str
    limit: float
    part: Slice | None

    def fields(self) -> tuple[str, ...]:
        """Latencies it looks at."""
        if self.predicate.field is not None:
            return (self.predicate.field,)
        return tuple(field for field, _ in self.predicate.slo or ())

    def side(self, estimate: float) -> str:
        """On which side of the limit a reported estimate lies; at an upper limit is beyond it."""
        if self.statistic == "good_fraction":
            return WITHIN if estimate >= rounded(self.limit) else BEYOND
        return BEYOND if estimate >= rounded(self.limit) else WITHIN


@dataclass(frozen=True)
class Estimate:
    """A test's point estimate in its reported unit; None with the reason where there is none.

    An infinite one (a wait where the baseline has none) has a side and no number.
    """

    value: float | None
    side: str | None
    why: str | None = None


def tests_of(gate: Gate) -> tuple[LimitTest, ...]:
    """Every limit that a regression or a goodput predicate sets, in the gate's order."""
    return tuple(
        LimitTest(p, statistic, limit, gate.slice_of(p))
        for p in gate.predicates
        if p.kind in ("regression", "goodput")
        for statistic, limit in p.tests
    )


def estimate(
    test: LimitTest,
    design: Design,
    workloads: Sequence[Workload],
    found: Sequence[Tables],
    tick_us: int,
) -> Estimate:
    """Mean over workloads of what either side's replay comes to; `tick_us` is 1 where timed."""
    foreign = [f for f in test.fields() if f not in MODELLED_FIELDS]
    if foreign:
        return Estimate(None, None, f"no replay models {', '.join(foreign)}")
    values = []
    for workload, tables in zip(workloads, found, strict=True):
        mask = _eligible(workload, test.part, design)
        if not any(mask):
            return Estimate(None, None, "no request of the workload is eligible")
        one = _one(test, design, [t.filter(mask) for t in tables], tick_us)
        if one is None:
            why = f"requests without {test.predicate.field} in a replay, and no follow-up to cap it"
            return Estimate(None, None, why)
        values.append(one)
    mean = sum(values) / len(values)
    if isnan(mean):
        return Estimate(None, None, "infinite changes in both directions")
    if test.predicate.kind == "regression":
        # Beyond every limit there may be: e^x is no double there.
        mean = expm1(mean) if mean < log1p(1e9) else inf
    shown = None if mean == inf else rounded(mean)
    return Estimate(shown, test.side(mean if shown is None else shown))


def _one(test: LimitTest, design: Design, tables: Sequence["pl.DataFrame"], tick_us: int) -> Any:
    """The number of one workload: a logarithm, a share, or a drop of it."""
    if test.predicate.kind == "goodput":
        before, after = (_good(table, test.predicate, tick_us) for table in tables)
        return after if test.statistic == "good_fraction" else before - after
    base, cand = (_statistic(table, test, design.follow_up_us // tick_us) for table in tables)
    if base is None or cand is None:
        return None
    floor = (test.predicate.floor_us or 0) / tick_us
    if base == cand:
        return 0.0
    if base + floor == 0 or cand + floor == 0:
        return inf if base < cand else -inf
    return log((cand + floor) / (base + floor))


def _statistic(table: "pl.DataFrame", test: LimitTest, cap: int) -> float | None:
    import numpy as np

    values = _capped(table, test.predicate.field or "", cap)
    if values.null_count() or not len(values):
        return None
    if test.statistic == "mean":
        return fsum(values.to_list()) / len(values)
    return float(np.quantile(values.to_numpy(), _QUANTILES[test.statistic]))


def _capped(table: "pl.DataFrame", field: str, cap: int) -> "pl.Series":
    """Times of every request that can have one, cut off; null where not reached and not capped."""
    if field == "tpot_us":
        table = table.filter(table["output_tokens"] > 1)
    values = _times(table, field)
    if not cap:
        return values
    return values.fill_null(cap).clip(upper_bound=cap)


def _times(table: "pl.DataFrame", field: str) -> "pl.Series":
    if _TIMED[field] in table.columns:
        return table[_TIMED[field]]
    if field == "tpot_us":
        return table["modelled_tpot_ticks"]
    start, end = _TICKS[field]
    return table[end] - table[start]


def _good(table: "pl.DataFrame", predicate: Predicate, tick_us: int) -> float:
    """Share of requests that are complete and meet every objective; one token has no TPOT."""
    good = table["status"] == "complete"
    for field, limit_us in predicate.slo or ():
        met = _times(table, field) * tick_us <= limit_us
        if field == "tpot_us":
            met |= table["output_tokens"] <= 1
        good &= met.fill_null(value=False)
    return float(good.sum() / len(good))


def _eligible(workload: Workload, part: Slice | None, design: Design) -> list[bool]:
    def inside(request: Any) -> bool:
        if request.arrival_us < design.warmup_us:
            return False
        for c in part.where if part else ():
            column = SLICE_COLUMNS[c.column]
            value = getattr(request, _REQUEST_COLUMN.get(column, column))
            if c.any_of is not None:
                if value not in c.any_of:
                    return False
            elif (c.min is not None and value < c.min) or (c.max is not None and value > c.max):
                return False
        return True

    return [inside(request) for request in workload.requests]
