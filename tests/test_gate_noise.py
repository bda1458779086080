"""Few runs against a noise profile: they can fail, stay open, and never pass."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import polars as pl
import pytest
from paired import run_of, slower
from scipy import stats
from test_gate import ROOT, GateReport, edited, emptied, only, validator
from test_gate_pairs import GOODPUT, INCREASE, TTFT
from test_gate_pairs import gate_of as paired_gate

from analysis.gate.contract import Evidence, Gate
from analysis.gate.explain import explain
from analysis.gate.noise import Made, make_profile
from analysis.gate.noise_profile import Record, read_profile, sealed
from analysis.gate.run import evaluate
from analysis.gate.verdict import report_json
from analysis.store import load_run
from collectors.run import Run
from preempt.main import main
from replay.canonical import canonical_json
from replay.errors import InputError

LUCK = [1.0, 1.02, 0.97, 1.04, 0.99, 1.01, 0.98, 1.03, 0.96, 1.0]
SCHEMA = ROOT / "analysis" / "schemas" / "noise-profile.schema.json"


def gate_of(*predicates: dict[str, Any], noise: str = "optional", **design: Any) -> Gate:
    """A gate of nothing changed that takes a profile."""
    gate = paired_gate(*(predicates or (TTFT,)), **design)
    return replace(gate, evidence=Evidence("off", noise))


def equal_runs(luck: Sequence[float] = LUCK, *columns: pl.Expr, **manifest: Any) -> list[Run]:
    """Runs of one configuration, each with its own luck."""
    return [
        run_of(f"n{k}", "baseline", k, slower(f), columns, **manifest) for k, f in enumerate(luck)
    ]


def made(gate: Gate, runs: Sequence[Run]) -> Made:
    """What the runs come to, in a store of their own."""
    db = emptied()
    for run in runs:
        load_run(db, run)
    return make_profile(db, gate, [run.run_id for run in runs])


def profile(gate: Gate, runs: Sequence[Run] | None = None) -> Record:
    """A profile that is there, held to the shipped schema."""
    record = made(gate, equal_runs() if runs is None else runs).record
    assert record is not None
    jsonschema.validate(json.loads(canonical_json(dict(record))), json.loads(SCHEMA.read_text()))
    return record


def judged(
    gate: Gate, record: Record | None, factors: Sequence[float], baseline: float = 1.0
) -> GateReport:
    """The report of so many pairs, candidates slower by their factors."""
    db = emptied()
    sides: dict[str, list[str]] = {"baseline": [], "candidate": []}
    for pair, factor in enumerate(factors):
        for side, times in (("baseline", baseline), ("candidate", factor)):
            run = run_of(f"{side}-{pair}", side, pair, slower(times))
            load_run(db, run)
            sides[side].append(run.run_id)
    report = evaluate(db, gate, *sides.values(), profile=record)
    validator().validate(json.loads(canonical_json(report_json(report))))
    return report


def test_a_profile_keeps_mean_and_spread_from_run_to_run() -> None:
    """Of the logarithm with the floor added; by numpy, too."""
    (entry,) = profile(gate_of())["entries"]
    logs = np.log(np.array(entry["values"]) + 1000)
    assert pytest.approx(logs.mean()) == entry["mean"]
    assert pytest.approx(logs.std(ddof=1)) == entry["sd"]
    assert 0.02 < entry["sd"] < 0.03


def test_a_profile_is_the_same_bytes_in_any_order() -> None:
    """Runs are a set."""
    runs = equal_runs()
    assert profile(gate_of(), runs) == profile(gate_of(), runs[::-1])


def test_one_run_far_beyond_the_limit_fails_by_the_prediction_interval() -> None:
    """One pair, +40 % at a spread of 2.6 %: t(9) * s * sqrt(1 + 1/10)."""
    gate = gate_of()
    record = profile(gate)
    found = only(judged(gate, record, [1.4]), "ttft")
    assert ("fail", ("limit_exceeded",)) == (found.verdict, found.reasons)
    (entry,) = record["entries"]
    shift = np.log(found.candidate[0] + 1000) - entry["mean"]
    half = stats.t.ppf(0.95, 9) * entry["sd"] * np.sqrt(1 + 1 / 10)
    assert pytest.approx(np.expm1([shift - half, shift, shift + half])) == [
        found.low,
        found.estimate,
        found.high,
    ]
    assert "9 degrees of freedom" in found.method


@pytest.mark.parametrize("factor", [0.5, 1.0, 1.08, 1.12])
def test_few_runs_never_pass(factor: float) -> None:
    """However good they look."""
    gate = gate_of()
    found = only(judged(gate, profile(gate), [factor]), "ttft")
    assert ("inconclusive", ("too_few_pairs",)) == (found.verdict, found.reasons)
    assert found.low < found.high


def test_more_runs_make_the_screen_narrower() -> None:
    """Three candidates are as one mean: sqrt(1/3 + 1/10)."""
    gate = gate_of()
    record = profile(gate)
    one, three = (only(judged(gate, record, [1.2] * n), "ttft") for n in (1, 3))
    assert three.high - three.low < 0.7 * (one.high - one.low)


def test_shares_are_screened_as_they_are() -> None:
    """Goodput that falls and its drop both fail."""
    gate = gate_of(GOODPUT | {"slo": {"ttft_us": 200_000}, "min_fraction": 0.95})
    record = profile(gate)
    report = judged(gate, record, [3.0])
    assert {"fail"} == {p.verdict for p in report.predicates if p.id == "goodput"}
    assert {"good_fraction", "good_drop"} == {e["statistic"] for e in record["entries"]}
    same = judged(gate, record, [1.0])
    assert {"inconclusive"} == {p.verdict for p in same.predicates if p.id == "goodput"}


def test_a_spread_of_nothing_screens_nothing() -> None:
    """No run failed a request: that shows no spread, and is named."""
    gate = gate_of(INCREASE)
    found = only(judged(gate, profile(gate), [1.0]), "failures")
    assert "noise_profile_mismatch" in found.reasons or "too_few_eligible" in found.reasons
    assert found.verdict == "inconclusive"


def test_a_baseline_outside_of_the_profile_is_not_screened() -> None:
    """A slower day is no slower change."""
    gate = gate_of()
    found = only(judged(gate, profile(gate), [1.8], baseline=1.8), "ttft")
    assert ("too_few_pairs", "noise_profile_mismatch") == found.reasons
    assert "the baseline's own runs lie outside of it" in found.why


def test_enough_pairs_do_not_ask_the_profile() -> None:
    """Five pairs decide by themselves, and say the same without it."""
    gate = gate_of()
    with_it = judged(gate, profile(gate), [1.0] * 5)
    assert only(judged(gate, None, [1.0] * 5), "ttft") == only(with_it, "ttft")


def test_a_required_profile_that_is_missing_is_named() -> None:
    """However many pairs there are."""
    gate = gate_of(noise="required")
    report = judged(gate, None, [1.0] * 5)
    found = only(report, "noise-profile")
    assert ("inconclusive", ("no_noise_profile",)) == (found.verdict, found.reasons)
    assert "preempt gate noise" in (report.recommendation or "")
    assert "pass" == only(judged(gate, profile(gate), [1.0] * 5), "noise-profile").verdict
    assert any("Noise profile: required" in line for line in explain(gate))


def test_a_profile_of_another_configuration_is_named() -> None:
    """By the field and both values; it screens nothing."""
    other = edited(run_of("x", "baseline", 0).manifest, {"cache.num_gpu_blocks": 96})
    cache = {"cache": other["cache"]}
    gate = gate_of(noise="required")
    report = judged(gate, profile(gate, equal_runs(LUCK, **cache)), [3.0])
    assert ("too_few_pairs", "noise_profile_mismatch") == only(report, "ttft").reasons
    assert "cache.num_gpu_blocks is 96 in the profile and 80 in the baseline" in (
        only(report, "noise-profile").why
    )
    assert report.noise is not None
    assert not report.noise["matches"]
    assert any("does not fit" in note for note in report.notes)


@pytest.mark.parametrize(
    "change",
    [{"statistic": "p90"}, {"floor_us": 2000}, {"field": "e2e_us"}, {"slice": None}],
    ids=["statistic", "floor", "field", "slice"],
)
def test_another_question_is_not_answered(change: dict[str, Any]) -> None:
    """Statistic, floor, field and slice have to be the gate's own."""
    predicate = {k: v for k, v in (TTFT | change).items() if v is not None}
    record = profile(gate_of(predicate))
    found = only(judged(gate_of(), record, [3.0]), "ttft")
    assert "noise_profile_mismatch" in found.reasons
    assert "it has no entry" in found.why


def test_another_follow_up_is_named() -> None:
    """Eligible requests would be others."""
    record = profile(gate_of(follow_up_us=9_000_000))
    report = judged(gate_of(), record, [3.0])
    assert "follow_up_us is 9000000 in the profile and 10000000 in the gate" in (
        only(report, "ttft").why
    )


def test_runs_that_are_not_equal_are_refused_by_name() -> None:
    """A field, and a workload."""
    runs = equal_runs()
    cache = {"cache": edited(runs[0].manifest, {"cache.num_gpu_blocks": 96})["cache"]}
    other = replace(runs[3], manifest={**runs[3].manifest, **cache})
    found = made(gate_of(), [*runs[:3], other, *runs[4:]])
    assert found.record is None
    assert "cache.num_gpu_blocks (80 in n0, n1, n2 and 6 more; 96 in n3)" in (found.refusal or "")
    workload = {"workload": {**runs[3].manifest["workload"], "workload_sha256": "b" * 64}}
    other = replace(runs[3], manifest={**runs[3].manifest, **workload})
    refusal = made(gate_of(), [*runs[:3], other, *runs[4:]]).refusal or ""
    assert "workload.workload_sha256" in refusal
    renamed = runs[3].requests.with_columns(request_id=pl.col("request_id") + "x")
    other = replace(runs[3], requests=renamed)
    assert "request_id" in (made(gate_of(), [*runs[:3], other, *runs[4:]]).refusal or "")


def test_what_cannot_be_a_number_has_a_reason() -> None:
    """Nobody's TTFT is known in one run."""
    runs = equal_runs()
    unknown = runs[0].requests.with_columns(ttft_us=pl.lit(None, pl.Int64))
    (entry,) = profile(gate_of(), [replace(runs[0], requests=unknown), *runs[1:]])["entries"]
    assert ("no_data", None, None) == (entry["reason"], entry["mean"], entry["sd"])


def test_fewer_than_ten_runs_and_gates_without_statistics_are_bad_input() -> None:
    """As is a run given twice."""
    runs = equal_runs()
    with pytest.raises(InputError, match="at least 10"):
        made(gate_of(), runs[:9])
    with pytest.raises(InputError, match="twice"):
        made(gate_of(), [*runs, runs[0]])
    repeat = {"id": "repeat", "kind": "repeated_preemption", "max_preemptions": 2}
    with pytest.raises(InputError, match="predicate must have"):
        made(gate_of(repeat), runs)


def test_a_gate_that_takes_no_profile_refuses_one() -> None:
    """Off is the default, and says so."""
    record = profile(gate_of())
    with pytest.raises(InputError, match="--noise"):
        judged(paired_gate(TTFT), record, [1.0])


def test_a_profile_that_was_changed_is_refused(tmp_path: Path) -> None:
    """By its hash, by its schema, by a list that is too short."""
    record = dict(profile(gate_of()))
    path = tmp_path / "noise.json"

    def kept(value: dict[str, Any]) -> Path:
        path.write_bytes(canonical_json(value))
        return path

    assert record == read_profile(kept(record))
    with pytest.raises(InputError, match="must be the hash"):
        read_profile(kept(record | {"workload_sha256": "c" * 64}))
    body = {k: v for k, v in record.items() if k != "profile_sha256"}
    with pytest.raises(InputError, match="as the schema"):
        read_profile(kept(sealed(body | {"more": 1})))
    (entry,) = body["entries"]
    longer = entry | {"values": [*entry["values"], 1.0]}
    with pytest.raises(InputError, match="one number a run"):
        read_profile(kept(sealed(body | {"entries": [longer]})))


def test_the_command_says_how_few_runs_are_too_few(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit 2, and nothing is written."""
    gate = ROOT / "fixtures" / "gates" / "blocks-48-to-80.toml"
    run = ROOT / "fixtures" / "runs" / "base-1"
    with pytest.raises(SystemExit) as ended:
        main(["gate", "noise", str(gate), "--run", str(run), "-o", str(tmp_path / "noise.json")])
    assert 2 == ended.value.code
    assert "at least 10 equal runs" in capsys.readouterr().err
    assert [] == list(tmp_path.iterdir())


def test_the_published_profile_of_a_real_engine_is_read() -> None:
    """Twelve runs of vLLM 0.32.0 on one core; docs/gate-quality.md tells their spread."""
    profile = read_profile(ROOT / "fixtures" / "gates" / "noise-0.32.0-cpu.json")
    spread = {entry["field"]: round(entry["sd"], 3) for entry in profile["entries"]}
    assert {"queue_time_us": 0.167, "ttft_us": 0.156, "tpot_us": 0.039, None: 0} == spread
    assert [12] * 4 == [len(entry["values"]) for entry in profile["entries"]]
