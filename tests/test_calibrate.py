"""Step durations: what a run says of them, what the fit makes of it, and the file it writes."""

import json
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from click.testing import CliRunner

from analysis.calibration.calibrate import calibrate
from analysis.calibration.durations import SIZES, Durations, step_durations
from analysis.calibration.fit import fit_steps, predicted_us
from analysis.calibration.per_request import request_durations
from collectors.run import Run, read_run
from preempt.main import cli
from replay.config import read_config
from replay.errors import InputError
from replay.timing import RATES, Timing

RUN = Path(__file__).parent.parent / "fixtures" / "runs" / "base-1"
TRUE = Timing(4_000_000, 20_000_000, 150_000_000, 500_000)


@pytest.fixture(scope="module")
def run() -> Run:
    """A recorded run with its steps."""
    return read_run(RUN)


def made(steps: int, seed: int = 1) -> Durations:
    """Steps of mixed sizes that take exactly what `TRUE` says."""
    random = np.random.default_rng(seed)
    prefill = np.where(random.random(steps) < 0.1, random.integers(1, 900, steps), 0)
    decodes = random.integers(0, 12, steps) + (prefill == 0)
    kv = prefill + decodes * random.integers(20, 400, steps)
    sizes = np.column_stack([prefill, decodes, kv]).astype(np.float64)
    return Durations(predicted_us(TRUE, Durations(np.zeros(steps), sizes, 0)), sizes, 0)


def test_rates_that_made_the_durations_are_found_again() -> None:
    """Without noise the fit is the truth, to its four digits."""
    fit = fit_steps(made(2_000))
    for rate in RATES:
        assert getattr(TRUE, rate) == pytest.approx(getattr(fit.timing, rate), rel=2e-3)
    assert 1 == pytest.approx(fit.slowdown, abs=1e-3)
    assert {"p05": 0, "p50": 0, "p95": 0, "p99": 0} == dict(fit.residual_us)


def test_stalls_change_the_level_and_not_the_shape() -> None:
    """What the machine adds to some steps is in the mean, whichever steps it hit."""
    plain = made(5_000)
    random = np.random.default_rng(2)
    stalled = plain.us + np.where(random.random(5_000) < 0.05, 60_000, 0)
    fit = fit_steps(replace(plain, us=stalled))
    assert stalled.sum() == pytest.approx(predicted_us(fit.timing, plain).sum(), rel=1e-3)
    ratio = fit.timing.prefill_token_ps / fit.timing.step_ns
    assert TRUE.prefill_token_ps / TRUE.step_ns == pytest.approx(ratio, rel=0.02)
    assert 1.2 < fit.slowdown < 2


def test_a_process_that_stood_still_is_no_step() -> None:
    """One duration a hundred times too long is left out and counted."""
    plain = made(2_000)
    us = plain.us.copy()
    us[77] = 3_600e6
    fit = fit_steps(replace(plain, us=us))
    assert (1, 1_999) == (fit.stalled, fit.used)
    assert TRUE.step_ns == pytest.approx(fit.timing.step_ns, rel=2e-3)


def test_an_hour_of_standstill_changes_no_rate_of_a_recorded_run(run: Run) -> None:
    """One duration of an hour is left out, and every rate and interval is as without it."""
    plain = step_durations(run, 0)
    us = plain.us.copy()
    us[9_000] += 3_600e6
    before, after = fit_steps(plain), fit_steps(replace(plain, us=us))
    assert (0, 1) == (before.stalled, after.stalled)
    for rate in RATES:
        expected = getattr(before.timing, rate)
        assert expected == pytest.approx(getattr(after.timing, rate), rel=5e-3)
        low, high = after.interval_95[rate]
        assert low <= expected <= high


def test_where_all_steps_are_alike_their_duration_is_a_step_s() -> None:
    """Nothing tells what a token costs; rate and interval say the same of it."""
    sizes = np.tile([0.0, 4.0, 100.0], (500, 1))
    fit = fit_steps(Durations(np.full(500, 5_000.0), sizes, 0))
    assert Timing(5_000_000) == fit.timing
    assert {(5_000_000, 5_000_000), (0, 0)} == set(fit.interval_95.values())


def test_a_resample_without_a_prefill_says_nothing_absurd_of_one() -> None:
    """With all prefills in one of fifty blocks the interval reaches from 0 to what they took."""
    sizes = np.tile([0.0, 1.0, 100.0], (200, 1))
    sizes[:2] = [500.0, 0.0, 500.0]
    us = np.where(sizes[:, 0] > 0, 20_000.0, 5_000.0) + np.arange(200) % 7
    low, high = fit_steps(Durations(us, sizes, 0)).interval_95["prefill_token_ps"]
    assert 0 == low
    assert 20_000_000 < high < 60_000_000


def test_an_interval_holds_the_truth_nineteen_times_in_twenty() -> None:
    """Of forty fits with noise, each rate's interval holds it in at least 34; none is wide."""
    held = dict.fromkeys(RATES, 0)
    for seed in range(40):
        plain = made(3_000, seed)
        noise = np.random.default_rng(100 + seed).normal(0, 800, 3_000)
        fit = fit_steps(replace(plain, us=plain.us + noise))
        for rate in RATES:
            low, high = fit.interval_95[rate]
            held[rate] += low <= getattr(TRUE, rate) <= high
        low, high = fit.interval_95["prefill_token_ps"]
        assert high - low < 0.05 * TRUE.prefill_token_ps
    assert all(times >= 34 for times in held.values()), held


def test_rates_are_never_negative() -> None:
    """Durations that fall with a size are no reason for a step to end before it begins."""
    sizes = made(500).sizes
    us = 10_000 - 0.9 * sizes[:, 2].clip(0, 9_000)
    timing = fit_steps(Durations(us.clip(1), sizes, 0)).timing
    assert all(getattr(timing, rate) >= 0 for rate in RATES)


def test_the_time_an_engine_idles_is_no_step_s(run: Run) -> None:
    """A step whose end nobody knows is left out; every other step is there."""
    found = step_durations(run, 0)
    steps = run.steps.sort("step")
    idle = 1 + int(steps["waiting"].to_numpy().argmin())
    later = pl.when(pl.col("step") > steps["step"][idle]).then(10**9).otherwise(0)
    alone = (pl.col("step") == steps["step"][idle]) | (pl.col("step") == steps["step"][idle + 1])
    moved = steps.with_columns(
        time_us=pl.col("time_us") + later,
        # Nobody waits, and all who decode in the next step have just been admitted.
        waiting=pl.when(alone).then(0).otherwise("waiting"),
        decode_requests=pl.when(alone).then(0).otherwise("decode_requests"),
        kv_tokens=pl.when(alone).then(1).otherwise("kv_tokens"),
    )
    idled = step_durations(replace(run, steps=moved), 0)
    assert steps.height == len(found) + found.left_out
    assert 10**8 > idled.us.max()
    assert found.left_out < idled.left_out <= found.left_out + 2


def test_an_asynchronous_step_takes_the_time_of_the_batch_before_it(run: Run) -> None:
    """Which runs while it is scheduled: the same rates come out of the shifted steps."""
    durations = made(1_000)
    frame = pl.DataFrame(
        {
            "run_id": "r",
            "engine": 0,
            "step": range(1_000),
            # Step k begins when batch k - 2 ends, so that it lasts as long as batch k - 1.
            "time_us": np.concatenate(([0, 0], durations.us.cumsum()[:-2])).round().astype(int),
            "scheduled_tokens": 1,
            **{name: durations.sizes[:, k].astype(int) for k, name in enumerate(SIZES)},
            "free_blocks": 0,
            "running": 9,
            "waiting": 1,
        }
    ).select(run.steps.columns)
    scheduler = dict(run.manifest["scheduler"]) | {"async_scheduling": True}
    manifest = dict(run.manifest) | {"scheduler": scheduler}
    timing = fit_steps(step_durations(replace(run, steps=frame, manifest=manifest), 0)).timing
    for rate in RATES:
        assert getattr(TRUE, rate) == pytest.approx(getattr(timing, rate), rel=5e-3)


def without_steps(run: Run, iterations: int) -> Run:
    """A run that only metrics and finished requests tell of."""
    rows = run.requests.with_columns(
        prefill_time_us=(4_000 + 20 * pl.col("prompt_tokens")).cast(pl.Int64),
        tpot_us=pl.lit(4_300, pl.Int64),
        num_preemptions=pl.lit(0, pl.Int64),
    )
    sample = {"run_id": run.run_id, "engine": 0, "model": None, "labels": "{}", "le": None}
    samples = pl.DataFrame(
        [
            sample | {"scrape": k, "time_us": k, "name": name, "value": value}
            for k, name, value in (
                (0, "iteration_tokens_total_count", 100.0),
                (1, "iteration_tokens_total_count", 100.0 + iterations),
                (1, "num_requests_running", 7.0),
            )
        ],
        schema=run.samples.schema,
    )
    return replace(run, steps=run.steps.clear(), requests=rows, samples=samples)


def test_a_run_without_steps_is_fitted_from_its_requests_and_marked(run: Run) -> None:
    """A step and a prefill token come from requests, the mean batch from the histogram."""
    output = int(run.requests["generated_tokens"].sum()) - run.requests.height
    found = calibrate(without_steps(run, output // 2), 0)
    assert "requests" == found.calibration.source
    assert 4_000_000 == pytest.approx(found.fit.timing.step_ns, rel=0.02)
    assert 20_000_000 == pytest.approx(found.fit.timing.prefill_token_ps, rel=0.02)
    assert 150_000_000 == pytest.approx(found.fit.timing.decode_request_ps, rel=0.05)
    assert (7, 47 * 32) == (found.calibration.decode_requests, found.calibration.kv_tokens)


def test_a_run_without_steps_and_without_the_histogram_is_refused(run: Run) -> None:
    """A mean batch is not guessed."""
    blind = without_steps(run, 1)
    with pytest.raises(InputError, match="histogram iteration_tokens_total"):
        request_durations(replace(blind, samples=blind.samples.clear()), 0)
    with pytest.raises(InputError, match="prefill_time_us and tpot_us"):
        request_durations(replace(blind, requests=run.requests.with_columns(tpot_us=None)), 0)


def test_requests_that_lack_what_the_fit_needs_are_left_out_and_counted(run: Run) -> None:
    """A prompt nobody counted and a duration of 0 are no measurement."""
    whole = without_steps(run, 9_000)
    odd = pl.int_range(pl.len()) % 3
    requests = whole.requests.with_columns(
        prompt_tokens=pl.when(odd == 0).then(None).otherwise("prompt_tokens"),
        tpot_us=pl.when(odd == 1).then(0).otherwise("tpot_us"),
    )
    found = request_durations(replace(whole, requests=requests), 0)
    assert (160, 160) == (len(found), found.left_out)
    assert np.isfinite(found.sizes).all()


def test_steps_without_their_sizes_are_refused_by_name(run: Run) -> None:
    """What a recorder of old did not write is named."""
    steps = run.steps.with_columns(kv_tokens=pl.lit(None, pl.Int64))
    with pytest.raises(InputError, match=r"sizes \(.*kv_tokens\), got 15552 steps, none with all"):
        step_durations(replace(run, steps=steps), 0)


def test_a_counter_that_began_anew_counts_its_rises(run: Run) -> None:
    """A restart of the engine is no negative number of steps."""
    output = int(run.requests["generated_tokens"].sum()) - run.requests.height
    whole = without_steps(run, output // 2)
    half = without_steps(run, output // 4)
    later = half.samples.with_columns(
        scrape=pl.col("scrape") + 2,
        value=pl.when(pl.col("scrape") == 0).then(0.0).otherwise(output // 2 - output // 4),
    )
    reset = replace(half, samples=pl.concat([half.samples, later]))
    assert request_durations(whole, 0).sizes.tolist() == request_durations(reset, 0).sizes.tolist()


def invoke(*arguments: object) -> Any:
    """Run the tool."""
    return CliRunner().invoke(cli, ["calibrate", *map(str, arguments)])


def test_the_file_says_under_which_conditions_it_holds_and_a_replay_reads_it(
    tmp_path: Path,
) -> None:
    """Engine, device and the greatest batch travel with the rates into every ledger."""
    out = tmp_path / "t.toml"
    said = invoke(RUN, "-o", out)
    assert 0 == said.exit_code, said.output
    assert "valid up to 1369 prefill tokens, 9 decoding requests" in said.stderr
    written = tomllib.loads(out.read_text())
    assert "0.32.0" == written["calibration"]["conditions"]["engine.version"]
    ledger = tmp_path / "ledger"
    arguments = ["replay", str(RUN), "--timing", str(out), "--out", str(ledger)]
    replayed = CliRunner().invoke(cli, arguments)
    assert 0 == replayed.exit_code, replayed.output
    assert "modelled times, not measured: TTFT p50" in replayed.stderr
    assert "durations fitted to 15547 steps of run base-1 (0.32.0, tinymodel" in replayed.stderr
    config = read_config(ledger / "config.toml")
    assert config.calibration is not None
    assert written["calibration"]["conditions"] == config.calibration.conditions


def test_json_holds_what_the_file_holds(tmp_path: Path) -> None:
    """For scripts: the rates and the calibration, on standard output."""
    said = invoke(RUN, "-o", tmp_path / "t.toml", "--json")
    written = tomllib.loads((tmp_path / "t.toml").read_text())
    found = json.loads(said.stdout)
    assert written["timing"] == found["timing"]
    assert written["calibration"]["interval_95"] == found["calibration"]["interval_95"]


def test_an_output_that_exists_is_kept(tmp_path: Path) -> None:
    """Nothing is read first, and nothing is replaced without --force."""
    (tmp_path / "t.toml").write_text("mine")
    said = invoke(RUN, "-o", tmp_path / "t.toml")
    assert 0 != said.exit_code
    assert "mine" == (tmp_path / "t.toml").read_text()


def test_too_few_steps_are_refused(run: Run) -> None:
    """A fit to a handful of steps would be believed."""
    with pytest.raises(InputError, match="at least 100 steps"):
        calibrate(replace(run, steps=run.steps.head(50)), 0)
