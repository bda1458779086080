"""Result files of `vllm bench serve` are read exactly: the file's own summary comes out again."""

import gzip
import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from statistics import fmean, median, pstdev
from typing import Any

import pytest
from results_files import FILES, RECORDED, columns, exact_tpot, rounded, values, write

from collectors.results.rows import Measured
from collectors.results.vllm_bench import read
from replay.errors import InputError

OLD, NEW = RECORDED / "vllm-0.17.1", RECORDED / "vllm-0.32.0"
DETAILED = [path for path in FILES["vllm-bench"] if path.stem != "summary"]
APPENDED = NEW / "appended.json"
FAILURES = NEW / "failures-too-long.json"


def ids(path: Path) -> str:
    """Release and name of a recorded file."""
    return f"{path.parent.name}/{path.stem}"


def bench(**changes: Any) -> dict[str, Any]:
    """A result of three requests, the second failed; a change to None takes the key away."""
    whole: dict[str, Any] = {
        "date": "20261130-100000",
        "backend": "openai",
        "model_id": "m",
        "num_prompts": 3,
        "request_rate": "inf",
        "completed": 2,
        "failed": 1,
        "input_lens": [10, 20, 30],
        "output_lens": [3, 0, 1],
        "ttfts": [0.5, 0.0, 0.25],
        "itls": [[0.25, 0.25], [], []],
        "latencies": [1.0, 0.0, 0.25],
        "start_times": [100.5, 100.0, 102.25],
        "queue_times": [0.0, 0.0, 0.0],
        "generated_texts": ["a", "", "b"],
        "errors": ["", "Bad Request", ""],
    }
    return {key: value for key, value in (whole | changes).items() if value is not None}


def one(tmp_path: Path, **changes: Any) -> Measured:
    """The result of `bench`, read."""
    (found,) = read(write(tmp_path / "r.json", bench(**changes)))
    return found


@pytest.mark.parametrize("path", DETAILED, ids=ids)
def test_every_number_of_a_recorded_file_is_what_fractions_make_of_its_text(path: Path) -> None:
    """Times are the text's own digits, rounded once, half to even."""
    for raw, found in zip(values(path), read(path), strict=True):
        sent = [rounded(t, 10**9) for t in raw["start_times"]]
        assert sent == found.rows["time_ns"].to_list()
        assert raw["input_lens"] == found.rows["prompt_tokens"].to_list()
        ok = [not e and n > 0 for e, n in zip(raw["errors"], raw["output_lens"], strict=True)]
        assert ok == (found.rows["status"] == "ok").to_list()
        assert [n if good else None for n, good in zip(raw["output_lens"], ok, strict=True)] == (
            found.rows["generated_tokens"].to_list()
        )
        ttfts = [rounded(t, 10**6) if t else None for t in raw["ttfts"]]
        assert ttfts == found.rows["ttft_us"].to_list()
        whole = raw.get("latencies") or [
            t + sum(gaps) for t, gaps in zip(raw["ttfts"], raw["itls"], strict=True)
        ]
        e2e = [rounded(t, 10**6) if good else None for t, good in zip(whole, ok, strict=True)]
        assert e2e == found.rows["e2e_us"].to_list()
        each = zip(raw["ttfts"], whole, raw["output_lens"], ok, strict=True)
        tpots = [exact_tpot(t, e, n) if good else None for t, e, n, good in each]
        assert tpots == found.rows["tpot_us"].to_list()


@pytest.mark.parametrize("path", [p for p in DETAILED if p.stem != "all-failed"], ids=ids)
def test_the_files_own_summary_comes_out_of_the_imported_rows(path: Path) -> None:
    """Counts, token sums, and mean, median and deviation of TTFT and TPOT, to the microsecond."""
    for raw, found in zip(values(path), read(path), strict=True):
        rows = found.rows.filter(found.rows["status"] == "ok")
        assert (raw["completed"], raw["failed"]) == (rows.height, found.rows.height - rows.height)
        assert raw["total_input_tokens"] == rows["prompt_tokens"].sum()
        assert raw["total_output_tokens"] == rows["generated_tokens"].sum()
        for name in ("ttft", "tpot"):
            us = rows[f"{name}_us"].drop_nulls().to_list()
            wanted = [float(raw[f"{kind}_{name}_ms"]) * 1000 for kind in ("mean", "median", "std")]
            # In chat 0.17.1 counted the usage chunk into its latency, and kept no latencies.
            usage_chunk = name == "tpot" and path == OLD / "chat-concurrency.json"
            within = 200 if usage_chunk else 1
            assert wanted == pytest.approx([fmean(us), median(us), pstdev(us)], abs=within)


def test_a_workload_has_the_sends_as_they_were_and_the_failures_beside_it() -> None:
    """Arrivals count from the earliest send, ids from 0; what failed is an attempt."""
    (raw,) = values(FAILURES)
    (found,) = read(FAILURES)
    result = found.workload("r.json", 1000)
    ok = [k for k, error in enumerate(raw["errors"]) if not error]
    zero = min(raw["start_times"])
    arrivals = [int((raw["start_times"][k] - zero) * 10**6) for k in ok]
    requests = result.workload.requests
    assert sorted(arrivals) == [r.arrival_us for r in requests]
    assert [raw["input_lens"][k] for k in ok] == [r.prompt_tokens for r in requests]
    assert [raw["output_lens"][k] for k in ok] == [r.output_tokens for r in requests]
    wanted = [f"{k:08d}-vllm-bench" for k in range(len(ok))]
    assert wanted == [r.request_id for r in requests]
    failed = [k + 1 for k, error in enumerate(raw["errors"]) if error]
    assert ({"failed": len(failed)}, failed) == (
        result.attempts_by_reason,
        result.attempts["source_row"].to_list(),
    )


def test_appended_results_are_several_benchmarks() -> None:
    """--append-result puts objects after each other; each is one, in the file's order."""
    wanted = [raw["input_lens"] for raw in values(APPENDED)]
    assert wanted == [found.rows["prompt_tokens"].to_list() for found in read(APPENDED)]
    assert 2 == len(wanted)


def test_gzip_is_read_alike(tmp_path: Path) -> None:
    """A packed file is known by its first bytes."""
    packed = tmp_path / "r"
    packed.write_bytes(gzip.compress(FAILURES.read_bytes()))
    assert read(FAILURES)[0].rows.equals(read(packed)[0].rows)


def test_a_failure_is_known_by_its_error_or_its_emptiness_never_by_a_value(tmp_path: Path) -> None:
    """B46: an error with tokens after it, and a silent one without a token, both failed."""
    found = one(
        tmp_path,
        errors=["Traceback", "", ""],
        ttfts=[0.5, 0.0, 0.0],
        output_lens=[0, 0, 1],
        itls=[[0.1], [], []],
        latencies=[0.0, 0.0, 0.0],
        completed=1,
        failed=2,
    )
    wanted = [("error", None, 500_000, None), ("error", None, None, None), ("ok", 1, None, None)]
    names = ("status", "generated_tokens", "ttft_us", "e2e_us")
    assert wanted == list(columns(found.rows, *names))


def test_tpot_is_rounded_once_from_the_files_own_digits() -> None:
    """A recorded request of 5.499 us a token is not 6, as its rounded latencies would make it."""
    (found,) = read(NEW / "timed-trace.json")
    assert 5 == found.rows["tpot_us"][2]


def test_a_success_without_a_first_chunks_time_keeps_its_end_to_end_latency(tmp_path: Path) -> None:
    """`ttfts` 0.0 says nothing of `latencies`."""
    found = one(tmp_path, ttfts=[0.0, 0.0, 0.25])
    wanted = [(None, None, 1_000_000), (None, None, None), (250_000, None, 250_000)]
    assert wanted == list(columns(found.rows, "ttft_us", "tpot_us", "e2e_us"))


def test_totals_that_agree_or_are_no_numbers_are_read(tmp_path: Path) -> None:
    """A user's `--metadata` can have put a text under their names."""
    agree: dict[str, Any] = {"total_input_tokens": 40, "total_output_tokens": 4, "num_prompts": 9}
    texts = dict.fromkeys(("failed", *agree), "x") | {"total_output_tokens": {"a": [1]}}
    assert one(tmp_path, **agree).rows.equals(one(tmp_path, **texts).rows)


def test_a_success_without_a_token_is_one_if_the_tool_counted_it(tmp_path: Path) -> None:
    """`completed` says so; the workload has no use for it all the same."""
    found = one(tmp_path, errors=["", "", ""], completed=3, failed=0)
    assert ["ok", "ok", "ok"] == found.rows["status"].to_list()
    assert {"no_output": 1} == found.workload("r", 10).attempts_by_reason


def test_without_latencies_they_are_ttft_and_the_gaps(tmp_path: Path) -> None:
    """Releases without `latencies`: the sum is exact, not of rounded parts."""
    gaps = [[Decimal("0.0000003")] * 3, [], []]
    text = json.dumps(bench(latencies=None, ttfts=[0.0000003, 0.0, 0.25]), default=float)
    raw = json.loads(text) | {"itls": [[float(gap) for gap in row] for row in gaps]}
    (found,) = read(write(tmp_path / "r.json", raw))
    assert [1, None, 250_000] == found.rows["e2e_us"].to_list()


def test_all_failed_is_no_workload_and_no_zeros() -> None:
    """B47: there is nothing to replay, and no latency of 0."""
    (found,) = read(NEW / "all-failed.json")
    assert {"error"} == set(found.rows["status"])
    assert [None] * 5 == found.rows["ttft_us"].to_list()
    with pytest.raises(InputError, match="at least one request that ended well, got 5 that did"):
        found.workload("r.json", 100)


def test_a_request_that_was_never_sent_has_no_moment(tmp_path: Path) -> None:
    """The tool writes 0.0 for it; it must not become the zero of all others."""
    found = one(tmp_path, start_times=[100.5, 0.0, 102.25])
    result = found.workload("r", 10)
    assert [0, 1_750_000] == [r.arrival_us for r in result.workload.requests]
    assert [None] == result.attempts["arrival_us"].to_list()


def test_user_metadata_is_stepped_over_whatever_it_is(tmp_path: Path) -> None:
    """--metadata writes any key at top level; NaN where nobody reads breaks nothing."""
    odd = {"team": {"deep": [[[1]], {"x": None}]}, "rtfx": float("nan"), "big": 'NaN \\" Infinity'}
    assert one(tmp_path).rows.equals(one(tmp_path, **odd).rows)


BAD: dict[str, tuple[dict[str, Any], str]] = {
    "summary only": (dict.fromkeys(("input_lens", "errors")), "input_lens, errors must be there"),
    "no send times": ({"start_times": None}, "start_times must be there: record it with vllm"),
    "shorter": ({"ttfts": [0.1]}, "ttfts must have 3 entries, as start_times has, got 1"),
    "longer": ({"itls": [[]] * 4}, "itls must have 3 entries"),
    "not a list": ({"ttfts": 3}, "ttfts must be a list, got 3"),
    "object inside": ({"ttfts": [0.1, {"a": 1}, 0.1]}, "ttfts must hold single values, got an obj"),
    "negative": ({"ttfts": [0.1, -0.5, 0.1]}, r"ttfts\[1\] must be >= 0, got -0.5"),
    "negative gap": ({"itls": [[0.1, -0.1], [], []]}, r"itls\[0\] must be >= 0"),
    "nan": ({"ttfts": [0.1, float("nan"), 0.1]}, r"ttfts\[1\] must be a finite number, got NaN"),
    "infinity": ({"latencies": [1.0, float("-inf"), 1.0]}, r"latencies\[1\] .*got -Infinity"),
    "inf as text": ({"start_times": [1.0, "inf", 1.0]}, r"start_times\[1\] must be a finite num"),
    "null": ({"ttfts": [None, 0.0, 0.1]}, r"ttfts\[0\] must be a finite number, got null"),
    "boolean": ({"ttfts": [True, 0.0, 0.1]}, r"ttfts\[0\] must be a finite number, got true"),
    "float tokens": (
        {"output_lens": [3.5, 0, 1]},
        r"output_lens\[0\] must be an integer, got 3\.5",
    ),
    "huge": ({"start_times": [1e300, 1.0, 1.0]}, r"start_times\[0\] must be below"),
    "error no text": ({"errors": ["", 4, ""]}, r"errors\[1\] must be a text, got 4"),
    "count": ({"completed": 3}, "completed must be 2, the requests without an error, got 3"),
    "e2e before": ({"latencies": [0.1, 0.0, 0.25]}, r"latencies\[0\] must be at least ttfts"),
    "failed": ({"failed": 2}, "failed must be 1, the requests that are not completed, got 2"),
    "output": ({"total_output_tokens": 4.5}, "total_output_tokens must be 4, the .*, got"),
    "no model": ({"model_id": None}, "model_id is required in a result of vllm bench serve"),
    "model": ({"model_id": ["m"]}, "model_id must be a single value, got a list"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_file_with_a_quirk_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    """The message names the array and the rule."""
    changes, message = BAD[name]
    with pytest.raises(InputError, match=message):
        one(tmp_path, **changes)


TEXTS: dict[str, tuple[str, str]] = {
    "empty": ("", "must be JSON, got the end of the file"),
    "blank": (" \n", "must be JSON, got the end of the file"),
    "a list": ("[]", "must be an object, got a list"),
    "no json": (
        '{"model_id": sk-SECRET}',
        "must be JSON in UTF-8 .*, got a mistake in the first 23 bytes",
    ),
    "cut": ('{"model_id": "m', "must be JSON, got the end of the file"),
    "twice": ('{"model_id": "a", "model_id": "b"}', "must not repeat a key, got model_id twice"),
    "bad utf-8": ('{"model_id": "\udcff"}', "must be JSON"),
    "digits": ('{"completed": ' + "9" * 5000 + "}", "must hold no number of 1000 digits"),
    "exponent": ('{"completed": 1e99999999999999999999}', "with numbers of a sane size"),
    "pytorch form": ('[{"benchmark": {"extra_info": {"args": {}}}}]', "must be an object"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_what_is_no_such_json_is_refused_without_its_text(tmp_path: Path, name: str) -> None:
    """Nothing of the file is in the message."""
    text, message = TEXTS[name]
    path = tmp_path / "r.json"
    path.write_bytes(text.encode(errors="surrogateescape"))
    with pytest.raises(InputError, match=message) as caught:
        read(path)
    assert "SECRET" not in str(caught.value)


def test_a_summary_file_is_told_which_option_records_what_it_lacks() -> None:
    """Real files without --save-detailed, of both releases."""
    for release in (OLD, NEW):
        with pytest.raises(InputError, match="--save-result --save-detailed"):
            read(release / "summary.json")


def test_too_many_requests_are_refused_while_reading(tmp_path: Path) -> None:
    """The bound holds for every array."""
    path = write(tmp_path / "r.json", bench())
    with pytest.raises(InputError, match="input_lens must hold at most 2 requests"):
        read(path, 2)


@pytest.mark.parametrize("made", [str, lambda text: text.replace("e", "")], ids=["as is", "no e"])
def test_a_model_name_is_kept_as_it_is(tmp_path: Path, made: Callable[[str], str]) -> None:
    """It is a path sometimes; only a private run shows it."""
    name = made("/models/meta/Llama 3 é")
    assert name == one(tmp_path, model_id=name).model
