"""A look as facts for machines: what `preempt doctor --json` prints. Pure."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from collectors.doctor.now import Now
from collectors.doctor.seen import Seen
from collectors.doctor.spooled import Spooled

SCHEMA = "preemption-doctor/1"


def facts_of(seen: Seen) -> dict[str, Any]:
    """Everything that was found, as JSON has it; what is unknown is null."""
    spool, now, page = seen.spool, seen.now, seen.page
    header = seen.header or {}
    return {
        "schema": SCHEMA,
        "url": seen.looked.url,
        "outcome": str(seen.looked.first.entry.outcome),
        "status": seen.looked.first.entry.status,
        "version": seen.looked.probed.version,
        "models": seen.models,
        "max_model_len": seen.looked.probed.max_model_len,
        "engines": seen.engines,
        "page": {
            "content_type": seen.looked.first.entry.content_type,
            "samples": len(page.samples),
            "problems": sorted(set(seen.looked.first.problems)),
            "duration_us": seen.looked.first.entry.duration_us,
        },
        "metrics": {
            "recognised": seen.recognised,
            "unmatched": sorted(page.unmatched),
            "absent": seen.absent,
            "needed": seen.missing,
        },
        "capacity": [{**one, "capacity_tokens": _tokens(one)} for one in seen.capacity],
        "scheduler": header.get("scheduler"),
        "now": None if now is None else _now_facts(now),
        "recorder": None if spool is None else _spool_facts(spool, active=bool(header)),
        "not_modelled": seen.not_exact,
    }


def _tokens(one: Mapping[str, Any]) -> int | None:
    blocks, size = one["capacity_blocks"], one["block_size"]
    return None if blocks is None or size is None else blocks * size


def _now_facts(now: Now) -> dict[str, Any]:
    facts = asdict(now) | {"stale": now.stale}
    facts["usage"] = [
        {"engine": engine, "kv_cache_usage_frac": value} for engine, value in now.usage.items()
    ]
    return facts


def _spool_facts(spool: Spooled, *, active: bool) -> dict[str, Any]:
    kept = {key: value for key, value in asdict(spool).items() if key != "header"}
    return kept | {
        "state": str(spool.state),
        "active": active,
        "version": (spool.header or {}).get("recorder_version"),
    }
