"""What the predicates of a gate are asked about: whole runs, or windows of live traffic."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Gate
from analysis.gate.evidence import slice_rows
from analysis.gate.predicates import request_mix
from analysis.gate.predicates.common import of_side
from analysis.gate.predicates.effects import unknown_end
from analysis.gate.validity import Objection, Steadiness, steadiness, unbalanced
from analysis.gate.verdict import PredicateResult, RunSummary
from analysis.gate.windows import cut, recorded, summaries, unfinished

if TYPE_CHECKING:
    import duckdb


@dataclass(frozen=True)
class Cases:
    """What is judged: whole `runs` and their `counts`, and what statistics take for a run.

    Those are `units` with their `unit_counts`: the runs themselves, or windows of both sides.
    """

    runs: Sequence[GateRun]
    counts: Sequence[RunSummary]
    units: Sequence[GateRun]
    unit_counts: Sequence[RunSummary]
    mix: Sequence[PredicateResult]
    steady: Steadiness | None
    objections: Sequence[Objection | None]


def cases_of(
    db: "duckdb.DuckDBPyConnection",
    gate: Gate,
    runs: Sequence[GateRun],
    counts: Sequence[RunSummary],
) -> Cases:
    """Cases of a gate over its runs, and over their `counts`."""
    design = gate.design
    if not design.windows:
        steady = _steadiness(db, gate, runs)
        objections = objections_to(gate, runs, steady)
        return Cases(runs, counts, runs, counts, (), steady, objections)
    windows = cut(runs, design)
    steady = _steadiness(db, gate, windows.runs)
    mix = request_mix.judge(windows, design, *request_mix.read(db, windows, design))
    objections = (
        unknown_end(runs),
        request_mix.objection(mix) if windows.judged else None,
        unfinished(db, windows, design),
        saturated(steady),
    )
    own = summaries(db, windows, design)
    return Cases(runs, recorded(counts), windows.units, own, mix, steady, objections)


def _steadiness(
    db: "duckdb.DuckDBPyConnection", gate: Gate, runs: Sequence[GateRun]
) -> Steadiness | None:
    """How the baseline's queue grew, within the windows where there are; None: nobody asks."""
    if not any(p.statistical for p in gate.predicates):
        return None
    baseline = of_side(runs, "baseline")
    # Run by run: each is sorted, and sorting all at once takes a lot of memory.
    quarters = [
        row
        for run in baseline
        for row in slice_rows(db, "queue_by_quarter", None, [run], gate.design)
    ]
    return steadiness(quarters, baseline, gate.design.follow_up_us)


def objections_to(
    gate: Gate, runs: Sequence[GateRun], steady: Steadiness | None
) -> tuple[Objection | None, ...]:
    """What keeps every statistic of these runs from being decided.

    Where the queue times are unknown the check itself says so, and that is enough not to pass.
    """
    if steady is None or len(runs) // 2 < gate.design.least_pairs:
        return ()
    return (unbalanced(runs), saturated(steady))


def saturated(steady: Steadiness | None) -> Objection | None:
    """Objection to a baseline whose queue grew, and to nothing else."""
    objection = None if steady is None else steady.objection
    return objection if objection is not None and objection.reason == "saturated" else None
