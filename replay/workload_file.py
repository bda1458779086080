"""Workloads in files: `.parquet`, `.jsonl` and `.json` in, the same out, equal content equal hash.

A `.jsonl` file is exactly the hashed text form, so its own SHA-256 is the workload's; name and
provenance travel in `.json` and in Parquet's key-value metadata. Malformed files raise
`InputError`; nothing is sized by what a file claims before its limit is checked.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from replay.canonical import canonical_json
from replay.errors import InputError, describe
from replay.parquet import read_frame, write_frame
from replay.strict import (
    decode,
    only_keys,
    open_regular,
    parse_json,
    printable,
    read_text,
)
from replay.workload import (
    FIELDS,
    MAX_REQUESTS,
    OPTIONAL,
    SCHEMA,
    Check,
    Workload,
    parse_header,
    parse_origin,
    parse_requests,
)

SUFFIXES = (".parquet", ".jsonl", ".json")
MAX_LINE_BYTES = 16 * 2**20
_HEADER = ("prefix_block_tokens", "schema")
_OBJECT = (*_HEADER, "name", "provenance", "requests")
_KEYS = (*_OBJECT, *FIELDS)
_COLUMNS = dict.fromkeys(FIELDS, "integer") | {
    "request_id": "string",
    "tenant": "string",
    "prefix_blocks": "list of integers",
}


def read_workload(
    path: Path, max_requests: int = MAX_REQUESTS, check: Check = lambda _, __: None
) -> Workload:
    """Workload of a file, by its suffix; `-` is JSON Lines on standard input.

    `check` is called with each request and its place, and raises `InputError` for what else the
    caller asks of it.
    """
    if str(path) == "-":
        return _read_lines(sys.stdin.buffer, "standard input", max_requests, check)
    match path.suffix:
        case ".parquet":
            return _read_parquet(path, max_requests, check)
        case ".jsonl":
            with open_regular(path) as file:
                return _read_lines(file, str(path), max_requests, check)
        case ".json":
            return _read_object(path, max_requests, check)
    raise _unknown_suffix(path)


def write_workload(workload: Workload, path: Path, suffix: str) -> None:
    """Write to `path` in the form that `suffix` names (the final name's, not a temporary's)."""
    match suffix:
        case ".parquet":
            _write_parquet(workload, path)
        case ".jsonl":
            with path.open("wb") as file:
                file.writelines(workload.text_lines())
        case ".json":
            path.write_bytes(_object_form(workload))
        case _:
            raise _unknown_suffix(path.with_suffix(suffix))


def check_suffix(path: Path) -> None:
    """Refuse an output name before any work is done for it."""
    if path.suffix not in SUFFIXES:
        raise _unknown_suffix(path)


def _unknown_suffix(path: Path) -> InputError:
    return InputError(printable(str(path), 200), "", f"must end in one of {', '.join(SUFFIXES)}")


def _read_lines(file: BinaryIO, place: str, limit: int, check: Check) -> Workload:
    lines = _numbered(file, place)
    first = next(lines, None)
    if first is None:
        raise InputError(place, "", "must not be empty", "no line")
    chunk, ahead = None, [first]
    if isinstance(first[1], dict) and not {"schema", "prefix_block_tokens"}.isdisjoint(first[1]):
        only_keys(first[1], _HEADER, first[0], quote=False)
        chunk, ahead = parse_header(first[1], first[0]), []

    def records() -> Iterator[tuple[str, Any]]:
        yield from ahead
        yield from lines

    return Workload(parse_requests(records(), chunk, place, limit, check), chunk)


def _numbered(file: BinaryIO, place: str) -> Iterator[tuple[str, Any]]:
    number = 0
    while line := file.readline(MAX_LINE_BYTES + 1):
        number += 1
        where = f"{place}:{number}"
        if len(line) > MAX_LINE_BYTES:
            raise InputError(where, "", f"must be at most {MAX_LINE_BYTES} bytes a line", "more")
        if line.strip():
            yield where, parse_json(decode(line, where), where, _KEYS)


def _read_object(path: Path, limit: int, check: Check) -> Workload:
    place = str(path)
    record = parse_json(read_text(path), place, _KEYS)
    if not isinstance(record, dict):
        raise InputError(place, "", "must be an object", describe(record))
    only_keys(record, _OBJECT, place, quote=False)
    chunk = parse_header(record, place)
    requests = record.get("requests")
    if not isinstance(requests, list):
        raise InputError(place, "requests", "must be a list", describe(requests))
    rows = ((f"{place}: requests[{k}]", r) for k, r in enumerate(requests))
    name, provenance = parse_origin(record, place)
    return Workload(parse_requests(rows, chunk, place, limit, check), chunk, name, provenance)


def _object_form(workload: Workload) -> bytes:
    head = workload.header() | {"name": workload.name, "provenance": workload.provenance}
    head = {k: v for k, v in head.items() if v is not None or k in _HEADER}
    lines = list(workload.text_lines())[1:]
    body = b",\n  ".join(line.rstrip(b"\n") for line in lines)
    return canonical_json(head)[:-1] + b',"requests":[\n  ' + body + b"\n]}\n"


def _read_parquet(path: Path, limit: int, check: Check) -> Workload:
    place = str(path)
    frame, metadata = read_frame(path, limit, SCHEMA, _COLUMNS, OPTIONAL)
    chunk = parse_header(
        {"schema": metadata.get("schema")} | _json_metadata(metadata, "prefix_block_tokens", place),
        place,
    )
    records = ((f"{place}: row {k}", r) for k, r in enumerate(frame.iter_rows(named=True)))
    requests = parse_requests(records, chunk, place, limit, check)
    name, provenance = parse_origin(metadata | _json_metadata(metadata, "provenance", place), place)
    return Workload(requests, chunk, name, provenance)


def _json_metadata(metadata: dict[str, str], key: str, place: str) -> dict[str, Any]:
    text = metadata.get(key)
    return {} if text is None else {key: parse_json(text, f"{place}: metadata {key}")}


def _write_parquet(workload: Workload, path: Path) -> None:
    import polars as pl

    dtypes: dict[str, Any] = {
        "integer": pl.Int64,
        "string": pl.String,
        "list of integers": pl.List(pl.Int64),
    }
    columns = {
        name: [
            list(value) if isinstance(value := getattr(r, name), tuple) else value
            for r in workload.requests
        ]
        for name in _COLUMNS
    }
    metadata = {
        "schema": SCHEMA,
        "prefix_block_tokens": json.dumps(workload.prefix_block_tokens),
    }
    if workload.name is not None:
        metadata["name"] = workload.name
    if workload.provenance is not None:
        metadata["provenance"] = canonical_json(dict(workload.provenance)).decode()
    frame = pl.DataFrame(columns, schema={name: dtypes[kind] for name, kind in _COLUMNS.items()})
    write_frame(frame, path, metadata)
