"""Spools for tests: records of a run that was recorded or replayed, and directories of them."""

import io
import json
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

import polars as pl

from collectors.columns import FILLED_ON_EVENT
from collectors.frames import append_frame
from collectors.run import Run

UNIX_NS = 1_764_482_462_000_345_000  # 2025-11-30T06:01:02.000345Z
MONOTONIC_NS = 5_000_000_000
Record = list[Any]


def header(**changes: Any) -> dict[str, Any]:
    """Header of part 0 of an engine like that of base-1."""
    told: dict[str, Any] = {
        "schema": "preemption-spool/1",
        "recorder_version": "0.1.0",
        "part": 0,
        "engine": 0,
        "pid": 7,
        "unix_ns": UNIX_NS,
        "monotonic_ns": MONOTONIC_NS,
        "vllm_version": "0.32.0",
        "model": "tinymodel",
        "device": {"kind": "cpu"},
        "parallel": {"tensor": 1, "pipeline": 1, "data": 1},
        "cache": {"block_size": 32, "num_gpu_blocks": 48, "enable_prefix_caching": False},
        "scheduler": {"scheduling_policy": "fcfs"},
        "cache_groups": [{"kind": "FullAttentionSpec", "block_size": 32}],
        "features": {},
        "sources": {"queue_ns": "the engine core's own events"},
    }
    return told | changes


def header_of(run: Run) -> dict[str, Any]:
    """Header of the engine that a manifest describes."""
    manifest = run.manifest
    return header(
        vllm_version=manifest["engine"]["version"],
        model=manifest["model"]["name"],
        **{name: manifest[name] for name in ("device", "parallel", "cache", "scheduler")},
    )


def records_of(run: Run) -> list[Record]:
    """What a recorder would have written while a driven run was made, steps where they are known.

    The engine's own arrival is its arrive event, first and last token are the client's.
    """
    rows = {row["request_id"]: row for row in run.requests.iter_rows(named=True)}
    steps = list(run.steps.sort("step").iter_rows(named=True))
    records: list[Record] = []
    numbers: dict[str, int] = {}
    for event in run.events.sort("seq").iter_rows(named=True):
        while steps and steps[0]["step"] < event["step"]:
            records.append(_step(steps.pop(0)))
        row, mark = rows[event["request_id"]], [event["seq"], event["step"], ns(event["time_us"])]
        n = numbers.setdefault(event["request_id"], len(numbers))
        match event["kind"]:
            case "arrive":
                records += [_request(n, row, event["time_us"]), ["A", *mark, n]]
            case "admit":
                records.append(["D", *mark, n, row["cached_tokens"]])
            case "preempt":
                records.append(["P", *mark, n, *(event[c] for c in PREEMPT)])
            case "resume":
                records.append(["U", *mark, n, 0])
            case "finish":
                records.append(["F", *mark, n, *_ending(row, event)])
    return [*records, *map(_step, steps)]


PREEMPT = FILLED_ON_EVENT["preempt"]
STEP = (
    *("scheduled_tokens", "prefill_tokens", "decode_requests", "kv_tokens", "free_blocks"),
    *("running", "waiting"),
)


def ns(time_us: int) -> int:
    """Monotonic mark of a time after the header."""
    return MONOTONIC_NS + 1000 * time_us


def _request(n: int, row: Mapping[str, Any], at_us: int) -> Record:
    sizes = [row["prompt_tokens"], row["max_tokens"], row["priority"]]
    return ["R", n, row["request_id"], UNIX_NS + 1000 * at_us, *sizes, row["prefix_blocks"]]


def _ending(row: Mapping[str, Any], event: Mapping[str, Any]) -> Record:
    counts = [event["generated_tokens"], event["num_preemptions"]]
    tokens: Record = [None, None]
    if row["ttft_us"] is not None:
        first = row["arrival_us"] + row["ttft_us"]
        tokens = [ns(first), ns(first + (row["decode_time_us"] or 0))]
    waits = [
        None if row[name] is None else 1000 * row[name]
        for name in ("queue_time_us", "requeue_time_us")
    ]
    return [*counts, row["status"], row["finish_reason"], *tokens, *waits]


def _step(row: Mapping[str, Any]) -> Record:
    return ["S", row["step"], ns(row["time_us"]), *(row[c] for c in STEP)]


def write_part(
    directory: Path, told: Mapping[str, Any], frames: Iterable[Sequence[Record]]
) -> Path:
    """One part: its header in the first frame, then a frame for each list of records."""
    directory.mkdir(parents=True, exist_ok=True)
    name = f"{told['engine']}-{told['pid']}-{told['unix_ns']}-{told['part']:05d}.spool.jsonl.gz"
    path = directory / name
    with path.open("wb") as file:
        append_frame(file, [json.dumps(told).encode()])
    append(path, frames)
    return path


def append(path: Path, frames: Iterable[Sequence[Record]]) -> None:
    """More frames at the end of a part."""
    with path.open("r+b") as file:
        file.seek(0, io.SEEK_END)
        for records in frames:
            append_frame(file, [json.dumps(record).encode() for record in records])


def write_spool(
    directory: Path,
    told: Mapping[str, Any],
    records: Sequence[Record],
    cuts: Sequence[tuple[int, bool]] = (),
) -> None:
    """A session whose frames end before the records at `cuts`, parts where a cut says so."""
    part, frames, start = 0, list[Sequence[Record]](), 0
    for end, new_part in [*sorted(cuts), (len(records), False)]:
        frames.append(records[start:end])
        start = end
        if new_part:
            write_part(directory, {**told, "part": part}, frames)
            part, frames = part + 1, []
    write_part(directory, {**told, "part": part}, frames)


def blank(frame: pl.DataFrame, columns: Iterable[str]) -> pl.DataFrame:
    """The frame with nothing in these columns."""
    return frame.with_columns(pl.lit(None, frame.schema[name]).alias(name) for name in columns)


class WritingRecorder:
    """A spool that is written while the block runs: short requests, some open for a while.

    `ended` are the ids whose end is on the disk. The block's end is the engine's.
    """

    def __init__(self, directory: Path, told: Mapping[str, Any], *, a_part: int = 12) -> None:
        clocks = {"unix_ns": time.time_ns(), "monotonic_ns": time.monotonic_ns()}
        self._directory, self._told = directory, {**told, **clocks}
        self._frames_of_a_part = a_part
        self._parts, self._n, self._seq = 0, 0, 0
        self.ended: list[str] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._path = self._next_part()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _next_part(self) -> Path:
        self._parts += 1
        return write_part(self._directory, {**self._told, "part": self._parts - 1}, [])

    def _write(self) -> None:
        open_now: int | None = None
        while not self._stop.wait(0.002):
            records, ended = self._begun(), []
            if open_now is not None:
                records, ended = [*records, self._end(open_now)], [open_now]
                open_now = None
            if self._n % 3:
                records.append(self._end(self._n))
                ended.append(self._n)
            else:
                open_now = self._n  # until the next frame, which may be another part's
            append(self._path, [records])
            self.ended += [f"r{n}" for n in ended]
            self._n += 1
            if self._n % self._frames_of_a_part == 0:
                self._path = self._next_part()
        last = [] if open_now is None else [self._end(open_now)]
        append(self._path, [[*last, ["E", time.monotonic_ns()]]])
        self.ended += [] if open_now is None else [f"r{open_now}"]

    def _begun(self) -> list[Record]:
        n, at = self._n, time.monotonic_ns()
        seq, self._seq = self._seq, self._seq + 2
        return [
            ["R", n, f"r{n}", time.time_ns(), 40, 2, 0, None],
            ["A", seq, n, at, n],
            ["D", seq + 1, n, at, n, 0],
            ["S", n, at, 40, 40, 0, 40, 45, 1, 0],
        ]

    def _end(self, n: int) -> Record:
        seq, self._seq = self._seq, self._seq + 1
        at = time.monotonic_ns()
        return ["F", seq, self._n, at, n, 2, 0, "ok", "length", at, at, 7000, 0]
