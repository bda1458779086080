"""Every predicate of a gate, judged over its runs."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from analysis.gate.cases import Cases, cases_of, saturated
from analysis.gate.comparability import GateRun
from analysis.gate.contract import Gate, Predicate
from analysis.gate.predicates import (
    erased_progress,
    failures,
    goodput,
    implied,
    regression,
    repeated_preemption,
    rollback_defined,
)
from analysis.gate.predicates.effects import adjusted
from analysis.gate.screen import Noise, required, screened
from analysis.gate.verdict import PredicateResult, RunSummary

if TYPE_CHECKING:
    import duckdb


def judge(
    db: "duckdb.DuckDBPyConnection",
    gate: Gate,
    runs: Sequence[GateRun],
    summaries: Sequence[RunSummary],
    checks: Sequence[erased_progress.LedgerCheck] = (),
    order: Sequence[Predicate] | None = None,
    noise: Noise | None = None,
) -> tuple[PredicateResult, ...]:
    """Results in the gate's order, in whatever `order` the predicates are judged."""
    cases = cases_of(db, gate, runs, summaries)
    found = {p.id: _judge(db, gate, p, cases, checks) for p in order or gate.predicates}
    own = [result for p in gate.predicates for result in found[p.id]]
    grew = saturated(cases.steady) is not None
    own = screened(adjusted(own), gate, runs, noise, saturated=grew)
    back = _rollback(db, gate, runs)
    return (*own, *implied.judge(cases.mix, cases.steady, required(gate, noise), back))


def _judge(
    db: "duckdb.DuckDBPyConnection",
    gate: Gate,
    predicate: Predicate,
    cases: Cases,
    checks: Sequence[erased_progress.LedgerCheck],
) -> list[PredicateResult]:
    """Results of one predicate, one for each limit it sets."""
    design, part, units = gate.design, gate.slice_of(predicate), cases.units
    match predicate.kind:
        case "erased_progress":
            required = gate.evidence.modelled == "required"
            read = erased_progress.read(db, cases.runs, predicate)
            return [
                *erased_progress.judge(predicate, cases.runs, read),
                *erased_progress.judge_ledgers(predicate, checks, required=required),
            ]
        case "repeated_preemption":
            found = repeated_preemption.read(db, cases.runs, predicate)
            return repeated_preemption.judge(predicate, cases.runs, found)
        case "failures":
            own = failures.judge(predicate, cases.counts, failures.read(db, cases.runs))
            increase = (predicate, cases.unit_counts, design, cases.objections)
            return own + failures.judge_increase(*increase)
        case "regression":
            return regression.ask(db, units, predicate, part, design, cases.objections)
        case "goodput":
            return goodput.ask(db, units, predicate, part, design, cases.objections)
    raise AssertionError(predicate.kind)


def _rollback(
    db: "duckdb.DuckDBPyConnection", gate: Gate, runs: Sequence[GateRun]
) -> PredicateResult | None:
    if gate.rollback is None:
        return None
    found, known = rollback_defined.read(db, runs, gate.rollback)
    return rollback_defined.judge(gate, runs, found, known=known)
