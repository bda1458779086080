"""The oracle's own walk of a vllm-v1 ledger: what it derives, and that it misses no mutation."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from test_oracle import (
    Events,
    change_freed_block,
    changed,
    drop_event,
    drop_restore_bytes,
    duplicate_event,
    erase_output,
    false_flag,
    position,
    renumbered,
    swap_victims,
    truncate,
)
from workloads import timed_tables

from analysis.sqlfiles import literal
from replay.config import RECOVERIES, Config, parse_config
from replay.errors import InputError
from replay.events import COLUMNS, NEVER_NULL, Event, Kind, Reason, to_events, to_rows
from replay.ledger import Ledger, most_events, read_ledger, write_ledger
from replay.oracle import names
from replay.oracle import walk as oracle_walk
from replay.oracle.engine import Engine
from replay.oracle.equations import check_rows, coverage
from replay.oracle.verify import conservation, verify_ledger
from replay.oracle.vllm_v1 import _Run, derive, walk
from replay.oracle.walk import Diverged
from replay.receipt import build_receipt
from replay.requests_table import request_table
from replay.rules import CHECKED
from replay.victims import VICTIMS
from replay.workload import Request, Workload

Inputs = tuple[Workload, Config]
ENGINE = {
    "profile": "vllm-v1",
    "rule": "vllm-0.32.0",
    "capacity_blocks": 12,
    "block_size": 4,
    "max_num_batched_tokens": 24,
    "max_model_len": 64,
    "enable_prefix_caching": False,
    "async_scheduling": False,
}
SWAP = {"recovery": "swap", "prefill_tokens_per_tick": 5, "transfer_bytes_per_tick": 4096}
CROWDS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "sync": ({}, {}),
    "async": ({"async_scheduling": True}, {}),
    "caching": ({"enable_prefix_caching": True}, {}),
    "priority": ({"scheduling_policy": "priority"}, {}),
    "swap": ({}, SWAP),
    "everything": (
        {
            "scheduling_policy": "priority",
            "enable_prefix_caching": True,
            "async_scheduling": True,
            "scheduler_reserve_full_isl": False,
        },
        SWAP | {"recovery": "adaptive", "victim": "least-computed", "prefill_tokens_per_tick": 1},
    ),
    "older": ({"rule": "vllm-0.17.1", "enable_prefix_caching": True}, {}),
}


@cache
def crowd(name: str) -> Inputs:
    """Eight requests in a pool for three, two of them with the same beginning."""
    engine, policy = CROWDS[name]
    requests = tuple(
        Request(f"r{k}", k // 3, 9 + k, 24 - k, k % 2, None, (1, 2) if k % 3 == 0 else None)
        for k in range(8)
    )
    fairness = {"max_queue_ticks": 10, "max_preemptions": 1}
    tables = {"engine": ENGINE | engine, "policy": policy, "fairness": fairness}
    return Workload(requests, 4), parse_config(tables, "test")


@cache
def derived(name: str) -> tuple[Event, ...]:
    """What the rules give for a crowd."""
    return tuple(derive(*crowd(name)))


def sealed(inputs: Inputs, events: Sequence[Event]) -> Ledger:
    """A ledger of any events, in which everything that can be recomputed fits them."""
    workload, config = inputs
    rows = to_rows(events)
    checks = [{**check, "holds": True} for check in conservation(workload, config, rows)[0]]
    receipt = build_receipt(workload, config, rows, checks)
    return Ledger(workload, config, rows, request_table(workload, rows), receipt)


# Mutations, with the equation that each breaks in this profile.
Mutation = Callable[[Events], tuple[Events, int, str]]
DROPPED = {
    Kind.ARRIVE: names.ORDER,
    Kind.ADMIT: names.ADMISSION,
    Kind.RESUME: names.ADMISSION,
    Kind.PREEMPT: names.VICTIM,
    Kind.SWAPPED_OUT: names.BYTES_OUT,
    Kind.RECOVERED: names.CHARGE,
    Kind.FIRST_TOKEN: names.GENERATED,
    Kind.COMPLETE: names.GENERATED,
    Kind.FLAG_WAIT: names.FLAGS,
    Kind.FLAG_REPEAT: names.FLAGS,
}
MUTATIONS: list[tuple[Mutation, str]] = [
    (erase_output, names.GENERATED),
    (drop_restore_bytes, names.BYTES_IN),
    (duplicate_event, names.VICTIM),
    (false_flag, names.FLAGS),
    (swap_victims, names.VICTIM),
    (change_freed_block, names.COLUMNS["freed_blocks"]),
    (truncate, names.VICTIM),
    *((drop_event(kind), equation) for kind, equation in DROPPED.items()),
]
SWAPS_ONLY = {"drop_restore_bytes", "drop_swapped_out"}
SWAPPING = ("swap", "everything")
CASES = [
    pytest.param(
        name,
        mutation,
        # The first to recover there comes back over the link.
        names.BYTES_IN if name in SWAPPING and equation == names.CHARGE else equation,
        id=f"{name}-{mutation.__name__}",
    )
    for name in CROWDS
    for mutation, equation in MUTATIONS
    if name in SWAPPING or mutation.__name__ not in SWAPS_ONLY
]


@pytest.mark.parametrize(("name", "mutation", "equation"), CASES)
def test_each_mutation_is_caught_with_all_hashes_recomputed(
    name: str, mutation: Mutation, equation: str, tmp_path: Path
) -> None:
    """A mutated ledger whose rows, receipt and hashes fit again is named by equation and seq."""
    events, seq, _ = mutation(list(derived(name)))
    write_ledger(sealed(crowd(name), events), tmp_path / "mutated")
    violations = verify_ledger(read_ledger(tmp_path / "mutated"))
    assert seq == violations[0].seq
    assert equation in {v.equation for v in violations if v.seq == seq}


@pytest.mark.parametrize("was", RECOVERIES)
@pytest.mark.parametrize("becomes", RECOVERIES)
def test_a_relabelled_recovery_is_caught(was: str, becomes: str) -> None:
    """A ledger under another recovery's name fails at the first choice that tells them apart."""
    workload, config = crowd("swap")
    ledger = list(derive(workload, config.with_policy(was, None)))
    violations, _ = walk(workload, config.with_policy(becomes, None), ledger)
    assert (was != becomes) == any(v.equation == names.RECOVERY for v in violations)


@pytest.mark.parametrize("was", VICTIMS)
@pytest.mark.parametrize("becomes", VICTIMS)
def test_a_relabelled_victim_rule_is_caught(was: str, becomes: str) -> None:
    """A ledger under another victim rule's name fails at the first victim that is not its own."""
    workload, config = crowd("swap")
    ledger = list(derive(workload, config.with_policy("recompute", was)))
    violations, _ = walk(workload, config.with_policy("recompute", becomes), ledger)
    assert ([] if was == becomes else [names.VICTIM]) == [v.equation for v in violations]


@pytest.mark.parametrize("becomes", CHECKED)
def test_a_relabelled_release_is_caught(becomes: str) -> None:
    """A ledger under another release's name fails where the releases differ."""
    workload, config = crowd("older")
    other = replace(config, engine=replace(config.engine, rule=becomes, watermark=0.5))
    assert (becomes == "vllm-0.17.1") == ([] == walk(workload, other, derived("older"))[0])


def test_a_cleared_flag_in_the_rows_is_caught_at_its_event() -> None:
    """requests.parquet cannot forget a flag that the events show."""
    ledger = sealed(crowd("sync"), derived("sync"))
    at = position(derived("sync"), lambda e: e.kind == Kind.FLAG_REPEAT)
    rows = ledger.requests.clone()
    rows[derived("sync")[at].request_id, "flagged_repeat"] = False
    (violation,) = verify_ledger(replace(ledger, requests=rows))
    assert (at, names.FLAGS) == (violation.seq, violation.equation)


@pytest.mark.parametrize("name", CROWDS)
def test_a_derived_ledger_verifies(name: str, tmp_path: Path) -> None:
    """What the rules give, written and read back, breaks no equation, and covers every kind."""
    write_ledger(sealed(crowd(name), derived(name)), tmp_path / "ledger")
    assert [] == verify_ledger(read_ledger(tmp_path / "ledger"))
    never = {Kind.CENSORED} | (set() if "swapped_out" in _kinds(name) else {Kind.SWAPPED_OUT})
    assert {kind.name.lower() for kind in Kind if kind not in never} == _kinds(name)


def test_a_ledger_whose_engine_received_requests_in_another_order_verifies_by_that(
    tmp_path: Path,
) -> None:
    """Priority ranks by those times on both sides, and without them the ledger breaks a rule."""
    plain, config = crowd("priority")
    late = tuple(replace(r, engine_arrival_us=9 - k) for k, r in enumerate(plain.requests))
    workload = replace(plain, requests=late)
    events = list(derive(workload, config))
    write_ledger(sealed((workload, config), events), tmp_path / "ledger")
    assert [] == verify_ledger(read_ledger(tmp_path / "ledger"))
    assert [] != walk(plain, config, events)[0]


def _kinds(name: str) -> set[str]:
    return {Kind(e.kind).name.lower() for e in derived(name)}


def test_a_ledger_without_events_is_caught() -> None:
    """The first event is missing, and there is no event to name."""
    ((violation,), _) = walk(*crowd("sync"), [])
    assert (names.ORDER, None) == (violation.equation, violation.seq)
    shown = check_rows(*crowd("sync"), to_rows([]))
    assert [names.COMPLETE] * 8 == [v.equation for v in shown]


def test_an_event_after_the_end_is_caught() -> None:
    """Nothing follows the last completion."""
    events = derived("sync")
    ((violation,), _) = walk(*crowd("sync"), [*events, events[-1]])
    assert (names.COMPLETE, len(events)) == (violation.equation, violation.seq)


def test_progress_hears_how_many_events_are_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """Now and then, and of how many; whoever wants none gives none."""
    monkeypatch.setattr(oracle_walk, "_EVENTS_PER_REPORT", 10)
    ledger = sealed(crowd("sync"), derived("sync"))
    told: list[tuple[int, int]] = []
    assert [] == verify_ledger(ledger, lambda done, total: told.append((done, total)))
    total = len(derived("sync"))
    assert [(done, total) for done in range(0, total, 10)] == told


def test_events_that_are_made_some_at_a_time_are_the_same_events() -> None:
    """In order, across the end of what is made at once, and back."""
    count = 2 * oracle_walk._EVENTS_AT_ONCE + 1
    rows = np.resize(to_rows(derived("sync")), (count, len(COLUMNS)))
    rows[:, 0] = np.arange(count)
    made = oracle_walk.EventsOf(rows)
    assert count == len(made)
    edge = oracle_walk._EVENTS_AT_ONCE
    for place in (0, edge - 1, edge, edge - 1, count - 1, 0):
        assert to_events(rows[place : place + 1])[0] == made[place]


# How much is read.


def claiming(ledger: Ledger, rows: int, path: Path) -> Path:
    """A directory of the ledger in which its first event is said so many times."""
    write_ledger(ledger, path)
    events = path / "events.parquet"
    metadata = pl.read_parquet_metadata(events)
    pairs = ", ".join(f"{k}: {literal(v)}" for k, v in metadata.items() if "ARROW" not in k)
    pl.read_parquet(events).head(1).write_parquet(path / "one.parquet")
    one, form = literal(str(path / "one.parquet")), f"(FORMAT parquet, KV_METADATA {{{pairs}}})"
    copies = f"SELECT e.* FROM range({rows}), read_parquet({one}) AS e"  # noqa: S608 - own names
    duckdb.sql(f"COPY ({copies}) TO {literal(str(events))} {form}")
    return path


def test_a_file_of_countless_equal_events_is_refused_by_name(tmp_path: Path) -> None:
    """A few kilobytes claim a gigabyte; not one row of it is made."""
    ledger = sealed(crowd("sync"), derived("sync"))
    most = most_events(ledger.workload, ledger.config)
    path = claiming(ledger, most + 1, tmp_path / "hostile")
    assert 100_000 > (path / "events.parquet").stat().st_size
    rule = rf"hostile/events\.parquet: must hold at most {most} rows, got {most + 1}"
    with pytest.raises(InputError, match=rule):
        read_ledger(path)


def test_ticks_blocks_and_memory_bound_how_many_events_are_read() -> None:
    """Six for a request, and four for every preemption that could be."""
    workload, config = crowd("sync")
    requests, blocks = 8, sum(r.output_tokens // 4 + 1 for r in workload.requests)
    assert 6 * requests + 4 * (250_000 + 64 * blocks) == most_events(workload, config)
    short = replace(config, limits=replace(config.limits, max_ticks=9))
    assert 6 * requests + 4 * requests * 9 == most_events(workload, short)
    long = Workload(tuple(replace(r, output_tokens=2**30) for r in workload.requests))
    in_memory = 2**31 // (4 * 8 * len(COLUMNS))
    assert 6 * requests + 4 * in_memory == most_events(long, config)
    for name in CROWDS:
        whole = replace(crowd(name)[1], limits=replace(config.limits, max_ticks=_ticks(name)))
        assert len(derived(name)) <= most_events(crowd(name)[0], whole)


def _ticks(name: str) -> int:
    return derived(name)[-1].tick + 1


def test_a_ledger_that_could_not_be_read_back_is_not_written(tmp_path: Path) -> None:
    """It is refused before anything of it is there."""
    ledger = sealed(crowd("sync"), derived("sync"))
    config = ledger.config
    limits, lone = replace(config.limits, max_ticks=1), replace(config.engine, max_num_seqs=1)
    short = replace(ledger, config=replace(config, limits=limits, engine=lone))
    with pytest.raises(InputError, match="must hold at most 52 events to be read back"):
        write_ledger(short, tmp_path / "ledger")
    assert [] == list(tmp_path.iterdir())


# Worked by hand.


def told(requests: Sequence[Request], **engine: Any) -> list[str]:
    """Who was admitted, preempted and completed when: `tick kind request`."""
    config = parse_config({"engine": ENGINE | engine}, "test")
    shown = {Kind.ADMIT: "admit", Kind.RESUME: "resume", Kind.PREEMPT: "preempt"}
    shown |= {Kind.FIRST_TOKEN: "first", Kind.COMPLETE: "complete"}
    events = derive(Workload(tuple(requests)), config)
    return [f"{e.tick} {shown[Kind(e.kind)]} {e.request_id}" for e in events if e.kind in shown]


def test_the_last_running_request_is_preempted_and_returns_first() -> None:
    """Two requests of two blocks meet in three: the second is evicted when the first grows."""
    requests = [Request("a", 0, 4, 5), Request("b", 0, 4, 3)]
    assert [
        "0 admit 0",
        "0 admit 1",
        "0 first 0",
        "0 first 1",
        # Both hold one block of four; each needs a second one for its fifth token.
        "1 preempt 1",
        "4 complete 0",
        "5 resume 1",
        "6 complete 1",
    ] == told(requests, capacity_blocks=2)


def test_an_asynchronous_victim_gets_the_token_that_was_in_flight() -> None:
    """The second request's first token is delivered in the step that preempts it."""
    requests = [Request("a", 0, 4, 5), Request("b", 0, 4, 3)]
    assert [
        "0 admit 0",
        "0 admit 1",
        "1 preempt 1",
        "1 first 0",
        "1 first 1",
        "5 complete 0",
        "6 resume 1",
        "8 complete 1",
    ] == told(requests, capacity_blocks=2, async_scheduling=True)


@pytest.mark.parametrize(("rule", "tick"), [("vllm-0.32.0", 1), ("vllm-0.17.1", 3)])
def test_only_the_older_release_caps_a_prefill_that_is_alone(rule: str, tick: int) -> None:
    """Twelve prompt tokens, at most four at a time, take three steps where the cap holds."""
    lone = [Request("a", 0, 12, 2)]
    assert f"{tick} complete 0" == told(lone, rule=rule, long_prefill_token_threshold=4)[-1]


@pytest.mark.parametrize(("rule", "tick"), [("vllm-0.32.0", 3), ("vllm-0.17.1", 4)])
def test_only_the_older_release_passes_over_who_stands_after_the_requester(
    rule: str, tick: int
) -> None:
    """The victim stood first but had nothing to ask for: its last token was in flight."""
    # 28 tokens take two steps of 24; the other two arrive at the second.
    requests = [Request("v", 0, 28, 1, 9), Request("r", 1, 4, 3), Request("x", 1, 3, 2)]
    engine = {"capacity_blocks": 9, "scheduling_policy": "priority", "async_scheduling": True}
    shown = told(requests, rule=rule, **engine)
    assert ["0 admit 0", "1 admit 1", "1 admit 2", "2 preempt 0"] == shown[:4]
    assert ["2 first 0", "2 complete 0", "2 first 1", "2 first 2"] == shown[4:8]
    assert f"{tick} complete 2" in shown


def test_the_head_of_the_queue_waits_for_the_room_of_its_whole_sequence() -> None:
    """Ten blocks' worth of prompt is not admitted on the strength of its first chunk."""
    requests = [Request("a", 0, 12, 4), Request("b", 0, 40, 1)]
    assert ["0 admit 0", "0 first 0", "3 complete 0", "4 admit 1"] == told(requests)[:4]
    assert ["0 admit 0", "0 admit 1"] == told(requests, scheduler_reserve_full_isl=False)[:2]


def test_a_watermark_keeps_blocks_free_while_somebody_runs() -> None:
    """An admission that would leave fewer than a quarter of thirteen blocks waits."""
    requests = [Request("a", 0, 16, 3), Request("b", 0, 24, 1)]
    assert ["0 admit 0", "0 admit 1"] == told(requests, max_num_batched_tokens=64)[:2]
    kept = told(requests, max_num_batched_tokens=64, watermark=0.25)
    assert ["0 admit 0", "0 first 0", "2 complete 0", "3 admit 1"] == kept[:4]


def test_a_shared_beginning_is_computed_once() -> None:
    """The second request finds the first one's two blocks of four, in the same step."""
    requests = (
        Request("a", 0, 9, 2, prefix_blocks=(7,)),
        Request("b", 0, 10, 2, prefix_blocks=(7,)),
    )
    config = parse_config({"engine": ENGINE | {"enable_prefix_caching": True}}, "test")
    admits = [e for e in derive(Workload(requests, 8), config) if e.kind == Kind.ADMIT]
    assert [(9, 3), (2, 1)] == [(e.work_left_tokens, e.allocated_blocks) for e in admits]
    assert 4 == admits[1].occupied_blocks_after


def test_an_evicted_request_finds_the_blocks_that_nobody_took() -> None:
    """A replay that hits its own blocks counts only the positions it computes again."""
    requests = (Request("a", 0, 4, 9), Request("b", 0, 16, 3))
    engine = ENGINE | {"capacity_blocks": 5, "enable_prefix_caching": True}
    config = parse_config({"engine": engine}, "test")
    events = list(derive(Workload(requests), config))
    (evicted,) = (e for e in events if e.kind == Kind.PREEMPT)
    (back,) = (e for e in events if e.kind == Kind.RESUME)
    (done,) = (e for e in events if e.kind == Kind.RECOVERED)
    assert (1, 16, 4) == (evicted.tick, evicted.recompute_tokens, evicted.freed_blocks)
    hits = back.context_tokens - (back.work_left_tokens or 0)
    assert (8, 8) == (hits, done.recompute_tokens)


# Any inputs.


@st.composite
def engines(draw: st.DrawFn) -> Inputs:
    """Small pools and small budgets: shortages, ties and every option happen often."""
    size, capacity = draw(st.sampled_from([1, 2, 3, 4, 8])), draw(st.integers(3, 20))
    chunk = draw(st.sampled_from([1, 2, 3, 5, 8]))
    requests = []
    for k in range(draw(st.integers(1, 10))):
        tokens = draw(st.integers(2, capacity * size + 1))
        prompt = draw(st.integers(1, tokens - 1))
        chunks = draw(st.lists(st.integers(0, 1), max_size=-(-prompt // chunk)))
        arrival = draw(st.sampled_from([0, 0, 1, 2, 5, 30]))
        priority = draw(st.sampled_from([0, 0, 1, -1]))
        shared = tuple(chunks) or None
        requests.append(Request(f"r{k}", arrival, prompt, tokens - prompt, priority, None, shared))
    rule = draw(st.sampled_from(sorted(CHECKED)))
    engine: dict[str, Any] = {
        "profile": "vllm-v1",
        "rule": rule,
        "tick_us": draw(st.sampled_from([1, 3])),
        "block_size": size,
        "capacity_blocks": capacity,
        "max_num_seqs": draw(st.sampled_from([1, 2, 4, 256])),
        "max_num_batched_tokens": draw(st.sampled_from([1, 2, 3, 8, 64, 256])),
        "max_model_len": capacity * size + 1,
        "scheduling_policy": draw(st.sampled_from(["fcfs", "priority"])),
        "enable_chunked_prefill": draw(st.booleans()),
        "long_prefill_token_threshold": draw(st.sampled_from([0, 0, 1, 3])),
        "enable_prefix_caching": draw(st.booleans()),
        "async_scheduling": draw(st.booleans()),
    }
    if CHECKED[rule].full_isl:
        engine["scheduler_reserve_full_isl"] = draw(st.booleans())
        engine["watermark"] = draw(st.sampled_from([0.0, 0.1, 0.3]))
    policy = {
        "recovery": draw(st.sampled_from(RECOVERIES)),
        "victim": draw(st.sampled_from(VICTIMS)),
        "kv_bytes_per_token": draw(st.sampled_from([1, 3, 512])),
        "prefill_tokens_per_tick": draw(st.sampled_from([1, 2, 16])),
        "transfer_bytes_per_tick": draw(st.sampled_from([1, 7, 64, 8192])),
        "host_capacity_bytes": draw(st.sampled_from([0, 0, 20, 4000])),
    }
    fairness = {
        "max_queue_ticks": draw(st.sampled_from([0, 3, 20])),
        "max_preemptions": draw(st.sampled_from([0, 1])),
    }
    tables = {"engine": engine, "policy": policy, "fairness": fairness}
    tables["limits"] = {"max_ticks": draw(st.sampled_from([40, 200]))}
    timed = draw(timed_tables())
    if timed:
        del engine["tick_us"]
    inputs = Workload(tuple(requests), chunk), parse_config(tables | timed, "test")
    try:
        list(derive(*inputs))
    except Diverged:  # so short that not everybody arrives
        reject()
    return inputs


@settings(max_examples=100)
@given(engines())
def test_passing_over_quiet_steps_changes_nothing(inputs: Inputs) -> None:
    """Walking every single step gives the same events."""

    class Plodding(_Run):
        def pass_over_quiet_steps(self) -> None:
            pass

    every_step = Plodding(Engine(*inputs)).events()
    assert [event for event, _ in every_step] == list(derive(*inputs))


@settings(max_examples=100)
@given(engines())
def test_the_columns_of_a_derived_ledger_break_nothing(inputs: Inputs) -> None:
    """The vectorised checks and the walk agree on what is right."""
    assert [] == check_rows(*inputs, to_rows(list(derive(*inputs))))


@settings(max_examples=100)
@given(engines(), st.data())
def test_any_single_cell_is_implied_by_the_rest(inputs: Inputs, data: st.DataObject) -> None:
    """Changing any one value is a violation there; columns alone show it where they claim to."""
    events = list(derive(*inputs))
    at = data.draw(st.integers(0, len(events) - 1))
    column = data.draw(st.sampled_from(COLUMNS))
    old = getattr(events[at], column)
    values = [0, 1, (old or 0) + 1, (old or 0) - 1, *([] if column in NEVER_NULL else [None])]
    new = data.draw(st.sampled_from([v for v in values if v != old]))
    mutated = changed(events, at, **{column: new})
    assert at in {v.seq for v in walk(*inputs, mutated)[0]}
    covered = coverage(inputs[1])
    equation = names.COLUMNS[column]
    if covered.get(equation) == "complete":
        found = {v.equation for v in check_rows(*inputs, to_rows(mutated))}
        assert equation in found
        assert found <= covered.keys()


@pytest.mark.parametrize("name", CROWDS)
@pytest.mark.parametrize("mutation", [m for m, _ in MUTATIONS], ids=lambda m: m.__name__)
def test_columns_name_only_equations_that_they_cover(name: str, mutation: Mutation) -> None:
    """Whatever the vectorised checks find in a mutated ledger has a record in the receipt."""
    if name not in SWAPPING and mutation.__name__ in SWAPS_ONLY:
        mutation = erase_output
    workload, config = crowd(name)
    rows = to_rows(mutation(list(derived(name)))[0])
    found = {v.equation for v in check_rows(workload, config, rows)}
    records, violations = conservation(workload, config, rows)
    assert found == {v.equation for v in violations}
    assert found == {r["equation"] for r in records if not r["holds"]}


def test_every_reason_occurs_among_the_crowds() -> None:
    """The mutations above were tried on ledgers in which every kind of choice was made."""
    seen = {e.recovery_reason for name in CROWDS for e in derived(name)}
    assert {Reason.INCOMPLETE, Reason.CHEAPER, None} <= seen


@pytest.mark.parametrize("name", CROWDS)
def test_the_columns_show_that_the_end_of_a_replay_is_missing(name: str) -> None:
    """Every one of them, but for ends in flight when their request was preempted again."""
    workload, config = crowd(name)
    events = list(derived(name))
    ends = [at for at, event in enumerate(events) if event.kind == Kind.RECOVERED]
    unseen = [
        at
        for at in ends
        if not check_rows(workload, config, to_rows(renumbered([*events[:at], *events[at + 1 :]])))
    ]
    assert ends
    assert not unseen or config.engine.async_scheduling
