"""What has to be true of the runs before any statistic of theirs means something.

The order in which they were made must not favour a side, and the baseline must not have been
drowning: a queue that grows throughout a run has no mean to compare.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from analysis.gate.comparability import GateRun
from analysis.gate.evidence import Row
from analysis.gate.statistics import rounded

# Added to both quarters, so that 3 ms after 1 ms is no queue that grows.
STEADY_FLOOR_US = 50_000
STEADY_RATIO = 2
LAST, SECOND = 4, 2
UNFOLLOWED = "needs design.follow_up_us: at 0 every latency is cut off"


@dataclass(frozen=True)
class Objection:
    """Why statistics are not decided: a reason code, and the phrase that follows the id."""

    reason: str
    why: str


def unbalanced(runs: Sequence[GateRun]) -> Objection | None:
    """Objection to the order the runs were made in; None where it is balanced.

    `runs` are in report order. The two runs of a pair have to follow each other, and either side
    has to be the first of as many pairs, or of one more.
    """
    places = _places(runs)
    if places is None:
        why = "cannot be decided: nobody knows in which order the runs were made"
        return Objection("order_not_balanced", why)
    baseline_first = 0
    for base, cand in zip(places[::2], places[1::2], strict=True):
        if abs(base - cand) != 1:
            why = "cannot be decided: the two runs of a pair were not made one after the other"
            return Objection("order_not_balanced", why)
        baseline_first += base < cand
    pairs = len(runs) // 2
    if abs(pairs - 2 * baseline_first) > 1:
        why = (
            f"cannot be decided: the baseline came first in {baseline_first} of {pairs} pairs,"
            " which favours one side"
        )
        return Objection("order_not_balanced", why)
    return None


@dataclass(frozen=True)
class Steadiness:
    """Growth of each baseline run's queue and of all together, None where unknown; what is wrong.

    Growth is the mean queue time of the last over that of the second quarter, the floor added.
    """

    ratios: tuple[float | None, ...]
    ratio: float | None
    objection: Objection | None


def steadiness(quarters: Sequence[Row], runs: Sequence[GateRun], follow_up_us: int) -> Steadiness:
    """How the queue grew in baseline runs, from rows of `queue_by_quarter`."""
    found = {(row["run_id"], row["quarter"]): row for row in quarters}
    second, last = (
        [_mean_us(found.get((run.run_id, quarter))) for run in runs] for quarter in (SECOND, LAST)
    )
    ratios = tuple(_growth([a], [b]) for a, b in zip(second, last, strict=True))
    ratio = _growth(second, last)
    objection = None
    if not follow_up_us:
        objection = Objection("censored", UNFOLLOWED)
    elif ratio is None:
        why = "cannot be shown: the baseline's queue times are not known"
        objection = Objection("no_data", why)
    elif ratio > STEADY_RATIO:
        why = f"found that the baseline's queue grew {ratio:.3g}-fold within its runs"
        objection = Objection("saturated", why)
    return Steadiness(ratios, ratio, objection)


def _places(runs: Sequence[GateRun]) -> list[int] | None:
    """Rank of each run by its start, else by what its manifest says; None where unknown."""
    for key in (_start, _order):
        values = [key(r) for r in runs]
        if None not in values and len(set(values)) == len(values):
            ranked = sorted(values)
            return [ranked.index(v) for v in values]
    return None


def _start(run: GateRun) -> Any:
    """Start of a run as text that sorts by time: UTC, its fraction as long as any."""
    start = run.value("start")
    if start is None:
        return None
    whole, _, fraction = start.removesuffix("Z").partition(".")
    return f"{whole}.{fraction:0<9}"


def _order(run: GateRun) -> Any:
    return run.value("comparison.order")


def _mean_us(row: Mapping[str, Any] | None) -> Fraction | None:
    if row is None or row["unknown"] or not row["requests"]:
        return None
    return Fraction(row["sum_us"], row["requests"])


def _growth(second: Sequence[Fraction | None], last: Sequence[Fraction | None]) -> float | None:
    """Last over second, both in sum and with the floor of each run; None where one is unknown."""
    floor = STEADY_FLOOR_US * len(second)
    before, after = [v for v in second if v is not None], [v for v in last if v is not None]
    if not second or len(before) < len(second) or len(after) < len(last):
        return None
    return rounded(float((sum(after) + floor) / (sum(before) + floor)))
