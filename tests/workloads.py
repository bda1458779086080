"""Hypothesis strategies for lab inputs, rich in what makes schedules differ.

Small pools and slow rates make preemptions, ties, host limits and interruptions during prefill,
replay and restore common rather than rare.
"""

from typing import Any

from hypothesis import strategies as st

from replay.config import RECOVERIES, Config, parse_config
from replay.workload import Request, Workload

# Their order as UTF-8 differs from their order as UTF-16 and from locale order.
IDS = ["a", "b", "é", "ü", "z", "\U0001f600", "ff", "A", "aa", "ab", "\uffee", "0", "µ", "Ω"]


@st.composite
def lab_inputs(draw: st.DrawFn) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    """Requests (as records, in file order) and configuration tables that fit each other."""
    block_size = draw(st.sampled_from([1, 2, 4, 8]))
    capacity = draw(st.integers(2, 14))
    ids = draw(st.lists(st.sampled_from(IDS), min_size=1, max_size=10, unique=True))
    requests = []
    for request_id in ids:
        tokens = draw(st.integers(2, capacity * block_size))
        prompt = draw(st.integers(1, tokens - 1))
        requests.append(
            {
                "request_id": request_id,
                "arrival_us": draw(st.sampled_from([0, 0, 1, 2, 3, 5, 8, 13])),
                "prompt_tokens": prompt,
                "output_tokens": tokens - prompt,
                "priority": draw(st.sampled_from([0, 0, 0, 1, -1])),
            }
        )
    config = {
        "engine": {
            "profile": "lab",
            "capacity_blocks": capacity,
            "block_size": block_size,
            "tick_us": draw(st.sampled_from([1, 2])),
            "max_num_seqs": draw(st.sampled_from([2, 3, 256])),
        },
        "policy": {
            "recovery": draw(st.sampled_from(RECOVERIES)),
            "kv_bytes_per_token": draw(st.sampled_from([1, 3, 512])),
            "prefill_tokens_per_tick": draw(st.sampled_from([1, 2, 5, 16])),
            "transfer_bytes_per_tick": draw(st.sampled_from([1, 7, 64, 8192])),
            "host_capacity_bytes": draw(st.sampled_from([0, 0, 5, 20, 4000])),
        },
        "fairness": {
            "max_queue_ticks": draw(st.sampled_from([0, 3, 20])),
            "max_preemptions": draw(st.sampled_from([0, 1, 2])),
        },
        "limits": {"max_ticks": draw(st.sampled_from([30, 100, 500, 2000]))},
    }
    return requests, config


@st.composite
def timed_tables(draw: st.DrawFn) -> dict[str, Any]:
    """`[timing]`, maybe with a calibration whose range is left, or nothing: constant ticks.

    Some durations are nothing, and some are below a microsecond.
    """
    if draw(st.booleans()):
        return {}
    few = st.sampled_from([0, 1, 333, 1_000, 2_500, 1_000_000])
    timing = {
        "step_ns": draw(st.sampled_from([0, 1, 700, 1_000, 3_500])),
        "prefill_token_ps": draw(few),
        "decode_request_ps": draw(few),
        "kv_token_ps": draw(st.sampled_from([1, 77, 5_000])),
    }
    if draw(st.booleans()):
        return {"timing": timing}
    calibration = {
        "run_id": "r",
        "source": "steps",
        "steps": 9,
        "prefill_tokens": draw(st.integers(0, 20)),
        "decode_requests": draw(st.integers(0, 4)),
        "kv_tokens": draw(st.integers(0, 60)),
        "slowdown_permille": 1_200,
    }
    return {"timing": timing, "calibration": calibration}


def contracts(requests: list[dict[str, Any]], config: dict[str, Any]) -> tuple[Workload, Config]:
    """The same inputs as the product's own types."""
    workload = Workload(tuple(Request(**record) for record in requests))
    return workload, parse_config(config, "test")
