"""P5: how many offered requests got no complete answer.

Failed (error, aborted, rejected, unsent) and censored shares are judged on every candidate run by
itself, of what was *offered*: a candidate that sheds load must not look better for it. A share
below the limit passes only where the run is large enough to show it, n >= 3 / limit. The increase
of the failed share over the baseline is a statistic over pairs, of all offered requests as well.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Design, Predicate
from analysis.gate.evidence import Row, rows
from analysis.gate.predicates.common import SIDES, count, exact, least_to_show, outcome, percent
from analysis.gate.predicates.effects import Question, decide, method, too_few_pairs
from analysis.gate.validity import Objection
from analysis.gate.verdict import MOST_IDS, PredicateResult, RunSummary
from replay.strict import printable

if TYPE_CHECKING:
    import duckdb

_NOT_OFFERED = "cannot be judged: nobody knows how many were offered"


@dataclass(frozen=True)
class _Share:
    """One of the two shares: what counts, and what a share above the limit is called."""

    outcome: str
    words: str
    reason: str

    def counted(self, run: RunSummary) -> int:
        return run.failed if self.outcome == "failed" else run.censored or 0


_FAILED = _Share("failed", "failed", "too_many_failed")
_CENSORED = _Share("censored", "were cut off unfinished", "too_many_censored")


def read(db: "duckdb.DuckDBPyConnection", runs: Sequence[GateRun]) -> list[Row]:
    """Candidate requests without a complete answer."""
    candidates = [r.run_id for r in runs if r.side == "candidate"]
    return rows(db, "unanswered_requests", run_ids=candidates, most_ids=MOST_IDS)


def judge(
    predicate: Predicate, runs: Sequence[RunSummary], unanswered: Sequence[Row]
) -> list[PredicateResult]:
    """One result per limit on a run's own share that is set."""
    found = []
    for share, limit in (
        (_FAILED, predicate.max_failed_fraction),
        (_CENSORED, predicate.max_censored_fraction),
    ):
        if limit is not None:
            mine = [r for r in unanswered if r["outcome"] == share.outcome]
            found.append(_judge_share(predicate, share, limit, runs, mine))
    return found


def judge_increase(
    predicate: Predicate,
    runs: Sequence[RunSummary],
    design: Design,
    objections: Sequence[Objection | None],
) -> list[PredicateResult]:
    """The result of `max_increase`, none where it is not set; `objections` are to statistics."""
    limit = predicate.max_increase
    if limit is None:
        return []
    sides = _per_side(_FAILED, runs)
    known = [v for v in (*sides["baseline"], *sides["candidate"]) if v is not None]
    complete = len(known) == len(runs)
    differences = (
        [c - b for b, c in zip(sides["baseline"], sides["candidate"], strict=True)]
        if complete
        else []
    )
    least = least_to_show(exact(limit))
    fewest = min((r.offered or 0 for r in runs), default=0)
    decided = decide(
        Question("the share of failed requests changed by", differences, limit, limit),
        design,
        [
            too_few_pairs(len(sides["candidate"]), design),
            None if complete else Objection("no_data", _NOT_OFFERED),
            # With no event at all the interval has no width, and shows nothing by itself.
            Objection("too_few_eligible", _needs(least, limit, fewest))
            if complete and not any(known) and fewest < least
            else None,
            *objections,
        ],
    )
    return [
        PredicateResult(
            id=predicate.id,
            kind=predicate.kind,
            field="status",
            statistic="failed_increase",
            **sides,
            limit=limit,
            method=method(design, "candidate - baseline share of offered requests per pair"),
            **decided,
        )
    ]


def _per_side(share: _Share, runs: Sequence[RunSummary]) -> dict[str, Any]:
    return {
        side: tuple(
            share.counted(r) / r.offered if r.offered else None for r in runs if r.side == side
        )
        for side in SIDES
    }


def _needs(least: int, limit: float | Fraction, given: int) -> str:
    return (
        f"needs at least {least} requests a run to show a share of {percent(limit)}, {given} given"
    )


def _judge_share(
    predicate: Predicate,
    share: _Share,
    limit: float,
    runs: Sequence[RunSummary],
    unanswered: Sequence[Row],
) -> PredicateResult:
    sides = _per_side(share, runs)
    known = [v for v in sides["candidate"] if v is not None]
    candidates = [r for r in runs if r.side == "candidate"]
    return PredicateResult(
        id=predicate.id,
        kind=predicate.kind,
        field="status",
        statistic=f"{share.outcome}_fraction",
        **sides,
        estimate=max(known, default=None),
        limit=limit,
        method="share of offered requests, the worst candidate run",
        **_decide(share, exact(limit), candidates, unanswered),
    )


def _decide(
    share: _Share, limit: Fraction, candidates: Sequence[RunSummary], unanswered: Sequence[Row]
) -> dict[str, Any]:
    """Fail if any run is above, inconclusive if any cannot show it, pass if all are below."""
    known = [(r, r.offered) for r in candidates if r.offered]
    above = [(r, n) for r, n in known if share.counted(r) > limit * n]
    if above:
        run, offered = max(above, key=lambda pair: Fraction(share.counted(pair[0]), pair[1]))
        number = share.counted(run)
        why = (
            f"found that {number} of {count(offered, 'offered request')} of"
            f" {printable(run.run_id)} {share.words} ({percent(Fraction(number, offered))},"
            f" {percent(limit)} allowed)"
        )
        names = {r.run_id for r, _ in above}
        mine = [r for r in unanswered if r["run_id"] in names]
        return outcome("fail", why, share.reason, mine)
    if len(known) < len(candidates):
        return outcome("inconclusive", _NOT_OFFERED, "no_data")
    least = least_to_show(limit)
    if small := [n for _, n in known if n < least]:
        return outcome("inconclusive", _needs(least, limit, min(small)), "too_few_eligible")
    if not any(share.counted(r) for r, _ in known):
        requests = count(sum(n for _, n in known), "offered request")
        return outcome("pass", f"found none of {requests} that {share.words}")
    greatest = max(Fraction(share.counted(r), n) for r, n in known)
    why = f"found that at most {percent(greatest)} of a candidate run's requests {share.words}"
    return outcome("pass", f"{why} ({percent(limit)} allowed)")
