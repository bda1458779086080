"""Loading ledgers and runs: typed, whole or not at all, once, and never mixed."""

import dataclasses
import json
import os
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from click.testing import CliRunner, Result
from stored import (
    RUNS,
    engine_config,
    lab_ledger,
    metrics_only,
    recorded,
    resealed,
    sealed,
    window,
    with_counter,
)

from analysis import database, frames, sqlfiles, store
from analysis.database import SCHEMA
from analysis.errors import AnalysisError, ContentConflict, StoreError
from collectors import columns
from collectors.run import Run, run_workload
from preempt.commands.store import load_command
from preempt.main import main
from replay.canonical import canonical_json, sha256
from replay.errors import InputError, ReplayError
from replay.events import COLUMN, COLUMNS, NULL, event_sha256, named, to_events
from replay.ledger import Ledger, write_ledger
from replay.requests_table import COLUMNS as REQUEST_TABLE
from replay.workload import Workload

ROOT = Path(__file__).parent.parent
LOADED = [t for t in sqlfiles.TABLES if t != "store_info"]


def counts(db: duckdb.DuckDBPyConnection) -> dict[str, int]:
    """Rows of every table."""
    found = {}
    for name in LOADED:
        (row,) = db.execute(f"SELECT count(*) FROM {name}").fetchall()  # noqa: S608
        found[name] = row[0]
    return found


def rows(db: duckdb.DuckDBPyConnection, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    return db.execute(query, list(values)).fetchall()


def columns_of(db: duckdb.DuckDBPyConnection, name: str) -> list[str]:
    """Column names of a table or view, in order."""
    query = "SELECT column_name FROM duckdb_columns() WHERE table_name = ? ORDER BY column_index"
    return [column for (column,) in rows(db, query, name)]


# What the database is made of.


def test_every_table_and_column_says_what_it_means() -> None:
    """No table, view or table column is without a comment."""
    with store.connect(None) as db:
        silent = rows(
            db,
            "SELECT table_name, column_name FROM duckdb_columns() JOIN duckdb_tables()"
            " USING (table_name) WHERE duckdb_columns.comment IS NULL",
        )
        silent += rows(db, "SELECT table_name FROM duckdb_tables() WHERE comment IS NULL")
        silent += rows(
            db, "SELECT view_name FROM duckdb_views() WHERE NOT internal AND comment IS NULL"
        )
    assert [] == silent


def test_every_sql_file_is_used_and_begins_with_its_grain() -> None:
    """Tables and views in files are the ones created, and each file states its grain first."""
    assert set(sqlfiles.names("tables")) == set(sqlfiles.TABLES)
    assert set(sqlfiles.names("views")) == set(sqlfiles.VIEWS)
    for kind in ("tables", "views", "joins", "queries"):
        for name in sqlfiles.names(kind):
            assert sqlfiles.first_comment(sqlfiles.sql(kind, name)).startswith("Grain: one row")


@pytest.mark.parametrize("name", columns.TABLES)
def test_a_measured_table_has_the_contracts_columns(name: str) -> None:
    """Measured tables have exactly the columns that collectors write, in that order."""
    with store.connect(None) as db:
        assert list(columns.TABLES[name]) == columns_of(db, name)


def test_modelled_tables_have_the_ledgers_columns() -> None:
    """Modelled tables are the two keys and the columns of a ledger's own files."""
    keys = ["ledger_id", "run_id"]
    with store.connect(None) as db:
        assert [*keys, *COLUMNS] == columns_of(db, "modelled_events")
        requests = columns_of(db, "modelled_requests")
    assert [*keys, *REQUEST_TABLE] == requests[: len(keys) + len(REQUEST_TABLE)]


def test_every_field_of_a_manifest_has_its_column() -> None:
    """The flattened manifest is complete: a new field without a column is noticed here."""
    flat = [name.replace(".", "_") for name in frames.manifest_fields()]
    with store.connect(None) as db:
        found = columns_of(db, "measured_runs")
    assert flat == found[: len(flat)]


# What goes in comes out.


def test_a_run_is_stored_row_for_row() -> None:
    """Every row of every measured table is there with its values and in its order."""
    run = recorded()
    with store.connect(None) as db:
        assert store.load_run(db, run)
        for name, frame in (
            ("measured_requests", run.requests),
            ("measured_events", run.events),
            ("measured_steps", run.steps),
        ):
            assert frame.height > 0
            assert frame.rows() == rows(db, f"FROM {name}")


def test_samples_are_stored_with_json_labels_and_null_for_what_was_not_finite() -> None:
    """Labels are JSON, a NaN is NULL, and the last bucket's bound stays infinite."""
    lines = {
        "run_id": ["base-1"] * 2,
        "scrape": [0, 0],
        "time_us": [5, 5],
        "engine": [0, None],
        "model": ["m", None],
        "name": ["a_bucket", "b"],
        "labels": ['{"x":"1"}', "{}"],
        "le": [float("inf"), None],
        "value": [3.0, None],
    }
    samples = pl.DataFrame(lines, schema=recorded().samples.schema)
    run = dataclasses.replace(recorded(), samples=samples)
    with store.connect(None) as db:
        store.load_run(db, run)
        assert not store.load_run(db, run)
        found = rows(db, "SELECT labels ->> 'x', le, value, value > 0 FROM metric_samples")
    assert [("1", float("inf"), 3.0, True), (None, None, None, None)] == found


def test_a_runs_manifest_is_flattened_and_kept_whole() -> None:
    """Dots become underscores, unknown is NULL, and the canonical JSON has its hash."""
    with store.connect(None) as db:
        store.load_run(db, recorded())
        (found,) = rows(
            db,
            "SELECT cache_num_gpu_blocks, engine_version, device_driver, scheduler_watermark,"
            " gaps, offered_requests, manifest, manifest_sha256 FROM measured_runs",
        )
    manifest = canonical_json(dict(recorded().manifest))
    expected = (48, "0.32.0", None, 0.0, "[]", 240, manifest.decode(), sha256(manifest))
    assert expected == found


def test_a_runs_start_is_a_timestamp_and_must_exist() -> None:
    """A start in UTC becomes a TIMESTAMP; the 31st of April is refused and nothing stored."""
    run = with_manifest(recorded(), start="2026-01-05T10:20:30.123456789Z")
    with store.connect(None) as db:
        store.load_run(db, run)
        found = rows(db, "SELECT CAST(start AS VARCHAR) FROM measured_runs")
        assert [("2026-01-05 10:20:30.123456",)] == found
        wrong = with_manifest(recorded("cand-80"), start="2026-04-31T10:20:30Z")
        with pytest.raises(InputError, match="start must be a date and time that exist"):
            store.load_run(db, wrong)
        assert 1 == counts(db)["measured_runs"]


def with_manifest(run: Run, **fields: Any) -> Run:
    """A run whose manifest says something else at its top level."""
    return dataclasses.replace(run, manifest={**run.manifest, **fields})


def test_a_ledger_is_stored_row_for_row() -> None:
    """Events with names for codes, requests in workload order, and the receipt as it is."""
    ledger = lab_ledger()
    ids = ledger.request_ids
    key = (ledger.receipt["receipt_sha256"], "base-1")
    events = [key + tuple(named(e, ids).values()) for e in to_events(ledger.events)]
    requests = [key + row + (None,) * 4 for row in ledger.requests.rows()]
    with store.connect(None) as db:
        assert store.load_ledger(db, ledger)
        assert events == rows(db, "FROM modelled_events")
        assert requests == rows(db, "FROM modelled_requests")
        (found,) = rows(
            db,
            "SELECT ledger_id, profile, recovery, capacity_blocks, max_num_batched_tokens,"
            " modelled_preemptions, receipt FROM modelled_ledgers",
        )
    totals = ledger.receipt["totals"]
    receipt = canonical_json(ledger.receipt).decode()
    assert (key[0], "lab", "recompute", 30, None, totals["preemptions"], receipt) == found
    assert totals["preemptions"] > 0


def test_a_timed_ledgers_own_columns_are_stored() -> None:
    """The microsecond columns of a timed replay are kept."""
    plain = lab_ledger()
    timed = plain.requests.with_columns(modelled_ttft_us=7, modelled_tpot_us=8)
    with store.connect(None) as db:
        store.load_ledger(db, dataclasses.replace(plain, requests=timed))
        query = "SELECT DISTINCT modelled_ttft_us, modelled_tpot_us FROM modelled_requests"
        assert [(7, 8)] == rows(db, query)


def test_the_hash_of_a_runs_own_workload_is_known_in_both_forms() -> None:
    """Offered or observed, a run knows the hash of what an import of it gives."""
    run = recorded()
    assert run.offered is not None
    later = tuple(dataclasses.replace(r, arrival_us=r.arrival_us + 9) for r in run.offered.requests)
    shifted = dataclasses.replace(run, offered=Workload(later))
    observed = dataclasses.replace(run, offered=None)
    empty = dataclasses.replace(observed, requests=run.requests.clear())
    assert frames.run_row(run)["run_workload_sha256"] == run.offered.sha256
    assert frames.run_row(shifted)["run_workload_sha256"] == run.offered.sha256
    expected = run_workload(observed).sha256
    assert expected == frames.run_row(observed)["run_workload_sha256"] != run.offered.sha256
    assert frames.run_row(empty)["run_workload_sha256"] is None


def test_a_runs_requests_are_known_by_every_hash_they_can_have() -> None:
    """As they were offered, and as the engine's own steps have them; equal hashes once."""
    steps = run_workload(recorded(), arrivals="steps")
    offered = recorded().offered
    assert offered is not None
    expected = [("steps", 0, steps.sha256), ("time", None, offered.sha256)]
    with store.connect(None) as db:
        store.load_run(db, recorded())
        query = "SELECT arrivals, engine, workload_sha256 FROM measured_workloads ORDER BY ALL"
        assert expected == rows(db, query)


def test_a_run_without_arrive_events_is_known_by_the_clock() -> None:
    """Steps that nobody recorded give no hash."""
    silent = dataclasses.replace(recorded(), events=recorded().events.clear())
    with store.connect(None) as db:
        store.load_run(db, silent)
        assert [("time",)] == rows(db, "SELECT arrivals FROM measured_workloads")


# Once, and never mixed.


def test_loading_again_adds_nothing() -> None:
    """The second load of a run and of a ledger says so and changes no table."""
    with store.connect(None) as db:
        assert [True, True] == [store.load_run(db, recorded()), store.load_ledger(db, lab_ledger())]
        before = counts(db)
        after = [store.load_run(db, recorded()), store.load_ledger(db, lab_ledger())]
        assert [False, False] == after
        assert before == counts(db)


def test_a_replay_of_two_runs_workload_is_two_rows() -> None:
    """The key of a ledger is its receipt and its run: equal workloads do not hide each other."""
    ledger = lab_ledger()
    workload = dataclasses.replace(ledger.workload, provenance={"run_id": "other"})
    stray = dataclasses.replace(ledger.workload, provenance=None)
    with store.connect(None) as db:
        for own in (ledger.workload, workload, stray, stray):
            store.load_ledger(db, dataclasses.replace(ledger, workload=own))
        found = rows(db, "SELECT run_id FROM modelled_ledgers ORDER BY run_id NULLS FIRST")
        assert [(None,), ("base-1",), ("other",)] == found
        assert 3 * len(ledger.events) == counts(db)["modelled_events"]


def _raised(frame: pl.DataFrame, column: str) -> pl.DataFrame:
    return frame.with_columns(pl.col(column) + 1)


CONFLICTS: dict[str, Callable[[Run], Run]] = {
    "manifest.json": lambda run: with_manifest(run, note="another"),
    "measured_requests": lambda run: dataclasses.replace(
        run, requests=_raised(run.requests, "num_preemptions")
    ),
    "measured_events": lambda run: dataclasses.replace(run, events=run.events.head(-1)),
    "measured_steps": lambda run: dataclasses.replace(run, steps=_raised(run.steps, "kv_tokens")),
    "metric_samples": lambda run: dataclasses.replace(
        run,
        samples=pl.DataFrame(
            [("base-1", 0, 0, 0, "m", "n", "{}", None, 1.0)],
            schema=run.samples.schema,
            orient="row",
        ),
    ),
}


@pytest.mark.parametrize("what", CONFLICTS)
def test_a_run_id_with_other_content_is_refused(what: str) -> None:
    """A known run id with another manifest or another row anywhere is named and not mixed."""
    with store.connect(None) as db:
        store.load_run(db, recorded())
        before = counts(db)
        with pytest.raises(ContentConflict, match=rf"base-1 is already loaded .*\({what}\)"):
            store.load_run(db, CONFLICTS[what](recorded()))
        assert before == counts(db)


@pytest.mark.parametrize("what", CONFLICTS)
def test_a_run_with_other_content_is_replaced_if_that_is_asked_for(what: str) -> None:
    """All of it in one transaction: what is in the store afterwards is the other run, whole."""
    other = CONFLICTS[what](recorded())
    with store.connect(None) as db:
        store.load_run(db, recorded())
        assert store.load_run(db, other, refresh=True)
        refreshed = {name: rows(db, f"FROM {name} ORDER BY ALL") for name in LOADED}
        assert not store.load_run(db, other)
    with store.connect(None) as db:
        store.load_run(db, other)
        assert refreshed == {name: rows(db, f"FROM {name} ORDER BY ALL") for name in LOADED}


def test_a_refused_run_names_the_flag_that_replaces_it() -> None:
    """The way out is in the line."""
    with store.connect(None) as db:
        store.load_run(db, recorded())
        with pytest.raises(ContentConflict, match="preempt load --refresh replaces it by this"):
            store.load_run(db, CONFLICTS["measured_events"](recorded()))


def observed(values: list[float], **manifest: Any) -> Run:
    """A run of metrics as its collector left it after these samples of a counter."""
    run = with_counter(metrics_only(), {0: values})
    about = {"model": {"name": "m"}, "scrapes": len(values), "drain_end_us": len(values)}
    return with_manifest(run, **(about | manifest))


LATER: dict[str, tuple[Run, bool]] = {
    "more samples": (observed([1, 2, 3]), True),
    "a version that became known": (
        observed([1, 2, 3], engine={"name": "vllm", "version": "0.32.0"}),
        True,
    ),
    "a sample that changed": (observed([1, 3, 3]), False),
    "a sample that is gone": (observed([1]), False),
    "another model": (observed([1, 2, 3], model={"name": "other"}), False),
    "a model that is no longer known": (observed([1, 2, 3], model={"name": None}), False),
}


@pytest.mark.parametrize("change", LATER)
def test_a_run_that_was_loaded_while_it_was_collected_is_brought_up_to_date(change: str) -> None:
    """Without being asked where all that was loaded is still in it; anything else is a conflict."""
    later, grown = LATER[change]
    with store.connect(None) as db:
        store.load_run(db, observed([1, 2]))
        if grown:
            assert store.load_run(db, later)
            assert [(1.0,), (2.0,), (3.0,)] == rows(db, "SELECT value FROM metric_samples")
            assert [(3,)] == rows(db, "SELECT scrapes FROM measured_runs")
        else:
            with pytest.raises(ContentConflict):
                store.load_run(db, later)
            assert [(1.0,), (2.0,)] == rows(db, "SELECT value FROM metric_samples")


def test_a_drive_that_has_ended_does_not_grow() -> None:
    """Rows that come later are other content; those of a drive under way are its growth."""
    run = recorded()
    part = dataclasses.replace(run, events=run.events.head(100))
    for end, grows in ((part.manifest["drain_end_us"], False), (None, True)):
        with store.connect(None) as db:
            store.load_run(db, with_manifest(part, drain_end_us=end))
            if grows:
                assert store.load_run(db, run)
            else:
                with pytest.raises(ContentConflict):
                    store.load_run(db, run)


def test_a_known_ledger_with_other_requests_is_refused() -> None:
    """requests.parquet is in no hash, so a second load compares it."""
    ledger = lab_ledger()
    other = ledger.requests.with_columns(pl.col("queue_ticks") + 1)
    with store.connect(None) as db:
        store.load_ledger(db, ledger)
        with pytest.raises(ContentConflict, match=r"another requests\.parquet"):
            store.load_ledger(db, dataclasses.replace(ledger, requests=other))


# What is not what it says is refused, and nothing is stored.


def _event(ledger: Ledger, **changes: Any) -> Ledger:
    events = ledger.events.copy()
    for column, value in changes.items():
        events[0, COLUMN[column]] = NULL if value is None else value
    return dataclasses.replace(ledger, events=events)


def _receipt(ledger: Ledger, **changes: Any) -> Ledger:
    return dataclasses.replace(ledger, receipt=resealed(ledger.receipt | changes))


def _request(ledger: Ledger, **changes: Any) -> Ledger:
    first = pl.int_range(pl.len()) == 0
    changed = [pl.when(first).then(pl.lit(v)).otherwise(c).alias(c) for c, v in changes.items()]
    return dataclasses.replace(ledger, requests=ledger.requests.with_columns(changed))


def _provenance(ledger: Ledger, run_id: Any) -> Ledger:
    workload = dataclasses.replace(ledger.workload, provenance={"run_id": run_id})
    return dataclasses.replace(ledger, workload=workload)


BAD_LEDGERS: dict[str, Callable[[Ledger], Ledger]] = {
    "receipt.receipt_sha256 must be the hash": lambda ledger: dataclasses.replace(
        ledger, receipt=ledger.receipt | {"numbers": "measured"}
    ),
    "receipt.receipt_sha256 must be 64": lambda ledger: dataclasses.replace(
        ledger, receipt=ledger.receipt | {"receipt_sha256": "F" * 64}
    ),
    "receipt must be JSON of safe numbers": lambda ledger: dataclasses.replace(
        ledger, receipt=ledger.receipt | {"totals": {"requests": float("nan")}}
    ),
    "receipt.workload_sha256 must be the hash": lambda ledger: _receipt(
        ledger, workload_sha256="0" * 64
    ),
    "receipt.input_sha256 must be the hash": lambda ledger: _receipt(ledger, input_sha256="0" * 64),
    "receipt.event_sha256 must be the hash": lambda ledger: _event(ledger, queue_depth=9),
    "receipt.totals must be an object": lambda ledger: _receipt(ledger, totals=[]),
    "receipt.totals.preemptions must be >= 0": lambda ledger: _receipt(
        ledger, totals={"preemptions": -1}
    ),
    "receipt.totals.recompute_tax_frac must be a fraction": lambda ledger: _receipt(
        ledger, totals={"recompute_tax_frac": 2}
    ),
    "receipt.limitations must be a list": lambda ledger: _receipt(ledger, limitations=[1]),
    "requests must be those of the workload": lambda ledger: dataclasses.replace(
        ledger, requests=ledger.requests.reverse()
    ),
    "requests.queue_ticks must not be null": lambda ledger: _request(ledger, queue_ticks=None),
    "requests.status must be one of": lambda ledger: _request(ledger, status="done"),
    "requests must hold the contract's types": lambda ledger: _request(ledger, preemptions="many"),
    "provenance.run_id must hold no control": lambda ledger: _provenance(ledger, "a\nb"),
    "provenance.run_id must be a string": lambda ledger: _provenance(ledger, 7),
}


@pytest.mark.parametrize("fault", BAD_LEDGERS)
def test_a_ledger_that_is_not_what_its_receipt_says_is_refused(fault: str) -> None:
    """The fault is named with its place, and no table has a row of it."""
    with store.connect(None) as db:
        with pytest.raises(InputError) as caught:
            store.load_ledger(db, BAD_LEDGERS[fault](lab_ledger()), "here")
        assert str(caught.value).startswith("here: ")
        assert fault in str(caught.value)
        assert "\n" not in str(caught.value)
        assert {0} == set(counts(db).values())


@pytest.mark.parametrize(
    ("fault", "changes"),
    [
        ("events.tick must not be null", {"tick": None}),
        ("events.kind must be a name", {"kind": -1}),
        ("events.kind must be a name", {"kind": 11}),
        ("events.request_id must be a name", {"request_id": -1}),
        ("events.requester_id must be a name", {"requester_id": 40}),
    ],
)
def test_an_event_that_no_contract_knows_is_refused(fault: str, changes: dict[str, Any]) -> None:
    """Also when every hash was made to fit it."""
    bad = _event(lab_ledger(), **changes)
    digest = event_sha256(bad.events, bad.config)
    bad = dataclasses.replace(bad, receipt=resealed(bad.receipt | {"event_sha256": digest}))
    with store.connect(None) as db:
        with pytest.raises(InputError, match=fault):
            store.load_ledger(db, bad)
        assert {0} == set(counts(db).values())


# Paths.


@pytest.fixture
def ledgers(tmp_path: Path) -> Path:
    """A directory of two ledgers and something else."""
    for recovery in ("recompute", "swap"):
        write_ledger(lab_ledger(recovery), tmp_path / "ledgers" / recovery)
    (tmp_path / "ledgers" / ".swap.partial-x").mkdir()
    (tmp_path / "ledgers" / ".swap.partial-x" / "receipt.json").touch()
    (tmp_path / "ledgers" / "notes.txt").touch()
    return tmp_path / "ledgers"


def test_a_path_is_a_ledger_a_run_or_a_directory_of_those(ledgers: Path) -> None:
    """What is found is loaded in order of name; other entries and unfinished ones are left."""
    seen: list[Path] = []
    with store.connect(None) as db:
        found = store.load_path(db, ledgers, seen.append) + store.load_path(db, RUNS / "base-1")
        again = store.load_path(db, ledgers / "swap")
        assert [ledgers / "recompute", ledgers / "swap"] == seen
        ids = [lab_ledger(r).receipt["receipt_sha256"] for r in ("recompute", "swap")]
        expected = [("ledger", ids[0], True), ("ledger", ids[1], True), ("run", "base-1", True)]
        assert expected == [(f.kind, f.id, f.added) for f in found]
        assert [("ledger", ids[1], "base-1", False)] == [
            (f.kind, f.id, f.run_id, f.added) for f in again
        ]
        assert 2 * 40 == counts(db)["modelled_requests"]


def test_a_path_with_one_bad_entry_loads_nothing(ledgers: Path) -> None:
    """One path is one transaction: the good ledgers before the bad one are not kept."""
    (ledgers / "swap" / "receipt.json").write_text("{}")
    with store.connect(None) as db:
        with pytest.raises(InputError, match=r"swap: receipt\.workload_sha256 must be 64"):
            store.load_path(db, ledgers)
        assert {0} == set(counts(db).values())
        assert [True] == [f.added for f in store.load_path(db, ledgers / "recompute")]


def test_the_output_of_a_service_is_a_path(tmp_path: Path) -> None:
    """Its targets' runs lie one level deeper; what begins with a dot and what is linked is left."""
    for target in ("chat", "code"):
        shutil.copytree(
            RUNS / ("base-1" if target == "chat" else "cand-80"), tmp_path / target / "run"
        )
    (tmp_path / "linked").symlink_to(tmp_path / "chat")
    shutil.copytree(RUNS / "base-1", tmp_path / "code" / ".run.partial")
    with store.connect(None) as db:
        found = store.load_path(db, tmp_path)
    expected = [(tmp_path / "chat" / "run", "base-1"), (tmp_path / "code" / "run", "cand-80")]
    assert expected == [(f.path, f.id) for f in found]


def test_a_path_that_is_none_of_those_is_refused(tmp_path: Path) -> None:
    """Nothing there, an empty directory, and a directory that claims to be both."""
    (tmp_path / "empty").mkdir()
    (tmp_path / "both").mkdir()
    for name in ("receipt.json", "manifest.json"):
        (tmp_path / "both" / name).touch()
    with store.connect(None) as db:
        for name, fault in (
            ("nothing", "must be a ledger .* got No such file"),
            ("empty", "must be a ledger .* got a directory of 0 other entries"),
            ("both", "must be a ledger or a run, got both"),
        ):
            with pytest.raises(InputError, match=fault):
                store.load_path(db, tmp_path / name)


def gate_report(**changes: Any) -> dict[str, Any]:
    """A gate report with the right hash."""
    report = {
        "schema": "preemption-gate-report/1",
        "gate": {"name": "seqs-64", "sha256": "a" * 64},
        "verdict": "pass",
    }
    report |= changes
    return report | {"report_sha256": sha256(canonical_json(report))}


def test_a_gate_report_is_loaded_once(tmp_path: Path) -> None:
    """A JSON file of a gate's report becomes one row."""
    path = tmp_path / "gate.json"
    path.write_text(json.dumps(gate_report()))
    with store.connect(None) as db:
        assert [True, False] == [store.load_path(db, path)[0].added for _ in range(2)]
        found = rows(db, "SELECT gate_name, verdict, report ->> 'verdict' FROM gate_results")
    assert [("seqs-64", "pass", "pass")] == found


@pytest.mark.parametrize(
    ("fault", "report"),
    [
        ("schema must be preemption-gate-report/1", gate_report(schema="preemption-gate-report/2")),
        ("schema must be preemption-gate-report/1, got null", {}),
        ("verdict must be one of", gate_report(verdict="maybe")),
        ("gate must be a table", gate_report(gate=None)),
        ("report_sha256 must be the hash", gate_report() | {"verdict": "fail"}),
        ("must be JSON of safe numbers", gate_report() | {"x": 2**60}),
    ],
)
def test_a_gate_report_that_is_none_is_refused(fault: str, report: dict[str, Any]) -> None:
    """Another schema, an unknown verdict or a changed report is named."""
    with store.connect(None) as db:
        with pytest.raises(InputError, match=fault):
            store.load_gate_report(db, report)
        assert 0 == counts(db)["gate_results"]


# The file.

KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from analysis import store
insert, calls = store.insert_frame, []
def insert_then_die(db, name, frame):
    insert(db, name, frame)
    calls.append(name)
    if len(calls) == 2:
        os.kill(os.getpid(), signal.SIGKILL)
store.insert_frame = insert_then_die
db = store.connect(Path(sys.argv[1]))
store.load_path(db, Path(sys.argv[2]))
"""


def test_a_killed_load_leaves_a_database_that_a_second_load_completes(tmp_path: Path) -> None:
    """Killed between two tables of a run: nothing of it is there, and loading again works."""
    path = tmp_path / "store.duckdb"
    command = [sys.executable, "-c", KILLED, str(path), str(RUNS / "base-1"), str(ROOT)]
    assert -9 == subprocess.run(command, check=False).returncode
    with store.connect(path, read_only=True) as db:
        assert {0} == set(counts(db).values())
    with store.connect(path) as db:
        assert [True] == [f.added for f in store.load_path(db, RUNS / "base-1")]
        assert 240 == counts(db)["measured_requests"]


def test_two_loads_at_once_load_once(tmp_path: Path) -> None:
    """Two processes that start together both succeed, and the run is there once."""
    path = tmp_path / "store.duckdb"
    command = [sys.executable, "-m", "preempt", "load", str(RUNS / "base-1"), "--db", str(path)]
    both = [
        subprocess.Popen([*command, "--json"], cwd=ROOT, stdout=subprocess.PIPE) for _ in range(2)
    ]
    found = [json.loads(process.communicate()[0])["added"] for process in both]
    assert [0, 1] == sorted(found)
    assert [0, 0] == [process.returncode for process in both]
    with store.connect(path, read_only=True) as db:
        assert 240 == counts(db)["measured_requests"]


HOLDER = """
import sys
import duckdb
db = duckdb.connect(sys.argv[1])
print("held", flush=True)
sys.stdin.read()
"""


def test_a_locked_database_is_named_after_the_wait(tmp_path: Path) -> None:
    """A file that another process holds is a `StoreError` of one line, not a traceback."""
    path = tmp_path / "store.duckdb"
    store.connect(path).close()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert b"held\n" == holder.stdout.readline()
        for read_only in (False, True):
            with pytest.raises(StoreError, match="another process has it open"):
                store.connect(path, read_only=read_only, wait_seconds=0.1)
        holder.communicate()
    store.connect(path, read_only=True).close()


def _foreign(path: Path) -> None:
    with duckdb.connect(path) as db:
        db.execute("CREATE TABLE other (a INTEGER)")


def _newer(path: Path) -> None:
    with store.connect(path) as db:
        db.execute("UPDATE store_info SET schema = 'preemption-store/99'")


BAD_FILES: dict[str, Callable[[Path], object]] = {
    "no such file; preempt load": lambda _: None,
    "not a file": lambda path: path.mkdir(),
    "is not a valid DuckDB database file": lambda path: path.write_text("hello" * 1000),
    "is not a database made by preempt load": _foreign,
    f"must be {SCHEMA}, got preemption-store/99; delete it and load again": _newer,
}


@pytest.mark.parametrize("fault", BAD_FILES)
def test_a_file_that_is_no_store_is_refused(fault: str, tmp_path: Path) -> None:
    """Missing, a directory, no database, a foreign database, another version: one line each."""
    path = tmp_path / "block.duckdb"
    BAD_FILES[fault](path)
    with pytest.raises(StoreError) as caught:
        store.connect(path, read_only=True)
    assert fault in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_foreign_database_is_not_written_to(tmp_path: Path) -> None:
    """Loading into someone else's database is refused and leaves it as it was."""
    path = tmp_path / "x.duckdb"
    _foreign(path)
    before = path.read_bytes()
    with pytest.raises(StoreError, match="choose another file"):
        store.connect(path)
    assert before == path.read_bytes()


def test_a_name_that_duckdb_would_interpret_is_a_file_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`:memory:` and `md:x` are names of files, nothing is fetched for them."""
    monkeypatch.chdir(tmp_path)
    for name in (":memory:", "md:x"):
        store.connect(Path(name)).close()
        assert (tmp_path / name).is_file()


def test_making_a_store_twice_only_checks_it() -> None:
    """`create` on a database that has everything changes nothing."""
    with store.connect(None) as db:
        store.load_run(db, recorded())
        store.create(db)
        assert 1 == counts(db)["measured_runs"]


def test_an_error_in_a_transaction_is_one_line_and_undone() -> None:
    """What DuckDB itself refuses while loading is a `StoreError`, and the transaction is gone."""

    def load(db: duckdb.DuckDBPyConnection) -> None:
        with database.transaction(db, "here"):
            db.execute("INSERT INTO store_info VALUES ('x', 'y')")
            db.execute("SELECT * FROM nowhere")

    with store.connect(None) as db:
        with pytest.raises(StoreError, match="here: nothing was loaded; Catalog Error: Table"):
            load(db)
        assert [(1,)] == rows(db, "SELECT count(*) FROM store_info")


def test_every_error_says_its_exit_code() -> None:
    """An error of this folder ends a command with 2 unless it says otherwise."""
    assert 2 == AnalysisError.exit_code == StoreError.exit_code == ReplayError.exit_code


# The command.


def _umask() -> int:
    os.umask(before := os.umask(0))
    return before


def test_load_tells_what_it_added(ledgers: Path, tmp_path: Path) -> None:
    """A summary per path on standard error, JSON on standard output, a file for its owner only."""
    path, before = tmp_path / "store.duckdb", _umask()
    arguments = [str(ledgers), str(RUNS / "base-1"), "--db", str(path)]
    first = CliRunner().invoke(load_command, arguments, catch_exceptions=False)
    assert f"{path}: 3 added, 0 already there" == first.stderr.splitlines()[-1]
    assert "" == first.stdout
    second = CliRunner().invoke(load_command, [*arguments, "--json", "-q"], catch_exceptions=False)
    summary = json.loads(second.stdout)
    assert (0, 3) == (summary["added"], summary["already_there"])
    assert [("ledger", False), ("ledger", False), ("run", False)] == [
        (entry["kind"], entry["added"]) for entry in summary["loaded"]
    ]
    assert "" == second.stderr
    assert 0o600 == stat.S_IMODE(path.stat().st_mode)
    assert before == _umask()


def loaded(*arguments: object) -> Result:
    """What `preempt load` says."""
    words = [str(a) for a in arguments]
    return CliRunner().invoke(load_command, words, catch_exceptions=False)


def test_load_refreshes_a_run_and_says_so(tmp_path: Path) -> None:
    """With the flag, because this one did not only grow; again there is nothing to do."""
    run, path = tmp_path / "run", tmp_path / "store.duckdb"
    shutil.copytree(RUNS / "base-1", run)
    loaded(run, "--db", path)
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"note": "another"}))
    with pytest.raises(ContentConflict, match="--refresh"):
        loaded(run, "--db", path)
    assert [
        f"{run}: run base-1 refreshed",
        f"{path}: 0 added, 1 refreshed, 0 already there",
    ] == loaded(run, "--db", path, "--refresh").stderr.splitlines()
    found = json.loads(loaded(run, "--db", path, "--refresh", "--json", "-q").stdout)
    assert (0, 0, 1) == tuple(found[name] for name in ("added", "refreshed", "already_there"))
    assert ["already there"] == [entry["state"] for entry in found["loaded"]]


def _journal(run: Path) -> None:
    (run / "pages").mkdir()
    (run / "pages" / "journal-00000.jsonl.gz").touch()


def _driving(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    (run / "manifest.json").write_text(json.dumps(manifest | {"drain_end_us": None}))


@pytest.mark.parametrize("command", ["load", "report"])
@pytest.mark.parametrize(
    ("unfinish", "said"),
    [
        (_journal, "collection has not ended: scrapes since its last part are in its journal"),
        (_driving, "the drive has not ended, so its requests are not in it"),
    ],
)
def test_a_run_that_is_still_collected_is_read_with_a_warning(
    command: str,
    unfinish: Callable[[Path], None],
    said: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What is not in its parts yet is not in the store either, and somebody has to know."""
    run = tmp_path / "run"
    shutil.copytree(RUNS / "base-1", run)
    unfinish(run)
    out = ("--db", tmp_path / "store.duckdb") if command == "load" else ("--out", tmp_path / "out")
    with pytest.raises(SystemExit) as caught:
        main([command, str(run), *map(str, out)])
    assert 0 == caught.value.code
    (warning,) = (line for line in capsys.readouterr().err.splitlines() if "not ended" in line)
    assert warning.startswith(f"{run}: {said}")


def test_load_keeps_earlier_paths_when_a_later_one_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2 and one line for the bad path; the good one before it is loaded and said so."""
    path, bad = tmp_path / "store.duckdb", tmp_path / "bad"
    bad.mkdir()
    (bad / "manifest.json").write_text("{}")
    with pytest.raises(SystemExit) as caught:
        main(["load", str(RUNS / "base-1"), str(bad), "--db", str(path)])
    assert 2 == caught.value.code
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].endswith("run base-1 added")
    assert lines[1].startswith("preempt: ")
    assert 2 == len(lines)
    with store.connect(path, read_only=True) as db:
        assert 1 == counts(db)["measured_runs"]


def test_a_path_that_is_nothing_makes_no_database(tmp_path: Path) -> None:
    """A mistyped path leaves nothing behind, not even an empty store."""
    with pytest.raises(SystemExit) as caught:
        main(["load", str(RUNS / "base-1"), str(tmp_path / "no"), "--db", str(tmp_path / "db")])
    assert 2 == caught.value.code
    assert [] == list(tmp_path.iterdir())


def test_a_ledger_that_the_oracle_refuses_is_not_loaded() -> None:
    """Rows of another ledger under a genuine receipt do not reach a table or a report."""
    genuine = lab_ledger()
    more = _request(genuine, preemptions=genuine.requests["preemptions"][0] + 1)
    with store.connect(None) as db:
        with pytest.raises(InputError, match="preempt verify names 1 violations"):
            store.load_ledger(db, more)
        assert {0} == set(counts(db).values()) - {1}


def test_a_load_tells_how_far_a_ledger_is_verified(tmp_path: Path) -> None:
    """Whoever is noticed of a path may want to hear."""
    write_ledger(sealed(window(), engine_config()), tmp_path / "ledger")
    told: list[tuple[int, int]] = []
    with store.connect(None) as db:
        store.load_path(
            db, tmp_path / "ledger", lambda _: lambda done, total: told.append((done, total))
        )
        (events,) = rows(db, "SELECT count(*) FROM modelled_events")
    assert (0, *events) == told[0]


def test_a_vllm_ledgers_scheduler_keys_are_stored() -> None:
    """The keys that only vllm-v1 reads have their columns."""
    ledger = sealed(window(), engine_config(watermark=0.01))
    with store.connect(None) as db:
        store.load_ledger(db, ledger)
        found = rows(
            db,
            "SELECT rule, assumed_from, max_num_batched_tokens, watermark, enable_prefix_caching,"
            " step_ns FROM modelled_ledgers",
        )
    assert [("vllm-0.32.0", None, 2048, 0.01, False, None)] == found
