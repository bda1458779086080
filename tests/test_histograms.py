"""Histograms of the engine's own metrics: intervals of bucket bounds, never points."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paged import IDLE, LOADED, MINUTE, page, paged
from questioned import Row, asked
from stored import metrics_only

from analysis import store
from collectors.exposition.samples import MetricSample, samples_frame


def buckets(k: int, counts: Mapping[float, float], engine: int | None = 0) -> Any:
    """A scrape of one histogram, its buckets cumulative."""
    samples = [MetricSample(engine, "m", "t_bucket", "{}", le, n) for le, n in counts.items()]
    return k, k * MINUTE, samples


def interval(scrapes: Sequence[Any], **manifest: Any) -> dict[float, tuple[Any, ...]]:
    """(observations, lower, upper) of each quantile of a run with these scrapes."""
    run = metrics_only()
    run = replace(
        run,
        samples=samples_frame("metrics-1", scrapes),
        manifest={**run.manifest, **manifest},
    )
    columns = ("observations", "lower", "upper")
    with store.connect(None) as own:
        store.load_run(own, run)
        rows = asked(own, "histogram_intervals")
    return {r["measured_quantile"]: tuple(r[f"measured_{c}"] for c in columns) for r in rows}


def test_a_quantile_of_a_real_histogram_is_the_interval_between_two_bounds() -> None:
    """TTFT of a real page: the buckets that hold the two ranks a quantile lies between."""
    name = "time_to_first_token_seconds_bucket"
    before, after = (
        {s.le or 0.0: s.value or 0.0 for s in page(each) if s.name == name}
        for each in (IDLE, LOADED)
    )
    counts = {le: value - before[le] for le, value in after.items()}
    bounds = sorted(counts)
    with store.connect(None) as own:
        store.load_run(own, paged("scraped"))
        rows = asked(own, "histogram_intervals", measured_name=name.removesuffix("_bucket"))
    assert [0.5, 0.9, 0.95, 0.99] == [row["measured_quantile"] for row in rows]
    for row in rows:
        rank = row["measured_quantile"] * 31  # of 32, from 0
        low = next(b for b in bounds if counts[b] > math.floor(rank))
        high = next(b for b in bounds if counts[b] > math.ceil(rank))
        lower = bounds[bounds.index(low) - 1]
        assert (32, lower, high) == (
            row["measured_observations"],
            row["measured_lower"],
            row["measured_upper"],
        )
    assert (2.5, 7.5) == (rows[2]["measured_lower"], rows[2]["measured_upper"])


@settings(max_examples=25)
@given(st.lists(st.floats(0, 12, exclude_min=True), min_size=1, max_size=40))
def test_the_interval_holds_the_quantile_of_what_was_observed(values: list[float]) -> None:
    """By the definitions that lie between the two ranks, whatever was counted before."""
    bounds = [0.5, 1.0, 2.5, 5.0, 10.0, math.inf]
    before = dict.fromkeys(bounds, 3.0)
    after = {le: 3.0 + sum(v <= le for v in values) for le in bounds}
    found = interval([buckets(0, before), buckets(1, after)])
    for quantile, (observations, lower, upper) in found.items():
        assert len(values) == observations
        for method in ("linear", "inverted_cdf", "lower", "higher", "nearest"):
            assert lower <= np.quantile(values, quantile, method=method) <= upper


def test_a_histogram_is_reset_as_a_whole() -> None:
    """One bucket that fell shows it: what the others rose by is no increase either."""
    first = buckets(0, {1.0: 6, 2.0: 6, math.inf: 6})
    anew = buckets(1, {1.0: 1, 2.0: 7, math.inf: 9})
    assert (9, 1.0, 2.0) == interval([first, anew])[0.5]


def test_a_reset_of_a_histogram_that_the_collector_saw_counts_even_if_nothing_fell() -> None:
    """It may have passed its old counts; another engine's restart is none of its own."""
    scrapes = [buckets(0, {1.0: 2, math.inf: 2}), buckets(1, {1.0: 5, math.inf: 6})]
    for engine, observations in ((0, 6), (1, 4)):
        reset = {"time_us": 0, "scrape": 1, "engine": engine, "name": "t_bucket"}
        found = interval(scrapes, counter_resets=[reset])
        assert observations == found[0.5][0]


def test_engines_are_added_bucket_by_bucket() -> None:
    """A quantile of the run, not of the engine that comes last; unlike buckets make none."""
    zero = {1.0: 0, 2.0: 0, math.inf: 0}
    one, two = {1.0: 9, 2.0: 9, math.inf: 9}, {1.0: 0, 2.0: 3, math.inf: 3}
    scrapes = [
        (k, t, a + b)
        for (k, t, a), (_, _, b) in (
            (buckets(0, zero), buckets(0, zero, 1)),
            (buckets(1, one), buckets(1, two, 1)),
        )
    ]
    assert [(12, 0, 1.0), (12, 1.0, 2.0)] == [interval(scrapes)[q] for q in (0.5, 0.9)]
    unlike = [(k, t, [s for s in a if s.engine == 0 or s.le != 2.0]) for k, t, a in scrapes]
    assert (None, None) == interval(unlike)[0.5][1:]


@pytest.mark.parametrize(
    ("scrapes", "manifest", "observations"),
    [
        ([buckets(0, {1.0: 2, math.inf: 2})], {}, None),
        ([buckets(k, {1.0: 2, math.inf: 2}) for k in range(2)], {}, 0),
        (
            [buckets(k, {1.0: k, math.inf: k}) for k in range(3)],
            {"collection": {"several_workers": True, "outcomes": {"ok": 3}}},
            None,
        ),
    ],
)
def test_a_histogram_that_counted_nothing_or_nobody_knows_what_has_no_interval(
    scrapes: Sequence[Any], manifest: Row, observations: int | None
) -> None:
    """One sample, two equal ones, several workers by turns."""
    assert {(observations, None, None)} == set(interval(scrapes, **manifest).values())


def test_the_last_bucket_has_no_end() -> None:
    """What exceeds every bound may be anything above the last."""
    found = interval([buckets(0, {1.0: 0, math.inf: 0}), buckets(1, {1.0: 1, math.inf: 100})])
    assert (100, 1.0, math.inf) == found[0.95]
