"""Worked examples for the second lab implementation, each number worked out from SPEC.md by hand.

Most tests use the *article's pair*: A (23 + 11 tokens) and B (24 + 10) in 8 blocks of 8 tokens,
with the default rates. Prefill, 16 tokens a tick: A 16; A 7 and B 9; B 15. So A emits its first
token in tick 2, B in tick 3, and both have 32 tokens in 4 blocks after tick 10. In tick 11 A needs
a fifth block and none is free: B, with 24 + 8 tokens, is the victim. A completes in tick 12.
"""

from __future__ import annotations

import hashlib
import struct
from typing import Any

import pytest
from lab_reference import (
    COLUMNS,
    reference_binary,
    reference_events,
    reference_input_sha256,
    reference_requests,
    reference_workload_sha256,
)

Row = dict[str, Any]


def request(request_id: str, prompt: int, output: int, arrival: int = 0, **more: Any) -> Row:
    """Return a workload row."""
    row = {"request_id": request_id, "arrival_us": arrival}
    return {**row, "prompt_tokens": prompt, "output_tokens": output, **more}


def config(capacity: int, tables: Row | None = None, **policy: Any) -> Row:
    """Return a lab configuration with this capacity, these tables and keys of `[policy]`."""
    engine = {"profile": "lab", "capacity_blocks": capacity}
    return {"engine": engine, "policy": policy, **(tables or {})}


PAIR = [request("A", 23, 11), request("B", 24, 10)]


def find(events: list[Row], kind: str, request_id: str) -> Row:
    """Return the first event of this kind and request."""
    return next(e for e in events if (e["kind"], e["request_id"]) == (kind, request_id))


def timeline(events: list[Row]) -> list[tuple[int, str, str]]:
    """Return tick, kind and request of every event."""
    return [(e["tick"], e["kind"], e["request_id"]) for e in events]


def shown(row: Row, columns: str) -> list[Any]:
    """Return the values of these columns."""
    return [row[column] for column in columns.split()]


def test_lone_request_decodes_from_the_tick_after_its_prefill() -> None:
    """A request decodes from the tick after its prefill ended, and frees its blocks at the end."""
    events = reference_events([request("a", 16, 2)], config(12))

    kinds = [(0, "arrive", "a"), (0, "admit", "a"), (1, "first_token", "a"), (2, "complete", "a")]
    assert kinds == timeline(events)
    assert [0, 1, 2, 3] == [event["seq"] for event in events]
    assert all(list(COLUMNS) == list(event) for event in events)
    occupancy = "occupied_blocks_before occupied_blocks_after allocated_blocks freed_blocks"
    expected = [[0, 0, None, None], [0, 2, 2, None], [3, 3, None, None], [3, 0, None, 3]]
    assert expected == [shown(event, occupancy) for event in events]
    counters = "generated_tokens remaining_tokens context_tokens active_requests queue_depth"
    assert [[0, 2, 16, 0, 1], [0, 2, 16, 1, 0], [1, 1, 17, 1, 0], [2, 0, 18, 0, 0]] == [
        shown(event, counters) for event in events
    ]
    assert [None, 16, None, None] == [event["work_left_tokens"] for event in events]


def test_time_us_is_the_tick_and_not_the_arrival() -> None:
    """Arrivals fall into tick arrival_us // tick_us, and every event shows its tick's time."""
    tables = {"engine": {"profile": "lab", "capacity_blocks": 12, "tick_us": 10}}
    events = reference_events([request("a", 16, 1, arrival=29)], config(12, tables))

    columns = "tick time_us arrival_tick age_ticks"
    assert [2, 20, 2, 0] == shown(events[0], columns)
    assert [3, 30, 2, 1] == shown(events[-1], columns)


def test_prefill_budget_is_split_in_running_order() -> None:
    """A tick's prefill tokens go to the first running request, and what is left to the next."""
    rows = reference_requests(PAIR, config(8))

    assert [2, 3] == [row["first_token_tick"] for row in rows]


def test_recompute_charges_prompt_and_output() -> None:
    """A victim with 24 + 8 tokens frees 4 blocks, is charged 32 replay tokens, and keeps its 8."""
    events = reference_events(PAIR, config(8))

    preempt = find(events, "preempt", "B")
    columns = "tick requester_id freed_blocks recovery recovery_reason recompute_tokens"
    assert [11, "A", 4, "recompute", None, 32] == shown(preempt, columns)
    columns = "generated_tokens remaining_tokens context_tokens preemptions queue_ticks"
    assert [8, 2, 32, 1, 0] == shown(preempt, columns)
    columns = "active_requests queue_depth queue_position"
    assert [1, 1, 0] == shown(preempt, columns)
    columns = "occupied_blocks_before occupied_blocks_after swap_out_bytes swap_in_bytes"
    assert [8, 4, None, None] == shown(preempt, columns)
    columns = "work_left_tokens work_left_bytes host_bytes_after"
    assert [None, None, 0] == shown(preempt, columns)

    # A holds 5 of 8 blocks until it completes in tick 12; then 32 tokens take two ticks.
    assert [
        (11, "preempt", "B"),
        (12, "complete", "A"),
        (13, "resume", "B"),
        (14, "recovered", "B"),
        (16, "complete", "B"),
    ] == timeline(events)[-5:]
    assert [4, 32, None] == shown(
        find(events, "resume", "B"), "allocated_blocks work_left_tokens work_left_bytes"
    )
    columns = "recovery recompute_tokens swap_in_bytes generated_tokens queue_ticks"
    assert ["recompute", 32, None, 8, 2] == shown(find(events, "recovered", "B"), columns)
    assert 5 == find(events, "complete", "B")["freed_blocks"]


def test_swap_charges_the_resident_bytes_out_and_in() -> None:
    """32 tokens at 512 bytes: 16,384 out, then 16,384 in, held on the host in between."""
    events = reference_events(PAIR, config(8, recovery="swap"))

    columns = "recovery recovery_reason recompute_tokens swap_out_bytes swap_in_bytes"
    expected = ["swap", None, None, 16384, 16384]
    assert expected == shown(find(events, "preempt", "B"), columns)
    # The link, 8,192 a tick, is full in ticks 12 and 13 (out) and again in 14 and 15 (in).
    assert [
        (11, "preempt", "B"),
        (12, "complete", "A"),
        (13, "swapped_out", "B"),
        (13, "resume", "B"),
        (15, "recovered", "B"),
        (17, "complete", "B"),
    ] == timeline(events)[-6:]
    assert [16384] * 3 + [16384, 0, 0] == [event["host_bytes_after"] for event in events[-6:]]
    columns = "swap_out_bytes swap_in_bytes work_left_tokens work_left_bytes"
    assert [16384, None, None, None] == shown(find(events, "swapped_out", "B"), columns)
    assert [None, None, None, 16384] == shown(find(events, "resume", "B"), columns)
    assert [None, 16384, None, None] == shown(find(events, "recovered", "B"), columns)


@pytest.mark.parametrize(
    ("transfer", "resumed", "recovered"),
    # 12,000: out 12,000 + 4,384, so 7,616 of tick 13 are left; 8,768 come in tick 14.
    # 9,000: out 9,000 + 7,384, so 1,616 are left; 9,000 in tick 14, 5,768 in tick 15.
    [(12000, 13, 14), (9000, 13, 15)],
)
def test_restores_use_what_swap_outs_left(transfer: int, resumed: int, recovered: int) -> None:
    """Both directions share one link budget, and pending swap-outs take from it first."""
    events = reference_events(PAIR, config(8, recovery="swap", transfer_bytes_per_tick=transfer))

    assert resumed == find(events, "resume", "B")["tick"]
    assert recovered == find(events, "recovered", "B")["tick"]


@pytest.mark.parametrize("recovery", ["recompute", "swap", "adaptive"])
def test_every_policy_shows_both_estimates(recovery: str) -> None:
    """32 tokens are 2 prefill ticks and 2 x 2 link ticks, on every preempt event."""
    preempt = find(reference_events(PAIR, config(8, recovery=recovery)), "preempt", "B")

    assert [2, 4] == shown(preempt, "estimate_recompute_ticks estimate_swap_ticks")


def test_adaptive_takes_the_lower_estimate() -> None:
    """Adaptive recovery takes the lower estimate and says that it was cheaper."""
    # Prefill 8 a tick: A (21 tokens) emits from tick 3 and B from tick 6, so both have 32 tokens
    # after tick 13. B is preempted in tick 14: 32 / 8 = 4 ticks against 2 x 16,384 / 16,384 = 2.
    pair = [request("A", 21, 13), request("B", 24, 10)]
    slow_prefill: Row = {"prefill_tokens_per_tick": 8, "transfer_bytes_per_tick": 16384}
    columns = "tick recovery recovery_reason estimate_recompute_ticks estimate_swap_ticks"

    events = reference_events(PAIR, config(8, recovery="adaptive"))
    expected = [11, "recompute", "cheaper", 2, 4]
    assert expected == shown(find(events, "preempt", "B"), columns)

    events = reference_events(pair, config(8, recovery="adaptive", **slow_prefill))
    assert [14, "swap", "cheaper", 4, 2] == shown(find(events, "preempt", "B"), columns)


def test_adaptive_tie_goes_to_recompute() -> None:
    """Equal estimates (2 and 2 x 1) are a tie, and a tie goes to recompute."""
    policy: Row = {"recovery": "adaptive", "transfer_bytes_per_tick": 16384}
    preempt = find(reference_events(PAIR, config(8, **policy)), "preempt", "B")

    columns = "recovery recovery_reason estimate_recompute_ticks estimate_swap_ticks"
    assert ["recompute", "tie", 2, 2] == shown(preempt, columns)


@pytest.mark.parametrize(
    ("room", "expected"),
    [
        (16383, ["recompute", "host_full", 32, None, None, 0]),
        (16384, ["swap", None, None, 16384, 16384, 16384]),
    ],
)
def test_full_host_turns_swap_into_recompute(room: int, expected: list[Any]) -> None:
    """A swap for which the host has one byte too little is a recompute, `host_full`."""
    events = reference_events(PAIR, config(8, recovery="swap", host_capacity_bytes=room))

    columns = "recovery recovery_reason recompute_tokens swap_out_bytes swap_in_bytes"
    assert expected == shown(find(events, "preempt", "B"), columns + " host_bytes_after")


def test_interrupted_restore_keeps_its_host_copy() -> None:
    """A victim with restore left is `on_host`: nothing goes out again, all bytes come in again."""
    # Link 4,096 a tick: B's bytes go out in ticks 12 to 15. C arrives in tick 15 and goes first
    # (priority -1): C takes 4 blocks, B the other 4. C's 32 tokens take ticks 15 and 16; B has
    # 8,192 of 16,384 bytes back after tick 17, when C's first token needs a fifth block.
    requests = [*PAIR, request("C", 32, 2, arrival=15, priority=-1)]
    policy: Row = {"recovery": "swap", "transfer_bytes_per_tick": 4096}
    events = reference_events(requests, config(8, **policy))

    assert [
        (11, "preempt", "B"),
        (12, "complete", "A"),
        (15, "arrive", "C"),
        (15, "swapped_out", "B"),
        (15, "admit", "C"),
        (15, "resume", "B"),
        (17, "preempt", "B"),
        (17, "first_token", "C"),
        (18, "complete", "C"),
        (19, "resume", "B"),
        (22, "recovered", "B"),
        (24, "complete", "B"),
    ] == timeline(events)[-12:]
    columns = "requester_id recovery recovery_reason swap_out_bytes swap_in_bytes work_left_bytes"
    assert ["C", "swap", "on_host", None, 16384, 8192] == shown(events[-6], columns)
    columns = "preemptions freed_blocks host_bytes_after estimate_swap_ticks"
    assert [2, 4, 16384, 8] == shown(events[-6], columns)
    assert 16384 == events[-2]["swap_in_bytes"]
    row = reference_requests(requests, config(8, **policy))[1]
    # Queued in ticks 11 to 14, then 17 and 18.
    expected = [2, 6, 0, 16384, 32768]
    columns = "preemptions queue_ticks recompute_tokens swap_out_bytes swap_in_bytes"
    assert expected == shown(row, columns)


@pytest.mark.parametrize("recovery", ["recompute", "swap", "adaptive"])
def test_interrupted_prefill_is_replayed_in_full(recovery: str) -> None:
    """A victim with prefill left is recomputed under every policy, and later is `recovered`."""
    requests = [request("a", 8, 2), request("b", 16, 1)]
    policy: Row = {"recovery": recovery, "prefill_tokens_per_tick": 8}
    events = reference_events(requests, config(3, **policy))

    assert [
        (0, "arrive", "a"),
        (0, "arrive", "b"),
        (0, "admit", "a"),
        (0, "admit", "b"),
        (1, "preempt", "b"),  # half of its prefill is done
        (1, "first_token", "a"),
        (2, "complete", "a"),
        (3, "resume", "b"),
        (4, "recovered", "b"),
        (5, "first_token", "b"),
        (5, "complete", "b"),
    ] == timeline(events)
    columns = "recovery recovery_reason recompute_tokens work_left_tokens freed_blocks"
    assert ["recompute", "incomplete", 16, 8, 2] == shown(find(events, "preempt", "b"), columns)
    assert 16 == find(events, "resume", "b")["work_left_tokens"]
    assert 16 == find(events, "recovered", "b")["recompute_tokens"]


def test_requester_can_be_its_own_victim_and_is_flagged_once() -> None:
    """A requester of the lowest class preempts itself, emits nothing, and is flagged once each."""
    # x (8 tokens, 1 block) needs a second block in tick 1, y its second one in tick 2.
    requests = [request("x", 8, 1, priority=1), request("y", 8, 2, arrival=1)]
    tables = {"fairness": {"max_queue_ticks": 1, "max_preemptions": 1}}
    events = reference_events(requests, config(2, tables))

    assert [
        (0, "arrive", "x"),
        (0, "admit", "x"),
        (1, "arrive", "y"),
        (1, "admit", "y"),
        (1, "preempt", "x"),
        (2, "resume", "x"),
        (2, "recovered", "x"),
        (2, "preempt", "x"),
        (2, "first_token", "y"),
        (2, "flag_wait", "x"),
        (2, "flag_repeat", "x"),
        (3, "complete", "y"),
        (4, "resume", "x"),
        (4, "recovered", "x"),
        (5, "first_token", "x"),
        (5, "complete", "x"),
    ] == timeline(events)
    columns = "requester_id generated_tokens queue_ticks occupied_blocks_before"
    assert ["x", 0, 0, 2] == shown(events[4], columns)
    assert ["y", 0, 1, 2] == shown(events[7], columns)
    assert [None, 0, 2, 2] == shown(events[9], columns)
    assert [2, 2] == shown(events[9], "preemptions occupied_blocks_after")


def test_victim_keeps_the_token_of_this_tick() -> None:
    """A victim that already emitted in this tick keeps that token."""
    requests = [request("x", 9, 3, priority=1), request("y", 8, 2, arrival=1)]
    events = reference_events(requests, config(3))

    preempt = find(events, "preempt", "x")
    columns = "tick requester_id generated_tokens recompute_tokens freed_blocks"
    assert [2, "y", 2, 11, 2] == shown(preempt, columns)
    assert "first_token" == events[preempt["seq"] + 1]["kind"]


def test_completed_blocks_are_free_for_those_after_it() -> None:
    """The blocks of a request that completes are free for those after it in the same tick."""
    events = reference_events([request("a", 7, 1), request("b", 8, 1)], config(2))

    assert [
        (1, "first_token", "a"),
        (1, "complete", "a"),
        (1, "first_token", "b"),
        (1, "complete", "b"),
    ] == timeline(events)[-4:]
    columns = "occupied_blocks_before occupied_blocks_after freed_blocks"
    expected = [[2, 2, None], [2, 1, 1], [2, 2, None], [2, 0, 2]]
    assert expected == [shown(event, columns) for event in events[-4:]]


def test_nobody_overtakes_the_head_of_the_queue() -> None:
    """A request that would fit waits behind a head that does not."""
    requests = [request("a", 16, 3), request("b", 16, 1), request("c", 8, 1)]

    # One block is free while a runs (ticks 0 to 3): enough for c, too little for b.
    rows = reference_requests(requests, config(3))
    assert [0, 4, 4] == [row["first_admit_tick"] for row in rows]


def test_ids_compare_as_utf8_bytes() -> None:
    """U+FF61 (EF BD A1) is admitted before U+10000 (F0 90 80 80), whatever the file order."""
    low, high = "\uff61", "\U00010000"
    events = reference_events([request(high, 8, 1), request(low, 8, 1)], config(4))

    expected = [(0, "arrive", high), (0, "arrive", low), (0, "admit", low), (0, "admit", high)]
    assert expected == timeline(events)[:4]


def test_unfinished_requests_are_censored_at_the_last_tick() -> None:
    """A request that max_ticks cuts off is censored at tick max_ticks - 1, and nothing moves."""
    requests = [request("a", 16, 5)]
    tables = {"limits": {"max_ticks": 2}}
    event = reference_events(requests, config(12, tables))[-1]

    columns = "tick kind generated_tokens active_requests"
    assert [1, "censored", 1, 1] == shown(event, columns)
    assert [3, 3] == shown(event, "occupied_blocks_before occupied_blocks_after")
    row = reference_requests(requests, config(12, tables))[0]
    columns = "status first_token_tick completion_tick modelled_ttft_ticks modelled_tpot_ticks"
    assert ["censored", 1, None, 1, None] == shown(row, columns)


def test_request_rows_sum_up_the_preempt_events() -> None:
    """A row of requests.parquet has what was charged, and TTFT and TPOT in ticks."""
    assert {
        "request_id": "B",
        "status": "complete",
        "arrival_tick": 0,
        "first_admit_tick": 0,
        "first_token_tick": 3,
        "completion_tick": 16,
        "prompt_tokens": 24,
        "output_tokens": 10,
        "generated_tokens": 10,
        "priority": 0,
        "tenant": None,
        "preemptions": 1,
        "queue_ticks": 2,
        "recompute_tokens": 32,
        "swap_out_bytes": 0,
        "swap_in_bytes": 0,
        "flagged_wait": False,
        "flagged_repeat": False,
        "modelled_ttft_ticks": 3,
        "modelled_tpot_ticks": 13 / 9,
    } == reference_requests(PAIR, config(8))[1]


def test_binary_form_is_a_header_line_and_fixed_width_records() -> None:
    """The binary form has the policy in its header, then 33 little-endian int64 per event."""
    # In the file b is first; in the workload, ordered by arrival, it has index 1.
    binary = reference_binary([request("b", 8, 1, arrival=5), request("a", 8, 1)], config(12))

    header, records = binary.split(b"\n", 1)
    start = b'{"columns":["seq","tick","time_us","kind","request_id","requester_id","priority",'
    assert header.startswith(start)
    assert header.endswith(
        b'"work_left_tokens","work_left_bytes"],"policy":{"recovery":"recompute","victim":"rule"},'
        b'"profile":"lab","rule":"lab-1","schema":"preemption-ledger/1"}'
    )
    assert 8 * 33 * 8 == len(records)  # two times arrive, admit, first_token, complete
    null = -(2**63)
    arrive = [4, 5, 5, 0, 1, null, 0, 5, 0, 0, 0, 8, 0, 1, 8, 0, 1, null, 12, 0, 0]
    arrive += [null] * 9 + [0, null, null]
    assert arrive == list(struct.unpack("<33q", records[4 * 264 : 5 * 264]))


def test_workload_hash_covers_every_field_in_order() -> None:
    """The text form is in order, ties as in the file, with null where a field is absent."""
    requests = [
        request("late", 8, 1, arrival=7, tenant="t", prefix_blocks=[0, 3]),
        request("z", 8, 1, prefix_blocks=[]),
        request("é", 8, 1, priority=-1),
    ]
    text = (
        '{"prefix_block_tokens":4,"schema":"preemption-workload/1"}\n'
        '{"arrival_us":0,"output_tokens":1,"prefix_blocks":null,"priority":0,'
        '"prompt_tokens":8,"request_id":"z","tenant":null}\n'
        '{"arrival_us":0,"output_tokens":1,"prefix_blocks":null,"priority":-1,'
        '"prompt_tokens":8,"request_id":"é","tenant":null}\n'
        '{"arrival_us":7,"output_tokens":1,"prefix_blocks":[0,3],"priority":0,'
        '"prompt_tokens":8,"request_id":"late","tenant":"t"}\n'
    )
    expected = hashlib.sha256(text.encode("utf-8")).hexdigest()
    assert expected == reference_workload_sha256(requests, 4)


def test_input_hash_leaves_out_what_chooses() -> None:
    """The input hash has every key the lab reads at its value or default, without the choice."""
    workload_sha256 = reference_workload_sha256(PAIR)
    text = (
        '{"config":{"engine":{"block_size":8,"capacity_blocks":8,"max_num_seqs":256,'
        '"profile":"lab","rule":"lab-1","tick_us":1},"fairness":{"max_preemptions":2,'
        '"max_queue_ticks":200},"limits":{"max_requests":64,"max_ticks":20000},"policy":{'
        '"host_capacity_bytes":0,"kv_bytes_per_token":512,"prefill_tokens_per_tick":16,'
        '"transfer_bytes_per_tick":8192}},"workload_sha256":"' + workload_sha256 + '"}'
    )
    expected = hashlib.sha256(text.encode("utf-8")).hexdigest()
    assert expected == reference_input_sha256(PAIR, config(8))
    assert expected == reference_input_sha256(PAIR, config(8, recovery="swap"))
