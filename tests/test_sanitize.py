"""What is shared replays as the original does, joins with itself, and comes from nobody."""

import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sanitize_tools import (
    BASE,
    OTHER_KEY,
    attempts,
    counting,
    done,
    event_row,
    manifest,
    preempt,
    raw_run,
    request_row,
    said,
    sample_row,
    sanitized,
    workload,
    write,
)

from collectors.run import read_run, run_workload
from collectors.sanitize.pseudonyms import REQUEST_ID
from replay.config import Config, parse_config
from replay.run import replay
from replay.workload import Request, Workload
from replay.workload_file import read_workload


def config(profile: str) -> Config:
    """Few enough blocks for preemptions, and ticks that let no two requests arrive at once."""
    engine: dict[str, Any] = {"profile": profile, "block_size": 32, "capacity_blocks": 30}
    if profile == "vllm-v1":
        engine |= {"rule": "vllm-0.32.0", "max_num_batched_tokens": 2048, "max_model_len": 960}
    return parse_config({"engine": engine | {"tick_us": 20_000}}, "config")


def event_hash(found: Workload, profile: str) -> str:
    """`event_sha256` of a replay."""
    receipt = replay(found, config(profile)).receipt
    assert receipt["totals"]["preemptions"] > 0
    return str(receipt["event_sha256"])


def suffixes(found: Workload) -> list[str]:
    """The parts of ids after the order, which join."""
    return [r.request_id.partition("-")[2] for r in found.requests]


# ------------------------------------------------------------------ pseudonyms and schedules


@pytest.mark.parametrize("profile", ["lab", "vllm-v1"])
def test_no_key_changes_a_schedule(tmp_path: Path, profile: str) -> None:
    """A recorded run's workload gives the same events raw and under any key."""
    raw = run_workload(read_run(BASE), 0, 48)
    path = write(raw, tmp_path / "raw.parquet")
    made = done(sanitized(path, tmp_path / "a")).read_workload()
    other = done(sanitized(path, tmp_path / "b", key=OTHER_KEY)).read_workload()
    assert event_hash(raw, profile) == event_hash(made, profile) == event_hash(other, profile)
    assert set(suffixes(made)).isdisjoint(suffixes(other))
    assert made.sha256 != other.sha256


@pytest.mark.parametrize("profile", ["lab", "vllm-v1"])
def test_requests_of_one_moment_keep_their_order_under_every_key(
    tmp_path: Path, profile: str
) -> None:
    """Ids of one arrival sort in file order, so that no key decides who goes first."""
    names = ["z", "é", "a", "\U0001f600", "0", "B", "b", "zz"]
    requests = tuple(Request(name, 0, 200, 60, priority=k % 2) for k, name in enumerate(names))
    path = write(Workload(requests), tmp_path / "raw.jsonl")
    made = [
        done(sanitized(path, tmp_path / key, key=key)).read_workload()
        for key in ("kl" * 8, "lm" * 8, "mn" * 32)
    ]
    assert 1 == len({event_hash(one, profile) for one in made})
    for one in made:
        ids = [r.request_id for r in one.requests]
        assert sorted(ids) == ids
        assert all(map(REQUEST_ID.fullmatch, ids))


def test_the_engine_s_arrival_times_become_offsets_and_decide_as_before(tmp_path: Path) -> None:
    """Their least is 0, whatever arrives first, and the schedule is the raw one's."""
    late = [5 * 10**9 + 7 * (k * 5 % 12) for k in range(12)]
    requests = tuple(
        Request(f"r{k}", k, 200, 60, engine_arrival_us=at) for k, at in enumerate(late)
    )
    raw, chosen = Workload(requests), config("vllm-v1")
    chosen = replace(chosen, engine=replace(chosen.engine, scheduling_policy="priority"))
    for suffix in (".parquet", ".json"):
        path = write(raw, tmp_path / f"raw{suffix}")
        result = done(sanitized(path, tmp_path / f"shared{suffix}"))
        made = result.read_workload()
        assert [at - min(late) for at in late] == [r.engine_arrival_us for r in made.requests]
        hashes = {replay(w, chosen).receipt["event_sha256"] for w in (raw, made)}
        assert 1 == len(hashes)
    plain = Workload(tuple(replace(r, engine_arrival_us=None) for r in requests))
    assert hashes != {replay(plain, chosen).receipt["event_sha256"]}
    rounded = done(sanitized(path, tmp_path / "rounded", "--round-arrivals", "20us"))
    expected = [(at - min(late)) // 20 * 20 for at in late]
    assert expected == rounded.column("engine_arrival_us")


def test_the_shareable_run_replays_step_by_step_as_the_raw_one(tmp_path: Path) -> None:
    """Arrivals in the engine's own steps are the same, so the whole ledger is."""
    result = done(sanitized(BASE, tmp_path / "shared"))
    for k, run in enumerate((BASE, result.run)):
        assert 0 == preempt("replay", run, "--out", tmp_path / f"ledger-{k}", "-q").code
    raw, made = (
        json.loads((tmp_path / f"ledger-{k}" / "receipt.json").read_text()) for k in (0, 1)
    )
    assert raw["event_sha256"] == made["event_sha256"]
    assert raw["totals"] == made["totals"]
    assert raw["workload_sha256"] != made["workload_sha256"]


def test_a_run_and_its_workload_carry_the_same_pseudonyms(tmp_path: Path) -> None:
    """What `import run` makes of the shareable run is the workload that came with it."""
    result = done(sanitized(BASE, tmp_path / "shared"))
    made, run = result.read_workload(), result.read_run()
    assert made.requests == run_workload(run).requests
    assert run.offered is not None
    assert run.offered.sha256 == run.manifest["workload"]["workload_sha256"]
    ids = {r.request_id for r in made.requests}
    assert ids == set(run.requests["request_id"]) == set(run.events["request_id"])
    assert made.provenance is not None
    assert run.run_id == made.provenance["run_id"]


def test_a_ledger_of_the_shared_workload_joins_the_shareable_run(tmp_path: Path) -> None:
    """Loaded together, every request of the ledger meets its own of the run."""
    result = done(sanitized(BASE, tmp_path / "shared"))
    ledger, store = tmp_path / "ledger", tmp_path / "store.db"
    assert 0 == preempt("replay", result.run, "--out", ledger, "-q").code
    assert 0 == preempt("sanitize", "--check", ledger).code
    assert 0 == preempt("load", result.run, ledger, "--db", store).code
    query = (
        "SELECT count(*) AS n FROM measured_requests r JOIN modelled_requests m"
        " USING (request_id) JOIN modelled_ledgers l USING (ledger_id) WHERE l.run_id = r.run_id"
    )
    ended = preempt("sql", query, "--db", store, "--format", "json")
    assert 0 == ended.code, ended.err
    assert [{"n": 240}] == json.loads(ended.out)


def test_two_runs_of_one_workload_join_by_the_part_after_the_order(tmp_path: Path) -> None:
    """The same key names a client's id the same everywhere, whatever its place."""
    first = raw_run(
        tmp_path / "raw-1", manifest("one"), requests=[request_row("x", 0), request_row("y", 5)]
    )
    second = raw_run(
        tmp_path / "raw-2", manifest("two"), requests=[request_row("y", 0), request_row("z", 5)]
    )
    made = [
        done(sanitized(path, tmp_path / f"shared-{k}")).read_workload()
        for k, path in enumerate((first, second))
    ]
    one, two = map(suffixes, made)
    assert [one[1]] == [two[0]] == sorted(set(one) & set(two))


def test_kinds_of_names_never_share_a_pseudonym(tmp_path: Path) -> None:
    """A tenant called as a request, a model and a run is told apart from them."""
    found = manifest("same")
    found["model"]["name"] = "same"
    rows = [request_row("same", 0, tenant="same")]
    run = raw_run(tmp_path / "raw", found, requests=rows)
    result = done(sanitized(run, tmp_path / "shared"))
    made = result.read_run()
    told = [made.run_id, made.manifest["model"]["name"], *made.requests["tenant"]]
    digits = {name.rpartition("-")[2] for name in [*told, *made.requests["request_id"]]}
    assert 4 == len(digits)


# ------------------------------------------------------------------ runs of every kind


def test_a_run_of_several_engines_keeps_their_indexes(tmp_path: Path) -> None:
    """Data-parallel engines keep their own rows, and each replays as before."""
    rows = [request_row(f"r{k}", 10 * k, engine=k % 2) for k in range(6)]
    events = [event_row(f"r{k}", k // 2, engine=k % 2) for k in range(6)]
    found = manifest(parallel={"tensor": 1, "pipeline": 1, "data": 2})
    run = raw_run(tmp_path / "raw", found, requests=rows, events=events)
    result = done(sanitized(run, tmp_path / "shared"))
    made = result.read_run()
    assert [0, 1] * 3 == made.requests["engine"].to_list()
    assert 6 == len(result.read_workload())
    raw = read_run(run)
    for engine in (0, 1):
        for arrivals in ("time", "steps"):
            was = run_workload(raw, arrivals=arrivals, engine=engine)
            now = run_workload(made, arrivals=arrivals, engine=engine)
            assert [_numbers_of(r) for r in was.requests] == [_numbers_of(r) for r in now.requests]


def _numbers_of(request: Request) -> tuple[int, int, int, int]:
    return (
        request.arrival_us,
        request.prompt_tokens,
        request.output_tokens,
        request.priority,
    )


def test_a_run_of_metrics_only_is_shared_without_a_workload(tmp_path: Path) -> None:
    """Its samples come through, no workload file is made, and the report says so."""
    samples = [sample_row("num_preemptions"), sample_row("e2e_request_latency_seconds_sum")]
    run = raw_run(tmp_path / "raw", manifest(), samples=samples)
    result = done(sanitized(run, tmp_path / "shared"))
    assert ["w.run"] == [path.name for path in result.folder.iterdir()]
    assert 2 == result.read_run().samples.height
    assert "no workload: none of its requests generated anything" in result.ended.err


def test_engines_that_served_one_id_each_are_shared_without_a_workload(tmp_path: Path) -> None:
    """No workload holds an id twice; the run does, and one engine's workload comes from it."""
    rows = [request_row("same", 10 * k, engine=k) for k in range(2)]
    run = raw_run(tmp_path / "raw", manifest(), requests=rows)
    result = done(sanitized(run, tmp_path / "shared"))
    assert not result.workload.exists()
    assert "no workload: requests of several engines have one id" in result.ended.err
    made = result.read_run()
    assert 1 == len(set(made.requests["request_id"]))
    assert 1 == len(run_workload(made, engine=1))


def test_requests_that_make_no_row_become_attempts_with_their_reasons(tmp_path: Path) -> None:
    """Every measured request is in the workload or among the attempts, none in neither."""
    rows = [
        request_row("late", 90, generated_tokens=5),
        request_row("failed", 10, generated_tokens=None, status="error", finish_reason="boom"),
        request_row("cut", 50, generated_tokens=0, max_tokens=30, status="censored"),
        request_row("going", 60, generated_tokens=4, max_tokens=30, status="censored"),
        request_row("nothing", 70, generated_tokens=0),
    ]
    run = raw_run(tmp_path / "raw", manifest(), requests=rows)
    result = done(sanitized(run, tmp_path / "shared"))
    assert [0, 30] == result.column("arrival_us")
    assert result.read_workload().requests == run_workload(result.read_run()).requests
    assert [30, 5] == result.column("output_tokens")
    kept = pl.read_parquet(result.folder / "w.attempts.parquet")
    assert [
        (1, "failed", 10),
        (2, "censored", 50),
        (4, "no_output", 70),
    ] == kept.select("source_row", "reason", "arrival_us").rows()
    provenance = result.read_workload().provenance
    assert provenance is not None
    assert {"failed": 1, "censored": 1, "no_output": 1} == provenance["attempts"]
    assert "attempts: 1 censored, 1 failed, 1 no_output" in result.ended.err


def test_requests_that_an_imported_run_has_no_row_of_are_counted(tmp_path: Path) -> None:
    """What a result file does not say the length of is in report, provenance and last line."""
    found = manifest()
    found["imported"] = {
        "format": "aiperf",
        "tool_version": "0.13.0",
        "definitions": dict.fromkeys(("ttft", "tpot", "itl", "e2e")),
        "left_out": {"no_prompt": 8, "jane broke it": 2},
    }
    run = raw_run(tmp_path / "raw", found, requests=[request_row("r", 0)])
    result = done(sanitized(run, tmp_path / "shared"))
    provenance = result.read_workload().provenance
    assert provenance is not None
    assert {"no_output": 0, "no_prompt": 8, "other": 2} == provenance["dropped"]
    assert "attempts: 8 no_prompt, 2 other" in result.ended.err
    assert "requests without a row in the run: 8 no_prompt" in result.ended.err
    assert "jane" not in result.ended.err


def test_a_run_in_which_nothing_generated_is_shared_without_a_workload(tmp_path: Path) -> None:
    """Requests cut off before their first token are rows of the run, and of no workload."""
    rows = [request_row("cut", 5, generated_tokens=0, max_tokens=9, status="censored")]
    run = raw_run(tmp_path / "raw", manifest(), requests=rows)
    result = done(sanitized(run, tmp_path / "shared"))
    assert 1 == result.read_run().requests.height
    assert not result.workload.exists()


def test_a_shareable_run_is_not_made_shareable_again(tmp_path: Path) -> None:
    """There is nothing to do; a second pseudonym would only hide that it is one."""
    result = done(sanitized(BASE, tmp_path / "shared"))
    again = sanitized(result.run, tmp_path / "again", key=OTHER_KEY)
    assert 2 == again.ended.code
    assert "privacy must be raw, got shareable: nothing to do" in again.ended.err
    assert "" == said(again.folder)


def test_a_manifest_keeps_what_decides_a_replay_and_a_comparison(tmp_path: Path) -> None:
    """Sizes, scheduler, device and version stay; model, notes and start do not."""
    found = manifest(
        engine={"name": "vllm", "version": "0.32.0+local.jane"},
        model={"name": "/srv/jane/llama"},
        device={
            "kind": "cuda",
            "name": "NVIDIA H100 80GB HBM3",
            "count": 8,
            "driver": "570.133.20",
        },
        not_modelled=["sleep mode empties the cache between requests, a replay never does", "x"],
        gaps=[{"start_us": 1, "end_us": 2, "reason": "jane pulled the plug"}],
        counter_resets=[
            {"time_us": 1, "scrape": 1, "engine": 0, "name": name}
            for name in ("num_preemptions", "e2e_request_latency_seconds_count", "janes_metric")
        ],
    )
    found["configuration_sha256"] = "ab" * 32
    run = raw_run(tmp_path / "raw", found, requests=[request_row("r", 0)])
    result = done(sanitized(run, tmp_path / "shared"))
    made = result.read_run().manifest
    assert {"name": "vllm", "version": "0.32.0"} == made["engine"]
    assert re.fullmatch("model-[0-9a-f]{32}", made["model"]["name"])
    assert found["device"] == made["device"]
    assert None is made["start"]
    assert "shareable" == made["privacy"]
    assert [{"start_us": 1, "end_us": 2}] == made["gaps"]
    assert ["num_preemptions", "e2e_request_latency_seconds_count"] == [
        reset["name"] for reset in made["counter_resets"]
    ]
    assert [found["not_modelled"][0], "what the raw run's manifest names: 1"] == made[
        "not_modelled"
    ]
    assert re.fullmatch("[0-9a-f]{64}", made["configuration_sha256"])
    assert "ab" * 32 != made["configuration_sha256"]


def test_a_network_address_is_no_version(tmp_path: Path) -> None:
    """Four numbers in a version's place do not come through."""
    run = raw_run(
        tmp_path / "raw",
        manifest(engine={"name": "vllm", "version": "10.20.30.40"}),
        requests=[request_row("r", 0)],
    )
    result = done(sanitized(run, tmp_path / "shared"))
    assert None is result.read_run().manifest["engine"]["version"]


# ------------------------------------------------------------------ workloads and attempts


def test_attempts_before_the_first_request_begin_the_time(tmp_path: Path) -> None:
    """The earliest of requests and attempts is microsecond 0 of both."""
    told = counting(failed=1, no_output=1)
    path = write(workload(provenance=told), tmp_path / "raw" / "w.parquet")
    attempts(path, [(4, "failed", 4_000_000, 7, None), (9, "no_output", 7_000_000, 7, 0)])
    result = done(sanitized(path, tmp_path / "shared"))
    assert [1_000_000, 1_250_000, 2_000_000] == result.column("arrival_us")
    kept = pl.read_parquet(result.folder / "w.attempts.parquet")
    assert [0, 3_000_000] == kept["arrival_us"].to_list()
    assert ["failed", "no_output"] == kept["reason"].to_list()
    assert [None, 0] == kept["output_tokens"].to_list()


@pytest.mark.parametrize(
    ("row", "field"),
    [
        ((1, "failed", None, 1, 1), "arrival_us"),
        ((1, "failed", -1, 1, 1), "arrival_us"),
        ((None, "failed", 0, 1, 1), "source_row"),
        ((1, "failed", 0, -5, 1), "prompt_tokens"),
        ((1, "failed", 0, 1, 2**53), "output_tokens"),
    ],
)
def test_attempts_that_break_a_rule_are_refused_by_row_and_column(
    tmp_path: Path, row: tuple[Any, ...], field: str
) -> None:
    """A bad row beside the workload writes nothing."""
    path = write(workload(), tmp_path / "raw" / "w.parquet")
    attempts(path, [(1, "failed", 0, 1, 1), row])
    result = sanitized(path, tmp_path / "shared")
    assert (2, "") == (result.ended.code, said(result.folder))
    assert f"w.attempts.parquet: row 1: {field} must be an integer" in result.ended.err


@pytest.mark.parametrize("suffix", [".parquet", ".json"])
@pytest.mark.parametrize(
    "provenance", [{"attempts": {}}, counting(failed=2), counting(no_output=1)]
)
def test_attempts_of_another_workload_are_refused(
    tmp_path: Path, provenance: dict[str, Any], suffix: str
) -> None:
    """Other numbers by reason than the provenance has: one line, no key, and a way out."""
    path = write(workload(provenance=provenance), tmp_path / "raw" / f"w{suffix}")
    beside = attempts(path, [(1, "failed", 0, 1, 1)])
    key, out = tmp_path / "key", tmp_path / "o.parquet"
    ended = preempt("sanitize", path, "-o", out, "--key-file", key)
    assert (2, 1) == (ended.code, len(ended.err.splitlines()))
    assert str(beside) in ended.err
    assert "remove or move the file, got 1 in all" in ended.err
    assert ["raw"] == [p.name for p in tmp_path.iterdir()]
    beside.rename(tmp_path / "moved.parquet")
    assert 0 == preempt("sanitize", path, "-o", out, "--key-file", key).code


def test_shared_attempts_are_still_their_workloads(tmp_path: Path) -> None:
    """What was sanitized, reasons in strangers' words included, is sanitized once more."""
    told = {"attempts": {"failed": 1, "lost": 1, "late": 1}}
    path = write(workload(provenance=told), tmp_path / "raw" / "w.json")
    attempts(path, [(k, reason, 0, 1, 1) for k, reason in enumerate(("late", "failed", "lost"))])
    once = done(sanitized(path, tmp_path / "once"))
    again = done(sanitized(once.workload, tmp_path / "again"))
    kept = pl.read_parquet(again.folder / "w.attempts.parquet")
    assert ["other", "failed", "other"] == kept["reason"].to_list()


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json"])
def test_a_workload_of_an_unknown_column_is_refused_before_anything_is_written(
    tmp_path: Path, suffix: str
) -> None:
    """The reader refuses it, as help and documentation say; nothing is dropped in silence."""
    path = write(workload(name=None), tmp_path / "raw" / f"w{suffix}")
    if suffix == ".parquet":
        frame = pl.read_parquet(path).with_columns(prompt=pl.lit("x"))
        metadata = {"schema": "preemption-workload/1", "prefix_block_tokens": "512"}
        frame.write_parquet(path, metadata=metadata)
    else:
        path.write_text(path.read_text().replace('"prompt_tokens"', '"prompt":1,"prompt_tokens"'))
    key = tmp_path / "key"
    ended = preempt("sanitize", path, "-o", tmp_path / "o.parquet", "--key-file", key)
    assert (2, ["raw"]) == (ended.code, [p.name for p in tmp_path.iterdir()])
    assert "unknown" in ended.err
    told = preempt("sanitize", "--help").out
    assert "no contract knows are refused by the reader" in " ".join(told.split())


def test_a_run_without_prefix_blocks_has_no_line_about_them(tmp_path: Path) -> None:
    """A report tells of what there is."""
    rows = [request_row("r", 0)]
    result = done(
        sanitized(raw_run(tmp_path / "raw", manifest(), requests=rows), tmp_path / "shared")
    )
    assert "request ids: 1 became pseudonyms" in result.ended.err
    assert "prefix blocks" not in result.ended.err


def test_what_an_importer_said_of_a_public_trace_is_said_again(tmp_path: Path) -> None:
    """Licence and attribution stay with a sanitized import, and what tools did to it."""
    csv = BASE.parent.parent / "traces" / "azure-2023-conv-head.csv"
    path, part = tmp_path / "conv.parquet", tmp_path / "part.parquet"
    assert 0 == preempt("import", "azure", csv, "-o", path).code
    assert 0 == preempt("workload", "scale", path, "-o", part, "--time", "1/2").code
    told = read_workload(part).provenance
    made = done(sanitized(part, tmp_path / "shared")).read_workload()
    assert told is not None
    assert made.provenance is not None
    assert told == {k: v for k, v in made.provenance.items() if k != "sanitized"}
    assert "CC-BY-4.0" == made.provenance["license"]
    assert None is made.name


def test_prefix_blocks_are_equal_exactly_where_they_were(tmp_path: Path) -> None:
    """Blocks get dense numbers by first appearance, one to one."""
    rows = [(900, 5, 2**50), None, (5, 900), (7,), (2**50, 7)]
    requests = tuple(Request(f"r{k}", k, 2000, 1, prefix_blocks=row) for k, row in enumerate(rows))
    path = write(Workload(requests, 512), tmp_path / "w.jsonl")
    result = done(sanitized(path, tmp_path / "shared"))
    assert [[0, 1, 2], None, [1, 0], [3], [2, 3]] == result.column("prefix_blocks")
    assert 512 == result.read_workload().prefix_block_tokens
    assert "prefix blocks renumbered: 4 of 5 rows" in result.ended.err


def test_the_report_counts_the_rows_of_every_step(tmp_path: Path) -> None:
    """Each line says how many rows a step changed, and what of the head is gone."""
    path = write(workload(provenance={"source": "mine", "rows_read": 3}), tmp_path / "w.parquet")
    result = done(sanitized(path, tmp_path / "shared", "--round-arrivals", "100ms"))
    assert [
        "times become offsets: 3 of 3 rows",
        "arrivals rounded: 1 of 3 rows",
        "tenants pseudonymised: 2 of 3 rows",
        "request ids pseudonymised: 3 of 3 rows",
        "prefix blocks renumbered: 2 of 3 rows",
        "name: dropped",
        "provenance: 1 key dropped or changed",
    ] == [line.strip() for line in result.ended.err.splitlines()[:-1]]
