"""Packing a spool: the rows of a run, the same however it was cut, killed and gone on with."""

import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from spools import (
    MONOTONIC_NS,
    UNIX_NS,
    append,
    blank,
    header,
    header_of,
    ns,
    records_of,
    write_part,
    write_spool,
)
from test_live_runs import FIXTURES, KINDS, PREEMPT, replayed

from collectors.pack.batch import pack_spool
from collectors.pack.clock import Clock
from collectors.pack.driven import OF_THE_ENGINE, merge_driven
from collectors.pack.ids import SeenIds, row_id
from collectors.pack.packer import STATE, Packer
from collectors.run import Run, read_run, run_workload
from collectors.writer import RunWriter, new_manifest, run_id_of
from preempt.main import main
from replay.config import parse_config
from replay.errors import InputError, OutputExists
from replay.events import to_frame
from replay.run import replay
from replay.workload import Request, Workload

BASE_1 = FIXTURES / "runs" / "base-1"
START = "2025-11-30T06:01:02.000345Z"
Record = list[Any]


@cache
def recorded(path: Path) -> Run:
    """A run of a real vLLM."""
    return read_run(path)


def some(n: int, name: str, seq: int, at_us: int, *, step: int = 0) -> list[Record]:
    """A whole short request: arrive, admit, finish with two tokens."""
    mark = [step, ns(at_us)]
    return [
        ["R", n, name, UNIX_NS + 1000 * at_us, 40, 2, 0, None],
        ["A", seq, *mark, n],
        ["D", seq + 1, *mark, n, 0],
        ["S", step, ns(at_us), 40, 40, 0, 40, 45, 1, 0],
        ["F", seq + 2, *mark, n, 2, 0, "ok", "length", ns(at_us + 30), ns(at_us + 45), 7000, 0],
    ]


def story_of(*names: str) -> list[Record]:
    """Short requests, one after the other."""
    return [r for k, n in enumerate(names) for r in some(k, n, 3 * k, 10 * (k + 1), step=k)]


def packed(tmp_path: Path, *records: Record, **told: Any) -> Run:
    """The run that one session's records give."""
    write_spool(tmp_path / "spool", header(**told), records)
    pack_spool(tmp_path / "spool", tmp_path / "run")
    return read_run(tmp_path / "run")


# -- a recorded run, as the recorder would have seen it --------------------------------------------


@pytest.mark.parametrize("path", [BASE_1, FIXTURES / "live" / "base-2"], ids=lambda p: p.name)
def test_a_packed_run_replays_to_its_own_preemptions(tmp_path: Path, path: Path) -> None:
    """Every preempt event, and every other event in its step, as for the run it was made from."""
    run, out = recorded(path), tmp_path / "run"
    write_spool(tmp_path / "spool", header_of(run), records_of(run), [(100, False), (900, True)])
    (found,) = pack_spool(tmp_path / "spool", out)
    measured, modelled = replayed(out)
    assert run.events.drop("run_id").rows() == measured.drop("run_id").rows()
    assert run.manifest["preemptions"] == found.preemptions
    expected = measured.filter(pl.col("kind") == "preempt").select(*PREEMPT).rows()
    assert expected == modelled.filter(pl.col("kind") == "preempt").select(*PREEMPT.values()).rows()
    for engine, ledger in KINDS.items():
        rows = measured.filter(pl.col("kind") == engine).select("step", "request_id").rows()
        same = modelled.filter(pl.col("kind") == ledger).select("tick", "request_id").rows()
        assert sorted(rows) == sorted(same), engine


def test_a_packed_run_goes_through_every_command_by_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pack, load, import, replay and gate, without a step by hand."""
    run = recorded(BASE_1)
    write_spool(tmp_path / "spool", header_of(run), records_of(run))
    out, store = tmp_path / "run", tmp_path / "store.duckdb"

    def preempt(*arguments: Any) -> str:
        with pytest.raises(SystemExit) as ended:
            main([str(a) for a in arguments])
        assert 0 == (ended.value.code or 0), capsys.readouterr().err
        return capsys.readouterr().out

    told = json.loads(preempt("collect", "pack", tmp_path / "spool", "--out", out, "--json"))
    assert [{"measured_requests": 240, "measured_events": 1180, "measured_steps": 15552}] == [
        one["rows"] for one in told["runs"]
    ]
    preempt("import", "run", out, "-o", tmp_path / "w.parquet", "-q")
    preempt("replay", out, "--out", tmp_path / "ledger", "-q")
    preempt("load", out, tmp_path / "ledger", "--db", store, "-q")


def test_a_packed_run_measures_what_the_engine_did(tmp_path: Path) -> None:
    """Waits and decode as recorded; TTFT, TPOT and e2e from the engine's own arrival."""
    run = recorded(BASE_1)
    write_spool(tmp_path / "spool", header_of(run), records_of(run))
    pack_spool(tmp_path / "spool", tmp_path / "run")
    found = read_run(tmp_path / "run")
    same = ["request_id", "prompt_tokens", "generated_tokens", "max_tokens", "cached_tokens"]
    same += ["priority", "status", "finish_reason", "queue_time_us", "requeue_time_us"]
    same += ["decode_time_us", "tpot_us", "num_preemptions"]
    expected = run.requests.sort("request_id")
    rows = found.requests.sort("request_id")
    assert expected.select(same).rows() == rows.select(same).rows()
    arrive = run.events.filter(pl.col("kind") == "arrive").sort("request_id")["time_us"]
    assert arrive.to_list() == rows["arrival_us"].to_list() == rows["engine_arrival_us"].to_list()
    first = expected["arrival_us"] + expected["ttft_us"]
    assert (first - arrive).to_list() == rows["ttft_us"].to_list()
    assert run.steps.drop("run_id").rows() == found.steps.drop("run_id").rows()
    assert "driven" != found.manifest["kind"]
    assert START == found.manifest["start"]
    assert run.manifest["cache"] == found.manifest["cache"]
    assert run.manifest["scheduler"] == found.manifest["scheduler"]
    assert 64 == len(found.manifest["configuration_sha256"])


def test_with_prefix_caching_a_packed_run_replays_exactly(tmp_path: Path) -> None:
    """One id for each full block of a prompt is enough, whole blocks to the very end included."""
    rng = random.Random(5)  # noqa: S311
    requests = tuple(
        Request(f"r{k:02d}", 3 * k, length, rng.randint(4, 60), prefix_blocks=shared)
        for k in range(60)
        for length in [16 * rng.randint(1, 6) + rng.choice([0, 0, 7])]
        for shared in [_prompt(rng, k, -(-length // 16))]
    )
    tables = {
        "engine": {
            "profile": "vllm-v1",
            "rule": "vllm-0.32.0",
            "tick_us": 1,
            "block_size": 16,
            "capacity_blocks": 24,
            "max_num_seqs": 16,
            "max_num_batched_tokens": 256,
            "max_model_len": 384,
            "enable_prefix_caching": True,
            "async_scheduling": False,
            "scheduling_policy": "fcfs",
            "enable_chunked_prefill": True,
            "watermark": 0.0,
            "scheduler_reserve_full_isl": True,
            "long_prefill_token_threshold": 0,
        },
    }
    engine = dict(tables["engine"])
    ledger = replay(Workload(requests, 16), parse_config(tables, "config"))
    done = to_frame(ledger.events, ledger.request_ids)
    assert 0 < done.filter(pl.col("kind") == "preempt").height
    told = header(
        cache={
            "block_size": 16,
            "num_gpu_blocks": 25,
            "capacity_blocks": 24,
            "enable_prefix_caching": True,
        },
        scheduler={
            k: engine[k]
            for k in engine
            if k not in {"profile", "rule", "tick_us", "block_size", "capacity_blocks"}
            and k != "enable_prefix_caching"
        },
    )
    write_spool(tmp_path / "spool", told, _as_recorded(requests, done, 24))
    pack_spool(tmp_path / "spool", tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert 16 == run.manifest["workload"]["prefix_block_tokens"]
    measured, modelled = replayed(tmp_path / "run")
    expected = measured.filter(pl.col("kind") == "preempt").select(*PREEMPT).rows()
    found = modelled.filter(pl.col("kind") == "preempt").select(*PREEMPT.values()).rows()
    assert expected == found
    assert (
        done.filter(pl.col("kind") == "preempt").select("tick", "request_id").rows()
        == modelled.filter(pl.col("kind") == "preempt").select("tick", "request_id").rows()
    )


def _prompt(rng: random.Random, k: int, blocks: int) -> tuple[int, ...]:
    """Some of one of three texts, then text of its own; the whole text now and then."""
    shared = rng.randint(0, blocks)
    text = rng.randrange(3)
    return tuple(100 * text + b if b < shared else 1000 * (k + 1) + b for b in range(blocks))


def _as_recorded(requests: Sequence[Request], done: pl.DataFrame, capacity: int) -> list[Record]:
    """What a recorder writes of a replay: ids of full blocks only, numbered as they appear."""
    rows = {one.request_id: (n, one) for n, one in enumerate(requests)}
    chain: dict[tuple[int, ...], int] = {}
    records: list[Record] = []
    for seq, event in enumerate(done.iter_rows(named=True)):
        n, one = rows[event["request_id"]]
        mark = [seq, event["tick"], ns(1000 * event["tick"])]
        match event["kind"]:
            case "arrive":
                full = one.prompt_tokens // 16
                blocks = one.prefix_blocks or ()
                ids = [chain.setdefault(blocks[: k + 1], len(chain)) for k in range(full)]
                sizes = [one.prompt_tokens, one.output_tokens, 0]
                records.append(["R", n, one.request_id, None, *sizes, ids])
                records.append(["A", *mark, n])
            case "admit":
                records.append(["D", *mark, n, None])
            case "preempt":
                free = capacity - event["occupied_blocks_before"]
                names = [name for name in PREEMPT.values() if name in event][2:]
                *counts, freed, running, waiting, count = [event[name] for name in names]
                state = [freed, free, running, waiting, count]
                records.append(["P", *mark, n, *counts, *state])
            case "resume":
                records.append(["U", *mark, n, None])
            case "complete":
                records.append(
                    ["F", *mark, n, one.output_tokens, event["preemptions"], "ok", "length"]
                    + [None] * 4
                )
    return records


# -- rows ------------------------------------------------------------------------------------------


def test_times_are_the_engines_own(tmp_path: Path) -> None:
    """Worked by hand: arrival 1000, first token 1030, last 1045, two tokens."""
    run = packed(tmp_path, *some(0, "a", 0, 1000), ["E", ns(2000)])
    (row,) = run.requests.iter_rows(named=True)
    names = ["arrival_us", "engine_arrival_us", "ttft_us", "tpot_us", "e2e_us"]
    assert [1000, 1000, 30, 15, 45] == [row[name] for name in names]
    assert [7, 0, 30, 15] == [
        row[f"{name}_time_us"] for name in ("queue", "requeue", "prefill", "decode")
    ]
    assert "ok" == row["status"]
    assert run.manifest["recorder"]["complete"]
    assert 1045 <= run.manifest["drain_end_us"]


@pytest.mark.parametrize(
    ("decode_ns", "tokens", "tpot"), [(7500, 6, 1), (8000, 6, 2), (9, 1, None)]
)
def test_tpot_is_the_nearest_integer_and_null_below_two_tokens(
    tmp_path: Path, decode_ns: int, tokens: int, tpot: int | None
) -> None:
    """7 us over 5 gaps are 1.4, 8 us are 1.6."""
    *before, finish = some(0, "a", 0, 1000)
    finish[5], finish[10] = tokens, finish[9] + decode_ns
    run = packed(tmp_path, *before, finish)
    assert [tpot] == run.requests["tpot_us"].to_list()


def test_what_had_not_finished_is_censored(tmp_path: Path) -> None:
    """Its output is not known, its preemptions are; a replay lets it run to its max_tokens."""
    cut_off = [
        ["R", 0, "a", None, 40, 9, None, None],
        ["A", 0, 0, ns(5), 0],
        ["D", 1, 0, ns(6), 0, 0],
        ["P", 2, 1, ns(7), 0, 41, 41, 1, 2, 0, 0, 1, 1],
    ]
    run = packed(tmp_path, *cut_off)
    (row,) = run.requests.iter_rows(named=True)
    expected = {"status": "censored", "arrival_us": 5, "engine_arrival_us": None, "ttft_us": None}
    expected |= {"generated_tokens": None, "num_preemptions": 1, "cached_tokens": 0}
    assert expected == {name: row[name] for name in expected}
    assert (9,) == tuple(r.output_tokens for r in run_workload(run, arrivals="steps").requests)
    assert not run.manifest["recorder"]["complete"]


def test_an_id_that_comes_again_is_marked_by_its_number(tmp_path: Path) -> None:
    """In its events, too; what is no id at all gets one, and all of it is counted."""
    long = "x" * 200
    names = ["a", "a", "a~1", long, "b\n"]
    records = [r for k, name in enumerate(names) for r in some(k, name, 3 * k, 100 * k, step=k)]
    run = packed(tmp_path, *records)
    ids = ["a", "a~1", "a~1~2", "unnamed~3", "unnamed~4"]
    assert ids == run.requests["request_id"].to_list()
    assert ids == run.events["request_id"].unique(maintain_order=True).to_list()
    assert any("4 requests came under an id" in n for n in run.manifest["recorder"]["notes"])


def test_ids_stay_unique_among_very_many() -> None:
    """The set grows, and knows every id it was given."""
    seen = SeenIds()
    assert all(seen.add(f"id-{k}") for k in range(5000))
    assert not any(seen.add(f"id-{k}") for k in range(5000))
    assert "new" == row_id("new", "0", seen)
    end = row_id("n" * 128, "1", SeenIds(["n" * 128]))
    assert (128, "n~1") == (len(end), end[-3:])


def test_a_wall_clock_that_is_set_moves_nothing(tmp_path: Path) -> None:
    """Arrivals after it are still in line with the monotonic marks, and a note says so."""
    hour = 3600 * 10**9
    early, late = some(0, "a", 0, 1000), some(1, "b", 3, 20_000_000, step=1)
    late[0][3] += hour
    step = ["C", UNIX_NS + 10 * 10**9 + hour, MONOTONIC_NS + 10 * 10**9]
    run = packed(tmp_path, *early, step, *late)
    assert [1000, 20_000_000] == run.requests["arrival_us"].to_list()
    assert [30, 30] == run.requests["ttft_us"].to_list()
    (note,) = run.manifest["recorder"]["notes"]
    assert "set by +3600.000 s at or before 10000000 us" in note


def test_a_wall_clock_set_back_before_the_run_moves_nothing_either() -> None:
    """Once the run has begun, only the monotonic clock says when."""
    clock = Clock(10**12, 10**12, 0)
    clock.pair(10**12 - 3600 * 10**9, 10 * 10**9)
    assert 10_000_000 == clock.us(10 * 10**9)
    assert 1 == len(clock.steps)


def test_clocks_read_a_little_apart_are_no_step() -> None:
    """A busy machine reads the second clock late; a step before the run places the run."""
    clock = Clock(10**12, 10**12, 0)
    clock.pair(10**12 + 10**9 + 10**7, 10**9)
    assert [] == clock.steps
    assert 1_000_000 == clock.us(10**9)
    before = Clock(10**12, 5, 0)
    before.pair(10**12, 100)
    assert [0, []] == [before.us(100), before.steps]
    assert [7, []] == [(again := Clock.restored(before.state())).us(7100), again.steps]


def test_a_part_that_is_missing_is_a_loss_that_is_counted(tmp_path: Path) -> None:
    """What its records began has no rows, what they ended is censored, and exact is withheld."""
    spool, told = tmp_path / "spool", header()
    first, second = some(0, "a", 0, 10), some(1, "b", 3, 20, step=1)
    third = some(2, "c", 6, 30, step=2)
    write_part(spool, told, [first[:-1]])
    write_part(spool, told | {"part": 1}, [[first[-1], *second[:2]]])
    write_part(spool, told | {"part": 2}, [[*second[2:], *third]])
    (spool / sorted(p.name for p in spool.iterdir())[1]).unlink()
    (found,) = pack_spool(spool, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert {"a": "censored", "c": "ok"} == dict(run.requests.select("request_id", "status").rows())
    assert not found.complete
    assert "1 parts of the spool are missing" in found.notes
    assert "a part of what the engine did was lost" in (found.not_modelled or [])


def test_dropped_records_are_reported(tmp_path: Path) -> None:
    """As many as the recorder said at last."""
    run = packed(tmp_path, *some(0, "a", 0, 10), ["X", 3], ["X", 5])
    assert 5 == run.manifest["recorder"]["dropped_records"]


def test_what_requests_use_and_a_replay_does_not_is_named(tmp_path: Path) -> None:
    """Each request says it, so that an option nobody used is held against nobody."""
    records = story_of("a", "b")
    records[0] = [*records[0], ["n_greater_than_1"]]
    records[5] = [*records[5], ["lora", "n_greater_than_1"]]
    columns = {"R": ["of a request"] * 8, "X": ["of a loss"] * 4}
    lost = ["X", 0, 7, 0, None]
    run = packed(tmp_path, *records, lost, columns=columns, features={"lora": False})
    found = run.manifest["not_modelled"]
    assert any(what.startswith("LoRA adapters") for what in found)
    assert "2 requests are samples of one prompt (n > 1)" in found
    assert any(what.startswith("7 prefix blocks were forgotten") for what in found)


def test_an_aborted_request_withholds_exact(tmp_path: Path) -> None:
    """Its row says what it was; a replay cannot end it where its client did."""
    *before, finish = some(0, "a", 0, 10)
    finish[7], finish[8] = "aborted", "abort"
    run = packed(tmp_path, *before, finish)
    assert [("aborted", "abort", 2)] == run.requests.select(
        "status", "finish_reason", "generated_tokens"
    ).rows()
    assert [what for what in run.manifest["not_modelled"] if "1 requests were aborted" in what]


def test_hits_on_text_that_was_generated_are_named(tmp_path: Path) -> None:
    """A prompt that repeats an answer hits blocks which the replay counts as nobody else's."""
    cache = {"block_size": 32, "num_gpu_blocks": 48, "enable_prefix_caching": True}
    first, second = some(0, "a", 0, 10), some(1, "b", 3, 20, step=1)
    first[0][7], second[0][7] = [0], [0, 1]
    second[0][4] = 90
    second[2][5] = 32
    run = packed(tmp_path / "prompt", *first, *second, cache=cache)
    assert not [n for n in run.manifest["not_modelled"] or [] if "generated" in n]
    second[2][5] = 64
    run = packed(tmp_path / "answer", *first, *second, cache=cache)
    assert [n for n in run.manifest["not_modelled"] or [] if "generated" in n]
    assert [[0], [0, 1]] == run.requests["prefix_blocks"].to_list()


@pytest.mark.parametrize(
    ("records", "message"),
    [
        ([*some(0, "a", 0, 10), ["A", 2, 1, 0, 1]], "seq must rise, after 2, got 2"),
        ([*some(0, "a", 0, 10), ["S", 0, 0, 1, *[None] * 6]], "S.step must rise, after 0, got 0"),
        ([*some(0, "a", 0, 10)[:1] * 2], "R.n must be a new number, got 0"),
        ([["R", 0, "a", None, 40, 2, 0, [1, 2, 3]]], "R.prefix_ids must have at most 2 entries"),
    ],
)
def test_a_frame_that_breaks_a_rule_ends_its_session_before_it(
    tmp_path: Path, records: list[Record], message: str
) -> None:
    """Nothing of the frame is taken, what came before it is, and the note says what is wrong."""
    write_part(tmp_path / "spool", header(), [some(9, "z", -3, 1)[:1], records])
    (found,) = pack_spool(tmp_path / "spool", tmp_path / "run")
    assert 0 == sum(found.rows[table] for table in ("measured_events", "measured_steps"))
    assert ["z"] == read_run(tmp_path / "run").requests["request_id"].to_list()
    assert not found.complete
    assert any(message in note for note in found.notes)


# -- engines, restarts and runs --------------------------------------------------------------------


def test_engines_of_one_configuration_are_one_run(tmp_path: Path) -> None:
    """An id may come to both; blocks of one are not blocks of the other."""
    cache = {"block_size": 32, "num_gpu_blocks": 48, "enable_prefix_caching": True}
    for engine in (0, 1):
        records = some(0, "a", 0, 10 + engine)
        records[0][7] = [0]
        write_spool(tmp_path / "spool", header(engine=engine, cache=cache), records)
    (found,) = pack_spool(tmp_path / "spool", tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert [0, 1] == found.engines
    assert [(0, "a"), (1, "a")] == sorted(run.requests.select("engine", "request_id").rows())
    assert 2 == run.requests["prefix_blocks"].n_unique()


def test_a_restart_with_the_same_flags_goes_on_in_the_run(tmp_path: Path) -> None:
    """Steps and seq go on counting, a second use of an id is marked, the cut-off is named."""
    write_spool(tmp_path / "spool", header(), [*some(0, "a", 0, 10), *some(1, "b", 3, 20)[:2]])
    later = header(pid=8, unix_ns=UNIX_NS + 10**9, monotonic_ns=MONOTONIC_NS + 10**9)
    write_spool(tmp_path / "spool", later, some(0, "a", 0, 2_000_000))
    (found,) = pack_spool(tmp_path / "spool", tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert {"a": "ok", "b": "censored", "a~1.0": "ok"} == dict(
        run.requests.select("request_id", "status").rows()
    )
    assert [0, 1, 2, 3, 4, 5, 6] == run.events["seq"].to_list()
    assert [0, 1] == run.steps["step"].to_list()
    assert 2 == found.sessions
    assert [n for n in found.not_modelled or [] if "cut off by a restart" in n]


def test_other_flags_and_other_servers_are_other_runs(tmp_path: Path) -> None:
    """RUN, RUN-2, RUN-3, by when they began; packing again is refused."""
    spool, out = tmp_path / "spool", tmp_path / "run"
    lives = [(7, 0, 48), (8, 1, 80), (9, 2, 48)]
    for pid, second, blocks in lives:
        cache = {"block_size": 32, "num_gpu_blocks": blocks, "enable_prefix_caching": False}
        told = header(pid=pid, unix_ns=UNIX_NS + second * 10**9, cache=cache)
        told["monotonic_ns"] += second * 10**9
        at = 5_000_000
        write_spool(spool, told, some(0, f"of-{pid}", 0, at))  # all are alive after 5 s
    found = pack_spool(spool, out)
    assert ["run", "run-2", "run-3"] == [one.path.name for one in found]
    assert [48, 80, 48] == [read_run(p.path).manifest["cache"]["num_gpu_blocks"] for p in found]
    assert ["of-7", "of-8", "of-9"] == [
        read_run(one.path).requests["request_id"].item() for one in found
    ]
    assert 3 == len({one.run_id for one in found})
    with pytest.raises(OutputExists, match="packed there already"):
        pack_spool(spool, out)


def test_no_spool_is_an_input_error(tmp_path: Path) -> None:
    """A missing directory and one that holds no part."""
    with pytest.raises(InputError, match="must be a recorder's spool directory"):
        pack_spool(tmp_path / "nowhere", tmp_path / "run")
    with pytest.raises(InputError, match="must hold a recorder's spool, got no readable part"):
        pack_spool(tmp_path, tmp_path / "run")


# -- runs of other collectors ----------------------------------------------------------------------


def observed(path: Path, *, end_us: int | None = None, **sections: Any) -> Path:
    """A run as `collect metrics` leaves it: a manifest that knows little."""
    manifest = new_manifest(run_id_of(_start(), path.name), "observed", start=_start())
    manifest["drain_end_us"] = end_us
    for name, values in sections.items():
        manifest[name] |= values
    RunWriter.create(path, manifest).close()
    return path


def _start() -> Any:
    from datetime import datetime

    return datetime.fromisoformat(START)


def test_a_scraped_run_learns_what_its_engine_did_in_its_time(tmp_path: Path) -> None:
    """What came before and after it stays out and is counted; nulls of the manifest are filled."""
    out = observed(tmp_path / "run", end_us=500, engine={"version": "0.32.0+cpu"})
    told = header(unix_ns=UNIX_NS - 10**9, monotonic_ns=MONOTONIC_NS - 10**9)
    records = [
        r for k, at in enumerate([-900, 10, 490, 600]) for r in some(k, f"r{k}", 3 * k, at, step=k)
    ]
    write_spool(tmp_path / "spool", told, records)
    (found,) = pack_spool(tmp_path / "spool", out)
    run = read_run(out)
    assert ["r1", "r2"] == run.requests["request_id"].to_list()
    assert [1, 2] == run.steps["step"].to_list()
    assert "0.32.0+cpu" == run.manifest["engine"]["version"]
    assert 48 == run.manifest["cache"]["num_gpu_blocks"]
    assert ["1 requests came before", "1 requests came after "] == [n[:22] for n in found.notes]
    with pytest.raises(OutputExists, match="a spool is packed there already"):
        pack_spool(tmp_path / "spool", out)


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        ({"engine": {"version": "0.17.1"}}, "engine.version must be the spool's other text"),
        ({"cache": {"num_gpu_blocks": 80}}, "cache.num_gpu_blocks must be the spool's 48, got 80"),
        ({"scheduler": {"scheduling_policy": "priority"}}, "scheduler.scheduling_policy must be"),
    ],
)
def test_a_run_of_another_engine_is_refused(
    tmp_path: Path, sections: dict[str, Any], message: str
) -> None:
    """And stays as it was."""
    out = observed(tmp_path / "run", **sections)
    write_spool(tmp_path / "spool", header(), some(0, "a", 0, 10))
    with pytest.raises(InputError, match=message):
        pack_spool(tmp_path / "spool", out)
    assert ["lock", "manifest.json"] == sorted(p.name.lstrip(".") for p in out.iterdir())


def test_a_run_of_another_time_is_refused(tmp_path: Path) -> None:
    """A spool of yesterday's server has nothing to say about today's run."""
    out = observed(tmp_path / "run", end_us=500)
    write_spool(tmp_path / "spool", header(unix_ns=UNIX_NS + 10**9), [])
    with pytest.raises(InputError, match="must hold a session from the time of the run"):
        pack_spool(tmp_path / "spool", out)


def driven(path: Path, run: Run, *, parts: int = 2) -> Path:
    """A run as `collect drive` leaves it: the client's columns, nothing of the engine."""
    manifest = json.loads(json.dumps(dict(run.manifest))) | {"start": START}
    with RunWriter.create(path, manifest) as writer:
        rows = blank(run.requests, [*OF_THE_ENGINE, "prefix_blocks"])
        size = -(-rows.height // parts)
        for part in rows.iter_slices(size):
            writer.write_part("measured_requests", part)
        if run.offered is not None:
            writer.write_offered(run.offered)
    return path


def test_a_driven_run_gets_back_what_its_engine_knew(tmp_path: Path) -> None:
    """The client's columns stay, the engine's are filled, events and steps are the engine's."""
    run = recorded(BASE_1)
    out = driven(tmp_path / "run", run)
    write_spool(tmp_path / "spool", header_of(run), records_of(run))
    (found,) = pack_spool(tmp_path / "spool", out)
    again = read_run(out)
    new = {"engine_arrival_us", "prefill_time_us"}
    assert run.requests.drop(new).rows() == again.requests.drop(new).rows()
    assert 0 == again.requests["prefill_time_us"].null_count()
    assert run.events.drop("run_id").rows() == again.events.drop("run_id").rows()
    assert run.steps.drop("run_id").rows() == again.steps.drop("run_id").rows()
    assert 0 == found.never_offered


def test_a_gate_says_of_packed_runs_what_it_says_of_recorded_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Driven, then packed: the same verdict for the same reasons."""
    gate = FIXTURES / "gates" / "blocks-48-to-80.toml"
    said = []
    for packs in (False, True):
        paths = []
        for name in ("base-1", "cand-80"):
            path = FIXTURES / "runs" / name
            if packs:
                run = recorded(path)
                path = driven(tmp_path / name, run)
                write_spool(tmp_path / f"{name}-spool", header_of(run), records_of(run))
                pack_spool(tmp_path / f"{name}-spool", path)
            paths.append(str(path))
        with pytest.raises(SystemExit) as ended:
            main(
                [
                    *("gate", "run", str(gate), "--json"),
                    *("--baseline", paths[0], "--candidate", paths[1]),
                ]
            )
        out = json.loads(capsys.readouterr().out)
        said.append((ended.value.code, out["verdict"], out["predicates"]))
    assert said[0] == said[1]


def test_an_engine_whose_clock_is_behind_is_moved(tmp_path: Path) -> None:
    """No request arrives before it was sent; strangers are counted and exact is withheld."""
    run = recorded(BASE_1)
    rows = run.requests.filter(pl.col("request_id") == "az0000").with_columns(arrival_us=0)
    out = driven(tmp_path / "run", replace(run, requests=rows), parts=1)
    records = [*some(0, "az0000", 0, -300), *some(1, "stranger", 3, 50, step=1)]
    told = header_of(run) | {"unix_ns": UNIX_NS - 10**6, "monotonic_ns": MONOTONIC_NS - 10**6}
    write_spool(tmp_path / "spool", told, records)
    (found,) = pack_spool(tmp_path / "spool", out)
    again = read_run(out)
    assert [0] == again.requests["engine_arrival_us"].to_list()
    assert [0, 0, 0, 350, 350, 350] == again.events["time_us"].to_list()
    assert 1 == found.never_offered
    assert any("at least 300 us behind" in note for note in found.notes)
    assert [w for w in found.not_modelled or [] if "somebody else" in w]


def test_merging_keeps_every_offered_request_and_is_the_same_twice(tmp_path: Path) -> None:
    """What reached no engine has none of its columns; an id that came twice is the first."""
    run = packed(tmp_path, *story_of("a", "a", "x"))
    engine = run.requests.with_columns(
        request_id=pl.Series(["a", "a", "x"]), prefix_blocks=pl.lit(None, pl.List(pl.Int64))
    )
    offered = blank(run.requests[:2], OF_THE_ENGINE).with_columns(
        request_id=pl.Series(["b", "a"]),
        status=pl.Series(["unsent", "error"]),
        generated_tokens=pl.Series([None, None], dtype=pl.Int64),
    )
    merged = merge_driven(offered, engine)
    assert ["b", "a"] == merged["request_id"].to_list()
    assert [None, 10] == merged["engine_arrival_us"].to_list()
    assert [None, 2] == merged["generated_tokens"].to_list()
    assert ["unsent", "error"] == merged["status"].to_list()
    assert merged.equals(merge_driven(merged, engine))


# -- however it was cut ----------------------------------------------------------------------------


@cache
def story() -> tuple[Record, ...]:
    """Sixty requests that overlap, some preempted, some never finished."""
    rng = random.Random(11)  # noqa: S311
    records: list[Record] = []
    open_now: list[int] = []
    seq = 0
    for n in range(60):
        name = rng.choice(["dup", f"r{n}"])
        at = ns(100 * n)
        ids = [rng.randrange(n + 1)]
        records.append(["R", n, name, UNIX_NS + 100_000 * n, 40, 9, 0, ids])
        records += [["A", seq, n, at, n], ["D", seq + 1, n, at, n, 0]]
        records.append(["S", n, at, 40, 40, 0, 40, 45, 1, 0])
        seq += 2
        open_now.append(n)
        if rng.random() < 0.3:
            records.append(["P", seq, n, at, n, 41, 41, 1, 2, 0, 0, 1, 1])
            seq += 1
        while open_now and rng.random() < 0.45:
            done = open_now.pop(rng.randrange(len(open_now)))
            ends = ["ok", "length", at, at + 5000, 0, 0]
            records.append(["F", seq, n, at + 5000, done, 2, 0, *ends])
            seq += 1
    return tuple(records)


CACHING = {"cache": {"block_size": 32, "num_gpu_blocks": 48, "enable_prefix_caching": True}}


def tables(run: Run) -> list[list[tuple[Any, ...]]]:
    """Rows of the three tables, in an order that no packing decides."""
    frames = (run.requests, run.events, run.steps)
    return [sorted(map(repr, f.drop("run_id").rows())) for f in frames]


@cache
def whole(directory: Path) -> list[list[Any]]:
    """Rows of the story when nothing cuts it."""
    write_spool(directory / "spool", header(**CACHING), story())
    pack_spool(directory / "spool", directory / "run")
    return tables(read_run(directory / "run"))


@pytest.fixture(scope="module")
def uncut(tmp_path_factory: pytest.TempPathFactory) -> list[list[Any]]:
    """Rows of the story when nothing cuts it."""
    return whole(tmp_path_factory.mktemp("uncut"))


cuts = st.lists(
    st.tuples(st.integers(0, len(story())), st.booleans(), st.integers(0, 3)), max_size=12
)


@settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    max_examples=20,
)
@given(cuts, st.integers(1, 200))
def test_any_split_gives_the_same_rows(
    tmp_path_factory: pytest.TempPathFactory,
    uncut: list[list[Any]],
    cuts: list[tuple[int, bool, int]],
    most_rows: int,
) -> None:
    """Into frames, parts, sittings of one packer and of another; packed parts may be deleted."""
    directory = tmp_path_factory.mktemp("cut")
    spool, out = directory / "spool", observed(directory / "run")
    writer = RunWriter.resume(out)
    part, start, path = 0, 0, write_part(spool, header(**CACHING), [])
    packer = Packer(writer, spool, most_rows=most_rows)
    for end, new_part, sitting in [*sorted(cuts), (len(story()), False, 3)]:
        append(path, [story()[start:end]])
        start = end
        if sitting == 1:
            packer.read()
        if sitting >= 2:
            for done in packer.pack():
                done.unlink()
        if sitting == 3:
            writer.close()
            writer = RunWriter.resume(out)
            packer = Packer(writer, spool, most_rows=most_rows)
        if new_part:
            part += 1
            path = write_part(spool, header(**CACHING, part=part), [])
    packer.pack(final=True)
    writer.close()
    assert uncut == tables(read_run(out))


def test_a_part_is_deletable_once_it_is_packed(tmp_path: Path) -> None:
    """The last one only when its session is over, one with more than the run holds never."""
    out, spool = observed(tmp_path / "run"), tmp_path / "spool"
    told = header(unix_ns=UNIX_NS - 10**9, monotonic_ns=MONOTONIC_NS - 10**9)
    write_part(spool, told, [some(0, "early", 0, -500)])
    with RunWriter.resume(out) as writer:
        packer = Packer(writer, spool)
        second = write_part(spool, told | {"part": 1}, [some(1, "a", 3, 10, step=1)])
        assert [] == packer.pack()
        third = write_part(spool, told | {"part": 2}, [some(2, "b", 6, 20, step=2)])
        assert [second] == packer.pack()
        append(third, [[["E", ns(30)]]])
        assert [second, third] == packer.pack()
    assert ["a", "b"] == read_run(out).requests["request_id"].to_list()


def test_sessions_of_another_configuration_are_left_to_another_packer(tmp_path: Path) -> None:
    """The first engine decides what a run that knew nothing is about."""
    out, spool = observed(tmp_path / "run"), tmp_path / "spool"
    write_spool(spool, header(), some(0, "a", 0, 10))
    other = header(unix_ns=UNIX_NS + 10**9, pid=8, model="other")
    write_spool(spool, other, some(0, "b", 0, 20))
    with RunWriter.resume(out) as writer:
        packer = Packer(writer, spool)
        packer.pack()
        assert [UNIX_NS + 10**9] == [key.unix_ns for key in packer.others]
    assert ["a"] == read_run(out).requests["request_id"].to_list()


# -- whatever kills it -----------------------------------------------------------------------------

KILLED = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[3:]
import polars
from collectors.pack.packer import Packer
from collectors.writer import RunWriter
print("ready", flush=True)
sys.stdin.readline()
with RunWriter.resume(Path(sys.argv[1])) as writer:
    packer = Packer(writer, Path(sys.argv[2]), most_rows=15)
    for path in packer.pack(final=True):
        path.unlink()
    packer.finish()
print("done", flush=True)
"""


@pytest.mark.parametrize("seed", range(4))
def test_sigkill_loses_no_row_and_doubles_none(
    tmp_path: Path, uncut: list[list[Any]], seed: int
) -> None:
    """At seeded random instants, again and again, until one sitting gets through."""
    rng = random.Random(seed)  # noqa: S311
    spool, out = tmp_path / "spool", observed(tmp_path / "run")
    write_spool(spool, header(**CACHING), story(), [(k, k % 50 == 0) for k in range(5, 300, 5)])
    root = str(Path(__file__).parent.parent)
    kills = 0
    while True:
        process = subprocess.Popen(
            [sys.executable, "-c", KILLED, str(out), str(spool), root],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        assert process.stdin is not None
        assert process.stdout is not None
        assert "ready\n" == process.stdout.readline()
        process.stdin.write("go\n")
        process.stdin.close()
        try:
            process.wait(rng.uniform(0.002, 0.25) if kills < 6 else 60)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        said = process.stdout.read()
        process.stdout.close()
        read_run(out)
        if said:
            break
        assert -signal.SIGKILL == process.returncode
        kills += 1
    assert uncut == tables(read_run(out))


class Killed(BaseException):
    """Stands for SIGKILL at one system call."""


@pytest.mark.parametrize("call", ["replace", "link", "fsync", "unlink"])
def test_a_kill_at_any_system_call_loses_no_row_and_doubles_none(
    tmp_path: Path, uncut: list[list[Any]], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """Every one in turn, before and after it, until a sitting gets through without."""
    spool = tmp_path / "spool"
    write_spool(spool, header(**CACHING), story(), [(60, True), (150, False), (200, True)])
    whole: Callable[..., Any] = getattr(os, call)
    for after in (False, True):
        out = observed(tmp_path / f"run-{after}")
        calls = 0
        while True:
            calls += 1
            left = calls

            def counted(*args: Any, after: bool = after, **kwargs: Any) -> Any:
                nonlocal left
                left -= 1
                if left == 0 and not after:
                    raise Killed
                try:
                    return whole(*args, **kwargs)
                finally:
                    if left == 0:
                        raise Killed

            with monkeypatch.context() as patch:
                patch.setattr(os, call, counted)
                try:
                    with RunWriter.resume(out) as writer:
                        packer = Packer(writer, spool, most_rows=100)
                        packer.pack(final=True)
                        packer.finish()
                except Killed:
                    pass
                else:
                    break
            read_run(out)
        assert calls > 3
        assert uncut == tables(read_run(out))


def test_a_state_that_somebody_damaged_is_an_input_error(tmp_path: Path) -> None:
    """It is refused by name, not by a traceback."""
    out, spool = observed(tmp_path / "run"), tmp_path / "spool"
    write_spool(spool, header(), some(0, "a", 0, 10))
    (out / STATE).write_text('{"schema": "preemption-pack/1", "until": null}')
    with RunWriter.resume(out) as writer, pytest.raises(InputError, match="as its packer left it"):
        Packer(writer, spool)
