"""P3: a latency statistic of the candidate is at most so much worse than the baseline's.

A statistic over pairs of runs: inconclusive until this version has statistics.
"""

from analysis.gate.contract import Design, Predicate
from analysis.gate.predicates.not_yet import no_statistics
from analysis.gate.verdict import PredicateResult


def judge(predicate: Predicate, pairs: int, design: Design) -> list[PredicateResult]:
    """One result, naming field, statistic and limit as they will be judged."""
    return [
        no_statistics(
            predicate,
            pairs,
            design,
            field=predicate.field,
            statistic=predicate.statistic,
            limit=predicate.max_regression,
        )
    ]
