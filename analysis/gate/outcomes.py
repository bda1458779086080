"""What became of each request on the other side, and how even its tokens came: decides nothing.

Requests of one run share its luck, so a count of them is no test; it tells where to look.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Gate
from analysis.gate.evidence import rows, run_ids, slice_rows
from analysis.gate.predicates.goodput import limits_of
from analysis.gate.statistics import rounded

if TYPE_CHECKING:
    import duckdb

MOST_WORST = 10


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
        "worst": [
            dict(row)
            for row in rows(
                db,
                "worst_pairs",
                baseline_ids=run_ids(runs[::2]),
                candidate_ids=run_ids(runs[1::2]),
                warmup_us=gate.design.warmup_us,
                follow_up_us=gate.design.follow_up_us,
                most_rows=MOST_WORST,
            )
        ],
    }


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
