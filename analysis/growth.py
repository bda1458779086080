"""Whether a run is one that was loaded while it was collected, and has only grown since.

Nobody has to ask for that to be loaded again: nothing that was loaded changes or goes.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import duckdb

from analysis.tables import same_rows
from collectors.run import Run

if TYPE_CHECKING:
    import polars as pl

# What of a manifest changes while a run is collected; all else only becomes known.
_GROWING = frozenset(
    {
        "scrapes",
        "metric_names",
        "metric_names_not_found",
        "send_end_us",
        "drain_end_us",
        "gaps",
        "counter_resets",
        "collection",
        "recorder",
        "driver",
        "not_modelled",
        "preemptions",
        "collector_version",
        "configuration_sha256",
    }
)


def grown(
    db: duckdb.DuckDBPyConnection,
    run: Run,
    before: Mapping[str, Any],
    tables: Mapping[str, "pl.DataFrame"],
) -> bool:
    """Whether the run was loaded while it was collected and still holds all that was loaded."""
    if before["kind"] == "driven" and before["drain_end_us"] is not None:
        return False
    if not _known_since(_settled(before), _settled(run.manifest)):
        return False
    for name, frame in tables.items():
        query = f"SELECT count(*) FROM {name} WHERE run_id = ?"  # noqa: S608 - own names
        ((rows,),) = db.execute(query, [run.run_id]).fetchall()
        if not same_rows(db, name, frame.head(rows), {"run_id": run.run_id}):
            return False
    return True


def _known_since(before: Any, after: Any) -> bool:
    """Whether everything in `after` is as it was, or was not known before."""
    if isinstance(before, Mapping) and isinstance(after, Mapping):
        keys = {*before, *after}
        return all(_known_since(before.get(key), after.get(key)) for key in keys)
    return before is None or bool(before == after)


def _settled(manifest: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in manifest.items() if key not in _GROWING}
