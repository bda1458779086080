"""From the rows of a public trace to a workload, and to the attempts that cannot be part of it.

A row without prompt or output tokens is a request somebody made, so it is kept and counted, but
nothing can be replayed of it. Time is rebased here, once for all formats: the earliest row of the
file, attempt or not, is microsecond 0. Too many rows, rows too far apart and a file without a
single request raise `InputError`.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, fields
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

from replay.errors import InputError
from replay.strict import MAX_SAFE_INTEGER
from replay.workload import Request, Workload

ATTEMPTS_SCHEMA = "preemption-attempts/1"
_MIN_ID_DIGITS = 8


@dataclass(frozen=True)
class Source:
    """A published trace format: its name here, where it comes from, on what terms.

    `time_field` is the column messages name; `time_note` and `notes` say in the provenance what
    was done to the rows.
    """

    name: str
    title: str
    license: str
    attribution: str
    time_field: str
    notes: tuple[str, ...]
    prefix_block_tokens: int | None = None


class Row(NamedTuple):
    """One row as a reader checked it: its line in the file, its time on the file's own clock."""

    line: int
    time_ns: int
    prompt_tokens: int
    output_tokens: int
    prefix_blocks: tuple[int, ...] | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """A request that cannot become a workload row, and why.

    `source_row` is its line in the file, from 1 and counting the header; token counts are None
    where the trace has none.
    """

    source_row: int
    reason: str
    arrival_us: int
    prompt_tokens: int | None
    output_tokens: int | None


@dataclass(frozen=True)
class ImportResult:
    """What came of a trace: its workload, and its other rows in file order."""

    workload: Workload
    attempts: tuple[Attempt, ...] = ()

    @property
    def attempts_by_reason(self) -> dict[str, int]:
        """Number of attempts for each reason that occurs."""
        return count_by_reason(self.attempts)


def why_not(prompt_tokens: int, output_tokens: int) -> str | None:
    """Reason why such a request is an attempt; None if it can be a workload row."""
    if prompt_tokens == 0:
        return "no_prompt"
    return "no_output" if output_tokens == 0 else None


def build(rows: Iterable[Row], source: Source, place: str, max_requests: int) -> ImportResult:
    """Workload by arrival (ties in file order) with ids in that order, and the attempts.

    `max_requests` bounds all rows, attempts too, so that memory is bounded by it.
    """
    kept: list[tuple[int, Row]] = []
    attempts: list[Attempt] = []
    for arrival_us, row in _rebased(rows, source, place, max_requests):
        if reason := why_not(row.prompt_tokens, row.output_tokens):
            numbers = (arrival_us, row.prompt_tokens, row.output_tokens)
            attempts.append(Attempt(row.line, reason, *numbers))
        else:
            kept.append((arrival_us, row))
    if not kept:
        found = f"{len(attempts)} without prompt or output tokens" if attempts else "none"
        raise InputError(place, "", "must hold at least one request", found)
    # By the microsecond, as a workload does: dropped digits must not decide an order.
    kept.sort(key=itemgetter(0))
    digits = max(_MIN_ID_DIGITS, len(str(len(kept) - 1)))
    requests = tuple(
        Request(
            request_id=f"{k:0{digits}}-{source.name}",
            arrival_us=arrival_us,
            prompt_tokens=row.prompt_tokens,
            output_tokens=row.output_tokens,
            prefix_blocks=row.prefix_blocks,
        )
        for k, (arrival_us, row) in enumerate(kept)
    )
    provenance = _provenance(source, len(kept) + len(attempts), attempts)
    workload = Workload(requests, source.prefix_block_tokens, source.name, provenance)
    return ImportResult(workload, tuple(attempts))


def write_attempts(result: ImportResult, path: Path) -> None:
    """Write the attempts as Parquet, one row each in file order, a column per field."""
    import polars as pl

    types = {f.name: pl.Int64 for f in fields(Attempt)} | {"reason": pl.String}
    frame = pl.DataFrame([asdict(a) for a in result.attempts], schema=types)
    frame.write_parquet(path, metadata={"schema": ATTEMPTS_SCHEMA})


def count_by_reason(attempts: Iterable[Attempt]) -> dict[str, int]:
    """Count the attempts of every reason that occurs."""
    return dict(sorted(Counter(a.reason for a in attempts).items()))


def _rebased(
    rows: Iterable[Row], source: Source, place: str, max_requests: int
) -> list[tuple[int, Row]]:
    held: list[Row] = []
    for row in rows:
        if len(held) == max_requests:
            raise InputError(place, "", f"must hold at most {max_requests} requests", "more")
        held.append(row)
    start_ns = min((r.time_ns for r in held), default=0)
    timed = [((r.time_ns - start_ns) // 1000, r) for r in held]
    for arrival_us, row in timed:
        if arrival_us > MAX_SAFE_INTEGER:
            rule = "must be within 2^53 - 1 microseconds of the earliest row"
            raise InputError(f"{place}:{row.line}", source.time_field, rule, "more")
    return timed


def _provenance(source: Source, rows_read: int, attempts: list[Attempt]) -> dict[str, Any]:
    # Neither file name nor date: both can tell what a shared workload must not.
    return {
        "format": source.name,
        "source": source.title,
        "license": source.license,
        "attribution": source.attribution,
        "rows_read": rows_read,
        "attempts": count_by_reason(attempts),
        "notes": list(source.notes),
    }
