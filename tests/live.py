"""Live runs made by hand: two sides of a random split, watched over the same minutes."""

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from test_gate import Row, edited, frame, recorded, request_row

from collectors.run import Run

SECOND = 1_000_000
WINDOW_US = 60 * SECOND
FOLLOW_UP_US = 10 * SECOND
START = "2026-11-30T12:00:00Z"
DESIGN = {
    "kind": "windows",
    "pairs": 12,
    "window_us": WINDOW_US,
    "follow_up_us": FOLLOW_UP_US,
    "candidate_fraction": 0.5,
}
# Of each window's own luck, the same on both sides but for a little.
Slower = Callable[[int], float]


def traffic(
    side: str,
    windows: int = 12,
    each: int = 60,
    slower: Slower = lambda _: 1.0,
    first: int = 0,
    **columns: Any,
) -> list[Row]:
    """Requests spread evenly over windows of a minute; `slower(k)` multiplies times of window k."""
    rows = []
    for number in range(windows * each):
        luck = random.Random(f"{side}-{number}")  # noqa: S311 - reproducible, no secret
        window, place = divmod(number, each)
        factor = slower(window) * (1 + 0.1 * luck.random())
        ttft_us = round(200_000 * factor * (1 + place % 10 / 10))
        tokens = 40 + place % 20
        row = request_row(number) | {
            "request_id": f"{side}-{first + number}",
            "arrival_us": window * WINDOW_US + place * WINDOW_US // each,
            "prompt_tokens": 100 + 3 * (place % 60),
            "generated_tokens": tokens,
            "max_tokens": 100,
            "queue_time_us": ttft_us // 4,
            "requeue_time_us": 0,
            "ttft_us": ttft_us,
            "tpot_us": round(20_000 * factor),
            "e2e_us": ttft_us + round(20_000 * factor) * (tokens - 1),
        }
        rows.append(row | {k: v(number) if callable(v) else v for k, v in columns.items()})
    return rows


def live(
    run_id: str, rows: Sequence[Row], end_us: int = 12 * WINDOW_US + FOLLOW_UP_US, **changes: Any
) -> Run:
    """An observed run of these requests, watched until `end_us` after its start."""
    base = recorded("base-1")
    manifest = edited(
        base.manifest,
        {
            "run_id": run_id,
            "kind": "observed",
            "start": START,
            "send_end_us": None,
            "drain_end_us": end_us,
            "workload.workload_sha256": None,
            "workload.requests": None,
            **dict.fromkeys(("comparison.side", "comparison.pair", "comparison.order")),
            **{k.replace("__", "."): v for k, v in changes.items()},
        },
    )
    return Run(
        path=Path(run_id),
        run_id=run_id,
        manifest=manifest,
        offered=None,
        requests=frame("measured_requests", rows, run_id),
        events=frame("measured_events", [], run_id),
        steps=frame("measured_steps", [], run_id),
        samples=frame("metric_samples", [], run_id),
        not_finite={},
    )
