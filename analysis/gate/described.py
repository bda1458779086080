"""What a report shows beside its verdict and does not judge by, read from the store it was made on.

It is apart from the verdict, so that nothing here can become a reason.
"""

from typing import TYPE_CHECKING, Any

from analysis.gate.bands import bands
from analysis.gate.contract import Gate
from analysis.gate.outcomes import outcomes, token_gaps
from analysis.gate.summaries import compared_runs
from analysis.gate.verdict import DESCRIPTIVE, GateReport

if TYPE_CHECKING:
    import duckdb


def described(
    db: "duckdb.DuckDBPyConnection", gate: Gate, report: GateReport
) -> dict[str, Any] | None:
    """The `descriptive` part of a report; None where the runs were not compared."""
    if report.comparability.refused:
        return None
    runs = compared_runs(db, gate, report.runs)
    requests = sum(run.requests for run in report.runs)
    return {
        "label": DESCRIPTIVE,
        # Windows have no requests in common.
        "outcomes": None if gate.design.windows else outcomes(db, gate, runs),
        "token_gaps": token_gaps(db, gate, runs),
        "bands": bands(db, gate, runs, requests),
    }
