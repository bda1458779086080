"""What a run's latencies come to when they are cut off: SQL against numpy, and the truth."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from test_gate import emptied, request_row, small

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Condition, Design, Slice
from analysis.gate.evidence import slice_rows
from analysis.store import load_run
from replay.canonical import canonical_json, sha256

TAU = 1000
BASE = {"ttft_us": 100, "tpot_us": 10, "e2e_us": 140, "queue_time_us": 50, "decode_time_us": 40}


def read(name: str, requests: list[dict[str, Any]], part: Slice | None = None, **values: Any):
    """The rows of one query over one run that was observed until 10,000 us."""
    run = small("r", requests, [], drain_end_us=10_000, send_end_us=9_500)
    db = emptied()
    load_run(db, run)
    digest = sha256(canonical_json(dict(run.manifest)))
    place = GateRun("r", "baseline", 0, run.manifest, digest, len(requests), None)
    return slice_rows(db, name, part, [place], Design(warmup_us=500, follow_up_us=TAU), **values)


def latencies(requests: list[dict[str, Any]], field: str = "ttft_us") -> dict[str, Any]:
    """The one row of capped latencies."""
    (row,) = read("capped_latencies", requests, field=field)
    return dict(row)


def many(*changes: dict[str, Any]) -> list[dict[str, Any]]:
    """Requests that arrived after the warm-up, one for each change."""
    return [request_row(k, **BASE | {"arrival_us": 500 + k} | c) for k, c in enumerate(changes)]


@settings(max_examples=25)
@given(st.lists(st.integers(1, 2000), min_size=1, max_size=40))
def test_quantiles_and_the_mean_are_numpys_of_the_capped_values(values: list[int]):
    """Linear interpolation, as numpy does it by default."""
    row = latencies(many(*({"ttft_us": v} for v in values)))
    capped = np.minimum(values, TAU)
    assert (len(values), 0, 0) == (row["requests"], row["unknown"], row["lost"])
    assert int(capped.sum()) == row["sum_us"]
    expected = np.quantile(capped, [0.5, 0.9, 0.95, 0.99])
    assert pytest.approx(expected.tolist(), rel=1e-12) == row["quantiles_us"]


@pytest.mark.parametrize("status", ["error", "aborted", "rejected", "unsent"])
def test_a_failed_request_took_the_whole_follow_up(status: str):
    """Even if it got its first token in time."""
    row = latencies(many({}, {"status": status, "ttft_us": 5}))
    assert (2, 1, 100 + TAU) == (row["requests"], row["lost"], row["sum_us"])


@pytest.mark.parametrize(
    ("field", "expected"),
    [("ttft_us", 100), ("queue_time_us", 50), ("tpot_us", TAU), ("e2e_us", TAU)],
)
def test_an_unfinished_request_keeps_what_it_had_reached(field: str, expected: int):
    """Its first token was seen; how long all of it takes was not."""
    row = latencies(many({"status": "censored"}), field)
    assert expected == row["sum_us"]
    row = latencies(many({"status": "censored", field: None}), field)
    assert (TAU, 1) == (row["sum_us"], row["lost"])


def test_a_missing_value_is_unknown_and_never_zero():
    """Null and a zero that cannot be are the same; a request that is unknown has no number."""
    row = latencies(many({}, {"ttft_us": None}, {"ttft_us": 0}))
    assert (3, 2, 100) == (row["requests"], row["unknown"], row["sum_us"])


def test_a_single_token_has_no_time_per_token():
    """It is left out and not unknown; what failed is judged by the length it asked for."""
    one = {"generated_tokens": 1, "tpot_us": None}
    row = latencies(many({}, one, {"status": "error", "max_tokens": 1} | one), "tpot_us")
    assert (1, 0) == (row["requests"], row["unknown"])
    row = latencies(many({"tpot_us": None}), "tpot_us")
    assert (1, 1) == (row["requests"], row["unknown"])


def test_zero_is_a_decode_time_of_one_token_only():
    """And a wait after preemptions only of nobody preempted."""
    row = latencies(many({"decode_time_us": 0, "generated_tokens": 1}, {}), "decode_time_us")
    assert (0, 40) == (row["unknown"], row["sum_us"])
    assert 1 == latencies(many({"decode_time_us": 0}), "decode_time_us")["unknown"]
    waits = many({"requeue_time_us": 0}, {"requeue_time_us": 0, "num_preemptions": 1})
    assert 1 == latencies(waits, "requeue_time_us")["unknown"]


def test_only_who_could_be_followed_is_judged():
    """After the warm-up, and at least the follow-up before the end; the bounds count."""
    arrivals = (499, 500, 9000, 9001)
    requests = [request_row(k, **BASE | {"arrival_us": a}) for k, a in enumerate(arrivals)]
    assert 2 == latencies(requests)["requests"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (Condition("priority", min=1), 2),
        (Condition("priority", max=0), 2),
        (Condition("prompt_tokens", min=11), 1),
        (Condition("output_tokens", max=5), 3),
        (Condition("arrival_us", min=502, max=502), 1),
        (Condition("tenant", any_of=("a", "b")), 2),
    ],
)
def test_a_slice_is_the_same_requests_in_every_query(condition: Condition, expected: int):
    """Counted, timed and judged alike; a null column is in no slice that asks for it."""
    requests = many(
        {"tenant": "a"}, {"tenant": "b", "prompt_tokens": 11}, {"tenant": "c"}, {"max_tokens": 6}
    )
    part = Slice("s", (condition,))
    limits = dict.fromkeys(f for f in (*BASE, "requeue_time_us", "prefill_time_us")) | {
        "ttft_us": 100
    }
    (counted,) = read("slice_eligible", requests, part)
    (timed,) = read("capped_latencies", requests, part, field="ttft_us")
    (judged,) = read("good_requests", requests, part, slo=limits)
    assert expected == counted["eligible"] == timed["requests"] == judged["requests"]


@pytest.mark.parametrize(
    ("change", "outcome"),
    [
        ({}, "good"),
        ({"ttft_us": 101}, "bad"),
        ({"tpot_us": 11}, "bad"),
        ({"status": "censored"}, "bad"),
        ({"status": "rejected", "ttft_us": None, "tpot_us": None}, "bad"),
        ({"ttft_us": None}, "unknown"),
        ({"ttft_us": 0}, "unknown"),
        ({"ttft_us": None, "tpot_us": 11}, "bad"),
        ({"tpot_us": None}, "unknown"),
        ({"tpot_us": None, "generated_tokens": 1}, "good"),
        ({"e2e_us": None}, "good"),  # no objective
    ],
)
def test_a_request_is_good_bad_or_unknown(change: dict[str, Any], outcome: str):
    """Every objective met, one missed or no answer, or a value missing and none missed."""
    limits = dict.fromkeys((*BASE, "requeue_time_us", "prefill_time_us")) | {
        "ttft_us": 100,
        "tpot_us": 10,
    }
    (row,) = read("good_requests", many(change), slo=limits)
    expected = {"good": (1, 0), "bad": (0, 0), "unknown": (0, 1)}[outcome]
    assert expected == (row["good"], row["unknown"])
    assert 9000 - 500 == row["send_window_us"]


def test_quarters_are_of_arrivals_by_number():
    """Four equal parts in order of arrival, ties by id."""
    found = read("queue_by_quarter", many(*({"queue_time_us": k} for k in range(8))))
    assert [(1, 2, 1), (2, 2, 5), (3, 2, 9), (4, 2, 13)] == [
        (r["quarter"], r["requests"], r["sum_us"]) for r in found
    ]
    found = read("queue_by_quarter", many(*({"queue_time_us": None} for _ in range(4))))
    assert [1] * 4 == [r["unknown"] for r in found]


def test_cutting_off_tells_the_truth_where_leaving_out_does_not():
    """A surge at the end of sending: 2 % and more stay unfinished, and they are the slowest.

    Drained for the follow-up time, the capped p95 is within 1 % of what a full drain would have
    shown; the p95 of those who finished is less than half of it.
    """
    rng = np.random.default_rng(3)
    number, end, tau = 4000, 10_000_000, 600_000
    arrivals = np.sort(rng.integers(1, end, number))
    service = rng.exponential(end / number * 0.9, number)
    service[-number * 8 // 100 :] *= 2.8
    free, first_token = 0.0, np.zeros(number)
    for k in range(number):
        free = max(free, arrivals[k]) + service[k]
        first_token[k] = free - arrivals[k]
    truth = first_token.astype(int) + 1
    seen = arrivals + truth <= end + tau
    assert 0.02 < 1 - seen.mean() < 0.06
    requests = [
        request_row(
            k,
            arrival_us=int(arrivals[k]),
            ttft_us=int(truth[k]) if seen[k] else None,
            status="ok" if seen[k] else "censored",
        )
        for k in range(number)
    ]
    run = small("r", requests, [], send_end_us=end, drain_end_us=end + tau)
    db = emptied()
    load_run(db, run)
    place = GateRun("r", "baseline", 0, run.manifest, "0" * 64, number, None)
    design = Design(follow_up_us=tau)
    (row,) = slice_rows(db, "capped_latencies", None, [place], design, field="ttft_us")
    assert number == row["requests"]
    assert tau > row["quantiles_us"][2]
    assert pytest.approx(np.quantile(truth, 0.95), rel=0.01) == row["quantiles_us"][2]
    assert np.quantile(truth[seen], 0.95) < 0.5 * np.quantile(truth, 0.95)
