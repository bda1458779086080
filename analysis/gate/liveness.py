"""Could this gate have failed on this data? Asked before its verdict is believed.

The selftest runs on copies of the baseline runs that are judged, and the report has what it finds.
A check that missed what was put in for it, or failed for nothing, leaves the gate inconclusive.
"""

from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING

from analysis.gate.contract import Gate
from analysis.gate.evidence import rows
from analysis.gate.selftest import (
    CAUGHT,
    FAILS_TODAY,
    FALSE_ALARM,
    MISSED,
    NOTHING,
    UNDECIDED,
    Finding,
    self_test,
)
from analysis.gate.verdict import INCONCLUSIVE, GateReport, PredicateResult
from replay.strict import printable

if TYPE_CHECKING:
    import duckdb

NAME, REASON = "selftest", "selftest_missed"
MOST_ROWS = 50_000  # requests and events of the baseline runs; more take longer than the verdict
SKIPPED = "was not run (--no-selftest)"


def with_selftest(
    db: "duckdb.DuckDBPyConnection", gate: Gate, report: GateReport, *, skip: bool
) -> GateReport:
    """The report with what a selftest on its baseline runs found, or why there was none."""
    run_ids = [run.run_id for run in report.runs if run.side == "baseline"]
    why = SKIPPED if skip else _not_run(db, gate, report, run_ids)
    if why is not None:
        return replace(report, selftest={"ran": False, "line": why, "findings": []})
    found = self_test(db, gate, run_ids)
    told = {
        "ran": True,
        "line": line(found),
        "findings": [{k: v for k, v in asdict(f).items() if k != "why"} for f in found],
    }
    wrong = [f for f in found if f.outcome in (MISSED, FALSE_ALARM)]
    checks = (*report.predicates, _row(wrong)) if wrong else report.predicates
    return replace(report, selftest=told, predicates=checks)


def line(found: Sequence[Finding]) -> str:
    """What the gate can catch on this data and what it cannot, in one line."""
    put_in = [f for f in found if f.injected != NOTHING]
    caught = sum(f.outcome == CAUGHT for f in put_in)
    parts = [f"caught {caught} of {len(put_in)} regressions put into copies of the baseline"]
    for outcome, words in (
        (MISSED, "MISSED"),
        (FALSE_ALARM, "FAILED FOR NOTHING"),
        (UNDECIDED, "cannot tell"),
        (FAILS_TODAY, "the baseline itself fails"),
    ):
        names = dict.fromkeys(_named(f) for f in found if f.outcome == outcome)
        if names:
            parts.append(f"{words}: {', '.join(names)}")
    return "; ".join(parts)


def _not_run(
    db: "duckdb.DuckDBPyConnection", gate: Gate, report: GateReport, run_ids: Sequence[str]
) -> str | None:
    if report.comparability.refused:
        return "was not run: the runs are not compared"
    if gate.design.kind != "driven":
        return "was not run: windows of live traffic have no equal copies"
    (size,) = rows(db, "run_sizes", run_ids=list(run_ids))
    if size["held"] > MOST_ROWS:
        return (
            f"was not run: the baseline has {size['held']:,} requests and events, more than"
            f" {MOST_ROWS:,}; preempt gate selftest takes them"
        )
    return None


def _named(finding: Finding) -> str:
    reason = f", {finding.reasons[0]}" if finding.outcome == UNDECIDED and finding.reasons else ""
    return f"{printable(finding.check)} ({finding.statistic}{reason})"


def _row(wrong: Sequence[Finding]) -> PredicateResult:
    first = wrong[0]
    did = "failed an equal copy" if first.outcome == FALSE_ALARM else f"missed {first.injected}"
    more = f", and {len(wrong) - 1} more" if len(wrong) > 1 else ""
    why = f"found that {_named(first)} {did}{more}: the gate cannot be trusted on this data"
    return PredicateResult(
        id=NAME, kind="selftest", verdict=INCONCLUSIVE, why=why, reasons=(REASON,)
    )
