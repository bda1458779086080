"""The engine's own preemption counter: windows, resets, and what the recorder saw in them."""

import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from click.testing import CliRunner
from stored import RUNS, metrics_only, recorded, stepped_ledger, with_counter

from analysis import store
from analysis.counter import counter_rows
from analysis.report import markdown_report
from analysis.report_data import report_data
from collectors.run import Run
from preempt.commands.fidelity import fidelity_command
from preempt.main import main
from replay.ledger import write_ledger

Row = dict[str, Any]
SECOND = 1_000_000


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty store in memory."""
    with store.connect(None) as connection:
        yield connection


def increases(db: duckdb.DuckDBPyConnection) -> list[tuple[Any, ...]]:
    """(engine, to_us, increase) of every window."""
    return db.execute(
        "SELECT measured_engine, measured_to_us, measured_preemptions FROM preemption_counter"
        " WHERE measured_from_us IS NOT NULL"
    ).fetchall()


def total(db: duckdb.DuckDBPyConnection, run: Run) -> Row:
    """The totals of one run that is now in the store."""
    store.load_run(db, run)
    (row,) = (r for r in counter_rows(db) if r["run_id"] == run.run_id)
    return row


def with_manifest(run: Run, **changes: Any) -> Run:
    """The run with other top-level fields in its manifest."""
    return replace(run, manifest={**run.manifest, **changes})


def reset(scrape: int, engine: int | None = 0) -> Row:
    """What a collector lists where the preemption counter began anew."""
    return {"time_us": 0, "scrape": scrape, "engine": engine, "name": "num_preemptions"}


def test_an_increase_belongs_to_the_window_between_two_samples(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """The first sample has none, a value that is no number is passed over, engines count apart."""
    store.load_run(db, with_counter(metrics_only(), {0: [5, 7, None, 12], 1: [0, 0, 1, 1]}))
    expected = [(0, 1, 2), (0, 3, 5), (1, 1, 0), (1, 2, 1), (1, 3, 0)]
    assert [(e, t * SECOND, n) for e, t, n in expected] == increases(db)
    (row,) = counter_rows(db)
    assert (2, 7, 8, 0) == tuple(
        row[f"measured_{name}"] for name in ("series", "samples", "counter_preemptions", "resets")
    )


def test_a_counter_that_fell_counts_from_zero(db: duckdb.DuckDBPyConnection) -> None:
    """After a reset the new value is the increase, and the total a lower bound."""
    row = total(db, with_counter(metrics_only(), {0: [50, 60, 4, 9]}))
    assert [10, 4, 5] == [n for *_, n in increases(db)]
    assert (19, 1) == (row["measured_counter_preemptions"], row["measured_resets"])


@pytest.mark.parametrize(("engine", "expected"), [(0, [10, 70, 1]), (1, [10, 10, 1])])
def test_a_reset_that_the_collector_saw_counts_even_if_nothing_fell(
    engine: int, expected: list[int], db: duckdb.DuckDBPyConnection
) -> None:
    """A restarted engine may have passed its old number; another engine's restart is none of it."""
    run = with_manifest(metrics_only(), counter_resets=[reset(2, engine)])
    store.load_run(db, with_counter(run, {0: [50, 60, 70, 71]}))
    assert expected == [n for *_, n in increases(db)]


def test_several_workers_behind_one_address_make_no_total(db: duckdb.DuckDBPyConnection) -> None:
    """Counters that alternate are no series: unknown, not the sum of their falls."""
    collection = {"several_workers": True, "outcomes": {"ok": 4}}
    run = with_manifest(metrics_only(), collection=collection)
    row = total(db, with_counter(run, {0: [50, 3, 51, 4]}))
    assert (None, None) == (row["measured_counter_preemptions"], row["measured_resets"])
    assert "several workers count apart" == row["measured_not_compared"]


@pytest.mark.parametrize(
    ("values", "why"), [([], "no counter on any page"), ([7], "fewer than two samples")]
)
def test_what_no_window_shows_is_not_zero(
    values: Sequence[float], why: str, db: duckdb.DuckDBPyConnection
) -> None:
    """Pages without the counter, and one page of it, measured neither preemptions nor none."""
    row = total(db, with_counter(metrics_only(), {0: values}, others=True))
    assert (None, why) == (row["measured_counter_preemptions"], row["measured_not_compared"])


def test_a_run_without_samples_is_not_among_them(db: duckdb.DuckDBPyConnection) -> None:
    """Its counter is not zero, it is not there."""
    store.load_run(db, recorded())
    assert [] == counter_rows(db)


@pytest.mark.parametrize("value", [1e300, -1.0])
def test_a_value_that_no_counter_has_breaks_no_query(
    value: float, db: duckdb.DuckDBPyConnection
) -> None:
    """Pages come from elsewhere: a number beyond every integer makes the total unknown."""
    row = total(db, with_counter(metrics_only(), {0: [0, value, 3]}))
    assert (None if value > 0 else 3) == row["measured_counter_preemptions"]


# Beside the recorder.

PREEMPTED = recorded().events.filter(pl.col("kind") == "preempt")["time_us"].to_list()
END_S = recorded().events["time_us"].max() // SECOND + 1  # type: ignore[operator]


def counted(less: int = 0, until_s: int = END_S) -> Run:
    """The recorded run with a counter that rose as its events did, and in the end `less`."""
    seen = [sum(t <= k * SECOND for t in PREEMPTED) for k in range(until_s + 1)]
    last = max(seen) - less
    return with_counter(recorded(), {0: [*(min(n, last) for n in seen[:-1]), last]})


def test_counter_and_events_are_compared_in_the_same_window(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """Events before the first and after the last sample are none of the counter's."""
    half = END_S // 2
    within = sum(0 < t <= half * SECOND for t in PREEMPTED)
    assert 0 < within < len(PREEMPTED)
    row = total(db, counted(until_s=half))
    assert (within, within, len(PREEMPTED), 0, None) == (
        row["measured_counter_preemptions"],
        row["measured_preempt_events_in_window"],
        row["measured_preempt_events"],
        row["measured_difference"],
        row["measured_not_compared"],
    )


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (lambda run: replace(run, events=run.events.clear()), "no recorder"),
        (
            lambda run: with_manifest(run, counter_resets=[reset(3)]),
            "the counter was reset",
        ),
        (
            lambda run: replace(run, events=run.events.with_columns(engine=pl.lit(7, pl.Int64))),
            "engines without a series",
        ),
        (
            lambda run: replace(
                run, samples=pl.concat([run.samples, with_counter(run, {1: [0, 0]}).samples])
            ),
            "series of different windows",
        ),
    ],
    ids=["no-recorder", "reset", "other-engine", "other-window"],
)
def test_what_is_not_alike_is_not_subtracted(
    change: Any, why: str, db: duckdb.DuckDBPyConnection
) -> None:
    """Both numbers stay, and the reason stands where the difference would."""
    row = total(db, change(counted()))
    assert (None, why) == (row["measured_difference"], row["measured_not_compared"])
    assert row["measured_counter_preemptions"] is not None


def report_of(db: duckdb.DuckDBPyConnection, *runs: Run) -> str:
    """The report about these runs."""
    for run in runs:
        store.load_run(db, run)
    return markdown_report(report_data(db))


def test_a_report_shows_both_and_says_where_they_disagree(db: duckdb.DuckDBPyConnection) -> None:
    """A row for the run with samples, and a sentence that names what makes the difference."""
    text = report_of(db, counted(less=3))
    assert f"| base-1 | 1 | {END_S + 1} | 0 | {END_S} | 227 | 0 | 230 | -3 | – |" in text
    assert (
        "**base-1: the counter shows 3 fewer than the 230 preemptions that the recorder saw in the"
        " same window; the counter moves when a victim next emits a token, and never for one that"
        " is aborted before.**"
    ) in text


def test_a_counter_that_shows_more_is_told_by_what_was_not_recorded(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """How far the recorder's events reach, and what is known to be lost."""
    run = with_manifest(counted(less=-9), recorder={"dropped_records": 4, "complete": False})
    text = report_of(db, run)
    first, last = (recorded().events["time_us"].sort()[k] / SECOND for k in (0, -1))
    assert (
        "**base-1: the counter shows 9 more than the 230 preemptions that the recorder saw in the"
        f" same window; what is recorded reaches from {first:.1f} to {last:.1f} s of the run; the"
        " recorder dropped 4 records; an engine was killed, whose last moment is not recorded; the"
        " counter has a victim of before the window if it emits within it.**"
    ) in text


def test_a_report_of_runs_that_agree_raises_no_alarm(db: duckdb.DuckDBPyConnection) -> None:
    """The table says it: a difference of zero."""
    text = report_of(db, counted())
    assert "| 230 | 0 | 230 | 0 | – |" in text
    assert "the counter shows" not in text


def test_a_report_of_metrics_alone_shows_the_counter_and_no_zero(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """Requests that nobody recorded are dashes, and how to record them is said."""
    text = report_of(db, with_counter(metrics_only(), {0: [2, 9]}))
    assert "| metrics-1 | 1 | 2 | 0 | 1 | 7 | 0 | – | – | no recorder |" in text
    assert "| metrics-1 | – | – | – | – | – | – | – |" in text
    assert "| metrics-1 | 0 |" not in text
    assert "No request was recorded in metrics-1: metrics name no request; record with" in text


def test_a_report_without_samples_has_no_such_table(db: duckdb.DuckDBPyConnection) -> None:
    """Nothing was scraped, so there is nothing to show."""
    assert "engine's own counter" not in report_of(db, recorded())


def run_directory(to: Path, run: Run) -> Path:
    """base-1's directory with this run's samples."""
    shutil.copytree(RUNS / "base-1", to)
    (to / "samples").mkdir()
    metadata = {"schema": "preemption-run/1"}
    run.samples.write_parquet(to / "samples" / "part-00000.parquet", metadata=metadata)
    return to


@pytest.mark.parametrize(
    ("less", "said"),
    [(0, "the recorder saw as many"), (3, "the counter shows 3 fewer than the 230 preemptions")],
)
def test_fidelity_says_what_the_counter_showed(less: int, said: str, tmp_path: Path) -> None:
    """One line more where a run has its samples, and the numbers with --json."""
    write_ledger(stepped_ledger(), tmp_path / "ledger")
    words = [str(tmp_path / "ledger"), str(run_directory(tmp_path / "run", counted(less)))]
    shown = CliRunner().invoke(fidelity_command, words, catch_exceptions=False)
    line = shown.stderr.splitlines()[-1]
    start = f"counter: {230 - less} preemptions from 0.0 to {END_S}.0 s of the run; "
    assert line.startswith(f"{start}{said}")
    found = json.loads(CliRunner().invoke(fidelity_command, [*words, "--json", "-q"]).stdout)
    assert -less == found["counter"]["measured_difference"]


def test_fidelity_of_metrics_alone_says_what_is_missing_and_how_to_get_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """One line, not a wall of everything that such a run does not know."""
    write_ledger(stepped_ledger(), tmp_path / "ledger")
    run = tmp_path / "metrics-1"
    run.mkdir()
    (run / "manifest.json").write_text(json.dumps(dict(metrics_only().manifest)))
    with pytest.raises(SystemExit) as caught:
        main(["fidelity", str(tmp_path / "ledger"), str(run)])
    (line,) = capsys.readouterr().err.splitlines()
    assert 2 == caught.value.code
    assert (
        "preempt: run metrics-1: holds no requests to join; metrics name no request; record with"
        " the recorder inside the engine (preempt collect pack), or offer the load with preempt"
        " collect drive" == line
    )
