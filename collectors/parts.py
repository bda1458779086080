"""Strict reading of a run's Parquet parts into frames of exactly the contract's columns.

Parts `part-00000.parquet`, `part-00001.parquet`, … of one directory are one table, in order. The
number of rows is checked before any row of a part is read, then the schema version, the columns and
their types, then every value by its kind's rule (`values`). What breaks a rule raises `InputError`
naming the part, the row and the column.
"""

import os
import re
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from pathlib import Path

import polars as pl

from collectors.columns import DIRECTORIES, FILLED_ON_EVENT, RISING, SCHEMA, TABLES, nullable
from collectors.values import Places, checked, dtype_of, refuse_first, type_of
from replay.errors import InputError
from replay.parquet import read_frame


@dataclass(frozen=True, eq=False)
class Table:
    """One table of a run; `not_finite` counts by column the floats that became null."""

    frame: pl.DataFrame
    not_finite: Mapping[str, int]


def frame_schema(table: str) -> dict[str, pl.DataType]:
    """Column types of a table's frame, in the contract's order."""
    return {name: dtype_of(kind) for name, kind in TABLES[table].items()}


def read_table(run: Path, table: str, run_id: str, max_rows: int, first: int = 0) -> Table:
    """All parts of one table, `max_rows` together; without a directory or a part it is empty.

    `first` is the number of the first part, where older ones were deleted on purpose.
    """
    paths, parts, left = _part_paths(run, DIRECTORIES[table], first), list[Table](), max_rows
    for path in paths:
        parts.append(_read_part(path, table, run_id, left))
        left -= parts[-1].frame.height
    frame = pl.concat([pl.DataFrame(schema=frame_schema(table)), *(part.frame for part in parts)])
    starts = [0, *accumulate(part.frame.height for part in parts)]
    _check_order(frame, table, partial(_place, paths, starts))
    lost = {name: sum(part.not_finite[name] for part in parts) for name in _floats(table)}
    return Table(frame, lost)


def inside(run: Path, *names: str) -> Path:
    """Path of something in the run; refuses a symbolic link that leads out of it."""
    path, root = run.joinpath(*names), os.path.realpath(run)
    if os.path.commonpath([os.path.realpath(path), root]) != root:
        raise InputError(str(path), "", "must not be a symbolic link out of the run")
    return path


def _part_paths(run: Path, name: str, first: int) -> list[Path]:
    folder = inside(run, name)
    if not os.path.lexists(folder):
        return []
    try:
        # A writer's unfinished files begin with a dot.
        found = sorted(e.name for e in folder.iterdir() if not e.name.startswith("."))
    except OSError as exc:
        raise InputError(str(folder), "", f"must be a directory: {exc.strerror}") from exc
    numbered = [re.fullmatch(r"part-([0-9]{5})\.parquet", entry) for entry in found]
    for entry, match in zip(found, numbered, strict=True):
        if match is None:
            rule = "must hold only parts named part-00000.parquet, part-00001.parquet, …"
            raise InputError(str(folder), "", rule, f"a name of {len(entry)} code points")
    # Retention says what it deletes before it does: what it was killed over is deleted, too.
    found = [m[0] for m in numbered if m is not None and int(m[1]) >= first]
    for number, entry in enumerate(found, first):
        if entry != (expected := f"part-{number:05d}.parquet"):
            rule = f"must hold {expected}: parts are numbered without a gap"
            raise InputError(str(folder), "", rule, entry)
    return [inside(run, name, entry) for entry in found]


def _read_part(path: Path, table: str, run_id: str, most_rows: int) -> Table:
    kinds = TABLES[table]
    types = {name: type_of(kind) for name, kind in kinds.items()}
    optional = tuple(name for name, kind in kinds.items() if nullable(kind))
    raw, _ = read_frame(path, most_rows, SCHEMA, types, optional)
    place, columns = partial(_place, [path], [0]), []
    for name, kind in kinds.items():
        if name in raw.columns:
            columns.append(checked(raw[name], kind, place))
        else:
            unknown = pl.repeat(None, raw.height, dtype=dtype_of(kind), eager=True)
            columns.append(unknown.alias(name))
    frame = pl.DataFrame(columns)
    refuse_first(frame["run_id"] != run_id, frame["run_id"], place, "must be the manifest's run_id")
    for event, filled in FILLED_ON_EVENT.items() if table == "measured_events" else ():
        for name in filled:
            bad = (frame["kind"] == event) & frame[name].is_null()
            refuse_first(bad, frame[name], place, f"must not be null on {event}")
    lost = {n: frame[n].null_count() - raw[n].null_count() for n in _floats(table) if n in raw}
    return Table(frame, dict.fromkeys(_floats(table), 0) | lost)


def _check_order(frame: pl.DataFrame, table: str, place: Places) -> None:
    """Hold what spans rows and parts: unique requests, rising numbers."""
    if table == "measured_requests":
        repeated = ~frame.select(pl.struct("engine", "request_id")).to_series().is_first_distinct()
        refuse_first(repeated, frame["request_id"], place, "must be unique within its engine")
    if column := RISING.get(table):
        rise = frame.select(pl.col(column).diff().over("engine")).to_series()
        refuse_first(rise < 1, frame[column], place, "must rise within its engine")


def _floats(table: str) -> list[str]:
    return [name for name, dtype in frame_schema(table).items() if dtype.is_float()]


def _place(paths: list[Path], starts: list[int], row: int) -> str:
    """Part and row within it; `starts` has each part's first row."""
    part = bisect_right(starts, row, hi=len(paths)) - 1
    return f"{paths[part]}: row {row - starts[part]}"
