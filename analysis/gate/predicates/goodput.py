"""P4: enough offered requests meet every objective, and not fewer than on the baseline.

Statistics over runs and over pairs: inconclusive until this version has statistics.
"""

from analysis.gate.contract import Design, Predicate
from analysis.gate.predicates.not_yet import no_statistics
from analysis.gate.verdict import PredicateResult


def judge(predicate: Predicate, pairs: int, design: Design) -> list[PredicateResult]:
    """One result per limit that is set."""
    limits = {"good_fraction": predicate.min_fraction, "good_drop": predicate.max_drop}
    return [
        no_statistics(predicate, pairs, design, statistic=statistic, limit=limit)
        for statistic, limit in limits.items()
        if limit is not None
    ]
