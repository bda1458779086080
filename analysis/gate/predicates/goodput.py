"""P4: how many of the offered requests are answered well enough, and how much that drops.

Good is `ok` with every objective met. The denominator is what was *offered* and eligible, so a
request that failed, was shed or never answered counts against its side. Two tests: the mean share
of the candidate's runs against `min_fraction`, and the drop from the baseline, pair by pair,
against `max_drop`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING

from analysis.gate.comparability import GateRun
from analysis.gate.contract import LATENCY_FIELDS, Design, Predicate, Slice
from analysis.gate.evidence import Row, slice_rows
from analysis.gate.predicates.common import SIDES, exact, least_to_show, of_side
from analysis.gate.predicates.effects import (
    Question,
    decide,
    method,
    missing_values,
    too_few_eligible,
    too_few_pairs,
    unknown_end,
)
from analysis.gate.validity import Objection
from analysis.gate.verdict import PredicateResult

if TYPE_CHECKING:
    import duckdb

_TAIL_REQUESTS = 20  # bad ones expected at the least share allowed


@dataclass(frozen=True)
class _Test:
    statistic: str
    limit: float
    least: int  # eligible requests a run needs
    of: str
    ask: Callable[[list[float], list[float]], Question]


def ask(
    db: "duckdb.DuckDBPyConnection",
    runs: Sequence[GateRun],
    predicate: Predicate,
    part: Slice | None,
    design: Design,
    objections: Sequence[Objection | None] = (),
) -> list[PredicateResult]:
    """`judge` of what `read` finds."""
    found = read(db, runs, predicate, part, design)
    return judge(predicate, runs, found, design, part, objections)


def read(
    db: "duckdb.DuckDBPyConnection",
    runs: Sequence[GateRun],
    predicate: Predicate,
    part: Slice | None,
    design: Design,
) -> list[Row]:
    """Good, bad and unknown requests of every run that has eligible ones."""
    return slice_rows(db, "good_requests", part, runs, design, slo=limits_of(predicate))


def limits_of(predicate: Predicate | None) -> dict[str, int | None]:
    """Every latency's objective in microseconds, None where it is none or nobody set any."""
    return dict.fromkeys(LATENCY_FIELDS) | dict((predicate and predicate.slo) or ())


def judge(
    predicate: Predicate,
    runs: Sequence[GateRun],
    found: Sequence[Row],
    design: Design,
    part: Slice | None,
    objections: Sequence[Objection | None],
) -> list[PredicateResult]:
    """One result per limit that is set; `objections` are to any statistic of these runs."""
    by_run = {row["run_id"]: row for row in found}
    shares = {side: [_share(by_run.get(r.run_id)) for r in of_side(runs, side)] for side in SIDES}
    known = {side: [v for v in values if v is not None] for side, values in shares.items()}
    complete = all(len(known[side]) == len(shares[side]) for side in SIDES)
    results = []
    for test in _tests(predicate, part):
        question = test.ask(known["baseline"], known["candidate"]) if complete else None
        decided = decide(
            question or Question("", (), test.limit, test.limit),
            design,
            [
                too_few_pairs(len(shares["candidate"]), design),
                unknown_end(runs),
                missing_values(runs, by_run, "a value that an objective needs"),
                too_few_eligible(runs, by_run, test.least),
                _cannot_drop(test, known["baseline"]),
                *objections,
            ],
        )
        decided["why"] += _rates(runs, by_run)
        results.append(
            PredicateResult(
                id=predicate.id,
                kind=predicate.kind,
                statistic=test.statistic,
                slice=predicate.slice,
                baseline=tuple(shares["baseline"]),
                candidate=tuple(shares["candidate"]),
                limit=test.limit,
                method=method(design, test.of),
                **decided,
            )
        )
    return results


def least_eligible(predicate: Predicate, part: Slice | None) -> dict[str, int]:
    """Requests a run needs by statistic: what the slice says, else enough to see the limit.

    For a least share 20 bad ones at that share; for a drop as many as bound it with none seen.
    """
    return {test.statistic: test.least for test in _tests(predicate, part)}


def _tests(predicate: Predicate, part: Slice | None) -> list[_Test]:
    set_by_slice = part.min_eligible if part is not None else None
    tests = []
    if (share := predicate.min_fraction) is not None:
        tests.append(
            _Test(
                "good_fraction",
                share,
                set_by_slice or ceil(_TAIL_REQUESTS / (1 - exact(share))),
                "share of eligible offered requests, over candidate runs",
                lambda _, cand: Question(
                    "a share of good requests of", cand, share, share, at_least=True, signed=False
                ),
            )
        )
    if (drop := predicate.max_drop) is not None:
        tests.append(
            _Test(
                "good_drop",
                drop,
                set_by_slice or least_to_show(exact(drop)),
                "baseline - candidate share of good requests per pair",
                lambda base, cand: Question(
                    "a drop of the share of good requests of",
                    [b - c for b, c in zip(base, cand, strict=True)],
                    drop,
                    drop,
                    signed=False,
                ),
            )
        )
    return tests


def _share(row: Row | None) -> float | None:
    if row is None or row["unknown"]:
        return None
    return float(row["good"] / row["requests"])


def _cannot_drop(test: _Test, baseline: Sequence[float]) -> Objection | None:
    """Objection to a baseline that has no more good requests than it may lose."""
    if test.statistic != "good_drop" or not baseline or min(baseline) > test.limit:
        return None
    why = "cannot be shown: a baseline run has no more good requests than may be lost"
    return Objection("no_data", why)


def _rates(runs: Sequence[GateRun], by_run: Mapping[str, Row]) -> str:
    """Good requests a second of the send window on either side; nothing where it is unknown."""
    shown = []
    for side in SIDES:
        rows = [by_run.get(r.run_id) for r in of_side(runs, side)]
        windows = [row["send_window_us"] for row in rows if row and row["send_window_us"]]
        if (
            not rows
            or len(windows) < len(rows)
            or min(windows) <= 0
            or any(r["unknown"] for r in rows if r)
        ):
            return ""
        good = sum(row["good"] for row in rows if row)
        shown.append(f"{good / (sum(windows) / 1_000_000):.3g}/s")
    return f"; good per second of sending: {shown[0]} on the baseline, {shown[1]} on the candidate"
