"""How every statistical predicate is decided: an interval of pair differences against a limit.

The whole interval below the limit passes, the whole interval at or above it fails, anything else
is inconclusive. Of windows the interval is of means of neighbouring ones (`Design.block`). What is
decided is what the report shows: nine significant digits, so that another machine's mathematics
library gives the same bytes and the same verdict.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import Any

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Design
from analysis.gate.evidence import Row
from analysis.gate.predicates.common import count, percent
from analysis.gate.statistics import (
    Interval,
    effect,
    holm,
    p_above,
    pairs_to_decide,
    rounded,
    spread,
    windows_to_decide,
)
from analysis.gate.validity import Objection
from analysis.gate.verdict import FAIL, INCONCLUSIVE, PASS, PredicateResult
from replay.strict import printable

_DISAGREE = "estimators_disagree"


@dataclass(frozen=True)
class Question:
    """What is asked of the pairs, as an increase that must stay below `limit`.

    `values` are one number a pair, `unit` turns them and their bounds into what is reported;
    `limit` is in the reported unit and `raw_limit` in theirs. `at_least` turns it round: a share
    that must not be below the limit. `what` begins the sentence.
    """

    what: str
    values: Sequence[float]
    limit: float
    raw_limit: float
    unit: Callable[[float], float] = float
    at_least: bool = False
    signed: bool = True


def too_few_pairs(pairs: int, design: Design) -> Objection | None:
    """Objection to fewer pairs than the statistics need."""
    if pairs >= design.least_pairs:
        return None
    why = f"needs {count(design.least_pairs, 'pair')} of runs, {pairs} given"
    if design.windows:
        why = f"needs {design.least_pairs} windows that are whole on both sides, {pairs} found"
    return Objection("too_few_pairs", why)


def unknown_end(runs: Sequence[GateRun]) -> Objection | None:
    """Objection to runs of which nobody knows how long they were observed."""
    endless = [r for r in runs if r.value("drain_end_us") is None]
    if not endless:
        return None
    name = printable(endless[0].run_id)
    return Objection("no_data", f"cannot be judged: the end of observation of {name} is unknown")


def missing_values(
    runs: Sequence[GateRun], by_run: Mapping[str, Row], what: str
) -> Objection | None:
    """Objection to eligible requests that should have a value and have none."""
    for run in runs:
        if number := by_run.get(run.run_id, {}).get("unknown", 0):
            requests = count(number, "eligible request")
            why = f"cannot be judged: {requests} of {printable(run.run_id)} without {what}"
            return Objection("no_data", why)
    return None


def too_few_eligible(
    runs: Sequence[GateRun], by_run: Mapping[str, Row], least: int
) -> Objection | None:
    """Objection to a run, or a window, with fewer requests than the statistic needs."""
    fewest = min((by_run.get(r.run_id, {}).get("requests", 0) for r in runs), default=0)
    if fewest >= least:
        return None
    unit = "window and side" if any(r.parts for r in runs) else "run"
    why = f"needs at least {least} eligible requests a {unit}, {fewest} given"
    return Objection("too_few_eligible", why)


def decide(
    question: Question,
    design: Design,
    objections: Sequence[Objection | None],
    blocked: Mapping[str, Objection] | None = None,
) -> dict[str, Any]:
    """The deciding fields of a result; the first objection there is keeps it inconclusive.

    `blocked` holds objections to one verdict only.
    """
    standing = [o for o in objections if o is not None]
    values = question.values
    shown: dict[str, Any] = {}
    if values and all(map(isfinite, values)):
        if not question.at_least:  # those are one side's shares, shown as such
            shown["effects"] = tuple(rounded(question.unit(v)) for v in values)
        judged = blocks(values, design)
        shown["estimate"] = rounded(question.unit(sum(judged) / len(judged)))
        if len(values) >= design.least_pairs:
            shown |= _bounds(question, design)
        if len(values) > 1:
            shown["pairs_needed"] = _needed(question, design)
    elif not standing:
        standing.append(Objection("no_data", "cannot be judged: not every pair has a number"))
    if not standing:
        verdict, reason = _verdict(question, design, shown)
        if blocked and verdict in blocked:
            standing.append(blocked[verdict])
        else:
            reasons = () if reason is None else (reason,)
            needed = shown["pairs_needed"] if verdict == INCONCLUSIVE else None
            why = _words(question, shown, reason)
            decided = {"verdict": verdict, "why": why, "reasons": reasons}
            return shown | decided | {"pairs_needed": needed}
    codes = tuple(dict.fromkeys(o.reason for o in standing))
    shown["p_value"] = None  # what is not judged is no test that others are adjusted for
    if "too_few_pairs" not in codes:
        shown["pairs_needed"] = None  # more pairs would not answer the objection
    return shown | {"verdict": INCONCLUSIVE, "why": standing[0].why, "reasons": codes}


def blocks(values: Sequence[float], design: Design) -> list[float]:
    """What an interval is made of: pairs' differences, or means of neighbouring windows'.

    Windows behind the last whole block are left out; fewer than a block are one.
    """
    length = min(design.block(len(values)), len(values))
    whole = len(values) // length * length
    return [sum(values[k : k + length]) / length for k in range(0, whole, length)]


def method(design: Design, of: str) -> str:
    """How an interval was made, for the report."""
    bound = percent(1 - design.tail)
    if design.windows:
        of = f"{of.replace('pair', 'window')}, means of neighbouring windows"
    return f"{of}; union of Student t and exact signed rank, each bound one-sided {bound}"


def adjusted(found: Sequence[PredicateResult]) -> tuple[PredicateResult, ...]:
    """Results with Holm's p over all of the gate's tests; those that fail print it."""
    tested = [k for k, r in enumerate(found) if r.p_value is not None]
    results = list(found)
    for k, p in zip(tested, holm([found[k].p_value or 0.0 for k in tested]), strict=True):
        shown = rounded(p)
        results[k] = replace(results[k], p_holm=shown)
        if results[k].verdict == FAIL:
            results[k] = replace(results[k], why=f"{results[k].why}, Holm-adjusted p {shown:.2g}")
    return tuple(results)


def _bounds(question: Question, design: Design) -> dict[str, Any]:
    values = blocks(question.values, design)
    found = effect(values, design.tail)
    sign = -1 if question.at_least else 1
    p = p_above([sign * v for v in values], sign * question.raw_limit)
    return {
        "low": rounded(question.unit(found.low)),
        "high": rounded(question.unit(found.high)),
        "p_value": rounded(p),
    }


def _verdict(
    question: Question, design: Design, shown: Mapping[str, Any]
) -> tuple[str, str | None]:
    """Verdict of the union, and why it is open where it is."""
    verdict = _side(Interval(shown["low"], shown["high"]), question)
    if verdict != INCONCLUSIVE:
        return verdict, None if verdict == PASS else "limit_exceeded"
    found = effect(blocks(question.values, design), design.tail)
    alone = {
        _side(Interval(rounded(question.unit(i.low)), rounded(question.unit(i.high))), question)
        for i in (found.student, found.ranks)
    }
    return verdict, _DISAGREE if len(alone) > 1 else "interval_spans_limit"


def _side(interval: Interval, question: Question) -> str:
    """On which side of the limit an interval lies; a share at its least is kept."""
    limit = rounded(question.limit)
    if question.at_least:
        return PASS if interval.low >= limit else FAIL if interval.high < limit else INCONCLUSIVE
    return PASS if interval.high < limit else FAIL if interval.low >= limit else INCONCLUSIVE


def _needed(question: Question, design: Design) -> int | None:
    values = blocks(question.values, design)
    if len(values) < 2:  # noqa: PLR2004 - a spread needs two
        return None
    distance = abs(question.raw_limit - sum(values) / len(values))
    if not design.windows:
        least = max(design.least_pairs, len(values))
        return pairs_to_decide(distance, spread(values), design.tail, least)
    return windows_to_decide(
        distance, spread(values), design.tail, len(values), len(question.values)
    )


def _words(question: Question, shown: Mapping[str, Any], reason: str | None) -> str:
    form = _change if question.signed else percent
    limit = "at least" if question.at_least else "limit"
    words = (
        f"found {question.what} {form(shown['estimate'])} ({form(shown['low'])} to"
        f" {form(shown['high'])}, {limit} {form(question.limit)})"
    )
    return f"{words}, and two ways to estimate it disagree" if reason == _DISAGREE else words


def _change(share: float) -> str:
    return f"{share * 100:+.3g} %"
