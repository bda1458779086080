"""The event contract: 33 columns, their codes and the binary form that is hashed (SPEC §7)."""

import struct
from collections.abc import Iterable, Iterator, Sequence
from enum import IntEnum
from typing import Any, NamedTuple

from replay.canonical import canonical_json, canonical_line
from replay.config import Config

SCHEMA = "preemption-ledger/1"
NULL = -(2**63)


class Kind(IntEnum):
    """What happened; the value is the code in the binary form."""

    ARRIVE = 0
    ADMIT = 1
    RESUME = 2
    PREEMPT = 3
    SWAPPED_OUT = 4
    RECOVERED = 5
    FIRST_TOKEN = 6
    COMPLETE = 7
    FLAG_WAIT = 8
    FLAG_REPEAT = 9
    CENSORED = 10


class Recovery(IntEnum):
    """How this victim's KV comes back, whatever the policy is called."""

    RECOMPUTE = 0
    SWAP = 1


class Reason(IntEnum):
    """Why the recovery is not simply the policy's own."""

    ON_HOST = 0
    INCOMPLETE = 1
    HOST_FULL = 2
    TIE = 3
    CHEAPER = 4


class Event(NamedTuple):
    """One row of the ledger in binary terms: requests by index, names by code, absent is None.

    After `seq` to `requester_id`: the request's counters and the engine's state after the event.
    """

    seq: int
    tick: int
    time_us: int
    kind: int
    request_id: int
    requester_id: int | None
    priority: int
    arrival_tick: int
    age_ticks: int
    queue_ticks: int
    preemptions: int
    prompt_tokens: int
    generated_tokens: int
    remaining_tokens: int
    context_tokens: int
    active_requests: int
    queue_depth: int
    queue_position: int | None
    capacity_blocks: int
    occupied_blocks_before: int
    occupied_blocks_after: int
    allocated_blocks: int | None
    freed_blocks: int | None
    recovery: int | None
    recovery_reason: int | None
    recompute_tokens: int | None
    swap_out_bytes: int | None
    swap_in_bytes: int | None
    estimate_recompute_ticks: int | None
    estimate_swap_ticks: int | None
    host_bytes_after: int
    work_left_tokens: int | None
    work_left_bytes: int | None


COLUMNS = Event._fields
CODES: dict[str, type[IntEnum]] = {
    "kind": Kind,
    "recovery": Recovery,
    "recovery_reason": Reason,
}
REQUEST_COLUMNS = ("request_id", "requester_id")
NEVER_NULL = tuple(name for name, kind in Event.__annotations__.items() if kind is int)
_RECORD = struct.Struct(f"<{len(COLUMNS)}q")


def ledger_header(config: Config) -> dict[str, Any]:
    """Header of the binary form and of `events.jsonl`: it names the policy and the rule."""
    return {
        "columns": list(COLUMNS),
        "policy": {"recovery": config.policy.recovery, "victim": config.policy.victim},
        "profile": config.engine.profile,
        "rule": config.engine.rule,
        "schema": SCHEMA,
    }


def binary_form(events: Iterable[Event], config: Config) -> Iterator[bytes]:
    """What `event_sha256` covers: the header line, then a fixed-width record per event."""
    yield canonical_json(ledger_header(config)) + b"\n"
    for event in events:
        yield _RECORD.pack(*[NULL if v is None else v for v in event])


def named(event: Event, request_ids: Sequence[str]) -> dict[str, Any]:
    """One event with names in place of codes and indexes, for people and Parquet."""
    row: dict[str, Any] = event._asdict()
    for column, codes in CODES.items():
        if row[column] is not None:
            row[column] = codes(row[column]).name.lower()
    for column in REQUEST_COLUMNS:
        if row[column] is not None:
            row[column] = request_ids[row[column]]
    return row


def json_lines(
    events: Iterable[Event], config: Config, request_ids: Sequence[str], limitations: Sequence[str]
) -> Iterator[bytes]:
    """`events.jsonl`: header line with the limitations, then canonical JSON per event."""
    yield canonical_line({**ledger_header(config), "limitations": list(limitations)})
    for event in events:
        yield canonical_line(named(event, request_ids))
