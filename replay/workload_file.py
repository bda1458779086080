"""Workloads in files: `.parquet`, `.jsonl` and `.json` in, the same out, equal content equal hash.

A `.jsonl` file is exactly the hashed text form, so its own SHA-256 is the workload's; name and
provenance travel in `.json` and in Parquet's key-value metadata. Malformed files raise
`InputError`; nothing is sized by what a file claims before its limit is checked.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

from replay.errors import InputError, describe
from replay.parquet import read_frame
from replay.strict import (
    decode,
    only_keys,
    open_regular,
    parse_json,
    printable,
    read_text,
)
from replay.workload import (
    ENGINE_ARRIVAL,
    KNOWN,
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
_KEYS = (*_OBJECT, *KNOWN)
COLUMNS = dict.fromkeys(KNOWN, "integer") | {
    "request_id": "string",
    "tenant": "string",
    "prefix_blocks": "list of integers",
}
MAY_LACK = (*OPTIONAL, ENGINE_ARRIVAL)


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
    raise unknown_suffix(path)


def write_workload(workload: Workload, path: Path, suffix: str) -> None:
    """Write to `path` in the form that `suffix` names (the final name's, not a temporary's)."""
    from replay.workload_frame import batches_of, write_workload_batches

    write_workload_batches(batches_of(workload), path, suffix)


def check_suffix(path: Path) -> None:
    """Refuse an output name before any work is done for it."""
    if path.suffix not in SUFFIXES:
        raise unknown_suffix(path)


def unknown_suffix(path: Path) -> InputError:
    """The fault of a name that ends in none of the forms."""
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


def _read_parquet(path: Path, limit: int, check: Check) -> Workload:
    place = str(path)
    frame, metadata = read_frame(path, limit, SCHEMA, COLUMNS, MAY_LACK)
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
