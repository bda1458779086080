"""The receipt: what was replayed under which rule, what it came to, and the hashes that say so."""

import dataclasses
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from replay.canonical import canonical_json, sha256
from replay.config import Config
from replay.events import Event, Kind, Recovery, binary_form
from replay.limitations import LIMITATIONS
from replay.version import __version__
from replay.workload import Workload

SCHEMA = "preemption-receipt/1"
HASHES = ("workload_sha256", "input_sha256", "event_sha256", "receipt_sha256")
VICTIM_RULES = {
    ("lab-1", "rule"): "greatest (priority, arrival tick, request_id as UTF-8) among the running",
}
TIE_RULE = "equal estimates: recompute"
BLOCK_MODEL = "ceil(context_tokens / block_size)"


def build_receipt(
    workload: Workload,
    config: Config,
    events: Sequence[Event],
    conservation: Sequence[dict[str, Any]],
) -> dict[str, Any]:
    """Receipt of a ledger; `conservation` is one record per equation the oracle checked."""
    engine, policy = config.engine, config.policy
    ids = [r.request_id for r in workload.requests]
    receipt = {
        "schema": SCHEMA,
        "tool": {"name": "preemption-ledger", "version": __version__},
        "numbers": "modelled",
        "engine": {"profile": engine.profile, "rule": engine.rule},
        "policy": {
            "recovery": policy.recovery,
            "victim": policy.victim,
            "version": engine.rule,
            "victim_rule": VICTIM_RULES[engine.rule, policy.victim],
            "tie_rule": TIE_RULE,
        },
        "blocks": {
            "model": BLOCK_MODEL,
            "block_size_tokens": engine.block_size,
            "capacity_blocks": engine.capacity_blocks,
            "max_num_seqs": engine.max_num_seqs,
        },
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
        "limits": dataclasses.asdict(config.limits),
        "totals": totals(events),
        "conservation": list(conservation),
        "fairness": {
            **dataclasses.asdict(config.fairness),
            "flagged_wait": [ids[k] for k in _requests(events, Kind.FLAG_WAIT)],
            "flagged_repeat": [ids[k] for k in _requests(events, Kind.FLAG_REPEAT)],
        },
        "limitations": list(LIMITATIONS),
        "workload_sha256": workload.sha256,
        "input_sha256": config.input_sha256(workload.sha256),
        "event_sha256": sha256(b"".join(binary_form(events, config))),
    }
    return receipt | {"receipt_sha256": receipt_sha256(receipt)}


def receipt_sha256(receipt: dict[str, Any]) -> str:
    """Hash of a receipt without its own hash."""
    return sha256(canonical_json({k: v for k, v in receipt.items() if k != "receipt_sha256"}))


def totals(events: Iterable[Event]) -> dict[str, Any]:
    """Sums over a ledger.

    `charged_tokens` is what preempt events charged, `replayed_tokens` what finished replays did;
    `executed_tokens` counts prefill, replay and generated tokens that the ledger shows as done,
    and `recompute_tax_frac` is the replayed part of them (None if nothing was executed).
    """
    count: Counter[str] = Counter()
    pressure = set()
    work: dict[int, int] = {}  # request -> tokens its current stay has to prefill or replay
    resumed: set[int] = set()
    last: dict[int, Event] = {}
    for event in events:
        kind, who = event.kind, event.request_id
        last[who] = event
        count[Kind(kind).name] += 1
        if kind in (Kind.ADMIT, Kind.RESUME) and event.work_left_tokens is not None:
            work[who] = event.work_left_tokens
            (resumed.add if kind == Kind.RESUME else resumed.discard)(who)
        elif kind in (Kind.PREEMPT, Kind.RECOVERED, Kind.FIRST_TOKEN) and who in work:
            done = work.pop(who) - (event.work_left_tokens or 0)
            count["executed"] += done
            count["recomputed"] += done if who in resumed else 0
        if kind == Kind.PREEMPT:
            # In the lab each shortage has one victim, so the request and tick name it.
            pressure.add((event.tick, event.requester_id))
            count["freed"] += event.freed_blocks or 0
            count["charged"] += event.recompute_tokens or 0
        elif kind == Kind.SWAPPED_OUT:
            count["out"] += event.swap_out_bytes or 0
        elif kind == Kind.RECOVERED and event.recovery == Recovery.RECOMPUTE:
            count["replayed"] += event.recompute_tokens or 0
        elif kind == Kind.RECOVERED:
            count["in"] += event.swap_in_bytes or 0
    executed = count["executed"] + sum(e.generated_tokens for e in last.values())
    return {
        "requests": len(last),
        "pressure_events": len(pressure),
        "preemptions": count["PREEMPT"],
        "freed_blocks": count["freed"],
        "charged_tokens": count["charged"],
        "replayed_tokens": count["replayed"],
        "swap_out_bytes": count["out"],
        "swap_in_bytes": count["in"],
        "queue_ticks": sum(e.queue_ticks for e in last.values()),
        "completions": count["COMPLETE"],
        "censored": count["CENSORED"],
        "generated_tokens": sum(e.generated_tokens for e in last.values()),
        "executed_tokens": executed,
        "recompute_tax_frac": count["recomputed"] / executed if executed else None,
    }


def _requests(events: Iterable[Event], kind: Kind) -> list[int]:
    return sorted(e.request_id for e in events if e.kind == kind)
