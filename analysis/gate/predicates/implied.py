"""Checks that follow from a gate as a whole and have no `[[predicate]]` table of their own.

P7 steady is decided here, P6 rollback_defined, P8 boundary and the request mix of windows in their
own modules. A required noise profile is not decided by this version: a gate that asks for one is
inconclusive.
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
    if rollback is not None:
        found.append(rollback)
    return found


def with_boundary(
    results: Sequence[PredicateResult], boundary: Sequence[PredicateResult]
) -> tuple[PredicateResult, ...]:
    """The rows of P8 in their place, before the way back: they need the others' estimates."""
    back = [r for r in results if r.kind == "rollback_defined"]
    return (*(r for r in results if r.kind != "rollback_defined"), *boundary, *back)


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
