"""GuideLLM's reports are read by their requests' own moments, of every schema there was."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from results_files import RECORDED, columns, exact_tpot, rounded, values, write

from collectors.results.guidellm import IN_FLIGHT, PHASES, read
from replay.errors import InputError

NEW = RECORDED / "guidellm-0.8.1" / "constant.json"
WHOLE = [NEW, *(RECORDED / f"guidellm-{v}" / "constant.json" for v in ("0.5.3", "0.3.1"))]
SAMPLED = RECORDED / "guidellm-0.8.1" / "sampled.json"


def row(**timings: Any) -> dict[str, Any]:
    """A request of two tokens, sent at 1000."""
    times = {"request_start": 1000.0, "first_token_iteration": 1000.5}
    usage = {"input_metrics": {"total_tokens": 7}, "output_metrics": {"total_tokens": 3}}
    last = {"last_token_iteration": 1001.5}
    return {"info": {"timings": times | last | timings}} | usage


def report(*rows: dict[str, Any], version: Any = 2, **more: Any) -> dict[str, Any]:
    """A report of one benchmark, these requests successful."""
    requests = {"successful": list(rows), "errored": [], "incomplete": [], "total": None}
    metadata = {"version": version, "guidellm_version": "0.8.1"}
    return {"metadata": metadata, "benchmarks": [{"requests": requests} | more]}


@pytest.mark.parametrize("path", WHOLE, ids=lambda p: p.parent.name)
def test_each_request_has_the_latencies_guidellm_computed_of_it(path: Path) -> None:
    """TTFT and the mean gap without the first token are the project's TTFT and TPOT."""
    (raw,) = values(path)[0]["benchmarks"]
    (found,) = read(path)
    requests = raw["requests"]["successful"]
    for want, (ttft, tpot, prompt, output) in zip(
        requests,
        columns(found.rows, "ttft_us", "tpot_us", "prompt_tokens", "generated_tokens"),
        strict=True,
    ):
        assert ttft == pytest.approx(float(want["time_to_first_token_ms"]) * 1000, abs=1)
        gap = want["inter_token_latency_ms"]
        assert (tpot is None) == (want["output_tokens"] < 2)
        assert tpot is None or tpot == pytest.approx(float(gap) * 1000, abs=1)
        assert (want["prompt_tokens"], want["output_tokens"]) == (prompt, output)


@pytest.mark.parametrize("path", WHOLE, ids=lambda p: p.parent.name)
def test_a_report_whose_keys_somebody_sorted_is_the_same_report(tmp_path: Path, path: Path) -> None:
    """Then the requests come before the version that says how to read them."""
    sorted_ = tmp_path / "sorted.json"
    sorted_.write_text(json.dumps(json.loads(path.read_text()), sort_keys=True))
    (wanted,), (found,) = read(path), read(sorted_)
    assert wanted.rows.equals(found.rows)
    assert wanted.tool_version == found.tool_version


def test_requests_of_another_schema_than_the_reports_are_refused(tmp_path: Path) -> None:
    """No version is guessed: new requests need one, and the old ones had none."""
    new, old = report(row()), report({"start_time": 5.0})
    for bad in ({"benchmarks": new["benchmarks"]}, old):
        with pytest.raises(InputError, match=r"g\.json: metadata must be in a report with such"):
            read(write(tmp_path / "g.json", bad))


@pytest.mark.parametrize("path", WHOLE, ids=lambda p: p.parent.name)
def test_the_reports_own_mean_of_ttft_comes_out_of_the_imported_rows(path: Path) -> None:
    """And no request is lost on the way."""
    (raw,) = values(path)[0]["benchmarks"]
    (found,) = read(path)
    told = raw["metrics"]["time_to_first_token_ms"]["successful"]
    assert told["count"] == found.rows.height
    mean = fmean(found.rows["ttft_us"].to_list())
    assert mean == pytest.approx(float(told["mean"]) * 1000, abs=1)


def test_moments_are_the_texts_own_digits() -> None:
    """Seconds since 1970 become nanoseconds, and differences of them whole microseconds."""
    (raw,) = values(NEW)[0]["benchmarks"]
    (found,) = read(NEW)
    times = [r["info"]["timings"] for r in raw["requests"]["successful"]]
    wanted = [
        (
            rounded(t["request_start"], 10**9),
            rounded(t["first_token_iteration"] - t["request_start"], 10**6),
            rounded(t["last_token_iteration"] - t["request_start"], 10**6),
            exact_tpot(t["first_token_iteration"], t["last_token_iteration"], r["output_tokens"]),
        )
        for r, t in zip(raw["requests"]["successful"], times, strict=True)
    ]
    assert wanted == list(columns(found.rows, "time_ns", "ttft_us", "e2e_us", "tpot_us"))


def test_a_report_says_its_version_model_and_start() -> None:
    """The newest has all three; the oldest had no metadata."""
    new, old = read(NEW)[0], read(WHOLE[-1])[0]
    assert ("0.8.1", "tinymodel") == (new.tool_version, new.model)
    assert (None, "tinymodel") == (old.tool_version, old.model)
    assert "2026-11-30T09:57:25.474613+00:00" == (new.start and new.start.isoformat())


def test_a_request_in_flight_at_the_end_is_in_no_list_and_is_counted() -> None:
    """The recorded report made 24 requests and holds 23."""
    found = read(NEW)[0]
    assert ((IN_FLIGHT,), 1) == (found.notes, found.unseen)
    assert IN_FLIGHT in (found.workload("g", 100).batches.head.provenance or {})["notes"]


def test_a_sample_of_the_requests_is_no_workload() -> None:
    """A recorded report with a sample size is refused, with what it kept."""
    with pytest.raises(InputError, match=r"requests.incomplete must hold all 6 .*, got 3"):
        read(SAMPLED)


def test_recorded_failures_are_attempts_with_their_prompts() -> None:
    """Three prompts were too long: their length is the one GuideLLM meant to send."""
    (found,) = read(RECORDED / "guidellm-0.8.1" / "errored.json")
    result = found.workload("g", 100)
    assert ({"failed": 3}, 13) == (result.attempts_by_reason, len(result.workload))
    assert [1122, 977, 1107] == result.attempts["prompt_tokens"].to_list()
    assert 3 == found.rows["ttft_us"].null_count()


def test_cut_off_requests_are_censored_and_attempts(tmp_path: Path) -> None:
    """Those of the recorded sample, taken for a whole report."""
    raw = json.loads(SAMPLED.read_text())
    made = raw["benchmarks"][0]["scheduler_metrics"]["requests_made"]
    made["incomplete"] = 3
    (found,) = read(write(tmp_path / "g.json", raw))
    assert ["ok"] * 3 + ["censored"] * 3 == found.rows["status"].to_list()
    assert {None} == set(found.rows["e2e_us"].to_list()[3:])
    assert {"censored": 3} == found.workload("g", 10).attempts_by_reason


def test_a_failed_request_keeps_what_is_known_of_it(tmp_path: Path) -> None:
    """An error before the first token, and a request never sent."""
    raw = report(row())
    requests = raw["benchmarks"][0]["requests"]
    requests["errored"] = [row(first_token_iteration=None, last_token_iteration=None)]
    requests["incomplete"] = [row(**dict.fromkeys(row()["info"]["timings"]))]
    (found,) = read(write(tmp_path / "g.json", raw))
    wanted = [("ok", 500_000, 1_500_000), ("error", None, None), ("unsent", None, None)]
    assert wanted == list(columns(found.rows, "status", "ttft_us", "e2e_us"))
    assert [500_000, None, None] == found.rows["tpot_us"].to_list()


@pytest.mark.parametrize(
    ("name", "changes", "message"),
    [
        ("successful", {"status": "errored"}, "info.status must be completed .*, got a string of"),
        ("successful", {"status": "sk-SECRET"}, "info.status must be completed .*, got a string"),
        ("successful", {"error": "sk-SECRET"}, "info.error must be null or false.*, got a string"),
        ("errored", {"status": "completed"}, "info.status must not be completed in this list"),
        ("incomplete", {"status": "completed"}, "info.status must not be completed in this list"),
    ],
)
def test_a_request_that_ended_otherwise_than_its_list_says_is_refused(
    tmp_path: Path, name: str, changes: dict[str, Any], message: str
) -> None:
    """A failure among the successes would count as one."""
    raw, odd = report(row()), row()
    odd["info"] |= changes
    raw["benchmarks"][0]["requests"][name] = [row() | {"info": row()["info"]}, odd]
    with pytest.raises(InputError, match=rf"requests.{name}\[1\]: {message}") as caught:
        read(write(tmp_path / "g.json", raw))
    assert "SECRET" not in str(caught.value)


@pytest.mark.parametrize("key", ["errored", "canceled"])
def test_the_oldest_reports_failures_among_the_successes_are_refused(
    tmp_path: Path, key: str
) -> None:
    """Before there was a status there were flags."""
    raw = json.loads(WHOLE[-1].read_text())
    raw["benchmarks"][0]["requests"]["successful"][3]["scheduler_info"][key] = True
    wanted = rf"requests.successful\[3\]: scheduler_info.{key} must be null or false.*, got true"
    with pytest.raises(InputError, match=wanted):
        read(write(tmp_path / "g.json", raw))


def test_several_rates_are_several_benchmarks(tmp_path: Path) -> None:
    """A sweep makes one after another."""
    raw = report(row())
    raw["benchmarks"] *= 3
    assert 3 == len(read(write(tmp_path / "g.json", raw)))


@pytest.mark.parametrize("version", [1, "1", "2.0", "2.1"])
def test_a_minor_version_is_read(tmp_path: Path, version: Any) -> None:
    """B56: what matters is the major number."""
    assert 1 == len(read(write(tmp_path / "g.json", report(row(), version=version))))


def test_a_warm_up_is_named(tmp_path: Path) -> None:
    """Its requests are in no list."""
    raw = report(row(), config={"warmup": {"percent": 0.1, "value": None, "mode": "x"}})
    assert (PHASES["warmup"],) == read(write(tmp_path / "g.json", raw))[0].notes


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "version": (report(row(), version=3), "metadata.version must be 1 or 2 .*got 3"),
    "version text": (report(row(), version="sk-SECRET"), "metadata.version .*a string of 9"),
    "no version": (report(row(), version=None), "metadata.version must be 1 or 2"),
    "no benchmarks": ({"metadata": {"version": 2}}, "benchmarks must hold at least one"),
    "not a report": ({"a": 1}, "benchmarks must hold at least one"),
    "no requests": (
        {"metadata": {"version": 2}, "benchmarks": [{}]},
        "benchmark 1: requests is required",
    ),
    "no start": (report(row(request_start=None)), "request_start must be a number"),
    "before 1970": (
        report(row(), row(request_start=-5)),
        r"successful\[1\]: info.timings.request_start must be >= 0 \(seconds since 1970\), got -5",
    ),
    "first before start": (
        report(row(first_token_iteration=999.5)),
        r"requests.successful\[0\]: info.timings.first_token_iteration must not be before the req",
    ),
    "last before first": (
        report(row(last_token_iteration=1000.25)),
        "last_token_iteration must not be before the first token",
    ),
    "nan": (report(row(last_token_iteration=float("nan"))), "must be a finite number, got NaN"),
    "tokens": (
        report(row() | {"output_metrics": {"total_tokens": 1.5}}),
        "output_metrics.total_tokens must be an integer, got 1.5",
    ),
    "row": (report({"info": 3}), "info must be an object, got 3"),
    "list": (
        {"metadata": {"version": 2}, "benchmarks": [{"requests": {"successful": 3}}]},
        "requests.successful must be a list",
    ),
    "a list": ([report(row())], "must be an object, got a list"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_report_with_a_quirk_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    """The message names the benchmark, the field and the rule."""
    raw, message = BAD[name]
    with pytest.raises(InputError, match=message) as caught:
        read(write(tmp_path / "g.json", raw))
    assert "SECRET" not in str(caught.value)


def test_two_reports_in_a_file_are_refused(tmp_path: Path) -> None:
    """A report is one value."""
    with pytest.raises(InputError, match="must be one JSON value, got more"):
        read(write(tmp_path / "g.json", report(row()), report(row())))
