"""P3: a latency statistic of the candidate is at most so much worse than the baseline's.

One number a run, over values that are cut off at the follow-up time: a request that failed or was
never answered took at least that long, so no candidate looks better for losing the slow ones. One
difference a pair, ln((C + floor) / (B + floor)). A value that is missing, and a zero that cannot
have been measured, is no data and never zero.
"""

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import expm1, log, log1p
from typing import TYPE_CHECKING, Any

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Design, Predicate, Slice
from analysis.gate.evidence import Row, slice_rows
from analysis.gate.predicates.common import SIDES, of_side
from analysis.gate.predicates.effects import (
    Question,
    decide,
    method,
    missing_values,
    too_few_eligible,
    too_few_pairs,
    unknown_end,
)
from analysis.gate.statistics import rounded
from analysis.gate.validity import UNFOLLOWED, Objection
from analysis.gate.verdict import FAIL, PASS, PredicateResult
from replay.strict import printable

if TYPE_CHECKING:
    import duckdb

QUANTILES = ("p50", "p90", "p95", "p99")  # as capped_latencies.sql has them
# Times that really are 0 where there was nothing to wait for; the query has ruled out the others.
_MAY_BE_ZERO = ("requeue_time_us", "decode_time_us")
_TAIL_REQUESTS = 20  # expected beyond a quantile


def ask(
    db: "duckdb.DuckDBPyConnection",
    runs: Sequence[GateRun],
    predicate: Predicate,
    part: Slice | None,
    design: Design,
    objections: Sequence[Objection | None] = (),
) -> list[PredicateResult]:
    """`judge` of what `read` finds."""
    found = read(db, runs, predicate, part, design)
    return judge(predicate, runs, found, design, least_eligible(predicate, part), objections)


def read(
    db: "duckdb.DuckDBPyConnection",
    runs: Sequence[GateRun],
    predicate: Predicate,
    part: Slice | None,
    design: Design,
) -> list[Row]:
    """Statistics of every run that has eligible requests."""
    return slice_rows(db, "capped_latencies", part, runs, design, field=predicate.field)


def judge(
    predicate: Predicate,
    runs: Sequence[GateRun],
    found: Sequence[Row],
    design: Design,
    least: int,
    objections: Sequence[Objection | None],
) -> list[PredicateResult]:
    """One result; `least` requests a run, `objections` are to any statistic of these runs."""
    by_run = {row["run_id"]: row for row in found}
    values = values_of(predicate, runs, by_run)
    floor = predicate.floor_us or 0
    pairs = list(zip(values["baseline"], values["candidate"], strict=True))
    limit = predicate.max_regression or 0.0
    question = Question(
        what=f"{predicate.statistic} of {predicate.field} changed by",
        values=_differences(pairs, floor),
        limit=limit,
        raw_limit=log1p(limit),
        unit=expm1,
    )
    reached = cut_off(pairs, predicate, design)
    decided = decide(
        question,
        design,
        [
            too_few_pairs(len(pairs), design),
            *standing(predicate, runs, by_run, design, least),
            *objections,
            reached.get("both"),
        ],
        reached,
    )
    return [
        PredicateResult(
            id=predicate.id,
            kind=predicate.kind,
            field=predicate.field,
            statistic=predicate.statistic,
            slice=predicate.slice,
            baseline=tuple(values["baseline"]),
            candidate=tuple(values["candidate"]),
            limit=limit,
            cap=design.follow_up_us,
            method=method(design, "ln((candidate + floor) / (baseline + floor)) per pair"),
            **decided,
        )
    ]


def values_of(
    predicate: Predicate, runs: Sequence[GateRun], by_run: Mapping[str, Row]
) -> dict[str, list[float | None]]:
    """The statistic of every run of a side, in pair order; None where it is not known."""
    return {
        side: [_value(by_run.get(r.run_id), predicate) for r in of_side(runs, side)]
        for side in SIDES
    }


def standing(
    predicate: Predicate,
    runs: Sequence[GateRun],
    by_run: Mapping[str, Row],
    design: Design,
    least: int,
) -> list[Objection | None]:
    """Objections to the values themselves, however many pairs there are."""
    values = values_of(predicate, runs, by_run)
    pairs = list(zip(values["baseline"], values["candidate"], strict=True))
    return [
        _follow_up(design),
        unknown_end(runs),
        missing_values(runs, by_run, predicate.field or ""),
        too_few_eligible(runs, by_run, least),
        _nobody(runs, by_run, predicate),
        _zero(predicate, pairs, predicate.floor_us or 0),
    ]


def least_eligible(predicate: Predicate, part: Slice | None) -> int:
    """Requests a run needs: what the slice says, else 20 beyond the quantile on average."""
    if part is not None and part.min_eligible is not None:
        return part.min_eligible
    share = {"p90": Fraction(90, 100), "p95": Fraction(95, 100), "p99": Fraction(99, 100)}
    return int(_TAIL_REQUESTS / (1 - share.get(predicate.statistic or "", Fraction(1, 2))))


def _value(row: Row | None, predicate: Predicate) -> float | None:
    """The run's statistic in microseconds, None where any of its values is missing."""
    if row is None or row["unknown"] or not row["requests"]:
        return None
    if predicate.statistic == "mean":
        found = float(Fraction(row["sum_us"], row["requests"]))
    else:
        found = row["quantiles_us"][QUANTILES.index(predicate.statistic or "")]
    return rounded(found)


def _differences(
    pairs: Sequence[tuple[float | None, float | None]], floor: int
) -> tuple[float, ...]:
    """One logarithm a pair; nothing at all unless every pair has one."""
    found = [
        log((cand + floor) / (base + floor))
        for base, cand in pairs
        if base is not None and cand is not None and base + floor > 0 and cand + floor > 0
    ]
    return tuple(found) if len(found) == len(pairs) else ()


def _follow_up(design: Design) -> Objection | None:
    if design.follow_up_us:
        return None
    return Objection("censored", UNFOLLOWED)


def _nobody(
    runs: Sequence[GateRun], by_run: Mapping[str, Row], predicate: Predicate
) -> Objection | None:
    """Objection to a baseline run in which nobody got as far as the value: that is no baseline."""
    for run in of_side(runs, "baseline"):
        row = by_run.get(run.run_id)
        if row is not None and row["lost"] == row["requests"]:
            why = f"cannot be judged: nobody in {printable(run.run_id)} has a {predicate.field}"
            return Objection("no_data", why)
    return None


def _zero(
    predicate: Predicate, pairs: Sequence[tuple[float | None, float | None]], floor: int
) -> Objection | None:
    zeros = [v for pair in pairs for v in pair if v == 0]
    if zeros and predicate.field not in _MAY_BE_ZERO:
        why = (
            f"cannot be judged: {predicate.statistic} of {predicate.field} is 0, as if not measured"
        )
        return Objection("no_data", why)
    if zeros and not floor:
        why = f"cannot be judged: {predicate.field} is 0 in a run and floor_us is not set"
        return Objection("no_data", why)
    return None


def cut_off(
    pairs: Sequence[tuple[float | None, float | None]], predicate: Predicate, design: Design
) -> dict[str, Any]:
    """Objections where a quantile reached the follow-up time, which is then all that is known.

    On both sides of a pair nothing is known of their difference. A candidate cut off there may be
    worse than it looks and cannot pass; with a baseline cut off there, the candidate may be better
    by comparison than it looks and cannot fail.
    """
    cap = design.follow_up_us
    what = f"{predicate.statistic} of {predicate.field} reached the follow-up of {cap} us"
    at = [tuple(v is not None and v >= cap for v in pair) for pair in pairs]
    found = {}
    if any(base and cand for base, cand in at):
        found["both"] = Objection("censored", f"cannot be judged: {what} on both sides of a pair")
    if any(cand for _, cand in at):
        found[PASS] = Objection("censored", f"cannot pass: {what} in a candidate run")
    if any(base for base, _ in at):
        found[FAIL] = Objection("censored", f"cannot fail: {what} in a baseline run")
    return found
