"""The one answer to everything that this version cannot decide: inconclusive, and why.

Statistics over pairs come with a later version. Until then a predicate that needs them says so
first, because no number of pairs would change it, and then how many pairs it will need.
"""

from typing import Any

from analysis.gate.contract import Design, Predicate
from analysis.gate.predicates.common import count
from analysis.gate.verdict import PredicateResult

NOT_AVAILABLE = "cannot be decided by this version, which has no statistics yet"


def no_statistics(
    predicate: Predicate, pairs: int, design: Design, **shown: Any
) -> PredicateResult:
    """Inconclusive result of a statistical predicate."""
    least = design.least_pairs
    unit = "window pair" if design.kind == "windows" else "pair"
    why = NOT_AVAILABLE
    reasons: tuple[str, ...] = ("statistics_not_available",)
    if pairs < least:
        why += f" (it will need {count(least, unit)} of runs, {pairs} given)"
        reasons = ("statistics_not_available", "too_few_pairs")
    return PredicateResult(
        id=predicate.id,
        kind=predicate.kind,
        verdict="inconclusive",
        why=why,
        slice=predicate.slice,
        reasons=reasons,
        **shown,
    )


def not_available(name: str, kind: str, evidence: str = "measured") -> PredicateResult:
    """Inconclusive result of a check that follows from the gate as a whole."""
    return PredicateResult(
        id=name,
        kind=kind,
        verdict="inconclusive",
        why=NOT_AVAILABLE,
        evidence=evidence,
        reasons=("statistics_not_available",),
    )
