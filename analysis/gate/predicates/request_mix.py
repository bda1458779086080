"""Did both sides of a live split get the same sort of traffic? What P0 asks of windows.

Two things can be wrong. The split: the candidate's share of all requests is not the one that was
declared, because the split was not random by request, or because one side's requests are lost
before anybody records them (a canary that sheds load looks quick). That is tested exactly, at
0.1 %. And the mix: in some window the distributions of prompt or of output lengths are further
apart than the gate allows. Either leaves every statistic undecided; counts decide as ever.

Outputs are those of answered requests. A window in which a side answered none says nothing of
outputs, and no statistic passes on it: what was not answered counts as the whole follow-up, and as
bad.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import log, sqrt
from typing import TYPE_CHECKING, Any

from analysis.gate.contract import Design
from analysis.gate.evidence import Row, by_run, slice_rows
from analysis.gate.predicates.common import count, percent
from analysis.gate.statistics import rounded
from analysis.gate.validity import Objection
from analysis.gate.verdict import INCONCLUSIVE, PASS, PredicateResult
from analysis.gate.windows import Windows

if TYPE_CHECKING:
    import duckdb

NAME, KIND = "request-mix", "request_mix"
_TAIL = 0.001  # two-sided: a declared share is false if chance gives this seldom so odd a one
_PROMPT, _OUTPUT = "prompt_tokens", "output_tokens"
_NOBODY = "cannot be shown: a side answered no request in any window"
_NO_WINDOW = "cannot be shown: no window is whole on both sides"


def read(
    db: "duckdb.DuckDBPyConnection", windows: Windows, design: Design
) -> tuple[list[Row], list[Row]]:
    """Rows of `window_counts` and of `window_mix`."""
    counts = slice_rows(db, "window_counts", None, windows.units, design)
    return counts, slice_rows(db, "window_mix", None, windows.units, design)


def judge(
    windows: Windows, design: Design, counts: Sequence[Row], mix: Sequence[Row]
) -> list[PredicateResult]:
    """The share of the candidate, then a result for each length."""
    requests = {run_id: row["requests"] for run_id, row in by_run(counts).items()}
    sides = {
        side: tuple(requests.get(u.run_id, 0) for u in windows.units if u.side == side)
        for side in ("baseline", "candidate")
    }
    found = [_share(design.candidate_fraction or 0.0, **sides)]
    for length in (_PROMPT, _OUTPUT):
        rows = {row["pair"]: row for row in mix if row["length"] == length}
        found.append(_distance(length, design.max_mix_distance or 0.0, windows.judged, rows))
    return found


def objection(found: Sequence[PredicateResult]) -> Objection | None:
    """Why no statistic is decided, None where the sides got the same traffic.

    A side that answered nobody is no reason: it is what a statistic has to fail.
    """
    wrong = next((r for r in found if r.verdict != PASS and r.why != _NOBODY), None)
    if wrong is None:
        return None
    return Objection(wrong.reasons[0], f"cannot be decided: {NAME} {wrong.why}")


def _share(
    declared: float, baseline: tuple[int, ...], candidate: tuple[int, ...]
) -> PredicateResult:
    total, mine = sum(baseline) + sum(candidate), sum(candidate)
    method = f"exact binomial over all windows, two-sided {percent(_TAIL)}"
    decided: dict[str, Any]
    if not baseline or not total:
        why = "cannot be shown: no request in any window" if baseline else _NO_WINDOW
        decided = _open("no_data", why)
    else:
        p = _two_sided(mine, total, declared)
        shares = f"{percent(mine / total)} of {count(total, 'request')}, {percent(declared)}"
        if p < _TAIL:
            why = f"found that the candidate got {shares} were declared (p {rounded(p):.2g})"
            decided = _open("different_work", why)
        else:
            decided = {"verdict": PASS, "why": f"found the candidate's share as declared: {shares}"}
        decided["estimate"] = rounded(mine / total)
    return PredicateResult(
        id=NAME,
        kind=KIND,
        statistic="candidate_fraction",
        candidate=tuple(
            rounded(c / (b + c)) if b + c else None
            for b, c in zip(baseline, candidate, strict=True)
        ),
        limit=declared,
        method=method,
        **decided,
    )


def _distance(length: str, limit: float, windows: int, rows: dict[int, Row]) -> PredicateResult:
    """Of one length: no window may be further apart than the limit."""
    found = [rows.get(k) for k in range(windows)]
    far = [
        None
        if row is None or row["apart"] is None
        else rounded(float(Fraction(row["apart"], row["baseline"] * row["candidate"])))
        for row in found
    ]
    known = [v for v in far if v is not None]
    shown: dict[str, Any] = {}
    if known:
        shown = {"estimate": max(known)}
        if len(known) == windows:
            shown["effects"] = tuple(known)
    return PredicateResult(
        id=NAME,
        kind=KIND,
        field=length,
        statistic=f"{length.removesuffix('_tokens')}_distance",
        limit=limit,
        method="Kolmogorov-Smirnov distance of the sides in each window",
        **shown,
        **_decide(length, limit, found, far),
    )


def _decide(
    length: str, limit: float, rows: Sequence[Row | None], far: Sequence[float | None]
) -> dict[str, Any]:
    if not rows:
        return _open("no_data", _NO_WINDOW)
    unknown = sum(row["unknown"] for row in rows if row is not None)
    if unknown:
        why = f"cannot be shown: {count(unknown, 'request')} of the windows without {length}"
        return _open("no_data", why)
    apart = [
        (distance, k, row)
        for k, (distance, row) in enumerate(zip(far, rows, strict=True))
        if distance is not None and row is not None
    ]
    if len(apart) < len(rows) and length == _PROMPT:
        return _open("too_few_eligible", "cannot be shown: a window has no request on one side")
    if not apart:
        return _open("no_data", _NOBODY)
    distance, k, row = max(apart, key=lambda one: (one[0], -one[1]))
    words = f"{length} in window {k + 1} {distance:.3g} apart"
    if distance <= limit:
        return {"verdict": PASS, "why": f"found {words} at most ({limit:g} allowed)"}
    chance = by_chance(row["baseline"], row["candidate"])
    if chance >= limit:
        why = (
            f"found {words} ({limit:g} allowed), but so few requests"
            f" ({row['baseline']} and {row['candidate']}) are that far apart by chance"
        )
        return _open("too_few_eligible", why)
    return _open("different_work", f"found {words} ({limit:g} allowed)")


def by_chance(one: int, other: int) -> float:
    """Distance that two samples of one distribution exceed once in a thousand."""
    return sqrt(-log(_TAIL / 2) / 2) * sqrt((one + other) / (one * other))


def _two_sided(hits: int, total: int, share: float) -> float:
    """Twice the smaller tail of a binomial, at most 1."""
    from scipy.special import bdtr, bdtrc

    below = float(bdtr(hits, total, share))
    above = float(bdtrc(hits - 1, total, share)) if hits else 1.0
    return min(1.0, 2 * min(below, above))


def _open(reason: str, why: str) -> dict[str, Any]:
    return {"verdict": INCONCLUSIVE, "why": why, "reasons": (reason,)}
