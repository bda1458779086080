"""Counts of a report: what became of each run's requests, and how many each slice holds."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Gate
from analysis.gate.evidence import Row, by_run, loaded_runs, rows, run_ids, slice_rows
from analysis.gate.pairing import placed
from analysis.gate.verdict import RunSummary, SliceSummary
from analysis.gate.windows import cut
from collectors.columns import STATUSES
from replay.errors import InputError, describe
from replay.strict import printable

if TYPE_CHECKING:
    import duckdb


def summaries_of(
    db: "duckdb.DuckDBPyConnection", gate: Gate, runs: Sequence[GateRun]
) -> tuple[RunSummary, ...]:
    """What became of each run's requests; `InputError` where they do not add up."""
    found = by_run(rows(db, "requests_by_run", run_ids=run_ids(runs)))
    able = by_run(slice_rows(db, "slice_eligible", None, looked_at(gate, runs), gate.design))
    return tuple(
        _summary(run, {**found.get(run.run_id, {}), **able.get(run.run_id, {})}) for run in runs
    )


def slices_of(
    db: "duckdb.DuckDBPyConnection", gate: Gate, runs: Sequence[GateRun]
) -> tuple[SliceSummary, ...]:
    """How many eligible requests of each run are in each slice."""
    found, parts = [], looked_at(gate, runs)
    for part in gate.slices:
        eligible: Mapping[str, Row] = by_run(
            slice_rows(db, "slice_eligible", part, parts, gate.design)
        )
        numbers = tuple(eligible.get(r.run_id, {}).get("eligible") for r in runs)
        found.append(SliceSummary(part.name, part.conditions, numbers))
    return tuple(found)


def compared_runs(
    db: "duckdb.DuckDBPyConnection", gate: Gate, runs: Sequence[RunSummary]
) -> Sequence[GateRun]:
    """The runs of a report again, with what of them statistics are about."""
    loaded = loaded_runs(db, run_ids(runs))
    return looked_at(gate, [placed(loaded[run.run_id], run.side, run.pair) for run in runs])


def looked_at(gate: Gate, runs: Sequence[GateRun]) -> Sequence[GateRun]:
    """What of the runs statistics are about: all, or their judged windows."""
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
