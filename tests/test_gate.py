"""The gate's verdicts: every way to pass, to fail, not to know and to refuse is made to happen."""

import itertools
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import duckdb
import jsonschema
import polars as pl
import pytest
from stored import metrics_only

from analysis.gate.boundary.scan import Replayer
from analysis.gate.comparability import FIELDS, GateRun, compare, same
from analysis.gate.contract import CHANGEABLE, Gate
from analysis.gate.evidence import by_run
from analysis.gate.evidence import rows as query
from analysis.gate.explain import explain
from analysis.gate.gate_file import parse_gate, read_gate
from analysis.gate.judge import judge
from analysis.gate.markdown_report import report_markdown
from analysis.gate.pairing import place_runs
from analysis.gate.predicates.erased_progress import LedgerCheck, judge_ledgers
from analysis.gate.reasons import REASONS
from analysis.gate.run import evaluate
from analysis.gate.verdict import EXIT_CODES, GateReport, overall, report_json
from analysis.store import connect, load_gate_report, load_path, load_run
from collectors.run import Run, frame_schema, read_run
from replay.canonical import canonical_json, sha256
from replay.config import Config, read_config
from replay.errors import InputError
from replay.events import COLUMN
from replay.ledger import Ledger
from replay.run import replay
from replay.workload import Request, Workload

ROOT = Path(__file__).parents[1]
RUNS = ROOT / "fixtures" / "runs"
DEMO = ROOT / "fixtures" / "gates" / "blocks-48-to-80.toml"
SCHEMA = ROOT / "analysis" / "schemas" / "gate-report.schema.json"
REQUESTS = 8
Row = dict[str, Any]


@cache
def recorded(name: str) -> Run:
    """A recorded run without its steps, which no gate reads."""
    run = read_run(RUNS / name)
    return replace(run, steps=run.steps.clear())


def edited(manifest: Any, changes: dict[str, Any]) -> dict[str, Any]:
    """A copy of a manifest with dotted fields set."""
    copy: dict[str, Any] = json.loads(json.dumps(manifest))
    for dotted, value in changes.items():
        *way, last = dotted.split(".")
        inner = copy
        for key in way:
            inner = inner[key]
        inner[last] = value
    return copy


def request_row(number: int, **changes: Any) -> Row:
    """One request that was answered in full and never preempted."""
    row = dict.fromkeys(frame_schema("measured_requests"))
    return (
        row
        | {
            "engine": 0,
            "request_id": f"r{number}",
            "arrival_us": 1000 * number,
            "prompt_tokens": 10,
            "generated_tokens": 5,
            "max_tokens": 5,
            "priority": number % 2,
            "status": "ok",
            "num_preemptions": 0,
        }
        | changes
    )


def event_rows(requests: Sequence[Row]) -> list[Row]:
    """The events that make each request's numbers true."""
    rows: list[Row] = []
    for r in requests:
        if r["status"] in ("unsent", "rejected"):
            continue
        kinds = ["arrive", "admit", *["preempt", "resume"] * (r["num_preemptions"] or 0)]
        kinds += ["finish"] * (r["status"] == "ok")
        preemptions = 0
        for kind in kinds:
            row = dict.fromkeys(frame_schema("measured_events"))
            row |= {"engine": 0, "kind": kind, "request_id": r["request_id"]}
            row |= {"seq": len(rows), "step": len(rows), "time_us": len(rows)}
            if kind == "preempt":
                preemptions += 1
                row |= {"generated_tokens": preemptions, "num_preemptions": preemptions}
            elif kind == "finish":
                row["generated_tokens"] = r["generated_tokens"]
                row["num_preemptions"] = preemptions
            rows.append(row)
    return rows


def rows(**by_number: Row) -> list[Row]:
    """The default requests, each keyword changes the one of its name."""
    return [request_row(k, **by_number.get(f"r{k}", {})) for k in range(REQUESTS)]


def frame(table: str, found: Sequence[Row], run_id: str) -> pl.DataFrame:
    """Rows as the run's reader would give them."""
    return pl.DataFrame([r | {"run_id": run_id} for r in found], schema=frame_schema(table))


def small(
    run_id: str,
    requests: Sequence[Row] | None = None,
    events: Sequence[Row] | None = None,
    **changes: Any,
) -> Run:
    """A small run; keywords set manifest fields, with __ for dots."""
    requests = rows() if requests is None else requests
    base = recorded("base-1")
    manifest = edited(
        base.manifest,
        {
            "run_id": run_id,
            "workload.requests": len(requests),
            "workload.workload_sha256": "a" * 64,
            "drain_end_us": 7500,
            **dict.fromkeys(("comparison.side", "comparison.pair", "comparison.order")),
            **{k.replace("__", "."): v for k, v in changes.items()},
        },
    )
    return Run(
        path=Path(run_id),
        run_id=run_id,
        manifest=manifest,
        offered=None,
        requests=frame("measured_requests", requests, run_id),
        events=frame("measured_events", event_rows(requests) if events is None else events, run_id),
        steps=pl.DataFrame(schema=frame_schema("measured_steps")),
        samples=pl.DataFrame(schema=frame_schema("metric_samples")),
        not_finite={},
    )


def candidate(
    requests: Sequence[Row] | None = None, events: Sequence[Row] | None = None, **changes: Any
) -> Run:
    """The small candidate, with 80 blocks unless it says otherwise."""
    blocks: dict[str, Any] = {"cache__num_gpu_blocks": 80, "cache__capacity_blocks": 79}
    return small("cand", requests, events, **(blocks | changes))


def gate_of(*predicates: Row, **tables: Any) -> Gate:
    """A gate of the block count with these predicates."""
    raw = {
        "schema": "preemption-gate/1",
        "name": "g",
        "change": {"fields": ["cache.num_gpu_blocks"]},
        "predicate": list(predicates),
    }
    return parse_gate(raw | tables, "g.toml")


REPEAT = {"id": "repeat", "kind": "repeated_preemption", "max_preemptions": 2}
FAILURES = {
    "id": "failures",
    "kind": "failures",
    "max_failed_fraction": 0.4,
    "max_censored_fraction": 0.4,
}
QUEUE = {
    "id": "queue",
    "kind": "regression",
    "field": "queue_time_us",
    "statistic": "p95",
    "max_regression": 0.1,
}
GOODPUT = {"id": "goodput", "kind": "goodput", "slo": {"ttft_us": 1}, "min_fraction": 0.9}
DETERMINISTIC = gate_of(REPEAT, FAILURES)


def answer(
    gate: Gate,
    baseline: Run | Sequence[Run],
    cand: Run | Sequence[Run],
    ledgers: Sequence[Ledger] = (),
    replayer: Replayer | None = None,
    other_rates: tuple[Sequence[Run], Sequence[Run]] = ((), ()),
) -> GateReport:
    """The gate's report over runs loaded in memory; also held to the shipped schema."""
    sides = [[side] if isinstance(side, Run) else list(side) for side in (baseline, cand)]
    db = emptied()
    for run in {r.run_id: r for side in (*sides, *other_rates) for r in side}.values():
        load_run(db, run, workloads=False)
    base_ids, cand_ids = ([r.run_id for r in side] for side in sides)
    base_others, cand_others = ([r.run_id for r in side] for side in other_rates)
    report = evaluate(db, gate, base_ids, cand_ids, ledgers, replayer, (base_others, cand_others))
    record = json.loads(canonical_json(report_json(report)))
    validator().validate(record)
    assert load_gate_report(db, record)
    return report


@cache
def _store() -> duckdb.DuckDBPyConnection:
    return connect(None)


def emptied() -> duckdb.DuckDBPyConnection:
    """A store in memory without rows; one per process, because making the tables takes longest."""
    db = _store()
    for table in ("measured_runs", "measured_requests", "measured_events", "gate_results"):
        db.execute(f"DELETE FROM {table}")  # noqa: S608 - names from the line above
    return db


@cache
def schema() -> dict[str, Any]:
    """The shipped JSON Schema."""
    found: dict[str, Any] = json.loads(SCHEMA.read_text())
    return found


@cache
def validator() -> Any:
    """Holds a value to the shipped schema."""
    jsonschema.Draft202012Validator.check_schema(schema())
    return jsonschema.Draft202012Validator(schema())


def only(report: GateReport, name: str, statistic: str | None = None) -> Any:
    """The one result of an id."""
    (found,) = (p for p in report.predicates if p.id == name and statistic in (None, p.statistic))
    return found


def verdict_of(name: str, cand: Run, baseline: Run | None = None, statistic: str | None = None):
    """Verdict and reasons of one check of the deterministic gate."""
    result = only(answer(DETERMINISTIC, baseline or small("base"), cand), name, statistic)
    return result.verdict, result.reasons


# --- all of it -------------------------------------------------------------------------------


def test_a_gate_of_deterministic_predicates_passes():
    """Equal runs, nothing lost, nobody preempted too often, nobody failed: exit 0."""
    report = answer(DETERMINISTIC, small("base"), candidate(rows(r1={"num_preemptions": 2})))
    assert "pass" == report.verdict
    assert 0 == report.exit_code
    assert "pass: 4 checks hold on 1 pair of runs, at least 8 requests each" == report.sentence
    assert () == report.reasons


def test_the_verdict_is_the_worst_of_all():
    """Refused over fail over inconclusive over pass, and nothing judged is inconclusive."""
    assert "fail" == overall(["pass", "inconclusive", "fail"])
    assert "inconclusive" == overall(["pass", "inconclusive"])
    assert "pass" == overall(["pass"])
    assert "inconclusive" == overall([])
    assert {"pass": 0, "fail": 1, "inconclusive": 3, "refused": 4} == EXIT_CODES


def test_a_failure_is_not_hidden_by_what_is_undecided():
    """An undecided regression beside a failed check is a fail, and the sentence says which."""
    report = answer(
        gate_of(REPEAT, QUEUE), small("base"), candidate(rows(r1={"num_preemptions": 3}))
    )
    assert ("fail", 1) == (report.verdict, report.exit_code)
    assert (
        "fail: repeat found 1 of 8 candidate requests preempted more than 2 times, one 3 times"
        == report.sentence
    )


# --- P0: comparable --------------------------------------------------------------------------


def placed(base: dict[str, Any], cand: dict[str, Any]) -> list[GateRun]:
    """A pair of runs that is nothing but manifests."""
    return [
        GateRun(side[:4], side, 0, edited(recorded("base-1").manifest, changes), "0" * 64, 8, "a")
        for side, changes in (("baseline", base), ("candidate", cand))
    ]


def other(value: Any) -> Any:
    """Another value of the same type."""
    match value:
        case bool():
            return not value
        case int() | float():
            return value + 1
        case "fcfs":
            return "priority"
    return f"{value}x"


@pytest.mark.parametrize("side", ["baseline", "candidate"])
@pytest.mark.parametrize("how", ["changed", "null"])
@pytest.mark.parametrize(
    "field", [f for f in FIELDS if f not in ("rule", "latencies", "device.driver")]
)
def test_any_other_difference_is_refused_by_its_name(field: str, how: str, side: str):
    """Each field changed, and each unknown, on either side: refused, named, with both values."""
    (same_run, _) = placed({}, {})
    value = None if how == "null" else other(same_run.value(field))
    runs = placed(*({field: value} if s == side else {} for s in ("baseline", "candidate")))
    found = compare(runs, [], request_differences={0: (0, 0)})
    assert found.refused
    assert found.key is None
    assert field in {d.field for d in found.differing}
    follows = {"rule"} if field.startswith("engine.") else set()
    follows |= {"device.driver"} if field == "device.kind" else set()
    follows |= {"latencies"} if field == "kind" else set()
    assert {field} == {d.field for d in found.differing} - follows
    assert field in found.why
    (difference,) = (d for d in found.differing if d.field == field)
    assert ("differs" if how == "changed" else "unknown") == difference.why
    assert value in [v.value for v in difference.values]


@pytest.mark.parametrize("field", CHANGEABLE)
def test_a_declared_change_is_allowed_but_must_be_known(field: str):
    """The declared field may differ; unknown on either side it is refused like any other."""
    (base, _) = placed({}, {})
    fine = compare(
        placed({}, {field: other(base.value(field))}), [field], request_differences={0: (0, 0)}
    )
    assert not fine.refused
    assert fine.changed[0].differs
    for side in range(2):
        unknown = placed(*({field: None} if k == side else {} for k in range(2)))
        found = compare(unknown, [field], request_differences={0: (0, 0)})
        assert ("unknown_field",) == found.reasons
        assert field in found.why


def test_a_driver_is_only_missing_where_there_is_none():
    """Null is equal on a CPU; on a GPU, or on one side only, it is not."""
    gpu = {"device.kind": "cuda"}
    known = gpu | {"device.driver": "570.1"}
    for base, cand, refused in (
        ({}, {}, False),
        (gpu, gpu, True),
        (known, known, False),
        (known, gpu, True),
        ({}, {"device.driver": "570.1"}, True),
    ):
        found = compare(placed(base, cand), [], request_differences={0: (0, 0)})
        assert refused == found.refused


def test_true_is_not_one_but_zero_is_zero():
    """Types tell options apart; the spelling of a number does not."""
    assert not same(True, 1)  # noqa: FBT003 - the very question
    assert not same(False, 0)  # noqa: FBT003
    assert same(0, 0.0)


def test_every_differing_field_is_named_at_once():
    """A reader who goes to make the runs equal has to know all of it."""
    changes = {"engine.version": "0.31.0", "cache.block_size": 16, "device.count": None}
    found = compare(placed({}, changes), [], request_differences={0: (0, 0)})
    assert {"engine.version", "rule", "cache.block_size", "device.count"} == {
        d.field for d in found.differing
    }
    assert "0.32.0 in base; 0.31.0 in cand" in found.why


def test_another_scheduling_policy_is_refused_by_name():
    """The recorded runs, one of them under the priority scheduler: exit 4."""
    run = recorded("cand-80")
    manifest = edited(run.manifest, {"scheduler.scheduling_policy": "priority"})
    report = answer(read_gate(DEMO), recorded("base-1"), replace(run, manifest=manifest))
    assert ("refused", 4) == (report.verdict, report.exit_code)
    assert ("not_comparable",) == report.reasons
    assert (
        "refused: the runs differ in more than the declared change: scheduler.scheduling_policy"
        " (fcfs in base-1; priority in cand-80)" == report.sentence
    )
    assert () == report.predicates


DRIVER = {
    "behind": False,
    "late_requests": 0,
    "lateness_limit_us": 50_000,
    "max_lateness_us": 900,
    "speed": 1.0,
    "concurrency": None,
    "token_seed": 0,
    "notes": [],
}
BEHIND = DRIVER | {"behind": True, "late_requests": 31, "max_lateness_us": 1_234_000}


@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_a_run_whose_load_driver_fell_behind_is_refused_by_name(side: str):
    """It was offered another load than its workload says; no check is made, and the report says."""
    base = small("base", driver=BEHIND if side == "baseline" else DRIVER)
    cand = candidate(driver=BEHIND if side == "candidate" else DRIVER)
    report = answer(DETERMINISTIC, base, cand)
    late = "base" if side == "baseline" else "cand"
    assert ("refused", ("driver_behind",), ()) == (
        report.verdict,
        report.reasons,
        report.predicates,
    )
    assert f"refused: the load driver fell behind its schedule: {late}" == report.sentence
    assert "client that keeps up" in (report.recommendation or "")
    (difference,) = report.comparability.differing
    assert [(late, side, True)] == [(v.run_id, v.side, v.value) for v in difference.values]
    sentence = (
        f"The load driver of {late} fell behind its schedule (31 requests more than 50 ms late,"
        " the latest by 1,234 ms); its latencies include the client's own backlog."
    )
    assert sentence in report.limitations
    assert f"- {sentence}" in report_markdown(report, "0" * 64)


def test_every_run_that_was_late_is_named():
    """Before whatever else differs."""
    base = small("base", driver=BEHIND)
    report = answer(DETERMINISTIC, base, candidate(driver=BEHIND, model__name="other"))
    assert report.sentence.startswith(
        "refused: the load driver fell behind its schedule: base, cand; the runs differ in"
    )
    assert ("driver_behind", "not_comparable") == report.reasons


def test_a_driver_that_says_nothing_of_its_lateness_is_not_on_time():
    """A drive that was killed is unknown, and unknown is refused."""
    report = answer(DETERMINISTIC, small("base"), candidate(driver=DRIVER | {"behind": None}))
    assert ("refused", ("unknown_field",)) == (report.verdict, report.reasons)
    assert "driver.behind (unknown in cand)" in report.sentence


def test_how_the_load_was_offered_is_a_limitation():
    """Where nobody recorded it, and where sends waited for the engine."""
    closed = candidate(driver=DRIVER | {"concurrency": 4})
    report = answer(DETERMINISTIC, small("base"), closed)
    assert "pass" == report.verdict
    about = [text for text in report.limitations if "he load of " in text]
    assert [
        "Whether the load of base kept to its schedule is not known.",
        "The load of cand was limited to 4 requests in flight: where that many were, the next"
        " waited for the engine (closed loop).",
    ] == about


def test_runs_of_metrics_alone_are_refused_in_one_line_that_says_what_to_record():
    """Not by the wall of everything that such a run does not know."""
    bare = metrics_only("metrics-1")
    report = answer(DETERMINISTIC, small("base"), bare)
    assert ("refused", ("no_requests",)) == (report.verdict, report.reasons)
    assert (
        "refused: no request was recorded (metrics name no request; record with the recorder inside"
        " the engine (preempt collect pack), or offer the load with preempt collect drive):"
        " metrics-1" == report.sentence
    )
    assert "record requests on both sides and run again" == report.recommendation
    assert ["base"] == [r.run_id for r in report.runs]  # the other has no numbers, not zeros
    assert "| ok | 8 | – |" in report_markdown(report, "0" * 64)


def test_another_workload_is_refused():
    """A pair replays one workload; unknown on a side is not equal either."""
    for sha in ("b" * 64, None):
        report = answer(DETERMINISTIC, small("base"), candidate(workload__workload_sha256=sha))
        assert "refused" == report.verdict
        assert "workload.workload_sha256" in report.sentence


def test_other_requests_under_the_same_hash_are_refused():
    """The rows themselves have to be of the same requests."""
    report = answer(DETERMINISTIC, small("base"), candidate(rows(r7={"request_id": "r70"})))
    assert "refused" == report.verdict
    assert "measured_requests.request_id (1 ids of its own in base, cand)" in report.sentence


def test_pairs_may_have_different_workloads():
    """Only the two runs of a pair have to replay the same one."""
    sides = [
        [small("b1"), small("b2", workload__workload_sha256="b" * 64)],
        [
            replace_id(candidate(), "c1"),
            replace_id(candidate(workload__workload_sha256="b" * 64), "c2"),
        ],
    ]
    assert "pass" == answer(DETERMINISTIC, *sides).verdict
    sides[1].reverse()
    assert "refused" == answer(DETERMINISTIC, *sides).verdict


def replace_id(run: Run, run_id: str) -> Run:
    """The same run under another name."""
    return replace(
        run,
        run_id=run_id,
        manifest=edited(run.manifest, {"run_id": run_id}),
        requests=run.requests.with_columns(run_id=pl.lit(run_id)),
        events=run.events.with_columns(run_id=pl.lit(run_id)),
    )


def test_runs_of_one_side_have_to_be_equal_in_the_change_too():
    """Two candidates with different block counts are two changes."""
    cands = [
        replace_id(candidate(), "c1"),
        replace_id(candidate(cache__num_gpu_blocks=96, cache__capacity_blocks=95), "c2"),
    ]
    report = answer(DETERMINISTIC, [small("b1"), small("b2")], cands)
    assert "refused" == report.verdict
    assert "runs of one side differ: cache.num_gpu_blocks" in report.sentence


def test_one_run_is_not_two():
    """The same run on both sides, or twice on one, is refused."""
    base, cand = small("base"), candidate()
    for sides in (([base], [base]), ([base, base], [cand, cand])):
        report = answer(DETERMINISTIC, *sides)
        assert ("same_run",) == report.reasons
        assert report.sentence.startswith("refused: a run was given more than once: base")
        assert "give every run once" == report.recommendation


def test_more_pairs_than_planned_are_refused():
    """Adding pairs until it pleases is not a plan."""
    gate = gate_of(REPEAT, design={"pairs": 1})
    sides = [small("b1"), small("b2")], [replace_id(candidate(), c) for c in ("c1", "c2")]
    assert ("more_pairs_than_planned",) == answer(gate, *sides).reasons
    assert "pass" == answer(gate_of(REPEAT, design={"pairs": 1, "looks": 2}), *sides).verdict


def test_a_declared_change_that_did_not_happen_is_noted():
    """Both sides equal is no refusal, but the reader is told."""
    report = answer(
        DETERMINISTIC,
        small("base"),
        candidate(cache__num_gpu_blocks=48, cache__capacity_blocks=47),
    )
    assert "pass" == report.verdict
    assert (
        "cache.num_gpu_blocks is declared as the change but is the same on both sides"
        in report.notes
    )


def test_a_report_shows_no_model_path():
    """Of a path only its last name travels, and different paths stay different."""
    paths = [{"model.name": f"/home/{who}/secret/tiny"} for who in ("ann", "bob")]
    found = compare(placed(*paths), [], request_differences={0: (0, 0)})
    assert "model.name" in found.why
    assert "home" not in found.why
    assert "home" not in json.dumps(found.to_json())
    assert 2 == len({v["value"] for d in found.to_json()["differing"] for v in d["values"]})


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"comparison__side": "baseline"}, "comparison.side says baseline, but"),
        ({"comparison__pair": 3}, "comparison.pair says pair"),
    ],
)
def test_a_manifest_that_contradicts_its_place_is_bad_input(changes: dict[str, Any], words: str):
    """A mix-up of the runs is a mistake and no verdict."""
    with pytest.raises(InputError, match=words):
        answer(DETERMINISTIC, small("base", comparison__pair=2), candidate(**changes))


def test_two_pairs_cannot_both_be_pair_0():
    """The manifests' own numbering is held to the order given."""
    sides = (
        [small("b1", comparison__pair=0), small("b2", comparison__pair=0)],
        [replace_id(candidate(), c) for c in ("c1", "c2")],
    )
    with pytest.raises(InputError, match="so does a run of another pair"):
        answer(DETERMINISTIC, *sides)


def test_sides_of_unequal_length_and_unknown_runs_are_bad_input():
    """Neither leaves anything to judge."""
    with pytest.raises(InputError, match="got 2 baseline and 1 candidate runs"):
        answer(DETERMINISTIC, [small("b1"), small("b2")], candidate())
    with pytest.raises(InputError, match="is not loaded"):
        evaluate(emptied(), DETERMINISTIC, ["x"], ["y"])
    with pytest.raises(InputError, match="at least one"):
        evaluate(emptied(), DETERMINISTIC, [], [])


# --- P1: erased progress ---------------------------------------------------------------------

PROGRESS = "no-erased-progress"


def preempted(**changes: Any) -> list[Row]:
    """Requests of which r3 was preempted twice."""
    return rows(r3={"num_preemptions": 2} | changes)


def events_with(change: Callable[[Row], Row | None], requests: list[Row] | None = None):
    """The events of `preempted`, each changed or (None) dropped."""
    found = [change(dict(e)) for e in event_rows(requests or preempted())]
    return [e for e in found if e is not None]


def at(kind: str, **values: Any) -> Callable[[Row], Row | None]:
    """Change the events of r3 of one kind."""

    def change(event: Row) -> Row | None:
        return event | values if (event["request_id"], event["kind"]) == ("r3", kind) else event

    return change


@pytest.mark.parametrize("side", ["baseline", "candidate"])
@pytest.mark.parametrize(
    ("requests", "events"),
    [
        pytest.param(preempted(), events_with(at("finish", generated_tokens=4)), id="end"),
        pytest.param(preempted(), events_with(at("preempt", generated_tokens=6)), id="fell"),
        pytest.param(preempted(generated_tokens=3), None, id="short"),
        pytest.param(
            preempted(),
            [
                e | {"generated_tokens": 6} if e["num_preemptions"] == 2 else e
                for e in events_with(lambda e: None if e["kind"] == "finish" else e)
            ],
            id="row-below-events",
        ),
        pytest.param(
            preempted(engine=None), events_with(at("finish", generated_tokens=4)), id="no-engine"
        ),
    ],
)
def test_lost_tokens_fail_on_either_side(side: str, requests: list[Row], events: list[Row] | None):
    """Fallen between events, another end than the row, short of what was asked for: r3 named."""
    if side == "candidate":
        report = answer(DETERMINISTIC, small("base"), candidate(requests, events))
        name = "cand"
    else:
        report = answer(DETERMINISTIC, small("base", requests, events), candidate())
        name = "base"
    result = only(report, PROGRESS)
    assert ("fail", ("progress_erased",)) == (result.verdict, result.reasons)
    assert [(name, "r3")] == [(i.run_id, i.request_id) for i in result.ids]
    assert 1 == result.ids_total
    assert (1,) == getattr(result, side)
    assert "fail" == report.verdict


def test_tokens_that_fall_and_rise_again_are_still_lost():
    """The end fits, but between two preemptions progress was erased."""
    numbers = iter([4, 1])
    events = events_with(
        lambda e: e | {"generated_tokens": next(numbers)} if e["kind"] == "preempt" else e
    )
    assert ("fail", ("progress_erased",)) == verdict_of(PROGRESS, candidate(preempted(), events))


def test_a_longer_answer_than_a_driven_run_asked_for_is_not_lost():
    """Reaching the length is what is promised."""
    cand = candidate(rows(r3={"generated_tokens": 6}))
    assert ("pass", ()) == verdict_of(PROGRESS, cand)


@pytest.mark.parametrize(
    ("requests", "events"),
    [
        pytest.param(preempted(), [], id="no-events"),
        pytest.param(
            preempted(),
            events_with(lambda e: None if e["kind"] == "finish" else e),
            id="no-finish",
        ),
        pytest.param(preempted(), event_rows(preempted(num_preemptions=1)), id="one-missing"),
        pytest.param(preempted(), events_with(at("preempt", generated_tokens=None)), id="null"),
        pytest.param(preempted(num_preemptions=None), None, id="number-unknown"),
        pytest.param(preempted(generated_tokens=None), None, id="end-unknown"),
        pytest.param(preempted(max_tokens=None), None, id="length-unknown"),
    ],
)
def test_missing_evidence_of_a_preempted_request_is_inconclusive(
    requests: list[Row], events: list[Row] | None
):
    """What was not recorded cannot show that nothing was lost."""
    assert ("inconclusive", ("no_data",)) == verdict_of(PROGRESS, candidate(requests, events))


def test_events_of_a_request_without_a_row_are_a_contradiction():
    """A request that vanished from the table is not a request that is fine."""
    stray = event_rows([request_row(99, num_preemptions=1)])
    events = [*event_rows(rows()), *(e | {"seq": 500 + k} for k, e in enumerate(stray))]
    assert ("inconclusive", ("sources_disagree",)) == verdict_of(PROGRESS, candidate(events=events))


def test_requests_that_never_reached_the_engine_lose_nothing():
    """Unsent and rejected rows have nothing to look at and nothing missing."""
    gone = {"generated_tokens": None, "num_preemptions": None, "engine": None}
    cand = candidate(rows(r1=gone | {"status": "unsent"}, r2=gone | {"status": "rejected"}))
    assert ("pass", ()) == verdict_of(PROGRESS, cand)


def test_a_row_that_names_no_engine_takes_its_events_from_any():
    """The client does not always know which engine answered."""
    for name in (PROGRESS, "repeat"):
        assert ("pass", ()) == verdict_of(name, candidate(preempted(engine=None)))
    cand = candidate(rows(r3={"num_preemptions": 3, "engine": None}))
    assert ("fail", ("preempted_too_often",)) == verdict_of("repeat", cand)


def test_an_unfinished_request_is_held_to_what_was_seen():
    """A censored request is not short, but its tokens must not fall."""
    cut = preempted(status="censored", generated_tokens=2)
    assert ("pass", ()) == verdict_of(PROGRESS, candidate(cut))
    numbers = iter([2, 1])
    events = events_with(
        lambda e: e | {"generated_tokens": next(numbers)} if e["kind"] == "preempt" else e, cut
    )
    assert ("fail", ("progress_erased",)) == verdict_of(PROGRESS, candidate(cut, events))


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [(5, ("pass", ())), (2, ("inconclusive", ("different_work",)))],
)
def test_requests_that_stopped_by_themselves_are_not_short(
    tokens: int, expected: tuple[str, tuple[str, ...]]
):
    """Lengths that were not forced are compared in sum, not request by request."""
    stopped = {"finish_reason": "stop", "max_tokens": 100}
    everyone = [request_row(k, generated_tokens=tokens, **stopped) for k in range(REQUESTS)]
    assert expected == verdict_of(PROGRESS, candidate(everyone))


# --- modelled evidence -----------------------------------------------------------------------


@cache
def lab_config() -> Config:
    """The demo's lab configuration."""
    return read_config(ROOT / "fixtures" / "configs" / "demo.toml")


@cache
def ledger_of(prompt_tokens: int) -> Ledger:
    """A replay of the small runs' requests, or of others with another prompt."""
    requests = [Request(f"r{k}", 1000 * k, prompt_tokens, 5) for k in range(REQUESTS)]
    return replay(Workload(tuple(requests)), lab_config())


def test_a_required_ledger_that_is_missing_is_no_data():
    """Asked for and not given: the modelled part is inconclusive, the measured one is not."""
    gate = gate_of(REPEAT, evidence={"modelled": "required"})
    report = answer(gate, small("base"), candidate())
    measured, modelled = (p for p in report.predicates if p.id == PROGRESS)
    assert ("measured", "pass") == (measured.evidence, measured.verdict)
    assert ("modelled", "inconclusive", ("no_data",)) == (
        modelled.evidence,
        modelled.verdict,
        modelled.reasons,
    )
    assert ("inconclusive", 3) == (report.verdict, report.exit_code)


def test_a_sound_ledger_is_shown_as_modelled():
    """The oracle's answer stands beside the measured one, with the receipt."""
    gate = gate_of(REPEAT, evidence={"modelled": "required"})
    report = answer(gate, small("base"), candidate(), [ledger_of(10)])
    (modelled,) = (p for p in report.predicates if p.evidence == "modelled")
    assert "pass" == modelled.verdict
    assert "1 modelled ledger of at least 8 of 8 requests" in modelled.why
    assert (ledger_of(10).receipt["receipt_sha256"],) == report.ledgers
    assert "pass" == report.verdict


def test_a_broken_ledger_fails():
    """A ledger whose tokens fall is caught by the oracle and fails the gate."""
    ledger = ledger_of(10)
    events = ledger.events.copy()
    events[31:, COLUMN["generated_tokens"]] = 0
    report = answer(DETERMINISTIC, small("base"), candidate(), [replace(ledger, events=events)])
    (modelled,) = (p for p in report.predicates if p.evidence == "modelled")
    assert ("fail", ("oracle_violated",)) == (modelled.verdict, modelled.reasons)
    assert "fail" == report.verdict


def test_a_ledger_of_other_requests_shows_nothing():
    """Modelled evidence has to be about the compared requests."""
    report = answer(DETERMINISTIC, small("base"), candidate(), [ledger_of(11)])
    (modelled,) = (p for p in report.predicates if p.evidence == "modelled")
    assert ("inconclusive", ("different_work",)) == (modelled.verdict, modelled.reasons)


def test_modelled_evidence_never_rescues_a_measured_predicate():
    """A perfect ledger beside lost measured tokens is still a fail."""
    cand = candidate(preempted(generated_tokens=3))
    report = answer(DETERMINISTIC, small("base"), cand, [ledger_of(10)])
    assert ["fail", "pass"] == [p.verdict for p in report.predicates if p.id == PROGRESS]
    assert "fail" == report.verdict


def test_a_gate_that_takes_no_ledger_refuses_one():
    """Evidence that the gate switched off is a mistake of the call."""
    gate = gate_of(REPEAT, evidence={"modelled": "off"})
    with pytest.raises(InputError, match="--ledger: must not be given"):
        answer(gate, small("base"), candidate(), [ledger_of(10)])


def test_optional_ledgers_that_are_not_given_leave_no_row():
    """Nothing was asked for and nothing is claimed."""
    assert [] == judge_ledgers(DETERMINISTIC.predicates[0], [], required=False)
    found = judge_ledgers(
        DETERMINISTIC.predicates[0], [LedgerCheck("lab", None, 3, 8, ("x (seq 1)",))], required=True
    )
    assert ["fail"] == [r.verdict for r in found]


# --- P2: repeated preemption -----------------------------------------------------------------


def test_zero_seen_prints_its_bound():
    """None of eight is not none of all: 3 / 8."""
    result = only(answer(DETERMINISTIC, small("base"), candidate()), "repeat")
    assert "pass" == result.verdict
    assert "(95 % bound 37.5 %)" in result.why
    assert ((0,), (0,), 2) == (result.baseline, result.candidate, result.limit)


def test_a_request_beyond_the_limit_fails_and_is_named():
    """One candidate request preempted three times where two are allowed."""
    cand = candidate(rows(r5={"num_preemptions": 3}))
    result = only(answer(DETERMINISTIC, small("base"), cand), "repeat")
    assert ("fail", ("preempted_too_often",)) == (result.verdict, result.reasons)
    assert [("cand", "r5")] == [(i.run_id, i.request_id) for i in result.ids]


def test_the_baseline_is_shown_and_not_subtracted():
    """A baseline that preempts a lot neither fails the gate nor excuses the candidate."""
    base = small("base", rows(r5={"num_preemptions": 4}))
    result = only(answer(DETERMINISTIC, base, candidate()), "repeat")
    assert ("pass", (4,), (0,)) == (result.verdict, result.baseline, result.candidate)
    cand = candidate(rows(r5={"num_preemptions": 3}))
    assert "fail" == only(answer(DETERMINISTIC, base, cand), "repeat").verdict


def test_unfinished_requests_below_the_limit_are_named():
    """They are judged on what was seen, and a reader learns which they are."""
    cut = {"status": "censored", "generated_tokens": 1, "num_preemptions": 0}
    result = only(answer(DETERMINISTIC, small("base"), candidate(rows(r4=cut))), "repeat")
    assert ("pass", 1) == (result.verdict, result.ids_total)
    assert ["r4"] == [ref.request_id for ref in result.ids]
    assert "1 request ended unfinished, judged on what was seen" in result.why


@pytest.mark.parametrize("status", ["censored", "aborted", "error"])
def test_unfinished_at_the_limit_is_inconclusive(status: str):
    """It was not preempted too often yet; one below the limit it is no question."""
    used_up = {"status": status, "num_preemptions": 2, "generated_tokens": 2}
    assert ("inconclusive", ("unfinished_at_limit",)) == verdict_of(
        "repeat", candidate(rows(r5=used_up))
    )
    below = used_up | {"num_preemptions": 1}
    assert ("pass", ()) == verdict_of("repeat", candidate(rows(r5=below)))


def test_an_unknown_number_is_no_data_and_not_zero():
    """Null num_preemptions, unless the request never reached the engine."""
    unknown = {"num_preemptions": None}
    assert ("inconclusive", ("no_data",)) == verdict_of("repeat", candidate(rows(r5=unknown)))
    unsent = unknown | {"status": "unsent", "engine": None, "generated_tokens": None}
    assert ("pass", ()) == verdict_of("repeat", candidate(rows(r5=unsent)))


def test_events_count_where_the_row_says_zero():
    """A row of zeros beside preempt events is no evidence; too many events are a fail."""
    two, three = (event_rows(rows(r5={"num_preemptions": k})) for k in (2, 3))
    assert ("inconclusive", ("sources_disagree",)) == verdict_of("repeat", candidate(events=two))
    assert ("fail", ("preempted_too_often",)) == verdict_of("repeat", candidate(events=three))


# --- P5: failures ----------------------------------------------------------------------------


@pytest.mark.parametrize("status", ["error", "aborted", "rejected", "unsent"])
def test_too_many_failed_requests_fail(status: str):
    """Four of eight are above 40 %, whatever kept them from an answer."""
    bad = {"status": status, "engine": None, "generated_tokens": None}
    bad |= {"num_preemptions": 0 if status in ("error", "aborted") else None}
    cand = candidate(rows(**{f"r{k}": bad for k in range(4)}), [])
    result = only(answer(DETERMINISTIC, small("base"), cand), "failures", "failed_fraction")
    assert ("fail", ("too_many_failed",)) == (result.verdict, result.reasons)
    assert ((0.0,), (0.5,), 0.5) == (result.baseline, result.candidate, result.estimate)
    assert ["r0", "r1", "r2", "r3"] == [i.request_id for i in result.ids]


def test_too_many_censored_requests_fail_by_themselves():
    """Cut off is not failed, and has its own limit."""
    cut = {"status": "censored", "generated_tokens": 1}
    report = answer(
        DETERMINISTIC, small("base"), candidate(rows(**{f"r{k}": cut for k in range(4)}))
    )
    assert "pass" == only(report, "failures", "failed_fraction").verdict
    result = only(report, "failures", "censored_fraction")
    assert ("fail", ("too_many_censored",)) == (result.verdict, result.reasons)


def test_a_share_within_the_limit_passes():
    """Three of eight are below 40 %, and the limit itself is allowed."""
    bad = {"status": "error", "generated_tokens": 1}
    cand = candidate(rows(**{f"r{k}": bad for k in range(3)}))
    assert ("pass", ()) == verdict_of("failures", cand, statistic="failed_fraction")
    exactly = gate_of({"id": "failures", "kind": "failures", "max_failed_fraction": 0.375})
    assert "pass" == only(answer(exactly, small("base"), cand), "failures").verdict


@pytest.mark.parametrize(("limit", "expected"), [(0.375, "pass"), (0.374, "inconclusive")])
def test_too_few_requests_cannot_show_a_small_share(limit: float, expected: str):
    """With nothing seen in n, only shares of at least 3 / n are shown to be kept."""
    gate = gate_of({"id": "failures", "kind": "failures", "max_failed_fraction": limit})
    result = only(answer(gate, small("base"), candidate()), "failures")
    assert expected == result.verdict
    assert (expected == "inconclusive") == (("too_few_eligible",) == result.reasons)


def test_one_bad_candidate_run_is_enough():
    """Runs are judged one by one; a good one does not dilute a bad one."""
    bad = {"status": "error", "generated_tokens": 1}
    cands = [
        replace_id(candidate(), "c1"),
        replace_id(candidate(rows(**{f"r{k}": bad for k in range(4)})), "c2"),
    ]
    report = answer(DETERMINISTIC, [small("b1"), small("b2")], cands)
    result = only(report, "failures", "failed_fraction")
    assert ("fail", (0.0, 0.5)) == (result.verdict, result.candidate)
    assert {"c2"} == {i.run_id for i in result.ids}


@pytest.mark.parametrize("offered", [7, 9])
def test_statuses_that_do_not_add_up_are_bad_input(offered: int):
    """In a driven run every offered request has a row, whatever became of it."""
    with pytest.raises(InputError, match=f"must add up to the {offered} requests offered, got 8"):
        answer(DETERMINISTIC, small("base"), candidate(workload__requests=offered))


def test_an_unknown_offer_is_no_data():
    """Nobody knows how many were never sent."""
    cand = candidate(workload__requests=None)
    base = small("base", workload__requests=None)
    assert ("inconclusive", ("no_data",)) == verdict_of(
        "failures", cand, base, statistic="failed_fraction"
    )


def test_an_increase_is_a_statistic():
    """It waits for pairs, and for runs large enough to show its limit."""
    gate = gate_of(FAILURES | {"max_increase": 0.1})
    report = answer(gate, small("base"), candidate())
    reasons = only(report, "failures", "failed_increase").reasons
    assert ("too_few_pairs", "too_few_eligible") == reasons
    assert "pass" == only(report, "failures", "failed_fraction").verdict
    assert "inconclusive" == report.verdict


# --- statistics, boundary, rollback ----------------------------------------------------------


def test_what_this_version_cannot_decide_never_passes():
    """Too few pairs, too few requests and checks that come later: each says what it lacks."""
    gate = gate_of(
        QUEUE,
        GOODPUT | {"max_drop": 0.02},
        boundary={"rates": ["arrival"], "steps": [0.95]},
        evidence={"noise_profile": "required"},
    )
    report = answer(gate, small("base"), candidate())
    assert (
        "inconclusive: queue needs 5 pairs of runs, 1 given (and 5 more checks)" == report.sentence
    )
    assert (report.recommendation or "").startswith(
        "run 4 more pairs for statistics to decide anything; observe longer: raise follow_up_us"
    )
    sides = (
        [small(f"b{k}") for k in range(5)],
        [replace_id(candidate(), f"c{k}") for k in range(5)],
    )
    report = answer(gate, *sides)
    assert {
        "censored",
        "no_data",
        "no_noise_profile",
        "order_not_balanced",
        "too_few_eligible",
    } == set(report.reasons)
    undecided = {p.id for p in report.predicates if p.verdict == "inconclusive"}
    assert {
        "queue",
        "goodput",
        "noise-profile",
        "steady",
        "boundary",
    } == undecided


# --- silence ---------------------------------------------------------------------------------

UNKNOWN = {"generated_tokens": None, "num_preemptions": None, "max_tokens": None}
SILENCE = {
    "all-null": (rows(**{f"r{k}": UNKNOWN for k in range(REQUESTS)}), []),
    "no-rows": ([], []),
    "no-rows-but-events": ([], event_rows(rows())),
    "nobody-reached-the-engine": (
        rows(**{f"r{k}": UNKNOWN | {"status": "unsent", "engine": None} for k in range(REQUESTS)}),
        [],
    ),
    "zeros-beside-preemptions": (
        rows(),
        event_rows(rows(**{f"r{k}": {"num_preemptions": 1} for k in range(REQUESTS)})),
    ),
}


@pytest.mark.parametrize("sides", ["both", "baseline", "candidate"])
@pytest.mark.parametrize("silence", SILENCE)
@pytest.mark.parametrize("predicate", [REPEAT, FAILURES, QUEUE, GOODPUT], ids=lambda p: p["kind"])
def test_silence_never_passes(predicate: Row, silence: str, sides: str):
    """Empty, null and contradicting tables, on one side or both: no predicate takes it for good."""
    requests, events = SILENCE[silence]
    silent: Any = {"requests": requests, "events": events, "workload__requests": None}
    loud: Any = {"workload__requests": None}
    base = small("base", **(loud if sides == "candidate" else silent))
    cand = candidate(**(loud if sides == "baseline" else silent))
    assert "pass" != answer(gate_of(predicate), base, cand).verdict


def test_a_side_without_any_row_is_refused():
    """The set of requests differs from the other side's."""
    base = small("base", workload__requests=None)
    cand = candidate([], [], workload__requests=None)
    assert "refused" == answer(DETERMINISTIC, base, cand).verdict


def test_a_run_that_lost_all_its_rows_is_bad_input():
    """It says that 8 requests were offered and has none of them."""
    with pytest.raises(InputError, match="must add up to the 8 requests offered, got 0"):
        answer(DETERMINISTIC, small("base"), candidate([], [], workload__requests=8))


# --- the report ------------------------------------------------------------------------------


def everything() -> tuple[Gate, Run, Run]:
    """A gate with a slice and all kinds, over runs with something to report of every sort."""
    part = {"where": {"priority": {"max": 0}, "output_tokens": {"min": 5}}}
    gate = gate_of(
        REPEAT,
        FAILURES,
        QUEUE | {"slice": "first"},
        slices={"first": part},
        design={"warmup_us": 1000, "follow_up_us": 500},
    )
    shorter = {"max_tokens": 4, "generated_tokens": 4}
    base = small("base", rows(r1={"num_preemptions": 4}, r2={"status": "error"}, r6=shorter))
    cand = candidate(preempted(generated_tokens=3))
    return gate, base, cand


def shuffled(run: Run, seed: int) -> Run:
    """The same rows in another order."""
    return replace(
        run,
        requests=run.requests.sample(fraction=1, shuffle=True, seed=seed),
        events=run.events.sample(fraction=1, shuffle=True, seed=seed),
    )


def test_the_report_is_the_same_bytes_for_the_same_evidence():
    """Twice, with rows in another order, and with predicates judged in another order."""
    gate, base, cand = everything()
    first = canonical_json(report_json(answer(gate, base, cand)))
    assert first == canonical_json(report_json(answer(gate, base, cand)))
    for seed in range(3):
        again = answer(gate, shuffled(base, seed), shuffled(cand, seed + 1))
        assert first == canonical_json(report_json(again))


def test_predicates_do_not_hear_of_each_other():
    """Whatever order they are judged in, each comes to the same."""
    gate, base, cand = everything()
    report = answer(gate, base, cand)
    loaded = by_run(query(_store(), "runs", run_ids=["base", "cand"]))
    runs = place_runs(loaded, ["base"], ["cand"], gate_of().design)
    for order in itertools.permutations(gate.predicates):
        assert report.predicates == judge(_store(), gate, runs, report.runs, order=order)


def test_the_hash_is_over_the_rest_of_the_report():
    """Anyone can check that a report is unchanged."""
    record = report_json(answer(*everything()))
    stated = record.pop("report_sha256")
    assert sha256(canonical_json(record)) == stated


def test_eligible_requests_are_counted_per_run_and_slice():
    """After the warm-up, with the follow-up left: r1 to r7; of the slice r2, r4 and a long r6."""
    report = answer(*everything())
    assert [7, 7] == [r.eligible for r in report.runs]
    (part,) = report.slices
    assert (2, 3) == part.eligible
    gate, base, cand = everything()
    endless = edited(cand.manifest, {"drain_end_us": None})
    report = answer(gate, base, replace(cand, manifest=endless))
    assert [7, None] == [r.eligible for r in report.runs]
    assert (2, None) == report.slices[0].eligible


def test_the_schema_knows_every_reason_and_nothing_else():
    """Codes in the schema and in the documentation are the same."""
    assert sorted(REASONS) == schema()["properties"]["reasons"]["items"]["enum"]
    assert not validator().is_valid(report_json(answer(*everything())) | {"extra": 1})


def test_markdown_makes_nothing_of_hostile_names():
    """A gate name full of markup stays text, and rows stay rows."""
    gate, base, cand = everything()
    report = replace(
        answer(gate, base, cand), gate_name="a|b <img src=x> [c](http://d) @all \u202e`e`"
    )
    text = report_markdown(report, "0" * 64)
    assert "<img" not in text
    assert "http://d" not in text
    assert "@all" not in text
    assert "\u202e" not in text
    assert text.startswith("# fail: a\\|b")
    assert "(requests: cand r3)" in text
    assert "| failed | " not in text


def test_the_first_line_is_the_verdict():
    """Verdict and why in one sentence, then what changed and what was equal."""
    text = report_markdown(answer(*everything()), "0" * 64)
    assert text.splitlines()[2].startswith("**fail: no-erased-progress found generated tokens")
    assert "- changed: cache.num_gpu_blocks from 48 to 80" in text
    assert "engine.version 0.32.0" in text


# --- the command -----------------------------------------------------------------------------


def command(*arguments: object, columns: int = 80) -> subprocess.CompletedProcess[str]:
    """Run `preempt gate` as a person would."""
    return subprocess.run(
        [sys.executable, "-m", "preempt", "gate", *map(str, arguments)],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={"COLUMNS": str(columns), "PATH": "", "NO_COLOR": "1"},
    )


def test_the_recorded_runs_decide_all_but_the_queue(tmp_path: Path):
    """48 to 80 blocks on a real vLLM: exit 3; one pair is no statistic, and its queue grew."""
    done = command(
        "run", DEMO, "--baseline", RUNS / "base-1", "--candidate", RUNS / "cand-80",
        "--out", tmp_path / "out",
    )  # fmt: skip
    assert (3, "") == (done.returncode, done.stderr.replace(f"report in {tmp_path / 'out'}\n", ""))
    assert done.stdout.startswith("inconclusive: queue needs 5 pairs of runs, 1 given (and 1 more")
    assert 80 >= max(map(len, done.stdout.splitlines()))
    record = json.loads((tmp_path / "out" / "report.json").read_text())
    validator().validate(record)
    verdicts = {(p["id"], p["statistic"]): p["verdict"] for p in record["predicates"]}
    assert {
        (PROGRESS, "violating_requests"): "pass",
        ("repeat", "max"): "pass",
        ("failures", "failed_fraction"): "pass",
        ("failures", "censored_fraction"): "pass",
        ("queue", "p95"): "inconclusive",
        ("steady", "queue_growth"): "inconclusive",
    } == verdicts
    assert (tmp_path / "out" / "report.md").read_text().startswith("# inconclusive: blocks-48")


def test_a_wide_terminal_shows_the_numbers_too():
    """At 200 columns baseline, candidate and limit stand beside the reasons; JSON is one option."""
    sides = ("--baseline", RUNS / "base-1", "--candidate", RUNS / "cand-80")
    done = command("run", DEMO, *sides, columns=200)
    assert "max of num_preemptions" in done.stdout
    assert 200 >= max(map(len, done.stdout.splitlines()))
    assert "max of num_preemptions" not in command("run", DEMO, *sides).stdout
    mapped = command("run", DEMO, *sides, "--json", "--exit-map", "inconclusive=0")
    assert 0 == mapped.returncode
    assert {"inconclusive": 0} == json.loads(mapped.stdout)["exit_map"]


def test_run_ids_of_a_store_judge_the_same(tmp_path: Path):
    """A database and the directories give the same report, and the database is only read."""
    with connect(tmp_path / "s.duckdb") as db:
        load_path(db, RUNS)
    before = (tmp_path / "s.duckdb").read_bytes()
    stored = command(
        "run", DEMO, "--db", tmp_path / "s.duckdb", "--baseline", "base-1",
        "--candidate", "cand-80", "--json",
    )  # fmt: skip
    direct = command(
        "run", DEMO, "--baseline", RUNS / "base-1", "--candidate", RUNS / "cand-80", "--json"
    )
    assert (3, stored.stdout) == (direct.returncode, direct.stdout)
    assert before == (tmp_path / "s.duckdb").read_bytes()


@pytest.mark.parametrize(
    ("options", "code", "words"),
    [
        (("--candidate", RUNS / "base-1"), 4, "refused: a run was given more than once: base-1"),
        (("--candidate", RUNS / "nothing"), 2, "must be a run directory"),
        (("--candidate", RUNS / "cand-80", "--exit-map", "fail=0"), 2, "--exit-map: must be"),
        ((), 2, "Missing option '--candidate'"),
    ],
)
def test_what_cannot_be_judged_ends_with_its_own_code(
    options: tuple[Any, ...], code: int, words: str
):
    """Refusals are verdicts on standard output; mistakes are one line on standard error."""
    done = command("run", DEMO, "--baseline", RUNS / "base-1", *options)
    assert code == done.returncode
    assert words in done.stdout + done.stderr
    assert (code == 2) == bool(done.stderr)


def test_the_output_is_not_written_over(tmp_path: Path):
    """A directory that exists is refused without --force, and then only its own files go."""
    sides = ("--baseline", RUNS / "base-1", "--candidate", RUNS / "cand-80")
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").write_text("x")
    done = command("run", DEMO, *sides, "--out", tmp_path / "out", "--force")
    assert 2 == done.returncode
    assert ["mine"] == [p.name for p in (tmp_path / "out").iterdir()]


def test_explain_on_the_command_line():
    """Plain words on standard output, exit 0."""
    done = command("explain", DEMO)
    assert (0, "") == (done.returncode, done.stderr)
    assert done.stdout.startswith("Gate blocks-48-to-80\n")
    assert len(explain(read_gate(DEMO))) <= len(done.stdout.splitlines())
