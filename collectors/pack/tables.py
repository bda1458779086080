"""The columns of packed rows, and rows as frames."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from collectors.columns import MEASURED_EVENTS, MEASURED_REQUESTS, MEASURED_STEPS, TABLES

if TYPE_CHECKING:
    import polars as pl

_OF_THE_CLIENT = {"run_id", "tenant", "largest_gap_us"}
ROWS: Mapping[str, tuple[str, ...]] = {
    "measured_requests": tuple(c for c in MEASURED_REQUESTS if c not in _OF_THE_CLIENT),
    "measured_events": tuple(c for c in MEASURED_EVENTS if c != "run_id"),
    "measured_steps": tuple(c for c in MEASURED_STEPS if c != "run_id"),
}


def rows_frame(table: str, rows: list[tuple[Any, ...]]) -> "pl.DataFrame":
    """Rows of a table as a frame of its columns, all but what no engine knows."""
    import polars as pl

    from collectors.values import dtype_of

    schema = {name: dtype_of(TABLES[table][name]) for name in ROWS[table]}
    return pl.DataFrame(rows, schema=schema, orient="row")
