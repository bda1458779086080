"""Modelled beside measured: like with like, or a label that says what differs."""

import dataclasses
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import duckdb
import polars as pl
import pytest
from click.testing import CliRunner, Result
from stored import (
    RUNS,
    engine_config,
    engine_ledger,
    engine_ledger_with,
    lab_ledger,
    metrics_only,
    recorded,
    sealed,
    stepped_ledger,
    window,
)

from analysis import store
from analysis.errors import AnalysisError, NotComparable
from analysis.join import RUN_FIELDS, fidelity_join, what_if_join
from collectors.columns import STATUSES
from collectors.run import Run, run_workload
from preempt.commands.fidelity import fidelity_command
from preempt.commands.replay import replay_command
from preempt.main import main
from replay.ledger import Ledger, write_ledger
from replay.limitations import LIMITATIONS
from replay.rules import OPTIONS

Row = dict[str, Any]


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    """A store in memory with the run that ledgers come from."""
    with store.connect(None) as connection:
        store.load_run(connection, recorded())
        yield connection


def rows(db: duckdb.DuckDBPyConnection, query: str, *values: Any) -> list[tuple[Any, ...]]:
    """All rows of a query."""
    return db.execute(query, list(values)).fetchall()


def loaded(db: duckdb.DuckDBPyConnection, ledger: Ledger) -> str:
    """The id of a ledger that is now in the store."""
    store.load_ledger(db, ledger)
    ledger_id: str = ledger.receipt["receipt_sha256"]
    return ledger_id


def changed(run: Run, run_id: str, **fields: Any) -> Run:
    """A run of another name whose manifest differs in dotted fields."""
    manifest = json.loads(json.dumps(dict(run.manifest))) | {"run_id": run_id}
    for name, value in fields.items():
        group, _, key = name.partition(".")
        manifest[group][key] = value
    frames = {
        name: getattr(run, name).with_columns(pl.lit(run_id).alias("run_id"))
        for name in ("requests", "events", "steps", "samples")
    }
    return dataclasses.replace(run, run_id=run_id, manifest=manifest, **frames)


def by_request(found: list[Row]) -> dict[str, Row]:
    """Rows by request_id, each there once."""
    assert len(found) == len({row["request_id"] for row in found})
    return {row["request_id"]: row for row in found}


# Rows and sides.


def test_a_replayed_window_is_joined_and_the_rest_is_measured_only(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """Requests of the window have both sides; those outside it have NULL, not zero, on one."""
    ledger = lab_ledger()
    found = by_request(what_if_join(db, loaded(db, ledger), "base-1"))
    inside = set(ledger.request_ids)
    assert {r["request_id"] for r in recorded().requests.to_dicts()} == set(found)
    assert inside == {k for k, row in found.items() if row["join_side"] == "both"}
    assert {"both", "measured"} == {row["join_side"] for row in found.values()}
    for key, row in found.items():
        modelled = {v for k, v in row.items() if k.startswith("modelled_")}
        assert (modelled == {None}) == (key not in inside)
        assert row["measured_status"] == "ok"


def test_both_sides_of_a_row_are_the_same_request(db: duckdb.DuckDBPyConnection) -> None:
    """Every column of a joined row is what the ledger and the run say about that request."""
    ledger = lab_ledger()
    found = by_request(what_if_join(db, loaded(db, ledger), "base-1"))
    measured = {r["request_id"]: r for r in recorded().requests.to_dicts()}
    for request in ledger.requests.to_dicts():
        row = found[request["request_id"]]
        for side, facts in (("modelled", request), ("measured", measured[request["request_id"]])):
            for name, value in facts.items():
                if name not in ("run_id", "request_id"):
                    column = name if name.startswith("modelled_") else f"{side}_{name}"
                    assert value == row[column]


def test_a_request_the_run_lost_is_modelled_only(db: duckdb.DuckDBPyConnection) -> None:
    """A replayed request without a measured row stays, with NULL for everything measured."""
    short = changed(recorded(), "short")
    store.load_run(db, dataclasses.replace(short, requests=short.requests.tail(-10)))
    lab = lab_ledger()
    workload = dataclasses.replace(lab.workload, provenance={"run_id": "short"})
    ledger_id = loaded(db, dataclasses.replace(lab, workload=workload))
    lost = [r for r in what_if_join(db, ledger_id, "short") if r["join_side"] == "modelled"]
    assert lab.request_ids[:10] == [row["request_id"] for row in lost]
    assert {None} == {v for row in lost for k, v in row.items() if k.startswith("measured_")}
    assert all(row["modelled_status"] == "complete" for row in lost)


def test_an_id_that_two_engines_used_is_two_rows(db: duckdb.DuckDBPyConnection) -> None:
    """Data-parallel engines each keep their own row, told apart by measured_engine."""
    run = changed(recorded(), "wide", **{"parallel.data": 2})
    second = run.requests.head(1).with_columns(pl.lit(1, pl.Int64).alias("engine"))
    store.load_run(db, dataclasses.replace(run, requests=pl.concat([run.requests, second])))
    workload = dataclasses.replace(lab_ledger().workload, provenance={"run_id": "wide"})
    ledger_id = loaded(db, dataclasses.replace(lab_ledger(), workload=workload))
    first = workload.requests[0].request_id
    found = [r for r in what_if_join(db, ledger_id, "wide") if r["request_id"] == first]
    assert [0, 1] == [row["measured_engine"] for row in found]
    assert "parallel.data" in found[0]["join_differences"]


def test_a_ledger_without_a_loaded_run_has_no_joined_rows(db: duckdb.DuckDBPyConnection) -> None:
    """No run, or one that is not loaded: nothing is shown as if it had been measured as nothing."""
    for provenance in (None, {"run_id": "elsewhere"}):
        workload = dataclasses.replace(lab_ledger().workload, provenance=provenance)
        store.load_ledger(db, dataclasses.replace(lab_ledger(), workload=workload))
    assert [] == rows(db, "FROM joined_requests")
    assert [] == rows(db, "FROM join_differences")
    assert [] != rows(db, "FROM preemption_costs")


# Labels.


def test_a_ledger_of_the_engines_own_configuration_is_fidelity(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """The same engine, configuration and workload: every row is labelled and nothing differs."""
    ledger_id = loaded(db, engine_ledger())
    assert [] == rows(db, "FROM join_differences")
    found = fidelity_join(db, ledger_id, "base-1")
    assert 240 == len(found)
    assert {("fidelity", "both")} == {(r["join_kind"], r["join_side"]) for r in found}
    assert found == what_if_join(db, ledger_id, "base-1")
    assert [] == found[0]["join_differences"]


# What one key of a ledger is called where it differs from the run's.
LEDGER_FIELDS: dict[str, dict[str, Any]] = {
    "engine.version": {"rule": "vllm-0.31.0"},
    "cache.block_size": {"block_size": 64},
    "cache.capacity_blocks": {"capacity_blocks": 46},
    "cache.enable_prefix_caching": {"enable_prefix_caching": True},
    "scheduler.scheduling_policy": {"scheduling_policy": "priority"},
    "scheduler.max_num_seqs": {"max_num_seqs": 64},
    "scheduler.max_num_batched_tokens": {"max_num_batched_tokens": 4096},
    "scheduler.max_model_len": {"max_model_len": 1024},
    "scheduler.enable_chunked_prefill": {"enable_chunked_prefill": False},
    "scheduler.scheduler_reserve_full_isl": {"scheduler_reserve_full_isl": False},
    "scheduler.watermark": {"watermark": 0.01},
    "scheduler.long_prefill_token_threshold": {"long_prefill_token_threshold": 512},
    "scheduler.async_scheduling": {"async_scheduling": True},
}


@pytest.mark.parametrize("field", LEDGER_FIELDS)
def test_a_ledger_that_differs_in_one_key_is_a_what_if(
    field: str, db: duckdb.DuckDBPyConnection
) -> None:
    """The one field is named in every row, and fidelity is refused for it alone."""
    workload = run_workload(recorded())
    ledger_id = loaded(db, sealed(workload, engine_config(**LEDGER_FIELDS[field])))
    assert {("what-if", (field,))} == {
        (r["join_kind"], tuple(r["join_differences"]))
        for r in what_if_join(db, ledger_id, "base-1")
    }
    with pytest.raises(NotComparable, match=r"modelled .*, measured ") as caught:
        fidelity_join(db, ledger_id, "base-1")
    assert (field,) == caught.value.fields
    assert 4 == caught.value.exit_code


RUN_SIDE = [
    *LEDGER_FIELDS,
    "cache.kv_bytes_per_token",
    "parallel.data",
    "parallel.pipeline",
    "workload.workload_sha256",
]


@pytest.mark.parametrize("field", RUN_SIDE)
def test_what_a_run_does_not_know_is_a_difference(
    field: str, db: duckdb.DuckDBPyConnection
) -> None:
    """A null in the manifest never passes as equal; without offered.jsonl neither does a hash."""
    run = dataclasses.replace(changed(recorded(), "vague", **{field: None}), offered=None)
    store.load_run(db, run)
    workload = dataclasses.replace(engine_ledger().workload, provenance={"run_id": "vague"})
    ledger_id = loaded(db, dataclasses.replace(engine_ledger(), workload=workload))
    with pytest.raises(NotComparable) as caught:
        fidelity_join(db, ledger_id, "vague")
    assert (field,) == caught.value.fields
    found = rows(db, "SELECT field, measured_value FROM join_differences")
    assert [field] == [name for name, _ in found]


@pytest.mark.parametrize("recovery", ["swap", "adaptive"])
def test_another_recovery_than_vllms_is_a_what_if(
    recovery: str, db: duckdb.DuckDBPyConnection
) -> None:
    """VLLM recomputes; a ledger that may swap describes no current engine."""
    config = engine_config().with_policy(recovery, None)
    ledger_id = loaded(db, sealed(run_workload(recorded()), config))
    found = rows(db, "SELECT field, modelled_value, measured_value FROM join_differences")
    assert [("policy.recovery", recovery, "recompute")] == found
    with pytest.raises(NotComparable):
        fidelity_join(db, ledger_id, "base-1")


def test_the_lab_is_never_an_engine(db: duckdb.DuckDBPyConnection) -> None:
    """lab-1 differs in the engine's version, and in every option it does not have."""
    with pytest.raises(NotComparable) as caught:
        fidelity_join(db, loaded(db, lab_ledger()), "base-1")
    missing = {f for f in LEDGER_FIELDS if f.startswith("scheduler.")}
    assert {"engine.version", "workload.workload_sha256"} | missing <= set(caught.value.fields)


def test_part_of_a_workload_is_another_workload(db: duckdb.DuckDBPyConnection) -> None:
    """A window starts on an empty engine, which the run's own requests did not."""
    with pytest.raises(NotComparable) as caught:
        fidelity_join(db, loaded(db, sealed(window(), engine_config())), "base-1")
    assert ("workload.workload_sha256",) == caught.value.fields


def test_an_observed_run_is_compared_with_what_an_import_gives(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """Without an offered workload, the measured requests as imported are the run's own."""
    run = changed(recorded(), "seen", **{"workload.workload_sha256": None})
    run = dataclasses.replace(run, offered=None)
    store.load_run(db, run)
    ledger_id = loaded(db, sealed(run_workload(run), engine_config()))
    assert 240 == len(fidelity_join(db, ledger_id, "seen"))


# Arrivals.


def test_a_ledger_of_the_engines_own_steps_is_fidelity(db: duckdb.DuckDBPyConnection) -> None:
    """The same requests under another hash; every row says whose arrivals they are."""
    for ledger, arrivals in ((engine_ledger(), "time"), (stepped_ledger(), "steps")):
        ledger_id = loaded(db, ledger)
        found = fidelity_join(db, ledger_id, "base-1")
        assert {("fidelity", arrivals, None)} == {
            (r["join_kind"], r["join_arrivals"], r["join_assumed_from"]) for r in found
        }
        assert found == what_if_join(db, ledger_id, "base-1")
    assert engine_ledger().workload.sha256 != stepped_ledger().workload.sha256


def test_a_part_of_the_workload_has_no_arrivals_of_the_run(db: duckdb.DuckDBPyConnection) -> None:
    """A window is another workload, whose rows claim nothing about when requests arrived."""
    found = what_if_join(db, loaded(db, lab_ledger()), "base-1")
    assert {None} == {row["join_arrivals"] for row in found}


def test_steps_are_counted_one_by_one(db: duckdb.DuckDBPyConnection) -> None:
    """Two steps to a tick are not the engine's arrivals any more."""
    ledger_id = loaded(db, sealed(stepped_ledger().workload, engine_config(tick_us=2)))
    with pytest.raises(NotComparable, match="modelled 2, measured 1") as caught:
        fidelity_join(db, ledger_id, "base-1")
    assert ("engine.tick_us",) == caught.value.fields


def test_a_replay_of_one_engine_stands_beside_that_engines_requests(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """Of data-parallel engines each has its own steps, blocks and replay."""
    run = changed(recorded(), "wide", **{"parallel.data": 2})
    second = pl.col("request_id").str.slice(2).cast(pl.Int64) % 2
    frames = {n: getattr(run, n).with_columns(engine=second) for n in ("requests", "events")}
    run = dataclasses.replace(run, **frames)
    store.load_run(db, run)
    whole = {r.request_id for r in run_workload(run).requests}
    for arrivals in ("time", "steps"):
        workload = run_workload(run, arrivals=arrivals, engine=1)
        ledger_id = loaded(db, sealed(workload, engine_config(tick_us=1)))
        for join in (fidelity_join, what_if_join):
            found = join(db, ledger_id, "wide")
            assert {("fidelity", arrivals, "both", 1)} == {
                (r["join_kind"], r["join_arrivals"], r["join_side"], r["measured_engine"])
                for r in found
            }
            odd = {name for name in whole if int(name[2:]) % 2}
            assert odd == {r["request_id"] for r in found}
    ledger_id = loaded(db, sealed(run_workload(run), engine_config()))
    with pytest.raises(NotComparable) as caught:
        fidelity_join(db, ledger_id, "wide")
    assert ("parallel.data",) == caught.value.fields


# Releases.


def test_an_assumed_rule_is_judged_by_runs_of_the_release_it_was_assumed_for(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """Whether the assumption holds is what fidelity shows; the release it stems from is another."""
    store.load_run(db, changed(recorded(), "older", **{"engine.version": "0.31.0"}))
    workload = dataclasses.replace(stepped_ledger().workload, provenance={"run_id": "older"})
    ledger = sealed(workload, engine_config(tick_us=1, rule="vllm-0.31.0"))
    found = fidelity_join(db, loaded(db, ledger), "older")
    assert {("fidelity", "vllm-0.32.0")} == {
        (r["join_kind"], r["join_assumed_from"]) for r in found
    }
    with pytest.raises(NotComparable) as caught:
        fidelity_join(db, ledger.receipt["receipt_sha256"], "base-1")
    assert "engine.version" in caught.value.fields


@pytest.mark.parametrize(("version", "alike"), [("0.32.0+cpu", True), ("0.32.0rc1", False)])
def test_a_builds_own_suffix_is_no_other_release(
    version: str, alike: bool, db: duckdb.DuckDBPyConnection
) -> None:
    """A release built for another device decides the same; a candidate need not."""
    store.load_run(db, changed(recorded(), "built", **{"engine.version": version}))
    workload = dataclasses.replace(engine_ledger().workload, provenance={"run_id": "built"})
    loaded(db, dataclasses.replace(engine_ledger(), workload=workload))
    assert ([] if alike else [("engine.version",)]) == rows(
        db, "SELECT field FROM join_differences"
    )


# Other runs.


def test_a_repeated_run_may_stand_for_the_ledgers_own(db: duckdb.DuckDBPyConnection) -> None:
    """The same engine, offered the same workload again: fidelity, though not a what-if join."""
    ledger_id = loaded(db, engine_ledger())
    store.load_run(db, changed(recorded(), "again"))
    found = fidelity_join(db, ledger_id, "again")
    assert 240 == len(found)
    assert {("again", "fidelity")} == {(row["run_id"], row["join_kind"]) for row in found}
    with pytest.raises(NotComparable) as caught:
        what_if_join(db, ledger_id, "again")
    assert ("run_id",) == caught.value.fields


ANOTHER: dict[str, Any] = {
    "model.name": "other",
    "device.kind": "cuda",
    "device.name": "other",
    "device.count": 2,
    "device.driver": "1.0",
    "parallel.tensor": 2,
    "cache.dtype": "fp8",
}


UNKNOWN = [(name, None) for name in ANOTHER if name != "device.driver"]  # a CPU has none


@pytest.mark.parametrize(("field", "value"), [*ANOTHER.items(), *UNKNOWN])
def test_another_run_must_be_like_the_ledgers_own(
    field: str, value: Any, db: duckdb.DuckDBPyConnection
) -> None:
    """Another model, device or cache is named, and so is one that nobody knows."""
    ledger_id = loaded(db, engine_ledger())
    store.load_run(db, changed(recorded(), "again", **{field: value}))
    with pytest.raises(NotComparable, match="of base-1, its workload's run") as caught:
        fidelity_join(db, ledger_id, "again")
    assert (field,) == caught.value.fields


def test_two_gpu_runs_without_a_known_driver_are_not_alike(db: duckdb.DuckDBPyConnection) -> None:
    """Only a CPU has no driver; elsewhere null is unknown, and unknown is unequal."""
    for name in ("one", "two"):
        store.load_run(db, changed(recorded(), name, **{"device.kind": "cuda"}))
    workload = dataclasses.replace(engine_ledger().workload, provenance={"run_id": "one"})
    ledger_id = loaded(db, dataclasses.replace(engine_ledger(), workload=workload))
    with pytest.raises(NotComparable) as caught:
        fidelity_join(db, ledger_id, "two")
    assert ("device.driver",) == caught.value.fields


def test_a_run_that_is_not_loaded_is_like_nothing(db: duckdb.DuckDBPyConnection) -> None:
    """When the workload's own run is unknown, every field of it is."""
    workload = dataclasses.replace(engine_ledger().workload, provenance={"run_id": "elsewhere"})
    ledger_id = loaded(db, dataclasses.replace(engine_ledger(), workload=workload))
    with pytest.raises(NotComparable) as caught:
        fidelity_join(db, ledger_id, "base-1")
    assert RUN_FIELDS == caught.value.fields


def test_a_workload_of_no_run_is_compared_by_its_hash(db: duckdb.DuckDBPyConnection) -> None:
    """An offered workload that was replayed without provenance joins the run that offered it."""
    workload = dataclasses.replace(engine_ledger().workload, provenance=None)
    ledger_id = loaded(db, dataclasses.replace(engine_ledger(), workload=workload))
    assert 240 == len(fidelity_join(db, ledger_id, "base-1"))


def test_what_is_not_loaded_is_named(db: duckdb.DuckDBPyConnection) -> None:
    """An unknown ledger or run is an error of its own, not an empty join."""
    ledger_id = loaded(db, engine_ledger())
    for join in (fidelity_join, what_if_join):
        with pytest.raises(AnalysisError, match="run nope: is not loaded"):
            join(db, ledger_id, "nope")
        with pytest.raises(AnalysisError, match="ledger nope: is not loaded"):
            join(db, "nope", "base-1")


# The other views.


def test_preemption_costs_are_those_of_the_victims_and_the_flagged(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """One row per preempted or flagged request, worst first, with what its events freed."""
    ledger = lab_ledger()
    loaded(db, ledger)
    expected = {
        r["request_id"]: r
        for r in ledger.requests.to_dicts()
        if r["preemptions"] or r["flagged_wait"] or r["flagged_repeat"]
    }
    found = rows(
        db,
        "SELECT request_id, modelled_preemptions, modelled_recompute_tokens, modelled_freed_blocks"
        " FROM preemption_costs",
    )
    assert set(expected) == {name for name, *_ in found}
    assert sorted((tokens for _, _, tokens, _ in found), reverse=True) == [
        t for _, _, t, _ in found
    ]
    for name, preemptions, tokens, freed in found:
        assert (expected[name]["preemptions"], expected[name]["recompute_tokens"]) == (
            preemptions,
            tokens,
        )
        assert (freed is None) == (preemptions == 0)
    freed = sum(blocks or 0 for *_, blocks in found)
    assert ledger.receipt["totals"]["freed_blocks"] == freed > 0


def test_a_status_that_did_not_occur_is_counted_as_zero(db: duckdb.DuckDBPyConnection) -> None:
    """Every status has a row beside the number offered, which they add up to."""
    run = changed(recorded(), "failed")
    status = pl.when(pl.int_range(pl.len()) < 3).then(pl.lit("error")).otherwise("status")
    store.load_run(db, dataclasses.replace(run, requests=run.requests.with_columns(status=status)))
    found = rows(
        db,
        "SELECT measured_status, measured_requests, measured_offered FROM run_status_counts"
        " WHERE run_id = 'failed'",
    )
    assert list(STATUSES) == [name for name, *_ in found]
    assert {"ok": 237, "error": 3, "aborted": 0, "censored": 0, "unsent": 0, "rejected": 0} == {
        name: count for name, count, _ in found
    }
    assert {240} == {offered for *_, offered in found}


def test_a_run_whose_requests_nobody_recorded_has_unknown_statuses(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """Metrics alone do not say that none failed: null, not zero."""
    store.load_run(db, metrics_only())
    query = "SELECT measured_requests FROM run_status_counts WHERE run_id = 'metrics-1'"
    assert [(None,)] * 6 == rows(db, query)


def test_a_run_without_requests_still_has_its_statuses(db: duckdb.DuckDBPyConnection) -> None:
    """Silence is six zeros beside what was offered, not an absent run."""
    run = changed(recorded(), "silent")
    store.load_run(db, dataclasses.replace(run, requests=run.requests.clear()))
    query = "SELECT measured_requests FROM run_status_counts WHERE run_id = 'silent'"
    assert [(0,)] * 6 == rows(db, query)


def test_the_limitations_travel_with_every_ledger(db: duckdb.DuckDBPyConnection) -> None:
    """The view has each ledger's sentences in their order."""
    ids = sorted(loaded(db, lab_ledger(recovery)) for recovery in ("recompute", "swap"))
    expected = [(i, k, text) for i in ids for k, text in enumerate(LIMITATIONS, 1)]
    assert expected == rows(db, "SELECT ledger_id, position, limitation FROM limitations")


# The command.


def refused(capsys: pytest.CaptureFixture[str], ledger: Path, run: Path) -> list[str]:
    """Lines of a refusal on standard error; nothing is printed as if it were a result."""
    with pytest.raises(SystemExit) as caught:
        main(["fidelity", str(ledger), str(run)])
    out, err = capsys.readouterr()
    assert (4, "") == (caught.value.code, out)
    return err.splitlines()


def test_fidelity_refuses_with_exit_code_4_and_a_line_for_each_field(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """What differs, then what one side does not know; each fits a terminal of 80 columns."""
    write_ledger(lab_ledger(), tmp_path / "lab")
    lines = refused(capsys, tmp_path / "lab", RUNS / "base-1")
    assert 80 >= max(map(len, lines))
    name = lab_ledger().receipt["receipt_sha256"][:12]
    assert f"preempt: ledger {name} and run base-1: not comparable" == lines[0]
    unknown = lines.index("  not known on one side, which is not equal:")
    assert "  they differ in:" == lines[1]
    assert "    engine.version (modelled lab-1, measured vllm-0.32.0)" in lines[2:unknown]
    assert "    scheduler.watermark (modelled unknown, measured 0.0)" in lines[unknown:]
    assert all("unknown" not in line for line in lines[1:unknown])
    assert all("unknown" in line for line in lines[unknown + 1 :])


def test_fidelity_with_another_run_says_in_one_line_that_its_own_is_not_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Every field of a run that nobody gave is unknown: that is one fact, not one a field."""
    write_ledger(engine_ledger(), tmp_path / "ledger")
    lines = refused(capsys, tmp_path / "ledger", RUNS / "cand-80")
    assert 80 >= max(map(len, lines))
    assert ["every field"] == [line.strip()[:11] for line in lines if "its workload's run" in line]


def invoked(command: click.Command, *arguments: object, columns: int = 80) -> Result:
    """The result of a command on a terminal of that width, which must succeed."""
    words = [str(a) for a in arguments]
    runner = CliRunner(env={"COLUMNS": str(columns)})
    result = runner.invoke(command, words, catch_exceptions=False)
    assert 0 == result.exit_code, result.stderr
    return result


def test_a_replayed_run_preempts_each_request_as_often_as_the_engine_did(tmp_path: Path) -> None:
    """`preempt replay RUN && preempt fidelity LEDGER RUN`: 230 preemptions, nobody's different."""
    ledger, run = tmp_path / "ledger", RUNS / "base-1"
    invoked(replay_command, run, "--out", ledger)
    shown = invoked(fidelity_command, ledger, run)
    assert [
        "fidelity: 240 requests, 240 on both sides; preemptions of those:"
        " modelled 230, measured 230, equal for 240 requests",
        "level: stepped; arrivals: the engine's own steps",
    ] == shown.stderr.splitlines()
    found = json.loads(invoked(fidelity_command, ledger, run, "--json", "-q").stdout)
    assert ("steps", [], []) == (found["arrivals"], found["what_ifs"], found["not_exact"])
    measured = {r["request_id"]: r["num_preemptions"] for r in recorded().requests.to_dicts()}
    assert measured == {r["request_id"]: r["modelled_preemptions"] for r in found["rows"]}
    assert 230 == sum(measured.values())


def test_fidelity_prints_every_request_labelled(tmp_path: Path) -> None:
    """A table for people; with --json every column, and the limitations."""
    write_ledger(engine_ledger(), tmp_path / "ledger")
    arguments = (tmp_path / "ledger", RUNS / "base-1")
    shown = invoked(fidelity_command, *arguments, "--requests")
    assert "measured 230" in shown.stderr
    assert "level: constant ticks; arrivals: the clock" in shown.stderr.splitlines()
    assert 240 == shown.stdout.count("az0")
    listed = invoked(fidelity_command, *arguments, "--json", "-q")
    found = json.loads(listed.stdout)
    assert ("fidelity", "base-1", 240) == (found["join_kind"], found["run_id"], len(found["rows"]))
    assert ("time", list(LIMITATIONS)) == (found["arrivals"], found["limitations"])
    assert {"fidelity"} == {row["join_kind"] for row in found["rows"]}
    assert "" == listed.stderr


@pytest.mark.parametrize("columns", [80, 200])
def test_a_request_is_one_line_of_the_table(tmp_path: Path, columns: int) -> None:
    """A wide terminal shows more columns, a narrow one no list of fields for each request."""
    write_ledger(stepped_ledger(), tmp_path / "ledger")
    arguments = (tmp_path / "ledger", RUNS / "base-1")
    printed = invoked(fidelity_command, *arguments, "--requests", columns=columns)
    shown = printed.stdout.splitlines()
    assert columns >= max(map(len, shown))
    rows_of = [line for line in shown if "az0" in line]
    assert 240 == len(rows_of)
    assert all("fidelity" in line for line in rows_of)
    assert (columns == 200) == ("complete" in rows_of[0])


def test_fidelity_says_what_a_replay_leaves_out_and_what_it_assumes(tmp_path: Path) -> None:
    """Prefixes that nobody recorded, and a release that nobody checked."""
    run = Path(shutil.copytree(RUNS / "base-1", tmp_path / "run"))
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["cache"]["enable_prefix_caching"] = True
    manifest["engine"]["version"] = "0.31.0"
    (run / "manifest.json").write_text(json.dumps(manifest))
    invoked(replay_command, run, "--out", tmp_path / "ledger", "--assume-rule")
    shown = invoked(fidelity_command, tmp_path / "ledger", run).stderr.splitlines()
    assumed = "Rule vllm-0.31.0 was not checked; it is assumed to decide as vllm-0.32.0."
    assert assumed == shown[2]
    assert shown[3].startswith("not exact: prefix caching was on")
    found = json.loads(invoked(fidelity_command, tmp_path / "ledger", run, "--json", "-q").stdout)
    assert ([assumed], 1) == (found["what_ifs"], len(found["not_exact"]))
    assert {"vllm-0.32.0"} == {row["join_assumed_from"] for row in found["rows"]}


@pytest.mark.parametrize("key", OPTIONS)
def test_an_option_that_a_release_did_not_have_is_not_unknown(
    db: duckdb.DuckDBPyConnection, key: str
) -> None:
    """The release before it does as without it; from the one that has it on, null is unknown."""
    option, field = OPTIONS[key], f"scheduler.{key}"
    ledger_id = loaded(db, engine_ledger_with(**{key: option.without}))
    since = list(option.since)
    before = [since[0], since[1] - 1, 99] if not since[2] else [*since[:2], since[2] - 1]
    for release, differs in ((before, False), (since, True)):
        version = ".".join(map(str, release))
        unlike = changed(recorded(), version, **{field: None, "engine.version": version})
        store.load_run(db, unlike)
        query = "SELECT field FROM all_differences WHERE ledger_id = ? AND run_id = ?"
        fields = [f for (f,) in rows(db, query, ledger_id, version)]
        assert differs == (field in fields)
