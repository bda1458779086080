"""What a workload looks like before anything is replayed: counts, distributions, and what is odd.

Everything is read from the requests themselves. Only the KV demand over time needs an assumption,
how long a request holds its blocks, and says so.
"""

import math
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import polars as pl

from replay.workload_frame import Batches

QUANTILES = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
RATE_BUCKETS = 60
_LONG_GAP_US = 3_600_000_000
_LONGEST_US = 2**61  # nobody arrives after it, and two of them have 64 bit
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
    names = ("arrival_us", "prompt_tokens", "output_tokens")
    frames, priorities, tenants = [], Counter[int](), Counter[str]()
    for batch in batches:
        frames.append(batch.select(names))
        priorities.update(dict(batch["priority"].value_counts().iter_rows()))
        tenants.update(dict(batch["tenant"].drop_nulls().value_counts().iter_rows()))
    frame = pl.concat(frames)
    del frames
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
        "priorities": _counts(priorities),
        "tenants": _tenants(tenants),
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


def _counts(priorities: Counter[int]) -> dict[str, int] | None:
    """Requests by priority, the ten most frequent; None where all have the default 0."""
    if set(priorities) == {0}:
        return None
    return {str(value): n for value, n in priorities.most_common(10)}


def _tenants(tenants: Counter[str]) -> dict[str, int] | None:
    """How many there are and how much the largest has; no name, it may say who."""
    if not tenants:
        return None
    return {"tenants": len(tenants), "largest_requests": max(tenants.values())}


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
    tokens = pl.col("prompt_tokens") + pl.col("output_tokens") + (assumed.block_size - 2)
    blocks = frame.select(tokens // assumed.block_size).to_series()
    held = pl.min_horizontal("output_tokens", _LONGEST_US // assumed.tpot_us) * assumed.tpot_us
    ends = frame.select(pl.col("arrival_us") + held).to_series()
    order = ends.arg_sort()
    freed = blocks.gather(order).cum_sum()
    # What ends at a moment has gone before what starts at it.
    gone = ends.gather(order).search_sorted(frame["arrival_us"], side="right").cast(pl.Int64)
    running = pl.int_range(1, frame.height + 1, eager=True) - gone
    given_back = freed.gather((gone - 1).clip(lower_bound=0)) * (gone > 0)
    return {
        "assumed_tpot_us": assumed.tpot_us,
        "block_size": assumed.block_size,
        "largest_request_blocks": blocks.max(),
        "peak_blocks": (blocks.cum_sum() - given_back).max(),
        "peak_running": running.max(),
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
