"""The rows a gate judges, read with the queries of `analysis/sql/gate`.

Every query is one file; Python only binds values. The database may be a file or in memory, it is
the same SQL.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from analysis.gate.contract import SLICE_COLUMNS, Design, Slice
from analysis.sqlfiles import sql

if TYPE_CHECKING:
    import duckdb

    from analysis.gate.comparability import GateRun

Row = Mapping[str, Any]


def rows(db: "duckdb.DuckDBPyConnection", name: str, **values: Any) -> list[Row]:
    """Rows of one query as dictionaries, in its own order."""
    result = db.execute(sql("gate", name), values)
    columns = [c[0] for c in result.description]
    return [dict(zip(columns, row, strict=True)) for row in result.fetchall()]


def run_ids(runs: "Sequence[GateRun]") -> list[str]:
    """Ids in report order."""
    return [r.run_id for r in runs]


def by_run(found: Sequence[Row]) -> dict[str, Row]:
    """Rows of a query with one row per run."""
    return {r["run_id"]: r for r in found}


def slice_rows(
    db: "duckdb.DuckDBPyConnection",
    name: str,
    part: Slice | None,
    runs: "Sequence[GateRun]",
    design: Design,
    **values: Any,
) -> list[Row]:
    """Rows of a query about the eligible requests of a slice, of all requests where it is None."""
    places = units(runs, design)
    if not places:
        return []
    db.execute(sql("gate", "eligible_requests"))  # the macro such queries share
    return rows(db, name, units=places, part=_bounds(part), **values)


def units(runs: "Sequence[GateRun]", design: Design) -> list[Row]:
    """What of which runs is looked at, as the macro `eligible_requests` takes it."""
    return [unit for run in runs for unit in _units(run, design)]


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


def _bounds(part: Slice | None) -> dict[str, Any]:
    """What a slice asks of each column, None where nothing."""
    bounds: dict[str, Any] = {"tenants": None}
    for column in set(SLICE_COLUMNS.values()) - {"tenant"}:
        bounds |= {f"{column}_min": None, f"{column}_max": None}
    for condition in part.where if part else ():
        column = SLICE_COLUMNS[condition.column]
        if condition.any_of is not None:
            bounds["tenants"] = list(condition.any_of)
        else:
            bounds |= {f"{column}_min": condition.min, f"{column}_max": condition.max}
    return bounds
