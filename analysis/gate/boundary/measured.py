"""Pairs of runs that were driven at other arrival rates, for a boundary that is to be measured.

Such a pair is compared like every other, offered the requests of one of them, and is no pair of the
statistics: it has a point estimate at its own rate and nothing else.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import isclose
from typing import TYPE_CHECKING

from analysis.gate.boundary.modelled import LimitTest, tests_of
from analysis.gate.boundary.scan import Cell
from analysis.gate.comparability import GateRun
from analysis.gate.contract import ARRIVAL, Boundary, Gate
from analysis.gate.evidence import rows
from analysis.gate.predicates import goodput, regression
from analysis.gate.verdict import PredicateResult
from replay.errors import InputError, describe
from replay.strict import printable

if TYPE_CHECKING:
    import duckdb

_OPTION = "--boundary-baseline, --boundary-candidate"
_SPEED = "driver.speed"


def check_ids(
    boundary: Boundary | None,
    pairs: tuple[Sequence[str], Sequence[str]],
    others: tuple[Sequence[str], Sequence[str]],
) -> None:
    """As many baselines as candidates at other rates, each run once, and only where asked for."""
    baseline, candidate = others
    if (baseline or candidate) and (boundary is None or not boundary.measured):
        raise InputError(_OPTION, "", "must be given only where boundary.measured is true")
    if len(baseline) != len(candidate):
        found = f"{len(baseline)} and {len(candidate)} runs"
        raise InputError(_OPTION, "", "must be of as many runs each", found)
    seen = {run_id for ids in pairs for run_id in ids}
    for run_id in (*baseline, *candidate):
        if run_id in seen:
            raise InputError(_OPTION, printable(run_id), "must be given once")
        seen.add(run_id)


def _multipliers(
    boundary: Boundary, runs: Sequence[GateRun], others: Sequence[GateRun]
) -> dict[int, float]:
    """By pair of `others` the listed step that it was driven at; the pairs' own speed is 1."""
    speeds = {_speed(r) for r in runs} if others else {1.0}
    if len(speeds) > 1:
        raise InputError("--baseline, --candidate", _SPEED, "must be the same in all pairs")
    (own,) = speeds
    found: dict[int, float] = {}
    for run in others:
        factor = _speed(run) / own
        step = next((s for s in boundary.steps if isclose(s, factor, rel_tol=1e-6)), None)
        if step is None:
            rule = "must be a listed step of boundary.steps times the pairs' own"
            raise InputError(printable(run.run_id), _SPEED, rule, describe(factor))
        if found.setdefault(run.pair, step) != step:
            raise InputError(printable(run.run_id), _SPEED, "must be the same on both sides")
    return found


def _check_requests(
    db: "duckdb.DuckDBPyConnection", runs: Sequence[GateRun], others: Sequence[GateRun]
) -> None:
    """Refuse a pair at another rate that was offered other requests than every pair."""
    for one in others[::2]:
        for known in runs[::2]:
            (row,) = rows(db, "request_differences", baseline=known.run_id, candidate=one.run_id)
            if not row["only_baseline"] and not row["only_candidate"]:
                break
        else:
            rule = "must be those of one of the pairs, at another rate"
            raise InputError(printable(one.run_id), "measured_requests.request_id", rule)


def measured_cells(
    db: "duckdb.DuckDBPyConnection",
    gate: Gate,
    results: Sequence[PredicateResult],
    runs: Sequence[GateRun],
    others: Sequence[GateRun],
) -> tuple[Cell, ...]:
    """A cell a step and test, over the pairs driven at it; at 1 what the gate's own pairs came to.

    None where nothing is to be measured.
    """
    if gate.boundary is None or not gate.boundary.measured:
        return ()
    steps = _multipliers(gate.boundary, runs, others)
    _check_requests(db, runs, others)
    tests, own = tests_of(gate), {(r.id, r.statistic): r for r in results}
    cells = []
    for test in tests:
        one = _empty(test, 1.0, len(runs) // 2)
        result = own[test.predicate.id, test.statistic]
        cells.append(_filled(one, test, result))
    for step in sorted(gate.boundary.steps):
        at_step = [r for r in others if steps[r.pair] == step]
        cells += [_cell(db, gate, test, at_step, step) for test in tests]
    return tuple(sorted(cells, key=lambda c: c.multiplier))


def _cell(
    db: "duckdb.DuckDBPyConnection",
    gate: Gate,
    test: LimitTest,
    runs: Sequence[GateRun],
    step: float,
) -> Cell:
    empty = _empty(test, step, len(runs) // 2)
    if not runs:
        return replace(empty, why="no pair of runs was driven at it")
    result = _result(db, gate, test, runs)
    # One pair has a point estimate; whatever else objects to it means that it is none.
    if result.estimate is None or set(result.reasons) - {
        "too_few_pairs",
        "interval_spans_limit",
        "estimators_disagree",
        "limit_exceeded",
    }:
        return replace(empty, why=result.why)
    return _filled(empty, test, result)


def _empty(test: LimitTest, step: float, pairs: int) -> Cell:
    return Cell(
        rate=ARRIVAL,
        multiplier=step,
        predicate=test.predicate.id,
        statistic=test.statistic,
        limit=test.limit,
        estimate=None,
        side=None,
        sources=pairs,
        evidence="measured",
    )


def _filled(empty: Cell, test: LimitTest, result: PredicateResult) -> Cell:
    if result.estimate is None:
        return replace(empty, why=result.why)
    return replace(empty, estimate=result.estimate, side=test.side(result.estimate))


def _result(
    db: "duckdb.DuckDBPyConnection", gate: Gate, test: LimitTest, runs: Sequence[GateRun]
) -> PredicateResult:
    predicate = test.predicate
    ask = regression.ask if predicate.kind == "regression" else goodput.ask
    results = ask(db, runs, predicate, test.part, gate.design)
    return next(r for r in results if r.statistic == test.statistic)


def _speed(run: GateRun) -> float:
    speed = run.value(_SPEED)
    if speed is None or not speed > 0:
        raise InputError(printable(run.run_id), _SPEED, "must be known to measure a boundary")
    return float(speed)
