"""The one answer to everything that this version cannot decide: inconclusive, and why.

Noise profiles come with a later version.
"""

from analysis.gate.verdict import PredicateResult

NOT_AVAILABLE = "cannot be decided by this version"
_REASONS = ("statistics_not_available",)


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
