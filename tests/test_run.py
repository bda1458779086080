"""Measured runs are read whole and strictly, or refused in one line that shows no text."""

import json
import math
import os
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.columns import nullable
from collectors.run import (
    DIRECTORIES,
    SCHEMA,
    TABLES,
    Run,
    engine_of,
    frame_schema,
    has_arrive_events,
    read_run,
    run_workload,
)
from collectors.run_config import FIELDS, not_replayed, run_config_tables, run_rule
from collectors.values import checked
from replay.errors import InputError
from replay.strict import identifier, integer
from replay.workload_file import write_workload

ROOT = Path(__file__).parents[1]
FIXTURES = ROOT / "fixtures" / "runs"
RECORDED = ROOT.parent / "shared" / "vllm-runs"
HIDDEN = "hunter2-do-not-show"
Change = Callable[[pl.DataFrame], pl.DataFrame]


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A copy of `cand-80` to damage."""
    return Path(shutil.copytree(FIXTURES / "cand-80", tmp_path / "cand-80"))


def part(run: Path, table: str, number: int = 0) -> Path:
    """Path of one part of a table."""
    return run / DIRECTORIES[table] / f"part-{number:05d}.parquet"


def write(frame: pl.DataFrame, path: Path, schema: str = SCHEMA) -> None:
    """Write a part under the contract's schema name, or another."""
    path.parent.mkdir(exist_ok=True)
    frame.write_parquet(path, metadata={"schema": schema})


def rewrite(run: Path, table: str, change: Change) -> None:
    """Change the first part of a table."""
    write(change(pl.read_parquet(part(run, table))), part(run, table))


def edit(run: Path, dotted: str, value: Any) -> None:
    """Set one field of the manifest."""
    manifest = json.loads((run / "manifest.json").read_text())
    *path, last = dotted.split(".")
    inner = manifest
    for key in path:
        inner = inner[key]
    inner[last] = value
    (run / "manifest.json").write_text(json.dumps(manifest))


def row(column: str, index: int, value: Any) -> Change:
    """Change one value, the column's type kept."""

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        values = frame[column].to_list()
        values[index] = value
        return frame.with_columns(pl.Series(column, values, dtype=frame[column].dtype))

    return change


def retype(column: str, dtype: Any) -> Change:
    """Change the type of one column."""
    return lambda frame: frame.with_columns(pl.col(column).cast(dtype))


def samples(run_id: str = "cand-80", **columns: list[Any]) -> pl.DataFrame:
    """Three scrapes of one gauge."""
    base: dict[str, Any] = {
        "run_id": [run_id] * 3,
        "scrape": [0, 1, 2],
        "time_us": [0, 500_000, 1_000_000],
        "engine": [0, 0, 0],
        "model": ["tinymodel"] * 3,
        "name": ["num_requests_running"] * 3,
        "labels": ["{}"] * 3,
        "le": [None, None, None],
        "value": [0.0, 1.0, 2.0],
    }
    return pl.DataFrame(base | columns, schema=frame_schema("metric_samples"))


def refused(run: Path, field: str, rule: str, max_rows: int = 10**7) -> InputError:
    """Read a run that must be refused, in one line that names a file of it."""
    with pytest.raises(InputError) as caught:
        read_run(run, max_rows)
    assert field == caught.value.field
    assert rule in str(caught.value)
    assert "\n" not in str(caught.value)
    assert str(run) in caught.value.place
    return caught.value


# --- what is there --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "preempted", "steps"), [("base-1", 230, 15_552), ("cand-80", 7, 19_040)]
)
def test_a_recorded_run_reads_as_it_was_recorded(name: str, preempted: int, steps: int) -> None:
    """Every table of a recorded run comes back whole, in the contract's columns and types."""
    run = read_run(FIXTURES / name)
    assert name == run.run_id
    assert run.offered is not None
    assert (240, 240) == (len(run.offered), run.requests.height)
    assert [r.request_id for r in run.offered.requests] == run.requests["request_id"].to_list()
    assert preempted == run.events.filter(pl.col("kind") == "preempt").height
    assert preempted == run.manifest["preemptions"] == run.requests["num_preemptions"].sum()
    assert steps == run.steps.height
    assert 0 == run.samples.height
    assert {"le": 0, "value": 0} == run.not_finite
    frames = (run.requests, run.events, run.steps, run.samples)
    for table, frame in zip(TABLES, frames, strict=True):
        assert frame_schema(table) == dict(frame.schema)
        assert list(TABLES[table]) == frame.columns


@pytest.mark.parametrize("name", ["base-1", "base-2", "cand-80", "prio-48"])
@pytest.mark.skipif(not RECORDED.is_dir(), reason="only where all four recorded runs are at hand")
def test_every_recorded_run_reads(name: str) -> None:
    """The four recorded runs keep the contract, raw pages and all."""
    run = read_run(RECORDED / name)
    assert run.manifest["preemptions"] == run.events.filter(pl.col("kind") == "preempt").height


def test_a_column_nobody_recorded_is_null() -> None:
    """The recorded runs have no engine arrival times; the frame has the column all the same."""
    run = read_run(FIXTURES / "base-1")
    assert 240 == run.requests["engine_arrival_us"].null_count()
    assert 240 == run.requests["prefix_blocks"].null_count()


def test_a_run_of_only_a_manifest_has_empty_tables(tmp_path: Path) -> None:
    """Absent directories are tables of no rows, and nothing was offered."""
    (tmp_path / "manifest.json").write_bytes((FIXTURES / "base-1" / "manifest.json").read_bytes())
    (tmp_path / "steps").mkdir()
    run = read_run(tmp_path)
    assert run.offered is None
    assert [(0, 23), (0, 15), (0, 11), (0, 9)] == [
        f.shape for f in (run.requests, run.events, run.steps, run.samples)
    ]


def test_parts_are_one_table_in_order(run_dir: Path) -> None:
    """Splitting a table over parts changes nothing; a writer's dot files are left alone."""
    whole = read_run(run_dir)
    events = pl.read_parquet(part(run_dir, "measured_events"))
    for number in range(3):
        write(events.slice(number * 300, 300), part(run_dir, "measured_events", number))
    (run_dir / "events" / ".part-00003.parquet.tmp").write_bytes(b"unfinished")
    assert whole.events.equals(read_run(run_dir).events)


def test_integers_of_any_width_become_64_bit(run_dir: Path) -> None:
    """Narrow and unsigned integers are the same numbers; nulls without a type are nulls."""
    whole = read_run(run_dir)
    rewrite(run_dir, "measured_requests", retype("prompt_tokens", pl.UInt16))
    rewrite(run_dir, "measured_requests", retype("priority", pl.Int8))
    rewrite(run_dir, "measured_requests", lambda f: f.with_columns(prefix_blocks=None))
    rewrite(run_dir, "measured_steps", retype("time_us", pl.UInt64))
    again = read_run(run_dir)
    assert whole.requests.equals(again.requests)
    assert whole.steps.equals(again.steps)


def test_an_empty_list_is_null(run_dir: Path) -> None:
    """A prompt without shared chunks has none, however a file says it."""
    lists = pl.Series("prefix_blocks", [[], [1, 2], None] * 80, dtype=pl.List(pl.UInt32))
    rewrite(run_dir, "measured_requests", lambda f: f.with_columns(lists))
    found = read_run(run_dir).requests["prefix_blocks"].to_list()
    assert [None, [1, 2], None] == found[:3]


def test_floats_that_are_no_numbers_become_null_and_are_counted(run_dir: Path) -> None:
    """NaN and infinities are null; only a histogram's last bucket keeps its infinite bound."""
    frame = samples(value=[math.nan, None, -math.inf], le=[math.inf, math.nan, 0.5])
    write(frame, part(run_dir, "metric_samples"))
    run = read_run(run_dir)
    assert [None, None, None] == run.samples["value"].to_list()
    assert [math.inf, None, 0.5] == run.samples["le"].to_list()
    assert {"le": 1, "value": 2} == run.not_finite


def test_one_request_id_may_be_on_two_engines(run_dir: Path) -> None:
    """Each data-parallel engine numbers its own events and has its own requests."""
    for table in ("measured_requests", "measured_events", "measured_steps"):
        again = pl.read_parquet(part(run_dir, table)).with_columns(engine=pl.lit(1, pl.Int64))
        write(again, part(run_dir, table, 1))
    run = read_run(run_dir)
    assert [480, 2 * 734, 2 * 19_040] == [f.height for f in (run.requests, run.events, run.steps)]


def test_a_path_is_never_a_pattern(tmp_path: Path) -> None:
    """Brackets, stars and equal signs in a directory's name are only a name."""
    odd = shutil.copytree(FIXTURES / "cand-80", tmp_path / "run[1]*" / "step=7" / "r")
    assert 240 == read_run(Path(odd)).requests.height
    assert read_run(FIXTURES / "cand-80").steps.equals(read_run(Path(odd)).steps)


# --- what is refused: files -----------------------------------------------------------------


def _empty(run: Path) -> None:
    shutil.rmtree(run)
    run.mkdir()


def _file_for_run(run: Path) -> None:
    shutil.rmtree(run)
    run.write_text("a file")


def _damage(run: Path) -> None:
    """Change the one byte of the footer that makes polars 2.1 panic instead of raising."""
    path = part(run, "measured_requests")
    data = bytearray(path.read_bytes())
    data[-2942] = 0xFF
    path.write_bytes(data)


def _out(run: Path, name: str) -> None:
    """Replace something in the run by a link to the same thing outside."""
    outside = run.parent / "outside"
    (run / name).rename(outside)
    (run / name).symlink_to(outside)


def _cut(path: Path, keep: float) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: int(len(data) * keep)])


def _other_workload(run: Path) -> None:
    write_workload(run_workload(read_run(run), 1), run / "offered.jsonl", ".jsonl")


def _mkfifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


R, E, S, M = "measured_requests", "measured_events", "measured_steps", "metric_samples"
BAD_FILES: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    "no such directory": (shutil.rmtree, "", "must be a run directory, got nothing there"),
    "a file for a run": (_file_for_run, "", "must be a run directory, got something else"),
    "empty directory": (_empty, "manifest.json", "is required"),
    "no manifest": (lambda r: (r / "manifest.json").unlink(), "manifest.json", "is required"),
    "empty manifest": (lambda r: (r / "manifest.json").write_text(""), "", "must not be empty"),
    "binary manifest": (
        lambda r: (r / "manifest.json").write_bytes(bytes(range(1, 256))),
        "",
        "must be UTF-8 text",
    ),
    "manifest cut short": (lambda r: _cut(r / "manifest.json", 0.5), "", "must be JSON"),
    "manifest is a list": (
        lambda r: (r / "manifest.json").write_text("[]"),
        "",
        "must be an object, got a list of 0",
    ),
    "manifest is a pipe": (lambda r: _mkfifo(r / "manifest.json"), "", "must be a file"),
    "manifest nests deep": (
        lambda r: (r / "manifest.json").write_text("[" * 100_000),
        "",
        "must be JSON",
    ),
    "manifest too large": (
        lambda r: (r / "manifest.json").write_bytes(b" " * (4 * 2**20 + 1)),
        "",
        "must be at most 4194304 bytes",
    ),
    "manifest leads out": (lambda r: _out(r, "manifest.json"), "", "must not be a symbolic link"),
    "offered leads out": (lambda r: _out(r, "offered.jsonl"), "", "must not be a symbolic link"),
    "events lead out": (lambda r: _out(r, "events"), "", "must not be a symbolic link"),
    "part leads out": (
        lambda r: _out(r, "events/part-00000.parquet"),
        "",
        "must not be a symbolic link",
    ),
    "part is a pipe": (lambda r: _mkfifo(part(r, S)), "", "must be a file"),
    "parts are a file": (lambda r: (r / "samples").write_text(""), "", "must be a directory"),
    "part cut short": (lambda r: _cut(part(r, R), 0.7), "", "must be a readable Parquet file"),
    "part is empty": (lambda r: _cut(part(r, R), 0), "", "must be a readable Parquet file"),
    "part makes polars panic": (_damage, "", "must be a readable Parquet file"),
    "part is missing": (
        lambda r: part(r, E).rename(part(r, E, 1)),
        "",
        "must hold part-00000.parquet: parts are numbered without a gap",
    ),
    "part has another name": (
        lambda r: part(r, E).rename(r / "events" / f"{HIDDEN}.parquet"),
        "",
        "must hold only parts named part-00000.parquet",
    ),
    "offered cut short": (lambda r: _cut(r / "offered.jsonl", 0.5), "", "must be JSON"),
    "offered is another workload": (_other_workload, "", "must be the workload of manifest.json"),
    "part without a schema": (
        lambda r: pl.read_parquet(part(r, R)).write_parquet(part(r, R)),
        "schema",
        "must be preemption-run/1, got null",
    ),
    "part of another version": (
        lambda r: write(pl.read_parquet(part(r, R)), part(r, R), "preemption-run/2"),
        "schema",
        "must be preemption-run/1, got preemption-run/2",
    ),
    "part of another schema": (
        lambda r: write(pl.read_parquet(part(r, R)), part(r, R), "preemption-ledger/1"),
        "schema",
        "got preemption-ledger/1",
    ),
    "part of a nameless schema": (
        lambda r: write(pl.read_parquet(part(r, R)), part(r, R), HIDDEN),
        "schema",
        "got a string of 19 code points",
    ),
}


@pytest.mark.parametrize(
    ("damage", "field", "rule"),
    BAD_FILES.values(),
    ids=[name.replace(" ", "-") for name in BAD_FILES],
)
def test_a_damaged_run_is_refused_by_file_and_rule(
    run_dir: Path, damage: Callable[[Path], Any], field: str, rule: str
) -> None:
    """Whatever is wrong with a run's files is one input fault that names the file."""
    damage(run_dir)
    assert HIDDEN not in str(refused(run_dir, field, rule))


def test_a_link_that_stays_inside_the_run_is_read(run_dir: Path) -> None:
    """Only links that lead out are refused."""
    (run_dir / "kept").mkdir()
    part(run_dir, E).rename(run_dir / "kept" / "e.parquet")
    part(run_dir, E).symlink_to(Path("..") / "kept" / "e.parquet")
    assert 734 == read_run(run_dir).events.height


def test_rows_are_counted_before_they_are_read(run_dir: Path) -> None:
    """The limit holds for all parts of a table together, and for the offered requests."""
    error = refused(run_dir, "", "must hold at most 240 rows, got 734", max_rows=240)
    assert str(part(run_dir, E)) == error.place
    for name in ("events", "steps"):
        shutil.rmtree(run_dir / name)
    assert 240 == read_run(run_dir, 240).requests.height
    requests = pl.read_parquet(part(run_dir, R))
    write(requests.head(200), part(run_dir, R))
    write(requests.tail(40), part(run_dir, R, 1))
    refused(run_dir, "", "must hold at most 39 rows, got 40", max_rows=239)
    shutil.rmtree(run_dir / "requests")
    refused(run_dir, "", "must hold at most 239 requests", max_rows=239)


# --- what is refused: rows ------------------------------------------------------------------

BAD_ROWS: dict[str, tuple[str, Change, str, str]] = {
    "unknown column": (R, lambda f: f.with_columns(hunter2=1), "", "unknown key of 7 code points"),
    "float for an integer": (
        R,
        retype("arrival_us", pl.Float64),
        "arrival_us",
        "must be a column of type integer, got Float64",
    ),
    "string for an integer": (
        R,
        retype("prompt_tokens", pl.String),
        "prompt_tokens",
        "must be a column of type integer, got String",
    ),
    "boolean for an integer": (
        S,
        lambda f: f.with_columns(running=pl.lit(value=True)),
        "running",
        "must be a column of type integer, got Boolean",
    ),
    "integer for a string": (
        R,
        lambda f: f.with_columns(request_id=pl.int_range(pl.len())),
        "request_id",
        "must be a column of type string, got Int64",
    ),
    "floats in a list": (
        R,
        lambda f: f.with_columns(prefix_blocks=pl.lit([0.5])),
        "prefix_blocks",
        "must be a column of type list of integers",
    ),
    "integer for a list": (
        R,
        lambda f: f.with_columns(prefix_blocks=1),
        "prefix_blocks",
        "must be a column of type list of integers, got Int32",
    ),
    "integer for a float": (
        M,
        retype("value", pl.Int64),
        "value",
        "must be a column of type float, got Int64",
    ),
    "null where required": (R, row("status", 3, None), "status", "row 3: status must not be null"),
    "untyped nulls where required": (
        S,
        lambda f: f.with_columns(time_us=None),
        "time_us",
        "time_us must ",
    ),
    "negative time": (S, row("time_us", 7, -1), "time_us", "row 7: time_us must be >= 0, got -1"),
    "negative count": (
        R,
        row("generated_tokens", 0, -5),
        "generated_tokens",
        "row 0: generated_tokens must be >= 0, got -5",
    ),
    "no prompt": (R, row("prompt_tokens", 2, 0), "prompt_tokens", "must be >= 1, got 0"),
    "step without a token": (S, row("scheduled_tokens", 0, 0), "scheduled_tokens", "must be >= 1"),
    "unsafe integer": (
        R,
        row("e2e_us", 9, 2**53),
        "e2e_us",
        "row 9: e2e_us must be within ±(2^53 - 1), got 9007199254740992",
    ),
    "unsafe negative integer": (R, row("priority", 0, -(2**53)), "priority", "must be within"),
    "integer beyond 64 bits": (
        R,
        lambda f: f.with_columns(ttft_us=pl.lit(2**64 - 1, pl.UInt64)),
        "ttft_us",
        "row 0: ttft_us must be within ±(2^53 - 1), got 18446744073709551615",
    ),
    "negative prefix block": (
        R,
        lambda f: f.with_columns(prefix_blocks=pl.lit([4, -2])),
        "prefix_blocks[1]",
        "row 0: prefix_blocks[1] must be >= 0, got -2",
    ),
    "null prefix block": (
        R,
        lambda f: f.with_columns(prefix_blocks=pl.Series([[4], [5, None]] * 120)),
        "prefix_blocks[1]",
        "row 1: prefix_blocks[1] must be an integer, got null",
    ),
    "unknown status": (
        R,
        row("status", 1, HIDDEN),
        "status",
        "must be one of ok, aborted, error, censored, unsent, rejected, got a string of 19",
    ),
    "unknown event": (
        E,
        row("kind", 5, "evict"),
        "kind",
        "row 5: kind must be one of arrive, admit, preempt, resume, finish, got a string of 5",
    ),
    "another run's row": (
        E,
        row("run_id", 4, HIDDEN),
        "run_id",
        "row 4: run_id must be the manifest's run_id, got a string of 19 code points",
    ),
    "repeated request": (
        R,
        row("request_id", 8, "az0002"),
        "request_id",
        "row 8: request_id must be unique within its engine, got a string of 6",
    ),
    "empty id": (R, row("request_id", 0, ""), "request_id", "must have 1 to 128 code points"),
    "long id": (E, row("request_id", 0, "é" * 129), "request_id", "1 to 128 code points"),
    "control character in an id": (
        R,
        row("request_id", 0, "a\x1b[31m"),
        "request_id",
        "must hold no control character",
    ),
    "line separator in a tenant": (R, row("tenant", 0, "a\u2028b"), "tenant", "control character"),
    "control character in a text": (
        R,
        row("finish_reason", 0, "stop\n"),
        "finish_reason",
        "must have at most 4096 code points and no control character",
    ),
    "long text": (R, row("finish_reason", 0, "x" * 4097), "finish_reason", "at most 4096"),
    "repeated seq": (E, row("seq", 6, 5), "seq", "row 6: seq must rise within its engine, got 5"),
    "falling seq": (E, row("seq", 0, 99), "seq", "row 1: seq must rise within its engine, got 1"),
    "repeated step": (S, row("step", 2, 1), "step", "row 2: step must rise within its engine"),
    "labels that are no JSON": (
        M,
        row("labels", 1, "{a"),
        "labels",
        "row 1: labels must be a sort",
    ),
    "labels that are a list": (M, row("labels", 1, "[]"), "labels", "must be a sorted JSON object"),
    "labels out of order": (M, row("labels", 2, '{"b":"1","a":"2"}'), "labels", "row 2"),
    "numbers as labels": (M, row("labels", 0, '{"a":1}'), "labels", "row 0"),
    "engine as a label": (M, row("labels", 0, '{"engine":"0"}'), "labels", "without engine"),
    "repeated label": (M, row("labels", 0, '{"a":"1","a":"2"}'), "labels", "must be a sorted JSON"),
    "no name": (M, row("name", 0, ""), "name", "must have 1 to 128 code points"),
}


@pytest.mark.parametrize(
    ("table", "change", "field", "rule"),
    BAD_ROWS.values(),
    ids=[name.replace(" ", "-") for name in BAD_ROWS],
)
def test_a_bad_value_is_refused_by_row_and_column(
    run_dir: Path, table: str, change: Change, field: str, rule: str
) -> None:
    """One bad value refuses the run, naming part, row, column and rule, but never a text."""
    write(samples(), part(run_dir, "metric_samples"))
    assert 3 == read_run(run_dir).samples.height
    rewrite(run_dir, table, change)
    error = refused(run_dir, field, rule)
    assert str(part(run_dir, table)) in error.place
    assert "hunter2" not in str(error)


@pytest.mark.parametrize("table", TABLES)
def test_columns_that_can_be_null_can_be_absent_and_no_other(run_dir: Path, table: str) -> None:
    """A file may leave out exactly the columns that may be null; they read as unknown."""
    write(samples(), part(run_dir, M))
    rewrite(run_dir, E, lambda f: f.filter(pl.col("kind") == "arrive"))
    whole = pl.read_parquet(part(run_dir, table))
    for column, kind in TABLES[table].items():
        write(whole.drop(column, strict=False), part(run_dir, table))
        if nullable(kind):
            frame = getattr(read_run(run_dir), DIRECTORIES[table])
            assert whole.height == frame[column].null_count()
        else:
            refused(run_dir, column, "is required, got no such column")


@pytest.mark.parametrize(
    ("event", "column"),
    [
        *(("preempt", name) for name, kind in TABLES[E].items() if nullable(kind)),
        ("finish", "generated_tokens"),
        ("finish", "num_preemptions"),
    ],
)
def test_events_carry_what_their_kind_promises(run_dir: Path, event: str, column: str) -> None:
    """A preempt event fills every column, a finish what the request came to."""
    events = pl.read_parquet(part(run_dir, E))
    first = events["kind"].index_of(event)
    assert first is not None
    rewrite(run_dir, E, row(column, first, None))
    refused(run_dir, column, f"row {first}: {column} must not be null on {event}")


def test_a_fault_in_a_later_part_is_named_there(run_dir: Path) -> None:
    """Rules that span parts name the part and its own row."""
    requests = pl.read_parquet(part(run_dir, R))
    write(requests.head(3), part(run_dir, R, 1))
    error = refused(run_dir, "request_id", "must be unique within its engine")
    assert f"{part(run_dir, R, 1)}: row 0" == error.place
    part(run_dir, R, 1).unlink()
    write(pl.read_parquet(part(run_dir, S)).tail(2), part(run_dir, S, 1))
    error = refused(run_dir, "step", "must rise within its engine, got 19038")
    assert f"{part(run_dir, S, 1)}: row 0" == error.place


def _keeps(rule: Callable[..., Any], *args: Any) -> bool:
    try:
        rule(*args)
    except InputError:
        return False
    return True


@given(st.lists(st.text(max_size=140) | st.none(), min_size=1, max_size=20))
def test_ids_in_columns_keep_the_rule_of_single_ids(values: list[str | None]) -> None:
    """A column of ids is refused exactly when one of its ids would be."""
    column = pl.Series("id", values, dtype=pl.String)
    single = all(v is None or _keeps(identifier, v, "", "") for v in values)
    assert single == _keeps(checked, column, "id?", str)


@given(st.lists(st.integers(-(2**64), 2**64), min_size=1, max_size=20))
def test_integers_in_columns_keep_the_rule_of_single_integers(values: list[int]) -> None:
    """A column of integers is refused exactly when one of them would be."""
    column = pl.Series("n", values, dtype=pl.Int128)
    assert all(_keeps(integer, v, "", "") for v in values) == _keeps(checked, column, "count", str)


def test_a_run_whose_workload_hash_is_unknown_is_read(run_dir: Path) -> None:
    """Without a stated hash there is nothing to hold the offered workload to."""
    edit(run_dir, "workload.workload_sha256", None)
    _other_workload(run_dir)
    offered = read_run(run_dir).offered
    assert offered is not None
    assert 239 == len(offered)


# --- windows of the offered workload --------------------------------------------------------


def base() -> Run:
    """The run with 230 preemptions."""
    return read_run(FIXTURES / "base-1")


def test_the_whole_run_is_the_offered_workload() -> None:
    """Without a window every offered request comes back under the hash of the manifest."""
    run = base()
    workload = run_workload(run)
    assert run.manifest["workload"]["workload_sha256"] == workload.sha256
    assert "base-1[0:240]" == workload.name


def test_a_window_starts_at_zero_and_says_where_it_is_from() -> None:
    """Requests of a window keep everything but their times, which count from its first."""
    run = base()
    assert run.offered is not None
    workload = run_workload(run, 100, 60)
    offered = run.offered.requests[100:160]
    assert "base-1[100:160]" == workload.name
    assert {
        "source": "run",
        "run_id": "base-1",
        "window": {"start": 100, "count": 60},
        "engine_version": "0.32.0",
    } == workload.provenance
    zero = offered[0].arrival_us
    assert [(r.request_id, r.arrival_us - zero, r.output_tokens) for r in offered] == [
        (r.request_id, r.arrival_us, r.output_tokens) for r in workload.requests
    ]


@pytest.mark.parametrize(
    ("start", "count", "found"),
    [(-1, 5, "-1:4"), (0, 0, "0:0"), (0, 241, "0:241"), (240, None, "240:240"), (5, -1, "5:4")],
)
def test_a_window_outside_the_run_is_refused(start: int, count: int | None, found: str) -> None:
    """A window is a part of the run with at least one request in it."""
    with pytest.raises(InputError, match=f"window must be a part of 240.*{found}"):
        run_workload(base(), start, count)


def test_without_an_offered_workload_the_measured_requests_are_it(run_dir: Path) -> None:
    """Requests that generated nothing are counted, and those cut off count by their limit."""

    def change(frame: pl.DataFrame) -> pl.DataFrame:
        for column, index, value in (
            ("generated_tokens", 0, None),
            ("generated_tokens", 1, 0),
            ("generated_tokens", 2, 5),
            ("generated_tokens", 3, 6),
            ("status", 3, "censored"),
            ("generated_tokens", 4, 7),
            ("status", 4, "censored"),
            ("max_tokens", 4, None),
        ):
            frame = row(column, index, value)(frame)
        return frame.with_columns(prefix_blocks=pl.lit([1]))

    (run_dir / "offered.jsonl").unlink()
    limit = pl.read_parquet(part(run_dir, R))["max_tokens"][3]
    rewrite(run_dir, R, change)
    workload = run_workload(read_run(run_dir), 0, 3)
    assert ["az0002", "az0003", "az0004"] == [r.request_id for r in workload.requests]
    assert [5, limit, 7] == [r.output_tokens for r in workload.requests]
    assert 0 == workload.requests[0].arrival_us
    assert workload.requests[0].prefix_blocks is None
    assert workload.provenance is not None
    assert {"no_output": 2} == workload.provenance["dropped"]
    edit(run_dir, "workload.prefix_block_tokens", 512)
    shared = run_workload(read_run(run_dir))
    assert (238, 512, (1,)) == (
        len(shared),
        shared.prefix_block_tokens,
        shared.requests[0].prefix_blocks,
    )


def test_a_request_measured_on_two_engines_makes_no_workload(run_dir: Path) -> None:
    """A workload's ids are unique, so a run that shares ids between engines has no single one."""
    (run_dir / "offered.jsonl").unlink()
    again = pl.read_parquet(part(run_dir, R)).with_columns(engine=pl.lit(1, pl.Int64))
    write(again, part(run_dir, R, 1))
    with pytest.raises(InputError, match="request_id must be unique"):
        run_workload(read_run(run_dir))


# --- arrivals in steps ----------------------------------------------------------------------


def test_arrivals_in_steps_are_the_run_s_own_arrive_events() -> None:
    """Each request arrives at the step of its event, in the order of the events."""
    run = base()
    workload = run_workload(run, arrivals="steps")
    arrived = run.events.filter(pl.col("kind") == "arrive")
    assert arrived.select("request_id", "step").rows() == [
        (r.request_id, r.arrival_us) for r in workload.requests
    ]
    rows = {r["request_id"]: r for r in run.requests.to_dicts()}
    for request in workload.requests:
        row = rows[request.request_id]
        assert row["prompt_tokens"] == request.prompt_tokens
        assert row["generated_tokens"] == request.output_tokens
        assert (row["priority"], row["tenant"]) == (request.priority, request.tenant)
    assert {
        "source": "run",
        "run_id": "base-1",
        "window": {"start": 0, "count": 240},
        "engine_version": "0.32.0",
        "engine": 0,
        "arrivals": "steps",
        "dropped": {"no_output": 0, "no_arrival": 0, "no_request_row": 0},
    } == workload.provenance


def test_a_window_of_steps_starts_at_zero_and_the_whole_run_keeps_its_steps(
    run_dir: Path,
) -> None:
    """A tick of the whole run is the step of the same number, also where it begins later."""
    later = pl.when(pl.col("kind") == "arrive").then(pl.col("step") + 1000).otherwise("step")
    rewrite(run_dir, E, lambda f: f.with_columns(step=later))
    run = read_run(run_dir)
    whole = run_workload(run, arrivals="steps").requests
    assert 1000 == whole[0].arrival_us
    part = run_workload(run, 10, 5, arrivals="steps").requests
    assert [r.arrival_us - whole[10].arrival_us for r in whole[10:15]] == [
        r.arrival_us for r in part
    ]


def at_one_step(run_dir: Path, policy: str, arrivals: list[int | None]) -> list[str]:
    """Ids in order if all requests arrive at step 7, with these engine arrival times repeated."""
    edit(run_dir, "scheduler.scheduling_policy", policy)
    step = pl.when(pl.col("kind") == "arrive").then(7).otherwise("step")
    rewrite(run_dir, E, lambda f: f.with_columns(step=step.cast(pl.Int64)))
    times = pl.Series("engine_arrival_us", arrivals * (240 // len(arrivals)), dtype=pl.Int64)
    rewrite(run_dir, R, lambda f: f.with_columns(times))
    workload = run_workload(read_run(run_dir), arrivals="steps")
    assert {7} == {r.arrival_us for r in workload.requests}
    return [r.request_id for r in workload.requests]


def test_within_a_step_first_come_is_the_order_of_the_events(run_dir: Path) -> None:
    """First come, first served goes by what reached the scheduler first."""
    expected = [f"az{k:04d}" for k in range(240)]
    assert expected == at_one_step(run_dir, "fcfs", list(range(240, 0, -1)))


def test_within_a_step_priority_goes_by_the_engine_s_arrival_time(run_dir: Path) -> None:
    """The time that scheduler compares, where every request has one."""
    expected = [f"az{k:04d}" for k in range(239, -1, -1)]
    assert expected == at_one_step(run_dir, "priority", list(range(240, 0, -1)))


def test_without_all_arrival_times_priority_goes_by_the_events(run_dir: Path) -> None:
    """Half a clock orders nothing."""
    expected = [f"az{k:04d}" for k in range(240)]
    assert expected == at_one_step(run_dir, "priority", [5, None])


def late(run_dir: Path, policy: str, arrivals: list[int | None]) -> Run:
    """The run under a policy, with these engine arrival times for its first requests."""
    edit(run_dir, "scheduler.scheduling_policy", policy)
    times = pl.Series("engine_arrival_us", [*arrivals, *range(1000, 1240 - len(arrivals))])
    rewrite(run_dir, R, lambda f: f.with_columns(times))
    return read_run(run_dir)


def test_arrival_times_in_another_order_than_the_steps_are_in_the_workload(run_dir: Path) -> None:
    """A long prompt reaches the scheduler late; priority compares when it was received."""
    before = run_workload(read_run(run_dir), arrivals="steps")
    run = late(run_dir, "priority", [7, 5, 3])
    whole = run_workload(run, arrivals="steps")
    assert [7, 5, 3, 1000] == [r.engine_arrival_us for r in whole.requests[:4]]
    assert before.requests == tuple(replace(r, engine_arrival_us=None) for r in whole.requests)
    assert before.sha256 != whole.sha256
    part = run_workload(run, 1, 2, arrivals="steps")
    assert [5, 3] == [r.engine_arrival_us for r in part.requests]
    assert {None} == {r.engine_arrival_us for r in run_workload(run).requests}


@pytest.mark.parametrize(
    ("policy", "arrivals"), [("fcfs", [7, 5, 3]), ("priority", [3, 5, 7]), ("priority", [7, None])]
)
def test_arrival_times_that_decide_nothing_or_are_unknown_are_in_no_workload(
    run_dir: Path, policy: str, arrivals: list[int | None]
) -> None:
    """First come, first served compares none, and the order of the rows says as much."""
    before = run_workload(read_run(run_dir), arrivals="steps")
    found = run_workload(late(run_dir, policy, arrivals), arrivals="steps")
    assert before.sha256 == found.sha256


@pytest.mark.parametrize(
    ("policy", "arrivals", "unknown"),
    [("priority", [3, None, None], 2), ("priority", [7, 5], 0), ("fcfs", [3, None], 0)],
)
def test_unknown_arrival_times_withhold_exact_where_they_are_compared(
    run_dir: Path, policy: str, arrivals: list[int | None], unknown: int
) -> None:
    """Nobody can say whom priority preferred."""
    found = not_replayed(late(run_dir, policy, arrivals))
    said = f"{unknown} requests have no engine_arrival_us, which the priority scheduler compares"
    assert ([said] if unknown else []) == found
    never = [k for k, at in enumerate(arrivals) if at is None]
    gone = pl.col("request_id").is_in([f"az{k:04d}" for k in never])
    rewrite(run_dir, E, lambda f: f.filter(~gone))
    assert [] == not_replayed(read_run(run_dir))  # they reached no scheduler


def test_what_cannot_be_replayed_in_steps_is_counted(run_dir: Path) -> None:
    """No output, never arrived, and unknown requests; the finish event says what was generated."""
    lost = pl.Series(["az0000", "az0005"])
    rewrite(run_dir, E, lambda f: f.filter(~pl.col("request_id").is_in(lost.implode())))
    finish = (pl.col("kind") == "finish") & (pl.col("request_id") == "az0001")
    rewrite(
        run_dir,
        E,
        lambda f: f.with_columns(
            generated_tokens=pl.when(finish).then(3).otherwise("generated_tokens").cast(pl.Int64)
        ),
    )
    # Cut off by the end of the run: no finish event; one would have gone on to its limit.
    gone = (pl.col("kind") == "finish") & pl.col("request_id").is_in(["az0002", "az0003"])
    rewrite(run_dir, E, lambda f: f.filter(~gone))
    for change in (
        row("status", 2, "censored"),
        row("generated_tokens", 2, 0),
        row("max_tokens", 2, 77),
        row("generated_tokens", 3, 0),
        lambda f: f.filter(pl.col("request_id") != "az0004"),
    ):
        rewrite(run_dir, R, change)
    workload = run_workload(read_run(run_dir), arrivals="steps")
    assert workload.provenance is not None
    expected = {"no_output": 1, "no_arrival": 2, "no_request_row": 1}
    assert expected == workload.provenance["dropped"]
    output = {r.request_id: r.output_tokens for r in workload.requests}
    assert 236 == len(output)
    assert (3, 77) == (output["az0001"], output["az0002"])


def test_a_run_without_arrive_events_has_no_steps(run_dir: Path) -> None:
    """Refused by the table that lacks them, with the other way named."""
    assert has_arrive_events(read_run(run_dir), 0)
    rewrite(run_dir, E, lambda f: f.filter(pl.col("kind") != "arrive"))
    run = read_run(run_dir)
    assert not has_arrive_events(run, 0)
    with pytest.raises(InputError, match=r"events must hold arrive events .*none of engine 0"):
        run_workload(run, arrivals="steps")


def test_a_request_that_arrives_twice_makes_no_workload(run_dir: Path) -> None:
    """Nobody could tell which of the two a row is about."""
    second = (pl.col("kind") == "arrive") & (pl.col("request_id") == "az0001")
    name = pl.when(second).then(pl.lit("az0000")).otherwise("request_id").alias("request_id")
    rewrite(run_dir, E, lambda f: f.with_columns(name))
    with pytest.raises(InputError, match="request_id must be unique"):
        run_workload(read_run(run_dir), arrivals="steps")


def two_engines(run_dir: Path) -> Run:
    """The run with every odd request on engine 1."""
    odd = pl.col("request_id").str.slice(2).cast(pl.Int64) % 2
    for table in (R, E):
        rewrite(run_dir, table, lambda f: f.with_columns(engine=odd))
    return read_run(run_dir)


def test_each_engine_of_a_run_is_a_replay_of_its_own(run_dir: Path) -> None:
    """One has to be chosen, and has only what reached it, in steps and by the clock."""
    run = two_engines(run_dir)
    with pytest.raises(InputError, match=r"engine must be one of 0, 1 \(--engine.*, got none"):
        run_workload(run, arrivals="steps")
    with pytest.raises(InputError, match=r"engine must be one of 0, 1 .*, got 2"):
        engine_of(run, 2)
    assert [0, 1] == [engine_of(run, k) for k in (0, 1)]
    for arrivals in ("steps", "time"):
        for engine in (0, 1):
            workload = run_workload(run, arrivals=arrivals, engine=engine)
            expected = {f"az{k:04d}" for k in range(engine, 240, 2)}
            assert expected == {r.request_id for r in workload.requests}
            assert workload.provenance is not None
            assert engine == workload.provenance["engine"]
    assert 240 == len(run_workload(run))
    (run_dir / "offered.jsonl").unlink()
    assert 120 == len(run_workload(read_run(run_dir), engine=1))


def test_the_engine_of_a_run_that_names_none_is_the_first(tmp_path: Path) -> None:
    """A run of only a manifest has nothing else to choose from."""
    (tmp_path / "manifest.json").write_bytes((FIXTURES / "base-1" / "manifest.json").read_bytes())
    assert 0 == engine_of(read_run(tmp_path), None)
    assert 0 == engine_of(base(), None)


# --- the configuration a run had ------------------------------------------------------------


def test_a_manifest_gives_the_engine_s_configuration() -> None:
    """Every scheduler key, the pool, and the bytes of a token; a tick is a step."""
    assert {
        "engine": {
            "profile": "vllm-v1",
            "rule": "vllm-0.32.0",
            "tick_us": 1,
            "block_size": 32,
            "capacity_blocks": 47,
            "enable_prefix_caching": False,
            "max_num_seqs": 128,
            "max_num_batched_tokens": 2048,
            "max_model_len": 960,
            "scheduling_policy": "fcfs",
            "enable_chunked_prefill": True,
            "scheduler_reserve_full_isl": True,
            "watermark": 0.0,
            "long_prefill_token_threshold": 0,
            "async_scheduling": False,
        },
        "policy": {"kv_bytes_per_token": 2048},
    } == run_config_tables(base())


@pytest.mark.parametrize("key", FIELDS)
def test_what_a_manifest_does_not_know_is_never_guessed(run_dir: Path, key: str) -> None:
    """The null field is named, unless the release does not have the option at all."""
    edit(run_dir, "cache.num_gpu_blocks", None)
    edit(run_dir, FIELDS[key], None)
    run = read_run(run_dir)
    with pytest.raises(InputError) as caught:
        run_config_tables(run)
    assert (FIELDS[key], "null") == (caught.value.field, caught.value.found)
    assert str(run_dir / "manifest.json") == caught.value.place
    assert "--config" in caught.value.rule
    assert key not in run_config_tables(run, {key})["engine"]


def test_every_unknown_field_is_named_at_once(run_dir: Path) -> None:
    """One look at the message is enough."""
    for field in ("scheduler.max_num_seqs", "cache.block_size"):
        edit(run_dir, field, None)
    with pytest.raises(InputError) as caught:
        run_config_tables(read_run(run_dir))
    assert "cache.block_size, scheduler.max_num_seqs" == caught.value.field


def test_usable_blocks_are_known_from_the_engine_s_count(run_dir: Path) -> None:
    """One of vLLM's blocks is its null block; bytes of a token stay the default if unknown."""
    edit(run_dir, "cache.capacity_blocks", None)
    edit(run_dir, "cache.kv_bytes_per_token", None)
    tables = run_config_tables(read_run(run_dir))
    assert 79 == tables["engine"]["capacity_blocks"]
    assert {} == tables["policy"]


@pytest.mark.parametrize(
    ("version", "rule"),
    [("0.32.0", "vllm-0.32.0"), ("0.17.1+cpu", "vllm-0.17.1"), ("1.2.3+cu129.gb", "vllm-1.2.3")],
)
def test_the_rule_is_the_release_that_served(run_dir: Path, version: str, rule: str) -> None:
    """A build's suffix changes no scheduler."""
    edit(run_dir, "engine.version", version)
    assert rule == run_rule(read_run(run_dir))


@pytest.mark.parametrize("version", [None, "0.32", "0.32.0rc1", "0.33.0.dev7+gabc", "v0.32.0", "é"])
def test_what_is_no_release_has_no_rule(run_dir: Path, version: str | None) -> None:
    """An unreleased build may decide in any way."""
    edit(run_dir, "engine.version", version)
    with pytest.raises(InputError, match=r"engine\.version must be a release, X\.Y\.Z"):
        run_rule(read_run(run_dir))


def test_another_engine_has_no_rule_of_vllm(run_dir: Path) -> None:
    """Versions of other engines look the same."""
    edit(run_dir, "engine.name", HIDDEN)
    with pytest.raises(InputError, match=r"engine\.name must be vllm .*19 code points"):
        run_config_tables(read_run(run_dir))


def test_what_a_replay_does_not_model_is_said(run_dir: Path) -> None:
    """Pipeline stages, and shared prefixes that nobody recorded; nothing where nothing is lost."""
    assert [] == not_replayed(read_run(run_dir))
    edit(run_dir, "parallel.pipeline", 2)
    edit(run_dir, "cache.enable_prefix_caching", value=True)
    found = not_replayed(read_run(run_dir))
    assert ["pipeline", "prefix"] == [sentence.split()[0] for sentence in found]
    lists = pl.Series("prefix_blocks", [[1, 2], None] * 120)
    rewrite(run_dir, R, lambda f: f.with_columns(lists))
    assert 1 == len(not_replayed(read_run(run_dir)))
