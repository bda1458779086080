"""Where a stepped replay and its run part: the first step whose events differ, and both states."""

from dataclasses import asdict, dataclass
from typing import Any

import polars as pl

from collectors.run import Run
from replay.events import to_frame
from replay.ledger import Ledger

# What both record of a step; how a request ends is told by another part of vLLM.
_KINDS = ("arrive", "admit", "preempt", "resume")
_EVENT = ["step", "kind", "request_id"]


@dataclass(frozen=True)
class State:
    """An engine at a step; None where nobody recorded it."""

    running: int | None
    waiting: int | None
    free_blocks: int | None


@dataclass(frozen=True)
class Divergence:
    """The first step whose events differ: those of one side only, as (kind, request_id).

    `modelled_state` is after the last modelled event up to this step, `measured_state` what the
    recorder saw of the step.
    """

    step: int
    only_modelled: tuple[tuple[str, str], ...]
    only_measured: tuple[tuple[str, str], ...]
    modelled_state: State
    measured_state: State

    def record(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)


def first_divergence(ledger: Ledger, run: Run, engine: int) -> Divergence | None:
    """Compare a replay in the engine's own steps with its run; None where no step differs."""
    frame = to_frame(ledger.events, ledger.request_ids).with_columns(step="tick")
    modelled = frame.filter(pl.col("kind").is_in(_KINDS)).select(_EVENT)
    measured = run.events.filter(
        (pl.col("engine") == engine)
        & pl.col("kind").is_in(_KINDS)
        & pl.col("request_id").is_in(ledger.request_ids)
    ).select(_EVENT)
    only_modelled = modelled.join(measured, on=_EVENT, how="anti")
    only_measured = measured.join(modelled, on=_EVENT, how="anti")
    steps = [*only_modelled["step"], *only_measured["step"]]
    if not steps:
        return None
    step = min(steps)
    seen = frame.filter(pl.col("step") <= step).tail(1)
    row = run.steps.filter((pl.col("engine") == engine) & (pl.col("step") == step)).head(1)
    return Divergence(
        step,
        _named(only_modelled, step),
        _named(only_measured, step),
        _state(
            seen,
            "active_requests",
            "queue_depth",
            pl.col("capacity_blocks") - pl.col("occupied_blocks_after"),
        ),
        _state(row, "running", "waiting", pl.col("free_blocks")),
    )


def _named(events: pl.DataFrame, step: int) -> tuple[tuple[str, str], ...]:
    found = events.filter(pl.col("step") == step).sort("kind", "request_id")
    return tuple(found.select("kind", "request_id").iter_rows())


def _state(row: pl.DataFrame, running: str, waiting: str, free: pl.Expr) -> State:
    if row.is_empty():
        return State(None, None, None)
    return State(*row.select(running, waiting, free.alias("free")).row(0))
