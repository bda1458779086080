"""Pairs of runs for the tests of statistics: a recorded run, changed in what was measured."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
from stored import recorded

from collectors.run import Run

TIMES = (
    "queue_time_us",
    "requeue_time_us",
    "prefill_time_us",
    "decode_time_us",
    "ttft_us",
    "tpot_us",
    "e2e_us",
)
DESIGN = {"pairs": 6, "warmup_us": 5_000_000, "follow_up_us": 10_000_000}


def run_of(run_id: str, side: str, pair: int, *steps: Sequence[pl.Expr], **manifest: Any) -> Run:
    """A steady run of a real vLLM under another name, columns set step by step; in ABBA order.

    Nobody is preempted in it and no event is kept, so that deterministic checks have nothing to
    say. The recorder did not know the prefill time: it is given one.
    """
    run = recorded("cand-80")
    place = 2 * pair + ((side == "candidate") != (pair % 2 == 1))
    changes = {
        "run_id": run_id,
        "comparison": {"side": side, "pair": pair, "order": place, "arrival_seed": None},
    }
    requests = run.requests.with_columns(
        run_id=pl.lit(run_id),
        num_preemptions=pl.lit(0, pl.Int64),
        requeue_time_us=pl.lit(0, pl.Int64),
        prefill_time_us=pl.col("ttft_us") - pl.col("queue_time_us"),
    )
    for columns in steps:
        requests = requests.with_columns(*columns)
    return replace(
        run,
        run_id=run_id,
        manifest={**run.manifest, **changes, **manifest},
        requests=requests.select(run.requests.columns).cast(dict(run.requests.schema)),
        events=run.events.clear(),
        steps=run.steps.clear(),
    )


def slower(factor: float, *fields: str) -> list[pl.Expr]:
    """Times multiplied, rounded to whole microseconds."""
    return [(pl.col(f) * factor).round().cast(pl.Int64) for f in fields or TIMES]


def pairs(
    factors: Sequence[float],
    *fields: str,
    noise: Sequence[float] = (),
    columns: Sequence[pl.Expr] = (),
    **manifest: Any,
) -> tuple[list[Run], list[Run]]:
    """One pair a factor: both sides share the pair's noise, the candidate is slower by its factor.

    `columns` and `manifest` are set on the candidates only.
    """
    luck = [*noise, *[1.0] * len(factors)]
    return (
        [run_of(f"b{k}", "baseline", k, slower(luck[k])) for k in range(len(factors))],
        [
            run_of(
                f"c{k}",
                "candidate",
                k,
                slower(luck[k]),
                slower(factor, *fields),
                columns,
                **manifest,
            )
            for k, factor in enumerate(factors)
        ],
    )
