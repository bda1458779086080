"""Does the boundary find the edge? Gates over a scan of arrival rates, with declared step costs.

The engine is the `vllm-v1` replay with declared step costs; the candidate has a tenth fewer KV
blocks, and TTFT p95 may grow by 10 % (50 ms added to both). A *seed* is a gate: six workloads of
its own, which both sides replay. The gate stands at rates 0.25 requests a second apart, and at each
its boundary replays 0.9 and 1.1 times the rate. The true crossing is where the mean over a hundred
other workloads reaches the limit.

Goal (G10): flagged within 10 % of the true crossing in at least 95 % of seeds, and flags at rates
below 0.7 of it in at most 5 % of evaluations.

    python -m benchmarks.gate_boundary [--seeds 60] [--workers 2]
"""

import argparse
import multiprocessing
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from itertools import pairwise
from math import ceil, floor
from typing import Any

import numpy as np
from scipy.special import betaincinv

from analysis.gate.boundary.modelled import LimitTest, estimate
from analysis.gate.boundary.models import Model
from analysis.gate.boundary.scan import scan
from analysis.gate.contract import ARRIVAL, Boundary, Design, Predicate
from collectors.drive.schedule import scheduled
from preempt.boundary import replayer
from replay.config import Config, parse_config
from replay.workload import Request, Workload

LIMIT = 0.10
STEPS = (0.9, 1.1)
RATE_STEP = Fraction(1, 4)  # requests per second
WORKLOADS, TRUTH = 6, 100
REQUESTS = 400  # what a p95 needs
BLOCKS = {"baseline": 1000, "candidate": 900}
FROM, TO, LOW, NEAR = 0.55, 1.2, 0.7, 0.10  # of the true crossing
_BISECTIONS = 9
_TEST = LimitTest(
    Predicate("ttft", "regression", "ttft_us", "p95", max_regression=LIMIT, floor_us=50_000),
    "p95",
    LIMIT,
    None,
)


@dataclass(frozen=True)
class Seen:
    """One gate at one rate: whether its boundary was flagged, and the rates it bracketed."""

    seed: int
    rate: Fraction
    flagged: bool
    brackets: tuple[tuple[float, float], ...]


def config(blocks: int) -> Config:
    """An engine with so many usable blocks and declared step costs."""
    engine = {
        "profile": "vllm-v1",
        "rule": "vllm-0.32.0",
        "block_size": 16,
        "capacity_blocks": blocks,
        "max_num_batched_tokens": 2048,
        "max_model_len": 4096,
        "enable_prefix_caching": False,
        "async_scheduling": False,
    }
    timing = {
        "step_ns": 12_000_000,
        "prefill_token_ps": 20_000_000,
        "decode_request_ps": 150_000_000,
        "kv_token_ps": 20_000,
    }
    return parse_config({"engine": engine, "timing": timing}, "benchmark")


def workload(seed: int, number: int) -> Workload:
    """Poisson arrivals at one request a second, lengths of a chat: some hundreds of tokens."""
    rng = np.random.default_rng([seed, number])
    arrivals = np.cumsum(rng.exponential(1e6, REQUESTS)).astype(int)
    prompts = np.clip(rng.lognormal(5.3, 0.8, REQUESTS).astype(int), 8, 2000)
    outputs = np.clip(rng.lognormal(5.0, 0.7, REQUESTS).astype(int), 2, 1000)
    columns = zip(arrivals.tolist(), prompts.tolist(), outputs.tolist(), strict=True)
    return Workload(tuple(Request(f"{k:04}", *values) for k, values in enumerate(columns)))


def evaluated(seed: int, rates: Sequence[Fraction]) -> list[Seen]:
    """One gate's boundary at each rate."""
    parts = [workload(seed, k) for k in range(WORKLOADS)]
    sides = [config(blocks) for blocks in BLOCKS.values()]
    found = []
    for rate in rates:
        models = [Model(scheduled(w, rate, None), *sides, (k,)) for k, w in enumerate(parts)]
        seen = scan(models, Boundary((ARRIVAL,), STEPS), [_TEST], Design(), replayer())
        brackets = tuple((b.low * float(rate), b.high * float(rate)) for b in seen.brackets)
        found.append(Seen(seed, rate, bool(brackets), brackets))
    return found


def beyond(rate: Fraction, parts: Sequence[Workload]) -> bool:
    """Whether the mean over workloads is beyond the limit at a rate."""
    run, sides = replayer(), [config(blocks) for blocks in BLOCKS.values()]
    tables = [(run(w, sides[0], rate), run(w, sides[1], rate)) for w in parts]
    return estimate(_TEST, Design(), parts, tables, 1).side == "beyond"


def crossing(seed: int = 10**6) -> float:
    """The rate at which many other workloads cross, on average."""
    parts = [workload(seed, k) for k in range(TRUTH)]
    low, high = Fraction(4), Fraction(12)
    for _ in range(_BISECTIONS):
        middle = (low + high) / 2
        low, high = (low, middle) if beyond(middle, parts) else (middle, high)
    return float((low + high) / 2)


def table(seen: Sequence[Seen], truth: float) -> list[str]:
    """Lines of Markdown: how often flagged, by the rate's part of the true crossing."""
    lines = ["| rate / true crossing | evaluations | flagged |", "| --- | ---: | ---: |"]
    edges = (FROM, LOW, 0.8, 1 - NEAR, 0.95, 1.05, 1 + NEAR, TO)
    for low, high in pairwise(edges):
        part = [s for s in seen if low <= float(s.rate) / truth < high]
        if part:
            share = sum(s.flagged for s in part) / len(part)
            lines.append(f"| {low:g} to {high:g} | {len(part)} | {share:.1%} |")
    return lines


def goals(seen: Sequence[Seen], truth: float) -> list[str]:
    """Each goal with what was found."""
    seeds = sorted({s.seed for s in seen})
    near = [s for s in seen if abs(float(s.rate) / truth - 1) <= NEAR]
    hit = sum(any(s.flagged for s in near if s.seed == seed) for seed in seeds)
    every = sum(s.flagged for s in near)
    inside = [s for s in near if s.brackets and any(_close(b, truth) for b in s.brackets)]
    placed = sum(any(s.seed == seed for s in inside) for seed in seeds)
    low = [s for s in seen if float(s.rate) / truth < LOW]
    false = sum(s.flagged for s in low)
    # Exact: at least so many of all seeds would be, with 95 % confidence.
    least = float(betaincinv(hit, len(seeds) - hit + 1, 0.05)) if hit else 0.0
    return [
        _goal(f"seeds flagged at a rate within 10 % of it: {hit} of {len(seeds)}"
              f" (95 % bound {least:.1%})", hit / len(seeds), at_least=0.95),
        f"seeds whose bracket there lies within 10 % of it, too: {placed} of {len(seeds)}",
        f"rates within 10 % of it that are flagged, over all seeds: {every} of {len(near)}",
        _goal(f"flags below 0.7 of it: {false} of {len(low)} evaluations",
              false / len(low), at_most=0.05),
    ]  # fmt: skip


def _close(bracket: tuple[float, float], truth: float) -> bool:
    return abs(sum(bracket) / 2 / truth - 1) <= NEAR


def _goal(
    words: str, share: float, *, at_least: float | None = None, at_most: float | None = None
) -> str:
    met = share >= at_least if at_least is not None else share <= (at_most or 0)
    goal = f"at least {at_least:.0%}" if at_least is not None else f"at most {at_most:.0%}"
    return f"{words}, {share:.1%} (goal {goal}: {'met' if met else 'MISSED'})"


def main(arguments: Sequence[str] | None = None) -> None:
    """Print the table, and which goals it misses."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--seeds", type=int, default=60)
    parser.add_argument("--workers", type=int, default=2)
    options: Any = parser.parse_args(arguments)
    truth = crossing()
    first, last = (ceil(FROM * truth / RATE_STEP), floor(TO * truth / RATE_STEP))
    rates = [k * RATE_STEP for k in range(first, last + 1)]
    # Polars has threads, which a forked process waits for in vain.
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(options.workers, spawn) as pool:
        gates = pool.map(partial(evaluated, rates=rates), range(1, options.seeds + 1))
        seen = [one for gate in gates for one in gate]
    print(f"True crossing: {truth:.2f} requests/s, over {TRUTH} workloads of {REQUESTS} requests")
    print("\n".join(["", *table(seen, truth), "", *goals(seen, truth)]))


if __name__ == "__main__":
    main()
