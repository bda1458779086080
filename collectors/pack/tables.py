"""The columns of packed rows, and rows as frames."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from collectors.columns import MEASURED_EVENTS, MEASURED_REQUESTS, MEASURED_STEPS, TABLES

if TYPE_CHECKING:
    import polars as pl

ROWS: Mapping[str, tuple[str, ...]] = {
    "measured_requests": tuple(c for c in MEASURED_REQUESTS if c not in {"run_id", "tenant"}),
    "measured_events": tuple(c for c in MEASURED_EVENTS if c != "run_id"),
    "measured_steps": tuple(c for c in MEASURED_STEPS if c != "run_id"),
}


def rows_frame(table: str, rows: list[tuple[Any, ...]]) -> "pl.DataFrame":
    """Rows of a table as a frame of its columns, all but `run_id` and `tenant`."""
    import polars as pl

    from collectors.values import dtype_of

    schema = {name: dtype_of(TABLES[table][name]) for name in ROWS[table]}
    return pl.DataFrame(rows, schema=schema, orient="row")
