"""Whether a rollback rule holds in one window: numbers against limits, without statistics.

A rule asks what its predicate asks, with a limit of its own. It holds, it does not, or nobody can
tell: too few requests for such a number, a value that was not recorded, sides that cannot be
compared. What cannot be told is never taken for what does not hold. Counts of what must never
happen (lost tokens, a request preempted too often) are of the whole run so far: a broken promise
stays broken.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from analysis.gate.contract import Gate, Predicate, RollbackRule
from analysis.gate.evidence import Row, by_run, slice_rows
from analysis.gate.predicates import erased_progress, goodput, regression, repeated_preemption
from analysis.gate.predicates.common import count, exact, least_to_show, of_side, percent
from analysis.gate.statistics import rounded
from analysis.gate.validity import Objection
from analysis.gate.verdict import FAIL, PASS
from analysis.gate.watch_answers import Answer, few, held, judged, missing, not_held, unknown
from analysis.gate.watch_window import Window
from analysis.markdown import milliseconds

if TYPE_CHECKING:
    import duckdb

    from analysis.gate.comparability import GateRun


@dataclass(frozen=True)
class _Case:
    """What every rule needs: the store, the gate, the window and what keeps sides apart."""

    db: "duckdb.DuckDBPyConnection"
    gate: Gate
    window: Window
    runs: Sequence["GateRun"]
    incomparable: Objection | None

    def rows(self, name: str, predicate: Predicate, **values: Any) -> Mapping[str, Row]:
        part = self.gate.slice_of(predicate)
        sides = (self.window.baseline, self.window.candidate)
        return by_run(slice_rows(self.db, name, part, sides, self.gate.design, **values))

    def apart(self, predicate: Predicate) -> Objection | None:
        """Why this predicate's sides are not compared."""
        open_ones = self.window.baseline.open_requests if predicate.slice else 0
        return self.incomparable or self.window.alone or _slice_unknown(open_ones, "baseline")


def answers(
    db: "duckdb.DuckDBPyConnection",
    gate: Gate,
    window: Window,
    runs: Sequence["GateRun"],
    incomparable: Objection | None,
) -> list[Answer]:
    """One for each limit of each rule, in the gate's order."""
    case = _Case(db, gate, window, runs, incomparable)
    rules = gate.rollback.when if gate.rollback else ()
    return [answer for rule in rules for answer in _rule(case, rule)]


def _rule(case: _Case, rule: RollbackRule) -> list[Answer]:
    predicate = case.gate.predicate(rule.predicate)
    if predicate.kind == "erased_progress":
        return [_erased(case, rule, predicate)]
    ask: Mapping[str, Callable[[_Case, Predicate, float], Answer]] = {
        "max_preemptions": _preempted,
        "max_regression": _regression,
        "min_fraction": _least_good,
        "max_drop": _drop,
        "max_failed_fraction": _failed,
        "max_censored_fraction": _censored,
        "max_increase": _increase,
    }
    found = []
    for name, limit in rule.limits:
        answer = ask[name](case, predicate, limit)
        found.append(
            replace(
                answer,
                action=rule.action,
                limit_name=name,
                limit=limit,
                field=predicate.field,
                statistic=predicate.statistic,
                slice=predicate.slice,
            )
        )
    return found


def _erased(case: _Case, rule: RollbackRule, predicate: Predicate) -> Answer:
    candidates = of_side(case.runs, "candidate")
    faults = erased_progress.read(case.db, candidates, predicate).faults
    lost = {f["run_id"]: f["violating"] for f in faults if f["fault"] in erased_progress.VIOLATIONS}
    if lost:
        number = count(sum(lost.values()), "request")
        answer = held(predicate, f"generated tokens of {number} were lost")
    # A request that has not ended has events and no row: that is no fault of a live run.
    elif any(f["fault"] not in ("no_row", "contradicted") for f in faults):
        answer = unknown(predicate, Objection("no_data", "not every request's events are recorded"))
    else:
        answer = not_held(predicate, "no lost token in the run so far")
    return replace(answer, action=rule.action)


def _preempted(case: _Case, predicate: Predicate, limit: float) -> Answer:
    asked = replace(predicate, max_preemptions=int(limit))
    candidates = of_side(case.runs, "candidate")
    read = repeated_preemption.read(case.db, candidates, asked)
    above = [f for f in read.findings if f["finding"] == "above"]
    if above:
        worst = max(f["worst"] for f in above)
        return replace(held(predicate, f"a request was preempted {worst} times"), candidate=worst)
    if any(f["finding"] == "not_known" for f in read.findings):
        return unknown(predicate, Objection("no_data", "preemptions of a request are not known"))
    return not_held(predicate, "no request of the run so far was preempted more often")


def _regression(case: _Case, predicate: Predicate, limit: float) -> Answer:
    sides = (case.window.baseline, case.window.candidate)
    found = case.rows("capped_latencies", predicate, field=predicate.field)
    least = regression.least_eligible(predicate, case.gate.slice_of(predicate))
    values = regression.values_of(predicate, sides, found)
    (base,), (cand,) = values["baseline"], values["candidate"]
    design = case.gate.design
    standing = [case.apart(predicate)]
    standing += regression.standing(predicate, sides, found, design, least)
    first = next((o for o in standing if o is not None), None)
    if first is not None or base is None or cand is None:
        answer = unknown(predicate, first or missing(1))
    else:
        answer = _changed(case, predicate, limit, base, cand)
    return replace(answer, baseline=base, candidate=cand)


def _changed(case: _Case, predicate: Predicate, limit: float, base: float, cand: float) -> Answer:
    """A latency of both sides; one that reached the follow-up was at least that long."""
    floor = predicate.floor_us or 0
    change = rounded((cand + floor) / (base + floor) - 1)
    words = (
        f"{predicate.statistic} of {predicate.field} {milliseconds(cand)} ms against"
        f" {milliseconds(base)} ms"
        f" ({change * 100:+.3g} %, limit {limit * 100:+.3g} %)"
    )
    cut = regression.cut_off([(base, cand)], predicate, case.gate.design)
    if FAIL in cut:  # the baseline may be worse than it looks
        why = f"{predicate.statistic} of {predicate.field} reached the follow-up on the baseline"
        return unknown(predicate, Objection("censored", f"{why}: nobody knows how long it is"))
    standing = (cut.get(PASS), _slice_open(case, predicate))
    return replace(
        judged(predicate, words, holds=change >= limit, objections=standing), change=change
    )


def _good(case: _Case, predicate: Predicate) -> Mapping[str, Row]:
    return case.rows("good_requests", predicate, slo=goodput.limits_of(predicate))


def _least_good(case: _Case, predicate: Predicate, limit: float) -> Answer:
    row = _good(case, predicate).get(case.window.candidate.run_id)
    least = _least(case, replace(predicate, min_fraction=limit), "good_fraction")
    if row is None:
        return unknown(predicate, few(0, least))
    bad = row["requests"] - row["good"] - row["unknown"]
    allowed = (1 - exact(limit)) * max(row["requests"], least)
    share = rounded(row["good"] / row["requests"])
    words = f"{percent(share)} of {row['requests']} requests good (at least {percent(limit)})"
    return replace(
        judged(
            predicate,
            words,
            holds=bad > allowed,
            objections=(
                missing(row["unknown"]),
                few(row["requests"], least),
                _slice_open(case, predicate),
            ),
        ),
        candidate=share,
    )


def _drop(case: _Case, predicate: Predicate, limit: float) -> Answer:
    found = _good(case, predicate)
    least = _least(case, replace(predicate, max_drop=limit), "good_drop")
    sides = [found.get(u.run_id) for u in (case.window.baseline, case.window.candidate)]
    return _difference(case, predicate, limit, least, sides, good=True)


def _increase(case: _Case, predicate: Predicate, limit: float) -> Answer:
    found = case.rows("window_counts", predicate)
    least = least_to_show(exact(limit))
    sides = [found.get(u.run_id) for u in (case.window.baseline, case.window.candidate)]
    return _difference(case, predicate, limit, least, sides, good=False)


def _difference(
    case: _Case,
    predicate: Predicate,
    limit: float,
    least: int,
    sides: Sequence[Row | None],
    *,
    good: bool,
) -> Answer:
    """A share of one side less the other's, as it is worse."""
    base, cand = sides
    if base is None or cand is None:
        return unknown(predicate, few(0, least))
    column, noun = ("good", "good") if good else ("failed", "failed")
    shares = [Fraction(row[column], row["requests"]) for row in (base, cand)]
    change = shares[0] - shares[1] if good else shares[1] - shares[0]
    words = (
        f"{percent(shares[1])} of {cand['requests']} requests {noun}, {percent(shares[0])} of the"
        f" baseline's {base['requests']} ({'drop' if good else 'increase'} limit {percent(limit)})"
    )
    without = base.get("unknown", 0) + cand.get("unknown", 0)
    fewest = min(base["requests"], cand["requests"])
    standing = (case.apart(predicate), missing(without), few(fewest, least))
    first = next((o for o in standing if o is not None), None)
    answer = (
        unknown(predicate, first)
        if first is not None
        else judged(
            predicate,
            words,
            holds=change >= exact(limit),
            objections=(_slice_open(case, predicate),),
        )
    )
    return replace(
        answer,
        baseline=rounded(float(shares[0])),
        candidate=rounded(float(shares[1])),
        change=rounded(float(change)),
    )


def _failed(case: _Case, predicate: Predicate, limit: float) -> Answer:
    return _share(case, predicate, limit, "failed", "failed")


def _censored(case: _Case, predicate: Predicate, limit: float) -> Answer:
    return _share(case, predicate, limit, "censored", "had not ended within their follow-up")


def _share(case: _Case, predicate: Predicate, limit: float, column: str, words: str) -> Answer:
    row = case.rows("window_counts", predicate).get(case.window.candidate.run_id)
    least = least_to_show(exact(limit))
    if row is None:
        return unknown(predicate, few(0, least))
    share = rounded(row[column] / row["requests"])
    text = f"{percent(share)} of {row['requests']} requests {words} ({percent(limit)} allowed)"
    # So many that the share would be beyond the limit had there been requests enough.
    holds = row[column] > exact(limit) * max(row["requests"], least)
    answer = judged(predicate, text, holds=holds, objections=(few(row["requests"], least),))
    return replace(answer, candidate=share)


def _least(case: _Case, asked: Predicate, statistic: str) -> int:
    """Requests that the check itself would ask for, at the rule's own limit."""
    return goodput.least_eligible(asked, case.gate.slice_of(asked))[statistic]


def _slice_open(case: _Case, predicate: Predicate) -> Objection | None:
    return _slice_unknown(
        case.window.candidate.open_requests if predicate.slice else 0, "candidate"
    )


def _slice_unknown(open_ones: int, side: str) -> Objection | None:
    """Objection to arrivals of which nobody can tell yet whether they are of the slice."""
    if not open_ones:
        return None
    number = count(open_ones, "request")
    why = f"{number} of the {side}'s have not ended, and nobody knows their slice before they do"
    return Objection("no_data", why)
