"""Ledgers and runs for the tests of the store: recorded runs, and replays of what they offered."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl

from collectors.run import Run, frame_schema, read_run, run_workload
from collectors.writer import new_manifest
from preempt.inputs import Choices, replay_inputs
from replay.config import Config, parse_config
from replay.ledger import Ledger
from replay.receipt import receipt_sha256
from replay.run import replay
from replay.workload import Request, Workload

RUNS = Path(__file__).parent.parent / "fixtures" / "runs"


@cache
def recorded(name: str = "base-1") -> Run:
    """A recorded run of a real vLLM."""
    return read_run(RUNS / name)


def metrics_only(run_id: str = "metrics-1") -> Run:
    """What a collector of /metrics leaves of an engine, before its first sample."""
    frames = {
        name: pl.DataFrame(schema=frame_schema(table))
        for name, table in (
            ("requests", "measured_requests"),
            ("events", "measured_events"),
            ("steps", "measured_steps"),
            ("samples", "metric_samples"),
        )
    }
    start = datetime(2026, 11, 30, tzinfo=UTC)
    manifest = new_manifest(run_id, "observed", start=start)
    return Run(Path(run_id), run_id, manifest, None, **frames, not_finite={})


def with_counter(
    run: Run, by_engine: Mapping[int | None, Sequence[float | None]], *, others: bool = False
) -> Run:
    """The run with samples a second apart of each engine's preemption counter, and of `others`."""
    rows = [
        (run.run_id, k, k * 1_000_000, engine, "m", name, "{}", None, value)
        for engine, values in by_engine.items()
        for name in ("num_preemptions", *(["prompt_tokens"] if others else []))
        for k, value in enumerate(values if name == "num_preemptions" else (1.0, 2.0))
    ]
    samples = pl.DataFrame(rows, schema=frame_schema("metric_samples"), orient="row")
    return replace(run, samples=samples)


@cache
def window(start: int = 0, count: int = 40, run: str = "base-1") -> Workload:
    """Some of the requests a recorded run was offered; their ids begin with az."""
    return run_workload(recorded(run), start, count)


@cache
def lab_ledger(recovery: str = "recompute", run: str = "base-1") -> Ledger:
    """40 requests of a run through the lab, in few enough blocks for preemptions."""
    config = parse_config(
        {
            "engine": {
                "profile": "lab",
                "block_size": 32,
                "capacity_blocks": 30,
                "tick_us": 20_000,
            },
            "policy": {"recovery": recovery, "kv_bytes_per_token": 2048},
        },
        "config",
    )
    return sealed(window(run=run), config)


def engine_config(**engine: Any) -> Config:
    """The configuration of base-1's engine, or a change of it, as the vllm-v1 profile has it."""
    like_base_1 = {
        "profile": "vllm-v1",
        "rule": "vllm-0.32.0",
        "block_size": 32,
        "capacity_blocks": 47,
        "max_num_seqs": 128,
        "max_num_batched_tokens": 2048,
        "max_model_len": 960,
        "enable_prefix_caching": False,
        "async_scheduling": False,
        "tick_us": 20_000,
    }
    policy = {"kv_bytes_per_token": 2048}
    tables = {"engine": like_base_1 | engine, "policy": policy}
    return parse_config(tables, "config", assume=True)


@cache
def engine_ledger(run: str = "base-1") -> Ledger:
    """A replay by base-1's engine of everything a run was offered, when the clock says."""
    return sealed(run_workload(recorded(run)), engine_config())


@cache
def engine_ledger_with(**engine: Any) -> Ledger:
    """A replay of two requests under a change of base-1's engine."""
    workload = Workload((Request("a", 0, 8, 2), Request("b", 0, 8, 2)))
    return sealed(workload, engine_config(**engine))


@cache
def stepped_ledger(recovery: str | None = None, victim: str | None = None) -> Ledger:
    """A replay of base-1 as `preempt replay RUN` does it: from the engine's own steps."""
    inputs = replay_inputs(RUNS / "base-1", None, Choices(recovery, victim))
    return sealed(inputs.workload, inputs.config)


def sealed(workload: Workload, config: Config, **changes: Any) -> Ledger:
    """A replay whose receipt, with `changes`, has the right hash."""
    ledger = replay(workload, config)
    return replace(ledger, receipt=resealed(ledger.receipt | changes))


def resealed(receipt: dict[str, Any]) -> dict[str, Any]:
    """The receipt with the hash that fits it."""
    return receipt | {"receipt_sha256": receipt_sha256(receipt)}
