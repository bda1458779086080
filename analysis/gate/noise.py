"""How much equal runs differ (`preemption-noise-profile/1`): made from ten of them or more.

The runs are equal in everything a gate compares, its declared change included, and replay one
workload: a spread over several traces would be that of the traces. Each of a gate's statistics has
one number a run, and the profile keeps their mean and standard deviation: of latencies that of
ln(value + floor), of shares that of the share. Whatever keeps a gate from deciding keeps the
profile from having a number, and is named.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from analysis.gate.comparability import (
    FIELDS,
    Comparability,
    GateRun,
    compare,
    refuse_imported,
    refuse_without_requests,
    shown,
)
from analysis.gate.contract import Evidence, Gate, Predicate
from analysis.gate.evidence import loaded_runs, rows
from analysis.gate.judge import judge
from analysis.gate.noise_profile import (
    LEAST_RUNS,
    NOISE_SCHEMA,
    Record,
    key_of,
    question_of,
    scaled,
    sealed,
)
from analysis.gate.pairing import placed
from analysis.gate.statistics import rounded, spread
from analysis.gate.summaries import summaries_of
from analysis.gate.verdict import PredicateResult
from replay.canonical import canonical_json
from replay.errors import InputError
from replay.strict import printable

if TYPE_CHECKING:
    import duckdb

# What keeps a gate from deciding, and here from having a number. Nobody asks for an order of runs
# that are on no side.
_NO_NUMBER = ("no_data", "censored", "too_few_eligible", "saturated")


@dataclass(frozen=True)
class Made:
    """A profile, or why the runs have none in common."""

    record: Record | None
    refusal: str | None = None


def make_profile(db: "duckdb.DuckDBPyConnection", gate: Gate, run_ids: Sequence[str]) -> Made:
    """Profile of equal runs in a store, for everything the gate asks of pairs.

    `InputError` for too few runs, an unknown one, one given twice, or a gate without statistics.
    """
    _check(gate, run_ids)
    loaded = loaded_runs(db, run_ids)
    runs = [placed(loaded[name], "baseline", k) for k, name in enumerate(sorted(run_ids))]
    requests = {s.run_id: s.requests for s in summaries_of(db, gate, runs)}
    for refused in (refuse_without_requests(requests, runs), refuse_imported(runs)):
        if refused.refused:
            return Made(None, refused.why)
    compared = _equal(db, runs)
    if compared.refused:
        return Made(None, compared.why)
    return Made(_record(gate, runs, compared, _results(db, gate, runs)))


def _check(gate: Gate, run_ids: Sequence[str]) -> None:
    if gate.design.kind != "driven":
        raise InputError(printable(gate.name), "design.kind", "must be driven to have a profile")
    if not any(p.statistical for p in gate.predicates):
        rule = "must have a regression, goodput or max_increase, whose noise there is to know"
        raise InputError(printable(gate.name), "predicate", rule)
    if len(set(run_ids)) < len(run_ids):
        raise InputError("--run", "", "must not name a run twice")
    if len(run_ids) < LEAST_RUNS:
        rule = f"must be at least {LEAST_RUNS} equal runs"
        raise InputError("--run", "", rule, str(len(run_ids)))


def _equal(db: "duckdb.DuckDBPyConnection", runs: Sequence[GateRun]) -> Comparability:
    """The gate's own rules for runs of which nothing may differ: all of them are one pair's."""
    one_pair = [
        replace(run, side="candidate" if k else "baseline", pair=0) for k, run in enumerate(runs)
    ]
    compared = compare(one_pair, (), request_differences={0: (0, 0)})
    for run in runs[1:]:
        (row,) = rows(db, "request_differences", baseline=runs[0].run_id, candidate=run.run_id)
        if any(row.values()) and not compared.refused:
            pair = [one_pair[0], next(r for r in one_pair if r.run_id == run.run_id)]
            only = {0: (row["only_baseline"], row["only_candidate"])}
            return compare(pair, (), request_differences=only)
    return compared


def _results(
    db: "duckdb.DuckDBPyConnection", gate: Gate, runs: Sequence[GateRun]
) -> list[tuple[Predicate, PredicateResult]]:
    """Each test of the gate with every run as a baseline, and its own candidate."""
    both = [replace(run, side=side) for run in runs for side in ("baseline", "candidate")]
    asked = replace(
        gate,
        predicates=tuple(p for p in gate.predicates if p.statistical),
        evidence=Evidence(),
        boundary=None,
        rollback=None,
    )
    found = judge(db, asked, both, summaries_of(db, gate, both))
    of = {p.id: p for p in asked.predicates}
    return [(of[r.id], r) for r in found if r.id in of and r.statistic in dict(of[r.id].tests)]


def _record(
    gate: Gate,
    runs: Sequence[GateRun],
    compared: Comparability,
    found: Sequence[tuple[Predicate, PredicateResult]],
) -> Record:
    fields = {name: shown(value) for name, value in compared.equal}
    entries = {
        canonical_json(key): key | _numbers(result, key["floor_us"])
        for predicate, result in found
        for key in [question_of(gate, predicate, result.statistic or "")]
    }
    return sealed(
        {
            "schema": NOISE_SCHEMA,
            "key": key_of(fields),
            "equal": [{"field": name, "value": fields[name]} for name in FIELDS],
            "workload_sha256": runs[0].workload_sha256,
            "design": {
                "warmup_us": gate.design.warmup_us,
                "follow_up_us": gate.design.follow_up_us,
            },
            "runs": [{"run_id": r.run_id, "manifest_sha256": r.manifest_sha256} for r in runs],
            "entries": [entries[k] for k in sorted(entries)],
            "limitations": [
                "All runs replay one workload: the spread is valid for that trace only.",
                "The spread is that of these runs on their machine: one made on another day, or"
                " with other neighbours, may differ by more.",
            ],
        }
    )


def _numbers(result: PredicateResult, floor_us: int | None) -> dict[str, Any]:
    values = result.baseline
    reasons = [r for r in result.reasons if r in _NO_NUMBER]
    if any(v is None or (floor_us is not None and v + floor_us <= 0) for v in values):
        reasons.append("no_data")
    if reasons:
        return {"values": list(values), "mean": None, "sd": None, "reason": reasons[0]}
    numbers = [scaled(v, floor_us) for v in values if v is not None]
    return {
        "values": list(values),
        "mean": rounded(sum(numbers) / len(numbers)),
        "sd": rounded(spread(numbers)),
        "reason": None,
    }
