"""The event contract: 33 columns, their codes and the binary form that is hashed (SPEC §7).

A ledger's events are one integer array, a row per event; in memory they lie by row where a replay
made them, as in the binary form, and by column where a file was read. An `Event` is one row by
name, for code that looks at events one by one.
"""

import hashlib
import struct
from collections.abc import Iterator, Sequence
from enum import IntEnum
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from replay.canonical import canonical_json, canonical_line
from replay.config import Config
from replay.limitations import labels

if TYPE_CHECKING:
    import polars as pl

SCHEMA = "preemption-ledger/1"
NULL = -(2**63)
UNKNOWN = -1  # code of a name no workload or code table knows

# Events in rows: shape (events, 33), little-endian int64, columns in the order of `COLUMNS`,
# requests as indexes, names as codes, absent as NULL.
Rows: TypeAlias = NDArray[np.int64]


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
COLUMN = {name: k for k, name in enumerate(COLUMNS)}  # place of a column in a row
CODES: dict[str, type[IntEnum]] = {
    "kind": Kind,
    "recovery": Recovery,
    "recovery_reason": Reason,
}
REQUEST_COLUMNS = ("request_id", "requester_id")
NEVER_NULL = tuple(name for name, kind in Event.__annotations__.items() if kind is int)
_TYPE = np.dtype("<i8")
_RECORD = struct.Struct(f"<{len(COLUMNS)}q")
_CHUNK_ROWS = 4096  # about 1 MiB


def to_rows(events: Sequence[Event]) -> Rows:
    """Rows of events; a value beyond 64 bits raises `OverflowError`."""
    try:
        records = [_RECORD.pack(*[NULL if v is None else v for v in event]) for event in events]
    except struct.error as exc:
        raise OverflowError("an event holds a value that is no 64-bit integer") from exc
    return np.frombuffer(bytearray().join(records), _TYPE).reshape(len(events), len(COLUMNS))


def to_events(rows: Rows) -> list[Event]:
    """Events of rows: plain integers, None where a row holds NULL."""
    values = rows.astype(object)
    values[rows == NULL] = None
    return [Event._make(row) for row in values.tolist()]


def ledger_header(config: Config) -> dict[str, Any]:
    """Header of the binary form and of `events.jsonl`: it names the policy and the rule."""
    return {
        "columns": list(COLUMNS),
        "policy": {"recovery": config.policy.recovery, "victim": config.policy.victim},
        "profile": config.engine.profile,
        "rule": config.engine.rule,
        "schema": SCHEMA,
    }


def export_header(config: Config) -> dict[str, Any]:
    """`ledger_header` with what every export must say besides; Parquet metadata holds it too."""
    return ledger_header(config) | labels(config)


def binary_form(rows: Rows, config: Config) -> Iterator[bytes]:
    """What `event_sha256` covers: the header line, then all records, some at a time."""
    yield canonical_json(ledger_header(config)) + b"\n"
    for part in _parts(rows):
        yield rows[part].astype(_TYPE, copy=False).tobytes()


def event_sha256(rows: Rows, config: Config) -> str:
    """Hash of the binary form."""
    digest = hashlib.sha256()
    for part in binary_form(rows, config):
        digest.update(part)
    return digest.hexdigest()


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


def json_lines(rows: Rows, config: Config, request_ids: Sequence[str]) -> Iterator[bytes]:
    """`events.jsonl`: header line with the limitations, then canonical JSON per event."""
    yield canonical_line(export_header(config))
    for part in _parts(rows):
        for event in to_events(rows[part]):
            yield canonical_line(named(event, request_ids))


def names_by_code(
    request_ids: "Sequence[str] | pl.Series",
) -> "dict[str, Sequence[str] | pl.Series]":
    """For each column of names, the names by the code or index that rows hold."""
    codes: dict[str, Sequence[str] | pl.Series] = {
        column: [c.name.lower() for c in kind] for column, kind in CODES.items()
    }
    return codes | dict.fromkeys(REQUEST_COLUMNS, request_ids)


def to_frame(rows: Rows, request_ids: "Sequence[str] | pl.Series") -> "pl.DataFrame":
    """Rows as `events.parquet` holds them: names for codes and indexes, null for NULL.

    Every code and index must be a known one.
    """
    import polars as pl

    names = {c: pl.Series(v, dtype=pl.String) for c, v in names_by_code(request_ids).items()}
    columns = []
    for place, name in enumerate(COLUMNS):
        values = np.ascontiguousarray(rows[:, place])
        column, absent = pl.Series(name, values, pl.Int64), values == NULL
        if absent.any():
            column = column.set(pl.Series(absent), None)
        columns.append(names[name].gather(column).alias(name) if name in names else column)
    return pl.DataFrame(columns)


def from_frame(frame: "pl.DataFrame", request_ids: "Sequence[str] | pl.Series") -> Rows:
    """Rows of a frame of 64-bit integers and names; a name nobody knows becomes `UNKNOWN`.

    The ids must be unique.
    """
    import polars as pl

    kinds: dict[str, pl.Enum] = {}
    for name, names in names_by_code(request_ids).items():
        kinds[name] = kinds["request_id"] if name == "requester_id" else pl.Enum(names)
    columns = np.empty((len(COLUMNS), frame.height), _TYPE)
    for place, name in enumerate(COLUMNS):
        column = frame[name]
        if name in kinds:
            codes = column.cast(kinds[name], strict=False).to_physical().cast(pl.Int64)
            column = codes.fill_null(UNKNOWN).set(column.is_null(), None)
        columns[place] = column.cast(pl.Int64).fill_null(NULL).to_numpy()
    return columns.T


def columns_of(rows: Rows) -> NDArray[np.int64]:
    """The same numbers by column, each of them contiguous: shape (33, events)."""
    if rows.T.flags.c_contiguous:
        return rows.T
    columns = np.empty((len(COLUMNS), len(rows)), np.int64)
    for part in _parts(rows):
        columns[:, part] = rows[part].T
    return columns


def _parts(rows: Rows) -> Iterator[slice]:
    """Some rows at a time: what is turned at once should stay in the cache."""
    return (slice(start, start + _CHUNK_ROWS) for start in range(0, len(rows), _CHUNK_ROWS))
