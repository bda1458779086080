"""The vllm-v1 scheduler: what its own documents, both ways to run it and its limits promise."""

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from workloads import timed_tables

from replay.config import Config, parse_config
from replay.errors import InputError, Unfinished
from replay.events import Kind, Rows, to_events
from replay.oracle.vllm_v1 import derive
from replay.oracle.walk import Diverged
from replay.requests_table import request_table
from replay.run import replay
from replay.vllm_v1 import compiled as compiling
from replay.vllm_v1 import simulation as simulating
from replay.vllm_v1 import step
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
    lines = text[text.index("## A preemption by hand") :].split("\n## ")[0].splitlines()
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
    tables: dict[str, Any] = {
        "policy": policy,
        "fairness": fairness,
        "limits": {"max_ticks": draw(st.sampled_from([40, 3000]))},
    }
    timed = draw(timed_tables())
    if timed:
        del engine["tick_us"]
    if draw(st.booleans()):  # ties too, which the workload's order decides
        late = st.integers(0, len(requests))
        requests = [replace(r, engine_arrival_us=draw(late)) for r in requests]
    return Workload(tuple(requests), chunk), config(tables | timed, **engine)


@pytest.mark.parametrize(("policy", "victim"), [("priority", 0), ("fcfs", 1)])
def test_between_equal_priorities_the_engine_s_arrival_time_decides(
    policy: str, victim: int
) -> None:
    """Who reached the scheduler first, but was received later, is preempted; not under fcfs."""
    requests = (
        Request("a", 0, 4, 8, engine_arrival_us=9),
        Request("b", 1, 4, 8, engine_arrival_us=3),
    )
    chosen = config(block_size=4, capacity_blocks=4, scheduling_policy=policy)
    for workload, first in ((Workload(requests), victim), (in_order(requests), 1)):
        events = to_events(replay(workload, chosen).events)
        victims = [e.request_id for e in events if e.kind == Kind.PREEMPT]
        assert first == victims[0]
        assert list(derive(workload, chosen)) == events


def in_order(requests: tuple[Request, ...]) -> Workload:
    """The same requests without the engine's arrival times."""
    return Workload(tuple(replace(r, engine_arrival_us=None) for r in requests))


@given(contracts())
@settings(max_examples=400)
def test_the_scheduler_and_the_oracle_s_own_agree_on_every_column(
    contract: tuple[Workload, Config],
) -> None:
    """Two implementations that share no code write the same ledger, whatever the options."""
    workload, chosen = contract
    simulation = Simulation(columns_of(workload), chosen, interpreted=True)
    rows = np.concatenate([*simulation.run(), *simulation.censor()])
    if simulation.outcome is Outcome.NO_PROGRESS:
        return
    try:
        expected = list(derive(workload, chosen))
    except Diverged:  # so short that not everybody arrives
        assert simulation.outcome is Outcome.OUT_OF_TICKS
        assert simulation.why_unfinished() is not None
        return
    assert expected == to_events(rows)


@given(contracts())
@settings(max_examples=100)
def test_compiled_and_interpreted_write_the_same_rows_however_little_room_there_is(
    contract: tuple[Workload, Config],
) -> None:
    """Machine code, and stopping for room after every few rows, change nothing."""
    workload, chosen = contract
    plain = simulated(workload, chosen, interpreted=True)
    assert plain.tolist() == simulated(workload, chosen, interpreted=False).tolist()
    assert plain.tolist() == simulated(workload, chosen, interpreted=True, rows=1).tolist()


@given(contracts())
@settings(max_examples=50)
def test_without_a_ledger_the_marks_of_every_request_are_the_ledger_s(
    contract: tuple[Workload, Config],
) -> None:
    """A replay that writes no rows still knows when each request was admitted, spoke and ended."""
    workload, chosen = contract
    recorded = Simulation(columns_of(workload), chosen, interpreted=True)
    rows = np.concatenate([*recorded.run(), *recorded.censor()])
    bare = Simulation(columns_of(workload), chosen, record=False, interpreted=True)
    assert [] == [*np.concatenate([*bare.run(), *bare.censor()])]
    assert recorded.outcome is bare.outcome
    table = request_table(workload, rows)
    for name, ticks in bare.marks().items():
        assert table[name].fill_null(-1).to_list() == ticks.tolist()


PAIR = Workload((Request("A", 0, 9, 1), Request("B", 0, 7, 2)))


def test_requests_that_evict_each_other_for_ever_are_a_diagnosis() -> None:
    """A what-if under which two prefills take each other's blocks in turn stops, and says why."""
    engine = {
        "block_size": 2,
        "max_num_batched_tokens": 8,
        "long_prefill_token_threshold": 2,
        "scheduler_reserve_full_isl": False,
    }
    spinning = config({"policy": {"victim": "most-freed-per-lost-token"}}, **engine)
    with pytest.raises(Unfinished, match="evict each other in turn"):
        replay(PAIR, spinning, keep_censored=True)
    assert 0 == replay(PAIR, config(**engine)).receipt["totals"]["censored"]


def test_a_prompt_no_step_can_admit_is_a_diagnosis_and_no_wait() -> None:
    """Chunked prefill off and a prompt above the budget: named, or censored when asked."""
    stuck = config(
        block_size=2, capacity_blocks=9, max_num_batched_tokens=8, enable_chunked_prefill=False
    )
    with pytest.raises(Unfinished, match=r"more tokens than engine\.max_num_batched_tokens"):
        replay(PAIR, stuck)
    ledger = replay(PAIR, stuck, keep_censored=True)
    assert ["censored", "censored"] == ledger.requests["status"].to_list()
    assert [10**9, 10**9] == ledger.requests["queue_ticks"].to_list()


def test_vllm_s_own_rule_ends_when_everyone_evicts_everyone() -> None:
    """A pool that holds one request, chunks of one token, everything tied: all complete."""
    workload = Workload(tuple(Request(f"{k}", 0, 9, 6) for k in range(6)))
    for policy in ("fcfs", "priority"):
        engine = {"capacity_blocks": 14, "block_size": 1, "max_num_batched_tokens": 6}
        tight = config(
            scheduling_policy=policy,
            scheduler_reserve_full_isl=False,
            long_prefill_token_threshold=1,
            **engine,
        )
        totals = replay(workload, tight).receipt["totals"]
        assert (6, 36) == (totals["completions"], totals["generated_tokens"])
        assert totals["preemptions"] > 6


def test_without_numba_the_same_rows_come_from_interpreted_code() -> None:
    """A machine without the compiler replays all the same."""
    code = "import sys; sys.modules['numba'] = None\n" + IN_A_PROCESS
    assert rows_of_a_process("import sys\n" + IN_A_PROCESS) == rows_of_a_process(code)


def test_code_that_cannot_be_kept_is_compiled_all_the_same(tmp_path: Path) -> None:
    """Where no directory can be written, every process compiles for itself."""
    (tmp_path / "file").write_text("")
    code = (
        "from replay.vllm_v1 import compiled\n"
        "from pathlib import Path\n"
        f"compiled._places = lambda name: iter([Path({str(tmp_path / 'file')!r}) / name])\n"
    )
    plain = "import sys; sys.modules['numba'] = None\n" + IN_A_PROCESS
    assert rows_of_a_process(plain) == rows_of_a_process(code + IN_A_PROCESS)


def test_damaged_kept_code_is_compiled_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """What cannot be loaded is left alone, and nothing fails."""

    def machine_code(*, keep: bool) -> compiling.Advance:
        if keep:
            raise EOFError
        return step.advance

    monkeypatch.setattr(compiling, "_machine_code", machine_code)
    simulation = Simulation(columns_of(PAIR), config(), interpreted=False)
    assert 8 == sum(len(rows) for rows in simulation.run())


def test_a_replay_of_more_steps_than_estimated_goes_on_compiled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Midway, with the same rows; it says so only where nothing was kept."""
    monkeypatch.setattr(simulating, "_INTERPRETED_MOST_STEPS", 4)
    monkeypatch.setattr(simulating, "_STEPS_AT_ONCE", {True: 2, False: 2})
    said: list[str] = []
    monkeypatch.setattr(simulating, "is_kept", lambda: False)
    busy = Workload(tuple(Request(str(k), k, 9 + k % 5, 6) for k in range(20)))
    simulation = Simulation(columns_of(busy), config(), notice=said.append)
    assert step.advance is simulation._advance
    rows = np.concatenate(list(simulation.run()))
    assert step.advance is not simulation._advance
    assert simulated(busy, config(), interpreted=True).tolist() == rows.tolist()
    assert ["compiling the scheduler, once (some 20 s)"] == said


def test_code_kept_for_another_python_is_none_for_this_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Releases of Python share the directory, and each has to compile once."""
    monkeypatch.setattr(compiling, "_directory", lambda: str(tmp_path))
    version = f"py{sys.version_info.major}{sys.version_info.minor}"
    kept = []
    for name in ("step.advance-94.py39", f"other.main-1.{version}", f"step.advance-94.{version}"):
        (tmp_path / f"{name}.nbi").touch()
        kept.append(compiling.is_kept())
    assert [False, False, True] == kept


def test_only_where_code_can_be_kept_does_a_middling_replay_compile(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else every such replay would wait for the compiler longer than for itself."""
    monkeypatch.setattr(simulating, "_LOADING_US", 0)
    for kept in (True, False):
        monkeypatch.setattr(simulating, "can_be_kept", lambda kept=kept: kept)
        simulation = Simulation(columns_of(PAIR), config())
        assert kept == (simulation._advance is not step.advance)


IN_A_PROCESS = """
import numpy
from replay.config import parse_config
from replay.vllm_v1.columns import columns_of
from replay.vllm_v1.simulation import Simulation
from replay.workload import Request, Workload
workload = Workload(tuple(Request(str(k), k, 9 + k % 5, 6) for k in range(20)))
engine = {"profile": "vllm-v1", "rule": "vllm-0.32.0", "block_size": 4, "capacity_blocks": 9,
          "max_num_batched_tokens": 16, "max_model_len": 64}
config = parse_config({"engine": engine}, "test")
rows = numpy.concatenate(list(Simulation(columns_of(workload), config, interpreted=False).run()))
print(rows.tolist())
"""


def rows_of_a_process(code: str) -> str:
    """What a new interpreter prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout


@pytest.mark.parametrize(
    ("key", "value"), [("capacity_blocks", 2**40), ("block_size", 2**40), ("block_size", 2**21)]
)
def test_what_would_not_fit_in_memory_is_refused_by_name(key: str, value: int) -> None:
    """Nothing is allocated for a pool or a block that no machine holds."""
    with pytest.raises(InputError, match=rf"engine\.{key} must be at most"):
        replay(PAIR, config(**{"enable_prefix_caching": True, key: value}))


def test_a_link_that_takes_for_ever_is_not_waited_for_tick_by_tick() -> None:
    """Bytes that need more ticks than there are end as unfinished at once."""
    slow = {"recovery": "swap", "kv_bytes_per_token": 2**40, "transfer_bytes_per_tick": 1}
    with pytest.raises(Unfinished, match="unfinished at tick 1000000000"):
        replay(Workload((Request("A", 0, 8, 5), Request("B", 0, 7, 4))), config({"policy": slow}))


def test_estimates_no_reader_could_hold_are_refused_by_name() -> None:
    """Nothing is written that reading it back would refuse."""
    rates = {"kv_bytes_per_token": 2**48 - 1, "transfer_bytes_per_tick": 1}
    large = config({"policy": rates}, capacity_blocks=32, block_size=1)
    workload = Workload((Request("A", 0, 2, 17), Request("B", 0, 24, 7)))
    with pytest.raises(InputError, match="estimate_swap_ticks"):
        replay(workload, large)


def test_chunks_larger_than_any_prompt_name_blocks_all_the_same() -> None:
    """The size of a chunk is a claim of the workload; names are counted by what prompts hold."""
    requests = tuple(Request(f"{k:04d}", k, 9, 2, prefix_blocks=(k,)) for k in range(50))
    caching = config(block_size=1, capacity_blocks=40, enable_prefix_caching=True)
    hashes = {
        replay(Workload(requests, chunk), caching).receipt["event_sha256"]
        for chunk in (16, 2**53 - 1)
    }
    assert 1 == len(hashes)
