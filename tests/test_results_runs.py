"""A result file becomes a measured run beside its workload, with the same ids, or nothing does."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from results_files import FILES, RECORDED, write

from collectors.results import FORMATS, known_sources
from collectors.results.runs import write_runs
from collectors.run import read_run, run_workload
from preempt.commands.importing import import_command
from preempt.main import cli
from replay.workload_file import read_workload

APPENDED = RECORDED / "vllm-0.32.0" / "appended.json"
FAILURES = RECORDED / "vllm-0.32.0" / "failures-too-long.json"
ALL_FAILED = RECORDED / "vllm-0.32.0" / "all-failed.json"
WHOLE = [
    (name, path)
    for name, paths in FILES.items()
    for path in paths
    if path.stem not in {"summary", "sampled", "all-failed", "appended"}
]


def run_import(*arguments: Any) -> Result:
    """`preempt import` with these arguments."""
    return CliRunner().invoke(import_command, [str(a) for a in arguments])


def done(*arguments: Any) -> dict[str, Any]:
    """What `--json` prints of an import that must go well."""
    result = run_import(*arguments, "--json", "--quiet")
    assert 0 == result.exit_code, result.output
    told: dict[str, Any] = json.loads(result.stdout)
    return told


@pytest.mark.parametrize(
    ("name", "path"), WHOLE, ids=[f"{name}/{path.parent.name}/{path.stem}" for name, path in WHOLE]
)
def test_run_and_workload_of_a_recorded_file_join(tmp_path: Path, name: str, path: Path) -> None:
    """Each request of the workload has its row, with its arrival and lengths; no other row does."""
    out, place = tmp_path / "w.parquet", tmp_path / "run"
    told = done(name, path, "-o", out, "--run", place)
    run, workload = read_run(place), read_workload(out)
    rows = {row["request_id"]: row for row in run.requests.iter_rows(named=True)}
    for request in workload.requests:
        row = rows.pop(request.request_id)
        wanted = (request.arrival_us, request.prompt_tokens, request.output_tokens, "ok")
        names = ("arrival_us", "prompt_tokens", "generated_tokens", "status")
        assert wanted == tuple(row[n] for n in names)
    assert all(one.startswith("attempt-") for one in rows)
    (summary,) = told["runs"]
    counted = sum(summary["statuses"].values()) + sum(summary["left_out"].values())
    assert (
        told["requests"]
        + sum(told["attempts"].values())
        + summary["left_out"].get("not_in_file", 0)
        == counted
    )
    assert len(workload) == told["requests"] == len(run_workload(run))
    for one in ("queue_time_us", "ttft_us", "tpot_us", "e2e_us"):
        assert [] == [v for v in run.requests[one].drop_nulls() if v < 0]


@pytest.mark.parametrize("name", FORMATS)
def test_a_run_says_what_its_source_means_by_its_latencies(tmp_path: Path, name: str) -> None:
    """The manifest is private, observed, and holds the table in words."""
    path = next(path for kind, path in WHOLE if kind == name)
    done(name, path, "--run", tmp_path / "run")
    manifest = read_run(tmp_path / "run").manifest
    imported = manifest["imported"]
    assert (name, "observed", "raw") == (
        imported["format"],
        manifest["kind"],
        manifest["privacy"],
    )
    assert all(imported["definitions"].values())
    absolute = name in {"guidellm", "aiperf", "otel"}
    assert absolute == (manifest["start"] is not None)
    assert ("perf_counter" in manifest["clocks"]["arrival"]) == (not absolute)
    mode = (tmp_path / "run").stat().st_mode
    assert 0o700 == stat.S_IMODE(mode)


def test_load_sql_and_report_take_such_a_run(tmp_path: Path) -> None:
    """Its latencies are there as the file has them; its preemptions are unknown, not none."""
    place, db = tmp_path / "run", tmp_path / "store.duckdb"
    done("vllm-bench", FAILURES, "--run", place)
    runner = CliRunner()
    loaded = runner.invoke(cli, ["load", str(place), "--db", str(db), "--quiet"])
    assert 0 == loaded.exit_code, loaded.output
    query = "SELECT count(ttft_us), count(num_preemptions), max(e2e_us) FROM measured_requests"
    told = runner.invoke(cli, ["sql", query, "--db", str(db), "--format", "csv"])
    longest = read_run(place).requests["e2e_us"].max()
    assert [f"15,0,{longest}"] == told.stdout.split()[1:]
    report = runner.invoke(cli, ["report", str(place), "--out", str(tmp_path / "r"), "--quiet"])
    assert 0 == report.exit_code, report.output


def test_every_format_has_its_source_known_by_title() -> None:
    """With every note it can ever leave in a provenance."""
    assert len({"vLLM's OpenTelemetry spans", *known_sources()}) == len(FORMATS)


def test_several_benchmarks_are_several_runs_and_one_workload_of_them(tmp_path: Path) -> None:
    """DIR and DIR-2; which one the workload is of must be said, and then it is the run, too."""
    out, place = tmp_path / "w.jsonl", tmp_path / "run"
    refused = run_import("vllm-bench", APPENDED, "-o", out, "--run", place)
    assert 2 == refused.exit_code or isinstance(refused.exception, ValueError)
    assert "holds 2 benchmarks: --index 1 to 2" in f"{refused.output}{refused.exception}"
    assert [] == list(tmp_path.iterdir())
    both = done("vllm-bench", APPENDED, "--run", place)["runs"]
    assert [str(place), f"{place}-2"] == [run["path"] for run in both]
    assert 2 == len({run["run_id"] for run in both})
    second = tmp_path / "second"
    told = done("vllm-bench", APPENDED, "-o", out, "--run", second, "--index", 2)
    assert [(str(second), both[1]["run_id"])] == [(r["path"], r["run_id"]) for r in told["runs"]]
    assert told["prompt_tokens"] == read_run(second).requests["prompt_tokens"].sum()
    assert not (tmp_path / "second-2").exists()
    assert 2 == run_import("vllm-bench", APPENDED, "--run", second, "--index", 3).exit_code


def test_all_failed_is_a_run_without_latencies_and_no_workload(tmp_path: Path) -> None:
    """B47: five errors, not 0 ms."""
    told = done("vllm-bench", ALL_FAILED, "--run", tmp_path / "run")
    assert {"error": 5} == told["runs"][0]["statuses"]
    rows = read_run(tmp_path / "run").requests
    assert 5 == rows["ttft_us"].null_count() == rows["e2e_us"].null_count()
    refused = run_import("vllm-bench", ALL_FAILED, "-o", tmp_path / "w.jsonl")
    assert "at least one request that ended well" in f"{refused.output}{refused.exception}"


def test_where_nothing_can_be_replayed_the_run_asked_for_is_written_alone(tmp_path: Path) -> None:
    """It has every attempt; a line says why there is no workload, and JSON that it is null."""
    out, place = tmp_path / "w.jsonl", tmp_path / "run"
    result = run_import("vllm-bench", ALL_FAILED, "-o", out, "--run", place, "--json")
    assert (0, None) == (result.exit_code, json.loads(result.stdout)["workload"])
    assert f"{out}: not written: no request ended well" in result.stderr
    assert 5 == read_run(place).requests.height
    assert not out.exists()


def test_a_run_that_is_all_of_its_workload_names_it(tmp_path: Path) -> None:
    """Whether or not the workload is written, so that the same file is the same manifest."""
    arguments = ("vllm-bench", APPENDED, "--index", 1, "--run")
    told = done(*arguments, tmp_path / "a", "-o", tmp_path / "w.json")
    done(*arguments, tmp_path / "b")
    texts = {(tmp_path / name / "manifest.json").read_text() for name in "ab"}
    assert 1 == len(texts)
    run = read_run(tmp_path / "a")
    named = run.manifest["workload"]["workload_sha256"]
    assert told["workload_sha256"] == named == run_workload(run).sha256


def test_a_run_with_attempts_does_not_say_what_was_offered(tmp_path: Path) -> None:
    """Its workload is a part of what was sent."""
    done("vllm-bench", FAILURES, "-o", tmp_path / "w.json", "--run", tmp_path / "run")
    assert read_run(tmp_path / "run").manifest["workload"]["workload_sha256"] is None


def test_a_request_without_a_prompt_length_makes_no_row_and_is_counted(tmp_path: Path) -> None:
    """AIPerf's failures have none."""
    path = RECORDED / "aiperf-0.13.0" / "failures-cancellations.profile_export.jsonl"
    told = done("aiperf", path, "--run", tmp_path / "run")
    assert ({"ok": 16}, {"no_prompt": 8}) == (
        told["runs"][0]["statuses"],
        told["runs"][0]["left_out"],
    )
    assert {"no_prompt": 8} == read_run(tmp_path / "run").manifest["imported"]["left_out"]


def test_requests_without_a_row_are_told_in_words(tmp_path: Path) -> None:
    """What the file lacks of them, and not how they ended, which their attempts say."""
    path = RECORDED / "aiperf-0.13.0" / "failures-cancellations.profile_export.jsonl"
    (written,) = write_runs(FORMATS["aiperf"].read(path), tmp_path / "run")
    assert "8 whose prompt length the file does not say" == written.left_out_in_words


def test_the_same_file_is_the_same_run_again(tmp_path: Path) -> None:
    """Its name comes from its numbers, not from its path or the moment."""
    ids = [
        done("vllm-bench", FAILURES, "--run", tmp_path / name)["runs"][0]["run_id"]
        for name in ("a", "b")
    ]
    assert ids[0] == ids[1]


def test_a_taken_path_leaves_everything_as_it_was(tmp_path: Path) -> None:
    """The run's place is taken: no run, no workload; of several neither."""
    (tmp_path / "run-2").mkdir()
    result = run_import(
        *("vllm-bench", APPENDED, "--index", 1),
        *("-o", tmp_path / "w.jsonl", "--run", tmp_path / "run-2"),
    )
    assert "run-2: exists" in f"{result.output}{result.exception}"
    several = run_import("vllm-bench", APPENDED, "--run", tmp_path / "run")
    assert "run-2: exists" in f"{several.output}{several.exception}"
    assert ["run-2"] == [path.name for path in tmp_path.iterdir()]


def test_a_bad_file_writes_nothing(tmp_path: Path) -> None:
    """Neither of the two, even if the fault is in the last object."""
    raw = [json.loads(text) for text in APPENDED.read_text().splitlines()]
    raw[1]["ttfts"][0] = -1.0
    path = write(tmp_path / "bad.json", *raw)
    result = run_import(
        "vllm-bench", path, "--index", 1, "-o", tmp_path / "w", "--run", tmp_path / "r"
    )
    assert result.exit_code
    assert ["bad.json"] == [one.name for one in tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("vllm-bench", FAILURES), "Missing option '-o'"),
        (("vllm-bench", FAILURES, "--index", 1), "Missing option '-o'"),
        (("vllm-bench", FAILURES, "--run", "r", "--count", 1), "cut the workload: give -o"),
        (("azure", FAILURES, "--run", "r"), "No such option '--run'"),
        (("azure", FAILURES, "-o", "w.jsonl", "--index", 1), "No such option '--index'"),
        (("otel", FAILURES, "-o", "w.jsonl", "--engine", 0), "No such option '--engine'"),
    ],
)
def test_options_of_other_formats_are_refused(arguments: tuple[Any, ...], message: str) -> None:
    """Nothing is ignored in silence."""
    result = run_import(*arguments)
    assert (2, True) == (result.exit_code, message in result.output)


def test_a_window_is_of_the_workload_only(tmp_path: Path) -> None:
    """The run stays whole, and the ids still join."""
    out, place = tmp_path / "w.jsonl", tmp_path / "run"
    window = ("--start", 2, "--count", 3)
    result = run_import("vllm-bench", FAILURES, "-o", out, "--run", place, *window)
    assert "all requests: --start and --count cut the workload only" in result.stderr
    ids = {request.request_id for request in read_workload(out).requests}
    assert (3, 16) == (len(ids & set(read_run(place).requests["request_id"])), 16)
    assert 16 == read_run(place).requests.height
