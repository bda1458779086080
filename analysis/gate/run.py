"""One gate over runs in a database: place them, compare them, judge every predicate.

Raises `InputError` for what is a mistake and no verdict: an unknown run, sides of unequal length,
a manifest that contradicts its place, rows that do not add up to what was offered.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any

from analysis.gate.boundary import measured as at_rates
from analysis.gate.boundary.modelled import tests_of
from analysis.gate.boundary.models import find_models
from analysis.gate.boundary.scan import Replayer, Scan, scan
from analysis.gate.comparability import (
    Comparability,
    GateRun,
    compare,
    refuse_imported,
    refuse_without_requests,
)
from analysis.gate.contract import Gate, Predicate
from analysis.gate.evidence import Row, by_run, loaded_runs, rows, run_ids, slice_rows
from analysis.gate.limitations import limitations, notes
from analysis.gate.modelled import check_ledgers
from analysis.gate.noise_profile import Record
from analysis.gate.pairing import check_counts, place_runs, placed, refuse_placement
from analysis.gate.predicates import boundary as standing
from analysis.gate.predicates import (
    erased_progress,
    failures,
    goodput,
    implied,
    regression,
    repeated_preemption,
    request_mix,
    rollback_defined,
)
from analysis.gate.predicates.common import of_side
from analysis.gate.predicates.effects import adjusted, unknown_end
from analysis.gate.screen import Noise, beside, required, screened
from analysis.gate.validity import Objection, Steadiness, steadiness, unbalanced
from analysis.gate.verdict import GateReport, PredicateResult, RunSummary, SliceSummary
from analysis.gate.windows import cut, recorded, require_start, unfinished
from analysis.gate.windows import summaries as window_summaries
from collectors.columns import STATUSES
from replay.errors import InputError, describe
from replay.strict import printable

if TYPE_CHECKING:
    import duckdb

    from replay.ledger import Ledger


def evaluate(
    db: "duckdb.DuckDBPyConnection",
    gate: Gate,
    baseline_ids: Sequence[str],
    candidate_ids: Sequence[str],
    ledgers: Sequence["Ledger"] = (),
    replayer: Replayer | None = None,
    other_rates: tuple[Sequence[str], Sequence[str]] = ((), ()),
    profile: Record | None = None,
) -> GateReport:
    """Report of a gate; the i-th baseline and the i-th candidate run are pair i, or replicas.

    A gate with a boundary has its ledgers replayed by `replayer`; `other_rates` are baseline and
    candidate runs that were driven at its arrival rates, and no pairs of the statistics.
    """
    check_counts(baseline_ids, candidate_ids, gate.design)
    at_rates.check_ids(gate.boundary, (baseline_ids, candidate_ids), other_rates)
    loaded = loaded_runs(db, [*baseline_ids, *candidate_ids, *other_rates[0], *other_rates[1]])
    refusal = refuse_placement(gate.design, baseline_ids, candidate_ids)
    if refusal is not None:
        return _report(gate, refusal)
    runs = place_runs(loaded, baseline_ids, candidate_ids, gate.design)
    others = tuple(
        replace(r, pair=r.pair + len(baseline_ids))
        for r in place_runs(loaded, *other_rates, gate.design)
    )
    everything = (*runs, *others)
    summaries = summaries_of(db, gate, runs)
    sizes = {s.run_id: s.requests for s in (*summaries, *summaries_of(db, gate, others))}
    bare = refuse_without_requests(sizes, everything)
    if bare.refused:
        known = tuple(s for s in summaries if s.requests or s.offered is not None)
        return _report(gate, bare, runs, known)
    if (imported := refuse_imported(everything)).refused:
        return _report(gate, imported, runs, summaries)
    differences = _differences(db, gate, everything)
    compared = compare(everything, gate.change_fields, request_differences=differences)
    if gate.design.windows:
        compared = require_start(compared, everything)
    if compared.refused:
        return _report(gate, compared, runs, summaries)
    checks = check_ledgers(db, ledgers, runs, gate.evidence)
    noise = beside(profile, gate, compared)
    results = judge(db, gate, runs, summaries, checks, noise=noise)
    return _report(
        gate,
        compared,
        runs,
        summaries,
        slices=_slices(db, gate, runs),
        **_boundary(db, gate, results, (runs, others), ledgers, replayer),
        ledgers=tuple(check.receipt_sha256 for check in checks),
        noise=noise,
    )


def _boundary(
    db: "duckdb.DuckDBPyConnection",
    gate: Gate,
    results: Sequence[PredicateResult],
    runs: tuple[Sequence[GateRun], Sequence[GateRun]],
    ledgers: Sequence["Ledger"],
    replayer: Replayer | None,
) -> dict[str, Any]:
    """What a boundary adds to a report; `runs` are those of the pairs, and at other rates."""
    if gate.boundary is None:
        return {"predicates": results}
    tests = tests_of(gate)
    cells = at_rates.measured_cells(db, gate, results, *runs)
    models = find_models(db, ledgers, runs[0], gate.change_fields)
    found = scan(models, gate.boundary, tests, gate.design, replayer)
    rows_of = standing.judge(gate.boundary, tests, found, cells, results)
    return {
        "predicates": implied.with_boundary(results, rows_of),
        "boundary": standing.record(found, cells),
    }


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
    cases = _cases(db, gate, runs, summaries)
    found = {p.id: _judge(db, gate, p, cases, checks) for p in order or gate.predicates}
    own = [result for p in gate.predicates for result in found[p.id]]
    saturated = _saturated(cases.steady) is not None
    own = screened(adjusted(own), gate, runs, noise, saturated=saturated)
    back = _rollback(db, gate, runs)
    return (*own, *implied.judge(cases.mix, cases.steady, required(gate, noise), back))


@dataclass(frozen=True)
class _Cases:
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


def _cases(
    db: "duckdb.DuckDBPyConnection",
    gate: Gate,
    runs: Sequence[GateRun],
    summaries: Sequence[RunSummary],
) -> _Cases:
    design = gate.design
    if not design.windows:
        steady = _steadiness(db, gate, runs)
        objections = objections_to(gate, runs, steady)
        return _Cases(runs, summaries, runs, summaries, (), steady, objections)
    windows = cut(runs, design)
    steady = _steadiness(db, gate, windows.runs)
    mix = request_mix.judge(windows, design, *request_mix.read(db, windows, design))
    objections = (
        unknown_end(runs),
        request_mix.objection(mix) if windows.judged else None,
        unfinished(db, windows, design),
        _saturated(steady),
    )
    counts = window_summaries(db, windows, design)
    return _Cases(runs, recorded(summaries), windows.units, counts, mix, steady, objections)


def _judge(
    db: "duckdb.DuckDBPyConnection",
    gate: Gate,
    predicate: Predicate,
    cases: _Cases,
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
    return (unbalanced(runs), _saturated(steady))


def _saturated(steady: Steadiness | None) -> Objection | None:
    objection = None if steady is None else steady.objection
    return objection if objection is not None and objection.reason == "saturated" else None


def summaries_of(
    db: "duckdb.DuckDBPyConnection", gate: Gate, runs: Sequence[GateRun]
) -> tuple[RunSummary, ...]:
    """What became of each run's requests; `InputError` where they do not add up."""
    found = by_run(rows(db, "requests_by_run", run_ids=run_ids(runs)))
    able = by_run(slice_rows(db, "slice_eligible", None, _looked_at(gate, runs), gate.design))
    return tuple(
        _summary(run, {**found.get(run.run_id, {}), **able.get(run.run_id, {})}) for run in runs
    )


def compared_runs(
    db: "duckdb.DuckDBPyConnection", gate: Gate, runs: Sequence[RunSummary]
) -> Sequence[GateRun]:
    """The runs of a report again, with what of them statistics are about."""
    loaded = loaded_runs(db, run_ids(runs))
    return _looked_at(gate, [placed(loaded[run.run_id], run.side, run.pair) for run in runs])


def _looked_at(gate: Gate, runs: Sequence[GateRun]) -> Sequence[GateRun]:
    """What of the runs statistics are about."""
    return cut(runs, gate.design).runs if gate.design.windows else runs


def _summary(run: GateRun, row: Mapping[str, Any]) -> RunSummary:
    summary = RunSummary(
        run_id=run.run_id,
        side=run.side,
        pair=run.pair,
        seed=run.value("comparison.arrival_seed"),
        order=run.value("comparison.order"),
        manifest_sha256=run.manifest_sha256,
        configuration_sha256=run.value("configuration_sha256"),
        offered=run.offered,
        eligible=row.get("eligible"),
        **{status: row.get(status, 0) for status in STATUSES},
    )
    if run.offered is not None and summary.requests != run.offered:
        # In a driven run every offered request has a row, whatever became of it.
        rule = f"must add up to the {run.offered} requests offered"
        place = f"run {printable(run.run_id)}"
        raise InputError(place, "status counts", rule, describe(summary.requests))
    return summary


def _differences(
    db: "duckdb.DuckDBPyConnection", gate: Gate, runs: Sequence[GateRun]
) -> dict[int, tuple[int, int]] | None:
    if gate.design.windows:
        return None
    found: dict[int, tuple[int, int]] = {}
    for base, cand in zip(runs[::2], runs[1::2], strict=True):
        (row,) = rows(db, "request_differences", baseline=base.run_id, candidate=cand.run_id)
        found[base.pair] = (row["only_baseline"], row["only_candidate"])
    return found


def _slices(
    db: "duckdb.DuckDBPyConnection", gate: Gate, runs: Sequence[GateRun]
) -> tuple[SliceSummary, ...]:
    found, parts = [], _looked_at(gate, runs)
    for part in gate.slices:
        eligible: Mapping[str, Row] = by_run(
            slice_rows(db, "slice_eligible", part, parts, gate.design)
        )
        numbers = tuple(eligible.get(r.run_id, {}).get("eligible") for r in runs)
        found.append(SliceSummary(part.name, part.conditions, numbers))
    return tuple(found)


def _report(
    gate: Gate,
    compared: Comparability,
    runs: Sequence[GateRun] = (),
    summaries: tuple[RunSummary, ...] = (),
    noise: Noise | None = None,
    **judged: Any,
) -> GateReport:
    design = asdict(gate.design) | {"least_pairs": gate.design.least_pairs}
    empty: dict[str, Any] = {"slices": (), "predicates": (), "ledgers": ()}
    if gate.boundary is not None:
        empty["boundary"] = standing.record(Scan(why="was not looked at"), ())
    rollback = None if gate.rollback is None else asdict(gate.rollback)
    return GateReport(
        gate_name=gate.name,
        gate_sha256=gate.sha256,
        design=design,
        comparability=compared,
        runs=summaries,
        limitations=limitations(gate, runs),
        notes=(*notes(gate, compared, runs), *(() if noise is None else noise.notes)),
        noise=None if noise is None else noise.to_json(),
        rollback=rollback,
        windows=_windows(gate, runs) if gate.design.windows else None,
        **(empty | judged),
    )


def _windows(gate: Gate, runs: Sequence[GateRun]) -> dict[str, Any]:
    """How the runs were cut, for the report; times since each run's own start."""
    found = cut(runs, gate.design)
    parts = [part for run in found.runs for part in run.parts]
    return {
        "whole": found.whole,
        "judged": found.judged,
        "block_windows": gate.design.block(found.judged),
        "parts": [{"run_id": r, "from_us": first, "until_us": last} for r, first, last in parts],
    }
