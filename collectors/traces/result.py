"""From the rows of a public trace to a workload, and to the attempts that cannot be part of it.

A row without prompt or output tokens is a request somebody made, so it is kept and counted, but
nothing can be replayed of it. Time is rebased here, once for all formats: the earliest row of the
file, attempt or not, is microsecond 0. Too many rows, rows too far apart and a file without a
single request raise `InputError`.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

from collectors.traces.rows import SCHEMA, too_far
from replay.errors import InputError
from replay.parquet import write_frame
from replay.strict import MAX_SAFE_INTEGER
from replay.workload import FIELDS, Workload
from replay.workload_frame import BATCH_ROWS, Batches, Head, numbered, workload_of

ATTEMPTS_SCHEMA = "preemption-attempts/1"
ATTEMPTS_ENDING = ".attempts.parquet"
ATTEMPTS = pl.Schema(
    {
        "source_row": pl.Int64(),
        "reason": pl.String(),
        "arrival_us": pl.Int64(),
        "prompt_tokens": pl.Int64(),
        "output_tokens": pl.Int64(),
    }
)
_KEPT = ("line", "time_ns", "prompt_tokens", "output_tokens", "tenant", "prefix_blocks")


@dataclass(frozen=True)
class Source:
    """A published trace format: its name here, where it comes from, on what terms.

    `time_field` is the column messages name; `notes` say in the provenance what was done to the
    rows.
    """

    name: str
    title: str
    license: str
    attribution: str
    time_field: str
    notes: tuple[str, ...]
    prefix_block_tokens: int | None = None


@dataclass(frozen=True)
class ImportResult:
    """What came of a file: its workload, and its other rows.

    `attempts` has one row for each request that cannot become a workload row, in file order:
    `source_row` (its line in the file, from 1 and counting the header), `reason`, `arrival_us`, and
    token counts, null where the trace has none.
    """

    batches: Batches
    attempts: pl.DataFrame = field(default_factory=ATTEMPTS.to_frame)

    @cached_property
    def workload(self) -> Workload:
        """The workload as objects, for what is small."""
        return workload_of(self.batches, "import")

    @property
    def attempts_by_reason(self) -> dict[str, int]:
        """Number of attempts for each reason that occurs."""
        return count_by_reason(self.attempts)


def build(
    pieces: Iterable[pl.DataFrame], source: Source, place: str, max_requests: int
) -> ImportResult:
    """Workload by arrival (ties in file order) with ids in that order, and the attempts.

    `max_requests` bounds all rows, attempts too, so that memory is bounded by it.
    """
    kept, attempts = _split(pieces, place, max_requests)
    start_ns: int = pl.concat([kept["time_ns"], attempts["time_ns"]]).min() or 0  # type: ignore[assignment]
    kept, attempts = (_rebased(f, start_ns, place, source) for f in (kept, attempts))
    if not kept.height:
        found = f"{attempts.height} without prompt or output tokens" if attempts.height else "none"
        raise InputError(place, "", "must hold at least one request", found)
    # By the microsecond, as a workload does: dropped digits must not decide an order.
    if not kept["arrival_us"].is_sorted():
        kept = kept.sort("arrival_us", maintain_order=True)
    told = attempts.select(ATTEMPTS.names())
    provenance = _provenance(source, kept.height, told)
    head = Head(source.prefix_block_tokens, source.name, provenance)
    batches = Batches(head, kept.height, lambda: _batches(kept, source.name))
    return ImportResult(batches, told)


def attempts_beside(workload: Path) -> Path:
    """Where the attempts of a workload are kept."""
    return workload.with_name(workload.stem + ATTEMPTS_ENDING)


def write_attempts(result: ImportResult, path: Path) -> None:
    """Write the attempts as Parquet."""
    write_frame(result.attempts, path, {"schema": ATTEMPTS_SCHEMA})


def count_by_reason(attempts: pl.DataFrame) -> dict[str, int]:
    """Number of attempts for each reason that occurs."""
    return dict(attempts["reason"].value_counts().sort("reason").iter_rows())


def _split(
    pieces: Iterable[pl.DataFrame], place: str, max_requests: int
) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Rows that can be a workload's, and the others."""
    kept, attempts, rows = [SCHEMA.to_frame()], [SCHEMA.to_frame()], 0
    reason = pl.coalesce(
        "reason",
        pl.when(pl.col("prompt_tokens").fill_null(0) == 0).then(pl.lit("no_prompt")),
        pl.when(pl.col("output_tokens").fill_null(0) == 0).then(pl.lit("no_output")),
    )
    for piece in pieces:
        rows += piece.height
        if rows > max_requests:
            raise InputError(
                place, "", f"must hold at most {max_requests} requests (--max-requests)", "more"
            )
        told = piece.with_columns(reason=reason)
        kept.append(told.filter(pl.col("reason").is_null()))
        attempts.append(told.filter(pl.col("reason").is_not_null()))
    # Of millions of rows it is these columns that fill the memory.
    return pl.concat(kept).select(_KEPT), pl.concat(attempts)


def _rebased(frame: pl.DataFrame, start_ns: int, place: str, source: Source) -> pl.DataFrame:
    far = frame["time_ns"] > start_ns + (MAX_SAFE_INTEGER * 1000 + 999)
    if far.any():
        raise too_far(f"{place}:{frame['line'].filter(far)[0]}", source.time_field)
    moved = frame.with_columns((pl.col("time_ns") - start_ns) // 1000)
    return moved.rename({"time_ns": "arrival_us", "line": "source_row"})


def _batches(kept: pl.DataFrame, name: str) -> Iterator[pl.DataFrame]:
    """The workload's own columns, with ids in the order of arrival."""
    for start in range(0, kept.height, BATCH_ROWS):
        part = kept.slice(start, BATCH_ROWS)
        columns = {
            "request_id": numbered(start, part.height, kept.height, name),
            "priority": pl.lit(0, pl.Int64),
        }
        yield part.with_columns(**columns).select(FIELDS)


def _provenance(source: Source, requests: int, attempts: pl.DataFrame) -> dict[str, Any]:
    # Neither file name nor date: both can tell what a shared workload must not.
    return {
        "format": source.name,
        "source": source.title,
        "license": source.license,
        "attribution": source.attribution,
        "rows_read": requests + attempts.height,
        "attempts": count_by_reason(attempts),
        "notes": list(source.notes),
    }
