"""Workloads as batches of columns are the workloads that objects are: rules, order, files, hash."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replay import parquet
from replay.errors import InputError
from replay.workload import FIELDS, Request, Workload
from replay.workload_file import SUFFIXES, read_workload, write_workload
from replay.workload_frame import (
    DTYPES,
    Batches,
    Head,
    Sums,
    batches_of,
    read_workload_batches,
    workload_of,
    write_workload_batches,
)
from tests.test_workload import IDS, SAFE

PerFile = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """Any workload, in its order."""
    chunk = draw(st.none() | st.integers(1, 512))
    requests, late = [], draw(st.booleans())
    for name in draw(st.lists(IDS, min_size=1, max_size=12, unique=True)):
        prompt = draw(st.integers(1, 3000))
        most = 0 if chunk is None else -(-prompt // chunk)
        blocks = draw(st.lists(st.integers(0, SAFE), max_size=min(most, 4)))
        requests.append(
            Request(
                request_id=name,
                arrival_us=draw(st.integers(0, SAFE)),
                prompt_tokens=prompt,
                output_tokens=draw(st.integers(1, SAFE)),
                priority=draw(st.integers(-SAFE, SAFE)),
                tenant=draw(st.none() | IDS),
                prefix_blocks=tuple(blocks) or None,
                engine_arrival_us=draw(st.integers(0, SAFE)) if late else None,
            )
        )
    return Workload(tuple(requests), chunk)


@given(workload=workloads())
@settings(max_examples=100)
def test_batches_have_the_hash_of_the_objects(workload: Workload) -> None:
    """The hash of what went by is the workload's own, and its sums are."""
    sums = Sums(Head(workload.prefix_block_tokens))
    frames = list(sums.through(batches_of(workload)))
    assert workload.sha256 == sums.sha256
    assert len(workload) == sums.requests == sum(f.height for f in frames)
    assert sum(r.output_tokens for r in workload.requests) == sums.output_tokens


@pytest.mark.parametrize("suffix", SUFFIXES)
@PerFile
@given(workload=workloads())
def test_a_file_read_in_batches_is_the_workload(
    suffix: str, workload: Workload, tmp_path: Path
) -> None:
    """Whatever its order of ids and its form."""
    path = tmp_path / f"w{suffix}"
    write_workload(workload, path, suffix)
    assert workload == workload_of(read_workload_batches(path), "w")
    assert workload == read_workload(path)


def _row(**changed: Any) -> dict[str, Any]:
    row = {"request_id": "0-a", "arrival_us": 1, "prompt_tokens": 5, "output_tokens": 2}
    return dict.fromkeys(FIELDS) | row | changed


BAD = [
    {"request_id": None},
    {"request_id": ""},
    {"request_id": "x" * 129},
    {"request_id": "a\u2028b"},
    {"request_id": "a\x7f"},
    {"tenant": ""},
    {"tenant": "a\nb"},
    {"arrival_us": None},
    {"arrival_us": -1},
    {"arrival_us": SAFE + 1},
    {"prompt_tokens": 0},
    {"output_tokens": 0},
    {"output_tokens": None},
    {"priority": -SAFE - 1},
    {"prefix_blocks": [1, 2]},
    {"prefix_blocks": [-1]},
    {"prefix_blocks": [None]},
]


@pytest.mark.parametrize("changed", BAD, ids=repr)
def test_a_bad_row_is_refused_as_the_reader_of_objects_refuses_it(
    changed: dict[str, Any], tmp_path: Path
) -> None:
    """Both name the same row, field and rule, and no text."""
    rows = [_row(request_id="-", arrival_us=0), _row(**changed)]
    assert "row 1" in _refused(pl.DataFrame(rows, schema=pl.Schema(DTYPES)), tmp_path)


@pytest.mark.parametrize("batch_rows", [2, 100])
@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({2: None}, "row 2: engine_arrival_us must be in all requests"),
        ({3: -1}, "row 3: engine_arrival_us must be >= 0"),
        ({0: -1, 1: None}, "row 0: engine_arrival_us must be >= 0"),
        ({1: SAFE + 1, 3: None}, "row 1: engine_arrival_us must be within"),
        ({0: None, 1: None, 2: None}, "row 3: engine_arrival_us must be in all requests"),
    ],
    ids=repr,
)
def test_arrival_times_that_are_not_all_there_are_refused_as_by_the_reader_of_objects(
    bad: dict[int, int | None],
    field: str,
    batch_rows: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The first row decides whether the workload has them, across batches too."""
    monkeypatch.setattr(parquet, "_BATCH_ROWS", batch_rows)
    times = [bad.get(k, 9 - k) for k in range(4)]
    rows = [_row(request_id=str(k), engine_arrival_us=at) for k, at in enumerate(times)]
    schema = {**DTYPES, "engine_arrival_us": pl.Int64}
    assert field in _refused(pl.DataFrame(rows, schema=schema), tmp_path)


def test_a_column_of_no_arrival_times_is_no_column(tmp_path: Path) -> None:
    """Null is the same as leaving it out, typed or not."""
    for dtype in (pl.Int64, pl.Null):
        frame = pl.DataFrame([_row()], schema=pl.Schema(DTYPES)).with_columns(
            engine_arrival_us=pl.lit(None, dtype)
        )
        path = tmp_path / "w.parquet"
        parquet.write_frame(frame, path, {"schema": "preemption-workload/1"})
        found = read_workload_batches(path)
        assert list(FIELDS) == next(iter(found)).columns
        assert read_workload(path) == workload_of(found, "w")


def _refused(frame: pl.DataFrame, folder: Path) -> str:
    """What both readers say of a file of this frame."""
    path, messages = folder / "w.parquet", set()
    metadata = {"schema": "preemption-workload/1", "prefix_block_tokens": "8"}
    parquet.write_frame(frame, path, metadata)

    def gone_through(path: Path) -> object:
        return list(read_workload_batches(path))

    readers: tuple[Callable[[Path], object], ...] = (read_workload, gone_through)
    for read in readers:
        with pytest.raises(InputError) as told:
            read(path)
        messages.add(str(told.value))
    assert len(messages) == 1
    return messages.pop()


def test_ids_that_repeat_across_batches_are_refused(tmp_path: Path) -> None:
    """Order by arrival does not make ids unique."""
    path = tmp_path / "w.parquet"
    frame = pl.DataFrame([_row(), _row(arrival_us=2)], schema=pl.Schema(DTYPES))
    parquet.write_frame(frame, path, {"schema": "preemption-workload/1"})
    with pytest.raises(InputError, match="must be unique"):
        read_workload_batches(path)


def test_batches_are_cut_where_they_are_full_and_nothing_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file of several batches reads in order, and its bytes are the same each time."""
    monkeypatch.setattr(parquet, "_BATCH_ROWS", 7)
    requests = tuple(Request(f"{k:03}", k // 2, 5, 2, prefix_blocks=(k,)) for k in range(40))
    workload = Workload(requests, 8)
    whole = batches_of(workload)
    files = []
    for cut in (1, 7, 40):
        frames = [part for batch in whole for part in batch.iter_slices(cut)]
        path = tmp_path / f"{cut}.parquet"
        batches = Batches(whole.head, whole.requests, frames.__iter__)
        sums = write_workload_batches(batches, path, ".parquet")
        assert workload.sha256 == sums.sha256
        files.append(path.read_bytes())
    assert files[0] == files[1] == files[2]
    found = read_workload_batches(tmp_path / "1.parquet")
    assert [7, 7, 7, 7, 7, 5] == [batch.height for batch in found]
    assert workload == workload_of(found, "w")
