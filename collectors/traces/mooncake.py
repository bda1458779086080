"""Mooncake traces: one JSON object a line, with the hashes of the prompt's 512-token chunks.

Many rows share a millisecond, so file order is part of the data. Equal hash ids mean equal text
chunks; they are renumbered, and what remains visible is only which chunks are equal. Every row
that breaks a rule raises `InputError`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from collectors.traces.lines import numbered_lines, place_of
from collectors.traces.result import ImportResult, Row, Source, build, why_not
from replay.errors import InputError, describe
from replay.strict import integer, only_keys, parse_json
from replay.workload import MAX_REQUESTS

HASH_BLOCK_TOKENS = 512
MAX_LINE_BYTES = 2**20
KEYS = ("timestamp", "input_length", "output_length", "hash_ids")
SOURCE = Source(
    name="mooncake",
    title="Mooncake trace",
    license="Apache-2.0",
    attribution="Moonshot AI, https://github.com/kvcache-ai/Mooncake",
    time_field="timestamp",
    notes=(
        "arrival_us = (timestamp - the earliest) * 1000",
        "ordered by arrival_us, ties in file order",
        "hash_ids renumbered from 0 by first appearance in the file",
    ),
    prefix_block_tokens=HASH_BLOCK_TOKENS,
)


def read(path: Path, max_requests: int = MAX_REQUESTS) -> ImportResult:
    """Workload with `prefix_blocks` of the file at `path` (plain or gzip; `-`: standard input)."""
    return build(_rows(path), SOURCE, place_of(path), max_requests)


def _rows(path: Path) -> Iterator[Row]:
    dense: dict[int, int] = {}
    for number, place, text in numbered_lines(path, MAX_LINE_BYTES):
        record = _record(text, place)
        time_ms = integer(record["timestamp"], place, "timestamp")
        prompt = integer(record["input_length"], place, "input_length")
        output = integer(record["output_length"], place, "output_length")
        hash_ids = _hash_ids(record["hash_ids"], place, prompt)
        # An attempt must not use up numbers: the workload's own stay without gaps.
        chunks = (
            None
            if why_not(prompt, output)
            else tuple(dense.setdefault(h, len(dense)) for h in hash_ids)
        )
        yield Row(number, time_ms * 10**6, prompt, output, chunks)


def _record(text: str, place: str) -> dict[str, Any]:
    record = parse_json(text, place, KEYS)
    if not isinstance(record, dict):
        raise InputError(place, "", "must be an object", describe(record))
    only_keys(record, KEYS, place, quote=False)
    for key in KEYS:
        if key not in record:
            raise InputError(place, key, "is required", "nothing")
    return record


def _hash_ids(value: object, place: str, input_length: int) -> list[int]:
    if not isinstance(value, list):
        raise InputError(place, "hash_ids", "must be a list of integers", describe(value))
    if len(value) != (entries := -(-input_length // HASH_BLOCK_TOKENS)):
        rule = f"must have {entries} entries (input_length / {HASH_BLOCK_TOKENS}, rounded up)"
        raise InputError(place, "hash_ids", rule, describe(value))
    return [integer(h, place, f"hash_ids[{k}]") for k, h in enumerate(value)]
