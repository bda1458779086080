"""Checks that follow from a gate as a whole and have no `[[predicate]]` table of their own.

P7 steady is decided here, P6 rollback_defined and the request mix of windows in their own modules.
P8 boundary and a required noise profile are not decided by this version: a gate that asks for one
is inconclusive.
"""

from collections.abc import Sequence

from analysis.gate.contract import Gate
from analysis.gate.predicates.not_yet import not_available
from analysis.gate.validity import STEADY_FLOOR_US, STEADY_RATIO, Steadiness
from analysis.gate.verdict import INCONCLUSIVE, PASS, PredicateResult


def judge(
    gate: Gate,
    mix: Sequence[PredicateResult],
    steady: Steadiness | None,
    rollback: PredicateResult | None,
) -> list[PredicateResult]:
    """Results in a fixed order, each only where the gate asks for it.

    `mix` is empty of driven runs, `steady` None without statistics, `rollback` where there is none.
    """
    found = [*mix]
    if gate.evidence.noise_profile == "required":
        found.append(not_available("noise-profile", "noise_profile"))
    if steady is not None:
        found.append(_steady(steady))
    if gate.boundary is not None:
        found.append(not_available("boundary", "boundary", "modelled"))
    if rollback is not None:
        found.append(rollback)
    return found


def _steady(steady: Steadiness) -> PredicateResult:
    objection = steady.objection
    if objection is None:
        why = f"found the baseline's queue {steady.ratio:.3g} times as long in the last quarter"
        verdict, reasons = PASS, tuple[str, ...]()
    else:
        verdict, why, reasons = INCONCLUSIVE, objection.why, (objection.reason,)
    return PredicateResult(
        id="steady",
        kind="steady",
        verdict=verdict,
        why=why,
        field="queue_time_us",
        statistic="queue_growth",
        baseline=steady.ratios,
        estimate=steady.ratio,
        limit=STEADY_RATIO,
        method=(
            "mean queue time of the last over the second quarter of eligible arrivals,"
            f" {STEADY_FLOOR_US} us added to both, over baseline runs"
        ),
        reasons=reasons,
    )
