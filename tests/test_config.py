"""Every key of a configuration has its default, its range and its place in `input_sha256`."""

import copy
import hashlib
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay.config import Config, Limits, Timing, parse_config, read_config
from replay.errors import InputError
from replay.victims import DESCRIPTIONS, VICTIMS

SAFE = 2**53 - 1
WORKLOAD = "0" * 64
LAB: dict[str, Any] = {"engine": {"profile": "lab", "capacity_blocks": 12}}
VLLM: dict[str, Any] = {
    "engine": {
        "profile": "vllm-v1",
        "rule": "vllm-0.32.0",
        "capacity_blocks": 12,
        "max_num_batched_tokens": 8192,
        "max_model_len": 16384,
    }
}
PROFILES = {"lab": LAB, "vllm-v1": VLLM}
# Table, key, least value accepted.
COMMON_INTEGERS = [
    ("engine", "tick_us", 1),
    ("engine", "block_size", 1),
    ("engine", "capacity_blocks", 1),
    ("engine", "max_num_seqs", 1),
    ("policy", "kv_bytes_per_token", 1),
    ("policy", "prefill_tokens_per_tick", 1),
    ("policy", "transfer_bytes_per_tick", 1),
    ("policy", "host_capacity_bytes", 0),
    ("fairness", "max_queue_ticks", 0),
    ("fairness", "max_preemptions", 0),
    ("limits", "max_requests", 1),
    ("limits", "max_ticks", 1),
]
VLLM_INTEGERS = [
    ("engine", "max_num_batched_tokens", 1),
    ("engine", "max_model_len", 1),
    ("engine", "long_prefill_token_threshold", 0),
]
TIMING_KEYS = ("step_ns", "prefill_token_ps", "decode_request_ps", "kv_token_ps")
FLAGS = (
    "enable_chunked_prefill",
    "scheduler_reserve_full_isl",
    "enable_prefix_caching",
    "async_scheduling",
)
INTEGERS = [("lab", *row) for row in COMMON_INTEGERS] + [
    ("vllm-v1", *row) for row in COMMON_INTEGERS + VLLM_INTEGERS
]
INTEGER_KEYS = [row[:3] for row in INTEGERS]


def changed(tables: dict[str, Any], table: str, **keys: Any) -> dict[str, Any]:
    """The tables with keys of one table set."""
    found = copy.deepcopy(tables)
    found.setdefault(table, {}).update(keys)
    return found


def parse(tables: dict[str, Any]) -> Config:
    """Parse tables as if they came from a file."""
    return parse_config(tables, "c.toml")


def refusal(tables: dict[str, Any]) -> str:
    """The message that refuses the tables."""
    with pytest.raises(InputError) as caught:
        parse(tables)
    return str(caught.value)


@st.composite
def valid_tables(draw: st.DrawFn) -> dict[str, Any]:
    """Tables that every rule allows, each key left out half of the time."""
    name = draw(st.sampled_from(list(PROFILES)))
    rows = COMMON_INTEGERS + (VLLM_INTEGERS if name == "vllm-v1" else [])
    tables = copy.deepcopy(PROFILES[name])
    most = {"max_requests": 64, "max_ticks": 20000} if name == "lab" else {}
    for table, key, least in rows:
        if draw(st.booleans()):
            value = draw(st.integers(least, most.get(key, 5000)))
            tables.setdefault(table, {})[key] = value
    if draw(st.booleans()):
        tables.setdefault("policy", {})["recovery"] = draw(
            st.sampled_from(["recompute", "swap", "adaptive"])
        )
    if name == "lab":
        return tables
    engine = tables["engine"]
    tables.setdefault("policy", {})["victim"] = draw(st.sampled_from(VICTIMS))
    engine["scheduling_policy"] = draw(st.sampled_from(["fcfs", "priority"]))
    engine.update({flag: draw(st.booleans()) for flag in FLAGS if draw(st.booleans())})
    if draw(st.booleans()):
        engine["rule"] = "vllm-0.17.1"
        engine.pop("scheduler_reserve_full_isl", None)
    else:
        engine["watermark"] = draw(st.floats(0, 1, exclude_max=True) | st.just(0))
    if draw(st.booleans()):
        engine.pop("tick_us", None)
        kept = draw(st.lists(st.sampled_from(TIMING_KEYS), min_size=1, unique=True))
        # 10^9 ticks of the largest batch these tables allow stay within 2^53 microseconds.
        tables["timing"] = {key: draw(st.integers(1, 10**5)) for key in kept}
    return tables


# Defaults


def test_two_keys_are_enough_for_the_lab() -> None:
    """Every other key has the contract's default."""
    expected = {
        "engine": {
            "profile": "lab",
            "rule": "lab-1",
            "tick_us": 1,
            "block_size": 8,
            "capacity_blocks": 12,
            "max_num_seqs": 256,
        },
        "policy": {
            "recovery": "recompute",
            "victim": "rule",
            "kv_bytes_per_token": 512,
            "prefill_tokens_per_tick": 16,
            "transfer_bytes_per_tick": 8192,
            "host_capacity_bytes": 0,
        },
        "fairness": {"max_queue_ticks": 200, "max_preemptions": 2},
        "limits": {"max_requests": 64, "max_ticks": 20000},
    }
    assert expected == parse(LAB).tables()


def test_vllm_reads_its_own_keys_with_that_release_s_defaults() -> None:
    """`tables` has every key the profile reads, timing as null."""
    expected = {
        "engine": {
            "profile": "vllm-v1",
            "rule": "vllm-0.32.0",
            "tick_us": 1,
            "block_size": 8,
            "capacity_blocks": 12,
            "max_num_seqs": 256,
            "max_num_batched_tokens": 8192,
            "max_model_len": 16384,
            "scheduling_policy": "fcfs",
            "enable_chunked_prefill": True,
            "scheduler_reserve_full_isl": True,
            "watermark": 0.0,
            "long_prefill_token_threshold": 0,
            "enable_prefix_caching": True,
            "async_scheduling": True,
        },
        "policy": parse(LAB).tables()["policy"],
        "fairness": {"max_queue_ticks": 200, "max_preemptions": 2},
        "limits": {"max_requests": 10_000_000, "max_ticks": 1_000_000_000},
        "timing": None,
    }
    assert expected == parse(VLLM).tables()


@pytest.mark.parametrize(
    ("name", "key"),
    [("lab", "profile"), ("lab", "capacity_blocks")] + [("vllm-v1", key) for key in VLLM["engine"]],
)
def test_a_required_key_cannot_be_left_out(name: str, key: str) -> None:
    """The message names it."""
    tables = copy.deepcopy(PROFILES[name])
    del tables["engine"][key]
    assert f"c.toml: engine.{key} is required" in refusal(tables)


def test_an_empty_configuration_asks_for_the_profile() -> None:
    """The first missing key is named, not a Python error."""
    assert "c.toml: engine.profile is required, got nothing" == refusal({})


# Ranges and types


@pytest.mark.parametrize(("name", "table", "key", "least"), INTEGERS)
def test_an_integer_begins_at_its_least_value(name: str, table: str, key: str, least: int) -> None:
    """The least value is accepted, one less is refused by table, key and rule."""
    assert least == parse(changed(PROFILES[name], table, **{key: least})).tables()[table][key]
    expected = f"c.toml: {table}.{key} must be >= {least}, got {least - 1}"
    assert expected == refusal(changed(PROFILES[name], table, **{key: least - 1}))


@pytest.mark.parametrize(("name", "table", "key"), INTEGER_KEYS)
@pytest.mark.parametrize(
    ("value", "found"),
    [
        (True, "true"),
        (1.0, "1.0"),
        ("3", "a string of 1 code point"),
        (float("nan"), "NaN"),
        (float("inf"), "Infinity"),
        ([1], "a list of 1"),
    ],
    ids=["true", "1.0", "text", "nan", "inf", "list"],
)
def test_an_integer_is_nothing_else(
    name: str, table: str, key: str, value: Any, found: str
) -> None:
    """Booleans, floats and strings are refused as what they are."""
    expected = f"c.toml: {table}.{key} must be an integer, got {found}"
    assert expected == refusal(changed(PROFILES[name], table, **{key: value}))


@pytest.mark.parametrize(("name", "table", "key"), INTEGER_KEYS)
@pytest.mark.parametrize("value", [2**53, -(2**53), 10**40], ids=["2^53", "-2^53", "10^40"])
def test_an_integer_is_a_safe_one(name: str, table: str, key: str, value: int) -> None:
    """What a double cannot hold exactly is refused as unsafe, whatever its sign."""
    expected = f"c.toml: {table}.{key} must be within ±(2^53 - 1)"
    assert refusal(changed(PROFILES[name], table, **{key: value})).startswith(expected)


@pytest.mark.parametrize("flag", FLAGS)
def test_a_flag_is_true_or_false(flag: str) -> None:
    """1 and "true" are neither."""
    for value in (True, False):
        found = parse(changed(VLLM, "engine", **{flag: value})).tables()["engine"][flag]
        assert value is found
    for other in (1, 0, "true", None):
        expected = f"c.toml: engine.{flag} must be true or false"
        assert refusal(changed(VLLM, "engine", **{flag: other})).startswith(expected)


@pytest.mark.parametrize("value", [0, 0.0, -0.0, 1e-7, 0.999])
def test_a_watermark_is_a_fraction(value: float) -> None:
    """Zero is zero however it is written."""
    config = parse(changed(VLLM, "engine", watermark=value))
    assert value == config.tables()["engine"]["watermark"]
    if value == 0:
        assert parse(VLLM).input_sha256(WORKLOAD) == config.input_sha256(WORKLOAD)


@pytest.mark.parametrize("value", [1, 1.0, -1e-9, float("nan"), float("inf"), True, "0.1", None])
def test_a_watermark_is_below_one_and_finite(value: Any) -> None:
    """A pool that must stay all free admits nothing."""
    assert "engine.watermark must be a fraction" in refusal(
        changed(VLLM, "engine", watermark=value)
    )


@pytest.mark.parametrize(
    ("name", "rule"),
    [
        ("lab", "lab-2"),
        ("lab", "vllm-0.32.0"),
        ("vllm-v1", "lab-1"),
        ("vllm-v1", "vllm-0.32"),
        ("vllm-v1", "vllm-0.32.0\n"),
        ("vllm-v1", "vllm-0.32.0rc1"),
        ("vllm-v1", "0.32.0"),
        ("vllm-v1", "vllm-0.0." + "9" * 5000),
    ],
)
def test_a_rule_has_the_form_of_its_profile(name: str, rule: str) -> None:
    """A rule names one release exactly."""
    message = refusal(changed(PROFILES[name], "engine", rule=rule))
    assert "c.toml: engine.rule must be of the form" in message
    assert f"got a string of {len(rule)} code points" in message


@pytest.mark.parametrize(
    ("table", "key", "options"),
    [
        ("engine", "profile", "lab, vllm-v1"),
        ("engine", "scheduling_policy", "fcfs, priority"),
        ("policy", "recovery", "recompute, swap, adaptive"),
        ("policy", "victim", "rule, least-computed, most-freed-per-lost-token"),
    ],
)
@pytest.mark.parametrize("value", ["other", "", 1, True, ["rule"], None])
def test_a_choice_is_one_of_its_options(table: str, key: str, options: str, value: Any) -> None:
    """The options are named, the value only by its kind."""
    message = refusal(changed(VLLM, table, **{key: value}))
    assert f"c.toml: {table}.{key} must be one of {options}" in message


@pytest.mark.parametrize("victim", VICTIMS)
def test_every_victim_rule_has_its_sentence_and_the_lab_only_its_own(victim: str) -> None:
    """The lab refuses the others by name: they are vLLM's what-ifs."""
    assert DESCRIPTIONS[victim].endswith(".")
    assert victim == parse(changed(VLLM, "policy", victim=victim)).policy.victim
    if victim == "rule":
        assert victim == parse(changed(LAB, "policy", victim=victim)).policy.victim
    else:
        expected = f"c.toml: policy.victim {victim} belongs to profile vllm-v1, not lab"
        assert expected == refusal(changed(LAB, "policy", victim=victim))


@pytest.mark.parametrize("table", ["engine", "policy", "fairness", "limits", "timing"])
@pytest.mark.parametrize("value", [3, "lab", [{}], True])
def test_a_table_is_a_table(table: str, value: Any) -> None:
    """`[[policy]]` and `policy = 3` are refused by name."""
    assert f"c.toml: {table} must be a table" in refusal(VLLM | {table: value})


# Unknown keys


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        (LAB | {"engin": {}}, "c.toml: unknown key engin; did you mean engine?"),
        (LAB | {"zzz": 1}, "c.toml: unknown key zzz; known: engine, policy, fairness, limits"),
        (
            changed(LAB, "engine", capacity_block=1),
            "c.toml: engine: unknown key capacity_block; did you mean capacity_blocks?",
        ),
        (
            changed(LAB, "policy", recover="swap"),
            "c.toml: policy: unknown key recover; did you mean recovery?",
        ),
        (
            changed(LAB, "fairness", max_preemption=1),
            "c.toml: fairness: unknown key max_preemption; did you mean max_preemptions?",
        ),
        (
            changed(LAB, "limits", max_tick=1),
            "c.toml: limits: unknown key max_tick; did you mean max_ticks?",
        ),
        (
            changed(VLLM, "timing", step_us=1),
            "c.toml: timing: unknown key step_us; did you mean step_ns?",
        ),
    ],
    ids=["table", "strange table", "engine", "policy", "fairness", "limits", "timing"],
)
def test_an_unknown_key_is_named_with_the_nearest_known_one(
    tables: dict[str, Any], message: str
) -> None:
    """A typing error costs one look."""
    assert refusal(tables).startswith(message)


@pytest.mark.parametrize(
    "key",
    [key for _, key, _ in VLLM_INTEGERS] + [*FLAGS, "scheduling_policy", "watermark"],
)
def test_a_key_of_the_other_profile_is_refused_as_such(key: str) -> None:
    """The lab has no batch, no prefix cache and no watermark."""
    expected = f"c.toml: engine.{key} belongs to profile vllm-v1, not lab"
    assert refusal(changed(LAB, "engine", **{key: 1})).startswith(expected)


# Limits, products, timing


@pytest.mark.parametrize(("key", "most"), [("max_requests", 64), ("max_ticks", 20000)])
def test_the_lab_s_limits_can_only_be_lowered(key: str, most: int) -> None:
    """The profile's limit itself is accepted."""
    assert most == getattr(parse(changed(LAB, "limits", **{key: most})).limits, key)
    assert 7 == getattr(parse(changed(LAB, "limits", **{key: 7})).limits, key)
    expected = f"c.toml: limits.{key} must be <= {most} in this profile, got {most + 1}"
    assert expected == refusal(changed(LAB, "limits", **{key: most + 1}))


def test_vllm_s_limits_can_be_raised() -> None:
    """They are defaults, not maxima."""
    found = parse(VLLM | {"limits": {"max_requests": 10**8, "max_ticks": 10**12}}).limits
    assert Limits(10**8, 10**12) == found


@pytest.mark.parametrize("name", PROFILES)
def test_the_pool_in_bytes_is_a_safe_integer(name: str) -> None:
    """2^53 - 1 bytes are accepted, twice as many are refused by the three keys."""
    tables = changed(PROFILES[name], "engine", capacity_blocks=SAFE, block_size=1)
    assert SAFE == parse(changed(tables, "policy", kv_bytes_per_token=1)).engine.capacity_blocks
    message = refusal(changed(tables, "policy", kv_bytes_per_token=2))
    assert "capacity_blocks x block_size x kv_bytes_per_token must be within 2^53 - 1" in message
    assert f"got {2 * SAFE}" in message


@pytest.mark.parametrize("name", PROFILES)
def test_the_last_tick_in_microseconds_is_a_safe_integer(name: str) -> None:
    """The largest tick that fits is accepted, the next one is refused."""
    tables = changed(PROFILES[name], "limits", max_ticks=20000)
    most = SAFE // 20000
    assert most == parse(changed(tables, "engine", tick_us=most)).engine.tick_us
    message = refusal(changed(tables, "engine", tick_us=most + 1))
    assert "max_ticks x tick_us must be within 2^53 - 1" in message
    assert f"got {20000 * (most + 1)}" in message


def test_timing_belongs_to_vllm() -> None:
    """The lab has constant ticks, even when the table is empty."""
    expected = "c.toml: timing belongs to profile vllm-v1, not lab"
    assert refusal(LAB | {"timing": {}}).startswith(expected)
    assert refusal(LAB | {"timing": {"step_ns": 1}}).startswith(expected)


@pytest.mark.parametrize("timing", [{}, {"step_ns": 0}, dict.fromkeys(TIMING_KEYS, 0)])
def test_timing_is_not_all_zero(timing: dict[str, int]) -> None:
    """Steps without any duration would never reach the next arrival."""
    assert "c.toml: timing must not be all zero" in refusal(VLLM | {"timing": timing})


@pytest.mark.parametrize("key", TIMING_KEYS)
def test_each_rate_of_timing_is_enough_alone(key: str) -> None:
    """The other three stay zero, and below zero is refused."""
    assert replace(Timing(), **{key: 5}) == parse(VLLM | {"timing": {key: 5}}).timing
    expected = f"c.toml: timing.{key} must be >= 0, got -1"
    assert expected == refusal(VLLM | {"timing": {key: -1}})


def test_timing_and_tick_us_exclude_each_other() -> None:
    """Even the default tick has to be left out, and then appears nowhere."""
    tables = VLLM | {"timing": {"step_ns": 5}}
    message = refusal(changed(tables, "engine", tick_us=1))
    assert "c.toml: engine.tick_us must be left out when [timing] is given" in message
    config = parse(tables)
    assert config.engine.tick_us is None
    assert "tick_us" not in config.tables()["engine"]
    assert {"step_ns": 5} | dict.fromkeys(TIMING_KEYS[1:], 0) == config.tables()["timing"]


# Round trip and hash


@settings(max_examples=150)
@given(tables=valid_tables())
def test_the_written_file_reads_back_equal(tables: dict[str, Any]) -> None:
    """With every default in it, and the same hash."""
    config = parse(tables)
    found = parse(tomllib.loads(config.toml()))
    assert config == found
    assert config.tables() == found.tables()
    assert config.input_sha256(WORKLOAD) == found.input_sha256(WORKLOAD)


def test_a_file_may_have_comments_and_windows_line_ends(tmp_path: Path) -> None:
    """Layout is no content."""
    (tmp_path / "c.toml").write_bytes(
        b'# any\r\nengine.profile = "lab"\r\nengine.capacity_blocks = 0x0C # 12\r\n'
    )
    assert parse(LAB) == read_config(tmp_path / "c.toml")


LAB_TEXT = (
    '{"config":{"engine":{"block_size":8,"capacity_blocks":12,"max_num_seqs":256,"profile":"lab",'
    '"rule":"lab-1","tick_us":1},"fairness":{"max_preemptions":2,"max_queue_ticks":200},'
    '"limits":{"max_requests":64,"max_ticks":20000},"policy":{"host_capacity_bytes":0,'
    '"kv_bytes_per_token":512,"prefill_tokens_per_tick":16,"transfer_bytes_per_tick":8192}},'
    '"workload_sha256":"0000000000000000000000000000000000000000000000000000000000000000"}'
)
VLLM_TEXT = (
    '{"config":{"engine":{"async_scheduling":true,"block_size":8,"capacity_blocks":12,'
    '"enable_chunked_prefill":true,"enable_prefix_caching":true,"long_prefill_token_threshold":0,'
    '"max_model_len":16384,"max_num_batched_tokens":8192,"max_num_seqs":256,"profile":"vllm-v1",'
    '"rule":"vllm-0.32.0","scheduler_reserve_full_isl":true,"scheduling_policy":"fcfs",'
    '"tick_us":1,"watermark":0},"fairness":{"max_preemptions":2,"max_queue_ticks":200},'
    '"limits":{"max_requests":10000000,"max_ticks":1000000000},"policy":{"host_capacity_bytes":0,'
    '"kv_bytes_per_token":512,"prefill_tokens_per_tick":16,"transfer_bytes_per_tick":8192},'
    '"timing":null},'
    '"workload_sha256":"0000000000000000000000000000000000000000000000000000000000000000"}'
)


@pytest.mark.parametrize(
    ("tables", "text"), [(LAB, LAB_TEXT), (VLLM, VLLM_TEXT)], ids=list(PROFILES)
)
def test_the_hash_is_the_one_of_the_text_written_by_hand(tables: dict[str, Any], text: str) -> None:
    """Nested tables, keys sorted, 0.0 as 0, no timing as null, no newline."""
    expected = hashlib.sha256(text.encode()).hexdigest()
    assert expected == parse(tables).input_sha256(WORKLOAD)


@pytest.mark.parametrize("recovery", ["recompute", "swap", "adaptive"])
@pytest.mark.parametrize(
    ("name", "victim"), [("lab", "rule"), *(("vllm-v1", victim) for victim in VICTIMS)]
)
def test_the_policy_that_is_chosen_is_not_in_the_hash(
    name: str, victim: str, recovery: str
) -> None:
    """The same inputs under another policy share their hash, from a file or from options."""
    tables = changed(PROFILES[name], "policy", recovery=recovery, victim=victim)
    expected = parse(PROFILES[name]).input_sha256(WORKLOAD)
    assert expected == parse(tables).input_sha256(WORKLOAD)
    chosen = parse(PROFILES[name]).with_policy(recovery, victim)
    assert chosen == parse(tables)
    assert expected == chosen.input_sha256(WORKLOAD)


@pytest.mark.parametrize(
    ("name", "table", "key", "value"),
    [(*row, 5) for row in INTEGER_KEYS]
    + [("vllm-v1", "engine", flag, False) for flag in FLAGS]
    + [
        ("vllm-v1", "engine", "scheduling_policy", "priority"),
        ("vllm-v1", "engine", "watermark", 0.5),
    ]
    + [("vllm-v1", "timing", key, 5) for key in TIMING_KEYS],
)
def test_every_other_key_is_in_the_hash(name: str, table: str, key: str, value: Any) -> None:
    """One changed key is another input."""
    found = parse(changed(PROFILES[name], table, **{key: value}))
    assert parse(PROFILES[name]).input_sha256(WORKLOAD) != found.input_sha256(WORKLOAD)


def test_the_rule_is_in_the_hash() -> None:
    """Two releases are two inputs, even where every option is the same."""
    same = {"scheduler_reserve_full_isl": False}
    found = {
        parse(changed(VLLM, "engine", rule=rule, **same)).input_sha256(WORKLOAD)
        for rule in ("vllm-0.17.1", "vllm-0.32.0")
    }
    assert 2 == len(found)


def test_each_rate_of_timing_is_in_the_hash_by_name() -> None:
    """Four different single rates of the same size are four inputs."""
    found = {parse(VLLM | {"timing": {key: 5}}).input_sha256(WORKLOAD) for key in TIMING_KEYS}
    assert 4 == len(found)


def test_the_workload_is_in_the_hash() -> None:
    """Another workload under the same configuration is another input."""
    assert parse(LAB).input_sha256(WORKLOAD) != parse(LAB).input_sha256("1" * 64)


def test_a_default_written_out_changes_nothing() -> None:
    """Leaving a key out and writing its default are the same input."""
    expected, full = parse(LAB).input_sha256(WORKLOAD), parse(LAB).tables()
    assert expected == parse(full).input_sha256(WORKLOAD)


# Options in place of keys


def test_options_choose_another_policy_and_none_keeps_it() -> None:
    """Only the choice changes."""
    config = parse(changed(LAB, "policy", recovery="swap", kv_bytes_per_token=7))
    assert config == config.with_policy(None, None)
    expected = replace(config, policy=replace(config.policy, recovery="adaptive"))
    assert expected == config.with_policy("adaptive", None)


@pytest.mark.parametrize(
    ("recovery", "victim", "message"),
    [
        ("other", None, "options: policy.recovery must be one of recompute, swap, adaptive"),
        (None, "other", "options: policy.victim must be one of rule"),
        (None, "least-computed", "options: policy.victim least-computed belongs to profile vllm"),
    ],
)
def test_options_follow_the_rules_of_the_file(
    recovery: str | None, victim: str | None, message: str
) -> None:
    """An unknown name is refused in the same words."""
    with pytest.raises(InputError) as caught:
        parse(LAB).with_policy(recovery, victim)
    assert message in str(caught.value)
