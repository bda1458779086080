"""Timed replays: steps take as long as `[timing]` says, and decide as constant ticks do."""

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from test_vllm_v1 import ENGINE, ROOT, contracts

from replay.config import Config, parse_config, read_config
from replay.errors import InputError, Unfinished
from replay.events import COLUMN, Kind, to_events
from replay.ledger import read_ledger, write_ledger
from replay.oracle.verify import verify_ledger
from replay.run import replay
from replay.workload import Request, Workload

TIMING = {
    "step_ns": 2_000_000,
    "prefill_token_ps": 100_000_000,
    "decode_request_ps": 500_000_000,
    "kv_token_ps": 10_000_000,
}
CALIBRATION: dict[str, Any] = {
    "run_id": "base-1",
    "source": "steps",
    "steps": 9,
    "prefill_tokens": 14,
    "decode_requests": 2,
    "kv_tokens": 15,
    "slowdown_permille": 1_200,
    "interval_95": {"step_ns": [1, 3_000_000]},
    "residual_us": {"p50": -3, "p95": 40},
    "conditions": {"engine.version": "0.32.0", "cache.block_size": 4, "watermark": 0.5},
}
PAIR = Workload((Request("A", 1_000, 8, 5), Request("B", 3_500, 7, 4)))


def timed(tables: dict[str, Any] | None = None, **engine: Any) -> Config:
    """The worked example's engine, timed."""
    return parse_config({"engine": ENGINE | engine, "timing": TIMING} | (tables or {}), "test")


def test_the_timed_steps_by_hand_happen_as_the_document_says() -> None:
    """docs/vllm-v1.md's worked example of timed steps: every event with its step and time."""
    text = (ROOT / "docs" / "vllm-v1.md").read_text(encoding="utf-8")
    lines = text[text.index("### Timed steps by hand") :].splitlines()
    cells = [[c.strip() for c in line.split("|")[1:5]] for line in lines if line.startswith("| ")]
    documented = [(int(step), kind, who, int(time)) for step, kind, who, time in cells[1:]]
    ledger = replay(PAIR, timed())
    found = [
        (e.tick, Kind(e.kind).name.lower(), "AB"[e.request_id], e.time_us)
        for e in to_events(ledger.events)
    ]
    assert documented == found


def test_a_request_s_times_are_those_of_its_events() -> None:
    """From its arrival to the first token, the first admission and the end; TPOT as measured."""
    table = replay(PAIR, timed()).requests
    times = table.select("^modelled_(ttft|tpot|queue|e2e)_us$").rows()
    assert [(2_880, 2_943, 0, 14_650), (3_740, 4_667, 380, 17_740)] == times


@given(contracts())
@settings(max_examples=150)
def test_a_timed_replay_decides_as_constant_ticks_from_its_own_arrival_steps(
    contract: tuple[Workload, Config],
) -> None:
    """Given in which steps requests arrive, durations change times and nothing else."""
    workload, chosen = contract
    if chosen.timing is None:
        return
    try:
        ledger = replay(workload, chosen, keep_censored=True)
    except Unfinished:
        return
    ticks = ledger.requests["arrival_tick"].to_list()
    rows = zip(workload.requests, ticks, strict=True)
    stepped = replace(workload, requests=tuple(replace(r, arrival_us=t) for r, t in rows))
    engine = replace(chosen.engine, tick_us=1)
    constant = replace(chosen, engine=engine, timing=None, calibration=None)
    again = replay(stepped, constant, keep_censored=True)
    times = COLUMN["time_us"]
    same = [k for k in range(len(COLUMN)) if k != times]
    assert again.events[:, same].tolist() == ledger.events[:, same].tolist()


def test_steps_of_one_length_are_constant_ticks() -> None:
    """Constant ticks are the special case of durations that depend on nothing."""
    workload = Workload(tuple(Request(f"{k}", 5_000 * k, 9, 7) for k in range(6)))
    ticking = parse_config({"engine": ENGINE | {"tick_us": 5_000}}, "test")
    steady = parse_config({"engine": ENGINE, "timing": {"step_ns": 5_000_000}}, "test")
    kinds = (Kind.ADMIT, Kind.PREEMPT, Kind.RESUME)
    ticks, times = (
        [(e.tick, e.kind, e.request_id, e.time_us) for e in to_events(replay(workload, c).events)]
        for c in (ticking, steady)
    )
    assert [e[:3] for e in ticks] == [e[:3] for e in times]
    assert [e for e in ticks if e[1] in kinds] == [e for e in times if e[1] in kinds]


def test_an_asynchronous_step_lasts_as_long_as_the_batch_it_delivers() -> None:
    """The first token of a lone request comes when its prefill has run, not a step later."""
    (lone,) = (Workload((Request("A", 0, 8, 3),)),)
    both = [replay(lone, timed(async_scheduling=a)).requests for a in (False, True)]
    first, second = (t["modelled_ttft_us"].item() for t in both)
    assert first == second == 2_000 + 8 * 100 + 8 * 10
    assert both[0]["modelled_e2e_us"].item() == both[1]["modelled_e2e_us"].item()
    assert both[0]["first_token_tick"].item() + 1 == both[1]["first_token_tick"].item()


def test_a_receipt_says_where_and_how_often_a_replay_left_the_fitted_range() -> None:
    """Steps beyond the calibration's greatest batch are counted by what they exceeded."""
    ledger = replay(PAIR, timed({"calibration": CALIBRATION}))
    timing = ledger.receipt["timing"]
    assert TIMING == timing["rates"]
    assert CALIBRATION == timing["calibration"] | {
        "interval_95": {k: list(v) for k, v in timing["calibration"]["interval_95"].items()}
    }
    steps = timing["steps"]
    assert steps["greatest"]["kv_tokens"] > CALIBRATION["kv_tokens"]
    assert 0 < steps["beyond"]["kv_tokens"] == steps["outside"] < steps["steps"]
    assert 0 == steps["beyond"]["decode_requests"]
    unbounded = replay(PAIR, timed()).receipt["timing"]
    assert (None, 0) == (unbounded["calibration"], unbounded["steps"]["outside"])


def test_a_timed_ledger_reads_back_and_verifies(tmp_path: Path) -> None:
    """Its configuration, calibration and times survive the files; a changed time is found."""
    config = timed({"calibration": CALIBRATION})
    write_ledger(replay(PAIR, config), tmp_path / "l")
    ledger = read_ledger(tmp_path / "l")
    assert config == ledger.config == read_config(tmp_path / "l" / "config.toml")
    assert [] == verify_ledger(ledger)
    steps = ledger.receipt["timing"]["steps"]
    ledger.receipt["timing"]["steps"] = steps | {"outside": 0}
    assert ["the receipt says what the ledger says"] == [
        v.equation for v in verify_ledger(ledger) if not v.equation.startswith("hash")
    ]
    ledger.receipt["timing"]["steps"] = steps
    ledger.events[-1, COLUMN["time_us"]] += 1
    assert any(v.seq == len(ledger.events) - 1 for v in verify_ledger(ledger))


def test_conditions_hold_whatever_text_a_manifest_may() -> None:
    """A model's path is longer than a name; control characters are refused wherever they stand."""
    path = "/models/" + "m" * 300
    conditions = {"model.name": path, "device.name": ""}
    config = timed({"calibration": CALIBRATION | {"conditions": conditions}})
    assert config == parse_config(tomllib.loads(config.toml()), "again")
    assert config.calibration is not None
    assert conditions == config.calibration.conditions
    for bad in (path + "\x1b[31m", "m" * 4097):
        with pytest.raises(InputError, match=r"conditions\.model\.name must"):
            timed({"calibration": CALIBRATION | {"conditions": {"model.name": bad}}})


def test_a_calibration_is_in_no_hash_of_the_inputs() -> None:
    """Where durations come from changes no event, so the same inputs stay the same."""
    with_it, without = timed({"calibration": CALIBRATION}), timed()
    assert with_it.input_sha256("0") == without.input_sha256("0")


@pytest.mark.parametrize(
    ("tables", "said"),
    [
        ({"timing": {"step_ns": 0}}, "must not be all zero"),
        ({"timing": {"step_ns": -1}}, "timing.step_ns must be >= 0"),
        ({"timing": {"step_ms": 1}}, "did you mean step_ns"),
        ({"timing": TIMING | {"kv_token_ps": 2**40}}, "max_ticks x the longest step"),
        ({"calibration": {}}, "calibration.run_id is required"),
        ({"calibration": CALIBRATION | {"source": "guess"}}, "calibration.source"),
        ({"calibration": CALIBRATION | {"steps": 1.5}}, "calibration.steps"),
        ({"calibration": CALIBRATION | {"conditions": {"x": []}}}, "calibration.conditions"),
        ({"calibration": CALIBRATION | {"interval_95": {"step_ns": [1]}}}, "interval_95.step_ns"),
        (
            {"calibration": CALIBRATION | {"residual_us": {"p50": "x"}}},
            "residual_us.p50 must be an",
        ),
        ({"calibration": CALIBRATION | {"residual_us": {'p"5 0': 1}}}, "residual_us: unknown key"),
        ({"calibration": CALIBRATION | {"conditions": {"a.b": float("nan")}}}, "a.b must be a str"),
        ({"calibration": CALIBRATION | {"conditions": {"a.b": float("-inf")}}}, "got -Infinity"),
    ],
)
def test_a_bad_timing_is_refused_by_its_key(tables: dict[str, Any], said: str) -> None:
    """Table, key and rule are named."""
    with pytest.raises(InputError, match=said):
        timed(tables)


def test_a_calibration_alone_is_refused() -> None:
    """It says what durations rest on; without them it says nothing."""
    with pytest.raises(InputError, match="beside the"):
        parse_config({"engine": ENGINE, "calibration": CALIBRATION}, "test")


def test_arrivals_that_leave_no_time_for_the_steps_are_refused() -> None:
    """Every time stays within 2^53 - 1 microseconds, so none is rounded by a reader."""
    late = Workload((Request("A", 2**53 - 1, 8, 5),))
    with pytest.raises(InputError, match="arrival_us must be at most"):
        replay(late, timed())


def test_steps_that_end_before_everybody_arrives_say_so() -> None:
    """Nothing can be kept of a request that no step ever saw."""
    late = Workload((Request("A", 0, 8, 60), Request("B", 10**9, 7, 4)))
    short = timed({"limits": {"max_ticks": 20}}, capacity_blocks=64, max_model_len=128)
    with pytest.raises(Unfinished, match="1 of them had not arrived"):
        replay(late, short, keep_censored=True)
