"""The rows a gate judges, read with the queries of `analysis/sql/gate`.

Every query is one file; Python only binds values. The database may be a file or in memory, it is
the same SQL.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from analysis.gate.contract import SLICE_COLUMNS, Design, Slice
from analysis.sqlfiles import sql

if TYPE_CHECKING:
    import duckdb

Row = Mapping[str, Any]


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


def slice_rows(
    db: "duckdb.DuckDBPyConnection",
    name: str,
    part: Slice | None,
    runs: Sequence[HasId],
    design: Design,
    **values: Any,
) -> list[Row]:
    """Rows of a query about the eligible requests of a slice, of all requests where it is None."""
    for macro in (
        "eligible_requests",
        "request_outcomes",
        "capped_values",
    ):  # that such queries share
        db.execute(sql("gate", macro))
    return rows(
        db,
        name,
        run_ids=run_ids(runs),
        warmup_us=design.warmup_us,
        follow_up_us=design.follow_up_us,
        part=_bounds(part),
        **values,
    )


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
