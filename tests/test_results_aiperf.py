"""AIPerf's records are read with their units, and its own aggregates come out again."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from results_files import FILES, RECORDED, columns, exact_tpot, rounded, values, write

from collectors.results.aiperf import TWICE, read
from replay.errors import InputError

NEW = RECORDED / "aiperf-0.13.0" / "ok.profile_export.jsonl"
FAILED = RECORDED / "aiperf-0.13.0" / "failures-cancellations.profile_export.jsonl"


def record(**changes: Any) -> dict[str, Any]:
    """A record of 3 tokens; `metadata` and `metrics` are changed, other keys replaced."""
    metadata = {"request_start_ns": 10**18, "benchmark_phase": "profiling", "was_cancelled": False}
    metrics = {
        "time_to_first_token": {"value": 1.5, "unit": "ms"},
        "request_latency": {"value": 3.5, "unit": "ms"},
        "usage_prompt_tokens": {"value": 7, "unit": "tokens"},
        "usage_completion_tokens": {"value": 3, "unit": "tokens"},
    }
    metadata |= changes.pop("metadata", {})
    metrics |= changes.pop("metrics", {})
    return {"metadata": metadata, "metrics": metrics} | changes


@pytest.mark.parametrize("path", FILES["aiperf"], ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_every_number_of_a_recorded_file_is_what_fractions_make_of_its_text(path: Path) -> None:
    """Milliseconds are rounded to microseconds once; the server's counts win."""
    (found,) = read(path)
    names = ("time_ns", "ttft_us", "e2e_us", "prompt_tokens", "generated_tokens", "tpot_us")
    for raw, got in zip(values(path), columns(found.rows, *names, "status"), strict=True):
        metrics = {name: m["value"] for name, m in raw["metrics"].items()}
        times = [metrics.get(name) for name in ("time_to_first_token", "request_latency")]
        counts = [
            metrics.get(f"usage_{usage}_tokens", metrics.get(f"{own}_sequence_length"))
            for usage, own in (("prompt", "input"), ("completion", "output"))
        ]
        status = "error" if raw.get("error") else "ok"
        status = "aborted" if raw["metadata"]["was_cancelled"] else status
        us = [None if t is None else rounded(t, 1000) for t in times]
        first, last = (None if t is None else t / 1000 for t in times)
        per_token = exact_tpot(first, last, metrics.get("usage_completion_tokens"))
        assert (raw["metadata"]["request_start_ns"], *us, *counts, per_token, status) == got


@pytest.mark.parametrize("path", FILES["aiperf"], ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_the_tools_own_aggregates_come_out_of_the_imported_rows(path: Path) -> None:
    """Means of TTFT and request latency over the successes, and how many there were."""
    aggregate = json.loads(path.with_name(f"{path.stem}_aiperf.json").read_text())
    (found,) = read(path)
    rows = found.rows.filter(found.rows["status"] == "ok")
    assert aggregate["request_count"]["avg"] == rows.height
    for key, column in (("time_to_first_token", "ttft_us"), ("request_latency", "e2e_us")):
        mean = fmean(rows[column].to_list())
        assert aggregate[key]["avg"] * 1000 == pytest.approx(mean, abs=1)


def test_tpot_is_of_the_servers_tokens_and_null_without_them() -> None:
    """It is the tool's own where both count alike; 0.5.0 recorded no usage."""
    (found,) = read(NEW)
    alike = 0
    for raw, (tpot, _) in zip(values(NEW), columns(found.rows, "tpot_us", "line"), strict=True):
        metrics = {name: m["value"] for name, m in raw["metrics"].items()}
        if metrics["usage_completion_tokens"] == metrics["output_sequence_length"]:
            alike += 1
            assert tpot == pytest.approx(float(metrics["inter_token_latency"]) * 1000, abs=1)
    assert 5 == alike
    (old,) = read(RECORDED / "aiperf-0.5.0" / "ok.profile_export.jsonl")
    assert {None} == set(old.rows["tpot_us"])
    assert 20 == len(old.workload("a", 100).workload)


def test_failures_and_cancellations_are_attempts() -> None:
    """Their records have no lengths at all."""
    (found,) = read(FAILED)
    result = found.workload("a", 100)
    assert ({"aborted": 5, "failed": 3}, 16) == (result.attempts_by_reason, len(result.workload))
    assert {None} == set(result.attempts["prompt_tokens"])


def test_a_warm_up_is_part_of_neither_workload_nor_latencies(tmp_path: Path) -> None:
    """It is counted as an attempt."""
    warm = record(metadata={"benchmark_phase": "warmup"})
    (found,) = read(write(tmp_path / "a.jsonl", warm, record()))
    result = found.workload("a", 10)
    assert ({"warmup": 1}, 1) == (result.attempts_by_reason, len(result.workload))


def test_a_record_that_comes_twice_counts_once_and_that_is_said(tmp_path: Path) -> None:
    """The same id and the same numbers; an id alone is no proof, and neither are numbers."""
    named, other = ({"x_request_id": name} for name in ("a", "b"))
    lines = [record(metadata=named), record(metadata=other), record(metadata=named)]
    (found,) = read(write(tmp_path / "a.jsonl", *lines))
    assert ([1, 2], (TWICE,)) == (found.rows["line"].to_list(), found.notes)
    assert TWICE in (found.workload("a", 10).batches.head.provenance or {})["notes"]
    late = record(metadata=named | {"request_start_ns": 10**18 + 5})
    (found,) = read(write(tmp_path / "a.jsonl", record(metadata=named), late, record(), record()))
    assert (4, ()) == (found.rows.height, found.notes)


@pytest.mark.parametrize("path", FILES["aiperf"], ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_the_aggregate_is_refused_with_the_name_of_the_file_that_is_wanted(
    tmp_path: Path, path: Path
) -> None:
    """As AIPerf writes it, and on one line."""
    aggregate = path.with_name(f"{path.stem}_aiperf.json")
    on_a_line = write(tmp_path / "a.json", json.loads(aggregate.read_text()))
    for one in (aggregate, on_a_line):
        with pytest.raises(InputError, match=r"profile_export\.jsonl \(--export-level records\)"):
            read(one)


@pytest.mark.parametrize(
    ("value", "unit"), [(1_500_000, "ns"), (1500, "us"), (1.5, "ms"), (0.0015, "sec")]
)
def test_a_known_unit_is_converted(tmp_path: Path, value: float, unit: str) -> None:
    """Every metric names its own."""
    changed = {"time_to_first_token": {"value": value, "unit": unit}}
    (found,) = read(write(tmp_path / "a.jsonl", record(metrics=changed)))
    assert [1500] == found.rows["ttft_us"].to_list()


def test_an_answer_that_was_not_streamed_has_no_ttft(tmp_path: Path) -> None:
    """And so no TPOT; null is not 0."""
    raw = record()
    del raw["metrics"]["time_to_first_token"]
    (found,) = read(write(tmp_path / "a.jsonl", raw))
    assert [(None, None, 3500)] == list(columns(found.rows, "ttft_us", "tpot_us", "e2e_us"))


BAD: dict[str, tuple[Any, str]] = {
    "unit": (
        record(metrics={"request_latency": {"value": 1, "unit": "minutes"}}),
        "metrics.request_latency.unit must be one of ns, us, ms, sec, s, got a string of 7",
    ),
    "no unit": (record(metrics={"request_latency": {"value": 9}}), "request_latency.unit must be"),
    "token unit": (
        record(metrics={"usage_prompt_tokens": {"value": 1, "unit": "KB"}}),
        "usage_prompt_tokens.unit must be one of tokens",
    ),
    "negative": (
        record(metrics={"request_latency": {"value": -1.0, "unit": "ms"}}),
        "metrics.request_latency.value must be >= 0, got -1.0",
    ),
    "nan": (
        record(metrics={"request_latency": {"value": float("nan"), "unit": "ms"}}),
        "metrics.request_latency.value must be a finite number, got NaN",
    ),
    "list": (
        record(metrics={"request_latency": {"value": [1], "unit": "ms"}}),
        "metrics.request_latency.value must be a single value, got a list",
    ),
    "latency": (
        record(metrics={"request_latency": {"value": 1.0, "unit": "ms"}}),
        "request_latency must be at least time_to_first_token",
    ),
    "no start": (
        record(metadata={"request_start_ns": None}),
        "metadata.request_start_ns must be an integer, got null",
    ),
    "float start": (record(metadata={"request_start_ns": 1e18}), "must be an integer"),
    "phase": (record(metadata={"benchmark_phase": "sk-SECRET"}), "benchmark_phase must be one of"),
    "cancelled": (record(metadata={"was_cancelled": "no"}), "was_cancelled must be true or false"),
    "no metrics": ({"metadata": {"request_start_ns": 1}}, "metrics is required in AIPerf's"),
    "raw export": ({"metadata": {}, "payload": {}, "responses": []}, "metrics is required in AIP"),
    "a list": ([], "must be an object, got a list"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_record_with_a_quirk_is_refused_by_line_and_field(tmp_path: Path, name: str) -> None:
    """The second line is the bad one."""
    raw, message = BAD[name]
    path = write(tmp_path / "a.jsonl", record(), raw)
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert f"{path}:2" == caught.value.place
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("tail", ["{} {}", '{"metadata": {', "nonsense"])
def test_a_line_that_is_not_one_value_is_refused(tmp_path: Path, tail: str) -> None:
    """A cut line, too: AIPerf writes each whole."""
    path = write(tmp_path / "a.jsonl", record())
    path.write_text(path.read_text() + "\n" + tail)
    with pytest.raises(InputError, match=r"a\.jsonl:2: "):
        read(path)
