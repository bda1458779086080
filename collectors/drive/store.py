"""A drive's journal becomes the rows of its run: at the end, or after a kill by `--finish`."""

import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from collectors.drive.journal import Found, read_journal
from collectors.drive.seen import CLIENT_SCHEMA, Seen, client_row, request_row
from collectors.writer import RunWriter
from replay.output import new_file
from replay.parquet import read_frame, write_frame
from replay.workload import Request, Workload

CLIENT = "client.parquet"
PART_ROWS = 100_000
_TEXTS = ("request_id", "problem")
# Problems of requests that no server ever heard of.
_NOT_CONNECTED = ("client_limit", "refused", "tls", "unreachable")
_MOST_LATE = 100  # more than one request in this many, and the client was behind


@dataclass(frozen=True)
class Summary:
    """What became of the requests offered; times in microseconds."""

    requests: int
    statuses: dict[str, int]
    problems: dict[str, int]
    late_requests: int
    max_lateness_us: int
    behind: bool
    held_to_limit: bool
    prompt_mismatches: int
    output_mismatches: int
    prompt_tokens: int
    generated_tokens: int
    send_end_us: int | None
    drain_end_us: int
    loop_lag_us: int | None
    notes: list[str]


def finish_run(writer: RunWriter, workload: Workload) -> Summary:
    """Write rows, client detail and manifest of a run from its journal."""
    found = read_journal(writer.path, len(workload))
    _write_rows(writer, workload, found)
    summary = _summary(workload, found)
    _write_client(writer.path / CLIENT, workload, found)
    manifest = dict(writer.manifest)
    manifest["send_end_us"], manifest["drain_end_us"] = summary.send_end_us, summary.drain_end_us
    manifest["driver"] = {
        **manifest["driver"],
        "behind": summary.behind,
        "late_requests": summary.late_requests,
        "max_lateness_us": summary.max_lateness_us,
        "notes": summary.notes,
    }
    writer.write_manifest(manifest)
    return summary


def not_connected(run: Path, most_rows: int) -> frozenset[str]:
    """Ids of requests that found no server, as far as the run's client detail tells; or none."""
    import polars as pl

    path = run / CLIENT
    if not os.path.lexists(path):
        return frozenset()
    names = client_row(Request("", 0, 1, 1), 0, None)
    types = {name: "string" if name in _TEXTS else "integer" for name in names}
    rows, _ = read_frame(path, most_rows, CLIENT_SCHEMA, types, tuple(names))
    found = rows.filter(pl.col("problem").is_in(_NOT_CONNECTED))["request_id"]
    return frozenset(found.drop_nulls())


def _rows(workload: Workload, found: Found, make: Any) -> Iterator[Any]:
    for place, request in enumerate(workload.requests):
        yield make(request, request.arrival_us, found.seen.get(place))


def _write_rows(writer: RunWriter, workload: Workload, found: Found) -> None:
    import polars as pl

    from collectors.columns import MEASURED_REQUESTS
    from collectors.values import dtype_of

    rows = list(_rows(workload, found, request_row))
    # Parts that a killed `--finish` wrote are there whole.
    for start in range(writer.next_part("measured_requests") * PART_ROWS, len(rows), PART_ROWS):
        part = rows[start : start + PART_ROWS]
        schema = {name: dtype_of(MEASURED_REQUESTS[name]) for name in part[0]}
        writer.write_part("measured_requests", pl.DataFrame(part, schema=schema))


def _write_client(path: Path, workload: Workload, found: Found) -> None:
    import polars as pl

    rows = list(_rows(workload, found, client_row))
    schema = {name: pl.String if name in _TEXTS else pl.Int64 for name in rows[0]}
    lag = "" if found.end is None else str(found.end.loop_lag_us)
    metadata = {"schema": CLIENT_SCHEMA, "loop_lag_us": lag}
    with new_file(path, force=True, mode=0o600) as temporary:
        write_frame(pl.DataFrame(rows, schema=schema), temporary, metadata)


def _summary(workload: Workload, found: Found) -> Summary:
    limit = found.settings.lateness_limit_us
    seen = found.seen
    late = sum(one.lateness_us > limit for one in seen.values())
    worst = max((one.lateness_us for one in seen.values()), default=0)
    statuses = Counter(one.status for one in seen.values())
    statuses["unsent"] = len(workload) - len(seen)
    held = any(one.sent_us - one.intended_us > one.lateness_us for one in seen.values())
    prompts, outputs = _mismatches(workload, seen)
    behind = late * _MOST_LATE > len(seen)
    end = found.end
    notes = []
    if behind:
        notes.append(f"{late} of {len(seen)} requests were sent more than {limit} us late")
    if held:
        limited = found.settings.concurrency
        notes.append(f"closed loop: sends waited for one of {limited} in flight to end")
    if prompts or outputs:
        notes.append(
            f"the server counted other prompt tokens in {prompts} requests that ended well,"
            f" and other output tokens in {outputs}"
        )
    if end is None:
        notes.append("the driver was killed; what was in flight is censored")
    elif end.stopped:
        notes.append(f"stopped early: {end.stopped}")
    if end is not None and end.scrapes_lost:
        notes.append(f"{end.scrapes_lost} pages found no room on the disk")
    return Summary(
        requests=len(workload),
        statuses={name: n for name, n in sorted(statuses.items()) if n},
        problems=dict(sorted(Counter(one.problem for one in seen.values() if one.problem).items())),
        late_requests=late,
        max_lateness_us=worst,
        behind=behind,
        held_to_limit=held,
        prompt_mismatches=prompts,
        output_mismatches=outputs,
        prompt_tokens=sum(one.prompt_tokens or 0 for one in seen.values()),
        generated_tokens=sum(one.completion_tokens or 0 for one in seen.values()),
        send_end_us=end.send_end_us if end else None,
        drain_end_us=end.drain_end_us if end else found.last_us,
        loop_lag_us=end.loop_lag_us if end else None,
        notes=notes,
    )


def _mismatches(workload: Workload, seen: dict[int, Seen]) -> tuple[int, int]:
    """Requests that ended well with other numbers of prompt and output tokens than asked for."""
    prompts = outputs = 0
    for place, one in seen.items():
        if one.status == "ok":
            request = workload.requests[place]
            prompts += one.prompt_tokens != request.prompt_tokens
            outputs += one.completion_tokens != request.output_tokens
    return prompts, outputs
