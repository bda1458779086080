"""The receipt: what was replayed under which rule, what it came to, and the hashes that say so."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from replay.canonical import canonical_json, sha256
from replay.config import ENGINE_KEYS, Config, Engine
from replay.events import COLUMN, Kind, Rows, event_sha256
from replay.limitations import labels
from replay.timed_steps import TimedSteps
from replay.totals import totals
from replay.version import __version__

if TYPE_CHECKING:
    from replay.workload_columns import AnyWorkload

SCHEMA = "preemption-receipt/1"
HASHES = ("workload_sha256", "input_sha256", "event_sha256", "receipt_sha256")
# By profile, then by the policy's name for the victim; `rule` of vllm-v1 by scheduling policy.
_VICTIM_RULES = {
    "lab": {
        "rule": "greatest (priority, arrival tick, request_id as UTF-8) among the running",
    },
    "vllm-v1": {
        "fcfs": "the last of the running",
        "priority": "greatest (priority, arrival time) among the running",
        "least-computed": "least computed tokens among the running,"
        " the last of equals in running order",
        "most-freed-per-lost-token": "greatest freed blocks / computed tokens among the running,"
        " the last of equals in running order",
    },
}
TIE_RULE = "equal estimates: recompute"
_BLOCK_MODELS = {
    "lab": "ceil(context_tokens / block_size)",
    "vllm-v1": "ceil(computed_tokens / block_size), shared blocks once",
}


def victim_rule(profile: str, victim: str, scheduling_policy: str | None) -> str:
    """How the victim is chosen, in words; a name this release does not know stays as it is."""
    if profile == "vllm-v1" and victim == "rule":
        victim = scheduling_policy or victim
    return _VICTIM_RULES.get(profile, {}).get(victim, victim)


def build_receipt(
    workload: "AnyWorkload",
    config: Config,
    rows: Rows,
    conservation: Sequence[dict[str, Any]],
    sums: Mapping[str, Any] | None = None,
    timed_steps: TimedSteps | None = None,
) -> dict[str, Any]:
    """Receipt of a ledger with its hash; the arguments are those of `unsealed_receipt`."""
    receipt = unsealed_receipt(workload, config, rows, conservation, sums, timed_steps)
    return receipt | {"receipt_sha256": receipt_sha256(receipt)}


def unsealed_receipt(
    workload: "AnyWorkload",
    config: Config,
    rows: Rows,
    conservation: Sequence[dict[str, Any]],
    sums: Mapping[str, Any] | None = None,
    timed_steps: TimedSteps | None = None,
    known_event_sha256: str | None = None,
) -> dict[str, Any]:
    """Receipt of a ledger but for its own hash; `conservation` is one record per equation checked.

    `sums` are its `totals` and `known_event_sha256` its hash where they are known already;
    `timed_steps` is what the steps of a timed replay came to, which no event says.
    """
    engine, policy = config.engine, config.policy
    receipt: dict[str, Any] = {
        "schema": SCHEMA,
        "tool": {"name": "preemption-ledger", "version": __version__},
        "numbers": "modelled",
        "engine": {"profile": engine.profile, "rule": engine.rule},
        "policy": {
            "recovery": policy.recovery,
            "victim": policy.victim,
            "version": engine.rule,
            "victim_rule": victim_rule(engine.profile, policy.victim, engine.scheduling_policy),
            "tie_rule": TIE_RULE,
        },
        "blocks": _blocks(engine),
        "rates": {
            "tick_us": engine.tick_us,
            **{
                name: getattr(policy, name)
                for name in (
                    "kv_bytes_per_token",
                    "prefill_tokens_per_tick",
                    "transfer_bytes_per_tick",
                    "host_capacity_bytes",
                )
            },
        },
        **_timing(config, timed_steps),
        "limits": dataclasses.asdict(config.limits),
        "totals": dict(totals(rows, config) if sums is None else sums),
        "conservation": list(conservation),
        "fairness": {
            **dataclasses.asdict(config.fairness),
            "flagged_wait": _flagged(workload, rows, Kind.FLAG_WAIT),
            "flagged_repeat": _flagged(workload, rows, Kind.FLAG_REPEAT),
        },
        **labels(config),
        "workload_sha256": workload.sha256,
        "input_sha256": config.input_sha256(workload.sha256),
        "event_sha256": known_event_sha256 or event_sha256(rows, config),
    }
    return receipt


def receipt_sha256(receipt: dict[str, Any]) -> str:
    """Hash of a receipt without its own hash."""
    return sha256(canonical_json({k: v for k, v in receipt.items() if k != "receipt_sha256"}))


def _blocks(engine: Engine) -> dict[str, Any]:
    """The pool, and every other option of the scheduler that the profile reads."""
    elsewhere = ("profile", "rule", "tick_us", "block_size")
    return {
        "model": _BLOCK_MODELS[engine.profile],
        "block_size_tokens": engine.block_size,
        **{k: getattr(engine, k) for k in ENGINE_KEYS[engine.profile] if k not in elsewhere},
    }


def _timing(config: Config, steps: TimedSteps | None) -> dict[str, Any]:
    """Rates of a timed replay, what they were fitted to, and how far its steps left that."""
    if config.timing is None:
        return {}
    calibration = config.calibration
    timing: dict[str, Any] = {
        "rates": dataclasses.asdict(config.timing),
        "calibration": None if calibration is None else dataclasses.asdict(calibration),
        "steps": None if steps is None else dataclasses.asdict(steps),
    }
    return {"timing": timing}


def _flagged(workload: "AnyWorkload", rows: Rows, kind: Kind) -> list[str]:
    """Ids of the requests that were flagged, in workload order."""
    who = np.sort(rows[rows[:, COLUMN["kind"]] == kind, COLUMN["request_id"]])
    return workload.column("request_id").gather(who).to_list() if len(who) else []
