"""Ledgers on their way into the store: read and checked before the database hears of them.

How a ledger was checked is kept with it. A ledger of some thousand events is *walked*: the oracle
derives each event again. Of a larger one whole columns are checked, which a hundred thousand events
take a quarter of a second; whoever wants it walked asks for that.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import duckdb

from analysis import frames
from analysis.database import REBUILD
from analysis.errors import ContentConflict
from analysis.tables import Unchanged, insert_file, insert_frame, insert_row, same_rows
from replay.errors import InputError
from replay.events import COLUMNS as EVENT_COLUMNS
from replay.ledger import AnyLedger, Ledger, LedgerColumns, read_ledger_columns
from replay.oracle.verify import Violations, verify_columns, verify_ledger
from replay.strict import printable

if TYPE_CHECKING:
    import polars as pl

EventProgress: TypeAlias = Callable[[int, int], None]  # (events verified, events)
Key: TypeAlias = tuple[str, str | None]  # ledger_id, run_id
CHECKS = AUTO, EVENTS, COLUMNS = "auto", "events", "columns"
WALKED_EVENTS = 50_000  # some five seconds
STATES = ADDED, REFRESHED, THERE = "added", "refreshed", "already there"


@dataclass(frozen=True)
class Prepared:
    """A ledger as rows; `unwalked` is what the oracle has to walk before they may go in."""

    place: str
    row: Mapping[str, Any]
    requests: "pl.DataFrame"
    events: "pl.DataFrame | Unchanged"
    unwalked: AnyLedger | None

    @property
    def key(self) -> dict[str, str | None]:
        """What its rows have in common in every table."""
        return {name: self.row[name] for name in ("ledger_id", "run_id")}


def known_ledgers(db: duckdb.DuckDBPyConnection) -> set[Key]:
    """Keys of the ledgers that a store has."""
    return set(db.execute("SELECT ledger_id, run_id FROM modelled_ledgers").fetchall())


def read_prepared(path: Path, check: str = AUTO, known: Collection[Key] = ()) -> Prepared:
    """A ledger directory as rows, its columns checked where that is all that will be.

    Those of the `known` are not: a store has them already.
    """
    file = Unchanged.before_reading(path / "events.parquet", EVENT_COLUMNS)
    ledger, place = read_ledger_columns(path), str(path)
    prepared = replace(prepare(ledger, place), events=file)
    lab = ledger.config.engine.profile == "lab"  # its equations are all of the walk
    if lab or check == EVENTS or (check == AUTO and len(ledger.events) <= WALKED_EVENTS):
        return prepared
    if frames.ledger_key(ledger, place) not in known:
        _refuse(verify_columns(ledger), place)
    row = {**prepared.row, "verified": COLUMNS}
    return replace(prepared, row=row, unwalked=None)


def prepare(ledger: AnyLedger, place: str) -> Prepared:
    """A ledger as rows, of which nothing but the hashes is checked."""
    row = {**frames.ledger_row(ledger, place), "verified": EVENTS}
    requests = frames.request_frame(ledger, place)
    return Prepared(place, row, requests, frames.event_frame(ledger, place), ledger)


def add_ledger(
    db: duckdb.DuckDBPyConnection, prepared: Prepared, progress: EventProgress | None = None
) -> str:
    """Put a ledger in, and say what that came to: one of `STATES`.

    One that is there is only compared; where its columns alone were checked, and now it is walked,
    that is noted.
    """
    where, place = prepared.key, printable(prepared.place, 200)
    matching = "ledger_id = $ledger_id AND run_id IS NOT DISTINCT FROM $run_id"
    found = db.execute(
        f"SELECT verified FROM modelled_ledgers WHERE {matching}",  # noqa: S608 - own text
        where,
    ).fetchone()
    if found is None:
        _walk(prepared, progress)
        insert_row(db, "modelled_ledgers", prepared.row)
        insert_frame(db, "modelled_requests", prepared.requests, where)
        if isinstance(prepared.events, Unchanged):
            insert_file(db, "modelled_events", prepared.events, where)
        else:
            insert_frame(db, "modelled_events", prepared.events, where)
        return ADDED
    # The receipt's hashes, just checked, hold everything else.
    if not same_rows(db, "modelled_requests", prepared.requests, where):
        raise ContentConflict(
            f"{place}: the ledger is already loaded with another requests.parquet;"
            f" preempt verify says which is right; use another database, or {REBUILD}"
        )
    if found == (COLUMNS,) and prepared.unwalked is not None:
        _walk(prepared, progress)
        db.execute(
            f"UPDATE modelled_ledgers SET verified = '{EVENTS}' WHERE {matching}",  # noqa: S608
            where,
        )
        return REFRESHED
    return THERE


def _walk(prepared: Prepared, progress: EventProgress | None) -> None:
    """Refuse what the oracle refuses; the hashes alone say only that nothing was changed since."""
    ledger, place = prepared.unwalked, prepared.place
    if isinstance(ledger, LedgerColumns):
        ledger = ledger.whole(place)
    if isinstance(ledger, Ledger):
        _refuse(verify_ledger(ledger, progress), place)


def _refuse(violations: Violations, place: str) -> None:
    if violations:
        first = violations[0]
        where = "" if first.seq is None else f"seq {first.seq}: "
        rule = f"must hold (preempt verify names {len(violations)} violations)"
        raise InputError(printable(place, 200), f"{where}{first.equation}", rule)
