"""Gate files: the documented example is read whole, everything malformed is refused by its key."""

import copy
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from analysis.gate.contract import CHANGEABLE, HARD_FIELDS, Condition, RollbackRule
from analysis.gate.explain import explain
from analysis.gate.gate_file import parse_gate, read_gate
from collectors.columns import MEASURED_REQUESTS
from replay.errors import InputError

DEMO = Path(__file__).parents[1] / "fixtures" / "gates" / "blocks-48-to-80.toml"
EXAMPLE = """
schema = "preemption-gate/1"
name = "max-num-seqs-64"
[change]
fields = ["scheduler.max_num_seqs"]
[design]
kind = "driven"
pairs = 6
looks = 1
arrival_seeds = 6
order = "ABBA"
warmup_us = 10_000_000
follow_up_us = 30_000_000
confidence = 0.90
[evidence]
modelled = "required"
noise_profile = "optional"
[slices.interactive]
where = { priority = { max = 0 }, prompt_tokens = { max = 2048 } }
min_eligible = 400
[[predicate]]
id = "no-erased-progress"
kind = "erased_progress"
[[predicate]]
id = "repeat"
kind = "repeated_preemption"
max_preemptions = 2
[[predicate]]
id = "queue"
kind = "regression"
field = "queue_time_us"
statistic = "p95"
slice = "interactive"
max_regression = 0.10
floor_us = 50_000
[[predicate]]
id = "goodput"
kind = "goodput"
slice = "interactive"
slo = { ttft_us = 200_000, tpot_us = 25_000 }
min_fraction = 0.95
max_drop = 0.02
[[predicate]]
id = "failures"
kind = "failures"
max_failed_fraction = 0.001
max_censored_fraction = 0.01
max_increase = 0.0005
[boundary]
rates = ["arrival", "prefill_tokens_per_tick", "transfer_bytes_per_tick"]
steps = [0.95, 1.05]
measured = false
[rollback]
to = "baseline"
window_us = 300_000_000
[[rollback.when]]
predicate = "queue"
max_regression = 0.10
action = "revert"
"""
MISSING = object()


def example() -> dict[str, Any]:
    """Tables of the documented example, to change."""
    return copy.deepcopy(tomllib.loads(EXAMPLE))


def changed(path: str, value: Any) -> dict[str, Any]:
    """The example with one dotted key set, or taken away."""
    raw: Any = (root := example())
    *way, last = [int(p) if p.isdigit() else p for p in path.split(".")]
    for key in way:
        raw = raw[key]
    if value is MISSING:
        del raw[last]
    else:
        raw[last] = value
    return root


def refused(raw: dict[str, Any]) -> str:
    """The one-line message that refuses these tables."""
    with pytest.raises(InputError) as caught:
        parse_gate(raw, "g.toml")
    message = str(caught.value)
    assert message.startswith("g.toml: ")
    assert "\n" not in message
    return message


def test_the_documented_example_is_read_whole():
    """Every table of the specification's example arrives in the gate."""
    gate = parse_gate(example(), "g.toml")
    kinds = ["erased_progress", "repeated_preemption", "regression", "goodput", "failures"]
    assert kinds == [p.kind for p in gate.predicates]
    assert ("scheduler.max_num_seqs",) == gate.change_fields
    assert (6, 6, 30_000_000, 0.9) == (
        gate.design.pairs,
        gate.design.arrival_seeds,
        gate.design.follow_up_us,
        gate.design.confidence,
    )
    assert ("required", "optional") == (gate.evidence.modelled, gate.evidence.noise_profile)
    (part,) = gate.slices
    assert (Condition("priority", max=0), Condition("prompt_tokens", max=2048)) == part.where
    assert (("tpot_us", 25_000), ("ttft_us", 200_000)) == gate.predicate("goodput").slo
    assert gate.boundary is not None
    assert (0.95, 1.05) == gate.boundary.steps
    assert gate.rollback is not None
    assert (RollbackRule("queue", "revert", (("max_regression", 0.1),)),) == gate.rollback.when


def test_defaults_of_a_gate_that_says_almost_nothing():
    """A schema, a name and a change make a gate; erased progress is judged all the same."""
    gate = parse_gate(
        {"schema": "preemption-gate/1", "name": "g", "change": {"fields": []}}, "g.toml"
    )
    assert ["erased_progress"] == [p.kind for p in gate.predicates]
    assert (6, 1, "ABBA", 0.9) == (
        gate.design.pairs,
        gate.design.looks,
        gate.design.order,
        gate.design.confidence,
    )


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        ("schema", "preemption-gate/2", "must be preemption-gate/1, got preemption-gate/2"),
        ("schema", MISSING, "schema must be preemption-gate/1"),
        ("name", MISSING, "name is required"),
        ("name", "a\nb", "no control character"),
        ("nmae", "x", "did you mean name?"),
        ("change", MISSING, "change is required"),
        ("change", {}, "change.fields is required"),
        ("change.feilds", [], "did you mean fields?"),
        ("change.fields", "scheduler.max_num_seqs", "must be a list"),
        ("change.fields", ["scheduler.max_num_seq"], "did you mean scheduler.max_num_seqs?"),
        ("change.fields", ["cache.capacity_blocks"], "unknown key cache.capacity_blocks"),
        ("change.fields", ["scheduler.watermark"] * 2, "must not repeat"),
        ("change.fields", [3], "must be a string, got 3"),
        ("design.pair", 6, "did you mean pairs?"),
        ("design.kind", "live", "must be one of driven, windows"),
        ("design.pairs", 0, "must be >= 1"),
        ("design.pairs", 6.0, "must be an integer"),
        ("design.pairs", True, "must be an integer"),
        ("design.pairs", 10**6, "must be <= 1000"),
        ("design.looks", 3, "must be <= 2"),
        ("design.arrival_seeds", 7, "must be <= 6, the planned pairs"),
        ("design.order", "AABB", "must be one of ABBA"),
        ("design.warmup_us", -1, "must be >= 0"),
        ("design.confidence", 0.5, "must be >= 0.8"),
        ("design.confidence", 1, "must be above 0 and below 1"),
        ("design.confidence", float("nan"), "must be finite"),
        ("evidence.modelled", "maybe", "must be one of required, optional, off"),
        ("evidence.model", "off", "did you mean modelled?"),
        ("slices.interactive.where", {}, "at least one workload column"),
        ("slices.interactive.where", MISSING, "must be a table"),
        ("slices.interactive.where.priority", {}, "must set min or max"),
        ("slices.interactive.where.priority", {"max": 0.5}, "must be an integer"),
        ("slices.interactive.where.priority", {"min": 2, "max": 1}, "must be <= max = 1"),
        ("slices.interactive.where.priority", {"maximum": 1}, "did you mean max?"),
        ("slices.interactive.where.tenant", {"any_of": []}, "must have 1 to"),
        ("slices.interactive.where.tenant", {"max": 1}, "known: any_of"),
        ("slices.interactive.min_eligible", 0, "must be >= 1"),
        ("slices.interactive.min_elegible", 1, "did you mean min_eligible?"),
        ("predicate", {}, "must be a list"),
        ("predicate.0", 7, "must be a table"),
        ("predicate.0.kind", MISSING, "kind is required"),
        ("predicate.0.kind", "erased", "must be one of erased_progress"),
        ("predicate.0.max_lost", 1, "is always judged in full"),
        ("predicate.1.id", "queue", "predicate[2].id must be unique"),
        ("predicate.1.id", "boundary", "the gate's own check"),
        ("predicate.1.id", MISSING, "predicate[1].id is required"),
        ("predicate.1.max_preemption", 1, "did you mean max_preemptions?"),
        ("predicate.1.max_preemptions", -1, "must be >= 0"),
        ("predicate.1.max_preemptions", MISSING, "max_preemptions is required"),
        ("predicate.2.field", "status", "must be one of queue_time_us"),
        ("predicate.2.field", MISSING, "field is required"),
        ("predicate.2.statistic", "p96", "must be one of mean, p50"),
        ("predicate.2.slice", "interactiv", "must name a slice of this gate (interactive)"),
        ("predicate.2.max_regression", -0.1, "must be from 0 to 10"),
        ("predicate.2.max_regression", "10%", "must be a number"),
        ("predicate.2.floor_us", 0.5, "must be an integer"),
        ("predicate.3.slo", {}, "at least one objective"),
        ("predicate.3.slo.ttft_ms", 200, "did you mean ttft_us?"),
        ("predicate.3.slo.ttft_us", 0, "must be >= 1"),
        ("predicate.3.min_fraction", 1.0, "must be above 0 and below 1"),
        ("predicate.4.max_failed_fraction", 0, "must be above 0 and below 1"),
        ("predicate.4.max_failed_fraction", False, "must be a number"),
        ("boundary.rates", [], "must have 1 to"),
        ("boundary.rates", ["decode"], "must be one of arrival"),
        ("boundary.rates", MISSING, "boundary.rates is required"),
        ("boundary.steps", [1.0], "must be a multiplier"),
        ("boundary.steps", [0.95, 0.95], "not twice the same"),
        ("boundary.measured", "no", "must be true or false"),
        ("rollback.to", "yesterday", "must be baseline or a configuration's SHA-256"),
        ("rollback.window_us", MISSING, "rollback.window_us is required"),
        ("rollback.when", [], "must have 1 to"),
        ("rollback.when.0.predicate", "que", "must be the id of a predicate of this gate"),
        ("rollback.when.0.action", "page", "must be one of revert"),
        ("rollback.when.0.max_preemptions", 1, "unknown key max_preemptions"),
        ("rollback.when.0.max_regression", MISSING, "must set max_regression"),
    ],
)
def test_what_is_malformed_is_refused_by_its_key(path: str, value: Any, words: str):
    """One changed key gives one line that names it and the rule."""
    assert words in refused(changed(path, value))


@pytest.mark.parametrize("name", HARD_FIELDS)
def test_a_hard_field_can_never_be_the_change(name: str):
    """Engine, model, device and layout are refused by their names."""
    assert f"must not name {name}" in refused(changed("change.fields", [name]))


@pytest.mark.parametrize("name", CHANGEABLE)
def test_every_scheduler_option_and_the_block_count_can_be_the_change(name: str):
    """What a rollout may change is accepted."""
    assert (name,) == parse_gate(changed("change.fields", [name]), "g").change_fields


@pytest.mark.parametrize(
    "column",
    sorted(
        set(MEASURED_REQUESTS)
        - {"priority", "prompt_tokens", "max_tokens", "tenant", "arrival_us", "run_id"}
    ),
)
def test_no_outcome_column_can_choose_who_is_judged(column: str):
    """A slice over anything the engine did, or over nothing known, is refused."""
    raw = changed(f"slices.interactive.where.{column}", {"max": 1})
    assert "must use workload columns only" in refused(raw)


def test_the_two_names_of_one_column_do_not_meet_in_a_slice():
    """output_tokens and max_tokens are the same column, so one would be lost."""
    where = {"output_tokens": {"max": 5}, "max_tokens": {"min": 1}}
    assert "the same column" in refused(changed("slices.interactive.where", where))


def test_erased_progress_is_judged_even_if_the_file_leaves_it_out():
    """It is put first, and its name cannot be taken by something weaker."""
    raw = example()
    del raw["predicate"][0]
    assert "no-erased-progress" == parse_gate(raw, "g").predicates[0].id
    raw["predicate"][0]["id"] = "no-erased-progress"
    assert "the gate's own check" in refused(raw)


def test_erased_progress_is_not_judged_twice():
    """Two of the kind would be two answers to one question."""
    raw = example()
    raw["predicate"].append({"id": "again", "kind": "erased_progress"})
    assert "must hold erased_progress once" in refused(raw)


def test_at_most_eight_statistical_predicates():
    """Every further one is another chance of a false alarm."""
    raw = example()
    queue = raw["predicate"][2]
    raw["predicate"] += [queue | {"id": f"queue-{k}"} for k in range(5)]
    assert 8 == sum(p.statistical for p in parse_gate(raw, "g").predicates)
    raw["predicate"].append(queue | {"id": "one-more"})
    assert "at most 8 statistical predicates, got 9" in refused(raw)


def test_a_limit_of_no_kind_is_refused():
    """A predicate without a limit would hold always."""
    raw = example()
    raw["predicate"][4] = {"id": "failures", "kind": "failures"}
    assert "must set max_failed_fraction or" in refused(raw)


def test_the_hash_is_of_what_the_gate_says():
    """Layout, comments and spelled-out defaults do not count; a limit does."""
    gate = parse_gate(example(), "g").sha256
    assert gate == parse_gate(tomllib.loads("# note\n" + EXAMPLE), "elsewhere").sha256
    assert gate == parse_gate(changed("design.order", MISSING), "g").sha256
    assert gate == parse_gate(changed("predicate.2.max_regression", 0.1), "g").sha256
    assert gate != parse_gate(changed("predicate.2.max_regression", 0.11), "g").sha256


def test_a_message_shows_no_value_of_a_text_field():
    """What someone pasted into a gate is described and not repeated."""
    message = refused(changed("predicate.2.slice", "hunter2"))
    assert "hunter2" not in message
    assert "a string of 7 code points" in message


JUNK = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(max_size=5),
    st.lists(st.integers(), max_size=2),
    st.dictionaries(st.text(max_size=5), st.integers(), max_size=2),
)
PATHS = sorted(
    {
        f"{table}.{key}" if table else key
        for table, value in [("", tomllib.loads(EXAMPLE))]
        for key in value
    }
    | {f"design.{k}" for k in tomllib.loads(EXAMPLE)["design"]}
    | {f"predicate.{n}.{k}" for n, p in enumerate(example()["predicate"]) for k in p}
    | {"change.fields", "slices.interactive", "slices.interactive.where", "boundary.steps"}
    | {f"rollback.{k}" for k in ("to", "window_us", "when")}
)


@given(st.sampled_from(PATHS), JUNK)
def test_junk_anywhere_is_an_input_error_or_a_gate(path: str, junk: Any):
    """No value in any place makes anything but a gate or one line of refusal."""
    try:
        outcome = parse_gate(changed(path, junk), "g.toml").sha256
    except InputError as exc:
        outcome = str(exc)
    assert len(outcome) >= 20
    assert "\n" not in outcome


def test_the_demo_gate_can_be_read_and_explained():
    """It names the change, how each check is decided, and the pairs it takes."""
    text = "\n".join(explain(read_gate(DEMO)))
    assert "Changes: cache.num_gpu_blocks." in text
    assert "repeat (deterministic): no candidate request is preempted more than 2 times." in text
    assert "queue (over pairs): p95 of queue_time_us" in text
    assert "6 pairs of runs planned (12 runs)" in text
    assert "at least 150 in every candidate run" in text
    assert "Today this gate can be decided completely." in text
    later = example() | {"evidence": {"noise_profile": "required"}}
    assert "can fail or refuse, but not pass" in "\n".join(explain(parse_gate(later, "g")))


def test_explain_says_when_a_gate_can_be_decided_today():
    """Only deterministic predicates: nothing is left open."""
    raw = example()
    raw["predicate"] = raw["predicate"][:2]
    del raw["boundary"], raw["rollback"]
    assert "Today this gate can be decided completely." in explain(parse_gate(raw, "g"))


def test_explain_warns_of_a_plan_that_never_decides():
    """Four pairs leave every statistical predicate undecided for good."""
    raw = changed("design", {"pairs": 4})
    text = "\n".join(explain(parse_gate(raw, "g")))
    assert "With 4 planned pairs statistics decide nothing: they need 5." in text
    assert "decides nothing; equal sides: 5 pairs" in text
    assert "With design.follow_up_us at 0 no latency is decided" in text


def test_explain_says_what_the_planned_pairs_could_decide():
    """A line for each of a few spreads: where an estimate passes or fails, and pairs of equals."""
    text = "\n".join(explain(parse_gate(example(), "g")))
    assert "queue (p95), at least 400 eligible requests a run:" in text
    assert "    spread 1 %: passes below +9.1 %, fails from +10.9 %; equal sides: 5 pairs" in text
    assert "    spread 30 %: passes below -14.1 %, fails from +40.8 %; equal sides: 31" in text
    assert "    spread 10 %: never passes, fails below 86.8 %; all good: 14 pairs" in text


@pytest.mark.parametrize(
    ("confidence", "looks", "pairs"), [(0.8, 1, 5), (0.9, 1, 5), (0.9, 2, 6), (0.99, 1, 8)]
)
def test_more_confidence_takes_more_pairs_at_least(confidence: float, looks: int, pairs: int):
    """So many that the exact signed rank can exclude anything; a second look halves the error."""
    raw = changed("design", {"confidence": confidence, "looks": looks, "pairs": 10})
    assert pairs == parse_gate(raw, "g").design.least_pairs
