"""One row per request, folded from the events: what each of them went through (SPEC §7)."""

from collections.abc import Iterable
from typing import Any

from replay.events import Event, Kind
from replay.workload import Workload

# Column -> Parquet type, in file order.
COLUMNS = {
    "request_id": "string",
    "status": "string",
    "arrival_tick": "integer",
    "first_admit_tick": "integer",
    "first_token_tick": "integer",
    "completion_tick": "integer",
    "prompt_tokens": "integer",
    "output_tokens": "integer",
    "generated_tokens": "integer",
    "priority": "integer",
    "tenant": "string",
    "preemptions": "integer",
    "queue_ticks": "integer",
    "recompute_tokens": "integer",
    "swap_out_bytes": "integer",
    "swap_in_bytes": "integer",
    "flagged_wait": "boolean",
    "flagged_repeat": "boolean",
    "modelled_ttft_ticks": "integer",
    "modelled_tpot_ticks": "float",
}
_CHARGES = ("recompute_tokens", "swap_out_bytes", "swap_in_bytes")
_MARKS = {
    Kind.ADMIT: "first_admit_tick",
    Kind.FIRST_TOKEN: "first_token_tick",
    Kind.COMPLETE: "completion_tick",
}
_FLAGS = {Kind.FLAG_WAIT: "flagged_wait", Kind.FLAG_REPEAT: "flagged_repeat"}


def request_rows(workload: Workload, events: Iterable[Event]) -> list[dict[str, Any]]:
    """Rows in workload order; marks never reached are None, charges never made are 0."""
    rows: list[dict[str, Any]] = [
        dict[str, Any](dict.fromkeys(COLUMNS))
        | {"request_id": r.request_id, "tenant": r.tenant, "output_tokens": r.output_tokens}
        | dict.fromkeys(_CHARGES, 0)
        | dict.fromkeys(_FLAGS.values(), False)
        for r in workload.requests
    ]
    for event in events:
        row = rows[event.request_id]
        for name in ("arrival_tick", "prompt_tokens", "generated_tokens", "priority"):
            row[name] = getattr(event, name)
        row["preemptions"], row["queue_ticks"] = event.preemptions, event.queue_ticks
        kind = Kind(event.kind)
        if kind in _MARKS:
            row[_MARKS[kind]] = event.tick
        elif kind in _FLAGS:
            row[_FLAGS[kind]] = True
        elif kind is Kind.PREEMPT:
            for name in _CHARGES:
                row[name] += getattr(event, name) or 0
        if kind in (Kind.COMPLETE, Kind.CENSORED):
            row["status"] = kind.name.lower()
    return [row | _intervals(row) for row in rows]


def _intervals(row: dict[str, Any]) -> dict[str, Any]:
    first, end = row["first_token_tick"], row["completion_tick"]
    gaps = (row["generated_tokens"] or 0) - 1
    between = None not in (first, end) and gaps > 0
    return {
        "modelled_ttft_ticks": None if first is None else first - row["arrival_tick"],
        "modelled_tpot_ticks": (end - first) / gaps if between else None,
    }
