"""Replaying a recorded run from its own arrive steps gives exactly what its engine did."""

from pathlib import Path

import polars as pl
import pytest

from collectors.run import read_run
from preempt.inputs import Choices, replay_inputs
from replay.events import to_frame
from replay.run import replay

FIXTURES = Path(__file__).parents[1] / "fixtures"
RUNS = {
    "base-1": (FIXTURES / "runs" / "base-1", 230),
    "base-2": (FIXTURES / "live" / "base-2", 216),
    "cand-80": (FIXTURES / "runs" / "cand-80", 7),
    "prio-48": (FIXTURES / "live" / "prio-48", 169),
}
# What the engine called a column of its preempt events, and what the ledger calls it.
PREEMPT = {
    "step": "tick",
    "request_id": "request_id",
    "context_tokens": "context_tokens",
    "computed_tokens": "recompute_tokens",
    "generated_tokens": "generated_tokens",
    "freed_blocks": "freed_blocks",
    "running": "active_requests",
    "waiting": "queue_depth",
    "num_preemptions": "preemptions",
    "free_blocks_before": "free_blocks_before",
}
# Steps are the engine's own, so every other act is compared by step, too.
KINDS = {"arrive": "arrive", "admit": "admit", "resume": "resume", "finish": "complete"}


def replayed(path: Path) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Measured events of a run, and the events of the ledger that its own arrivals give."""
    inputs = replay_inputs(path, None, Choices())
    ledger = replay(inputs.workload, inputs.config)
    capacity = inputs.config.engine.capacity_blocks
    modelled = to_frame(ledger.events, ledger.request_ids).with_columns(
        free_blocks_before=capacity - pl.col("occupied_blocks_before")
    )
    return read_run(path).events, modelled


@pytest.mark.parametrize(("path", "preemptions"), RUNS.values(), ids=RUNS)
def test_a_run_from_its_own_arrivals_gives_its_own_preemptions(
    path: Path, preemptions: int
) -> None:
    """Every preempt event: victim, step, order, blocks, tokens, and the engine's state after it."""
    measured, modelled = replayed(path)
    expected = measured.filter(pl.col("kind") == "preempt")
    found = modelled.filter(pl.col("kind") == "preempt")
    assert preemptions == expected.height
    assert expected.select(*PREEMPT).rows() == found.select(*PREEMPT.values()).rows()


@pytest.mark.parametrize("path", [path for path, _ in RUNS.values()], ids=RUNS)
def test_a_run_from_its_own_arrivals_gives_every_other_event_in_its_step(path: Path) -> None:
    """Arrivals, admissions, resumptions and completions, per step and request."""
    measured, modelled = replayed(path)
    for engine, ledger in KINDS.items():
        expected = measured.filter(pl.col("kind") == engine).select("step", "request_id")
        found = modelled.filter(pl.col("kind") == ledger).select("tick", "request_id")
        assert sorted(expected.rows()) == sorted(found.rows()), engine
