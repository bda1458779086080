"""Windows of live traffic: verdicts over a random split, and when there is none."""

import io
import json
from typing import Any
from xml.etree import ElementTree as ET

import polars as pl
import pytest
from live import DESIGN, FOLLOW_UP_US, SECOND, WINDOW_US, live, traffic
from rich.console import Console
from test_gate import answer, emptied, frame_schema, only, shuffled

from analysis.gate.comparability import GateRun
from analysis.gate.contract import Design, Gate
from analysis.gate.explain import explain
from analysis.gate.gate_file import parse_gate
from analysis.gate.github import annotations, outputs
from analysis.gate.junit import report_junit
from analysis.gate.markdown_report import report_markdown
from analysis.gate.predicates.effects import blocks
from analysis.gate.run import evaluate
from analysis.gate.selftest import NOTHING, self_test
from analysis.gate.terminal import print_report
from analysis.gate.verdict import GateReport, report_json
from analysis.gate.windows import cut
from analysis.page.build import report_page
from analysis.store import load_run
from benchmarks.windows import simulate
from collectors.run import Run
from replay.canonical import canonical_json
from replay.errors import InputError

TTFT: dict[str, Any] = {
    "id": "ttft",
    "kind": "regression",
    "field": "ttft_us",
    "statistic": "p50",
    "max_regression": 0.1,
}
GOODPUT: dict[str, Any] = {
    "id": "goodput",
    "kind": "goodput",
    "slo": {"ttft_us": 700_000},
    "min_fraction": 0.5,
    "max_drop": 0.06,
}
FAILURES = {"id": "failures", "kind": "failures", "max_failed_fraction": 0.05, "max_increase": 0.05}


def gate_of(*predicates: dict[str, Any], **design: Any) -> Gate:
    """A gate over windows in which nothing changed."""
    raw = {
        "schema": "preemption-gate/1",
        "name": "canary",
        "change": {"fields": []},
        "design": DESIGN | design,
        "predicate": list(predicates or (TTFT, GOODPUT, FAILURES)),
    }
    return parse_gate(raw, "g.toml")


def baseline() -> Run:
    """Twelve quiet windows, and the follow-up behind the last."""
    return live("base", traffic("base"))


def judged(candidate: Run, *predicates: dict[str, Any], **design: Any) -> GateReport:
    """The gate's report on the quiet baseline and this candidate."""
    return answer(gate_of(*predicates, **design), baseline(), candidate)


# --- verdicts --------------------------------------------------------------------------------


def test_equal_sides_pass_and_say_that_it_is_observational() -> None:
    """Every check holds, over the windows that were planned."""
    report = judged(live("cand", traffic("cand")))
    assert [] == [(p.id, p.why) for p in report.predicates if p.verdict != "pass"]
    assert ("pass", 0, True) == (report.verdict, report.exit_code, report.observational)
    assert report.sentence.startswith("pass (observational): ")
    assert "12 windows of 2 runs, at least 720 requests each" in report.sentence
    assert "an interval is of 6 blocks of 2 neighbouring windows" in report.notes
    assert any("observational" in text for text in report.limitations)


def test_a_slower_candidate_fails() -> None:
    """A third more in every window, which the interval of blocks of two shows."""
    report = judged(live("cand", traffic("cand", slower=lambda _: 1.35)))
    found = only(report, "ttft")
    assert ("fail", ("limit_exceeded",)) == (found.verdict, found.reasons)
    assert 12 == len(found.effects)
    assert 0.3 < found.low < found.estimate < found.high < 0.4
    assert "means of neighbouring windows" in found.method
    assert ("fail", 1) == (report.verdict, report.exit_code)


def test_windows_that_disagree_decide_nothing_and_say_how_many_would() -> None:
    """Slower in three of four windows: inconclusive, and how much longer to watch."""
    uneven = traffic("cand", slower=lambda k: (1.4, 1.3, 0.8, 0.9)[k % 4])
    report = judged(live("cand", uneven), TTFT)
    found = only(report, "ttft")
    assert "inconclusive" == found.verdict
    assert found.reasons[0] in ("interval_spans_limit", "estimators_disagree")
    assert report.recommendation is not None
    assert f"{found.pairs_needed - 12} more windows of 60 s" in report.recommendation


def test_neighbouring_windows_count_as_one() -> None:
    """Blocks of two at least, longer ones of more windows, and none of driven pairs."""
    design, driven = Design(kind="windows"), Design()
    values = [1.0, 3.0, 5.0, 7.0, 100.0]
    assert [2.0, 6.0] == blocks(values, design)
    assert values == blocks(values, driven)
    assert [2, 2, 2, 3, 4, 10] == [design.block(n) for n in (5, 10, 12, 20, 24, 60)]
    assert [10, 16] == [
        Design(kind="windows", looks=looks, confidence=c).least_pairs
        for looks, c in ((1, 0.9), (2, 0.98))
    ]


def test_counts_are_judged_as_ever() -> None:
    """A lost token and one preemption too many fail, whatever the mix and however few windows."""
    lost = traffic("cand", windows=2, num_preemptions=lambda n: 3 if n == 5 else 0)
    repeat = {"id": "repeat", "kind": "repeated_preemption", "max_preemptions": 2}
    report = judged(live("cand", lost, end_us=3 * WINDOW_US), repeat, TTFT)
    assert "fail" == only(report, "repeat").verdict
    assert "inconclusive" == only(report, "ttft").verdict
    assert "fail" == report.verdict


def test_what_a_window_lost_counts_against_it() -> None:
    """Every tenth request of the candidate failed: goodput drops and failures rise."""
    failed = traffic("cand", status=lambda n: "error" if n % 10 == 0 else "ok")
    report = judged(live("cand", failed))
    verdicts = {(p.id, p.statistic): p.verdict for p in report.predicates}
    assert "fail" == verdicts["failures", "failed_fraction"]
    assert "fail" == verdicts["failures", "failed_increase"]
    assert "fail" == verdicts["goodput", "good_drop"]


# --- inconclusive ----------------------------------------------------------------------------


def test_too_few_windows_decide_nothing() -> None:
    """Nine are whole: a tenth is missing its follow-up."""
    end = 10 * WINDOW_US + FOLLOW_UP_US - SECOND
    report = judged(live("cand", traffic("cand"), end_us=end), TTFT)
    found = only(report, "ttft")
    assert ("inconclusive", ("too_few_pairs",)) == (found.verdict, found.reasons)
    assert "needs 10 windows that are whole on both sides, 9 found" == found.why
    assert "leave the split as it is for 1 more window of 60 s" in (report.recommendation or "")


def test_a_run_that_never_overlaps_the_other_has_no_window() -> None:
    """A day later: nothing is compared, and nothing passes."""
    later = live("cand", traffic("cand"), start="2026-12-01T12:00:00Z")
    report = judged(later)
    assert 0 == report.pairs
    assert "inconclusive" == report.verdict
    assert {"inconclusive"} == {p.verdict for p in report.predicates if p.kind == "request_mix"}


def test_an_unknown_end_is_no_data() -> None:
    """Nobody knows which windows are whole."""
    report = judged(live("cand", traffic("cand"), drain_end_us=None), TTFT)
    assert "no_data" in only(report, "ttft").reasons


def test_a_window_with_too_few_requests_decides_nothing() -> None:
    """A median needs 40 in every window and on either side."""
    found = only(answer(gate_of(TTFT), *few(30)), "ttft")
    assert "too_few_eligible" in found.reasons
    assert "needs at least 40 eligible requests a window and side, 30 given" == found.why


def few(each: int) -> tuple[Run, Run]:
    """Both sides with so many requests a window."""
    return live("base", traffic("base", each=each)), live("cand", traffic("cand", each=each))


def test_a_share_of_requests_that_was_not_declared_is_different_work() -> None:
    """The candidate got a third less than the split gives it: shed, or not random."""
    report = judged(live("cand", traffic("cand", each=40)), TTFT)
    mix = only(report, "request-mix", "candidate_fraction")
    assert ("inconclusive", ("different_work",)) == (mix.verdict, mix.reasons)
    assert "found that the candidate got 40 % of 1200 requests, 50 % were declared (p" in mix.why
    assert "different_work" in only(report, "ttft").reasons
    declared = judged(live("cand", traffic("cand", each=40)), TTFT, candidate_fraction=0.4)
    assert "pass" == only(declared, "request-mix", "candidate_fraction").verdict


@pytest.mark.parametrize("length", ["prompt", "output"])
def test_other_lengths_are_different_work(length: str) -> None:
    """Twice as long, on one side, in one window."""
    column = {"prompt": "prompt_tokens", "output": "generated_tokens"}[length]
    longer = {column: lambda n: 500 if n // 400 == 1 else 100}
    usual = {column: lambda _: 100}
    report = answer(
        gate_of(TTFT, pairs=10),
        live("base", traffic("base", windows=10, each=400, **usual)),
        live("cand", traffic("cand", windows=10, each=400, **longer)),
    )
    mix = only(report, "request-mix", f"{length}_distance")
    assert ("inconclusive", ("different_work",)) == (mix.verdict, mix.reasons)
    assert f"found {length}_tokens in window 2 1 apart (0.15 allowed)" == mix.why
    assert (1.0, 0.0) == (mix.effects[1], mix.effects[2])
    assert ("inconclusive", ("different_work",)) == (
        only(report, "ttft").verdict,
        only(report, "ttft").reasons,
    )
    assert "random by request" in (report.recommendation or "")


def test_a_distance_that_chance_explains_is_too_few_requests() -> None:
    """60 a side are 0.36 apart once in a thousand; with 0.4 allowed they are near enough."""
    odd = traffic("cand", prompt_tokens=lambda n: 100 + 3 * (n % 60) + 1000 * (n % 60 < 12))
    mix = only(judged(live("cand", odd)), "request-mix", "prompt_distance")
    assert ("inconclusive", ("too_few_eligible",)) == (mix.verdict, mix.reasons)
    allowed = judged(live("cand", odd), max_mix_distance=0.4)
    assert "pass" == only(allowed, "request-mix", "prompt_distance").verdict


def test_an_unknown_length_is_no_data() -> None:
    """An answered request of unknown output leaves the mix unknown, and every statistic."""
    unknown = traffic("cand", generated_tokens=lambda n: 50 if n else None)
    report = judged(live("cand", unknown), TTFT)
    assert ("no_data",) == only(report, "request-mix", "output_distance").reasons
    assert ("no_data",) == only(report, "ttft").reasons


def test_a_candidate_that_answers_nobody_fails() -> None:
    """Its outputs are no different work: behind the first window, or ever, there are none."""
    for dead, mix in ((60, "pass"), (0, "inconclusive")):
        status = {"status": lambda n, d=dead: "error" if n >= d else "ok"}
        report = judged(live("cand", traffic("cand", **status)))
        assert mix == only(report, "request-mix", "output_distance").verdict
        assert "fail" == only(report, "goodput", "good_drop").verdict
        assert "fail" == only(report, "ttft").verdict
        assert "fail" == report.verdict


def test_requests_that_had_not_ended_leave_statistics_open() -> None:
    """Their row comes when they end: without it the slow ones would be left out."""
    rows = traffic("cand")
    run = live("cand", [r for r in rows if r["request_id"] != "cand-100"])
    event = dict.fromkeys(frame_schema("measured_events")) | {
        "run_id": "cand",
        "engine": 0,
        "seq": 0,
        "step": 0,
        "time_us": rows[100]["arrival_us"],
        "kind": "arrive",
        "request_id": "cand-100",
    }
    run.events.extend(pl.DataFrame([event], schema=frame_schema("measured_events")))
    found = only(judged(run, TTFT), "ttft")
    assert ("inconclusive", ("no_data",)) == (found.verdict, found.reasons)
    assert "1 request of the windows had no row yet" in found.why


def test_a_queue_that_grows_on_the_baseline_decides_nothing() -> None:
    """Over the windows that are judged, the last quarter against the second."""
    rising = traffic("base", queue_time_us=lambda n: 1000 * n)
    report = answer(gate_of(TTFT), live("base", rising), live("cand", traffic("cand")))
    assert ("saturated",) == only(report, "steady").reasons
    assert "saturated" in only(report, "ttft").reasons


# --- refused ---------------------------------------------------------------------------------


def test_other_engines_are_refused() -> None:
    """As ever: everything but the declared change has to be equal."""
    report = judged(live("cand", traffic("cand"), engine__version="0.17.1"))
    assert ("refused", 4) == (report.verdict, report.exit_code)
    assert report.sentence.startswith("refused (observational): ")


def test_runs_that_no_clock_places_are_refused() -> None:
    """A shareable run has no start: its windows are nobody's."""
    report = judged(live("cand", traffic("cand"), start=None))
    assert ("refused", ("unknown_field",)) == (report.verdict, report.reasons)
    assert "start" in report.sentence


def test_a_run_given_on_both_sides_is_refused() -> None:
    """As ever."""
    report = answer(gate_of(), baseline(), baseline())
    assert ("same_run",) == report.reasons


@pytest.mark.parametrize(
    ("key", "value", "rule"),
    [
        ("window_us", None, "is required for windows"),
        ("candidate_fraction", None, "is required for windows"),
        ("window_us", FOLLOW_UP_US, "must be above follow_up_us"),
        ("pairs", 9, "must be >= 10 windows"),
        ("candidate_fraction", 1.0, "must be above 0 and below 1"),
        ("max_mix_distance", 0, "must be above 0 and below 1"),
        ("kind", "driven", 'is for kind = "windows" only'),
    ],
)
def test_a_design_that_cannot_be_is_bad_input(key: str, value: object, rule: str) -> None:
    """With the key, the rule, and so the way out."""
    design = {k: v for k, v in (DESIGN | {key: value}).items() if v is not None}
    raw = {"schema": "preemption-gate/1", "name": "g", "change": {"fields": []}, "design": design}
    with pytest.raises(InputError, match="design") as refused:
        parse_gate(raw, "g.toml")
    assert rule in str(refused.value)


# --- how windows are cut -----------------------------------------------------------------------


def placed(*starts_and_ends: tuple[int, int]) -> list[GateRun]:
    """Runs of either side in turn that began and ended at these seconds."""
    sides = ("baseline", "candidate")
    return [
        GateRun(
            f"r{k}",
            sides[k % 2],
            k // 2,
            {"drain_end_us": (end - start) * SECOND},
            "0" * 64,
            None,
            None,
            start * SECOND,
        )
        for k, (start, end) in enumerate(starts_and_ends)
    ]


def test_windows_begin_with_the_last_run_and_end_before_the_first_ends() -> None:
    """Aligned by the clock: each run's part is counted from its own start."""
    design = Design(
        kind="windows",
        pairs=10,
        warmup_us=5 * SECOND,
        window_us=60 * SECOND,
        follow_up_us=10 * SECOND,
    )
    found = cut(placed((1000, 9000), (1100, 1315 + 60)), design)
    # From 1105 to 1365: four windows of 60 s, of which the last would end at 1345.
    assert (4, 4) == (found.whole, found.judged)
    assert [
        ("r0", 105 * SECOND, 345 * SECOND - 1),
        ("r1", 5 * SECOND, 245 * SECOND - 1),
    ] == [part for run in found.runs for part in run.parts]
    assert ("r1", 65 * SECOND, 125 * SECOND - 1) == found.units[3].parts[0]
    assert "window 2 of the candidate" == found.units[3].run_id
    long = cut(placed((0, 100_000), (0, 100_000)), design)
    assert (1666, 10) == (long.whole, long.judged)


def test_replicas_of_a_side_are_pooled() -> None:
    """Two baseline runs beside one candidate, the second a little later: one window is of both."""
    half = [r for k, r in enumerate(traffic("base")) if k % 2]
    other = [
        r | {"arrival_us": r["arrival_us"]} for k, r in enumerate(traffic("base")) if not k % 2
    ]
    base = [live("b1", half), live("b2", other, start="2026-11-30T12:00:00.000000000Z")]
    report = answer(gate_of(TTFT), base, live("cand", traffic("cand")))
    alone = answer(gate_of(TTFT), baseline(), live("cand", traffic("cand")))
    assert ("pass", "pass") == (report.verdict, alone.verdict)
    assert only(alone, "ttft").effects == only(report, "ttft").effects
    assert [("b1", "baseline"), ("cand", "candidate"), ("b2", "baseline")] == [
        (r.run_id, r.side) for r in report.runs
    ]
    assert "observational" in report_markdown(report, "0" * 64)


def test_one_side_alone_is_bad_input() -> None:
    """There is nothing to compare with."""
    with pytest.raises(InputError, match="at least one run each"):
        answer(gate_of(), [], baseline())


def test_more_windows_than_planned_are_left_alone() -> None:
    """The first so many, however often one looks: later ones change nothing."""
    slow_later = traffic("cand", windows=20, slower=lambda k: 1.0 if k < 12 else 3.0)
    end = 20 * WINDOW_US + FOLLOW_UP_US
    report = answer(
        gate_of(TTFT),
        live("base", traffic("base", windows=20), end_us=end),
        live("cand", slow_later, end_us=end),
    )
    assert "pass" == report.verdict
    assert {"whole": 20, "judged": 12} == {k: report.windows[k] for k in ("whole", "judged")}  # type: ignore[index]


# --- the report --------------------------------------------------------------------------------


@pytest.fixture(name="both")
def _both() -> tuple[GateReport, str]:
    """A failing report and its page."""
    gate, db = gate_of(), emptied()
    for run in (baseline(), live("cand", traffic("cand", slower=lambda _: 1.35))):
        load_run(db, run)
    report = evaluate(db, gate, ["base"], ["cand"])
    return report, report_page(db, gate, report, "0" * 64)


def test_every_form_says_observational_beside_the_verdict(both: tuple[GateReport, str]) -> None:
    """Terminal, Markdown, JSON, page, GitHub, JUnit, and what controllers are told."""
    report, page = both
    said = "fail (observational)"
    console = Console(width=100, record=True, file=io.StringIO())
    print_report(report, console)
    assert console.export_text().startswith(said)
    assert report_markdown(report, "0" * 64).startswith(f"# {said}: canary")
    record = report_json(report)
    assert ("fail", True) == (record["verdict"], record["observational"])
    assert record["sentence"].startswith(said)
    assert f"✕ {said}: canary</h1>" in page
    assert "effect of a window" in page
    assert "observational=true\n" in outputs(report, None)
    assert all("(observational)" in line for line in annotations(report))
    suites = ET.fromstring(report_junit(report))  # noqa: S314 - our own
    assert "canary (observational)" == suites.get("name")


def test_a_driven_report_says_nothing_of_it() -> None:
    """Its sides were offered the same requests."""
    raw = {"schema": "preemption-gate/1", "name": "g", "change": {"fields": []}}
    report = answer(parse_gate(raw, "g.toml"), baseline(), baseline())
    assert not report.observational
    assert "observational" not in report.sentence


def test_the_same_windows_are_the_same_bytes() -> None:
    """Rows shuffled, one thread or four."""
    seen = set()
    for seed, threads in ((1, 1), (2, 4)):
        db = emptied()
        db.execute(f"SET threads = {threads}")
        for run in (baseline(), live("cand", traffic("cand", slower=lambda k: 1 + k / 50))):
            load_run(db, shuffled(run, seed))
        seen.add(canonical_json(report_json(evaluate(db, gate_of(), ["base"], ["cand"]))))
    assert 1 == len(seen)
    assert "observational" in json.loads(seen.pop())


def test_explain_tells_windows_in_plain_words() -> None:
    """What is compared, how long it takes, and that it can be decided."""
    text = "\n".join(explain(gate_of()))
    assert "windows of 60 s, 12 of them, so 12 minutes" in text
    assert "50 % of all requests" in text
    assert "0.15" in text
    assert "Today this gate can be decided completely." in text
    assert "not decided" not in text


def test_a_gate_over_windows_can_fail_on_the_users_own_traffic() -> None:
    """Copies of the baseline are the candidate, half of what both are together."""
    found = self_test(gate_of(TTFT, GOODPUT, candidate_fraction=0.1), [baseline()])
    by_check = {(f.check, f.statistic, f.injected != NOTHING): f.outcome for f in found}
    assert "quiet" == by_check["ttft", "p50", False]
    assert "quiet" == by_check["request-mix", "candidate_fraction", False]
    assert "caught" == by_check["ttft", "p50", True]
    assert "caught" == by_check["goodput", "good_drop", True]


# --- how often the rule is wrong ---------------------------------------------------------------


@pytest.mark.parametrize("windows", [12, 24])
def test_correlated_windows_seldom_fool_the_interval(windows: int) -> None:
    """AR(1) of 0.4: equal sides fail in at most 1 %, an effect at the limit passes in 9 %."""
    equal = simulate(200, 1, windows, 0.4, 0.0)
    at_limit = simulate(200, 1, windows, 0.4, 1.0)
    assert 0.01 >= equal["fail"] / 200
    assert 0.09 >= at_limit["pass"] / 200
