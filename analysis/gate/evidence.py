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
    db: "duckdb.DuckDBPyConnection", part: Slice, runs: "Sequence[GateRun]", design: Design
) -> list[Row]:
    """Eligible requests of a slice, one row per run whose end of observation is known."""
    binds: dict[str, Any] = {"tenants": None}
    for column in set(SLICE_COLUMNS.values()) - {"tenant"}:
        binds |= {f"{column}_min": None, f"{column}_max": None}
    for condition in part.where:
        column = SLICE_COLUMNS[condition.column]
        if condition.any_of is not None:
            binds["tenants"] = list(condition.any_of)
        else:
            binds |= {f"{column}_min": condition.min, f"{column}_max": condition.max}
    return rows(
        db,
        "slice_eligible",
        run_ids=run_ids(runs),
        warmup_us=design.warmup_us,
        follow_up_us=design.follow_up_us,
        **binds,
    )
