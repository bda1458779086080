"""The input of `vllm bench serve --dataset-name timed_trace`, as `preempt export` writes it.

One JSON object a line with Mooncake's keys, and `timestamp` in seconds. Nothing in such a file says
so: whoever calls it a timed trace does. Every row that breaks a rule raises `InputError`.
"""

from pathlib import Path

from collectors.traces.json_rows import JsonFormat, Record, read_json
from collectors.traces.likely import says_what_else
from collectors.traces.mooncake import KEYS
from collectors.traces.result import ImportResult, Source
from collectors.traces.seconds import Seconds
from replay.workload import MAX_REQUESTS

HASH_BLOCK_TOKENS = 16  # vLLM's own default
SOURCE = Source(
    name="timed-trace",
    title="timed trace for vllm bench serve",
    license="the file does not say",
    attribution="the file does not say",
    time_field="timestamp",
    notes=(
        "arrival_us counts whole microseconds since the earliest row, finer digits dropped",
        "ordered by arrival_us, ties in file order",
        "hash_ids renumbered from 0 by first appearance in the file",
    ),
    prefix_block_tokens=HASH_BLOCK_TOKENS,
)
SOURCES = (SOURCE,)
_TIME = Seconds("timestamp")


@says_what_else(SOURCE.name)
def read(
    path: Path, max_requests: int = MAX_REQUESTS, block_tokens: int | None = None
) -> ImportResult:
    """Workload with `prefix_blocks` of the file at `path` (plain or gzip; `-`: standard input)."""
    return read_json(path, _FORMAT, max_requests, block_tokens)


def _other(record: Record) -> str | None:
    if "chat_id" in record:
        return "looks like a Bailian trace (chat_id); use preempt import bailian"
    return None


_FORMAT = JsonFormat(KEYS, SOURCE, _TIME.of_json, _other)
