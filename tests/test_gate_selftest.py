"""A gate shows that it can fail: on the user's own runs, with regressions that are known."""

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from paired import DESIGN, run_of
from test_gate import gate_of

from analysis.gate import selftest
from analysis.gate.contract import Gate
from analysis.gate.selftest import (
    CAUGHT,
    FAILS_TODAY,
    FALSE_ALARM,
    MISSED,
    NOTHING,
    QUIET,
    UNDECIDED,
    self_test,
)
from collectors.run import Run
from preempt.main import main
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


def test_every_check_fails_what_was_put_in_for_it_and_nothing_else() -> None:
    """And not one of them fails a copy that is equal."""
    found = self_test(gate(), runs())
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
    found = [one for one in self_test(gate(), runs(1)) if one.injected != NOTHING]
    undecided = {(one.check, one.reasons) for one in found if one.outcome == UNDECIDED}
    assert ("queue", ("too_few_pairs",)) in undecided
    assert {"repeat", "no-erased-progress"} <= {one.check for one in found if one.outcome == CAUGHT}


def test_a_check_that_cannot_fail_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if its predicate looked at nothing."""
    nothing = selftest._Injection("nothing at all", lambda frame: frame)
    monkeypatch.setattr(selftest, "_slower", lambda _: nothing)
    found = self_test(gate(), runs())
    assert [MISSED] == [one.outcome for one in found if one.injected == "nothing at all"]


def test_a_check_that_fails_for_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a copy were slower by itself."""
    placed = selftest._placed

    def slower(run: Run, run_id: str, side: str, pair: int) -> Run:
        found = placed(run, run_id, side, pair)
        times = pl.col("ttft_us") * (2 if side == "candidate" else 1)
        return replace(found, requests=found.requests.with_columns(times))

    monkeypatch.setattr(selftest, "_placed", slower)
    same = [one for one in self_test(gate(), runs()) if one.injected == NOTHING]
    assert ["queue"] == [one.check for one in same if one.outcome == FALSE_ALARM]


def test_more_runs_than_the_gate_plans_are_refused() -> None:
    """As a verdict over them would be."""
    with pytest.raises(InputError, match="at most 6 runs"):
        self_test(gate(), runs(7))


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
