"""A store with rows for every named query, and their answers as rows of Python."""

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from typing import Any

import duckdb
import numpy as np
import polars as pl
from paged import paged
from stored import engine_ledger, lab_ledger, recorded, sealed, window

from analysis import store
from analysis.named import named_query
from collectors.run import Run
from replay.config import parse_config
from replay.ledger import Ledger

Row = dict[str, Any]
QUANTILES = (50, 90, 95, 99)
LATENCIES = {
    "ttft": "ttft_us",
    "tpot": "tpot_us",
    "e2e": "e2e_us",
    "queue": "queue_time_us",
    "requeue": "requeue_time_us",
}


def renamed(run: Run, run_id: str, **tables: pl.DataFrame) -> Run:
    """The run under another name, with other tables where given."""
    names = ("requests", "events", "steps", "samples")
    named = {n: tables.get(n, getattr(run, n)).with_columns(run_id=pl.lit(run_id)) for n in names}
    return replace(run, run_id=run_id, manifest={**run.manifest, "run_id": run_id}, **named)


@cache
def faulty() -> Run:
    """base-1, had every tenth request ended otherwise: in each of the five ways there are."""
    ends = ("aborted", "error", "censored", "unsent", "rejected")
    rows = recorded().requests.to_dicts()
    for k, row in tuple(enumerate(rows))[::10]:
        row["status"] = ends[k // 10 % 5]
        row["e2e_us"] = None
        row["generated_tokens"] = 7
        if row["status"] in ("unsent", "rejected"):
            empty = ("engine", "generated_tokens", "num_preemptions", *LATENCIES.values())
            row.update(dict.fromkeys(empty))
        if k % 100 == 0:
            row["tenant"] = None
    requests = pl.DataFrame(rows, schema=recorded().requests.schema)
    kept = requests.filter(pl.col("engine").is_not_null())["request_id"]
    events = recorded().events.filter(pl.col("request_id").is_in(kept.to_list()))
    return renamed(recorded(), "faulty", requests=requests, events=events)


@cache
def timed_ledger() -> Ledger:
    """40 requests through a timed replay in which some are preempted."""
    engine = {
        "profile": "vllm-v1",
        "rule": "vllm-0.32.0",
        "block_size": 32,
        "capacity_blocks": 30,
        "max_num_seqs": 128,
        "max_num_batched_tokens": 2048,
        "max_model_len": 960,
    }
    timing = {
        "step_ns": 20_000_000,
        "prefill_token_ps": 10_000_000,
        "decode_request_ps": 200_000_000,
        "kv_token_ps": 100_000,
    }
    return sealed(window(), parse_config({"engine": engine, "timing": timing}, "config"))


def fill(db: duckdb.DuckDBPyConnection, *, backwards: bool = False) -> None:
    """Two recorded runs, one with failures, one of metrics alone, and three replays."""
    loads: list[Run | Ledger] = [recorded(), recorded("cand-80"), faulty(), paged("scraped")]
    loads += [lab_ledger(), engine_ledger(), timed_ledger()]
    for each in reversed(loads) if backwards else loads:
        if isinstance(each, Run):
            store.load_run(db, each)
        else:
            store.load_ledger(db, each)


def asked(db: duckdb.DuckDBPyConnection, name: str, **where: Any) -> list[Row]:
    """Rows of a named query, those with these values."""
    rows = rows_of(db.execute(named_query(name).text))
    return [row for row in rows if all(row[key] == value for key, value in where.items())]


def rows_of(found: duckdb.DuckDBPyConnection) -> list[Row]:
    """What was fetched, each row by its columns' names."""
    columns = [column[0] for column in found.description or ()]
    return [dict(zip(columns, row, strict=True)) for row in found.fetchall()]


def ledger_events(db: duckdb.DuckDBPyConnection, ledger: Ledger) -> list[Row]:
    """Events of a ledger in their order, kinds and requests by name."""
    query = "SELECT * FROM modelled_events WHERE ledger_id = ? ORDER BY seq"
    return rows_of(db.execute(query, [ledger.receipt["receipt_sha256"]]))


def summary(values: Sequence[float]) -> list[Any]:
    """How many there are, and their quantiles, None without any."""
    found = np.quantile(values, [q / 100 for q in QUANTILES]) if values else [None] * 4
    return [len(values), *found]
