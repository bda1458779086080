"""One row per request, folded from the events: what each of them went through (SPEC §7)."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from replay.events import COLUMN, NULL, Kind, Rows

if TYPE_CHECKING:
    import polars as pl

    from replay.workload_columns import AnyWorkload

# Column -> Parquet type, in file order.
COLUMNS = {
    "request_id": "string",
    "status": "string",
    "arrival_tick": "integer",
    "first_admit_tick": "integer",
    "first_token_tick": "integer",
    "completion_tick": "integer",
    "prompt_tokens": "integer",
    "output_tokens": "integer",
    "generated_tokens": "integer",
    "priority": "integer",
    "tenant": "string",
    "preemptions": "integer",
    "queue_ticks": "integer",
    "recompute_tokens": "integer",
    "swap_out_bytes": "integer",
    "swap_in_bytes": "integer",
    "flagged_wait": "boolean",
    "flagged_repeat": "boolean",
    "modelled_ttft_ticks": "integer",
    "modelled_tpot_ticks": "float",
}
# Further columns of a timed replay.
TIMED_COLUMNS = {
    "modelled_ttft_us": "integer",
    "modelled_tpot_us": "integer",
    "modelled_queue_us": "integer",
    "modelled_e2e_us": "integer",
}
CHARGES = ("recompute_tokens", "swap_out_bytes", "swap_in_bytes")
# What a request's last event says of it.
_COUNTERS = (
    "arrival_tick",
    "prompt_tokens",
    "generated_tokens",
    "priority",
    "preemptions",
    "queue_ticks",
)
_MARKS = {
    Kind.ADMIT: "first_admit_tick",
    Kind.FIRST_TOKEN: "first_token_tick",
    Kind.COMPLETE: "completion_tick",
}
_FLAGS = {Kind.FLAG_WAIT: "flagged_wait", Kind.FLAG_REPEAT: "flagged_repeat"}
_ENDS = (Kind.COMPLETE, Kind.CENSORED)
STATUSES = tuple(kind.name.lower() for kind in _ENDS)
_Column = NDArray[np.int64]


def columns(*, timed: bool) -> dict[str, str]:
    """Column -> Parquet type, in file order, of a timed replay's table or another's."""
    return COLUMNS | TIMED_COLUMNS if timed else COLUMNS


def request_table(workload: "AnyWorkload", rows: Rows, *, timed: bool = False) -> "pl.DataFrame":
    """Rows in workload order; marks never reached are null, charges never made are 0.

    Every event must name a request of the workload. `timed` adds the columns of a timed replay.
    """
    import polars as pl

    found = _folded(rows, len(workload))
    if timed:
        found |= _times(rows, found["generated_tokens"])
    first, end = found["first_token_tick"], found["completion_tick"]
    gaps = found["generated_tokens"] - 1
    spaced = (first != NULL) & (end != NULL) & (gaps > 0)
    found["modelled_ttft_ticks"] = np.where(first == NULL, NULL, first - found["arrival_tick"])
    ends, status = pl.Series(STATUSES), found.pop("status")
    table = {
        "request_id": workload.column("request_id"),
        "status": ends.gather(_with_nulls(status, status == NULL)),
        "output_tokens": workload.column("output_tokens"),
        "tenant": workload.column("tenant"),
        "modelled_tpot_ticks": _with_nulls((end - first) / np.where(spaced, gaps, 1), ~spaced),
    }
    table |= {name: pl.Series(found.pop(name) != 0) for name in _FLAGS.values()}
    table |= {name: _with_nulls(values, values == NULL) for name, values in found.items()}
    return pl.DataFrame({name: table[name] for name in columns(timed=timed)})


def _with_nulls(values: NDArray[Any], absent: NDArray[np.bool_]) -> "pl.Series":
    import polars as pl

    column = pl.Series(values)
    return column.set(pl.Series(absent), None) if absent.any() else column


def table_types(*, timed: bool) -> "pl.Schema":
    """Polars types of `columns`."""
    import polars as pl

    types = {"string": pl.String, "integer": pl.Int64, "boolean": pl.Boolean, "float": pl.Float64}
    return pl.Schema({name: types[kind] for name, kind in columns(timed=timed).items()})


def table_differences(
    expected: "pl.DataFrame", found: "pl.DataFrame"
) -> Iterator[tuple[int, str, Any, Any]]:
    """Every cell of `expected` that `found` has otherwise: (row, column, expected, found).

    Row by row; both tables must be of one height. Null equals null only.
    """
    wrong = [
        (row, place, name)
        for place, name in enumerate(expected.columns)
        for row in expected[name].ne_missing(found[name]).arg_true().to_list()
    ]
    for row, _, name in sorted(wrong):
        yield row, name, expected[name][row], found[name][row]


def _times(rows: Rows, generated: _Column) -> dict[str, _Column]:
    """Microseconds from arrival to each mark, and between tokens; NULL where not reached.

    `modelled_queue_us` ends at the first admission, as vLLM's own queue time does, and TPOT is
    rounded as a measured one is (SPEC §9).
    """
    kinds, times = rows[:, COLUMN["kind"]], rows[:, COLUMN["time_us"]]

    def at(kind: Kind) -> _Column:
        column = np.full(len(generated), NULL)
        column[rows[kinds == kind, COLUMN["request_id"]]] = times[kinds == kind]
        return column

    def between(start: _Column, end: _Column) -> _Column:
        return np.where((start == NULL) | (end == NULL), NULL, end - start)

    arrival, first, end = at(Kind.ARRIVE), at(Kind.FIRST_TOKEN), at(Kind.COMPLETE)
    gaps = np.maximum(generated - 1, 0)
    spent, twice = between(first, end), 2 * np.maximum(gaps, 1)
    none = (spent == NULL) | (gaps == 0)
    return {
        "modelled_ttft_us": between(arrival, first),
        "modelled_tpot_us": np.where(none, NULL, (2 * np.where(none, 0, spent) + gaps) // twice),
        "modelled_queue_us": between(arrival, at(Kind.ADMIT)),
        "modelled_e2e_us": between(arrival, end),
    }


def _folded(rows: Rows, requests: int) -> dict[str, _Column]:
    """Columns of the table that follow from events alone; NULL where nothing was said."""
    who, kinds = rows[:, COLUMN["request_id"]], rows[:, COLUMN["kind"]]

    def said(chosen: NDArray[np.bool_], values: _Column) -> _Column:
        column = np.full(requests, NULL)
        column[who[chosen]] = values  # of several, the last stays
        return column

    last = said(np.ones(len(rows), bool), np.arange(len(rows)))
    seen = last != NULL
    found = {}
    for name in _COUNTERS:
        found[name] = np.full(requests, NULL)
        found[name][seen] = rows[last[seen], COLUMN[name]]
    for kind, name in _MARKS.items():
        found[name] = said(kinds == kind, rows[kinds == kind, COLUMN["tick"]])
    for kind, name in _FLAGS.items():
        found[name] = np.zeros(requests, np.int64)
        found[name][who[kinds == kind]] = 1
    ended = np.isin(kinds, _ENDS)
    found["status"] = said(ended, (kinds[ended] == Kind.CENSORED).astype(np.int64))
    preempts = kinds == Kind.PREEMPT
    for name in CHARGES:
        charge = rows[preempts, COLUMN[name]]
        found[name] = np.zeros(requests, np.int64)
        np.add.at(found[name], who[preempts], np.where(charge == NULL, 0, charge))
    return found
