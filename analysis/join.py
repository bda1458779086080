"""Modelled beside measured, request by request, and never two things that are not alike unnamed.

*Fidelity* asks whether the model is right, so it compares like with like only: `NotComparable`
names every field that differs, and what is unknown differs. A *what-if* is the same run's requests
under another capacity, rule or policy, and every row says so.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import duckdb

from analysis.comparable import ENGINE_FIELDS, METRICS_ONLY, SCHEDULER_FIELDS, WITHOUT_DRIVER
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
_MOST_CHARACTERS = 40
_HASH_DIGITS = 12


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
    differ = [_shown(row) for row in found if _known(row)]
    not_known = [_shown(row) for row in found if not _known(row)]
    fields = [row["field"] for row in found]
    if source is not None and source != run_id:
        others = _compare_runs(db, source, run_id)
        fields += [f for f in (*others.differ, *others.not_known) if f not in fields]
        of = f"of {printable(source)}, its workload's run"
        differ += [f"{field} ({of})" for field in others.differ]
        if others.loaded:
            not_known += [f"{field} ({of})" for field in others.not_known]
        else:
            not_known.append(f"every field {of}: not loaded")
    if fields:
        what = f"ledger {ledger_id[:12]} and run {printable(run_id)}"
        raise NotComparable(what, fields, differ, not_known)
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
    query = """
        SELECT r.offered_requests IS NULL AND q.run_id IS NULL
        FROM measured_runs AS r
        LEFT JOIN (SELECT DISTINCT run_id FROM measured_requests) AS q ON q.run_id = r.run_id
        WHERE r.run_id = ?"""
    found = db.execute(query, [run_id]).fetchone()
    if found is None:
        raise AnalysisError(f"run {printable(run_id)}: is not loaded; add it with preempt load")
    if found[0]:
        raise AnalysisError(f"run {printable(run_id)}: holds no requests to join; {METRICS_ONLY}")


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


@dataclass(frozen=True)
class _Others:
    """How the run that a workload came from is not like another; all unknown where not loaded."""

    loaded: bool
    differ: list[str]
    not_known: list[str]


def _compare_runs(db: duckdb.DuckDBPyConnection, source: str, run_id: str) -> _Others:
    columns = ", ".join(name.replace(".", "_") for name in RUN_FIELDS)
    query = f"SELECT {columns} FROM measured_runs WHERE run_id = ?"  # noqa: S608 - own names
    found = [db.execute(query, [one]).fetchone() for one in (source, run_id)]
    first, second = (
        dict(zip(RUN_FIELDS, row or [None] * len(RUN_FIELDS), strict=True)) for row in found
    )
    unlike = [f for f in RUN_FIELDS if not _alike(f, first, second)]
    not_known = [f for f in unlike if None in (first[f], second[f])]
    return _Others(found[0] is not None, [f for f in unlike if f not in not_known], not_known)


def _alike(field: str, first: Mapping[str, Any], second: Mapping[str, Any]) -> bool:
    if field == "device.driver" and first["device.kind"] in WITHOUT_DRIVER:
        return bool(first[field] == second[field])
    return first[field] is not None and bool(first[field] == second[field])


def _known(row: Row) -> bool:
    return None not in (row["modelled_value"], row["measured_value"])


def _shown(row: Row) -> str:
    """The field with both values; of a hash its first digits, which tell it from another."""
    most = _HASH_DIGITS if row["field"].endswith("_sha256") else _MOST_CHARACTERS
    values = (row[f"{side}_value"] for side in ("modelled", "measured"))
    modelled, measured = ("unknown" if v is None else printable(v, most) for v in values)
    return f"{row['field']} (modelled {modelled}, measured {measured})"


def _rows(db: duckdb.DuckDBPyConnection, query: str, keys: Mapping[str, str | None]) -> list[Row]:
    found = db.execute(query, dict(keys))
    names = [column[0] for column in found.description or ()]
    return [dict(zip(names, row, strict=True)) for row in found.fetchall()]
