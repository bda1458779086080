"""What a workload looks like before anything is replayed: counts, distributions, and what is odd.

Everything is read from the requests themselves. Only the KV demand over time needs an assumption,
how long a request holds its blocks, and says so.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from replay.workload_frame import Batches

QUANTILES = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
RATE_BUCKETS = 60
_LONG_GAP_US = 3_600_000_000
_RESOLUTIONS = {"1 s": 1_000_000, "100 ms": 100_000, "10 ms": 10_000, "1 ms": 1_000, "1 us": 1}


@dataclass(frozen=True)
class Assumed:
    """How long a request holds blocks: from its arrival for `output_tokens * tpot_us`."""

    tpot_us: int = 20_000
    block_size: int = 16


def describe_workload(batches: Batches, assumed: Assumed) -> dict[str, Any]:
    """Facts of a workload as JSON would hold them, token counts in tokens, times in us.

    Quantiles are nearest-rank: each is a value some request has. `kv_demand` is no measurement.
    """
    names = ("arrival_us", "prompt_tokens", "output_tokens", "priority", "tenant")
    frame = pl.concat([batch.select(names) for batch in batches])
    times, span_us = frame["arrival_us"], frame["arrival_us"][-1] - frame["arrival_us"][0]
    return {
        "requests": frame.height,
        "span_us": span_us,
        "mean_requests_per_s": None if span_us == 0 else (frame.height - 1) * 1e6 / span_us,
        "arrivals": _arrivals(times),
        "rate": _rate(times, span_us),
        "prompt_tokens": _distribution(frame["prompt_tokens"]),
        "output_tokens": _distribution(frame["output_tokens"]),
        "context_tokens": _distribution(frame["prompt_tokens"] + frame["output_tokens"]),
        "priorities": _counts(frame["priority"]),
        "tenants": _tenants(frame["tenant"]),
        "prefix": _prefix(batches),
        "kv_demand": _kv_demand(frame, assumed),
        "suspicious": dict(_suspicious(frame)),
    }


def _distribution(values: pl.Series) -> dict[str, Any]:
    ordered = values.sort()
    places = {name: max(math.ceil(q * ordered.len()), 1) - 1 for name, q in QUANTILES.items()}
    found: dict[str, Any] = {name: ordered[place] for name, place in places.items()}
    total = values.cast(pl.Int128).sum()
    return found | {"sum": total, "mean": total / values.len()}


def _arrivals(times: pl.Series) -> dict[str, Any]:
    """Ties, gaps, and the coarsest unit that all arrivals are whole multiples of."""
    gaps = times.diff().drop_nulls()
    runs = times.rle().struct.field("len")
    unit = next(name for name, us in _RESOLUTIONS.items() if not (times % us != 0).any())
    return {
        "resolution": unit,
        "tied_requests": int(runs.filter(runs > 1).sum()),
        "largest_tie": runs.max(),
        "longest_gap_us": gaps.max() if gaps.len() else None,
        # 1 for a Poisson process: how much burstier arrivals are than chance makes them.
        "gap_variation": _variation(gaps),
    }


def _variation(gaps: pl.Series) -> float | None:
    mean = gaps.mean()
    if gaps.len() < 2 or not isinstance(mean, float) or not mean:  # noqa: PLR2004
        return None
    return float(gaps.std(ddof=0)) / mean  # type: ignore[arg-type]


def _rate(times: pl.Series, span_us: int) -> dict[str, Any]:
    """Requests that arrive in each of at most 60 equal windows."""
    width_us = max(span_us // RATE_BUCKETS + 1, 1)
    place = (times - times[0]) // width_us
    counted = dict(place.value_counts().iter_rows())
    buckets = span_us // width_us + 1
    return {"window_us": width_us, "requests": [counted.get(k, 0) for k in range(buckets)]}


def _counts(values: pl.Series) -> dict[str, int] | None:
    """Requests by value, the ten most frequent; None where all have the default 0."""
    counted = values.value_counts(sort=True)
    if counted.height == 1 and counted[values.name][0] == 0:
        return None
    return {str(value): n for value, n in counted.head(10).iter_rows()}


def _tenants(tenants: pl.Series) -> dict[str, int] | None:
    """How many there are and how much the largest has; no name, it may say who."""
    counted = tenants.drop_nulls().value_counts(sort=True)
    if counted.is_empty():
        return None
    return {"tenants": counted.height, "largest_requests": counted["count"][0]}


def _prefix(batches: Batches) -> dict[str, Any] | None:
    """How much of all prompts an unbounded cache would have seen before."""
    chunk = batches.head.prefix_block_tokens
    if chunk is None:
        return None
    seen, blocks, again, shared_requests = set[int](), 0, 0, 0
    for batch in batches:
        for row in batch["prefix_blocks"].to_list():
            known = 0
            for block in row or ():
                if block not in seen:
                    break
                known += 1
            seen.update(row or ())
            blocks, again = blocks + len(row or ()), again + known
            shared_requests += known > 0
    return {
        "block_tokens": chunk,
        "blocks": blocks,
        "distinct_blocks": len(seen),
        "seen_before_frac": again / blocks if blocks else None,
        "requests_with_a_shared_prefix": shared_requests,
    }


def _kv_demand(frame: pl.DataFrame, assumed: Assumed) -> dict[str, Any]:
    """Most blocks held at once if every request got its own at arrival and kept them."""
    # The last token needs no KV.
    blocks = pl.col("prompt_tokens") + pl.col("output_tokens") + assumed.block_size - 2
    held = frame.select(
        start=pl.col("arrival_us"),
        end=pl.col("arrival_us") + pl.col("output_tokens").cast(pl.Int128) * assumed.tpot_us,
        blocks=blocks // assumed.block_size,
    )
    one = pl.lit(1, pl.Int64)
    starts = held.select(at=pl.col("start").cast(pl.Int128), blocks="blocks", running=one)
    ends = held.select(at="end", blocks=-pl.col("blocks"), running=-one)
    # What ends at a moment has gone before what starts at it.
    moves = pl.concat([ends, starts]).sort("at", maintain_order=True)
    return {
        "assumed_tpot_us": assumed.tpot_us,
        "block_size": assumed.block_size,
        "largest_request_blocks": held["blocks"].max(),
        "peak_blocks": moves["blocks"].cum_sum().max(),
        "peak_running": moves["running"].cum_sum().max(),
    }


def _suspicious(frame: pl.DataFrame) -> Iterator[tuple[str, int]]:
    """Rows that often mean that a trace is not what it seems; only kinds that occur."""
    same = ["arrival_us", "prompt_tokens", "output_tokens"]
    gaps = frame["arrival_us"].diff().fill_null(0)
    counted = {
        "one output token": (frame["output_tokens"] == 1).sum(),
        "one prompt token": (frame["prompt_tokens"] == 1).sum(),
        "same arrival and lengths as the row before": frame.select(
            pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in same).sum()
        ).item(),
        "after a gap of more than an hour": (gaps > _LONG_GAP_US).sum(),
        "prompt over 1,000,000 tokens": (frame["prompt_tokens"] > 10**6).sum(),
        "output over 100,000 tokens": (frame["output_tokens"] > 10**5).sum(),
    }
    yield from ((name, int(n)) for name, n in counted.items() if n)
