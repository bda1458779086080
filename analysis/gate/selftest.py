"""Whether a gate can fail: known regressions, put into copies of the user's own runs.

A gate whose checks cannot fail on the data at hand says nothing when it passes. Copies of the
baseline runs are its candidates: as they are, which no check may fail, and with one regression
each, just beyond the limits, which the check that is meant has to fail.
"""

import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import duckdb
import polars as pl

from analysis.database import connect
from analysis.gate.contract import SLICE_COLUMNS, Evidence, Gate, Predicate, Slice
from analysis.gate.evidence import Row, by_run, rows
from analysis.gate.pairing import abba_order
from analysis.gate.run import evaluate
from analysis.gate.verdict import FAIL, INCONCLUSIVE, REFUSED, PredicateResult
from analysis.tables import insert_frame, insert_row
from collectors.run import frame_schema, value_at
from replay.canonical import canonical_json
from replay.errors import InputError

CAUGHT, MISSED, UNDECIDED = "caught", "missed", "undecided"  # of what was put in
QUIET, FALSE_ALARM, FAILS_TODAY = "quiet", "false alarm", "fails today"  # of equal copies
# Limits that the candidate alone is held to: the runs of today can break them, too.
_ALONE = ("violating_requests", "max", "failed_fraction", "censored_fraction", "good_fraction")
_BEYOND = 1.5  # how far, as a multiple of the limit
_MARGIN = 0.05  # of all requests, where a limit is a share
NOTHING = "nothing changed"
_ALL, _OK = pl.col("status").is_not_null(), pl.col("status") == "ok"
Change = Callable[[pl.DataFrame], pl.DataFrame]


@dataclass(frozen=True)
class Finding:
    """What a check said of what was put in; `reasons` are the check's own."""

    check: str
    statistic: str | None
    injected: str
    outcome: str
    reasons: tuple[str, ...]
    why: str


def self_test(
    source: duckdb.DuckDBPyConnection, gate: Gate, run_ids: Sequence[str]
) -> list[Finding]:
    """One finding for each measured check and what was put in for it, the unchanged copies first.

    The runs are copied out of `source`, which is only read. `InputError` where the gate refuses to
    compare a run with its own copy.
    """
    if len(run_ids) > gate.design.most_pairs:
        rule = f"must be at most {gate.design.most_pairs} runs, as many pairs as the gate plans"
        raise InputError("--baseline", "", rule, str(len(run_ids)))
    if gate.design.windows:  # a copy is half of what both are together, whatever the split gives
        gate = replace(gate, design=replace(gate.design, candidate_fraction=0.5))
    with connect(None) as db:
        copies = _filled(db, source, run_ids)
        whole = replace(gate, evidence=Evidence(), boundary=None, rollback=None)
        found = [_unchanged(result) for result in copies.results(whole, lambda frame: frame)]
        for predicate in gate.predicates:
            alone = replace(whole, predicates=(predicate,))
            for one in _injections(predicate, gate.slice_of(predicate)):
                put_in = copies.changed_by(one.change)
                found += [
                    _judged(result, one.what) if put_in else _not_put_in(result, one.what)
                    for result in copies.results(alone, one.change)
                    if result.id == predicate.id
                    and (not one.statistics or result.statistic in one.statistics)
                ]
    return found


@dataclass(frozen=True)
class _Copies:
    """Runs and their copies in a store of their own; `requests` are the copies', unchanged."""

    db: duckdb.DuckDBPyConnection
    run_ids: Sequence[str]
    copy_ids: Sequence[str]
    requests: pl.DataFrame

    def changed_by(self, change: Change) -> bool:
        """Whether there is anything in the runs that it changes."""
        return not change(self.requests).equals(self.requests)

    def results(self, gate: Gate, change: Change) -> list[PredicateResult]:
        """What a gate's measured checks say of the copies with a change in each of them."""
        for copy_id in self.copy_ids:
            self.db.execute("DELETE FROM measured_requests WHERE run_id = ?", [copy_id])
        parts = self.requests.partition_by("run_id", maintain_order=True)
        insert_frame(self.db, "measured_requests", pl.concat(change(part) for part in parts))
        report = evaluate(self.db, gate, self.run_ids, self.copy_ids)
        if report.verdict == REFUSED:
            rule = f"cannot be compared with its own copy: {report.sentence}"
            raise InputError("--baseline", "", rule)
        return [result for result in report.predicates if result.evidence == "measured"]


def _filled(
    db: duckdb.DuckDBPyConnection, source: duckdb.DuckDBPyConnection, run_ids: Sequence[str]
) -> _Copies:
    """The runs in their places, and copies of them on the other side, as driven in ABBA order."""
    copy_of = {run_id: f"selftest-{pair}" for pair, run_id in enumerate(run_ids)}
    known = by_run(rows(source, "whole_runs", run_ids=list(run_ids)))
    for pair, run_id in enumerate(run_ids):
        for side, name in (("baseline", run_id), ("candidate", copy_of[run_id])):
            insert_row(db, "measured_runs", _placed(known[run_id], name, side, pair))
    copied = {}
    for table in ("measured_requests", "measured_events"):
        found = rows(source, table.replace("measured", "whole"), run_ids=list(run_ids))
        frame = pl.DataFrame(found, schema=frame_schema(table), orient="row")
        copied[table] = frame.with_columns(pl.col("run_id").replace_strict(copy_of))
        insert_frame(db, table, frame)
    insert_frame(db, "measured_events", copied["measured_events"])
    return _Copies(db, run_ids, tuple(copy_of.values()), copied["measured_requests"])


def _placed(row: Row, run_id: str, side: str, pair: int) -> dict[str, Any]:
    """A run's row under this name and in this place."""
    manifest = json.loads(row["manifest"])
    seed = value_at(manifest, "comparison.arrival_seed")
    place = {"side": side, "pair": pair, "order": abba_order(side, pair), "arrival_seed": seed}
    moved = canonical_json({**manifest, "run_id": run_id, "comparison": place}).decode()
    return {**row, "run_id": run_id, "manifest": moved}


def _unchanged(result: PredicateResult) -> Finding:
    alarm = FAILS_TODAY if result.statistic in _ALONE else FALSE_ALARM
    outcome = alarm if result.verdict == FAIL else QUIET
    return _finding(result, NOTHING, outcome)


def _judged(result: PredicateResult, what: str) -> Finding:
    outcome = {FAIL: CAUGHT, INCONCLUSIVE: UNDECIDED}.get(result.verdict, MISSED)
    return _finding(result, what, outcome)


def _not_put_in(result: PredicateResult, what: str) -> Finding:
    why = "has no request in these runs that it could be put into"
    return Finding(result.id, result.statistic, what, UNDECIDED, ("no_data",), why)


def _finding(result: PredicateResult, what: str, outcome: str) -> Finding:
    return Finding(result.id, result.statistic, what, outcome, result.reasons, result.why)


@dataclass(frozen=True)
class _Injection:
    """What a check has to fail, in words, how it is put in, and which limits are meant, or all."""

    what: str
    change: Change
    statistics: tuple[str, ...] = ()


def _injections(predicate: Predicate, part: Slice | None) -> list[_Injection]:
    match predicate.kind:
        case "erased_progress":
            lost = _one(generated_tokens=pl.col("generated_tokens") - 1)
            return [_Injection("a generated token lost", lost)]
        case "repeated_preemption":
            times = (predicate.max_preemptions or 0) + 1
            often = _one(num_preemptions=pl.lit(times))
            return [_Injection(f"a request preempted {times} times", often)]
        case "regression":
            return [_slower(predicate)]
        case "goodput":
            low = 0.0 if predicate.min_fraction is None else 1 - predicate.min_fraction
            share = low + _BEYOND * (predicate.max_drop or 0.0)
            return [_failing("error", share, of=_inside(part), among=_good(predicate))]
        case "failures":
            limits = (predicate.max_failed_fraction, predicate.max_increase)
            failed = max((limit for limit in limits if limit is not None), default=None)
            found = []
            if failed is not None:
                meant = ("failed_fraction", "failed_increase")
                found.append(_failing("error", _BEYOND * failed, meant))
            if predicate.max_censored_fraction is not None:
                share = _BEYOND * predicate.max_censored_fraction
                found.append(_failing("censored", share, ("censored_fraction",)))
            return found
    raise AssertionError(predicate.kind)


def _one(**columns: pl.Expr) -> Change:
    """The first answered request of more than one token, changed."""

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        able = _OK & (pl.col("generated_tokens") > 1)
        first = able & (able.cum_sum() == 1)
        return frame.with_columns(
            pl.when(first).then(value.cast(frame.schema[name])).otherwise(name).alias(name)
            for name, value in columns.items()
        )

    return change


def _slower(predicate: Predicate) -> _Injection:
    field, floor = predicate.field or "", predicate.floor_us or 0
    factor = 1 + _BEYOND * (predicate.max_regression or 0.0) + (not predicate.max_regression) * 0.1

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        longer = ((pl.col(field) + floor) * factor - floor).ceil().cast(pl.Int64)
        return frame.with_columns(longer.alias(field))

    return _Injection(f"{field} {factor - 1:+.0%}", change)


def _failing(
    status: str,
    share: float,
    statistics: tuple[str, ...] = (),
    of: pl.Expr = _ALL,
    among: pl.Expr = _OK,
) -> _Injection:
    """So many as are a share `of` requests end otherwise: of those `among` them, spread evenly."""
    part = min(1.0, share + _MARGIN)

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        able = of & among
        rate = pl.min_horizontal(1.0, part * of.sum() / able.sum())
        place, before = able.cum_sum() * rate, (able.cum_sum() - 1) * rate
        chosen = able & (place.floor() > before.floor())
        return frame.with_columns(status=pl.when(chosen).then(pl.lit(status)).otherwise("status"))

    return _Injection(f"{math.ceil(part * 100)} % {status}", change, statistics)


def _good(predicate: Predicate) -> pl.Expr:
    """Requests that meet the objectives: losing others would not be seen."""
    met = [(pl.col(field) <= limit).fill_null(value=True) for field, limit in predicate.slo or ()]
    return pl.all_horizontal(_OK, *met)


def _inside(part: Slice | None) -> pl.Expr:
    """Requests of a slice."""
    found = [_ALL]
    for condition in part.where if part else ():
        column = pl.col(SLICE_COLUMNS[condition.column])
        if condition.any_of is not None:
            found.append(column.is_in(condition.any_of))
        if condition.min is not None:
            found.append(column >= condition.min)
        if condition.max is not None:
            found.append(column <= condition.max)
    return pl.all_horizontal(*found).fill_null(value=False)
