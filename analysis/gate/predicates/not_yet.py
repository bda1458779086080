"""The one answer to everything that this version cannot decide: inconclusive, and why.

Statistics over the windows of a live canary, and boundaries, come with a later version.
"""

from analysis.gate.contract import Predicate
from analysis.gate.verdict import PredicateResult

NOT_AVAILABLE = "cannot be decided by this version"
_WINDOWS = "cannot be decided by this version, which has no statistics over windows of live traffic"
_REASONS = ("statistics_not_available",)


def no_statistics(predicate: Predicate) -> list[PredicateResult]:
    """Inconclusive results of a predicate's tests over windows."""
    return [
        PredicateResult(
            id=predicate.id,
            kind=predicate.kind,
            verdict="inconclusive",
            why=_WINDOWS,
            field=predicate.field,
            statistic=statistic,
            slice=predicate.slice,
            limit=limit,
            reasons=_REASONS,
        )
        for statistic, limit in predicate.tests
    ]


def not_available(name: str, kind: str, evidence: str = "measured") -> PredicateResult:
    """Inconclusive result of a check that follows from the gate as a whole."""
    return PredicateResult(
        id=name,
        kind=kind,
        verdict="inconclusive",
        why=NOT_AVAILABLE,
        evidence=evidence,
        reasons=_REASONS,
    )
