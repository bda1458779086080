"""The configuration contract: one TOML file, every key checked, every default written here.

`Config` holds what a replay reads (SPEC §3). Unknown keys, another profile's keys and values out
of range raise `InputError` naming the table and key.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from replay.canonical import canonical_json, sha256
from replay.errors import InputError, describe
from replay.rules import assumed_rule, check_option, defaults_of, release_of
from replay.strict import (
    MAX_SAFE_INTEGER,
    boolean,
    choice,
    integer,
    only_keys,
    read_toml,
    table,
)
from replay.timing import (
    Calibration,
    Timing,
    calibration_toml,
    parse_calibration,
    parse_timing,
)
from replay.victims import PROFILE_VICTIMS, VICTIMS

RECOVERIES = ("recompute", "swap", "adaptive")
PROFILES = ("lab", "vllm-v1")
_Check = Callable[[Any, str, str], Any]


@dataclass(frozen=True)
class Engine:
    """Whose scheduler, and how large; `capacity_blocks` counts usable blocks."""

    profile: str
    rule: str
    capacity_blocks: int
    tick_us: int | None = 1
    block_size: int = 8
    max_num_seqs: int = 256
    # vllm-v1 only, None in the lab:
    max_num_batched_tokens: int | None = None
    max_model_len: int | None = None
    scheduling_policy: str | None = None
    enable_chunked_prefill: bool | None = None
    scheduler_reserve_full_isl: bool | None = None
    watermark: float | None = None
    long_prefill_token_threshold: int | None = None
    enable_prefix_caching: bool | None = None
    async_scheduling: bool | None = None


@dataclass(frozen=True)
class Policy:
    """Which recovery, and the declared rates its estimates use."""

    recovery: str = "recompute"
    victim: str = "rule"
    kv_bytes_per_token: int = 512
    prefill_tokens_per_tick: int = 16
    transfer_bytes_per_tick: int = 8192
    host_capacity_bytes: int = 0


@dataclass(frozen=True)
class Fairness:
    """A request is flagged when it goes beyond either threshold."""

    max_queue_ticks: int = 200
    max_preemptions: int = 2


@dataclass(frozen=True)
class Limits:
    """How much work is accepted before anything is allocated."""

    max_requests: int
    max_ticks: int


@dataclass(frozen=True)
class Config:
    """Everything a replay reads besides the workload.

    `calibration` says what `timing` was fitted to; it is in no hash. `assumed_from` names the
    checked rule that stands in where nobody checked `engine.rule`. It is no key of the file and in
    no hash.
    """

    engine: Engine
    policy: Policy
    fairness: Fairness
    limits: Limits
    timing: Timing | None = None
    calibration: Calibration | None = None
    assumed_from: str | None = None

    def with_policy(self, recovery: str | None, victim: str | None) -> "Config":
        """Return the same inputs under another choice; None keeps what is there."""
        chosen = {k: v for k, v in (("recovery", recovery), ("victim", victim)) if v is not None}
        keys = dataclasses.asdict(self.policy) | chosen
        return replace(self, policy=_policy(keys, "options", self.engine.profile))

    def longest_us(self) -> int:
        """Most microseconds that `max_ticks` steps of `timing` can take; 0 without one."""
        if self.timing is None:
            return 0
        engine = self.engine
        seqs, context = engine.max_num_seqs, engine.max_model_len or 0
        kv_tokens = seqs * context
        if not engine.enable_prefix_caching:  # no block counts twice
            kv_tokens = min(kv_tokens, engine.capacity_blocks * engine.block_size)
        budget = engine.max_num_batched_tokens or 0
        longest_us = self.timing.longest_step_us(budget, min(seqs, budget), kv_tokens)
        return longest_us * self.limits.max_ticks

    def tables(self) -> dict[str, Any]:
        """Nested tables with every key the profile reads, as TOML and hashes see them."""
        keys = ENGINE_KEYS[self.engine.profile]
        tables = dataclasses.asdict(self)
        del tables["assumed_from"], tables["calibration"]
        tables["engine"] = {k: tables["engine"][k] for k in keys}
        if self.engine.profile == "lab":
            del tables["timing"]
        elif self.timing is not None:
            del tables["engine"]["tick_us"]
        return tables

    def input_sha256(self, workload_sha256: str) -> str:
        """`input_sha256`: the inputs without the keys that choose the policy."""
        tables = self.tables()
        del tables["policy"]["recovery"], tables["policy"]["victim"]
        return sha256(canonical_json({"config": tables, "workload_sha256": workload_sha256}))

    def toml(self) -> str:
        """The configuration as a file that reads back equal, every default written out."""
        texts = [
            f"[{name}]\n" + "".join(f"{k} = {_toml_value(v)}\n" for k, v in keys.items())
            for name, keys in self.tables().items()
            if keys is not None
        ]
        if self.calibration is not None:
            texts.append(calibration_toml(self.calibration))
        return "\n".join(texts)


@dataclass(frozen=True)
class _Profile:
    """What one profile accepts: engine keys with their defaults (`...`: required) and limits.

    A key whose default is None has the default of the release that the rule names.
    """

    engine: Mapping[str, Any]
    limits: Limits
    limits_are_maxima: bool = False


_COMMON = {"profile": ..., "tick_us": 1, "block_size": 8, "capacity_blocks": ...}
_PROFILES = {
    "lab": _Profile(
        _COMMON | {"rule": "lab-1", "max_num_seqs": 256},
        Limits(max_requests=64, max_ticks=20_000),
        limits_are_maxima=True,
    ),
    "vllm-v1": _Profile(
        _COMMON
        | {
            "rule": ...,
            "max_num_seqs": 256,
            "max_num_batched_tokens": ...,
            "max_model_len": ...,
            "scheduling_policy": "fcfs",
            "enable_chunked_prefill": True,
            "scheduler_reserve_full_isl": None,
            "watermark": None,
            "long_prefill_token_threshold": 0,
            "enable_prefix_caching": True,
            "async_scheduling": None,
        },
        Limits(max_requests=10_000_000, max_ticks=1_000_000_000),
    ),
}
ENGINE_KEYS = {name: tuple(profile.engine) for name, profile in _PROFILES.items()}
_RULE_FORMS = {"lab": "lab-1", "vllm-v1": "vllm-X.Y.Z"}
_MINIMA = {
    "long_prefill_token_threshold": 0,
    "host_capacity_bytes": 0,
    "max_queue_ticks": 0,
    "max_preemptions": 0,
}


_TABLES = ("engine", "policy", "fairness", "limits", "timing", "calibration")


def read_config(path: Path, *, assume: bool = False, timing: Path | None = None) -> Config:
    """Configuration of a TOML file; `assume` as in `parse_config`, `timing` as in `with_timing`."""
    tables = read_toml(path)
    if timing is not None:
        tables = with_timing(tables, timing, str(path))
    return parse_config(tables, str(path), assume=assume)


def with_timing(tables: Mapping[str, Any], path: Path, place: str) -> dict[str, Any]:
    """Tables of a configuration with what a file of `calibrate` says in place of `tick_us`."""
    found = read_toml(path)
    only_keys(found, ("timing", "calibration"), str(path), quote=True)
    if "timing" not in found:
        raise InputError(str(path), "timing", "is required", "nothing")
    parse_timing(table(found["timing"], str(path), "timing"), str(path))
    if "calibration" in found:
        parse_calibration(table(found["calibration"], str(path), "calibration"), str(path))
    engine = dict(table(tables.get("engine", {}), place, "engine"))
    engine.pop("tick_us", None)
    return {k: v for k, v in tables.items() if k != "calibration"} | {"engine": engine} | found


def parse_config(tables: Mapping[str, Any], place: str, *, assume: bool = False) -> Config:
    """Check nested tables against every rule of their keys.

    An `engine.rule` that nobody checked is refused, unless `assume` lets the nearest checked one
    stand in for it (`Config.assumed_from`).
    """
    only_keys(tables, _TABLES, place, quote=True)
    found = {name: table(tables.get(name, {}), place, name) for name in tables}
    raw_engine = found.get("engine")
    if raw_engine is None or "profile" not in raw_engine:
        raise InputError(place, "engine.profile", "is required", "nothing")
    name = choice(raw_engine["profile"], place, "engine.profile", PROFILES)
    profile = _PROFILES[name]
    timing, calibration = _timed(found, place, name)
    engine = _engine(raw_engine, place, name, timed=timing is not None)
    config = Config(
        engine=engine,
        policy=_policy(found.get("policy", {}), place, name),
        fairness=Fairness(**_integers(found.get("fairness", {}), Fairness, place, "fairness")),
        limits=_limits(found.get("limits", {}), place, profile),
        timing=timing,
        calibration=calibration,
        assumed_from=assumed_rule(engine.rule, place, assume=assume),
    )
    _check_products(config, place)
    return config


def _engine(raw: Mapping[str, Any], place: str, name: str, *, timed: bool) -> Engine:
    known = _PROFILES[name].engine
    for key in raw:
        owner = next((p for p in PROFILES if p != name and key in _PROFILES[p].engine), None)
        if key not in known and owner:
            raise InputError(place, f"engine.{key}", f"belongs to profile {owner}, not {name}")
    only_keys(raw, known, f"{place}: engine", quote=True)
    for key, default in known.items():
        if default is ... and key not in raw:
            raise InputError(place, f"engine.{key}", f"is required for profile {name}", "nothing")
    given = {}
    for key, value in raw.items():
        check: _Check = _ENGINE_CHECKS.get(key, _whole)
        given[key] = check(value, place, f"engine.{key}")
    if timed and "tick_us" in given:
        raise InputError(place, "engine.tick_us", "must be left out when [timing] is given")
    values = {key: default for key, default in known.items() if default is not ...} | given
    for key, default in _release_defaults(values["rule"], given, place, name).items():
        values[key] = given.get(key, default)
    return Engine(**(values | {"tick_us": None} if timed else values))


def _release_defaults(
    rule: str, given: Mapping[str, Any], place: str, profile: str
) -> Mapping[str, Any]:
    """Defaults that depend on the rule's release; refuses an option that release does not have."""
    release = release_of(rule)
    if (rule != "lab-1") if profile == "lab" else (release is None):
        form = f"must be of the form {_RULE_FORMS[profile]} for profile {profile}"
        raise InputError(place, "engine.rule", form, describe(rule))
    for key, value in given.items():
        check_option(rule, key, value, place)
    return {} if release is None else defaults_of(release)


def _policy(raw: Mapping[str, Any], place: str, profile: str) -> Policy:
    names = {k: raw[k] for k in ("recovery", "victim") if k in raw}
    numbers = {k: v for k, v in raw.items() if k not in names}
    values: dict[str, Any] = _integers(numbers, Policy, place, "policy") | names
    if "recovery" in names:
        choice(names["recovery"], place, "policy.recovery", RECOVERIES)
    if "victim" in names:
        _check_victim(names["victim"], place, profile)
    return Policy(**values)


def _check_victim(victim: object, place: str, profile: str) -> None:
    if victim in VICTIMS and victim not in PROFILE_VICTIMS[profile]:
        owner = next(p for p in PROFILES if victim in PROFILE_VICTIMS[p])
        rule = f"{victim} belongs to profile {owner}, not {profile}"
        raise InputError(place, "policy.victim", rule)
    choice(victim, place, "policy.victim", PROFILE_VICTIMS[profile])


def _limits(raw: Mapping[str, Any], place: str, profile: _Profile) -> Limits:
    values = dataclasses.asdict(profile.limits) | _integers(raw, Limits, place, "limits")
    for key, most in dataclasses.asdict(profile.limits).items():
        if profile.limits_are_maxima and values[key] > most:
            rule = f"must be <= {most} in this profile"
            raise InputError(place, f"limits.{key}", rule, describe(values[key]))
    return Limits(**values)


def _timed(
    found: Mapping[str, Mapping[str, Any]], place: str, profile: str
) -> tuple[Timing | None, Calibration | None]:
    for name in ("timing", "calibration"):
        if profile == "lab" and name in found:
            raise InputError(place, name, "belongs to profile vllm-v1, not lab")
    if "timing" not in found:
        if "calibration" in found:
            raise InputError(place, "calibration", "must stand beside the [timing] it is of")
        return None, None
    calibration = found.get("calibration")
    return parse_timing(found["timing"], place), (
        None if calibration is None else parse_calibration(calibration, place)
    )


def _integers(raw: Mapping[str, Any], kind: type, place: str, name: str) -> dict[str, int]:
    only_keys(raw, [f.name for f in dataclasses.fields(kind)], f"{place}: {name}", quote=True)
    return {k: integer(v, place, f"{name}.{k}", _MINIMA.get(k, 1)) for k, v in raw.items()}


def _whole(value: Any, place: str, name: str) -> int:
    return integer(value, place, name, _MINIMA.get(name.removeprefix("engine."), 1))


def _watermark(value: Any, place: str, name: str) -> float:
    if type(value) not in (int, float) or not 0 <= value < 1:
        raise InputError(
            place, name, "must be a fraction of at least 0 and below 1", describe(value)
        )
    return float(value)


def _text(value: Any, place: str, name: str) -> str:
    if not isinstance(value, str):
        raise InputError(place, name, "must be a string", describe(value))
    return value


def _scheduling_policy(value: Any, place: str, name: str) -> str:
    return choice(value, place, name, ("fcfs", "priority"))


_ENGINE_CHECKS: dict[str, _Check] = {
    "profile": _text,
    "rule": _text,
    "scheduling_policy": _scheduling_policy,
    "enable_chunked_prefill": boolean,
    "scheduler_reserve_full_isl": boolean,
    "watermark": _watermark,
    "enable_prefix_caching": boolean,
    "async_scheduling": boolean,
}


def _check_products(config: Config, place: str) -> None:
    engine, limits = config.engine, config.limits
    pool_bytes = engine.capacity_blocks * engine.block_size * config.policy.kv_bytes_per_token
    last = ("max_ticks x tick_us", limits.max_ticks * (engine.tick_us or 1))
    if config.timing is not None:
        last = ("max_ticks x the longest step of [timing], in us", config.longest_us())
    for names, product in (
        ("capacity_blocks x block_size x kv_bytes_per_token", pool_bytes),
        last,
    ):
        if product > MAX_SAFE_INTEGER:
            raise InputError(place, names, "must be within 2^53 - 1", describe(product))


def _toml_value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f'"{value}"' if isinstance(value, str) else repr(value)
