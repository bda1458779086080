"""inference-perf's per-request reports are read by their chunks' times and the server's counts."""

import json
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
from results_files import FILES, RECORDED, columns, exact_tpot, rounded, values, write

from collectors.results.inference_perf import read
from replay.errors import InputError

NEW = RECORDED / "inference-perf-0.7.0"
FAILED = NEW / "failures-two-stages.per_request_lifecycle_metrics.json"
USAGE = {"prompt_tokens": 7, "completion_tokens": 3, "total_tokens": 10}


def entry(**changes: Any) -> dict[str, Any]:
    """An entry of three streamed tokens, some keys of it replaced."""
    answer = {"output_tokens": 4, "server_usage": USAGE, "chunk_times": [10.5, 10.75, 11.5]}
    info = {"request_metrics": {"text": {"input_tokens": 6}}, "response_metrics": answer}
    whole = {"start_time": 10.0, "end_time": 12.0, "request": "{}", "info": info, "error": None}
    return whole | changes


def answered(**changes: Any) -> dict[str, Any]:
    """`entry`, with changes to its response; None takes a key away."""
    whole = entry()
    answer = whole["info"]["response_metrics"] | changes
    kept = {key: value for key, value in answer.items() if value is not None}
    whole["info"]["response_metrics"] = kept
    return whole


@pytest.mark.parametrize("path", FILES["inference-perf"], ids=lambda p: p.name.partition(".")[0])
def test_every_number_of_a_recorded_file_is_what_fractions_make_of_its_text(path: Path) -> None:
    """Seconds are subtracted as they are written, and rounded once."""
    (found,) = read(path)
    names = (
        "time_ns",
        "ttft_us",
        "e2e_us",
        "prompt_tokens",
        "generated_tokens",
        "status",
        "tpot_us",
    )
    for raw, got in zip(values(path)[0], columns(found.rows, *names), strict=True):
        sent = raw["start_time"]
        answer = raw["info"]["response_metrics"] or {}
        chunks = answer.get("chunk_times") or [None]
        us = [None if t is None else rounded(t - sent, 10**6) for t in (chunks[0], chunks[-1])]
        usage = answer.get("server_usage") or {}
        prompt = usage.get("prompt_tokens", raw["info"]["input_tokens"])
        per_token = exact_tpot(chunks[0], chunks[-1], usage.get("completion_tokens"))
        ended = (us, usage.get("completion_tokens"), "ok", per_token)
        if raw["error"]:
            ended = ([us[0], None], answer.get("output_tokens"), "error", None)
        assert (rounded(sent, 10**9), *ended[0], prompt, *ended[1:]) == got


@pytest.mark.parametrize("path", FILES["inference-perf"], ids=lambda p: p.name.partition(".")[0])
def test_the_tools_own_mean_of_ttft_comes_out_of_the_imported_rows(path: Path) -> None:
    """The tool leaves out answers of one token, whose TTFT is known here."""
    summary = json.loads(path.with_name(path.name.replace("per_request", "summary")).read_text())
    (found,) = read(path)
    several = [
        len(raw["info"]["response_metrics"]["output_token_times"]) > 1
        for raw in values(path)[0]
        if not raw["error"]
    ]
    ok = found.rows.filter(found.rows["status"] == "ok")["ttft_us"].to_list()
    us = [t for t, more in zip(ok, several, strict=True) if more]
    assert summary["time_to_first_token"]["mean"] * 10**6 == pytest.approx(fmean(us), abs=1)


def test_tpot_is_the_tools_own_where_both_count_alike() -> None:
    """Where the client counted other tokens than the server, the server's are right."""
    path = NEW / "computed-fields.per_request_lifecycle_metrics.json"
    (found,) = read(path)
    alike = 0
    for raw, (tpot, _) in zip(values(path)[0], columns(found.rows, "tpot_us", "line"), strict=True):
        answer = raw["info"]["response_metrics"]
        if answer["output_tokens"] == answer["server_usage"]["completion_tokens"]:
            alike += 1
            told = raw["computed_metrics"]["time_per_output_token"]
            assert (tpot is None) == (told is None)
            assert tpot is None or tpot == pytest.approx(float(told) * 10**6, abs=1)
    assert alike


def test_failures_are_attempts_and_the_earliest_send_is_zero_all_the_same() -> None:
    """Ten answers of HTTP Error 400; a failed one was the first."""
    (found,) = read(FAILED)
    result = found.workload("i", 100)
    assert ({"failed": 10}, 10) == (result.attempts_by_reason, len(result.workload))
    assert 30_451 == result.workload.requests[0].arrival_us
    assert 0 == result.attempts["arrival_us"].min()


def test_without_usage_counts_are_the_clients_and_tpot_is_null(tmp_path: Path) -> None:
    """A workload is possible, a latency per token is not."""
    (found,) = read(write(tmp_path / "i.json", [answered(server_usage=None)]))
    names = ("prompt_tokens", "generated_tokens", "ttft_us", "tpot_us", "e2e_us")
    assert [(6, 4, 500_000, None, 1_500_000)] == list(columns(found.rows, *names))


def test_an_answer_that_was_not_streamed_ends_with_its_response(tmp_path: Path) -> None:
    """Its last token came then; of its first nothing is known."""
    (found,) = read(write(tmp_path / "i.json", [answered(chunk_times=None)]))
    assert [(None, None, 2_000_000)] == list(columns(found.rows, "ttft_us", "tpot_us", "e2e_us"))


def test_the_anthropic_spelling_of_usage_is_read(tmp_path: Path) -> None:
    """input_tokens and output_tokens."""
    usage = {"input_tokens": 9, "output_tokens": 2}
    (found,) = read(write(tmp_path / "i.json", [answered(server_usage=usage)]))
    assert [(9, 2)] == list(columns(found.rows, "prompt_tokens", "generated_tokens"))


BAD: dict[str, tuple[Any, str]] = {
    "summary": ({"successes": {}}, "must be a list of requests: per_request_lifecycle_metrics"),
    "empty": ([], "must hold at least one request"),
    "number": ([3], r"\[0\] must be an object, got 3"),
    "no info": ([entry(), entry(info=None)], r"request 2: info is required .*fields.info: true"),
    "no start": ([entry(start_time=None)], "start_time must be a finite number, got null"),
    "nan": ([entry(end_time=float("nan"))], "end_time must be a finite number, got NaN"),
    "end": ([entry(end_time=9.0)], "end_time must not be before the request was sent, got -1.0"),
    "chunk": ([answered(chunk_times=[9.0, 11.0])], "chunk_times must not be before the request"),
    "late": ([answered(chunk_times=[10.5, 99.0])], "chunk_times must not be after end_time"),
    "fall": ([answered(chunk_times=[11.0, 10.5])], "chunk_times must not fall"),
    "text": ([answered(chunk_times=["sk-SECRET"])], "chunk_times must be a finite number, got a s"),
    "tokens": (
        [answered(server_usage={"prompt_tokens": -1})],
        "server_usage.prompt_tokens must be >= 0, got -1",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_report_with_a_quirk_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    """The message names the request, the field and the rule."""
    raw, message = BAD[name]
    with pytest.raises(InputError, match=message) as caught:
        read(write(tmp_path / "i.json", raw))
    assert "SECRET" not in str(caught.value)
