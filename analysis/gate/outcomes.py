"""What became of each request on the other side, and how even its tokens came: decides nothing.

Requests of one run share its luck, so a count of them is no test; it tells where to look.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Design, Gate
from analysis.gate.evidence import HasId, rows, slice_rows
from analysis.gate.predicates.goodput import limits_of
from analysis.gate.statistics import rounded

if TYPE_CHECKING:
    import duckdb

MOST_WORST = 10


class HasPlace(HasId, Protocol):
    """A run with its place in a comparison."""

    @property
    def pair(self) -> int:
        """Which pair it is of, from 0."""


def outcomes(
    db: "duckdb.DuckDBPyConnection", gate: Gate, runs: Sequence[GateRun]
) -> dict[str, Any]:
    """Per pair how requests fared on either side, and the ones that got slowest.

    Good is by the objectives of the gate's first goodput predicate, else by status.
    """
    by = next((p for p in gate.predicates if p.kind == "goodput"), None)
    part = None if by is None else gate.slice_of(by)
    slo = limits_of(by)
    pairs = []
    for base, cand in zip(runs[::2], runs[1::2], strict=True):
        (row,) = slice_rows(
            db,
            "pair_outcomes",
            part,
            (base, cand),
            gate.design,
            nobody=True,
            run_ids=[base.run_id, cand.run_id],
            slo=slo,
            by_status=by is None,
        )
        pairs.append({"pair": base.pair, **row})
    return {
        "good_by": None if by is None else by.id,
        "slice": None if part is None else part.name,
        "pairs": pairs,
        "worst": worst(db, gate.design, list(zip(runs[::2], runs[1::2], strict=True))),
    }


def worst(
    db: "duckdb.DuckDBPyConnection", design: Design, pairs: Sequence[tuple[HasPlace, HasPlace]]
) -> list[dict[str, Any]]:
    """The requests that got slowest against the baseline, of all pairs together."""
    found = [
        {"pair": base.pair, **row}
        for base, cand in pairs
        for row in rows(
            db,
            "worst_pairs",
            baseline_id=base.run_id,
            candidate_id=cand.run_id,
            warmup_us=design.warmup_us,
            follow_up_us=design.follow_up_us,
            most_rows=MOST_WORST,
        )
    ]
    order = sorted(found, key=lambda r: (-r["increase_us"], r["pair"], r["request_id"]))
    return order[:MOST_WORST]


def token_gaps(
    db: "duckdb.DuckDBPyConnection", gate: Gate, runs: Sequence[GateRun]
) -> list[dict[str, Any]]:
    """Longest gaps between tokens beside TPOT, a row a side; null where nobody recorded them.

    Goodput by TPOT alone can be met by a stream that stands still and then hurries.
    """
    baseline = [run.run_id for run in runs if run.side == "baseline"]
    found = slice_rows(db, "token_gaps", None, runs, gate.design, baseline_ids=baseline)
    return [
        {key: rounded(v) if isinstance(v, float) else v for key, v in row.items()} for row in found
    ]
