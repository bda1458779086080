"""Statistical predicates over pairs of runs: each is made to pass, to fail and not to know."""

import io
import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import polars as pl
import pytest
from paired import DESIGN, TIMES, pairs, run_of, slower
from rich.console import Console
from test_gate import GateReport, answer, emptied, only, shuffled

from analysis.gate.comparability import GateRun
from analysis.gate.contract import LATENCY_FIELDS, STATISTICS, Gate
from analysis.gate.gate_file import parse_gate
from analysis.gate.markdown_report import report_markdown
from analysis.gate.predicates import regression
from analysis.gate.run import evaluate
from analysis.gate.terminal import print_report
from analysis.gate.validity import unbalanced
from analysis.gate.verdict import report_json
from analysis.store import load_run
from collectors.run import Run
from replay.canonical import canonical_json

ALL = {"all": {"where": {"prompt_tokens": {"min": 1}}, "min_eligible": 100}}
TTFT: dict[str, Any] = {
    "id": "ttft",
    "kind": "regression",
    "field": "ttft_us",
    "statistic": "p95",
    "slice": "all",
    "max_regression": 0.1,
    "floor_us": 1000,
}
GOODPUT: dict[str, Any] = {
    "id": "goodput",
    "kind": "goodput",
    "slice": "all",
    "slo": {"ttft_us": 400_000, "tpot_us": 60_000},
    "min_fraction": 0.8,
    "max_drop": 0.05,
}
INCREASE = {"id": "failures", "kind": "failures", "max_increase": 0.02}
EQUAL = [1.0] * 6
LUCK = [1.0, 1.02, 0.97, 1.04, 0.99, 1.01]


def gate_of(*predicates: dict[str, Any], **design: Any) -> Gate:
    """A gate of nothing changed (A/A), so that any two runs may be compared."""
    raw = {
        "schema": "preemption-gate/1",
        "name": "g",
        "change": {"fields": []},
        "design": DESIGN | design,
        "slices": ALL,
        "predicate": list(predicates),
    }
    return parse_gate(raw, "g.toml")


def judged(predicate: dict[str, Any], sides: tuple[Sequence[Run], Sequence[Run]], **design: Any):
    """The result of one predicate, by its id."""
    report = answer(gate_of(predicate, **design), *sides)
    return next(p for p in report.predicates if p.id == predicate["id"])


# --- regression ------------------------------------------------------------------------------


def test_a_quarter_more_ttft_fails():
    """Six pairs of +25 %, a little noise beside: the interval lies beyond the limit of 10 %."""
    found = judged(TTFT, pairs([1.25, 1.24, 1.26, 1.25, 1.23, 1.27], "ttft_us", noise=LUCK))
    assert ("fail", ("limit_exceeded",)) == (found.verdict, found.reasons)
    assert 0.23 < found.low < found.estimate < found.high < 0.27
    assert 6 == len(found.effects)
    assert pytest.approx(0.25, abs=0.03) == found.estimate
    assert found.why.startswith("found p95 of ttft_us changed by +24.7 % (")
    assert found.why.endswith("limit +10 %), Holm-adjusted p 0.016")


def test_equal_sides_pass():
    """Whatever luck the runs of a pair share."""
    report = answer(gate_of(TTFT), *pairs([1.0, 1.01, 0.99, 1.0, 1.01, 0.99], noise=LUCK))
    assert "pass" == only(report, "ttft").verdict
    assert ("pass", ()) == (report.verdict, report.reasons)
    assert "pass: 3 checks hold on 6 pairs of runs, at least 240 requests each" == report.sentence


def test_noisy_pairs_decide_nothing_and_say_how_many_would():
    """+25 % and -20 % in turn: inconclusive, with the number of pairs the spread asks for."""
    report = answer(gate_of(TTFT), *pairs([1.25, 0.8, 1.2, 0.85, 1.1, 0.9], "ttft_us"))
    found = only(report, "ttft")
    assert ("inconclusive", ("interval_spans_limit",)) == (found.verdict, found.reasons)
    assert found.pairs_needed > 6
    assert (
        f"to decide this, run {found.pairs_needed - 6} more pairs (from the observed spread);"
        " that is beyond this gate's plan, so plan a new gate and run all of its pairs"
        == report.recommendation
    )
    within = answer(gate_of(TTFT, pairs=500), *pairs([1.25, 0.8, 1.2, 0.85, 1.1, 0.9], "ttft_us"))
    assert "beyond this gate's plan" not in (within.recommendation or "")


def test_an_effect_at_its_limit_is_not_worth_more_pairs():
    """No planned number would decide it, and the reader is told."""
    noisy = [1.0 + d for d in (0.4, -0.2, 0.35, -0.1, 0.3, -0.049)]
    report = answer(gate_of(TTFT), *pairs(noisy, "ttft_us"))
    assert "not even 1000 pairs would decide this" in (report.recommendation or "")


@pytest.mark.parametrize("number", [1, 2, 4])
def test_fewer_than_five_pairs_are_never_a_verdict(number: int):
    """However clear they look; the effects are shown all the same."""
    report = answer(gate_of(TTFT), *pairs([3.0] * number, "ttft_us"))
    found = only(report, "ttft")
    assert ("inconclusive", ("too_few_pairs",)) == (found.verdict, found.reasons)
    assert (number, None) == (len(found.effects), found.low)
    assert (report.recommendation or "").startswith(f"run {5 - number} more pair")


def test_a_second_look_takes_more_confidence():
    """Five pairs decide one look of 90 %, and none of two looks of 95 % each."""
    sides = pairs([1.25] * 5, "ttft_us")
    assert "fail" == judged(TTFT, sides).verdict
    found = judged(TTFT, sides, looks=2)
    assert ("too_few_pairs",) == found.reasons
    assert "one-sided 97.5 %" in found.method


@pytest.mark.parametrize("statistic", STATISTICS)
@pytest.mark.parametrize("field", LATENCY_FIELDS)
def test_every_field_and_statistic_can_fail(field: str, statistic: str):
    """Twice as long, and a constant to make room: each is found."""
    longer = [(pl.col(f) + 1000).alias(f) for f in TIMES]
    sides = (
        [run_of(f"b{k}", "baseline", k, longer) for k in range(5)],
        [
            run_of(f"c{k}", "candidate", k, [((pl.col(f) + 1000) * 2).alias(f) for f in TIMES])
            for k in range(5)
        ],
    )
    found = judged(TTFT | {"field": field, "statistic": statistic, "floor_us": 0}, sides)
    assert ("fail", True) == (found.verdict, found.estimate > 0.8)


def test_the_floor_keeps_small_numbers_from_being_findings():
    """Three times 200 us is nothing beside 50 ms."""
    sides = pairs([3.0] * 5, "queue_time_us")
    queue = TTFT | {"field": "queue_time_us", "statistic": "p50", "floor_us": 0}
    assert "fail" == judged(queue, sides).verdict
    assert "pass" == judged(queue | {"floor_us": 50_000}, sides).verdict


def test_a_quantile_needs_requests_beyond_it():
    """20 beyond it on average unless the slice says how many: 400 for p95, 40 for a median."""
    whole = {k: v for k, v in TTFT.items() if k != "slice"}
    sides = pairs([1.25] * 5, "ttft_us")
    found = judged(whole, sides)
    assert ("too_few_eligible",) == found.reasons
    assert found.why.startswith("needs at least 400 eligible requests a run, 212 given")
    assert "fail" == judged(whole | {"statistic": "p50"}, sides).verdict
    assert [40, 40, 200, 400, 2000] == [
        regression.least_eligible(gate_of(TTFT | {"statistic": s}).predicates[1], None)
        for s in STATISTICS
    ]


# --- what was cut off ------------------------------------------------------------------------


def cut(share: float) -> list[pl.Expr]:
    """The last of every so many requests failed."""
    every = round(1 / share)
    bad = pl.int_range(pl.len()) % every == every - 1
    return [
        pl.when(bad).then(pl.lit("error")).otherwise(pl.col("status")).alias("status"),
        *(pl.when(~bad).then(pl.col(f)).alias(f) for f in TIMES),
    ]


def test_a_candidate_whose_quantile_reached_the_follow_up_cannot_pass():
    """At least that long is all that is known of it; a fail needs no more."""
    found = judged(TTFT, pairs(EQUAL, columns=cut(0.1)))
    assert "fail" == found.verdict
    assert (10_000_000.0,) * 6 == found.candidate
    generous = judged(
        TTFT | {"max_regression": 10.0, "floor_us": 9_000_000}, pairs(EQUAL, columns=cut(0.1))
    )
    assert ("inconclusive", ("censored",)) == (generous.verdict, generous.reasons)
    assert "cannot pass: p95 of ttft_us reached the follow-up of 10000000 us" in generous.why


def test_two_sides_that_both_reached_it_are_not_equal():
    """Nothing is known of their difference."""
    base, cand = pairs(EQUAL, columns=cut(0.1))
    slow = [run_of(r.run_id, "baseline", k, cut(0.1)) for k, r in enumerate(base)]
    report = answer(gate_of(TTFT), slow, cand)
    found = only(report, "ttft")
    assert ("inconclusive", ("censored",)) == (found.verdict, found.reasons)
    assert "observe longer" in (report.recommendation or "")
    text = report_markdown(report, "0" * 64)
    assert "&gt;= 10,000.0 ms" in text


def test_a_baseline_that_reached_it_fails_nobody():
    """The candidate may be better by comparison than it looks."""
    base, cand = pairs(EQUAL)
    slow = [run_of(r.run_id, "baseline", k, cut(0.1) if k == 0 else ()) for k, r in enumerate(base)]
    worse = [
        run_of(f"c{k}", "candidate", k, slower(1.0 if k == 0 else 900.0, "ttft_us"))
        for k in range(6)
    ]
    found = judged(TTFT, (slow, [worse[0], *cand[1:]]))
    assert "fail" != found.verdict


def test_without_a_follow_up_no_latency_is_decided():
    """At 0 every value would be cut off, and all sides would look equal."""
    found = judged(TTFT, pairs(EQUAL), follow_up_us=0)
    assert ("inconclusive", "censored") == (found.verdict, found.reasons[0])


def test_survivors_alone_are_not_compared():
    """A candidate that sheds 43 % answers the rest faster, and fails all the same."""
    gone = pl.int_range(pl.len()) * 43 % 100 < 43
    shed = [
        pl.when(gone).then(pl.lit("rejected")).otherwise(pl.col("status")).alias("status"),
        *(pl.when(~gone).then((pl.col(f) * 0.5).round().cast(pl.Int64)).alias(f) for f in TIMES),
        *(
            pl.when(~gone).then(pl.col(f)).alias(f)
            for f in ("engine", "generated_tokens", "num_preemptions")
        ),
    ]
    sides = pairs(EQUAL, columns=shed)
    survivors = sides[1][0].requests.filter(pl.col("status") == "ok")
    assert 0.55 < len(survivors) / 240 < 0.6
    assert survivors["ttft_us"].quantile(0.95) < sides[0][0].requests["ttft_us"].quantile(0.95)
    report = answer(gate_of(TTFT, GOODPUT, INCREASE), *sides)
    verdicts = {(p.id, p.statistic): p.verdict for p in report.predicates}
    assert "fail" == verdicts["ttft", "p95"]
    assert "fail" == verdicts["goodput", "good_fraction"]
    assert "fail" == verdicts["goodput", "good_drop"]
    assert "fail" == verdicts["failures", "failed_increase"]
    assert only(report, "failures").estimate > 0.4
    assert "fail" == report.verdict


# --- goodput and failures --------------------------------------------------------------------


def test_goodput_is_of_offered_requests():
    """Equal sides pass; one in ten failed is a drop of a tenth, whoever answered in time."""
    report = answer(gate_of(GOODPUT), *pairs(EQUAL, noise=LUCK))
    assert ["pass", "pass"] == [p.verdict for p in report.predicates if p.id == "goodput"]
    report = answer(gate_of(GOODPUT), *pairs(EQUAL, columns=cut(0.1)))
    share, drop = (p for p in report.predicates if p.id == "goodput")
    assert ("pass", "fail") == (share.verdict, drop.verdict)
    assert pytest.approx(0.1, abs=0.02) == drop.estimate
    assert drop.why.startswith("found a drop of the share of good requests of 9.")
    assert "; good per second of sending: 2." in drop.why
    assert ((), 6) == (share.effects, len(drop.effects))


def test_a_share_of_good_requests_is_held_to_its_least():
    """98 % good passes 80 %, fails 99.9 %."""
    sides = pairs(EQUAL, columns=cut(0.02))
    only_share = {k: v for k, v in GOODPUT.items() if k != "max_drop"}
    assert "pass" == judged(only_share, sides).verdict
    assert "fail" == judged(only_share | {"min_fraction": 0.999}, sides).verdict


def test_goodput_needs_requests_enough_to_see_its_limit():
    """20 bad ones at the least share, 3 / limit for a drop."""
    whole = {k: v for k, v in GOODPUT.items() if k != "slice"} | {
        "min_fraction": 0.95,
        "max_drop": 0.01,
    }
    report = answer(gate_of(whole), *pairs(EQUAL))
    assert [
        "needs at least 400 eligible requests a run, 212 given",
        "needs at least 300 eligible requests a run, 212 given",
    ] == [p.why.split(";")[0] for p in report.predicates if p.id == "goodput"]


def test_a_single_token_has_no_time_per_token_and_is_still_good():
    """Its TPOT is no objective; a longer answer without one is unknown."""
    one = [
        pl.lit(1, pl.Int64).alias("generated_tokens"),
        pl.lit(None, pl.Int64).alias("tpot_us"),
    ]
    found = judged(GOODPUT, pairs(EQUAL, columns=one))
    assert "pass" == found.verdict
    found = judged(GOODPUT, pairs(EQUAL, columns=one[1:]))
    assert ("inconclusive", ("no_data",)) == (found.verdict, found.reasons)


def test_an_increase_of_failures_is_found():
    """One in ten more than none; none more is shown where the runs are large enough."""
    assert "fail" == judged(INCREASE, pairs(EQUAL, columns=cut(0.1))).verdict
    assert "pass" == judged(INCREASE, pairs(EQUAL)).verdict
    found = judged(INCREASE | {"max_increase": 0.01}, pairs(EQUAL))
    assert ("inconclusive", ("too_few_eligible",)) == (found.verdict, found.reasons)
    assert "needs at least 300 requests a run to show a share of 1 %, 240 given" == found.why
    some = [cut(0.5 if k % 2 else 0.05) for k in range(6)]
    sides = (
        [run_of(f"b{k}", "baseline", k, cut(0.2)) for k in range(6)],
        [run_of(f"c{k}", "candidate", k, some[k]) for k in range(6)],
    )
    found = judged(INCREASE, sides)
    assert ("inconclusive", ("interval_spans_limit",)) == (found.verdict, found.reasons)


# --- validity of the runs --------------------------------------------------------------------


def ordered(places: Sequence[int | None], starts: Sequence[str | None] = ()) -> list[GateRun]:
    """Pairs of manifests that say when they were made."""
    return [
        GateRun(
            f"r{k}",
            ("baseline", "candidate")[k % 2],
            k // 2,
            {"comparison": {"order": place}, "start": dict(enumerate(starts)).get(k)},
            "0" * 64,
            8,
            "a",
        )
        for k, place in enumerate(places)
    ]


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ([0, 1, 3, 2, 4, 5, 7, 6], None),
        ([0, 1, 3, 2, 4, 5], None),
        ([10, 11, 33, 32, 44, 50], None),  # gaps are other runs
        ([0, 1, 2, 3, 4, 5, 6, 7], "the baseline came first in 4 of 4 pairs"),
        ([1, 0, 3, 2, 5, 4, 7, 6], "the baseline came first in 0 of 4 pairs"),
        ([0, 2, 1, 3], "not made one after the other"),
        ([0, 1, 3, None], "nobody knows in which order"),
        ([0, 0, 1, 2], "nobody knows in which order"),
    ],
)
def test_the_order_of_runs_must_not_favour_a_side(places: list[int | None], words: str | None):
    """Either side first as often, the two of a pair one after the other, and all of it known."""
    found = unbalanced(ordered(places))
    assert (words is None) == (found is None)
    if found is not None:
        assert "order_not_balanced" == found.reason
        assert words is not None
        assert words in found.why


def test_start_times_are_believed_over_what_was_planned():
    """Recorded ABBA, started ABAB."""
    starts = [f"2026-11-30T10:0{k}:00{'.5' * (k % 2)}Z" for k in range(4)]
    assert unbalanced(ordered([0, 1, 3, 2])) is None
    assert unbalanced(ordered([0, 1, 3, 2], starts)) is not None
    assert unbalanced(ordered([0, 1, 3, 2], [*starts[:3], None])) is None


def test_an_unbalanced_order_keeps_statistics_open():
    """The baseline always first: no pass and no fail, and the way out."""
    for factor in (1.0, 1.25):
        base, cand = pairs([factor] * 6, "ttft_us")
        for k, (b, c) in enumerate(zip(base, cand, strict=True)):
            b.manifest["comparison"]["order"] = 2 * k
            c.manifest["comparison"]["order"] = 2 * k + 1
        report = answer(gate_of(TTFT), base, cand)
        found = only(report, "ttft")
        assert ("inconclusive", ("order_not_balanced",)) == (found.verdict, found.reasons)
        assert "ABBA" in (report.recommendation or "")


def test_a_baseline_that_drowns_has_no_statistics():
    """Queues four times as long at the end: neither equal sides pass nor worse ones fail."""
    growing = (pl.col("arrival_us") // 10_000).pow(2).floordiv(30).alias("queue_time_us")
    for factor in (1.0, 1.25):
        cand = pairs([factor] * 6, "ttft_us")[1]
        base = [run_of(f"b{k}", "baseline", k, [growing]) for k in range(6)]
        report = answer(gate_of(TTFT, GOODPUT), base, cand)
        assert ("inconclusive", ("saturated",)) == (report.verdict, report.reasons)
        steady = only(report, "steady")
        assert ("inconclusive", True, 2) == (steady.verdict, steady.estimate > 2, steady.limit)
        assert "measure at a load that the baseline keeps up with" in (report.recommendation or "")


def test_a_short_queue_may_grow():
    """50 ms are added to both quarters: 0.2 ms after 1 ms, or 3 after 1, is no trend."""
    longer = (pl.col("arrival_us") // 50_000).alias("queue_time_us")
    base = [run_of(f"b{k}", "baseline", k, [longer]) for k in range(6)]
    report = answer(gate_of(TTFT), base, pairs(EQUAL)[1])
    assert "pass" == only(report, "steady").verdict


def test_an_unknown_queue_is_not_steady():
    """Nobody recorded it: the check says so, and the gate does not pass."""
    empty = pl.lit(None, pl.Int64).alias("queue_time_us")
    base = [run_of(f"b{k}", "baseline", k, [empty]) for k in range(6)]
    report = answer(gate_of(TTFT), base, pairs(EQUAL)[1])
    assert ("inconclusive", ("no_data",)) == (report.verdict, report.reasons)
    assert "pass" == only(report, "ttft").verdict


# --- silence ---------------------------------------------------------------------------------

NULLS = [pl.lit(None, pl.Int64).alias(f) for f in TIMES]
ZEROS = [pl.lit(0, pl.Int64).alias(f) for f in TIMES]
ONE_NULL = [
    pl.when(pl.int_range(pl.len()) != 100).then(pl.col(f)).alias(f) for f in TIMES
]  # fmt: skip
UNSENT = [pl.lit("unsent").alias("status"), *NULLS]
CENSORED = [pl.lit("censored").alias("status"), *NULLS]
SILENCE: dict[str, tuple[list[pl.Expr], dict[str, Any]]] = {
    "all-null": (NULLS, {}),
    "zeros": (ZEROS, {}),
    "one-null": (ONE_NULL, {}),
    "nobody-answered": (UNSENT, {}),
    "nobody-finished": (CENSORED, {}),
    "none-eligible": ([pl.lit(1, pl.Int64).alias("arrival_us")], {}),
    "end-unknown": ([], {"drain_end_us": None}),
    "end-too-early": ([], {"drain_end_us": 9_000_000}),
}
KINDS = [
    *({**TTFT, "id": "p", "field": f, "statistic": "p50", "max_regression": 9.0, "floor_us": 1}
      for f in LATENCY_FIELDS if f not in ("requeue_time_us", "decode_time_us")),
    {**TTFT, "id": "p", "statistic": "mean", "max_regression": 9.0},
    {**GOODPUT, "id": "p", "min_fraction": 0.01, "max_drop": 0.99},
]  # fmt: skip


@pytest.mark.parametrize("side", ["both", "baseline", "candidate"])
@pytest.mark.parametrize("silence", SILENCE)
def test_silence_never_passes(silence: str, side: str):
    """Empty, null, zero, unfinished, unobserved, on either side or both: nothing passes."""
    columns, manifest = SILENCE[silence]
    sides = [
        [
            run_of(f"{name[0]}{k}", name, k, columns if hit else (), **(manifest if hit else {}))
            for k in range(5)
        ]
        for name in ("baseline", "candidate")
        for hit in [side in ("both", name)]
    ]
    tests = [k | {"id": f"p{n}"} for n, k in enumerate(KINDS)]
    report = answer(gate_of(*tests, pairs=5), *sides)
    if report.verdict == "refused":
        pytest.fail("the runs were meant to be comparable")
    passed = {
        (p.id, p.statistic)
        for p in report.predicates
        if p.id.startswith("p") and p.verdict == "pass"
    }
    # A least share is asked of the candidate alone, and nobody was silent there.
    failed_baseline = side == "baseline" and silence.startswith("nobody")
    assert ({("p6", "good_fraction")} if failed_baseline else set()) == passed
    assert "pass" != report.verdict


def test_an_increase_from_none_to_all_fails():
    """Requests that were never sent are failed ones, whatever the rest of their row lacks."""
    assert "fail" == judged(INCREASE, pairs(EQUAL, columns=UNSENT)).verdict


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_never_passes(bad: float):
    """Should a database ever hand one out."""
    runs = [
        GateRun(f"{s[0]}{k}", s, k, {"drain_end_us": 1}, "0" * 64, 8, "a")
        for k in range(6)
        for s in ("baseline", "candidate")
    ]
    rows = [
        {"run_id": r.run_id, "requests": 9, "unknown": 0, "lost": 0, "quantiles_us": [bad] * 4}
        for r in runs
    ]
    gate = gate_of(TTFT)
    (found,) = regression.judge(gate.predicates[1], runs, rows, gate.design, 9, ())
    assert "pass" != found.verdict


def test_waits_after_preemptions_are_zero_where_there_was_none():
    """That zero is a number; beside preemptions it is a gap."""
    requeue = TTFT | {"field": "requeue_time_us", "floor_us": 1000}
    assert "pass" == judged(requeue, pairs(EQUAL)).verdict
    assert ("no_data",) == judged(requeue | {"floor_us": 0}, pairs(EQUAL)).reasons
    preempted = [pl.lit(1, pl.Int64).alias("num_preemptions")]
    assert ("no_data",) == judged(requeue, pairs(EQUAL, columns=preempted)).reasons


# --- the report ------------------------------------------------------------------------------


def some_report() -> GateReport:
    """A report with a failing, a passing and an open test."""
    sides = pairs([1.25, 1.24, 1.26, 1.25, 1.23, 1.27], "ttft_us", noise=LUCK)
    return answer(gate_of(TTFT, GOODPUT, INCREASE), *sides)


def test_reports_show_estimate_interval_limit_and_pair_effects():
    """In Markdown and on a wide terminal; a narrow one has the effects and the reasons."""
    report = some_report()
    text = report_markdown(report, "0" * 64)
    assert "| ttft | fail | measured | p95 of ttft_us in all |" in text
    assert "## Pair effects" in text
    for columns in (80, 200):
        console = Console(width=columns, record=True, file=io.StringIO())
        print_report(report, console)
        shown = console.export_text()
        assert "effect of each pair" in shown
        assert "+2" in shown
        assert columns >= max(map(len, shown.splitlines()))
    assert "interval" in shown


def test_the_report_is_the_same_bytes_whatever_the_order_and_the_threads():
    """Rows shuffled, one thread or four: statistics do not hear of it."""
    sides = pairs([1.03, 0.98, 1.26, 1.25, 1.23, 1.27], "ttft_us", noise=LUCK)
    gate = gate_of(TTFT, TTFT | {"id": "mean", "statistic": "mean"}, GOODPUT, INCREASE)
    seen = set()
    for seed, threads in ((1, 1), (2, 4)):
        db = emptied()
        db.execute(f"SET threads = {threads}")
        for run in (*sides[0], *sides[1]):
            load_run(db, shuffled(run, seed))
        ids = [[r.run_id for r in side] for side in sides]
        seen.add(canonical_json(report_json(evaluate(db, gate, *ids))))
    assert 1 == len(seen)
    numbers = json.loads(seen.pop())["predicates"][1]
    assert all(v == float(f"{v:.9g}") for v in (numbers["low"], *numbers["effects"]))


def test_hostile_names_stay_text_in_the_new_tables():
    """A check called <script> or with a pipe is no element and no cell."""
    report = some_report()
    results = tuple(replace(p, id="<script>|x") for p in report.predicates)
    text = report_markdown(replace(report, predicates=results), "0" * 64)
    assert "<script" not in text
    assert "|x |" not in text.replace("\\|x |", "")
