"""P5: how many offered requests got no complete answer.

Failed (error, aborted, rejected, unsent) and censored shares are judged on every candidate run by
itself, of what was *offered*: a candidate that sheds load must not look better for it. A share
below the limit passes only where the run is large enough to show it, n >= 3 / limit. The increase
over the baseline is a statistic over pairs and is not decided yet.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from math import ceil
from typing import TYPE_CHECKING, Any

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Design, Predicate
from analysis.gate.evidence import Row, rows
from analysis.gate.predicates.common import SIDES, count, exact, outcome, percent
from analysis.gate.predicates.not_yet import no_statistics
from analysis.gate.verdict import MOST_IDS, PredicateResult, RunSummary
from replay.strict import printable

if TYPE_CHECKING:
    import duckdb

_LARGE_ENOUGH = 3  # with none seen in n, 3 / n is the 95 % bound of the share


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
    predicate: Predicate, runs: Sequence[RunSummary], unanswered: Sequence[Row], design: Design
) -> list[PredicateResult]:
    """One result per limit that is set."""
    found = []
    for share, limit in (
        (_FAILED, predicate.max_failed_fraction),
        (_CENSORED, predicate.max_censored_fraction),
    ):
        if limit is not None:
            mine = [r for r in unanswered if r["outcome"] == share.outcome]
            found.append(_judge_share(predicate, share, limit, runs, mine))
    if predicate.max_increase is not None:
        pairs = sum(r.side == "candidate" for r in runs)
        found.append(
            no_statistics(
                predicate,
                pairs,
                design,
                statistic="failed_increase",
                limit=predicate.max_increase,
            )
        )
    return found


def _judge_share(
    predicate: Predicate,
    share: _Share,
    limit: float,
    runs: Sequence[RunSummary],
    unanswered: Sequence[Row],
) -> PredicateResult:
    sides: dict[str, Any] = {
        side: tuple(
            share.counted(r) / r.offered if r.offered else None for r in runs if r.side == side
        )
        for side in SIDES
    }
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
        return outcome(
            "inconclusive", "cannot be judged: nobody knows how many were offered", "no_data"
        )
    least = ceil(_LARGE_ENOUGH / limit)
    if small := [n for _, n in known if n < least]:
        why = f"needs at least {least} requests a run to show a share of {percent(limit)}"
        return outcome("inconclusive", f"{why}, {min(small)} given", "too_few_eligible")
    if not any(share.counted(r) for r, _ in known):
        requests = count(sum(n for _, n in known), "offered request")
        return outcome("pass", f"found none of {requests} that {share.words}")
    greatest = max(Fraction(share.counted(r), n) for r, n in known)
    why = f"found that at most {percent(greatest)} of a candidate run's requests {share.words}"
    return outcome("pass", f"{why} ({percent(limit)} allowed)")
