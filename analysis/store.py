"""The store: ledgers and runs as typed tables in one DuckDB file, rebuilt at will (SPEC §10).

The Parquet files are the source of truth. One load of one path is one transaction, so a load that
fails or is killed leaves what was there.
"""

import json
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb

from analysis import frames
from analysis.ahead import ahead
from analysis.database import SCHEMA, connect, create, transaction
from analysis.errors import ContentConflict
from analysis.gate.kept import check_kept
from analysis.growth import grown
from analysis.ledgers import (
    ADDED,
    AUTO,
    CHECKS,
    REFRESHED,
    STATES,
    THERE,
    EventProgress,
    Key,
    Prepared,
    add_ledger,
    known_ledgers,
    prepare,
    read_prepared,
)
from analysis.tables import insert_frame, insert_row, same_rows
from collectors.run import Run, read_run
from replay.canonical import canonical_json
from replay.errors import InputError
from replay.ledger import Ledger
from replay.strict import identifier, parse_json, printable, read_text, table

if TYPE_CHECKING:
    import polars as pl

__all__ = [
    "ADDED",
    "AUTO",
    "CHECKS",
    "REFRESHED",
    "SCHEMA",
    "STATES",
    "THERE",
    "Loaded",
    "connect",
    "create",
    "load_gate_report",
    "load_ledger",
    "load_path",
    "load_run",
]

Notice: TypeAlias = Callable[[Path], EventProgress | None]
_RUN_TABLES = {
    "measured_requests": "requests",
    "measured_events": "events",
    "measured_steps": "steps",
    "metric_samples": "samples",
}


@dataclass(frozen=True)
class Loaded:
    """What one ledger, run or gate report came to: `state` is added, refreshed or already there."""

    path: Path
    kind: str  # ledger, run or gate report
    id: str
    run_id: str | None
    state: str

    @property
    def added(self) -> bool:
        """Whether it is new in the store."""
        return self.state == ADDED


def load_run(
    db: duckdb.DuckDBPyConnection, run: Run, *, refresh: bool = False, workloads: bool = True
) -> bool:
    """Add a run; False if it is there already with the same content.

    One that was loaded while it was collected, and has only grown since, is replaced. Any other
    content under its id is a `ContentConflict`, unless `refresh` asks to replace that, too. Without
    `workloads` nothing is made that joins it to ledgers: for a store that holds none.
    """
    with transaction(db, str(run.path)):
        return _add_run(db, run, refresh=refresh, workloads=workloads) != THERE


def load_ledger(
    db: duckdb.DuckDBPyConnection,
    ledger: Ledger,
    place: str = "ledger",
    progress: EventProgress | None = None,
) -> bool:
    """Add a ledger that the oracle accepts; False if it is there already.

    `place` is for messages, `progress` hears how far the oracle is.
    """
    with transaction(db, place):
        return add_ledger(db, prepare(ledger, place), progress) == ADDED


def load_gate_report(
    db: duckdb.DuckDBPyConnection, report: Mapping[str, Any], place: str = "gate report"
) -> bool:
    """Add a gate's report; False if it is there already."""
    with transaction(db, place):
        return _add_report(db, report, place)


def load_path(
    db: duckdb.DuckDBPyConnection,
    path: Path,
    notice: Notice = lambda _: None,
    *,
    refresh: bool = False,
    check: str = AUTO,
) -> list[Loaded]:
    """Add what `path` holds, all of it or nothing.

    A directory with receipt.json is a ledger, one with manifest.json a run, a JSON file a gate
    report; any other directory stands for what `sources` finds in it. `notice` hears of each path
    before it is added, and may give who is to hear how far it is walked. `refresh`: `load_run`;
    `check`: one of `CHECKS`, how ledgers are. The next is read while one is added.
    """
    with transaction(db, printable(str(path), 200)):
        places, known = sources(path), known_ledgers(db)
        read = ahead(partial(_read, place, check, known) for place in places)
        with closing(read):
            loaded = []
            for place in places:
                progress = notice(place)
                loaded.append(_add(db, place, next(read), progress, refresh=refresh))
            return loaded


def sources(path: Path) -> list[Path]:
    """Ledgers, runs and reports that a path stands for; `InputError` where it is none.

    Of a directory that is neither its entries count, and where none of them is one, theirs: that
    is how a collecting service lays out its output.
    """
    if path.is_file() or _kind(path) is not None:
        return [path]
    place = printable(str(path), 200)
    rule = "must be a ledger (receipt.json), a run (manifest.json) or a directory of those"
    try:
        entries = sorted(path.iterdir())
    except OSError as exc:
        raise InputError(place, "", rule, exc.strerror) from exc
    found = _evidence(entries) or _evidence(
        inner for e in entries if e.is_dir() and not e.is_symlink() for inner in sorted(e.iterdir())
    )
    if not found:
        raise InputError(place, "", rule, f"a directory of {len(entries)} other entries")
    return found


def _evidence(entries: Iterable[Path]) -> list[Path]:
    """Entries that are a ledger or a run; a dot begins another command's unfinished output."""
    return [e for e in entries if not e.name.startswith(".") and _kind(e) is not None]


def _kind(path: Path) -> str | None:
    ledger, run = ((path / name).exists() for name in ("receipt.json", "manifest.json"))
    if ledger and run:
        rule = "must be a ledger or a run"
        raise InputError(printable(str(path), 200), "", rule, "both receipt.json and manifest.json")
    return "ledger" if ledger else "run" if run else None


def _read(path: Path, check: str, known: Collection[Key]) -> Prepared | Run | Mapping[str, Any]:
    """A ledger, run or gate report, read and checked as far as no database is needed."""
    match _kind(path):
        case "ledger":
            return read_prepared(path, check, known)
        case "run":
            return read_run(path)
    return table(parse_json(read_text(path), str(path)), str(path), "")


def _add(
    db: duckdb.DuckDBPyConnection,
    path: Path,
    found: Prepared | Run | Mapping[str, Any],
    progress: EventProgress | None,
    *,
    refresh: bool,
) -> Loaded:
    if isinstance(found, Prepared):
        state = add_ledger(db, found, progress)
        return Loaded(path, "ledger", found.row["ledger_id"], found.row["run_id"], state)
    if isinstance(found, Run):
        state = _add_run(db, found, refresh=refresh)
        return Loaded(path, "run", found.run_id, found.run_id, state)
    state = ADDED if _add_report(db, found, str(path)) else THERE
    return Loaded(path, "gate report", found["report_sha256"], None, state)


def _add_run(
    db: duckdb.DuckDBPyConnection, run: Run, *, refresh: bool, workloads: bool = True
) -> str:
    row = frames.run_row(run, workloads=workloads)
    tables = {t: getattr(run, a) for t, a in _RUN_TABLES.items()}
    known = db.execute(
        "SELECT manifest_sha256, manifest FROM measured_runs WHERE run_id = ?", [run.run_id]
    ).fetchone()
    if known is None:
        _insert_run(db, run, row, tables, workloads=workloads)
        return ADDED
    where = {"run_id": run.run_id}
    differing = [n for n, f in tables.items() if not same_rows(db, n, f, where)]
    if known[0] != row["manifest_sha256"]:
        differing.insert(0, "manifest.json")
    if not differing:
        return THERE
    if not refresh and not grown(db, run, json.loads(known[1]), tables):
        raise ContentConflict(
            f"{printable(str(run.path), 200)}: run {printable(run.run_id)} is already loaded with"
            f" other content ({', '.join(differing)}); preempt load --refresh replaces it by this"
        )
    for name in ("measured_workloads", *tables):
        db.execute(f"DELETE FROM {name} WHERE run_id = ?", [run.run_id])  # noqa: S608 - own names
    _insert_run(db, run, row, tables, workloads=workloads)
    return REFRESHED


def _insert_run(
    db: duckdb.DuckDBPyConnection,
    run: Run,
    row: Mapping[str, Any],
    tables: Mapping[str, "pl.DataFrame"],
    *,
    workloads: bool,
) -> None:
    insert_row(db, "measured_runs", row, replace=True)
    for form in frames.workload_rows(run, row) if workloads else ():
        insert_row(db, "measured_workloads", form)
    for name, frame in tables.items():
        insert_frame(db, name, frame)


def _add_report(db: duckdb.DuckDBPyConnection, report: Mapping[str, Any], place: str) -> bool:
    check_kept(report, place)
    gate = table(report.get("gate"), place, "gate")
    row = {
        "gate_name": identifier(gate.get("name"), place, "gate.name"),
        "verdict": report["verdict"],
        "gate_sha256": identifier(gate.get("sha256"), place, "gate.sha256"),
        "report_sha256": report["report_sha256"],
        "report": canonical_json(dict(report)).decode(),
    }
    query = "SELECT 1 FROM gate_results WHERE report_sha256 = ?"
    if db.execute(query, [report["report_sha256"]]).fetchone() is not None:
        return False
    insert_row(db, "gate_results", row)
    return True
