"""What a report shows and does not judge by: requests of both sides, joined by their ids."""

import io
import json
from dataclasses import replace

from paired import pairs
from rich.console import Console
from test_gate import (
    FAILURES,
    GOODPUT,
    GateReport,
    Row,
    _store,
    answer,
    candidate,
    gate_of,
    rows,
    small,
    validator,
)
from test_gate_pairs import TTFT
from test_gate_pairs import gate_of as paired_gate

from analysis.gate.advice import more_pairs
from analysis.gate.contract import Gate
from analysis.gate.described import described
from analysis.gate.markdown_report import report_markdown
from analysis.gate.terminal import print_report
from analysis.gate.verdict import report_json
from analysis.page.answer import gaps as on_page_gaps
from analysis.page.answer import more_pairs as page_more
from analysis.page.answer import outcomes as on_page
from analysis.page.answer import rollback as on_page_rollback
from collectors.run import Run
from replay.canonical import canonical_json


def whole(gate: Gate, base: Run, cand: Run) -> GateReport:
    """A report with what it describes, held to the shipped schema."""
    report = answer(gate, base, cand)
    report = replace(report, descriptive=described(_store(), gate, report))
    validator().validate(json.loads(canonical_json(report_json(report))))
    return report


def pair_of(report: GateReport) -> Row:
    """Counts of the only pair."""
    assert report.descriptive is not None
    (pair,) = report.descriptive["outcomes"]["pairs"]
    return pair


def test_outcomes_are_joined_by_request() -> None:
    """r0 got lost, r1 was found again, r2 failed twice; the others were answered on both sides."""
    lost, kept = {"status": "error"}, {"status": "ok"}
    base = small("base", rows(r0=kept, r1=lost, r2=lost))
    cand = candidate(rows(r0=lost, r1=kept, r2=lost))
    found = pair_of(whole(gate_of(FAILURES), base, cand))
    assert (5, 1, 1, 1) == tuple(
        found[f"answered_{k}"] for k in ("both", "baseline_only", "candidate_only", "neither")
    )
    assert (1, 1, 5, 1) == tuple(
        found[k] for k in ("good_to_bad", "bad_to_good", "good_both", "bad_both")
    )
    assert (8, 0, 0, 0) == tuple(
        found[k] for k in ("requests", "only_baseline", "only_candidate", "unknown")
    )


def test_good_is_as_the_gate_has_it() -> None:
    """A first token that is too late is bad, one that nobody saw is not known."""
    gate = gate_of(GOODPUT | {"slo": {"ttft_us": 100}})
    fast = {f"r{k}": {"ttft_us": 50} for k in range(8)}
    base = small("base", rows(**fast))
    cand = candidate(rows(**fast | {"r3": {"ttft_us": 200}, "r4": {"ttft_us": None}}))
    report = whole(gate, base, cand)
    found = pair_of(report)
    assert (6, 1, 0, 1) == tuple(
        found[k] for k in ("good_both", "good_to_bad", "bad_to_good", "unknown")
    )
    assert "goodput" == report.descriptive["outcomes"]["good_by"]
    assert 8 == found["answered_both"]


def test_the_slowest_are_named_and_few() -> None:
    """By how much longer they took than in their own baseline run."""
    times = {f"r{k}": {"e2e_us": 1000} for k in range(8)}
    slow = {f"r{k}": {"e2e_us": 1000 + 100 * k} for k in range(8)}
    report = whole(gate_of(FAILURES), small("base", rows(**times)), candidate(rows(**slow)))
    worst = report.descriptive["outcomes"]["worst"]
    assert [(f"r{k}", 100 * k) for k in range(7, 0, -1)] == [
        (r["request_id"], r["increase_us"]) for r in worst
    ]


def test_nothing_of_it_is_a_reason() -> None:
    """The verdict and the checks are as without it."""
    base, cand = small("base"), candidate(rows(r0={"status": "error"}))
    gate = gate_of(FAILURES)
    plain, shown = answer(gate, base, cand), whole(gate, base, cand)
    assert (plain.verdict, plain.predicates) == (shown.verdict, shown.predicates)


def test_runs_that_are_not_compared_are_not_described() -> None:
    """A refusal shows nothing of the sides."""
    report = whole(gate_of(FAILURES), small("base"), candidate(engine__version="0.1"))
    assert ("refused", None) == (report.verdict, report.descriptive)
    assert "not joined" in on_page(report)


def test_every_form_of_the_report_says_that_it_decides_nothing() -> None:
    """Markdown, terminal and page, and they have the numbers."""
    base, cand = small("base"), candidate(rows(r0={"status": "error"}))
    report = whole(gate_of(FAILURES), base, cand)
    console = Console(file=io.StringIO(), width=100)
    print_report(report, console)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    assert "by request id (descriptive, does not decide): 1 good then bad, 0 bad then good" in text
    markdown = report_markdown(report, "0" * 64)
    assert "## Requests on both sides (descriptive, does not decide)" in markdown
    assert "| 1 | 8 | 0 | 0 | 1 | 0 | 0 | 1 | 0 | 0 |" in markdown
    assert "descriptive, does not decide" in on_page(report)


def test_the_longest_gap_between_tokens_stands_beside_tpot() -> None:
    """Its p95 and its greatest per side, where a driver saw them; null is no zero."""
    even = {f"r{k}": {"tpot_us": 10_000, "largest_gap_us": 12_000} for k in range(8)}
    halting = even | {"r7": {"tpot_us": 10_000, "largest_gap_us": 900_000}}
    report = whole(gate_of(FAILURES), small("base", rows(**even)), candidate(rows(**halting)))
    base, cand = report.descriptive["token_gaps"]
    assert (8, 12_000, 12_000) == (base["known"], base["gap_p95_us"], base["gap_max_us"])
    assert (10_000, 900_000) == (cand["tpot_max_us"], cand["gap_max_us"])
    assert "| candidate | 8 | 8 | 10.0 | 10.0 |" in report_markdown(report, "0" * 64)
    assert "900.0" in on_page_gaps(report)
    silent = whole(gate_of(FAILURES), small("base"), candidate())
    assert [(0, None)] * 2 == [
        (row["known"], row["gap_max_us"]) for row in silent.descriptive["token_gaps"]
    ]
    assert "No run has gaps" in on_page_gaps(silent)


# --- what to do next ---------------------------------------------------------------------------


def test_the_page_says_how_many_more_pairs_would_decide() -> None:
    """For each check that is open: from the spread, for any verdict at all, or that none would."""
    noisy = answer(paired_gate(TTFT), *pairs([1.25, 0.8, 1.2, 0.85, 1.1, 0.9], "ttft_us"))
    needed = next(p.pairs_needed for p in noisy.predicates if p.id == "ttft") - 6
    assert [f"To decide ttft (p95), run {needed} more pairs (from the observed spread)."] == (
        more_pairs(noisy)
    )
    assert f"run {needed} more pairs" in page_more(noisy)
    few = answer(paired_gate(TTFT), *pairs([1.0]))
    assert ["For ttft (p95) to be decided at all, run 4 more pairs."] == more_pairs(few)
    at_limit = [1.0 + d for d in (0.4, -0.2, 0.35, -0.1, 0.3, -0.049)]
    never = answer(paired_gate(TTFT), *pairs(at_limit, "ttft_us"))
    assert ["Not even 1000 pairs would decide ttft (p95) at the spread seen."] == more_pairs(never)
    decided = answer(paired_gate(TTFT), *pairs([1.0] * 6))
    assert ([], "") == (more_pairs(decided), page_more(decided))


def test_the_way_back_is_shown_with_its_limits() -> None:
    """Where to, over which window, and each rule with what it watches."""
    rule = {"predicate": "failures", "max_failed_fraction": 0.2, "action": "revert"}
    way = {"to": "baseline", "window_us": 300_000_000, "when": [rule]}
    report = answer(gate_of(FAILURES, rollback=way), small("base"), candidate())
    for text in (on_page_rollback(report), report_markdown(report, "0" * 64)):
        assert "Back to the baseline, as soon as one of these holds over the newest 300 s" in text
        assert "revert" in text
    assert "max_failed_fraction 0.2" in on_page_rollback(report)
    without = answer(gate_of(FAILURES), small("base"), candidate())
    assert "no way back" in on_page_rollback(without)
    assert "The way back" not in report_markdown(without, "0" * 64)
