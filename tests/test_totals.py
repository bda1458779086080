"""Sums over a ledger, and its row per request: exact, and as a plain loop would have them."""

from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stored import engine_config, lab_ledger
from workloads import contracts, lab_inputs

from replay.events import COLUMN, COLUMNS, NULL, Event, Kind, Recovery, Rows, to_rows
from replay.lab import replay_lab
from replay.receipt import build_receipt, victim_rule
from replay.requests_table import request_table, table_differences
from replay.totals import exact_sum, totals
from replay.workload import Request, Workload

KV_BYTES = engine_config().policy.kv_bytes_per_token
PROMPT = 100


def event(kind: Kind, generated: int = 0, *, who: int = 0, tick: int = 0, **own: Any) -> Event:
    """An event of a request with a prompt of 100 tokens; what does not matter here is 0 or None."""
    facts: dict[str, Any] = dict.fromkeys(COLUMNS)
    facts |= {name: 0 for name, kind in Event.__annotations__.items() if kind is int}
    facts |= {"kind": kind, "request_id": who, "tick": tick, "generated_tokens": generated}
    facts |= {"prompt_tokens": PROMPT, "context_tokens": PROMPT + generated}
    return Event(**facts | own)


def admit(left: int, generated: int = 0, **own: Any) -> Event:
    """Admission with so many tokens left to compute, resumed if it had generated any."""
    kind = Kind.RESUME if generated else Kind.ADMIT
    return event(kind, generated, work_left_tokens=left, **own)


def preempt(computed: int, generated: int = 0, **own: Any) -> Event:
    """Preemption that loses so many computed tokens."""
    recovery = Recovery.RECOMPUTE
    return event(
        Kind.PREEMPT, generated, recovery=recovery, recompute_tokens=computed, requester_id=1, **own
    )


def swap(computed: int, generated: int = 0, *, on_host: bool = False) -> Event:
    """Preemption that keeps so many computed tokens on the host."""
    kept = computed * KV_BYTES
    out = None if on_host else kept
    recovery = Recovery.SWAP
    return event(Kind.PREEMPT, generated, recovery=recovery, swap_in_bytes=kept, swap_out_bytes=out)


def work(*events: Event) -> tuple[int, float | None]:
    """Executed tokens and recompute tax of an engine's ledger."""
    found = totals(to_rows(events), engine_config())
    return found["executed_tokens"], found["recompute_tax_frac"]


@pytest.mark.parametrize(
    ("events", "expected"),
    [
        ([], (0, None)),
        # 100 prompt tokens and the 8 that the 9 tokens after them needed.
        ([admit(100), event(Kind.COMPLETE, 9)], (108, 0.0)),
        # 64 of them were in the prefix cache.
        ([admit(36), event(Kind.COMPLETE, 9)], (44, 0.0)),
        # 103 lost and computed again, and 5 more.
        ([admit(100), preempt(103, 4), admit(104, 4), event(Kind.COMPLETE, 9)], (211, 103 / 211)),
        # The cache still had 96 of the 103.
        ([admit(100), preempt(103, 4), admit(8, 4), event(Kind.COMPLETE, 9)], (115, 7 / 115)),
        # The first replay was lost at 50, the second passed 103.
        (
            [
                *(admit(100), preempt(103, 4)),
                *(admit(104, 4), preempt(50, 4)),
                *(admit(104, 4), event(Kind.COMPLETE, 9)),
            ],
            (103 + 50 + 108, (50 + 103) / 261),
        ),
        # A restore computes nothing again; on_host it has not even begun.
        (
            [
                *(admit(100), swap(103, 4)),
                event(Kind.RESUME, 4, work_left_bytes=103 * KV_BYTES),
                swap(103, 4, on_host=True),
                event(Kind.RESUME, 4, work_left_bytes=103 * KV_BYTES),
                event(Kind.COMPLETE, 9),
            ],
            (108, 0.0),
        ),
        # The token in flight completes it while it waits: there is no second stay.
        ([admit(100), preempt(107, 8), event(Kind.COMPLETE, 9)], (107, 0.0)),
        # Preempted before its first step: nothing was computed.
        ([admit(100), preempt(0), admit(100), event(Kind.COMPLETE, 1)], (100, 0.0)),
        # Censored: what was delivered proves what was computed, nothing else does.
        ([admit(36), event(Kind.CENSORED, 3)], (36 + 2, 0.0)),
        ([admit(100), event(Kind.CENSORED)], (0, None)),
        ([admit(100), preempt(103, 4), admit(104, 4), event(Kind.CENSORED, 4)], (103, 0.0)),
        ([admit(100), preempt(103, 4), event(Kind.CENSORED, 4)], (103, 0.0)),
        ([event(Kind.CENSORED)], (0, None)),
    ],
)
def test_executed_positions_are_those_between_admission_and_end(
    events: list[Event], expected: tuple[int, float | None]
) -> None:
    """What a stay on the running list computed, and how much of it had been computed before."""
    assert expected == work(*events)


def plain_work(rows: list[Event]) -> tuple[int, int]:
    """Executed and recomputed positions, request by request and event by event."""
    executed = recomputed = 0
    for who in {e.request_id for e in rows}:
        start, furthest, admitted = None, 0, 0
        for e in (e for e in rows if e.request_id == who):
            if e.kind in (Kind.ADMIT, Kind.RESUME):
                admitted = e.context_tokens
                start = admitted - (e.work_left_tokens or 0)
                if e.work_left_bytes is not None:
                    start = e.work_left_bytes // KV_BYTES
            elif start is not None and e.kind in (Kind.PREEMPT, Kind.COMPLETE, Kind.CENSORED):
                end = e.context_tokens - 1 if e.context_tokens > admitted else start
                if e.kind == Kind.PREEMPT:
                    swapped = e.recovery == Recovery.SWAP
                    kept = (e.swap_in_bytes or 0) // KV_BYTES
                    end = kept if swapped else e.recompute_tokens or 0
                executed += max(0, end - start)
                recomputed += max(0, min(end, furthest) - start)
                start = None
            furthest = max(furthest, (e.kind == Kind.PREEMPT) * (e.recompute_tokens or 0))
    return executed, recomputed


@st.composite
def engine_events(draw: st.DrawFn) -> list[Event]:
    """Admissions and ends of a few requests in any order, sensible or not."""
    tokens = st.integers(0, 9)
    some = st.one_of(
        st.builds(lambda n, g, w: admit(n, g, who=w), tokens, tokens, st.integers(0, 3)),
        st.builds(lambda n, g, w: preempt(n, g, who=w), tokens, tokens, st.integers(0, 3)),
        st.builds(swap, tokens, tokens),
        st.builds(lambda n, g: event(Kind.RESUME, g, work_left_bytes=n * KV_BYTES), tokens, tokens),
        st.builds(
            lambda k, g, w: event(k, g, who=w),
            st.sampled_from([Kind.COMPLETE, Kind.CENSORED, Kind.ARRIVE, Kind.FIRST_TOKEN]),
            tokens,
            st.integers(0, 3),
        ),
    )
    found = draw(st.lists(some, max_size=30))
    return [e._replace(prompt_tokens=5, context_tokens=5 + e.generated_tokens) for e in found]


@settings(max_examples=500)
@given(engine_events())
def test_an_engines_executed_positions_are_a_plain_loops(events: list[Event]) -> None:
    """All requests at once or one after the other: the same sums."""
    executed, recomputed = plain_work(events)
    expected = (executed, recomputed / executed if executed else None)
    assert expected == work(*events)


def plain_lab_work(events: list[Event]) -> tuple[int, int]:
    """Prefilled and replayed tokens of the lab, and the replayed ones, event by event."""
    left: dict[int, tuple[Kind, int]] = {}
    done = {Kind.ADMIT: 0, Kind.RESUME: 0}
    for e in events:
        if e.kind in done and e.work_left_tokens is not None:
            left[e.request_id] = (Kind(e.kind), e.work_left_tokens)
        elif e.kind in (Kind.PREEMPT, Kind.RECOVERED, Kind.FIRST_TOKEN) and e.request_id in left:
            kind, work = left.pop(e.request_id)
            done[kind] += work - (e.work_left_tokens or 0)
    return sum(done.values()), done[Kind.RESUME]


@settings(max_examples=300)
@given(lab_inputs())
def test_the_labs_totals_are_a_plain_loops(
    inputs: tuple[list[dict[str, Any]], dict[str, Any]],
) -> None:
    """Every sum of the receipt, from the events one by one."""
    workload, config = contracts(*inputs)
    events = replay_lab(workload, config)
    last = {e.request_id: e for e in events}
    preempts = [e for e in events if e.kind == Kind.PREEMPT]
    recovered = [e for e in events if e.kind == Kind.RECOVERED]
    generated = sum(e.generated_tokens for e in last.values())
    worked, replayed = plain_lab_work(events)
    executed = worked + generated
    expected = {
        "requests": len(last),
        "pressure_events": len({(e.tick, e.requester_id) for e in preempts}),
        "preemptions": len(preempts),
        "freed_blocks": sum(e.freed_blocks or 0 for e in preempts),
        "charged_tokens": sum(e.recompute_tokens or 0 for e in preempts),
        "replayed_tokens": sum(e.recompute_tokens or 0 for e in recovered),
        "swap_out_bytes": sum(e.swap_out_bytes or 0 for e in events if e.kind == Kind.SWAPPED_OUT),
        "swap_in_bytes": sum(e.swap_in_bytes or 0 for e in recovered),
        "queue_ticks": sum(e.queue_ticks for e in last.values()),
        "completions": sum(e.kind == Kind.COMPLETE for e in events),
        "censored": sum(e.kind == Kind.CENSORED for e in events),
        "generated_tokens": generated,
        "executed_tokens": executed,
        "recompute_tax_frac": replayed / executed if executed else None,
    }
    assert expected == totals(to_rows(events), config)


def test_one_shortage_may_have_several_victims() -> None:
    """Pressure events are told apart by their tick and by who needed the block."""
    shortages = [(1, 0), (1, 0), (1, 2), (3, 0)]
    events = [preempt(1, tick=tick, who=5)._replace(requester_id=r) for tick, r in shortages]
    found = totals(to_rows(events), engine_config())
    assert (3, 4) == (found["pressure_events"], found["preemptions"])


def test_sums_do_not_wrap_around() -> None:
    """Three times 2^62 is beyond 64 bits and still right; nulls and negative values count too."""
    events = [preempt(n) for n in (2**62, 2**62, 2**62, -5)]
    rows = to_rows([*events, admit(3)])
    assert 3 * 2**62 - 5 == exact_sum(rows, "recompute_tokens")
    assert 0 == exact_sum(rows, "swap_in_bytes")


def engine_rows() -> tuple[Workload, Rows]:
    """Three requests: one preempted and complete, one censored, one of which nothing is known."""
    workload = Workload(tuple(Request(name, 0, PROMPT, 9, tenant="t") for name in "abc"))
    events = [
        event(Kind.ARRIVE),
        event(Kind.ARRIVE, who=1, tick=1),
        admit(100, tick=2),
        event(Kind.FIRST_TOKEN, 1, tick=3),
        preempt(103, 4, tick=6)._replace(preemptions=1),
        event(Kind.FLAG_REPEAT, 4, tick=6, preemptions=1),
        admit(104, 4, tick=7)._replace(preemptions=1),
        preempt(50, 4, tick=8)._replace(preemptions=2),
        admit(104, 4, tick=9)._replace(preemptions=2),
        event(Kind.COMPLETE, 9, tick=19, preemptions=2, queue_ticks=4),
        event(Kind.CENSORED, who=1, tick=20, queue_ticks=19),
    ]
    return workload, to_rows(events)


def test_a_request_is_told_in_one_row() -> None:
    """Marks, charges and counters; what nothing was said of is null, or 0 for a charge."""
    first, second, third = request_table(*engine_rows()).to_dicts()
    assert ("complete", 2, 3, 19) == (
        first["status"],
        first["first_admit_tick"],
        first["first_token_tick"],
        first["completion_tick"],
    )
    assert (2, 4, 153, 0, False, True) == (
        first["preemptions"],
        first["queue_ticks"],
        first["recompute_tokens"],
        first["swap_in_bytes"],
        first["flagged_wait"],
        first["flagged_repeat"],
    )
    assert (3, 2.0) == (first["modelled_ttft_ticks"], first["modelled_tpot_ticks"])
    assert ("censored", None, 19, "t") == (
        second["status"],
        second["first_token_tick"],
        second["queue_ticks"],
        second["tenant"],
    )
    assert ("c", None, None, 0, False, 9) == (
        third["request_id"],
        third["status"],
        third["arrival_tick"],
        third["recompute_tokens"],
        third["flagged_repeat"],
        third["output_tokens"],
    )


def test_tables_differ_cell_by_cell() -> None:
    """Every cell that is otherwise, row by row, also where one of them is null or no number."""
    table = request_table(*engine_rows())
    assert [] == list(table_differences(table, table.clone()))
    found = table.clone()
    found[1, "status"] = None
    found[0, "modelled_tpot_ticks"] = float("nan")
    found[0, "queue_ticks"] = 5
    found = found.with_columns(modelled_ttft_us=pl.lit(7))  # what is not expected is not compared
    differences = [(row, name, value) for row, name, value, _ in table_differences(table, found)]
    assert [
        (0, "queue_ticks", 4),
        (0, "modelled_tpot_ticks", 2.0),
        (1, "status", "censored"),
    ] == differences
    assert [5, None] == [
        got for _, name, _, got in table_differences(table, found) if name != "modelled_tpot_ticks"
    ]


def test_an_engines_receipt_names_its_options_and_its_victim() -> None:
    """Everything the scheduler was told stands in the receipt, in words where it is a rule."""
    workload, rows = engine_rows()
    config = engine_config(scheduling_policy="priority", watermark=0.01)
    receipt = build_receipt(workload, config, rows, [])
    expected = {
        "model": "ceil(computed_tokens / block_size), shared blocks once",
        "block_size_tokens": 32,
        "capacity_blocks": 47,
        "max_num_seqs": 128,
        "max_num_batched_tokens": 2048,
        "max_model_len": 960,
        "scheduling_policy": "priority",
        "enable_chunked_prefill": True,
        "scheduler_reserve_full_isl": True,
        "watermark": 0.01,
        "long_prefill_token_threshold": 0,
        "enable_prefix_caching": False,
        "async_scheduling": False,
    }
    assert expected == receipt["blocks"]
    assert receipt["policy"]["victim_rule"].startswith("greatest (priority, arrival time)")
    assert ["a"] == receipt["fairness"]["flagged_repeat"]
    assert [] == receipt["what_ifs"]


def test_every_victim_rule_has_words() -> None:
    """A rule is described, and a name from elsewhere is shown as it is."""
    assert "the last of the running" == victim_rule("vllm-v1", "rule", "fcfs")
    for name in ("least-computed", "most-freed-per-lost-token"):
        assert name != victim_rule("vllm-v1", name, "fcfs")
    assert victim_rule("lab", "rule", None).startswith("greatest (priority, arrival tick")
    assert "oldest" == victim_rule("vllm-v1", "oldest", "fcfs")


def test_a_labs_receipt_has_no_key_of_an_engine() -> None:
    """Its receipt is what it was before engines could be replayed."""
    receipt = lab_ledger().receipt
    assert "what_ifs" not in receipt
    assert {"model", "block_size_tokens", "capacity_blocks", "max_num_seqs"} == set(
        receipt["blocks"]
    )
    assert np.all(lab_ledger().events[:, COLUMN["priority"]] != NULL)
