"""How long a scheduler step is said to take, and what that rests on (SPEC §3 `[timing]`).

`[timing]` holds four integers that a replay reads. `[calibration]`, written by `preempt calibrate`,
says of which run they are the fit, over which range and under which conditions; it is in no hash,
because it changes no event, and travels with the configuration into every ledger.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any

from replay.errors import InputError, describe
from replay.strict import (
    MAX_ID_CODE_POINTS,
    MAX_SAFE_INTEGER,
    choice,
    identifier,
    integer,
    only_keys,
    table,
)

SOURCES = ("steps", "requests")
QUANTILES = {"p05": 0.05, "p50": 0.5, "p95": 0.95, "p99": 0.99}  # of the residuals
_MOST_CONDITIONS, _LONGEST_TEXT = 64, 4096
_CONDITION = re.compile(r"[a-z0-9_]{1,64}(\.[a-z0-9_]{1,64}){0,3}")
Condition = str | int | float | bool


@dataclass(frozen=True)
class Timing:
    """Step durations of a timed vllm-v1 replay; written by `calibrate`."""

    step_ns: int = 0
    prefill_token_ps: int = 0
    decode_request_ps: int = 0
    kv_token_ps: int = 0

    def longest_step_us(self, prefill_tokens: int, decode_requests: int, kv_tokens: int) -> int:
        """Microseconds of a step of so much, rounded up; exact however large."""
        tokens_ps = (
            self.prefill_token_ps * prefill_tokens
            + self.decode_request_ps * decode_requests
            + self.kv_token_ps * kv_tokens
        )
        return -(-(self.step_ns * 1000 + tokens_ps) // 1_000_000)


RATES = tuple(f.name for f in fields(Timing))


@dataclass(frozen=True)
class Calibration:
    """What a `Timing` was fitted to.

    `source` says from what: the run's own `steps`, or its `requests`, which is weaker.
    `prefill_tokens`, `decode_requests` and `kv_tokens` are the most that any fitted step had: a
    replay that goes beyond them extrapolates. The rates are `slowdown_permille` thousandths of a
    robust fit: above 1000 by what stalls add that no size explains. `interval_95` holds the ends of
    a rate's 95 % confidence interval by its name, `residual_us` quantiles of measured minus fitted
    durations, and `conditions` the manifest's fields, by dotted name, that the durations depend on
    (unknown ones are left out).
    """

    run_id: str
    source: str
    steps: int
    prefill_tokens: int
    decode_requests: int
    kv_tokens: int
    slowdown_permille: int
    interval_95: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    residual_us: Mapping[str, int] = field(default_factory=dict)
    conditions: Mapping[str, Condition] = field(default_factory=dict)


_COUNTS = ("steps", "prefill_tokens", "decode_requests", "kv_tokens", "slowdown_permille")


def parse_timing(raw: Mapping[str, Any], place: str) -> Timing:
    """Check `[timing]`; not every rate may be zero."""
    only_keys(raw, RATES, f"{place}: timing", quote=True)
    timing = Timing(**{k: integer(v, place, f"timing.{k}") for k, v in raw.items()})
    if not any(asdict(timing).values()):
        raise InputError(place, "timing", "must not be all zero")
    return timing


def parse_calibration(raw: Mapping[str, Any], place: str) -> Calibration:
    """Check `[calibration]`."""
    only_keys(raw, [f.name for f in fields(Calibration)], f"{place}: calibration", quote=True)
    for key in ("run_id", "source", *_COUNTS):
        if key not in raw:
            raise InputError(place, f"calibration.{key}", "is required", "nothing")
    nested = {
        key: table(raw.get(key, {}), place, f"calibration.{key}")
        for key in ("interval_95", "residual_us", "conditions")
    }
    return Calibration(
        run_id=identifier(raw["run_id"], place, "calibration.run_id"),
        source=choice(raw["source"], place, "calibration.source", SOURCES),
        **{key: integer(raw[key], place, f"calibration.{key}") for key in _COUNTS},
        interval_95=_intervals(nested["interval_95"], place),
        residual_us=_residuals(nested["residual_us"], place),
        conditions=_conditions(nested["conditions"], place),
    )


def calibration_toml(calibration: Calibration) -> str:
    """The tables `[calibration]` and those in it, as a file that reads back equal."""
    tables = asdict(calibration)
    nested = {key: tables.pop(key) for key in ("interval_95", "residual_us", "conditions")}
    text = "[calibration]\n" + _lines(tables)
    for key, values in nested.items():
        if values:
            text += f"\n[calibration.{key}]\n" + _lines(values)
    return text


def _lines(values: Mapping[str, Any]) -> str:
    # A JSON string, number or list of numbers is TOML as it is.
    return "".join(
        f"{json.dumps(key, ensure_ascii=False) if '.' in key else key} ="
        f" {json.dumps(value, ensure_ascii=False)}\n"
        for key, value in values.items()
    )


def _intervals(raw: Mapping[str, Any], place: str) -> dict[str, tuple[int, int]]:
    only_keys(raw, RATES, f"{place}: calibration.interval_95", quote=True)
    found = {}
    for key, value in raw.items():
        name = f"calibration.interval_95.{key}"
        if not isinstance(value, list) or len(value) != 2:  # noqa: PLR2004
            raise InputError(place, name, "must be a list of two integers", describe(value))
        low, high = (integer(v, place, name) for v in value)
        found[key] = (low, high)
    return found


def _residuals(raw: Mapping[str, Any], place: str) -> dict[str, int]:
    only_keys(raw, QUANTILES, f"{place}: calibration.residual_us", quote=True)
    return {
        key: integer(value, place, f"calibration.residual_us.{key}", -MAX_SAFE_INTEGER)
        for key, value in raw.items()
    }


def _text(value: str, place: str, name: str) -> str:
    """Text of a manifest: longer than a name may be (a model's path), and maybe empty."""
    if len(value) > _LONGEST_TEXT:
        rule = f"must have at most {_LONGEST_TEXT} code points"
        raise InputError(place, name, rule, describe(value))
    for start in range(0, len(value), MAX_ID_CODE_POINTS):
        identifier(value[start : start + MAX_ID_CODE_POINTS], place, name)
    return value


def _conditions(raw: Mapping[str, Any], place: str) -> dict[str, Condition]:
    if len(raw) > _MOST_CONDITIONS:
        rule = f"must hold at most {_MOST_CONDITIONS} keys"
        raise InputError(place, "calibration.conditions", rule, str(len(raw)))
    found: dict[str, Condition] = {}
    for key, value in raw.items():
        if not _CONDITION.fullmatch(key):
            rule = "must have keys of the manifest's fields (engine.version)"
            raise InputError(place, "calibration.conditions", rule, describe(key))
        name = f"calibration.conditions.{key}"
        if isinstance(value, str):
            found[key] = _text(value, place, name)
        elif type(value) is int:
            found[key] = integer(value, place, name, -MAX_SAFE_INTEGER)
        elif type(value) is bool or (type(value) is float and math.isfinite(value)):
            found[key] = value
        else:
            rule = "must be a string, a finite number, true or false"
            raise InputError(place, name, rule, describe(value))
    return found
