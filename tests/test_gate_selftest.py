"""A gate shows that it can fail: on the user's own runs, with regressions that are known."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from paired import DESIGN, run_of
from test_gate import GateReport, _store, answer, emptied, gate_of, validator

from analysis.gate import liveness, selftest
from analysis.gate.contract import Gate
from analysis.gate.liveness import with_selftest
from analysis.gate.markdown_report import report_markdown
from analysis.gate.selftest import (
    CAUGHT,
    FAILS_TODAY,
    FALSE_ALARM,
    MISSED,
    NOTHING,
    QUIET,
    UNDECIDED,
    Finding,
    self_test,
)
from analysis.gate.verdict import report_json
from analysis.store import load_run
from collectors.run import Run
from preempt.main import main
from replay.canonical import canonical_json
from replay.errors import InputError

FIXTURES = Path(__file__).parents[1] / "fixtures"
EVERYTHING: tuple[dict[str, Any], ...] = (
    {"id": "repeat", "kind": "repeated_preemption", "max_preemptions": 2},
    {
        "id": "queue",
        "kind": "regression",
        "field": "ttft_us",
        "statistic": "p50",
        "max_regression": 0.1,
        "floor_us": 50_000,
    },
    {
        "id": "goodput",
        "kind": "goodput",
        "slo": {"e2e_us": 60_000_000},
        "min_fraction": 0.5,
        "max_drop": 0.05,
    },
    {
        "id": "failures",
        "kind": "failures",
        "max_failed_fraction": 0.05,
        "max_censored_fraction": 0.05,
        "max_increase": 0.02,
    },
)


def gate(*predicates: dict[str, Any]) -> Gate:
    """A gate of six pairs with these checks."""
    return gate_of(*(predicates or EVERYTHING), design={"kind": "driven", **DESIGN})


def runs(count: int = 6) -> list[Run]:
    """Steady baseline runs of one engine."""
    return [run_of(f"b{k}", "baseline", k) for k in range(count)]


def findings_of(gate: Gate, baseline: list[Run]) -> list[Finding]:
    """Findings over runs in a store of their own."""
    db = emptied()
    for run in baseline:
        load_run(db, run)
    return self_test(db, gate, [run.run_id for run in baseline])


def _unseen(frame: pl.DataFrame) -> pl.DataFrame:
    """A change that no check looks at."""
    return frame.with_columns(pl.col("cached_tokens").fill_null(0) + 1)


def test_every_check_fails_what_was_put_in_for_it_and_nothing_else() -> None:
    """And not one of them fails a copy that is equal."""
    found = findings_of(gate(), runs())
    same = [one for one in found if one.injected == NOTHING]
    assert {QUIET} == {one.outcome for one in same}
    put_in = [one for one in found if one.injected != NOTHING]
    assert {"no-erased-progress", "repeat", "queue", "goodput", "failures"} == {
        one.check for one in put_in
    }
    caught = Counter((one.check, one.injected) for one in put_in if one.outcome == CAUGHT)
    meant = {(one.check, one.injected) for one in put_in}
    assert meant == set(caught)


def test_data_that_cannot_decide_says_so() -> None:
    """One run has no pairs to compare; what is counted is caught all the same."""
    found = [one for one in findings_of(gate(), runs(1)) if one.injected != NOTHING]
    undecided = {(one.check, one.reasons) for one in found if one.outcome == UNDECIDED}
    assert ("queue", ("too_few_pairs",)) in undecided
    assert {"repeat", "no-erased-progress"} <= {one.check for one in found if one.outcome == CAUGHT}


def test_a_check_that_cannot_fail_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if its predicate looked at nothing."""
    nothing = selftest._Injection("nothing at all", _unseen)
    monkeypatch.setattr(selftest, "_slower", lambda _: nothing)
    found = findings_of(gate(), runs())
    assert [MISSED] == [one.outcome for one in found if one.injected == "nothing at all"]


def test_what_can_be_put_into_no_request_is_no_miss() -> None:
    """Nobody was answered: a lost token has nowhere to be lost."""
    failed = [run_of("b0", "baseline", 0, [pl.lit("error").alias("status")])]
    found = [f for f in findings_of(gate(), failed) if f.injected != NOTHING]
    assert MISSED not in {f.outcome for f in found}
    lost = next(f for f in found if f.check == "no-erased-progress")
    assert (UNDECIDED, ("no_data",)) == (lost.outcome, lost.reasons)


def test_a_regression_goes_into_the_slice_that_is_judged() -> None:
    """Every fifth request is of the slice, and few of them are good: they are the ones to lose."""
    fifth = (pl.int_range(pl.len()) % 5 != 3).cast(pl.Int64).alias("priority")
    slow = [pl.col("ttft_us") + 1_000_000 * (pl.int_range(pl.len()) % 3 > 0).cast(pl.Int64)]
    goodput = {"id": "goodput", "kind": "goodput", "slice": "first", "max_drop": 0.1}
    judging = gate_of(
        goodput | {"slo": {"ttft_us": 900_000}},
        design={"kind": "driven", **DESIGN},
        slices={"first": {"where": {"priority": {"max": 0}}, "min_eligible": 5}},
    )
    baseline = [run_of(f"b{k}", "baseline", k, [fifth], slow) for k in range(6)]
    found = [f for f in findings_of(judging, baseline) if f.check == "goodput"]
    assert [QUIET, CAUGHT] == [f.outcome for f in found]


def test_a_check_that_fails_for_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a copy were slower by itself."""
    filled = selftest._filled

    def slower(*stores: Any) -> Any:
        found = filled(*stores)
        return replace(found, requests=found.requests.with_columns(pl.col("ttft_us") * 2))

    monkeypatch.setattr(selftest, "_filled", slower)
    same = [one for one in findings_of(gate(), runs()) if one.injected == NOTHING]
    assert ["queue"] == [one.check for one in same if one.outcome == FALSE_ALARM]


def test_more_runs_than_the_gate_plans_are_refused() -> None:
    """As a verdict over them would be."""
    with pytest.raises(InputError, match="at most 6 runs"):
        findings_of(gate(), runs(7))


def test_the_command_ends_with_what_was_found(capsys: pytest.CaptureFixture[str]) -> None:
    """On the recorded run and the gate of the fixtures: one pair decides what is counted."""
    words = ["gate", "selftest", str(FIXTURES / "gates" / "blocks-48-to-80.toml")]
    words += ["--baseline", str(FIXTURES / "runs" / "base-1")]
    with pytest.raises(SystemExit) as ended:
        main([*words, "--json"])
    shown = json.loads(capsys.readouterr().out)
    assert 3 == ended.value.code == shown["exit_code"]
    outcomes = {(f["check"], f["outcome"]) for f in shown["findings"] if f["injected"] != NOTHING}
    assert {("repeat", CAUGHT), ("queue", UNDECIDED)} <= outcomes
    today = [f["check"] for f in shown["findings"] if f["outcome"] == FAILS_TODAY]
    assert [
        "repeat"
    ] == today  # a request of that run was preempted more often than the gate allows
    with pytest.raises(SystemExit):
        main(words)
    assert "or fail the runs of today" in capsys.readouterr().err


# --- before a verdict --------------------------------------------------------------------------


def told(number: int = 6, *, skip: bool = False) -> GateReport:
    """The report over equal pairs with what a selftest found, held to the shipped schema."""
    report = answer(gate(), runs(number), [run_of(f"c{k}", "candidate", k) for k in range(number)])
    found = with_selftest(_store(), gate(), report, skip=skip)
    validator().validate(json.loads(canonical_json(report_json(found))))
    return found


def test_a_verdict_says_what_its_gate_can_catch() -> None:
    """In one line; nothing is missing, so the checks are as they were."""
    report = told()
    assert report.selftest is not None
    assert "caught 8 of 8 regressions put into copies of the baseline" == report.selftest["line"]
    assert "selftest" not in {p.id for p in report.predicates}
    assert "selftest: caught 8 of 8" in report_markdown(report, "0" * 64)


def test_what_it_cannot_tell_is_named() -> None:
    """One pair decides no statistic."""
    line = (told(1).selftest or {})["line"]
    assert "cannot tell: queue (p50, too_few_pairs), goodput (good_fraction, too_few_pairs)" in line


def test_a_check_that_misses_its_regression_takes_the_verdict(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A pass of a check that cannot fail is none."""
    nothing = selftest._Injection("nothing at all", _unseen)
    monkeypatch.setattr(selftest, "_slower", lambda _: nothing)
    report = told()
    assert ("inconclusive", ("selftest_missed",)) == (report.verdict, report.reasons)
    assert report.sentence.startswith("inconclusive: selftest found that queue (p50) missed")
    assert "MISSED: queue (p50)" in (report.selftest or {})["line"]


def test_what_was_not_run_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    """Skipped, too large, or refused."""
    assert {"ran": False, "line": "was not run (--no-selftest)", "findings": []} == told(
        1, skip=True
    ).selftest
    monkeypatch.setattr(liveness, "MOST_ROWS", 100)
    assert "more than 100; preempt gate selftest takes them" in (told(1).selftest or {})["line"]
    refused = answer(gate(), runs(1), runs(1))
    found = with_selftest(_store(), gate(), refused, skip=False)
    assert "was not run: the runs are not compared" == (found.selftest or {})["line"]


def test_the_command_runs_it_unless_told_not_to(capsys: pytest.CaptureFixture[str]) -> None:
    """By default; both ways say so."""
    words = ["gate", "run", str(FIXTURES / "gates" / "blocks-48-to-80.toml"), "--json"]
    for side, name in (("baseline", "base-1"), ("candidate", "cand-80")):
        words += [f"--{side}", str(FIXTURES / "runs" / name)]
    ran = []
    for more in ([], ["--no-selftest"]):
        with pytest.raises(SystemExit):
            main([*words, *more])
        ran.append(json.loads(capsys.readouterr().out)["selftest"]["ran"])
    assert [True, False] == ran
