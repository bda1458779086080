"""One gate over runs in a database: place them, compare them, judge every predicate.

Raises `InputError` for what is a mistake and no verdict: an unknown run, sides of unequal length,
a manifest that contradicts its place, rows that do not add up to what was offered.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
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
from analysis.gate.contract import Gate
from analysis.gate.evidence import loaded_runs, rows
from analysis.gate.judge import judge
from analysis.gate.limitations import limitations, notes
from analysis.gate.modelled import check_ledgers
from analysis.gate.noise_profile import Record
from analysis.gate.pairing import check_counts, place_runs, refuse_placement
from analysis.gate.predicates import boundary as standing
from analysis.gate.predicates import implied
from analysis.gate.screen import Noise, beside
from analysis.gate.summaries import slices_of, summaries_of
from analysis.gate.verdict import GateReport, PredicateResult, RunSummary
from analysis.gate.windows import cut, require_start

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
        slices=slices_of(db, gate, runs),
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
