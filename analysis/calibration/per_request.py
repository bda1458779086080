"""Step durations where no step was recorded: from request rows and `iteration_tokens_total`.

Weaker than steps: a prefill stands for the steps it went through alone, and the mean time between a
request's tokens for a step of mean size. Preempted requests are left out.
"""

import numpy as np
import polars as pl

from analysis.calibration.durations import Durations
from collectors.run import Run, value_at
from replay.errors import InputError

_ITERATIONS = "iteration_tokens_total"


def request_durations(run: Run, engine: int) -> Durations:
    """Two rows for each request that was not preempted; `InputError` where something is missing."""
    rows = run.requests.filter(
        (pl.col("status") == "ok") & (pl.col("engine").fill_null(engine) == engine)
    )
    used = rows.drop_nulls(["prompt_tokens", "generated_tokens"]).filter(
        pl.col("num_preemptions").fill_null(0) == 0,
        pl.col("prefill_time_us") > 0,
        pl.col("tpot_us") > 0,
    )
    place = str(run.path)
    if used.is_empty():
        rule = (
            "must hold steps, or requests never preempted with prompt_tokens, prefill_time_us and"
            " tpot_us"
        )
        raise InputError(place, "requests", rule, f"{rows.height} ended well, none such")
    decodes = _decodes_a_step(run, rows, engine)
    budget = value_at(run.manifest, "scheduler.max_num_batched_tokens") or 2**53
    prompt = (used["prompt_tokens"] - used["cached_tokens"].fill_null(0)).clip(0)
    chunks = (prompt / budget).ceil().clip(1)
    zero = np.zeros(used.height)
    prefill = np.column_stack([(prompt / chunks).to_numpy(), zero, zero])
    decode = np.column_stack([zero, np.full(used.height, decodes), zero])
    return Durations(
        us=np.concatenate(
            [(used["prefill_time_us"] / chunks).to_numpy(), used["tpot_us"].to_numpy()]
        ).astype(np.float64),
        sizes=np.concatenate([prefill, decode]),
        left_out=rows.height - used.height,
    )


def _decodes_a_step(run: Run, rows: pl.DataFrame, engine: int) -> float:
    """Tokens that decoding requests got in a mean step."""
    steps = _rise(run, engine)
    if not steps:
        rule = f"must hold the histogram {_ITERATIONS} where no step was recorded"
        raise InputError(str(run.path), "samples", rule, "no rise of its count")
    # A request's first token is its prefill's.
    tokens = int(rows["generated_tokens"].sum() or 0) - rows.height
    return max(tokens, 0) / steps


def _rise(run: Run, engine: int) -> float:
    """How many steps the engine counted while it was scraped; a reset begins anew at 0."""
    counts = run.samples.filter(
        (pl.col("name") == f"{_ITERATIONS}_count")
        & (pl.col("engine").fill_null(engine) == engine)
        & pl.col("value").is_not_null()
    ).sort("scrape")["value"]
    rises = counts.diff().drop_nulls()
    grown = pl.Series([max(rise, 0.0) for rise in rises])
    after_reset = [value for value, rise in zip(counts[1:], rises, strict=True) if rise < 0]
    return float(grown.sum() or 0) + float(sum(after_reset))
