"""Rules are named after checked releases; others are refused, or assumed to be like one of them."""

import copy
import tomllib
import warnings
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from replay.config import Config, parse_config, read_config
from replay.errors import InputError
from replay.rules import CHECKED, FACTS_DUE, FactsOverdue, overdue, release_of, rule_of

ENGINE: dict[str, Any] = {
    "profile": "vllm-v1",
    "capacity_blocks": 12,
    "max_num_batched_tokens": 8192,
    "max_model_len": 16384,
}


def config(rule: str, *, assume: bool = False, **engine: Any) -> Config:
    """A configuration of this rule with the keys it needs, and others."""
    tables = {"engine": copy.deepcopy(ENGINE) | {"rule": rule} | engine}
    return parse_config(tables, "c.toml", assume=assume)


def refusal(rule: str, *, assume: bool = False, **engine: Any) -> str:
    """The message that refuses it."""
    with pytest.raises(InputError) as caught:
        config(rule, assume=assume, **engine)
    return str(caught.value)


# Facts grow old


def test_facts_are_due_after_their_day() -> None:
    """Not on the day itself, and what is to be done is said."""
    assert date(2027, 1, 25) == FACTS_DUE
    assert overdue(FACTS_DUE) is None
    assert overdue(FACTS_DUE - timedelta(days=56)) is None
    message = overdue(FACTS_DUE + timedelta(days=1))
    assert message is not None
    assert "2027-01-25" in message
    assert "conformance" in message


def test_overdue_facts_warn_and_break_nothing() -> None:
    """The one warning that is no error in these tests: shown from 2027-01-26 on."""
    message = overdue(datetime.now(UTC).date())
    if message is not None:
        warnings.warn(message, FactsOverdue, stacklevel=1)
    with pytest.warns(FactsOverdue, match="looked at again"):
        warnings.warn(overdue(date(2030, 1, 1)) or "", FactsOverdue, stacklevel=1)


# Checked releases


def test_a_checked_rule_is_what_its_name_says() -> None:
    """Both releases that issue and documentation name are there, and the lab is no release."""
    assert {"vllm-0.17.1", "vllm-0.32.0"} <= set(CHECKED)
    for name, rule in CHECKED.items():
        assert name == rule.name
        assert rule.release == release_of(name)
        assert rule.checked_on <= FACTS_DUE
        assert rule == rule_of(config(name))
        assert config(name).assumed_from is None
    assert release_of("lab-1") is None


@pytest.mark.parametrize(
    ("rule", "reserve", "asynchronous"),
    [
        ("vllm-0.9.2", False, False),
        ("vllm-0.13.0", False, False),
        ("vllm-0.14.0", False, True),
        ("vllm-0.17.1", False, True),
        ("vllm-0.18.9", False, True),
        ("vllm-0.19.0", True, True),
        ("vllm-0.32.0", True, True),
        ("vllm-1.0.0", True, True),
    ],
)
def test_defaults_are_the_release_s_own(rule: str, reserve: bool, asynchronous: bool) -> None:
    """Checked or assumed; what every release has the same is left as it is."""
    engine = config(rule, assume=True).engine
    assert (reserve, asynchronous) == (engine.scheduler_reserve_full_isl, engine.async_scheduling)
    assert (0.0, "fcfs", True, True, 0) == (
        engine.watermark,
        engine.scheduling_policy,
        engine.enable_chunked_prefill,
        engine.enable_prefix_caching,
        engine.long_prefill_token_threshold,
    )


def test_the_defaults_of_a_rule_are_what_a_configuration_gets() -> None:
    """`Rule.defaults` has every key whose default depends on the release."""
    for name, rule in CHECKED.items():
        engine = config(name).engine
        assert dict(rule.defaults) == {key: getattr(engine, key) for key in rule.defaults}


@pytest.mark.parametrize(
    ("rule", "key", "value", "only", "since"),
    [
        ("vllm-0.17.1", "scheduler_reserve_full_isl", True, False, "0.19.0"),
        ("vllm-0.17.1", "watermark", 0.01, 0.0, "0.24.0"),
        ("vllm-0.23.4", "watermark", 0.01, 0, "0.24.0"),
        ("vllm-0.9.2", "async_scheduling", True, False, "0.10.0"),
        ("vllm-0.9.1", "scheduling_policy", "priority", "fcfs", "0.9.2"),
    ],
)
def test_an_option_the_release_lacks_is_refused_by_name(
    rule: str, key: str, value: Any, only: Any, since: str
) -> None:
    """Unless the value is all that release can do; the message says since when vLLM has it."""
    expected = f"c.toml: engine.{key} is not in {rule} (vLLM has it from {since}), got "
    assert refusal(rule, assume=True, **{key: value}).startswith(expected)
    assert only == getattr(config(rule, assume=True, **{key: only}).engine, key)


def test_0_32_0_refuses_no_option() -> None:
    """Every key of the contract away from its default."""
    options = {
        "scheduling_policy": "priority",
        "enable_chunked_prefill": False,
        "scheduler_reserve_full_isl": False,
        "watermark": 0.25,
        "long_prefill_token_threshold": 64,
        "enable_prefix_caching": False,
        "async_scheduling": False,
        # vLLM's own validation refuses this pair; its scheduler runs it.
        "max_num_batched_tokens": 16,
        "max_num_seqs": 256,
    }
    engine = config("vllm-0.32.0", **options).engine
    assert options == {key: getattr(engine, key) for key in options}


def test_a_name_with_leading_zeros_is_no_release() -> None:
    """It would be another name for the same rule, with another hash."""
    assert "engine.rule" in refusal("vllm-00.32.0", assume=True)


# Unchecked releases


@pytest.mark.parametrize(
    ("rule", "nearest", "stand_in"),
    [
        ("vllm-0.12.0", "vllm-0.17.1", "vllm-0.17.1"),
        ("vllm-0.17.2", "vllm-0.17.1, vllm-0.32.0", "vllm-0.17.1"),
        ("vllm-0.18.0", "vllm-0.17.1, vllm-0.32.0", "vllm-0.17.1"),
        # It has full-sequence admission, which 0.17.1 could not replay.
        ("vllm-0.20.2", "vllm-0.17.1, vllm-0.32.0", "vllm-0.32.0"),
        ("vllm-0.31.0", "vllm-0.17.1, vllm-0.32.0", "vllm-0.32.0"),
        ("vllm-0.32.1", "vllm-0.32.0", "vllm-0.32.0"),
        ("vllm-999999.0.0", "vllm-0.32.0", "vllm-0.32.0"),
    ],
)
def test_an_unknown_release_is_refused_with_the_nearest_or_assumed_on_request(
    rule: str, nearest: str, stand_in: str
) -> None:
    """The configuration keeps the name it was given, and says which rule stands in."""
    expected = (
        f"c.toml: engine.rule must be a checked release (nearest: {nearest};"
        f" --assume-rule replays it as {stand_in}, labelled as assumed), got {rule}"
    )
    assert expected == refusal(rule)
    found = config(rule, assume=True)
    assert (rule, stand_in) == (found.engine.rule, found.assumed_from)
    assert CHECKED[stand_in] == rule_of(found)


def test_what_is_assumed_is_in_no_table_and_no_hash(tmp_path: Path) -> None:
    """A ledger's own copy of the configuration reads back equal, and only when told to assume."""
    found = config("vllm-0.31.0", assume=True)
    assert "assumed" not in found.toml()
    assert set(tomllib.loads(found.toml())) == {"engine", "policy", "fairness", "limits"}
    path = tmp_path / "c.toml"
    path.write_text(found.toml())
    assert found == read_config(path, assume=True)
    assert found == found.with_policy(None, None)
    with pytest.raises(InputError, match="must be a checked release"):
        read_config(path)
    with pytest.raises(InputError, match="unknown key assumed_from"):
        parse_config({"assumed_from": "vllm-0.32.0"}, "c.toml")


def test_assuming_changes_nothing_for_a_checked_release_or_the_lab() -> None:
    """The flag is a permission."""
    assert config("vllm-0.32.0") == config("vllm-0.32.0", assume=True)
    lab = {"engine": {"profile": "lab", "capacity_blocks": 12}}
    assert parse_config(lab, "c.toml") == parse_config(lab, "c.toml", assume=True)
