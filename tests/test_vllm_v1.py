"""The vllm-v1 scheduler: what its own documents, both ways to run it and its limits promise."""

from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.config import Config, parse_config
from replay.events import Kind, Rows, to_events
from replay.oracle.vllm_v1 import derive
from replay.run import replay
from replay.vllm_v1.columns import columns_of
from replay.vllm_v1.simulation import Outcome, Simulation
from replay.workload import Request, Workload

ROOT = Path(__file__).parent.parent
ENGINE = {
    "profile": "vllm-v1",
    "rule": "vllm-0.32.0",
    "block_size": 4,
    "capacity_blocks": 5,
    "max_num_batched_tokens": 16,
    "max_model_len": 64,
    "enable_prefix_caching": False,
    "async_scheduling": False,
}


def config(tables: dict[str, Any] | None = None, **engine: Any) -> Config:
    """The worked example's configuration, with some engine keys and other tables changed."""
    return parse_config({"engine": ENGINE | engine} | (tables or {}), "test")


def simulated(workload: Workload, chosen: Config, *, interpreted: bool, rows: int = 4096) -> Rows:
    """Every row that a simulation writes."""
    simulation = Simulation(columns_of(workload), chosen, rows=rows, interpreted=interpreted)
    parts = [*simulation.run(), *simulation.censor()]
    return np.concatenate(parts)


def test_the_preemption_by_hand_happens_as_the_document_says() -> None:
    """docs/vllm-v1.md's worked example: every event with its step, request and free blocks."""
    text = (ROOT / "docs" / "vllm-v1.md").read_text(encoding="utf-8")
    lines = text[text.index("## A preemption by hand") :].splitlines()
    cells = [[c.strip() for c in line.split("|")[1:5]] for line in lines if line.startswith("| ")]
    documented = [(int(step), kind, who, int(free)) for step, kind, who, free in cells[1:]]
    ledger = replay(Workload((Request("A", 0, 8, 5), Request("B", 0, 7, 4))), config())
    found = [
        (e.tick, Kind(e.kind).name.lower(), "AB"[e.request_id], 5 - e.occupied_blocks_after)
        for e in to_events(ledger.events)
    ]
    assert 11 == len(documented)
    assert documented == found
    totals = ledger.receipt["totals"]
    assert (30, 8 / 30) == (totals["executed_tokens"], totals["recompute_tax_frac"])


@st.composite
def contracts(draw: st.DrawFn) -> tuple[Workload, Config]:
    """A workload under pressure and a configuration with any of the profile's options."""
    block_size = draw(st.sampled_from([1, 2, 3, 4, 8]))
    chunk = draw(st.sampled_from([None, 2, 3, 4, 6, 16]))
    sizes = st.tuples(st.integers(1, 40), st.integers(1, 30))
    requests = []
    for k, (prompt, output) in enumerate(draw(st.lists(sizes, min_size=1, max_size=14))):
        chunks = None
        if chunk is not None:
            ids = st.lists(st.integers(0, 2), max_size=-(-prompt // chunk))
            chunks = tuple(draw(ids)) or None
        requests.append(
            Request(
                f"{k:04d}",
                draw(st.integers(0, 30)),
                prompt,
                output,
                draw(st.integers(0, 2)),
                None,
                chunks,
            )
        )
    longest = max(r.prompt_tokens + r.output_tokens for r in requests)
    least = -(-longest // block_size)
    rule = draw(st.sampled_from(["vllm-0.32.0", "vllm-0.17.1"]))
    engine: dict[str, Any] = {
        "rule": rule,
        "tick_us": draw(st.sampled_from([1, 3])),
        "block_size": block_size,
        "capacity_blocks": draw(st.integers(least, 2 * least + 2)),
        "max_num_seqs": draw(st.sampled_from([1, 2, 3, 8, 256])),
        "max_num_batched_tokens": draw(st.sampled_from([3, 7, 16, 64, 256])),
        "max_model_len": longest,
        "scheduling_policy": draw(st.sampled_from(["fcfs", "priority"])),
        "enable_chunked_prefill": draw(st.booleans()),
        "long_prefill_token_threshold": draw(st.sampled_from([0, 0, 1, 5])),
        "enable_prefix_caching": draw(st.booleans()),
        "async_scheduling": draw(st.booleans()),
    }
    if rule == "vllm-0.32.0":
        engine["scheduler_reserve_full_isl"] = draw(st.booleans())
        engine["watermark"] = draw(st.sampled_from([0.0, 0.1, 0.3]))
    policy = {
        "recovery": draw(st.sampled_from(["recompute", "recompute", "swap", "adaptive"])),
        "victim": draw(
            st.sampled_from(["rule", "rule", "least-computed", "most-freed-per-lost-token"])
        ),
        "kv_bytes_per_token": 8,
        "prefill_tokens_per_tick": draw(st.sampled_from([1, 4, 16])),
        "transfer_bytes_per_tick": draw(st.sampled_from([5, 64, 300])),
        "host_capacity_bytes": draw(st.sampled_from([0, 100, 400])),
    }
    fairness = {
        "max_queue_ticks": draw(st.integers(0, 40)),
        "max_preemptions": draw(st.integers(0, 3)),
    }
    tables = {
        "policy": policy,
        "fairness": fairness,
        "limits": {"max_ticks": draw(st.sampled_from([40, 3000]))},
    }
    return Workload(tuple(requests), chunk), config(tables, **engine)


@given(contracts())
@settings(max_examples=400, deadline=None)
def test_the_scheduler_and_the_oracle_s_own_agree_on_every_column(
    contract: tuple[Workload, Config],
) -> None:
    """Two implementations that share no code write the same ledger, whatever the options."""
    workload, chosen = contract
    simulation = Simulation(columns_of(workload), chosen, interpreted=True)
    rows = np.concatenate([*simulation.run(), *simulation.censor()])
    if simulation.outcome is Outcome.NO_PROGRESS:
        return
    assert list(derive(workload, chosen)) == to_events(rows)


@given(contracts())
@settings(max_examples=100, deadline=None)
def test_compiled_and_interpreted_write_the_same_rows_however_little_room_there_is(
    contract: tuple[Workload, Config],
) -> None:
    """Machine code, and stopping for room after every few rows, change nothing."""
    workload, chosen = contract
    plain = simulated(workload, chosen, interpreted=True)
    assert plain.tolist() == simulated(workload, chosen, interpreted=False).tolist()
    assert plain.tolist() == simulated(workload, chosen, interpreted=True, rows=1).tolist()
