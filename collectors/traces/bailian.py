"""Alibaba's Qwen-Bailian traces: one JSON object a line, with hashes of 16-token chunks.

They share four names with Mooncake's and not their unit: `timestamp` is seconds, as a decimal
number that is read from its text. Every row that breaks a rule raises `InputError`.
"""

from pathlib import Path

from collectors.traces.json_rows import JsonFormat, Record, read_json
from collectors.traces.likely import says_what_else
from collectors.traces.mooncake import KEYS as MOONCAKE_KEYS
from collectors.traces.result import ImportResult, Source
from collectors.traces.seconds import Seconds
from replay.errors import InputError, describe
from replay.strict import integer
from replay.workload import MAX_REQUESTS

HASH_BLOCK_TOKENS = 16
KEYS = (
    "chat_id",
    "parent_chat_id",
    "timestamp",
    "input_length",
    "output_length",
    "type",
    "turn",
    "hash_ids",
)
SOURCE = Source(
    name="bailian",
    title="Qwen-Bailian trace",
    license="Apache-2.0",
    attribution="Alibaba, https://github.com/alibaba-edu/qwen-bailian-usagetraces-anon",
    time_field="timestamp",
    notes=(
        "arrival_us counts whole microseconds since the earliest row, finer digits dropped",
        "ordered by arrival_us, ties in file order",
        "hash_ids renumbered from 0 by first appearance in the file",
        "chat_id, parent_chat_id and turn dropped: the turns of a chat are independent requests",
        "type dropped: the work of images and files is not modelled",
    ),
    prefix_block_tokens=HASH_BLOCK_TOKENS,
)
SOURCES = (SOURCE,)
_TIME = Seconds("timestamp")
_ROOT = -1


@says_what_else(SOURCE.name)
def read(
    path: Path, max_requests: int = MAX_REQUESTS, block_tokens: int | None = None
) -> ImportResult:
    """Workload with `prefix_blocks` of the file at `path` (plain or gzip; `-`: standard input)."""
    return read_json(path, _FORMAT, max_requests, block_tokens)


def _other(record: Record) -> str | None:
    if record.keys() == set(MOONCAKE_KEYS):
        return (
            "looks like a Mooncake trace (no chat_id), whose timestamps are milliseconds, not"
            " seconds; use preempt import mooncake"
        )
    return None


def _check(record: Record, place: str) -> None:
    integer(record["chat_id"], place, "chat_id")
    integer(record["parent_chat_id"], place, "parent_chat_id", _ROOT)
    integer(record["turn"], place, "turn", 1)
    if not isinstance(record["type"], str):
        raise InputError(place, "type", "must be a string", describe(record["type"]))


_FORMAT = JsonFormat(KEYS, SOURCE, _TIME.of_json, _other, _check)
