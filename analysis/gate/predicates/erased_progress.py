"""P1: no token that was generated is ever lost. Deterministic, always on, judged on both sides.

Measured: within a request the generated tokens never fall from event to event, they end at what
its row says, and in a driven run every `ok` request reaches the length it was asked for, unless it
stopped by itself; where lengths were not forced, both sides did about the same work. Modelled:
the conservation oracle finds nothing in the ledgers given. Either part stands on its own row; a
preempted request whose events are missing leaves the measured part inconclusive.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Predicate
from analysis.gate.evidence import Row, by_run, rows, run_ids
from analysis.gate.predicates.common import SIDES, count, of_side, outcome, per_side, totals
from analysis.gate.verdict import MOST_IDS, PredicateResult

if TYPE_CHECKING:
    import duckdb

VIOLATIONS = ("fell", "end_differs", "short")
_WORK_LOW, _WORK_HIGH = 0.90, 1.10
_METHOD = "generated_tokens over events, against the row, and against the length asked for"


@dataclass(frozen=True)
class LedgerCheck:
    """A modelled ledger and what the conservation oracle said about it.

    `requests` are modelled, `of_requests` the compared run has; None where no run has them all.
    `violations` names equation and seq; `source` says which rule made the ledger.
    """

    source: str
    receipt_sha256: str | None
    requests: int
    of_requests: int | None
    violations: tuple[str, ...]


@dataclass(frozen=True)
class Read:
    """Rows of `progress_by_run` and `progress_faults`."""

    by_run: Mapping[str, Row]
    faults: Sequence[Row]


def read(db: "duckdb.DuckDBPyConnection", runs: Sequence[GateRun], predicate: Predicate) -> Read:
    """Everything the measured part looks at."""
    del predicate  # takes no parameter
    driven = [r.run_id for r in runs if r.value("kind") == "driven"]
    return Read(
        by_run(rows(db, "progress_by_run", run_ids=run_ids(runs))),
        rows(db, "progress_faults", run_ids=run_ids(runs), driven_ids=driven, most_ids=MOST_IDS),
    )


def judge(predicate: Predicate, runs: Sequence[GateRun], found: Read) -> list[PredicateResult]:
    """Judge the measured part of both sides."""
    violating = _numbers(found.faults, "violating")
    seen = {run_id: violating.get(run_id, 0) for run_id in found.by_run}
    return [
        PredicateResult(
            id=predicate.id,
            kind=predicate.kind,
            statistic="violating_requests",
            **per_side(runs, seen),
            estimate=sum(seen.values()) if seen else None,
            limit=0,
            method=_METHOD,
            **_decide(runs, found),
        )
    ]


def judge_ledgers(
    predicate: Predicate, ledgers: Sequence[LedgerCheck], *, required: bool
) -> list[PredicateResult]:
    """Judge the modelled part; no row where ledgers are neither given nor required."""
    if not ledgers and not required:
        return []
    broken = [v for check in ledgers for v in check.violations]
    sources = ", ".join(sorted({check.source for check in ledgers}))
    return [
        PredicateResult(
            id=predicate.id,
            kind=predicate.kind,
            evidence="modelled",
            statistic="violated_equations",
            estimate=len(broken) if ledgers else None,
            limit=0,
            method=f"conservation oracle ({sources})" if sources else "conservation oracle",
            **_decide_ledgers(ledgers, broken),
        )
    ]


def _decide_ledgers(ledgers: Sequence[LedgerCheck], broken: Sequence[str]) -> dict[str, Any]:
    """Verdict and reasons of the modelled part."""
    if broken:
        number = count(len(broken), "violated equation")
        why = f"found {number} in a modelled ledger, first: {broken[0]}"
        return outcome("fail", why, "oracle_violated")
    if not ledgers:
        why = "needs a modelled ledger (--ledger), none given"
        return outcome("inconclusive", why, "no_data")
    if foreign := [check for check in ledgers if check.of_requests is None]:
        why = f"got {count(len(foreign), 'ledger')} of other requests than the runs have"
        return outcome("inconclusive", why, "different_work")
    least = min(ledgers, key=lambda check: check.requests)
    why = (
        f"holds in {count(len(ledgers), 'modelled ledger')} of at least"
        f" {least.requests} of {least.of_requests} requests, every equation checked"
    )
    return outcome("pass", why)


def _decide(runs: Sequence[GateRun], found: Read) -> dict[str, Any]:
    """Verdict, reasons and requests: fail over inconclusive over pass."""
    violating = [f for f in found.faults if f["fault"] in VIOLATIONS]
    if violating:
        why = f"found generated tokens lost or missing: {_in_words(violating)}"
        number = sum(_numbers(violating, "violating").values())
        return outcome("fail", why, "progress_erased", violating, number)
    if found.faults:
        why = f"cannot be shown: {_in_words(found.faults)}"
        disagree = all(f["fault"] in ("no_row", "contradicted") for f in found.faults)
        number = sum(_numbers(found.faults, "unknown").values())
        reason = "sources_disagree" if disagree else "no_data"
        return outcome("inconclusive", why, reason, found.faults, number)
    reached = [found.by_run.get(r.run_id, {}).get("reached", 0) for r in runs]
    if not all(reached):
        why = f"has no request to look at in {count(reached.count(0), 'run')}"
        return outcome("inconclusive", why, "no_data")
    if why := _different_work(runs, found.by_run):
        return outcome("inconclusive", why, "different_work")
    preempted = sum(r["preempted"] for r in found.by_run.values())
    why = f"found no lost token in {count(sum(reached), 'request')}, {preempted} of them preempted"
    return outcome("pass", why)


def _numbers(faults: Sequence[Row], column: str) -> dict[str, int]:
    return {f["run_id"]: f[column] for f in faults}


def _in_words(faults: Sequence[Row]) -> str:
    words = {
        "fell": "fell between events",
        "end_differs": "ended at another number than the row",
        "short": "ended short of the length asked for",
        "events_missing": "were preempted but lack events",
        "not_known": "have an unknown count",
        "no_row": "have events but no row",
        "contradicted": "have more preempt events than their row says",
    }
    number = totals(faults, "fault")
    return ", ".join(
        f"{sum(n for (_, fault), n in number.items() if fault == kind)} {text}"
        for kind, text in words.items()
        if any(fault == kind for _, fault in number)
    )


def _different_work(runs: Sequence[GateRun], found: Mapping[str, Row]) -> str:
    """Why the sides did different work; empty where lengths were forced or totals are close.

    Live runs were not offered the same requests: of them the request mix is compared.
    """
    free = {
        r.pair
        for r in runs
        if r.value("kind") == "driven" and found.get(r.run_id, {}).get("stopped")
    }
    for pair in sorted(free):
        totals_of = [
            [found.get(r.run_id, {}).get("tokens") for r in of_side(runs, side) if r.pair == pair]
            for side in SIDES
        ]
        (base,), (cand,) = totals_of
        if not base or cand is None:
            return f"has an unknown amount of generated tokens in pair {pair}"
        if not _WORK_LOW <= cand / base <= _WORK_HIGH:
            return f"compares different work: pair {pair} generated {base} and {cand} tokens"
    return ""
