"""What a report is made of: rows of a store, each query in its own file."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import duckdb

from analysis.counter import counter_rows
from analysis.sqlfiles import sql

Row = dict[str, Any]


@dataclass(frozen=True)
class ReportData:
    """Rows of every section, ordered; `gates` are gate reports as JSON values."""

    runs: Sequence[Row]
    statuses: Sequence[Row]
    by_preemptions: Sequence[Row]
    counters: Sequence[Row]
    ledgers: Sequence[Row]
    requests: Sequence[Row]
    differences: Sequence[Row]
    fidelity: Sequence[Row]
    gates: Sequence[Row]


def report_data(db: duckdb.DuckDBPyConnection) -> ReportData:
    """Read everything a report shows."""
    return ReportData(
        runs=_rows(db, sql("report", "runs")),
        statuses=_rows(db, "FROM run_status_counts ORDER BY ALL"),
        by_preemptions=_rows(db, sql("report", "by_preemptions")),
        counters=counter_rows(db),
        ledgers=_rows(db, sql("report", "ledgers")),
        requests=_rows(db, sql("report", "requests")),
        differences=_rows(db, sql("report", "differences")),
        fidelity=_rows(db, "FROM fidelity_scores ORDER BY ALL"),
        gates=[json.loads(row["report"]) for row in _rows(db, sql("report", "gates"))],
    )


def _rows(db: duckdb.DuckDBPyConnection, query: str) -> list[Row]:
    found = db.execute(query)
    names = [column[0] for column in found.description or []]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
