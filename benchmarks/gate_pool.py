"""Pools of modelled runs for `benchmarks.gate_quality`: replayed, asked with the gate's own SQL.

A run is a `vllm-v1` replay of 1,000 requests with Poisson arrivals and declared step costs. Its
luck is one factor on every step cost, lognormal, drawn for each run. The rows are those a collector
would have written; what a gate needs of them is asked once, of all runs of a pool together.
Everything is modelled: nothing here is a latency of a real engine.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from analysis import store
from analysis.gate.comparability import GateRun
from analysis.gate.contract import Gate
from analysis.gate.evidence import Row, slice_rows
from analysis.gate.gate_file import parse_gate
from analysis.gate.predicates import goodput, regression
from analysis.gate.validity import steadiness
from analysis.tables import insert_frame
from collectors.run import Run, read_run
from replay.config import Config, parse_config
from replay.requests_table import request_table
from replay.vllm_v1.columns import columns_of
from replay.vllm_v1.simulation import Simulation
from replay.workload import Request, Workload

REQUESTS = 1000
FOLLOW_UP_US = 30_000_000
BLOCKS = 2000
STEP = {
    "step_ns": 12_000_000,
    "prefill_token_ps": 40_000_000,
    "decode_request_ps": 60_000_000,
    "kv_token_ps": 150_000,
}
ENGINE = {
    "profile": "vllm-v1",
    "rule": "vllm-0.32.0",
    "block_size": 16,
    "max_num_batched_tokens": 2048,
    "max_model_len": 4096,
    "enable_prefix_caching": False,
    "async_scheduling": False,
}
LATENCY = {"kind": "regression", "statistic": "p95", "max_regression": 0.1, "floor_us": 50_000}
GATE = parse_gate(
    {
        "schema": "preemption-gate/1",
        "name": "quality",
        "change": {"fields": ["cache.num_gpu_blocks"]},
        "design": {"pairs": 6, "warmup_us": 10_000_000, "follow_up_us": FOLLOW_UP_US},
        "predicate": [
            LATENCY | {"id": "queue", "field": "queue_time_us"},
            LATENCY | {"id": "ttft", "field": "ttft_us"},
            {
                "id": "tpot",
                "kind": "regression",
                "field": "tpot_us",
                "statistic": "mean",
                "max_regression": 0.05,
            },
            {
                "id": "goodput",
                "kind": "goodput",
                "slo": {"ttft_us": 500_000, "tpot_us": 30_000},
                "max_drop": 0.02,
            },
        ],
    },
    "quality",
)
JUDGED = tuple(p for p in GATE.predicates if p.statistical)
_RECORDED = Path(__file__).parents[1] / "fixtures" / "runs" / "base-1"


@dataclass(frozen=True)
class Setting:
    """How the runs of a pool are made: requests a second, luck, step cost, blocks, which side."""

    rate: float
    noise: float = 0.0
    step: float = 1.0
    blocks: float = 1.0
    side: str = "baseline"


@dataclass(frozen=True)
class Pool:
    """What the gate's queries say of every run, by predicate and by run; `steady` by run."""

    rows: dict[str, dict[str, Row]]
    quarters: dict[str, list[Row]]
    ends_us: dict[str, int]


def pool(setting: Setting, seeds: int, draws: int) -> Pool:
    """As many runs of each arrival seed as there are draws of luck, named `side-seed-draw`."""
    return asked(rows(setting, [(seed, draw) for seed in range(seeds) for draw in range(draws)]))


def rows(setting: Setting, places: Sequence[tuple[int, int]]) -> pl.DataFrame:
    """Rows of `measured_requests` of a run for each (seed, draw), and the end of observation."""
    found = pl.concat([_replayed(setting, seed, draw) for seed, draw in places])
    end = pl.col("drain_end_us")
    queue, ttft, e2e = (pl.col(f"modelled_{k}_us") for k in ("queue", "ttft", "e2e"))
    finished = pl.col("arrival_us") + e2e <= end

    def seen(value: pl.Expr) -> pl.Expr:
        return pl.when(pl.col("arrival_us") + value <= end).then(value)

    return found.select(
        "run_id",
        "drain_end_us",
        "request_id",
        "arrival_us",
        "prompt_tokens",
        "priority",
        engine=pl.lit(0, pl.Int64),
        generated_tokens=pl.when(finished).then("output_tokens"),
        max_tokens="output_tokens",
        status=pl.when(finished).then(pl.lit("ok")).otherwise(pl.lit("censored")),
        queue_time_us=seen(queue),
        prefill_time_us=seen(ttft) - queue,
        decode_time_us=pl.when(finished).then(e2e - ttft),
        ttft_us=seen(ttft),
        tpot_us=pl.when(finished).then("modelled_tpot_us"),
        e2e_us=seen(e2e),
        num_preemptions="preemptions",
    )


def _replayed(setting: Setting, seed: int, draw: int) -> pl.DataFrame:
    """One replay's requests; the draw's luck is the same whatever the step costs."""
    luck = np.random.default_rng([3, len(setting.side), seed, draw]).normal()
    factor = setting.step * float(np.exp(setting.noise * luck))
    workload = offered(setting.rate, seed)
    chosen = config(factor, setting.blocks)
    simulation = Simulation(columns_of(workload), chosen, interpreted=False)
    table = request_table(workload, np.concatenate([*simulation.run()]), timed=True)
    arrivals = [r.arrival_us for r in workload.requests]
    return table.with_columns(
        run_id=pl.lit(f"{setting.side}-{seed}-{draw}"),
        arrival_us=pl.Series(arrivals),
        drain_end_us=pl.lit(arrivals[-1] + FOLLOW_UP_US, pl.Int64),
    )


@lru_cache(maxsize=256)
def offered(rate: float, seed: int) -> Workload:
    """Poisson arrivals; lengths of the same seed are equal at every rate."""
    rng = np.random.default_rng([1, seed])
    arrivals = np.cumsum(rng.exponential(1.0, REQUESTS)) / rate * 1e6
    prompts = np.clip(rng.lognormal(5.8, 0.8, REQUESTS), 16, 2048)
    outputs = np.clip(rng.lognormal(5.0, 0.6, REQUESTS), 4, 1024)
    columns = (c.astype(np.int64).tolist() for c in (arrivals, prompts, outputs))
    numbered = enumerate(zip(*columns, strict=True))
    return Workload(tuple(Request(f"r{k}", *row) for k, row in numbered))


def config(step: float = 1.0, blocks: float = 1.0) -> Config:
    """The engine with its step cost and its blocks multiplied."""
    return parse_config(
        {
            "engine": ENGINE | {"capacity_blocks": round(BLOCKS * blocks)},
            "limits": {"max_ticks": 1_000_000},
            "timing": {name: round(cost * step) for name, cost in STEP.items()},
        },
        "benchmark",
    )


def asked(frame: pl.DataFrame, gate: Gate = GATE) -> Pool:
    """Answers of the gate's queries over these rows, run by run."""
    ends = frame.select("run_id", "drain_end_us").unique(maintain_order=True)
    ends_us: dict[str, int] = dict(ends.iter_rows())
    with store.connect(None) as db:
        store.load_run(db, _template(), workloads=False)
        db.execute("CREATE TEMP TABLE ends (run_id VARCHAR, drain_end_us BIGINT)")
        insert_frame(db, "ends", ends)
        db.execute(
            "INSERT INTO measured_runs SELECT r.* REPLACE (e.run_id AS run_id,"
            " e.drain_end_us AS drain_end_us, e.drain_end_us - $1 AS send_end_us)"
            " FROM measured_runs AS r, ends AS e",
            [FOLLOW_UP_US],
        )
        insert_frame(db, "measured_requests", frame.drop("drain_end_us"))
        runs = [placed(name, "baseline", 0, None, ends_us) for name in ends_us]
        found: dict[str, dict[str, Row]] = {}
        for p in (p for p in gate.predicates if p.statistical):
            read = regression.read if p.kind == "regression" else goodput.read
            of_run = read(db, runs, p, None, gate.design)
            found[p.id] = {row["run_id"]: row for row in of_run}
        quarters: dict[str, list[Row]] = defaultdict(list)
        for row in slice_rows(db, "queue_by_quarter", None, runs, gate.design):
            quarters[row["run_id"]].append(row)
    return Pool(found, dict(quarters), ends_us)


class _PoolRun(GateRun):
    """A run whose manifest is flat and says no more than statistics ask: they ask often."""

    def value(self, dotted: str) -> Any:
        """What it says, None where nothing."""
        return self.manifest.get(dotted)


def placed(
    run_id: str, side: str, pair: int, order: int | None, ends_us: dict[str, int]
) -> GateRun:
    """A run in its place."""
    manifest = {"comparison.order": order, "drain_end_us": ends_us[run_id]}
    return _PoolRun(run_id, side, pair, manifest, "0" * 64, REQUESTS, "a")


def knee(seeds: int) -> float:
    """Requests a second beyond which the gate calls the baseline saturated, over all seeds."""
    low, high = 4.0, 24.0
    while high - low > 0.05:  # noqa: PLR2004 - requests a second
        middle = (low + high) / 2
        low, high = (low, middle) if growth(middle, seeds) > 2 else (middle, high)  # noqa: PLR2004
    return round((low + high) / 2, 1)


def growth(rate: float, seeds: int) -> float:
    """Queue of the last quarter over that of the second, as the gate's check `steady` has it."""
    found = pool(Setting(rate), seeds, 1)
    runs = [placed(name, "baseline", 0, None, found.ends_us) for name in found.ends_us]
    quarters = [row for name in found.quarters for row in found.quarters[name]]
    return steadiness(quarters, runs, FOLLOW_UP_US).ratio or 0.0


@lru_cache(maxsize=1)
def _template() -> Run:
    """A recorded run without its rows: the manifest that all runs of a pool share."""
    run = read_run(_RECORDED)
    empty: dict[str, Any] = {
        name: getattr(run, name).clear() for name in ("requests", "events", "steps", "samples")
    }
    return replace(run, **empty)
