"""Bands within a run: the length of blocks by known values, the bands by drawing in full."""

import json
import subprocess
import sys
from typing import Any

import numpy as np
import polars as pl
import pytest
from numpy.typing import NDArray
from paired import pairs, run_of
from test_gate import ROOT, GateReport, _store, answer
from test_gate_pairs import GOODPUT, INCREASE, TTFT, gate_of

from analysis.gate import bands
from analysis.gate.bootstrap import (
    MOST_BLOCKS,
    QUANTILES,
    automatic_length,
    band,
    block_length,
)
from analysis.gate.described import described
from analysis.gate.summaries import compared_runs

Series = NDArray[np.int64]


def autoregressive(number: int, rho: float, seed: int) -> Series:
    """A series whose neighbours are correlated by rho, in whole microseconds."""
    noise = np.random.default_rng(seed).normal(size=number)
    values = np.zeros(number)
    for k in range(1, number):
        values[k] = rho * values[k - 1] + noise[k]
    return (values * 10_000).astype(np.int64)


@pytest.mark.parametrize("rho", [0.3, 0.5, 0.8, 0.9])
def test_the_automatic_length_is_that_of_theory(rho: float) -> None:
    """Of an AR(1) it is (6 rho^2 / (1 - rho^2)^2 * n)^(1/3); the median of 15 estimates is near."""
    number = 5000
    known = (6 * rho**2 / (1 - rho**2) ** 2 * number) ** (1 / 3)
    found = [automatic_length(autoregressive(number, rho, seed)) for seed in range(15)]
    assert pytest.approx(known, rel=0.2) == np.median(found)


def test_independent_and_constant_requests_make_short_blocks() -> None:
    """There is nothing to keep together."""
    assert 4 >= np.median([automatic_length(autoregressive(2000, 0, k)) for k in range(9)])
    assert 1 == automatic_length(np.full(100, 7, np.int64))


@pytest.mark.parametrize("statistic", ["mean", "p50", "p90", "p95"])
def test_a_band_is_that_of_drawing_in_full(statistic: str) -> None:
    """Every draw made of its requests, with the same blocks; within a fifth of the band's width."""
    values = np.exp(autoregressive(3000, 0.7, 5) / 10_000)
    series = (values * 100_000).astype(np.int64)
    length = block_length(series, statistic, 20)
    rng, drawn = np.random.default_rng(3), []
    for _ in range(1000):
        starts = rng.integers(len(series), size=-(-len(series) // length))
        chosen = series[((starts[:, None] + np.arange(length)) % len(series)).ravel()]
        drawn.append(np.quantile(chosen, q) if (q := QUANTILES.get(statistic)) else chosen.mean())
    low, high = np.quantile(drawn, [0.05, 0.95])
    found = band(series, statistic, length, 0.05)
    assert found is not None
    assert pytest.approx((low, high), abs=(high - low) / 5) == found


def test_blocks_are_as_long_as_requests_are_alive() -> None:
    """Or as the automatic choice, or as it takes to have no more than so many."""
    series = autoregressive(2000, 0.5, 1)
    automatic = block_length(series, "mean", None)
    assert automatic == block_length(series, "mean", 1)
    assert 100 == block_length(series, "mean", 100)
    assert 100_000 // MOST_BLOCKS <= block_length(autoregressive(100_000, 0, 1), "mean", None)


def test_too_few_blocks_are_no_band() -> None:
    """Five are the least."""
    series = autoregressive(100, 0, 1)
    assert band(series, "p95", 26, 0.05) is None
    assert band(series, "p95", 20, 0.05) is not None


def test_a_band_is_the_same_numbers_everywhere() -> None:
    """Pinned: of a series that needs no library to make."""
    series = np.array([(k * k) % 997 + 5 * (k % 40) for k in range(1000)], np.int64)
    code = (
        "import numpy as np; from analysis.gate.bootstrap import band;"
        "s = np.array([(k * k) % 997 + 5 * (k % 40) for k in range(1000)], np.int64);"
        "print([band(s, q, 16, 0.05) for q in ('mean', 'p50', 'p95')])"
    )
    again = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    here = [band(series, q, 16, 0.05) for q in ("mean", "p50", "p95")]
    pinned = [(572.007937, 614.787698), (559.767857, 628.241071), (1033.00714, 1074.075)]
    assert pinned == here
    assert str(pinned) == again.stdout.strip()


def report_of(*predicates: dict[str, Any], number: int = 2) -> tuple[Any, GateReport]:
    """A gate and its report over a few pairs, whose store is still there."""
    gate = gate_of(*predicates)
    return gate, answer(gate, *pairs([1.0] * number))


def test_every_test_over_pairs_has_a_band_for_each_run() -> None:
    """Two tests of one share have one; a band holds its run's own number."""
    gate, report = report_of(TTFT, GOODPUT, INCREASE)
    found = described(_store(), gate, report)
    assert found is not None
    rows = found["bands"]["rows"]
    assert [("ttft", "p95")] * 4 + [("goodput", "good_fraction")] * 4 + [
        ("failures", "failed_fraction")
    ] * 4 == [(r["predicate"], r["statistic"]) for r in rows]
    ttft = next(p for p in report.predicates if p.id == "ttft")
    first = rows[0]
    assert first["low"] <= ttft.baseline[0] <= first["high"]
    assert first["block_length"] >= 1


def test_missing_values_and_huge_runs_have_none_and_say_why(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nothing is made up of what nobody recorded."""
    gate = gate_of(TTFT)
    unknown = [pl.lit(None, pl.Int64).alias("ttft_us")]
    base, cand = run_of("b0", "baseline", 0, unknown), run_of("c0", "candidate", 0)
    report = answer(gate, base, cand)
    runs = compared_runs(_store(), gate, report.runs)
    found = bands.bands(_store(), gate, runs, 1000)
    assert ["no_data", None] == [r["reason"] for r in found["rows"]]
    monkeypatch.setattr(bands, "MOST_REQUESTS", 100)
    found = bands.bands(_store(), gate, runs, 1000)
    assert ([], True) == (found["rows"], "more than 100 requests" in found["left_out"])
    assert json.dumps(found)
