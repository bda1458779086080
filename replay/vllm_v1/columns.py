"""What the `vllm-v1` scheduler reads of a workload, as columns."""

from dataclasses import dataclass

import numpy as np

from replay.vllm_v1.state import Ints
from replay.workload import ENGINE_ARRIVAL, Workload


@dataclass(frozen=True, eq=False)
class Columns:
    """A workload's requests in order, one array per field.

    `chunk_start` has one more entry than there are requests, and
    `chunks[chunk_start[r] + k]` is a number for chunk k of r's prompt and all chunks before it,
    from 0 without gaps; both empty without `prefix_blocks`. `engine_arrival_us` is None where the
    workload has none.
    """

    arrival_us: Ints
    prompt_tokens: Ints
    output_tokens: Ints
    priority: Ints
    chunk_start: Ints
    chunks: Ints
    chunk_tokens: int = 1
    engine_arrival_us: Ints | None = None

    def __len__(self) -> int:
        return len(self.arrival_us)


def columns_of(workload: Workload) -> Columns:
    """Columns of a workload."""
    requests = workload.requests
    chunk_start, chunks = _chunks(workload)
    engine_arrival_us = None
    if ENGINE_ARRIVAL in workload.fields:
        engine_arrival_us = np.array([r.engine_arrival_us for r in requests], np.int64)
    return Columns(
        arrival_us=np.array([r.arrival_us for r in requests], np.int64),
        prompt_tokens=np.array([r.prompt_tokens for r in requests], np.int64),
        output_tokens=np.array([r.output_tokens for r in requests], np.int64),
        priority=np.array([r.priority for r in requests], np.int64),
        chunk_start=chunk_start,
        chunks=chunks,
        chunk_tokens=workload.prefix_block_tokens or 1,
        engine_arrival_us=engine_arrival_us,
    )


def _chunks(workload: Workload) -> tuple[Ints, Ints]:
    numbers: dict[tuple[int, int], int] = {}
    chunks: list[int] = []
    start = [0]
    for request in workload.requests:
        so_far = -1
        for chunk in request.prefix_blocks or ():
            so_far = numbers.setdefault((so_far, chunk), len(numbers))
            chunks.append(so_far)
        start.append(len(chunks))
    return np.array(start, np.int64), np.array(chunks, np.int64)
