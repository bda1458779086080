"""A gate with a rollback passes only where the way back is laid down for all it promises."""

from typing import Any

import polars as pl
import pytest
from paired import DESIGN, pairs
from test_gate import answer, gate_of, only, validator

from analysis.gate.contract import Gate
from analysis.gate.verdict import report_json

TTFT = {
    "id": "ttft",
    "kind": "regression",
    "field": "ttft_us",
    "statistic": "p50",
    "max_regression": 0.2,
}
GOODPUT = {"id": "goodput", "kind": "goodput", "slo": {"e2e_us": 60_000_000}, "min_fraction": 0.1}
REPEAT = {"id": "repeat", "kind": "repeated_preemption", "max_preemptions": 2}
RULES = {
    "ttft": {"predicate": "ttft", "max_regression": 0.1, "action": "revert"},
    "goodput": {"predicate": "goodput", "min_fraction": 0.05, "action": "revert"},
}


def gate(*predicates: dict[str, Any], rules: str = "ttft goodput", to: str = "baseline") -> Gate:
    """A gate of six pairs that goes back by these rules."""
    rollback = {"to": to, "window_us": 300_000_000, "when": [RULES[r] for r in rules.split()]}
    return gate_of(*predicates, design={"kind": "driven", **DESIGN}, rollback=rollback)


def judged(gate: Gate, **changed: Any) -> Any:
    """The check's result over six equal pairs."""
    report = answer(gate, *pairs([1.0] * 6, **changed))
    validator().validate(report_json(report))
    return only(report, "rollback-defined")


def test_a_rule_for_every_promise_over_latencies_is_enough() -> None:
    """What is counted needs none: it is looked at request by request."""
    found = judged(gate(TTFT, GOODPUT, REPEAT))
    assert ("pass", ()) == (found.verdict, found.reasons)


@pytest.mark.parametrize(("rules", "lacking"), [("ttft", "goodput"), ("goodput", "ttft")])
def test_a_promise_that_nothing_watches_fails(rules: str, lacking: str) -> None:
    """By its name."""
    found = judged(gate(TTFT, GOODPUT, rules=rules))
    assert ("fail", ("rollback_undefined",)) == (found.verdict, found.reasons)
    assert f"lacks: no rule watches {lacking}" == found.why


def test_a_field_that_a_live_engine_does_not_show_fails() -> None:
    """Waiting after a preemption is in no metric of vLLM."""
    found = judged(gate(TTFT | {"field": "requeue_time_us"}, GOODPUT))
    assert "lacks: no metric of a live engine is requeue_time_us" == found.why


def test_a_field_that_one_side_never_recorded_fails() -> None:
    """The runs without it are named."""
    nothing = [pl.lit(None, pl.Int64).alias("ttft_us")]
    found = judged(gate(TTFT, GOODPUT), columns=nothing)
    assert "ttft_us is unknown in c0, c1, c2, c3, c4, c5" in found.why


def test_a_way_back_to_a_configuration_that_nobody_knows_fails() -> None:
    """One that a run of the store had is known."""
    to = "a" * 64
    assert to in judged(gate(TTFT, GOODPUT, to=to)).why
    known = judged(gate(TTFT, GOODPUT, to=to), configuration_sha256=to)
    assert "pass" == known.verdict


def test_a_gate_without_rollback_is_not_asked_for_one() -> None:
    """The table is the gate's own choice."""
    report = answer(gate_of(TTFT, design={"kind": "driven", **DESIGN}), *pairs([1.0] * 6))
    assert "rollback-defined" not in {p.id for p in report.predicates}
