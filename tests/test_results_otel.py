"""vLLM's spans are read from what the Collector's file exporter writes, whatever else is there."""

import json
from pathlib import Path
from typing import Any

import pytest
from results_files import FILES, RECORDED, columns, exact_tpot, rounded, values, write

from collectors.results.otel import CUT, TWICE, read
from replay.errors import InputError

NEW = RECORDED / "otel" / "vllm-0.32.0.jsonl"
LATENCY = "gen_ai.latency."


def span(name: str = "llm_request", **changes: Any) -> dict[str, Any]:
    """A span of three tokens; `changes` are its attributes by the end of their names."""
    numbers: dict[str, Any] = {
        "gen_ai.latency.time_to_first_token": 0.5,
        "gen_ai.latency.e2e": 1.5,
        "gen_ai.latency.time_in_queue": 0.25,
        "gen_ai.latency.time_in_model_decode": 1,
        "gen_ai.usage.prompt_tokens": "7",
        "gen_ai.usage.completion_tokens": "3",
    }
    for end, value in changes.items():
        key = next(key for key in numbers if key.endswith(end))
        numbers[key] = value
    attributes = [
        {"key": key, "value": {"intValue" if isinstance(value, str) else "doubleValue": value}}
        for key, value in numbers.items()
        if value is not None
    ]
    ids = {"traceId": "5b8efff798038103d269b633813fc60c", "spanId": "eee19b7ec3c1b174"}
    return ids | {"name": name, "startTimeUnixNano": "1" + "0" * 18, "attributes": attributes}


def export(*spans: dict[str, Any]) -> dict[str, Any]:
    """One line of a file."""
    return {"resourceSpans": [{"resource": {}, "scopeSpans": [{"scope": {}, "spans": [*spans]}]}]}


@pytest.mark.parametrize("path", FILES["otel"], ids=lambda p: p.stem)
def test_every_number_of_a_recorded_file_is_what_fractions_make_of_its_text(path: Path) -> None:
    """Seconds become microseconds once; TPOT is the engine's decode time over its gaps."""
    found = [
        one
        for line in values(path)
        for resource in line["resourceSpans"]
        for scope in resource["scopeSpans"]
        for one in scope["spans"]
        if one["name"] == "llm_request"
    ]
    names = ("ttft_us", "e2e_us", "queue_time_us", "prefill_time_us", "decode_time_us")
    (measured,) = read(path)
    for raw, got in zip(
        found,
        columns(measured.rows, "time_ns", "prompt_tokens", "generated_tokens", "tpot_us", *names),
        strict=True,
    ):
        told = {a["key"]: next(iter(a["value"].values())) for a in raw["attributes"]}
        parts = ("time_to_first_token", "e2e", "time_in_queue")
        parts += ("time_in_model_prefill", "time_in_model_decode")
        us = [rounded(told[LATENCY + part], 10**6) for part in parts]
        prompt, output = (int(told[f"gen_ai.usage.{k}_tokens"]) for k in ("prompt", "completion"))
        per_token = exact_tpot(0, told[LATENCY + parts[-1]], output)
        assert (int(raw["startTimeUnixNano"]), prompt, output, per_token, *us) == got


def test_a_recorded_file_gives_its_requests_and_nothing_else() -> None:
    """Two of the 24 are one call with n=2, which the engine served as two requests."""
    (found,) = read(NEW)
    result = found.workload("o", 100)
    ties = [r.arrival_us for r in result.workload.requests][-2:]
    assert (24, 1) == (len(result.workload), len(set(ties)))
    assert (None, None, ()) == (found.model, found.engine_version, found.notes)


def test_other_spans_metrics_and_logs_are_stepped_over(tmp_path: Path) -> None:
    """A file can hold all that a Collector received."""
    lines = ({"resourceMetrics": [{"a": 1}]}, {"resourceLogs": []}, export(span("GET /metrics")))
    (found,) = read(write(tmp_path / "o.jsonl", *lines, export(span())))
    assert [(1, 500_000)] == list(columns(found.rows, "line", "ttft_us"))


def test_a_span_written_twice_counts_once(tmp_path: Path) -> None:
    """An exporter that tried again; that is said."""
    (found,) = read(write(tmp_path / "o.jsonl", export(span()), export(span())))
    assert (1, (TWICE,)) == (found.rows.height, found.notes)


def test_span_ids_that_come_twice_are_no_proof(tmp_path: Path) -> None:
    """The engine seeds the generator they come from: another request has the same."""
    (found,) = read(write(tmp_path / "o.jsonl", export(span(), span(e2e=1.75))))
    assert (2, ()) == (found.rows.height, found.notes)


def test_integers_may_be_numbers_or_texts(tmp_path: Path) -> None:
    """OTLP's own examples have numbers, the Collector writes texts."""
    raw = span()
    raw["startTimeUnixNano"] = int(raw["startTimeUnixNano"])
    for attribute in raw["attributes"]:
        value = attribute["value"]
        if "intValue" in value:
            value["intValue"] = int(value["intValue"])
    lines = [read(write(tmp_path / "o.jsonl", export(one)))[0].rows for one in (raw, span())]
    assert lines[0].equals(lines[1])


def test_a_last_line_cut_by_a_crash_is_left_out_and_said(tmp_path: Path) -> None:
    """Anywhere else it is a fault."""
    path = write(tmp_path / "o.jsonl", export(span()), export(span(e2e=2.0)))
    whole = path.read_text()
    path.write_text(whole[:-50])
    (found,) = read(path)
    assert (1, (CUT,)) == (found.rows.height, found.notes)
    path.write_text(whole[:-50] + "\n" + json.dumps(export(span())))
    with pytest.raises(InputError, match=r"o\.jsonl:2: must be JSON, got the end of the file"):
        read(path)


def test_the_last_line_may_be_cut_at_every_byte(tmp_path: Path) -> None:
    """Inside a text, an escape, a word, a number or a key: what is there is left out and said."""
    more = ', "x": [true, false, null, -1.5e-3, "q\\"\\u00e9\\\\", NaN, -Infinity]}'
    line = json.dumps(export(span()))
    path, cut = tmp_path / "o.jsonl", line[:-1] + more
    for length in range(1, len(cut)):
        path.write_text(f"{line}\n{cut[:length]}")
        (found,) = read(path)
        assert (1, (CUT,)) == (found.rows.height, found.notes)


def test_a_finished_request_without_a_token_has_no_latency(tmp_path: Path) -> None:
    """The engine writes 0 then, which is not one."""
    raw = span(completion_tokens="0", time_to_first_token=0.0, e2e=2.5)
    (found,) = read(write(tmp_path / "o.jsonl", export(raw, span())))
    assert [None, 500_000] == found.rows["ttft_us"].to_list()
    assert {"no_output": 1} == found.workload("o", 10).attempts_by_reason


BAD: dict[str, tuple[Any, str]] = {
    "no spans": ({"a": 1}, "resourceSpans must hold resourceSpans .*file exporter with format"),
    "none of vLLM": (export(span("other")), "must hold a span llm_request, got none"),
    "a list": ([], "must be an object, got a list"),
    "not a list": ({"resourceSpans": {}}, "resourceSpans must be a list, got an object"),
    "no tokens": (export(span(completion_tokens=None)), "completion_tokens is required in a span"),
    "no e2e": (export(span(e2e=None)), "gen_ai.latency.e2e is required"),
    "e2e before TTFT": (
        export(span(time_to_first_token=9.0)),
        "e2e must be at least gen_ai.latency.time_to_first_token, got less",
    ),
    "negative": (export(span(e2e=-1.0)), "gen_ai.latency.e2e must be >= 0, got -1.0"),
    "nan": (export(span(e2e=float("nan"))), "gen_ai.latency.e2e must be a finite number, got NaN"),
    "nan as text": (
        export(span(time_in_queue="NaN")),
        "time_in_queue must be a finite number, got NaN",
    ),
    "text": (export(span(prompt_tokens="sk-SECRET")), "prompt_tokens must be an integer, got a s"),
    "start": (export(span() | {"startTimeUnixNano": "-5"}), "startTimeUnixNano must be an integ"),
    "twice": (
        export(span() | {"attributes": span()["attributes"] * 2}),
        "must be there once, got twice",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_with_a_quirk_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    """The message names the line, the attribute and the rule."""
    raw, message = BAD[name]
    with pytest.raises(InputError, match=message) as caught:
        read(write(tmp_path / "o.jsonl", raw))
    assert "SECRET" not in str(caught.value)
