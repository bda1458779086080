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
from replay.workload import ENGINE_ARRIVAL, FIELDS, Workload, parse_requests, window
from replay.workload_file import read_workload

__all__ = [
    "ARRIVALS",
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
    "engine_of",
    "frame_schema",
    "has_arrive_events",
    "manifest_schema",
    "read_run",
    "run_workload",
    "until_the_end",
    "value_at",
]

MAX_ROWS = 10_000_000
ARRIVALS = ("time", "steps")


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
    first = value_at(manifest, "collection.first_parts") or {}
    tables: dict[str, Table] = {
        name: read_table(path, name, manifest["run_id"], max_rows, first.get(folder, 0))
        for name, folder in DIRECTORIES.items()
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


def run_workload(
    run: Run,
    start: int = 0,
    count: int | None = None,
    *,
    arrivals: str = "time",
    engine: int | None = None,
) -> Workload:
    """Requests `start` to `start + count` of a run, the first of a window arriving at 0.

    By `time`: what the run was offered; where no offered workload was kept, the measured requests
    that generated something. `engine` keeps one data-parallel engine's, None keeps all.

    By `steps`: what reached one engine (`engine_of`), `arrival_us` being the step that could first
    schedule the request, as its arrive event says (with `tick_us` 1 a tick is a step), and
    `output_tokens` what it generated. The whole run keeps the engine's own numbers of steps. Within
    a step requests are in the order of their arrive events; under the priority scheduler by
    `engine_arrival_us`, which it compares, where all have one. Where that is not the order of the
    steps (it is read before a prompt is tokenized), the workload has it too.

    Requests that make no row are counted in the provenance. A window that leaves the run is
    refused.
    """
    by_steps = arrivals == "steps"
    if by_steps:
        engine = engine_of(run, engine)
        whole, dropped = _stepped(run, engine)
    elif run.offered is not None:
        whole, dropped = _on_engine(run, run.offered, engine), {}
    else:
        whole, dropped = _measured(run, engine)
    part = window(whole, start, count, str(run.path))
    if by_steps and len(part) == len(whole):
        part = replace(part, requests=whole.requests)  # not moved: a tick stays its step
    found = part.provenance or {}
    provenance = {
        "source": "run",
        "run_id": run.run_id,
        "window": found["window"],
        "engine_version": run.manifest["engine"]["version"],
    }
    if engine is not None:
        provenance["engine"] = engine
    if by_steps:
        provenance["arrivals"] = arrivals
    name = f"{run.run_id}[{start}:{start + len(part)}]"
    return replace(part, name=name, provenance=provenance | dropped)


def engine_of(run: Run, engine: int | None) -> int:
    """Data-parallel engine to replay: the run's only one, or the one asked for.

    Each has its own steps and blocks, so one of several has to be chosen.
    """
    seen = pl.concat([run.events["engine"], run.requests["engine"]]).drop_nulls().unique().sort()
    engines: list[int] = seen.to_list() or [0]
    chosen = engines[0] if engine is None and len(engines) == 1 else engine
    if chosen is None or chosen not in engines:
        rule = f"must be one of {', '.join(map(str, engines))} (--engine chooses)"
        raise InputError(str(run.path), "engine", rule, "none" if chosen is None else str(chosen))
    return chosen


def has_arrive_events(run: Run, engine: int) -> bool:
    """Whether the steps in which requests reached this engine were recorded."""
    return not _arrived(run, engine).is_empty()


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


def _on_engine(run: Run, offered: Workload, engine: int | None) -> Workload:
    """What of the offered workload reached this engine."""
    if engine is None:
        return offered
    # A driver alone does not know which engine served a request: then there is only one.
    ids = set(run.requests.filter(pl.col("engine").fill_null(engine) == engine)["request_id"])
    return replace(offered, requests=tuple(r for r in offered.requests if r.request_id in ids))


def _measured(run: Run, engine: int | None) -> tuple[Workload, dict[str, Any]]:
    """Workload of the measured rows, and what of it goes into the provenance."""
    rows = run.requests
    if engine is not None:  # who names no engine has one
        rows = rows.filter(pl.col("engine").fill_null(engine) == engine)
    output = pl.when(pl.col("generated_tokens") >= 1).then(until_the_end())
    workload, no_output = _workload(run, rows.with_columns(output_tokens=output))
    return workload, {"dropped": {"no_output": no_output}}


def _stepped(run: Run, engine: int) -> tuple[Workload, dict[str, Any]]:
    """Workload of one engine's arrive events, and what of it goes into the provenance."""
    arrived = _arrived(run, engine)
    if arrived.is_empty():
        rule = "must hold arrive events for arrivals in steps (--arrivals time takes the clock's)"
        raise InputError(str(run.path), "events", rule, f"none of engine {engine}")
    rows = run.requests.filter(pl.col("engine").fill_null(engine) == engine)
    finished = run.events.filter((pl.col("kind") == "finish") & (pl.col("engine") == engine))
    finished = finished.select("request_id", finished="generated_tokens")
    finished = finished.unique("request_id", keep="last")
    found = (
        rows.drop("arrival_us")
        .join(arrived.select("request_id", "seq", arrival_us="step"), on="request_id")
        .join(finished, on="request_id", how="left")
        .with_columns(output_tokens=pl.coalesce("finished", until_the_end()))
    )
    compared = value_at(run.manifest, "scheduler.scheduling_policy") == "priority"
    compared = compared and not found[ENGINE_ARRIVAL].null_count()
    order = ["arrival_us", *([ENGINE_ARRIVAL] if compared else []), "seq"]
    workload, no_output = _workload(run, found.sort(order), compared=compared)
    unseen = rows.height - found["request_id"].n_unique()
    unknown = arrived.height - found.height
    dropped = {"no_output": no_output, "no_arrival": unseen, "no_request_row": unknown}
    return workload, {"dropped": dropped}


def _arrived(run: Run, engine: int) -> pl.DataFrame:
    return run.events.filter((pl.col("kind") == "arrive") & (pl.col("engine") == engine))


def until_the_end() -> pl.Expr:
    """What a request generated; one that the end of the run cut off would have gone on."""
    cut_off = (pl.col("status") == "censored") & (pl.col("max_tokens") >= 1)
    return pl.when(cut_off).then("max_tokens").otherwise("generated_tokens")


def _workload(run: Run, rows: pl.DataFrame, *, compared: bool = False) -> tuple[Workload, int]:
    """Rows with `output_tokens` as a workload, and how many had no output.

    `compared`: whether their engine arrivals are, and so have to be told where rows are not in
    that order.
    """
    chunk = value_at(run.manifest, "workload.prefix_block_tokens")
    usable = rows.filter(pl.col("output_tokens") >= 1)
    if chunk is None:
        usable = usable.with_columns(prefix_blocks=None)
    told = compared and not usable[ENGINE_ARRIVAL].is_sorted()
    fields = (*FIELDS, ENGINE_ARRIVAL) if told else FIELDS
    place = str(run.path)
    records = (
        (f"{place}: request {k}", row)
        for k, row in enumerate(usable.select(fields).iter_rows(named=True))
    )
    requests = parse_requests(records, chunk, place, MAX_ROWS)
    return Workload(requests, chunk), rows.height - usable.height
