"""P2: no candidate request is preempted more often than allowed. Deterministic.

The baseline's numbers are shown and not subtracted. What was seen decides: the row's number or the
events, whichever is greater. An unknown number is no data, never zero; a request that ended
unfinished with every allowed preemption used up leaves the question open.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Predicate
from analysis.gate.evidence import Row, by_run, rows, run_ids
from analysis.gate.predicates.common import count, of_side, outcome, per_side, percent, total
from analysis.gate.verdict import MOST_IDS, PredicateResult

if TYPE_CHECKING:
    import duckdb


# What leaves the question open: finding, reason, words.
_OPEN = (
    ("not_known", "no_data", "cannot be shown: {number} of unknown number"),
    ("contradicted", "sources_disagree", "cannot be trusted: events contradict {number}"),
    ("at_limit", "unfinished_at_limit", "stays open: {number} unfinished, preempted {allowed}"),
)


@dataclass(frozen=True)
class Read:
    """Rows of `preemptions_by_run` and `preemption_findings`."""

    by_run: Mapping[str, Row]
    findings: Sequence[Row]


def read(db: "duckdb.DuckDBPyConnection", runs: Sequence[GateRun], predicate: Predicate) -> Read:
    """Numbers of both sides and the requests that stand out."""
    return Read(
        by_run(rows(db, "preemptions_by_run", run_ids=run_ids(runs))),
        rows(
            db,
            "preemption_findings",
            run_ids=run_ids(runs),
            max_preemptions=predicate.max_preemptions,
            most_ids=MOST_IDS,
        ),
    )


def judge(predicate: Predicate, runs: Sequence[GateRun], found: Read) -> list[PredicateResult]:
    """Judge the candidate's requests."""
    greatest = _greatest(found)
    candidates = [r.run_id for r in of_side(runs, "candidate")]
    known = [n for run_id in candidates if (n := greatest.get(run_id)) is not None]
    return [
        PredicateResult(
            id=predicate.id,
            kind=predicate.kind,
            field="num_preemptions",
            statistic="max",
            **per_side(runs, greatest),
            estimate=max(known, default=None),
            limit=predicate.max_preemptions,
            method="greatest number of any request, by its row or by events",
            **_decide(count(predicate.max_preemptions or 0, "time"), candidates, found),
        )
    ]


def _decide(allowed: str, candidates: Sequence[str], found: Read) -> dict[str, Any]:
    """Verdict, reasons and requests: fail over inconclusive over pass."""
    by_kind: dict[str, list[Row]] = {}
    for finding in found.findings:
        if finding["run_id"] in candidates:
            by_kind.setdefault(finding["finding"], []).append(finding)
    reached = [found.by_run[c]["reached"] if c in found.by_run else 0 for c in candidates]
    requests = count(sum(reached), "candidate request")
    if above := by_kind.get("above"):
        worst = max(f["worst"] for f in above)
        why = f"found {total(above)} of {requests} preempted more than {allowed}, one {worst} times"
        return outcome("fail", why, "preempted_too_often", above)
    if not all(reached):
        return outcome("inconclusive", "has a candidate run without requests", "no_data")
    for kind, reason, text in _OPEN:
        if rows_of := by_kind.get(kind):
            why = text.format(number=count(total(rows_of), "candidate request"), allowed=allowed)
            return outcome("inconclusive", why, reason, rows_of)
    bound = percent(min(1.0, 3 / sum(reached)))
    why = f"found none of {requests} preempted more than {allowed} (95 % bound {bound})"
    if unfinished := by_kind.get("unfinished", []):
        why += f"; {count(total(unfinished), 'request')} ended unfinished, judged on what was seen"
    return outcome("pass", why, found=unfinished)


def _greatest(found: Read) -> dict[str, int | None]:
    """Greatest number per run that any table shows, None where nothing is known."""
    numbers = {run_id: row["greatest"] for run_id, row in found.by_run.items()}
    for finding in found.findings:
        known = numbers.get(finding["run_id"])
        if known is not None or finding["worst"] > 0:
            numbers[finding["run_id"]] = max(known or 0, finding["worst"])
    return numbers
