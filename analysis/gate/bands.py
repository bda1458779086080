"""A band for each run's statistic, from the requests of that run alone: descriptive.

Such a band says how far the number could have come out otherwise with the same luck of the run. It
says nothing of another run, and so it never decides.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.gate.bootstrap import DRAWS, LEAST_BLOCKS, SEED, band, block_length
from analysis.gate.comparability import GateRun
from analysis.gate.contract import Gate, Predicate
from analysis.gate.evidence import by_run, rows, run_ids, slice_rows
from analysis.gate.predicates.goodput import limits_of
from analysis.gate.statistics import rounded

if TYPE_CHECKING:
    import duckdb
    import numpy as np
    from numpy.typing import NDArray

MOST_REQUESTS = 200_000  # of all runs; more would cost as much as the whole verdict
NO_DATA, TOO_FEW_BLOCKS = "no_data", "too_few_blocks"


def bands(
    db: "duckdb.DuckDBPyConnection", gate: Gate, runs: Sequence[GateRun], number: int
) -> dict[str, Any]:
    """A row per test over pairs and run; none, and why, where they are of too many requests."""
    found: dict[str, Any] = {
        "draws": DRAWS,
        "seed": SEED,
        "level": rounded(1 - 2 * gate.design.tail),
        "left_out": None,
        "rows": [],
    }
    if number > MOST_REQUESTS:
        text = f"not made of more than {MOST_REQUESTS:,} requests: the runs have {number:,}"
        return found | {"left_out": text}
    for predicate in gate.predicates:
        statistics = dict.fromkeys(_statistic(name) for name, _ in predicate.tests)
        if not statistics:
            continue
        series, alive = _series(db, gate, predicate, runs), _alive(db, gate, predicate, runs)
        for statistic in statistics:
            for run in runs:
                made = _band(series.get(run.run_id), statistic, alive.get(run.run_id), gate)
                found["rows"].append(
                    {
                        "predicate": predicate.id,
                        "statistic": statistic,
                        "run_id": run.run_id,
                        "side": run.side,
                        "pair": run.pair,
                        **made,
                    }
                )
    return found


def _statistic(test: str) -> str:
    """The run's own number behind a test: two tests of goodput are of one share."""
    return {"good_drop": "good_fraction", "failed_increase": "failed_fraction"}.get(test, test)


def _band(
    values: "NDArray[np.int64] | None", statistic: str, alive: int | None, gate: Gate
) -> dict[str, Any]:
    none = {"low": None, "high": None, "block_length": None}
    if values is None or len(values) < LEAST_BLOCKS:
        return none | {"reason": NO_DATA}
    length = block_length(values, statistic, alive)
    bounds = band(values, statistic, length, gate.design.tail)
    if bounds is None:
        return none | {"block_length": length, "reason": TOO_FEW_BLOCKS}
    return {"low": bounds[0], "high": bounds[1], "block_length": length, "reason": None}


def _series(
    db: "duckdb.DuckDBPyConnection", gate: Gate, predicate: Predicate, runs: Sequence[GateRun]
) -> dict[str, "NDArray[np.int64]"]:
    """Each run's requests in order of arrival, as numbers; a run that lacks one is left out."""
    import numpy as np

    part = gate.slice_of(predicate)
    if predicate.kind == "regression":
        found = slice_rows(
            db, "series_of_latencies", part, runs, gate.design, field=predicate.field
        )
    elif predicate.kind == "goodput":
        slo = limits_of(predicate)
        found = slice_rows(db, "series_of_outcomes", part, runs, gate.design, slo=slo)
    else:
        found = rows(db, "series_of_failures", run_ids=run_ids(runs))
    return {
        run_id: np.array(row["known"], np.int64)
        for run_id, row in by_run(found).items()
        if row["known"] is not None and len(row["known"]) == row["requests"]
    }


def _alive(
    db: "duckdb.DuckDBPyConnection", gate: Gate, predicate: Predicate, runs: Sequence[GateRun]
) -> dict[str, int | None]:
    part = gate.slice_of(predicate)
    found = slice_rows(db, "alive_requests", part, runs, gate.design, field="e2e_us")
    return {run_id: row["alive"] for run_id, row in by_run(found).items()}
