"""Ledger directories: the events of one replay with everything needed to verify them alone.

A directory holds `workload.parquet`, `config.toml`, `events.parquet`, `requests.parquet`,
`receipt.json` and, where written, `events.jsonl` (SPEC §7). It appears whole or not at all.
Files that are not what they claim raise `InputError`; a claim that is merely false is read as it
is, for `replay.oracle` to name.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replay.canonical import canonical_json
from replay.config import Config, read_config
from replay.errors import InputError, describe
from replay.events import (
    CODES,
    COLUMNS,
    REQUEST_COLUMNS,
    SCHEMA,
    Event,
    json_lines,
    ledger_header,
    named,
)
from replay.limitations import LIMITATIONS
from replay.output import new_directory
from replay.parquet import read_frame, write_frame
from replay.requests_table import COLUMNS as REQUEST_TABLE
from replay.strict import MAX_SAFE_INTEGER, integer, open_regular, parse_json, read_text
from replay.workload import Workload
from replay.workload_file import read_workload, write_workload

if TYPE_CHECKING:
    import polars as pl

FILES = (
    "workload.parquet",
    "config.toml",
    "events.parquet",
    "requests.parquet",
    "receipt.json",
    "events.jsonl",
)
UNKNOWN = -1  # code of a name no workload or code table knows
_EVENT_TYPES = dict.fromkeys(COLUMNS, "integer") | dict.fromkeys(
    (*CODES, *REQUEST_COLUMNS), "string"
)


@dataclass(frozen=True)
class Ledger:
    """One replay: its inputs, its events, one row per request, and the receipt."""

    workload: Workload
    config: Config
    events: Sequence[Event]
    requests: Sequence[dict[str, Any]]
    receipt: dict[str, Any]
    # As found in the files; None when the ledger was not read from any.
    header: dict[str, Any] | None = None
    lines: bytes | None = None

    @property
    def request_ids(self) -> list[str]:
        """Ids by the index that events use."""
        return [r.request_id for r in self.workload.requests]


def write_ledger(ledger: Ledger, path: Path, *, force: bool = False, jsonl: bool = True) -> None:
    """Write the directory; an existing one is refused unless `force` (`OutputExists`)."""
    import polars as pl

    header = ledger_header(ledger.config)
    metadata = {
        k: v if isinstance(v, str) else canonical_json(v).decode() for k, v in header.items()
    }
    metadata["limitations"] = canonical_json(list(LIMITATIONS)).decode()
    ids = ledger.request_ids
    types = {"string": pl.String, "integer": pl.Int64, "boolean": pl.Boolean, "float": pl.Float64}
    with new_directory(path, force=force, owned=FILES) as directory:
        write_workload(ledger.workload, directory / "workload.parquet", ".parquet")
        (directory / "config.toml").write_text(ledger.config.toml(), encoding="utf-8")
        events = pl.DataFrame(
            [named(e, ids) for e in ledger.events],
            schema={name: types[kind] for name, kind in _EVENT_TYPES.items()},
        )
        requests = pl.DataFrame(
            list(ledger.requests), schema={k: types[t] for k, t in REQUEST_TABLE.items()}
        )
        for name, frame in (("events.parquet", events), ("requests.parquet", requests)):
            write_frame(frame, directory / name, metadata)
        receipt = json.dumps(ledger.receipt, indent=1, ensure_ascii=False, sort_keys=True)
        (directory / "receipt.json").write_text(receipt + "\n", encoding="utf-8")
        if jsonl:
            with (directory / "events.jsonl").open("wb") as file:
                file.writelines(json_lines(ledger.events, ledger.config, ids, LIMITATIONS))


def read_ledger(path: Path) -> Ledger:
    """Ledger of a directory, as its files say it is; nothing is checked against anything."""
    if not path.is_dir():
        raise InputError(str(path), "", "must be a ledger directory", _kind(path))
    config = read_config(path / "config.toml")
    workload = read_workload(path / "workload.parquet", config.limits.max_requests)
    receipt = parse_json(read_text(path / "receipt.json"), str(path / "receipt.json"))
    if not isinstance(receipt, dict):
        raise InputError(str(path / "receipt.json"), "", "must be an object", describe(receipt))
    header, events = _read_events(path / "events.parquet", workload, config)
    requests = _read_requests(path / "requests.parquet", len(workload))
    lines = None
    if (path / "events.jsonl").exists():
        with open_regular(path / "events.jsonl") as file:
            lines = file.read(_MOST_BYTES_PER_EVENT * (len(events) + 64))
    return Ledger(workload, config, events, requests, receipt, header, lines)


_MOST_BYTES_PER_EVENT = 4096
_MOST_EVENTS_PER_TICK_AND_REQUEST = 8


def _read_events(
    path: Path, workload: Workload, config: Config
) -> tuple[dict[str, Any], list[Event]]:
    place = str(path)
    most = _MOST_EVENTS_PER_TICK_AND_REQUEST * len(workload) * config.limits.max_ticks
    frame, metadata = read_frame(path, most, SCHEMA, _EVENT_TYPES)
    header = {
        name: parse_json(metadata.get(name) or "null", f"{place}: metadata {name}")
        if name in ("columns", "policy", "limitations")
        else metadata.get(name)
        for name in (*ledger_header(config), "limitations")
    }
    for name in COLUMNS:
        if name not in (*CODES, *REQUEST_COLUMNS):
            _check_safe(frame[name], place)
    index = {r.request_id: k for k, r in enumerate(workload.requests)}
    codes: dict[str, dict[str, int]] = {
        column: {c.name.lower(): c.value for c in kind} for column, kind in CODES.items()
    } | dict.fromkeys(REQUEST_COLUMNS, index)
    columns = {
        name: [
            None if value is None else codes[name].get(value, UNKNOWN)
            for value in frame[name].to_list()
        ]
        if name in codes
        else frame[name].to_list()
        for name in COLUMNS
    }
    return header, [Event(*row) for row in zip(*columns.values(), strict=True)]


def _check_safe(column: "pl.Series", place: str) -> None:
    """Refuse what no sum and no hash can hold; -2^63 would pass for null in the binary form."""
    wrong = (column > MAX_SAFE_INTEGER) | (column < -MAX_SAFE_INTEGER)
    if wrong.any():
        row = int(wrong.arg_max() or 0)
        integer(column[row], f"{place}: row {row}", column.name)


def _read_requests(path: Path, most: int) -> list[dict[str, Any]]:
    frame, _ = read_frame(path, most + 1, SCHEMA, REQUEST_TABLE)
    return frame.select(list(REQUEST_TABLE)).to_dicts()


def _kind(path: Path) -> str:
    return "a file" if path.exists() else "nothing"
