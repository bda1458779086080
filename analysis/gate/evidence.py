"""The rows a gate judges, read with the queries of `analysis/sql/gate`.

Every query is one file; Python only binds values. The database may be a file or in memory, it is
the same SQL.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from analysis.gate.contract import SLICE_COLUMNS, Design, Slice
from analysis.sqlfiles import sql
from replay.errors import InputError
from replay.strict import printable

if TYPE_CHECKING:
    import duckdb

    from analysis.gate.comparability import GateRun

Row = Mapping[str, Any]
_NOBODY: Row = {
    "unit": "",
    "side": "",
    "pair": 0,
    "follow_up_us": 0,
    "open": 0,
    "run_id": "",
    "from_us": 0,
    "until_us": 0,
}


class HasId(Protocol):
    """A run, by its id."""

    @property
    def run_id(self) -> str:
        """Id of the run in the store."""


def rows(db: "duckdb.DuckDBPyConnection", name: str, **values: Any) -> list[Row]:
    """Rows of one query as dictionaries, in its own order."""
    result = db.execute(sql("gate", name), values)
    columns = [c[0] for c in result.description]
    return [dict(zip(columns, row, strict=True)) for row in result.fetchall()]


def run_ids(runs: Sequence[HasId]) -> list[str]:
    """Ids in report order."""
    return [r.run_id for r in runs]


def by_run(found: Sequence[Row]) -> dict[str, Row]:
    """Rows of a query with one row per run."""
    return {r["run_id"]: r for r in found}


def loaded_runs(db: "duckdb.DuckDBPyConnection", ids: Sequence[str]) -> dict[str, Row]:
    """Rows of runs by their ids; one that is not there is an `InputError`."""
    loaded = by_run(rows(db, "runs", run_ids=list(ids)))
    for run_id in ids:
        if run_id not in loaded:
            raise InputError(f"run {printable(run_id)}", "", "is not loaded in this database")
    return loaded


def slice_rows(
    db: "duckdb.DuckDBPyConnection",
    name: str,
    part: Slice | None,
    runs: "Sequence[GateRun]",
    design: Design,
    *,
    nobody: bool = False,
    **values: Any,
) -> list[Row]:
    """Rows of a query about the eligible requests of a slice, of all requests where it is None.

    Where observation has no known end none is eligible: then the query is asked with `nobody` only.
    """
    places = units(runs, design) or ([_NOBODY] if nobody else [])
    if not places:
        return []
    for macro in ("eligible_requests", "request_outcomes", "capped_values"):  # that they share
        db.execute(sql("gate", macro))
    return rows(db, name, units=places, part=bounds(part), **values)


def units(runs: "Sequence[GateRun]", design: Design) -> list[Row]:
    """What of which runs is looked at, as the macro `eligible_requests` takes it."""
    found = [unit for run in runs for unit in _units(run, design)]
    # A run that stands on both sides, as those of a noise profile do, is looked at once.
    return list({(unit["unit"], unit["run_id"], unit["from_us"]): unit for unit in found}.values())


def _units(run: "GateRun", design: Design) -> list[Row]:
    """What of which run a row is about; nothing where nobody knows when observation ended."""
    end = run.value("drain_end_us")
    parts = run.parts
    if not parts and end is not None:
        parts = ((run.run_id, design.warmup_us, end - design.follow_up_us),)
    place = {"unit": run.run_id, "side": run.side, "pair": run.pair}
    place |= {"follow_up_us": design.follow_up_us, "open": run.open_requests}
    return [
        place | {"run_id": name, "from_us": first, "until_us": last} for name, first, last in parts
    ]


def bounds(part: Slice | None) -> dict[str, Any]:
    """What a slice asks of each column, None where nothing."""
    found: dict[str, Any] = {"tenants": None}
    for column in set(SLICE_COLUMNS.values()) - {"tenant"}:
        found |= {f"{column}_min": None, f"{column}_max": None}
    for condition in part.where if part else ():
        column = SLICE_COLUMNS[condition.column]
        if condition.any_of is not None:
            found["tenants"] = list(condition.any_of)
        else:
            found |= {f"{column}_min": condition.min, f"{column}_max": condition.max}
    return found
