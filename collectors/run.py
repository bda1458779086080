"""One measured run, read whole and strictly: what collectors hand to analysis (SPEC §9).

A run directory holds `manifest.json`, in a driven run `offered.jsonl`, and Parquet parts of
measured tables. Anything malformed raises `InputError` with the file, the row or field and the
rule; nothing is half read. What nobody recorded is null, never zero.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import polars as pl

from collectors.columns import (
    DIRECTORIES,
    EVENT_KINDS,
    KINDS,
    MEASURED_EVENTS,
    MEASURED_REQUESTS,
    MEASURED_STEPS,
    METRIC_SAMPLES,
    RUN_KINDS,
    SCHEMA,
    STATUSES,
    TABLES,
)
from collectors.manifest import check_manifest, manifest_schema, read_manifest, value_at
from collectors.parts import Table, frame_schema, inside, read_table
from replay.errors import InputError
from replay.workload import FIELDS, Workload, parse_requests, window
from replay.workload_file import read_workload

__all__ = [
    "DIRECTORIES",
    "EVENT_KINDS",
    "KINDS",
    "MAX_ROWS",
    "MEASURED_EVENTS",
    "MEASURED_REQUESTS",
    "MEASURED_STEPS",
    "METRIC_SAMPLES",
    "RUN_KINDS",
    "SCHEMA",
    "STATUSES",
    "TABLES",
    "Run",
    "check_manifest",
    "frame_schema",
    "manifest_schema",
    "read_run",
    "run_workload",
    "value_at",
]

MAX_ROWS = 10_000_000


@dataclass(frozen=True, eq=False)
class Run:
    """A measured run: its manifest, what was offered, and one frame per measured table.

    Frames have exactly the contract's columns and types in the contract's order; a table or column
    that was not recorded is empty or null. Times are microseconds since the run's start.
    `not_finite` counts by column of `samples` the floats that became null.
    """

    path: Path
    run_id: str
    manifest: Mapping[str, Any]
    offered: Workload | None
    requests: pl.DataFrame
    events: pl.DataFrame
    steps: pl.DataFrame
    samples: pl.DataFrame
    not_finite: Mapping[str, int]


def read_run(path: Path, max_rows: int = MAX_ROWS) -> Run:
    """Run of a directory; `max_rows` bounds each table, and the offered requests."""
    if not os.path.isdir(path):  # noqa: PTH112 - is_dir raises on a name that is too long
        found = "something else" if os.path.lexists(path) else "nothing there"
        raise InputError(str(path), "", "must be a run directory", found)
    place = inside(path, "manifest.json")
    if not os.path.lexists(place):
        raise InputError(str(path), "manifest.json", "is required", "nothing")
    manifest = read_manifest(place)
    tables: dict[str, Table] = {
        name: read_table(path, name, manifest["run_id"], max_rows) for name in TABLES
    }
    return Run(
        path=path,
        run_id=manifest["run_id"],
        manifest=manifest,
        offered=_offered(path, manifest, max_rows),
        requests=tables["measured_requests"].frame,
        events=tables["measured_events"].frame,
        steps=tables["measured_steps"].frame,
        samples=tables["metric_samples"].frame,
        not_finite=tables["metric_samples"].not_finite,
    )


def run_workload(run: Run, start: int = 0, count: int | None = None) -> Workload:
    """Requests `start` to `start + count` of what the run was offered, the first arriving at 0.

    Where no offered workload was kept, it is made from the measured requests that generated
    something; the others are counted in the provenance. A window that leaves the run is refused.
    """
    whole, dropped = (run.offered, {}) if run.offered is not None else _measured(run)
    part = window(whole, start, count, str(run.path))
    found = part.provenance or {}
    provenance = {
        "source": "run",
        "run_id": run.run_id,
        "window": found["window"],
        "engine_version": run.manifest["engine"]["version"],
    }
    name = f"{run.run_id}[{start}:{start + len(part)}]"
    return replace(part, name=name, provenance=provenance | dropped)


def _offered(path: Path, manifest: Mapping[str, Any], max_requests: int) -> Workload | None:
    place = inside(path, "offered.jsonl")
    if not os.path.lexists(place):
        return None
    offered = read_workload(place, max_requests)
    stated = manifest["workload"]["workload_sha256"]
    if stated is not None and stated != offered.sha256:
        rule = f"must be the workload of manifest.json, workload_sha256 {stated}"
        raise InputError(str(place), "", rule, offered.sha256)
    return offered


def _measured(run: Run) -> tuple[Workload, dict[str, Any]]:
    """Workload of the measured rows, and what of it goes into the provenance."""
    chunk = value_at(run.manifest, "workload.prefix_block_tokens")
    # A request that the end of the run cut off would have gone on to its limit.
    cut_off = (pl.col("status") == "censored") & (pl.col("max_tokens") >= 1)
    output = pl.when(cut_off).then("max_tokens").otherwise("generated_tokens")
    usable = run.requests.filter(pl.col("generated_tokens") >= 1).with_columns(output_tokens=output)
    if chunk is None:
        usable = usable.with_columns(prefix_blocks=None)
    place = str(run.path)
    rows = (
        (f"{place}: request {k}", row)
        for k, row in enumerate(usable.select(FIELDS).iter_rows(named=True))
    )
    requests = parse_requests(rows, chunk, place, MAX_ROWS)
    no_output = run.requests.height - usable.height
    return Workload(requests, chunk), {"dropped": {"no_output": no_output}}
