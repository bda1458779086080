"""How well a replay describes its run: levels, scores, distances, drift, the first difference."""

import json
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from analysis import store
from analysis.calibration.calibrate import Calibrated, calibrate
from analysis.errors import NotComparable
from analysis.fidelity.compare import Fidelity, compare, of_run
from analysis.fidelity.divergence import first_divergence
from analysis.fidelity.drift import drift
from analysis.fidelity.study import METRICS, study
from analysis.report import markdown_report
from analysis.report_data import report_data
from collectors.run import Run, read_run, run_workload
from collectors.run_config import run_config_tables
from preempt.main import cli
from replay.config import Config, parse_config
from replay.ledger import Ledger
from replay.run import replay
from replay.timing import RATES, Timing

RUN = Path(__file__).parent.parent / "fixtures" / "runs" / "base-1"


@pytest.fixture(scope="module")
def run() -> Run:
    """A recorded run with steps, events and offered requests."""
    return read_run(RUN)


@pytest.fixture(scope="module")
def fit(run: Run) -> Calibrated:
    """Its own step durations."""
    return calibrate(run, 0)


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    """An empty store in memory."""
    with store.connect(None) as db:
        yield db


def constant(run: Run) -> Config:
    """The run's own configuration, one tick a step."""
    return parse_config(run_config_tables(run), "test")


def timed(run: Run, fit: Calibrated, **changed: Any) -> Config:
    """The run's own configuration with fitted durations."""
    config = constant(run)
    calibration = replace(fit.calibration, **changed)
    engine = replace(config.engine, tick_us=None)
    return replace(config, engine=engine, timing=fit.fit.timing, calibration=calibration)


def compared(db: duckdb.DuckDBPyConnection, run: Run, ledger: Ledger) -> Fidelity:
    """Both loaded and set side by side."""
    store.load_run(db, run)
    store.load_ledger(db, ledger)
    return compare(db, ledger, run, replay)


def test_a_stepped_replay_has_every_preempt_event(db: duckdb.DuckDBPyConnection, run: Run) -> None:
    """In its step and with its victim, and there is no first difference."""
    found = compared(db, run, replay(run_workload(run, arrivals="steps"), constant(run)))
    scores = {score.metric: score for score in found.scores}
    assert "stepped" == found.level
    assert (230, 230, 0) == (
        scores["preempt_events"].modelled_value,
        scores["preempt_events"].measured_value,
        scores["preempt_events"].error_frac,
    )
    assert {"preempt_events", "preemptions"} == scores.keys()
    assert None is found.record["divergence"]


def test_the_first_difference_is_told_with_both_states(run: Run) -> None:
    """A replay with one block less goes its own way, and the step where it does is named."""
    config = constant(run)
    smaller = replace(config, engine=replace(config.engine, capacity_blocks=46))
    ledger = replay(run_workload(run, arrivals="steps"), smaller)
    found = first_divergence(ledger, run, 0)
    assert found is not None
    events = run.events.filter(pl.col("step") < found.step)
    counts = {"preempt": 0, "resume": 0}
    for event in ledger.events:
        if event[1] < found.step and event[3] in (2, 3):
            counts["resume" if event[3] == 2 else "preempt"] += 1
    for kind, count in counts.items():
        assert count == events.filter(pl.col("kind") == kind).height
    assert found.only_modelled or found.only_measured
    step = run.steps.filter(pl.col("step") == found.step).row(0, named=True)
    assert (step["running"], step["waiting"], step["free_blocks"]) == (
        found.measured_state.running,
        found.measured_state.waiting,
        found.measured_state.free_blocks,
    )


def test_a_timed_replay_is_scored_by_what_the_store_s_own_rows_say(
    db: duckdb.DuckDBPyConnection, run: Run, fit: Calibrated
) -> None:
    """Scores and distances against numpy, from the ledger's and the run's own tables."""
    ledger = replay(run_workload(run), timed(run, fit))
    found = compared(db, run, ledger)
    assert "timed, calibrated on this run" == found.level
    assert 1 == pytest.approx(found.record["drift"], abs=1e-3)
    assert [] == found.remainder
    both = ledger.requests.join(run.requests, on="request_id", suffix="_measured").sort(
        "request_id"
    )
    assert "prefill_time_us" in both.columns
    assert both["prefill_time_us"].is_null().all()  # so that the client's TTFT is what there is
    scores = {score.metric: score for score in found.scores}
    for name, q in (("p50", 0.5), ("p95", 0.95)):
        score = scores[f"ttft_us_{name}"]
        assert np.quantile(both["modelled_ttft_us"], q) == pytest.approx(score.modelled_value)
        assert np.quantile(both["ttft_us"], q) == pytest.approx(score.measured_value)
        error = score.modelled_value / score.measured_value - 1  # type: ignore[operator]
        assert error == pytest.approx(score.error_frac)
    assert ledger.receipt["totals"]["preemptions"] == scores["preemptions"].modelled_value
    (ttft,) = (d for d in found.record["distances"] if d["metric"] == "ttft_us")
    moved = np.abs(np.sort(both["modelled_ttft_us"]) - np.sort(both["ttft_us"])).mean()
    assert ttft["wasserstein_us"] == pytest.approx(moved, abs=1)
    sizes = [b["requests"] for b in found.record["buckets"] if b["slice"] == "prompt"]
    assert 240 == sum(sizes)


def test_requeue_time_is_from_each_preemption_to_its_resume(
    db: duckdb.DuckDBPyConnection, run: Run, fit: Calibrated
) -> None:
    """Summed over a request's events; one that was never preempted waited 0 again."""
    ledger = replay(run_workload(run), timed(run, fit))
    compared(db, run, ledger)
    waits = dict.fromkeys(ledger.request_ids, 0)
    for event in ledger.events.tolist():
        if event[3] in (2, 3):
            waits[ledger.request_ids[event[4]]] += event[2] if event[3] == 2 else -event[2]
    rows = db.execute("SELECT request_id, modelled_requeue_us FROM fidelity_requests").fetchall()
    assert waits == dict(rows)
    assert max(waits.values()) > 0


def test_a_forecast_is_told_in_two_parts(
    db: duckdb.DuckDBPyConnection, run: Run, fit: Calibrated
) -> None:
    """Durations half as long are a drift of two; scaled out, the fit of the run itself remains."""
    rates = {rate: getattr(fit.fit.timing, rate) // 2 for rate in RATES}
    config = replace(timed(run, fit, run_id="other"), timing=Timing(**rates))
    found = compared(db, run, replay(run_workload(run), config))
    assert "timed, calibrated on another run" == found.level
    assert 2 == pytest.approx(found.record["drift"], rel=1e-3)
    own = replay(run_workload(run), timed(run, fit))
    remains = {score.metric: score.modelled_value for score in found.remainder}
    assert own.receipt["totals"]["preemptions"] == pytest.approx(remains["preemptions"], rel=0.03)
    assert (
        remains["preemptions"] != {s.metric: s.modelled_value for s in found.scores}["preemptions"]
    )


def test_a_forecast_made_before_there_was_a_run_is_compared_with_it(
    db: duckdb.DuckDBPyConnection, run: Run, fit: Calibrated
) -> None:
    """A workload that names no run is the run's if it is the same; another one is refused."""
    config = timed(run, fit, run_id="other")
    workload = replace(run_workload(run), provenance=None)
    store.load_run(db, run)
    for requests, refused in ((workload.requests, False), (workload.requests[1:], True)):
        ledger = of_run(replay(replace(workload, requests=requests), config), run)
        store.load_ledger(db, ledger)
        if refused:
            with pytest.raises(NotComparable, match="not comparable"):
                compare(db, ledger, run, replay)
            continue
        found = compare(db, ledger, run, replay)
        assert "timed, calibrated on another run" == found.level
        assert 240 == found.scores[0].requests
        assert len(found.scores) == len(found.remainder)


def test_a_forecast_that_ends_early_keeps_what_remains(
    db: duckdb.DuckDBPyConnection, run: Run, fit: Calibrated
) -> None:
    """Requests that max_ticks cut off have no modelled e2e; that they did not end is said."""
    config = timed(run, fit, run_id="other")
    config = replace(config, limits=replace(config.limits, max_ticks=15_000))
    kept = partial(replay, keep_censored=True)
    ledger = kept(run_workload(run), config)
    store.load_run(db, run)
    store.load_ledger(db, ledger)
    found = compare(db, ledger, run, kept)
    cut = ledger.receipt["totals"]["censored"]
    ends = {score.metric: score.requests for score in found.remainder}
    assert 0 < cut == 240 - ends["e2e_us_p50"]
    assert f"{cut} requests generated another number" in found.record["not_exact"][-1]
    strict = compare(db, ledger, run, replay)
    assert [] == strict.remainder
    assert "unfinished at tick 15000" in strict.record["not_remaining"]
    assert found.scores == strict.scores


def test_a_drift_too_large_to_replay_leaves_the_scores(
    db: duckdb.DuckDBPyConnection, run: Run, fit: Calibrated
) -> None:
    """Steps a million times as long end after the last time there is; why is in the record."""
    slow = replace(run, steps=run.steps.with_columns(time_us=pl.col("time_us") * 10**6))
    found = compared(db, slow, replay(run_workload(run), timed(run, fit, run_id="other")))
    assert 10**6 == pytest.approx(found.record["drift"], rel=1e-3)
    assert [] == found.remainder
    assert "arrival_us must be at most" in found.record["not_remaining"]
    assert found.scores


def test_durations_of_another_engine_are_refused(
    db: duckdb.DuckDBPyConnection, run: Run, fit: Calibrated
) -> None:
    """What they were fitted under and this run differ in is named; unknown differs too."""
    conditions = dict(fit.calibration.conditions) | {"device.name": "H100"}
    del conditions["model.name"]
    config = timed(run, fit, run_id="other", conditions=conditions)
    store.load_run(db, run)
    ledger = replay(run_workload(run), config)
    store.load_ledger(db, ledger)
    with pytest.raises(NotComparable) as refusal:
        compare(db, ledger, run, replay)
    assert ["calibration.device.name", "calibration.model.name"] == sorted(refusal.value.fields)


def test_durations_without_a_calibration_are_of_no_known_engine(
    db: duckdb.DuckDBPyConnection, run: Run, fit: Calibrated
) -> None:
    """They can be compared, and the level says what that is worth."""
    config = replace(timed(run, fit), calibration=None)
    assert "timed, uncalibrated" == compared(db, run, replay(run_workload(run), config)).level


def test_the_engine_s_own_times_are_compared_where_it_recorded_them(
    db: duckdb.DuckDBPyConnection, run: Run, fit: Calibrated
) -> None:
    """A replay models no client: queue, prefill and decode time stand for TTFT, TPOT and e2e."""
    rows = run.requests.with_columns(
        queue_time_us=pl.lit(10, pl.Int64),
        prefill_time_us=pl.lit(20, pl.Int64),
        decode_time_us=100 * (pl.col("generated_tokens") - 1),
    )
    recorded = replace(run, requests=rows)
    compared(db, recorded, replay(run_workload(run), timed(run, fit)))
    query = """
        SELECT DISTINCT measured_clock, measured_ttft_us, measured_tpot_us,
            measured_e2e_us = 30 + 100 * (q.generated_tokens - 1)
        FROM fidelity_requests JOIN measured_requests AS q USING (run_id, request_id)
        WHERE q.generated_tokens > 1"""
    assert [("engine", 30, 100, True)] == db.execute(query).fetchall()


def test_a_drift_is_unknown_where_no_step_was_recorded(run: Run, fit: Calibrated) -> None:
    """It is measured from steps or not at all."""
    assert None is drift(replace(run, steps=run.steps.clear()), 0, fit.fit.timing)


def test_the_command_says_level_scores_and_drift(tmp_path: Path, fit: Calibrated) -> None:
    """As tables within 80 columns, and as JSON for scripts."""
    (tmp_path / "t.toml").write_text(fit.toml())
    ledger = str(tmp_path / "ledger")
    arguments = ["replay", str(RUN), "--timing", str(tmp_path / "t.toml"), "--out", ledger]
    assert 0 == CliRunner().invoke(cli, arguments).exit_code
    shown = CliRunner().invoke(cli, ["fidelity", ledger, str(RUN)], env={"COLUMNS": "80"})
    assert 0 == shown.exit_code, shown.output
    assert 80 >= max(map(len, shown.stdout.splitlines()))
    assert shown.stdout.splitlines()[2].split()[:2] == ["preemptions", "240"]
    assert "level: timed, calibrated on this run; arrivals: the clock" in shown.stderr
    assert "drift: this run's steps took 1.000 times" in shown.stderr
    arguments = ["fidelity", ledger, str(RUN), "--requests"]
    rows = CliRunner().invoke(cli, arguments, env={"COLUMNS": "200"}).stdout
    assert ("modelled_queue_us" in rows, "queue_ticks" in rows) == (True, False)
    found = json.loads(CliRunner().invoke(cli, ["fidelity", ledger, str(RUN), "--json"]).stdout)
    assert {"level", "scores", "distances", "buckets", "drift", "timing"} <= found.keys()


def test_a_report_prints_the_level_and_scores_of_every_ledger_or_that_nothing_says(
    db: duckdb.DuckDBPyConnection, run: Run, fit: Calibrated
) -> None:
    """Modelled numbers never stand without what they are worth."""
    store.load_run(db, run)
    timed_ledger = replay(run_workload(run), timed(run, fit))
    config = constant(run)
    what_if = replay(
        run_workload(run, arrivals="steps"),
        replace(config, policy=replace(config.policy, victim="least-computed")),
    )
    for ledger in (timed_ledger, what_if):
        store.load_ledger(db, ledger)
    text = markdown_report(report_data(db))
    name = f"recompute, ledger {timed_ledger.receipt['receipt_sha256'][:8]}"
    assert f"**{name}: timed, calibrated on this run**" in text
    assert "| base-1 | TTFT p95 (ms) | 240 |" in text
    assert "fitted to steps of base-1" in text
    (sentence,) = (line for line in text.splitlines() if line.startswith("Of these nothing says"))
    assert what_if.receipt["receipt_sha256"][:8] in sentence
    assert timed_ledger.receipt["receipt_sha256"][:8] not in sentence


def test_a_study_states_the_spread_and_calls_a_miss_failed(tmp_path: Path) -> None:
    """Two equal runs have no spread; each is judged by its own fit and as a forecast."""
    for name in ("repeat-0", "repeat-1"):
        (tmp_path / name).symlink_to(RUN)
    found = study(tmp_path, "repeat-", replay)
    assert (2, {"repeat-0": (230, 230), "repeat-1": (230, 230)}) == (found.repeats, found.stepped)
    assert dict.fromkeys(METRICS, 0.0) == found.spread
    text = found.markdown()
    assert "460 of 460 preempt events of 2 runs" in text
    assert "FAILED" in text
    assert ["repeat-0", "repeat-1"] == [one.run for one in found.own]
