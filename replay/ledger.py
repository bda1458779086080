"""Ledger directories: the events of one replay with everything needed to verify them alone.

A directory holds `workload.parquet`, `config.toml`, `events.parquet`, `requests.parquet`,
`receipt.json` and, where written, `events.jsonl` (SPEC §7). It appears whole or not at all.
Files that are not what they claim raise `InputError`; a claim that is merely false is read as it
is, for `replay.oracle` to name.
"""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from replay.canonical import canonical_json
from replay.config import Config, read_config
from replay.errors import InputError, describe
from replay.events import (
    CODES,
    COLUMNS,
    REQUEST_COLUMNS,
    SCHEMA,
    Rows,
    event_sha256,
    export_header,
    from_frame,
    json_lines,
    to_frame,
)
from replay.output import new_directory
from replay.parquet import read_frame, write_frame
from replay.receipt import receipt_sha256
from replay.requests_table import columns, table_types
from replay.strict import MAX_SAFE_INTEGER, integer, open_regular, parse_json, read_text
from replay.workload import Workload
from replay.workload_file import write_workload

if TYPE_CHECKING:
    import polars as pl

    from replay.workload_columns import AnyWorkload, WorkloadColumns

FILES = (
    "workload.parquet",
    "config.toml",
    "events.parquet",
    "requests.parquet",
    "receipt.json",
    "events.jsonl",
)
_EVENT_TYPES = dict.fromkeys(COLUMNS, "int64") | dict.fromkeys((*CODES, *REQUEST_COLUMNS), "string")


class _Derived:
    """What follows from either form of a ledger; each hash is computed when it is first asked."""

    workload: "AnyWorkload"
    config: Config
    events: Rows
    receipt: dict[str, Any]

    @property
    def request_ids(self) -> list[str]:
        """Ids by the index that events use."""
        return self.workload.column("request_id").to_list()

    @cached_property
    def event_sha256(self) -> str:
        """Hash of the events' binary form."""
        return event_sha256(self.events, self.config)

    @cached_property
    def receipt_sha256(self) -> str:
        """Hash of the receipt without it; `ValueError` where JSON has no form for a number."""
        return receipt_sha256(self.receipt)


@dataclass(frozen=True, eq=False)
class Ledger(_Derived):
    """One replay: its inputs, its events, one row per request, and the receipt.

    `requests` has the columns of `requests.parquet` in their types, in workload order.
    """

    workload: Workload
    config: Config
    events: Rows
    requests: "pl.DataFrame"
    receipt: dict[str, Any]
    # As found in the files; None when the ledger was not read from any.
    header: dict[str, Any] | None = None
    lines: bytes | None = None


@dataclass(frozen=True, eq=False)
class LedgerColumns(_Derived):
    """A `Ledger` read from a directory, without an object per request.

    `named_events` are the events as `events.parquet` names them: integers, and names for codes and
    indexes; `events` is what they are in rows.
    """

    workload: "WorkloadColumns"
    config: Config
    events: Rows
    requests: "pl.DataFrame"
    receipt: dict[str, Any]
    header: dict[str, Any]
    lines: bytes | None
    named_events: "pl.DataFrame"

    def whole(self, place: str) -> Ledger:
        """The same with a `Workload`."""
        return Ledger(
            self.workload.whole(place),
            self.config,
            self.events,
            self.requests,
            self.receipt,
            self.header,
            self.lines,
        )


AnyLedger: TypeAlias = Ledger | LedgerColumns


def write_ledger(
    ledger: Ledger, path: Path, *, force: bool = False, jsonl: bool | None = None
) -> None:
    """Write the directory; an existing one is refused unless `force` (`OutputExists`).

    `jsonl` says whether `events.jsonl` is written; None leaves it to the profile: the lab does. A
    ledger of more events than could be read back is an `InputError`.
    """
    if len(ledger.events) > (most := most_events(ledger.workload, ledger.config)):
        rule = f"must hold at most {most} events to be read back"
        raise InputError(str(path), "", rule, str(len(ledger.events)))
    metadata = {
        k: v if isinstance(v, str) else canonical_json(v).decode()
        for k, v in export_header(ledger.config).items()
    }
    ids = ledger.request_ids
    with new_directory(path, force=force, owned=FILES) as directory:
        write_workload(ledger.workload, directory / "workload.parquet", ".parquet")
        (directory / "config.toml").write_text(ledger.config.toml(), encoding="utf-8")
        write_frame(to_frame(ledger.events, ids), directory / "events.parquet", metadata)
        write_frame(ledger.requests, directory / "requests.parquet", metadata)
        receipt = json.dumps(ledger.receipt, indent=1, ensure_ascii=False, sort_keys=True)
        (directory / "receipt.json").write_text(receipt + "\n", encoding="utf-8")
        if ledger.config.engine.profile == "lab" if jsonl is None else jsonl:
            with (directory / "events.jsonl").open("wb") as file:
                file.writelines(json_lines(ledger.events, ledger.config, ids))


def read_ledger(path: Path) -> Ledger:
    """Ledger of a directory, as its files say it is; nothing is checked against anything."""
    return read_ledger_columns(path).whole(str(path / "workload.parquet"))


def read_ledger_columns(path: Path) -> LedgerColumns:
    """What `read_ledger` reads, in columns: a tenth of the memory, a fifth of the time."""
    from replay.workload_columns import read_columns

    if not path.is_dir():
        raise InputError(str(path), "", "must be a ledger directory", _kind(path))
    # A replay by an assumed rule says so in its header; reading it back needs no leave.
    config = read_config(path / "config.toml", assume=True)
    workload = read_columns(path / "workload.parquet", config.limits.max_requests)
    receipt = parse_json(read_text(path / "receipt.json"), str(path / "receipt.json"))
    if not isinstance(receipt, dict):
        raise InputError(str(path / "receipt.json"), "", "must be an object", describe(receipt))
    most = most_events(workload, config)
    header, named_events = _read_events(path / "events.parquet", most, config)
    events = from_frame(named_events, workload.column("request_id"))
    requests = _read_requests(path / "requests.parquet", len(workload), config)
    lines = None
    if (path / "events.jsonl").exists():
        with open_regular(path / "events.jsonl") as file:
            lines = file.read(_MOST_BYTES_PER_EVENT * (len(events) + 64))
    return LedgerColumns(workload, config, events, requests, receipt, header, lines, named_events)


_MOST_BYTES_PER_EVENT = 4096
_EVENTS_PER_REQUEST = 6  # arrive, admit, first_token, complete or censored, two flags
_EVENTS_PER_PREEMPTION = 4  # preempt, swapped_out, resume, recovered
_PREEMPTIONS_PER_BLOCK = 64
_SPARE_PREEMPTIONS = 250_000
_MOST_PREEMPTION_BYTES = 2**31


def most_events(workload: "AnyWorkload", config: Config) -> int:
    """How many events a ledger may hold to be read back: a small file must not fill the memory.

    Parquet can claim any number of equal rows in a few bytes. A request brings six events, and more
    only by preemptions: one a tick at most, which bounds nothing where 10^9 ticks are allowed.
    Tokens bound none: a prefill in chunks can be evicted again and again before its next token. But
    whoever decodes asks for a block every `block_size` tokens, and the worst thrashing we could
    make of a trace (prefills by four tokens a step) had 12 preemptions for each such block. Some
    to spare are for small ledgers; of large ones the rows must fit the memory besides.
    """
    engine = config.engine
    by_ticks = min(engine.max_num_seqs, len(workload)) * config.limits.max_ticks
    blocks = len(workload) + int((workload.column("output_tokens") // engine.block_size).sum())
    by_blocks = _SPARE_PREEMPTIONS + _PREEMPTIONS_PER_BLOCK * blocks
    by_memory = _MOST_PREEMPTION_BYTES // (8 * len(COLUMNS) * _EVENTS_PER_PREEMPTION)
    preemptions = min(by_ticks, by_blocks, by_memory)
    return _EVENTS_PER_REQUEST * len(workload) + _EVENTS_PER_PREEMPTION * preemptions


def _read_events(path: Path, most: int, config: Config) -> tuple[dict[str, Any], "pl.DataFrame"]:
    place = str(path)
    frame, metadata = read_frame(path, most, SCHEMA, _EVENT_TYPES)
    header = {
        name: metadata.get(name)
        if isinstance(wanted, str)
        else parse_json(metadata.get(name) or "null", f"{place}: metadata {name}")
        for name, wanted in export_header(config).items()
    }
    for name in COLUMNS:
        if _EVENT_TYPES[name] == "int64":
            _check_safe(frame[name], place)
    return header, frame.select(COLUMNS)


def _check_safe(column: "pl.Series", place: str) -> None:
    """Refuse what no sum and no hash can hold; -2^63 would pass for null in the binary form."""
    import polars as pl

    # A bound must fit the type it is compared in.
    values = column if column.dtype == pl.Int64 else column.cast(pl.Int128)
    wrong = (values > MAX_SAFE_INTEGER) | (values < -MAX_SAFE_INTEGER)
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        integer(column[row], f"{place}: row {row}", column.name)


def _read_requests(path: Path, most: int, config: Config) -> "pl.DataFrame":
    timed = config.timing is not None
    wanted = columns(timed=timed)
    frame, _ = read_frame(path, most + 1, SCHEMA, wanted)
    for name, kind in wanted.items():
        if kind == "integer":
            _check_safe(frame[name], str(path))
    return frame.select(list(wanted)).cast(table_types(timed=timed))


def _kind(path: Path) -> str:
    return "a file" if path.exists() else "nothing"
