"""Whether a gate can fail: known regressions, put into copies of the user's own runs.

A gate whose checks cannot fail on the data at hand says nothing when it passes. Copies of the
baseline runs are its candidates: as they are, which no check may fail, and with one regression
each, just beyond the limits, which the check that is meant has to fail.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import duckdb
import polars as pl

from analysis import store
from analysis.gate.contract import Gate, Predicate
from analysis.gate.run import evaluate
from analysis.gate.verdict import FAIL, INCONCLUSIVE, REFUSED, PredicateResult
from collectors.run import Run, value_at
from replay.errors import InputError

CAUGHT, MISSED, UNDECIDED = "caught", "missed", "undecided"  # of what was put in
QUIET, FALSE_ALARM, FAILS_TODAY = "quiet", "false alarm", "fails today"  # of equal copies
# Limits that the candidate alone is held to: the runs of today can break them, too.
_ALONE = ("violating_requests", "max", "failed_fraction", "censored_fraction", "good_fraction")
_BEYOND = 1.5  # how far, as a multiple of the limit
_MARGIN = 0.05  # of all requests, where a limit is a share
NOTHING = "nothing changed"
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


def self_test(gate: Gate, runs: Sequence[Run]) -> list[Finding]:
    """One finding for each measured check and what was put in for it, the unchanged copies first.

    `InputError` where the gate refuses to compare a run with its own copy.
    """
    if len(runs) > gate.design.most_pairs:
        rule = f"must be at most {gate.design.most_pairs} runs, as many pairs as the gate plans"
        raise InputError("--baseline", "", rule, str(len(runs)))
    if gate.design.windows:  # a copy is half of what both are together, whatever the split gives
        gate = replace(gate, design=replace(gate.design, candidate_fraction=0.5))
    with store.connect(None) as db:
        for pair, run in enumerate(runs):
            store.load_run(db, _placed(run, run.run_id, "baseline", pair), workloads=False)
        found = [
            _unchanged(result) for result in _results(db, gate, runs, "same", lambda frame: frame)
        ]
        for number, predicate in enumerate(gate.predicates):
            for part, one in enumerate(_injections(predicate)):
                results = _results(db, gate, runs, f"{number}-{part}", one.change)
                found += [
                    _judged(result, one.what)
                    for result in results
                    if result.id == predicate.id
                    and (not one.statistics or result.statistic in one.statistics)
                ]
    return found


def _results(
    db: duckdb.DuckDBPyConnection, gate: Gate, runs: Sequence[Run], name: str, change: Change
) -> list[PredicateResult]:
    ids = []
    for pair, run in enumerate(runs):
        copy = _placed(run, f"selftest-{name}-{pair}", "candidate", pair)
        store.load_run(db, replace(copy, requests=change(copy.requests)), workloads=False)
        ids.append(copy.run_id)
    report = evaluate(db, gate, [run.run_id for run in runs], ids)
    if report.verdict == REFUSED:
        raise InputError(
            "--baseline", "", f"cannot be compared with its own copy: {report.sentence}"
        )
    return [result for result in report.predicates if result.evidence == "measured"]


def _placed(run: Run, run_id: str, side: str, pair: int) -> Run:
    """The run under another name on this side of a pair, as if driven in ABBA order."""
    order = 2 * pair + ((side == "candidate") != (pair % 2 == 1))
    seed = value_at(run.manifest, "comparison.arrival_seed")
    place = {"side": side, "pair": pair, "order": order, "arrival_seed": seed}
    frames = {
        name: getattr(run, name).with_columns(run_id=pl.lit(run_id, pl.String))
        for name in ("requests", "events", "steps", "samples")
    }
    manifest = {**run.manifest, "run_id": run_id, "comparison": place}
    return replace(run, run_id=run_id, manifest=manifest, **frames)


def _unchanged(result: PredicateResult) -> Finding:
    alarm = FAILS_TODAY if result.statistic in _ALONE else FALSE_ALARM
    outcome = alarm if result.verdict == FAIL else QUIET
    return _finding(result, NOTHING, outcome)


def _judged(result: PredicateResult, what: str) -> Finding:
    outcome = {FAIL: CAUGHT, INCONCLUSIVE: UNDECIDED}.get(result.verdict, MISSED)
    return _finding(result, what, outcome)


def _finding(result: PredicateResult, what: str, outcome: str) -> Finding:
    return Finding(result.id, result.statistic, what, outcome, result.reasons, result.why)


@dataclass(frozen=True)
class _Injection:
    """What a check has to fail, in words, how it is put in, and which limits are meant, or all."""

    what: str
    change: Change
    statistics: tuple[str, ...] = ()


def _injections(predicate: Predicate) -> list[_Injection]:
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
            return [_failing("error", low + _BEYOND * (predicate.max_drop or 0.0))]
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
        able = (pl.col("status") == "ok") & (pl.col("generated_tokens") > 1)
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


def _failing(status: str, share: float, statistics: tuple[str, ...] = ()) -> _Injection:
    """A share of the answered requests, spread evenly, ends otherwise."""
    part = min(1.0, share + _MARGIN)

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        ok = pl.col("status") == "ok"
        place = ok.cum_sum() * part
        chosen = ok & (place.floor() > ((ok.cum_sum() - 1) * part).floor())
        return frame.with_columns(status=pl.when(chosen).then(pl.lit(status)).otherwise("status"))

    return _Injection(f"{math.ceil(part * 100)} % {status}", change, statistics)
