"""JSON traces with hash ids: one object a line, the same for every format that has them.

The hash ids stand for the prompt's chunks of so many tokens, the last one perhaps partial; there is
one for each chunk in every row. They are renumbered, and what remains visible is only which chunks
are equal.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from collectors.traces.dense import Dense
from collectors.traces.lines import numbered_lines, place_of
from collectors.traces.result import ImportResult, Source, build
from collectors.traces.rows import Row, pieces, why_not
from replay.errors import InputError, describe
from replay.strict import MAX_SAFE_INTEGER, integer, only_keys, parse_json

MAX_LINE_BYTES = 2**21
_MOST_SHIFTS = 31

Record = dict[str, Any]


@dataclass(frozen=True)
class JsonFormat:
    """A format's own part; `source.prefix_block_tokens` is the chunk where nobody says another.

    `time_ns` takes the line's text, its record and its place; `other` says of a record, before
    its keys are checked, which other format it looks like, or None; `check` is what else the
    format asks of it.
    """

    keys: tuple[str, ...]
    source: Source
    time_ns: Callable[[str, Record, str], int]
    other: Callable[[Record], str | None]
    check: Callable[[Record, str], None] = lambda _, __: None


def read_json(
    path: Path, chosen: JsonFormat, max_requests: int, block_tokens: int | None
) -> ImportResult:
    """Workload with `prefix_blocks` of the file at `path` (plain or gzip; `-`: standard input)."""
    place, source = place_of(path), chosen.source
    if block_tokens is not None:
        source = replace(source, prefix_block_tokens=block_tokens)
    found = pieces(_rows(path, chosen, source.prefix_block_tokens or 1), place, source.time_field)
    return build(found, source, place, max_requests)


def _rows(path: Path, chosen: JsonFormat, chunk: int) -> Iterator[Row]:
    dense = Dense()
    for number, place, text in numbered_lines(path, MAX_LINE_BYTES):
        record = _record(text, chosen, place)
        time_ns = chosen.time_ns(text, record, place)
        prompt = integer(record["input_length"], place, "input_length")
        output = integer(record["output_length"], place, "output_length")
        hash_ids = _hash_ids(record["hash_ids"], place, prompt, chunk)
        chosen.check(record, place)
        # An attempt must not use up numbers: the workload's own stay without gaps.
        chunks = None if why_not(prompt, output) else dense.numbers(hash_ids)
        yield Row(number, time_ns, prompt, output, prefix_blocks=chunks)


def _record(text: str, chosen: JsonFormat, place: str) -> Record:
    record = parse_json(text, place, chosen.keys)
    if not isinstance(record, dict):
        raise InputError(place, "", "must be an object", describe(record))
    if (other := chosen.other(record)) is not None:
        raise InputError(place, "", other)
    only_keys(record, chosen.keys, place, quote=False)
    for key in chosen.keys:
        if key not in record:
            raise InputError(place, key, "is required", "nothing")
    return record


def _hash_ids(value: object, place: str, input_length: int, chunk: int) -> list[int]:
    if not isinstance(value, list):
        raise InputError(place, "hash_ids", "must be a list of integers", describe(value))
    if len(value) != (entries := -(-input_length // chunk)):
        rule = f"must have {entries} entries (input_length / {chunk}, rounded up)"
        raise InputError(place, "hash_ids", rule, describe(value) + _fitting(input_length, value))
    if set(map(type, value)) == {int} and min(value) >= 0 and max(value) <= MAX_SAFE_INTEGER:
        return value
    return [integer(h, place, f"hash_ids[{k}]") for k, h in enumerate(value)]


def _fitting(input_length: int, hash_ids: list[Any]) -> str:
    """Which block size would explain the row; a power of two, as all that are in use."""
    sizes = (2**shift for shift in range(_MOST_SHIFTS))
    fits = (size for size in sizes if -(-input_length // size) == len(hash_ids))
    size = next(fits, None) if input_length else None
    return "" if size is None else f"; --block-tokens {size} would fit this row"
