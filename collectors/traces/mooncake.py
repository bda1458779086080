"""Mooncake traces: one JSON object a line, with the hashes of the prompt's 512-token chunks.

Many rows share a millisecond, so file order is part of the data. An id stands for its chunk and all
before it, so equal leading ids are a shared prefix. Every row that breaks a rule raises
`InputError`.
"""

from pathlib import Path

from collectors.traces.json_rows import JsonFormat, Record, read_json
from collectors.traces.likely import says_what_else
from collectors.traces.result import ImportResult, Source
from replay.errors import InputError, describe
from replay.strict import integer
from replay.workload import MAX_REQUESTS

HASH_BLOCK_TOKENS = 512
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
SOURCES = (SOURCE,)
_MILLISECOND_NS = 10**6


@says_what_else(SOURCE.name)
def read(
    path: Path, max_requests: int = MAX_REQUESTS, block_tokens: int | None = None
) -> ImportResult:
    """Workload with `prefix_blocks` of the file at `path` (plain or gzip; `-`: standard input)."""
    return read_json(path, _FORMAT, max_requests, block_tokens)


def _time_ns(_: str, record: Record, place: str) -> int:
    if isinstance(record["timestamp"], float):
        rule = "must be an integer, in milliseconds (of seconds: preempt import timed-trace)"
        raise InputError(place, "timestamp", rule, describe(record["timestamp"]))
    return integer(record["timestamp"], place, "timestamp") * _MILLISECOND_NS


def _other(record: Record) -> str | None:
    if "chat_id" in record:
        return (
            "looks like a Bailian trace (chat_id), whose timestamps are seconds, not milliseconds;"
            " use preempt import bailian"
        )
    return None


_FORMAT = JsonFormat(KEYS, SOURCE, _time_ns, _other)
