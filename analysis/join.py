"""Modelled beside measured, request by request, and never two things that are not alike unnamed.

*Fidelity* asks whether the model is right, so it compares like with like only: `NotComparable`
names every field that differs, and what is unknown differs. A *what-if* is the same run's requests
under another capacity, rule or policy, and every row says so.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import duckdb

from analysis.comparable import ENGINE_FIELDS, SCHEDULER_FIELDS, WITHOUT_DRIVER
from analysis.errors import AnalysisError, NotComparable
from analysis.sqlfiles import sql
from replay.strict import printable

# What two runs must have in common before one stands for the other.
RUN_FIELDS = (
    *ENGINE_FIELDS,
    "cache.block_size",
    "cache.num_gpu_blocks",
    "cache.dtype",
    "cache.enable_prefix_caching",
    *SCHEDULER_FIELDS,
)
Row = dict[str, Any]


def fidelity_join(db: duckdb.DuckDBPyConnection, ledger_id: str, run_id: str) -> list[Row]:
    """Every request of a ledger beside the run's, columns as in `joined_requests`, by request_id.

    The ledger's configuration and workload must be the run's; where its workload came from another
    run, that one must be loaded and be the same engine, model, device and configuration too. Else
    `NotComparable`. A request on one side only is a row whose other columns are None.
    """
    _require_run(db, run_id)
    source = _source_run(db, ledger_id, run_id)
    keys = {"ledger_id": ledger_id, "ledger_run_id": source, "run_id": run_id}
    found = _rows(db, sql("joins", "differences"), keys)
    fields = [row["field"] for row in found]
    shown = [_shown(row) for row in found]
    if source is not None and source != run_id:
        others = [f for f in _differing_runs(db, source, run_id) if f not in fields]
        fields += others
        shown += [
            f"{field} (of {printable(source)}, which its workload came from)" for field in others
        ]
    if fields:
        raise NotComparable(f"ledger {ledger_id[:12]} and run {printable(run_id)}", fields, shown)
    return _rows(db, sql("joins", "fidelity"), keys)


def what_if_join(db: duckdb.DuckDBPyConnection, ledger_id: str, run_id: str) -> list[Row]:
    """Rows of `joined_requests` for a ledger and the run its workload came from, by request_id.

    `join_kind` and `join_differences` label every row; another run's requests are refused
    (`NotComparable`), because equal ids need not be equal requests.
    """
    _require_run(db, run_id)
    source = _source_run(db, ledger_id, run_id)
    if source != run_id:
        raise NotComparable(
            f"ledger {ledger_id[:12]} and run {printable(run_id)}",
            ["run_id"],
            ["run_id (a what-if joins only the run that the workload came from)"],
        )
    return _rows(db, sql("joins", "what_if"), {"ledger_id": ledger_id, "run_id": run_id})


def _require_run(db: duckdb.DuckDBPyConnection, run_id: str) -> None:
    query = "SELECT 1 FROM measured_runs WHERE run_id = ?"
    if db.execute(query, [run_id]).fetchone() is None:
        raise AnalysisError(f"run {printable(run_id)}: is not loaded; add it with preempt load")


def _source_run(db: duckdb.DuckDBPyConnection, ledger_id: str, run_id: str) -> str | None:
    """Run the ledger's workload came from: `run_id` if it did, else none, else the first by name.

    One ledger can have several when the same workload was offered in several runs.
    """
    query = "SELECT run_id FROM modelled_ledgers WHERE ledger_id = ? ORDER BY run_id NULLS FIRST"
    found = [source for (source,) in db.execute(query, [ledger_id]).fetchall()]
    if not found:
        name = printable(ledger_id[:12])
        raise AnalysisError(f"ledger {name}: is not loaded; add it with preempt load")
    source: str | None = run_id if run_id in found else found[0]
    return source


def _differing_runs(db: duckdb.DuckDBPyConnection, one: str, other: str) -> list[str]:
    """Fields in which two runs differ: all of them where one is not loaded."""
    columns = ", ".join(name.replace(".", "_") for name in RUN_FIELDS)
    rows: list[Sequence[Any]] = []
    for run_id in (one, other):
        query = f"SELECT {columns} FROM measured_runs WHERE run_id = ?"  # noqa: S608 - own names
        found = db.execute(query, [run_id]).fetchone()
        rows.append([None] * len(RUN_FIELDS) if found is None else found)
    first, second = (dict(zip(RUN_FIELDS, row, strict=True)) for row in rows)
    return [f for f in RUN_FIELDS if not _alike(f, first, second)]


def _alike(field: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    if field == "device.driver" and first["device.kind"] in WITHOUT_DRIVER:
        return bool(first[field] == second[field])
    return first[field] is not None and bool(first[field] == second[field])


def _shown(row: Row) -> str:
    values = (row[f"{side}_value"] for side in ("modelled", "measured"))
    modelled, measured = ("unknown" if v is None else printable(v, 40) for v in values)
    return f"{row['field']} (modelled {modelled}, measured {measured})"


def _rows(db: duckdb.DuckDBPyConnection, query: str, keys: Mapping[str, str | None]) -> list[Row]:
    found = db.execute(query, dict(keys))
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
