"""What becomes of one limit of a rollback rule: it holds, it does not, or nobody can tell."""

from collections.abc import Sequence
from dataclasses import dataclass

from analysis.gate.contract import Predicate
from analysis.gate.predicates.common import count
from analysis.gate.validity import Objection

HOLDS, HOLDS_NOT, UNKNOWN = "holds", "does not hold", "cannot tell"


@dataclass(frozen=True)
class Answer:
    """One limit of one rule: what was found on either side, and whether it is beyond the limit.

    `change` is in the limit's unit: relative of a latency, a difference of shares otherwise.
    """

    predicate: str
    action: str
    state: str
    why: str
    limit_name: str | None = None
    limit: float | None = None
    field: str | None = None
    statistic: str | None = None
    slice: str | None = None
    baseline: float | None = None
    candidate: float | None = None
    change: float | None = None
    reason: str | None = None


def few(requests: int, least: int) -> Objection | None:
    """Objection to fewer requests than a number needs."""
    if requests >= least:
        return None
    why = f"needs at least {count(least, 'request')} in the window, {requests} found"
    return Objection("too_few_eligible", why)


def missing(number: int) -> Objection | None:
    """Objection to requests that should have a value and have none."""
    if not number:
        return None
    return Objection("no_data", f"{count(number, 'request')} without a value that is needed")


def judged(
    predicate: Predicate, words: str, *, holds: bool, objections: Sequence[Objection | None]
) -> Answer:
    """What is beyond its limit for certain holds; objections are to the contrary alone."""
    if holds:
        return held(predicate, words)
    first = next((o for o in objections if o is not None), None)
    return not_held(predicate, words) if first is None else unknown(predicate, first)


def held(predicate: Predicate, why: str) -> Answer:
    """It is beyond its limit."""
    return Answer(predicate.id, "", HOLDS, why)


def not_held(predicate: Predicate, why: str) -> Answer:
    """It is within its limit."""
    return Answer(predicate.id, "", HOLDS_NOT, why)


def unknown(predicate: Predicate, objection: Objection | None) -> Answer:
    """Nobody can tell, and why."""
    if objection is None:
        raise ValueError(predicate.id)
    return Answer(predicate.id, "", UNKNOWN, objection.why, reason=objection.reason)
