"""What a run says of its steps' durations: from the begin of one to the begin of the next.

Only steps that another followed at once count; where the engine may have idled in between, nobody
knows when the step ended. Under asynchronous scheduling a step lasts as long as the batch before it
(docs/vllm-v1.md, "Timed steps"), so that one's sizes stand beside it.
"""

from dataclasses import dataclass

import numpy as np
import polars as pl
from numpy.typing import NDArray

from collectors.run import Run, value_at
from replay.errors import InputError

Floats = NDArray[np.float64]
SIZES = ("prefill_tokens", "decode_requests", "kv_tokens")
_NEEDED = ("scheduled_tokens", "waiting", *SIZES)


@dataclass(frozen=True, eq=False)
class Durations:
    """`us[k]` is how long step k took, and row k of `sizes` (shape (steps, 3)) what it computed.

    Columns of `sizes` are `SIZES`. `left_out` counts steps whose end is not known.
    """

    us: Floats
    sizes: Floats
    left_out: int

    def __len__(self) -> int:
        return len(self.us)


def step_durations(run: Run, engine: int) -> Durations:
    """Durations of one engine's steps, in order; raises `InputError` where none can be told."""
    place = str(run.path)
    steps = run.steps.filter(pl.col("engine") == engine).sort("step")
    known = steps.drop_nulls(_NEEDED)
    if known.is_empty():
        rule = f"must hold steps of engine {engine} with their sizes ({', '.join(_NEEDED)})"
        raise InputError(place, "steps", rule, f"{steps.height} steps, none with all of them")
    after = {name: pl.col(name).shift(-1) for name in ("step", "decode_requests", "kv_tokens")}
    went_on = (
        (after["decode_requests"] > 0)
        | (pl.col("waiting") > 0)
        | (after["kv_tokens"] == pl.col("kv_tokens") + pl.col("scheduled_tokens").shift(-1))
    )
    frame = known.select(
        us=pl.col("time_us").shift(-1) - pl.col("time_us"),
        ends=((after["step"] == pl.col("step") + 1) & went_on).fill_null(value=False),
        **{name: pl.col(name) for name in SIZES},
    )
    if value_at(run.manifest, "scheduler.async_scheduling"):
        earlier = [pl.col(name).shift(1) for name in SIZES]
        delivers = pl.col("ends").shift(1).fill_null(value=False)
        frame = frame.with_columns(*earlier, ends=pl.col("ends") & delivers)
    kept = frame.filter(pl.col("ends") & (pl.col("us") > 0))
    return Durations(
        us=kept["us"].to_numpy().astype(np.float64),
        sizes=kept.select(SIZES).to_numpy().astype(np.float64),
        left_out=known.height - kept.height,
    )
