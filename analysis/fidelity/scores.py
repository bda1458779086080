"""Numbers of one comparison, from the store's own views: scores, distances, buckets.

`fidelity_scores` and `fidelity_requests` (analysis/sql/views) say what each is.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb
import numpy as np
from scipy.stats import wasserstein_distance

from analysis.fidelity.metrics import TIMES

_MEASURED = {"queue_us": "measured_queue_time_us", "requeue_us": "measured_requeue_time_us"}
_BUCKETS = {
    "prompt": "least(greatest(2 ** floor(log2(modelled_prompt_tokens)), 1), 131072)::BIGINT",
    "output": "least(greatest(2 ** floor(log2(modelled_output_tokens)), 1), 131072)::BIGINT",
    "preemptions": "least(measured_num_preemptions, 3)",
}


@dataclass(frozen=True)
class Score:
    """One metric: modelled and measured, of so many requests; None where unknown."""

    metric: str
    requests: int
    modelled_value: float | None
    measured_value: float | None
    error_frac: float | None


def level(db: duckdb.DuckDBPyConnection, ledger_id: str, run_id: str) -> str | None:
    """What the comparison is worth; None where nothing can be compared as fidelity."""
    query = """
        SELECT any_value(fidelity_level) FROM fidelity_requests
        WHERE ledger_id = ? AND run_id = ?"""
    found = db.execute(query, [ledger_id, run_id]).fetchone()
    return None if found is None else found[0]


def scores(db: duckdb.DuckDBPyConnection, ledger_id: str, run_id: str) -> list[Score]:
    """Every metric's score, by name."""
    query = """
        SELECT metric, requests, modelled_value, measured_value, error_frac FROM fidelity_scores
        WHERE ledger_id = ? AND run_id = ? ORDER BY metric"""
    return [Score(*row) for row in db.execute(query, [ledger_id, run_id]).fetchall()]


def distances(db: duckdb.DuckDBPyConnection, ledger_id: str, run_id: str) -> list[dict[str, Any]]:
    """Of each time: Wasserstein distance of both distributions, and errors request by request."""
    found = []
    for name in TIMES:
        modelled, measured = _both(db, name, ledger_id, run_id)
        if not len(modelled):
            continue
        off = np.abs(modelled - measured)
        found.append(
            {
                "metric": name,
                "requests": len(off),
                "wasserstein_us": round(float(wasserstein_distance(modelled, measured))),
                "request_error_p50_us": round(float(np.quantile(off, 0.5))),
                "request_error_p95_us": round(float(np.quantile(off, 0.95))),
            }
        )
    return found


def buckets(db: duckdb.DuckDBPyConnection, ledger_id: str, run_id: str) -> list[dict[str, Any]]:
    """Medians of TTFT and TPOT by prompt and output bucket (powers of two) and preemptions."""
    rows: list[dict[str, Any]] = []
    for name, expression in _BUCKETS.items():
        query = f"""
            SELECT '{name}' AS slice, {expression} AS from_value, count(*) AS requests,
                sum(modelled_preemptions)::BIGINT AS modelled_preemptions,
                sum(measured_num_preemptions)::BIGINT AS measured_preemptions,
                quantile_cont(modelled_ttft_us, 0.5) AS modelled_ttft_us_p50,
                quantile_cont(measured_ttft_us, 0.5) AS measured_ttft_us_p50,
                quantile_cont(modelled_tpot_us, 0.5) AS modelled_tpot_us_p50,
                quantile_cont(measured_tpot_us, 0.5) AS measured_tpot_us_p50
            FROM fidelity_requests WHERE ledger_id = ? AND run_id = ?
            GROUP BY ALL ORDER BY ALL"""  # noqa: S608 (our own expressions)
        result = db.execute(query, [ledger_id, run_id])
        names: Sequence[str] = [column[0] for column in result.description or ()]
        rows += [dict(zip(names, row, strict=True)) for row in result.fetchall()]
    return rows


def _both(db: duckdb.DuckDBPyConnection, name: str, ledger_id: str, run_id: str) -> Any:
    modelled, measured = f"modelled_{name}", _MEASURED.get(name, f"measured_{name}")
    query = f"""
        SELECT {modelled}, {measured} FROM fidelity_requests
        WHERE ledger_id = ? AND run_id = ? AND {modelled} IS NOT NULL AND {measured} IS NOT NULL
        ORDER BY request_id, measured_engine"""  # noqa: S608 (our own names)
    found = db.execute(query, [ledger_id, run_id]).fetchnumpy()
    return tuple(found[column].astype(np.float64) for column in (modelled, measured))
