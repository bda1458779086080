"""Everything collected from a live vLLM fits together, and goes on into a replay as it is.

Deselected by default; `pytest -m vllm -n 0 tests/test_vllm_live.py` starts real servers, one after
the other, on loopback. Each setting's server is driven when a test first asks for it; all else is
looked up in what was collected.
"""

import gzip
import json
import lzma
import os
import re
import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import click
import polars as pl
import pytest
from live_vllm import (
    BLOCKS,
    NEW,
    OLD,
    PLAIN,
    RECORDER,
    REQUESTS,
    Setting,
    assert_reproduced,
    drive,
    found,
    number,
    page_of,
    preempt,
    recorder_below,
    server_of,
    total,
    uv,
    watching,
    workload,
)

from collectors.drive.prompts import Prompts, TokenIds
from collectors.exposition.names import KNOWN
from collectors.run import Run, read_run, run_workload
from replay.workload import Request

CLOCK_US = 2_000  # wall clocks of two processes of one machine, and rounding
# From the client's send to the engine, and back from its token: HTTP and two processes, one core.
WAY_US, LONGEST_WAY_US = 200_000, 2_000_000
# Labels of vLLM's metrics are words and numbers.
SHORT_LABELS = re.compile(r'\{("\w{1,40}":"[\w.:+-]{0,60}",?)*\}')
pytestmark = pytest.mark.vllm
SETTINGS = [
    PLAIN,
    Setting(NEW, "fcfs", caching=True),
    Setting(NEW, "priority", caching=False),
    Setting(NEW, "priority", caching=True),
    Setting(OLD, "fcfs", caching=False),
    Setting(OLD, "priority", caching=True),
]
every_setting = pytest.mark.parametrize("setting", SETTINGS, ids=str)


@dataclass
class Collected:
    """What one server's drive left, and what was seen of it before it ended."""

    run: Path
    page: str
    spool: Path
    observed: Path
    doctors: list[dict[str, Any]] = field(default_factory=list)
    second: Path | None = None
    watched: Path | None = None
    last_page: str = ""

    @property
    def read(self) -> Run:
        """The run, every rule checked."""
        return read_run(self.run)


@pytest.fixture(scope="session")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The recorder, installed into a directory of its own: the environments are not ours."""
    return recorder_below(tmp_path_factory.getbasetemp())


Collect = Callable[[Setting], Collected]


@pytest.fixture(scope="session")
def collect(recorder: Path, tmp_path_factory: pytest.TempPathFactory) -> Collect:
    """A setting's evidence, collected when it is first asked for."""

    @cache
    def collected(setting: Setting) -> Collected:
        folder = tmp_path_factory.mktemp(str(setting))
        with server_of(setting, recorder, folder) as server:
            result = Collected(folder / "run", "", folder / "spool", folder / "observed")
            look = ("doctor", "--url", server.url, "--spool", folder / "spool", "--json")
            result.doctors.append(json.loads(preempt(*look, "--watch", 0).stdout))
            drive(server, folder, "run", *side("baseline", 0))
            result.page = page_of(server)
            result.doctors.append(json.loads(preempt(*look, "--watch", 0.1).stdout))
            if setting == PLAIN:
                with watching(server, folder / "watched") as result.watched:
                    result.second = drive(server, folder, "second", *side("candidate", 1))
                result.last_page = page_of(server)
        preempt("collect", "pack", result.spool, "--out", result.observed)
        return result

    return collected


def side(name: str, order: int) -> tuple[object, ...]:
    """Options that place a drive in a comparison."""
    return ("--side", name, "--pair", 0, "--order", order)


def plain(path: Path) -> bytes:
    """Content of a file, decompressed."""
    data = path.read_bytes()
    match path.suffix:
        case ".gz":
            return gzip.decompress(data)
        case ".xz":
            return lzma.decompress(data)
    return data


# The sources agree.


@every_setting
def test_preempt_events_are_what_the_engines_own_counter_counts(
    setting: Setting, collect: Collect
) -> None:
    """Plugin events, request rows and the scraped counter: one number, and there were some."""
    found = collect(setting)
    run = found.read
    events = run.events.filter(pl.col("kind") == "preempt").height
    assert events >= REQUESTS // 5
    assert total(found.page, "num_preemptions_total") == events
    assert events == run.requests["num_preemptions"].sum()
    scraped = run.samples.filter(pl.col("name") == "num_preemptions").sort("scrape")
    assert events == scraped["value"].max()
    assert events == run.manifest["preemptions"]


def test_a_collector_of_metrics_alone_sees_what_the_engine_counted(collect: Collect) -> None:
    """From outside, no scrape failing, late at most; without a recorder there are no events."""
    found = collect(PLAIN)
    assert found.watched is not None
    run = read_run(found.watched)
    assert {"ok"} == set(run.manifest["collection"]["outcomes"])
    assert all(gap["reason"].startswith("late,") for gap in run.manifest["gaps"])
    for name in ("num_preemptions", "generation_tokens"):
        scraped = run.samples.filter(pl.col("name") == name)["value"]
        assert total(found.last_page, f"{name}_total") == scraped.max(), name
    assert (NEW, BLOCKS) == (
        run.manifest["engine"]["version"],
        run.manifest["cache"]["num_gpu_blocks"],
    )
    assert 0 == run.events.height


@every_setting
def test_every_request_sent_has_one_row_that_says_what_became_of_it(
    setting: Setting, collect: Collect
) -> None:
    """All were served in full, and arrive, admit and finish each name every one of them."""
    found = collect(setting)
    run = found.read
    sent = {r.request_id: (r.prompt_tokens, r.output_tokens) for r in workload().requests}
    rows = run.requests.select("request_id", "prompt_tokens", "generated_tokens").rows()
    assert sent == {name: (prompt, output) for name, prompt, output in rows}
    assert len(sent) == run.requests.height
    assert {"ok"} == set(run.requests["status"])
    for kind in ("arrive", "admit", "finish"):
        named = run.events.filter(pl.col("kind") == kind)["request_id"].to_list()
        assert sorted(sent) == sorted(named), kind
    assert total(found.page, "e2e_request_latency_seconds_count") == REQUESTS
    tokens = sum(r.prompt_tokens for r in workload().requests)
    assert total(found.page, "prompt_tokens_total") == tokens


@every_setting
def test_ttft_of_server_and_client_agree_within_what_lies_between_them(
    setting: Setting, collect: Collect, capsys: pytest.CaptureFixture[str]
) -> None:
    """The engine's first token minus its arrival, never above what the client saw of both.

    Between the client's send and the engine's arrival lie HTTP and the API server; between the
    engine's token and the client's lie two processes. The server's own histogram starts at its
    arrival and ends in the API server, so its mean is between the two.
    """
    found = collect(setting)
    rows = found.read.requests
    client = number(rows["ttft_us"].mean())
    server = total(found.page, "time_to_first_token_seconds_sum") * 1e6
    server /= total(found.page, "time_to_first_token_seconds_count")
    with capsys.disabled():
        click.echo(f"\n{setting}: TTFT mean client {client:.0f} us, server {server:.0f} us")
    assert REQUESTS == total(found.page, "time_to_first_token_seconds_count")
    assert server <= client + CLOCK_US
    assert client - server <= max(50_000, 0.5 * client)
    way = (rows["engine_arrival_us"] - rows["arrival_us"]).drop_nulls()
    if way.len():
        with capsys.disabled():
            click.echo(f"  send to engine's arrival: {way.min()!r} to {way.max()!r} us")
        assert REQUESTS == way.len()
        assert -CLOCK_US <= number(way.min())
        assert number(rows["ttft_us"].max()) >= number(way.max())


@every_setting
def test_steps_add_up_to_what_was_computed(setting: Setting, collect: Collect) -> None:
    """Scheduled tokens are prompts, generated tokens but the last, and what preemptions cost."""
    found = collect(setting)
    run = found.read
    scheduled = number(run.steps["scheduled_tokens"].sum())
    work = sum(r.prompt_tokens + r.output_tokens - 1 for r in workload().requests)
    lost = number(run.events.filter(pl.col("kind") == "preempt")["computed_tokens"].sum())
    if setting.caching:  # cached tokens are not computed, and a resumed request finds some
        cached = number(run.requests["cached_tokens"].sum())
        assert work <= scheduled + cached <= work + lost
    else:
        assert work + lost == scheduled
    assert run.steps["step"].to_list() == list(range(run.steps.height))


@every_setting
def test_ttft_of_each_request_is_shorter_inside_the_engine(
    setting: Setting, collect: Collect, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both marks of the client lie outside both of the engine, and the way between them is short.

    The spool, packed by itself, has the engine's own durations. Durations need no common zero: both
    monotonic clocks are the same machine's.
    """
    found = collect(setting)
    inside = read_run(found.observed).requests.select("request_id", engine_us="ttft_us")
    both = found.read.requests.join(inside, on="request_id", how="inner", validate="1:1")
    assert REQUESTS == both.height
    way = both["ttft_us"] - both["engine_us"]
    median, longest = number(way.median()), number(way.max())
    with capsys.disabled():
        click.echo(
            f"\n{setting}: client minus engine {way.min()!r} to {longest:.0f} us, {median:.0f}"
        )
    assert number(way.min()) >= -CLOCK_US
    assert median <= WAY_US
    assert longest <= LONGEST_WAY_US


def test_no_text_of_a_request_is_anywhere_but_in_raw_pages(collect: Collect) -> None:
    """String columns hold ids, statuses, kinds, canonical names and labels, and nothing else."""
    found = collect(PLAIN)
    run = found.read
    allowed: dict[str, set[Any]] = {
        "run_id": {run.run_id},
        "request_id": {request.request_id for request in workload().requests},
        "tenant": {request.tenant for request in workload().requests},
        "model": {"tinymodel", None},
        "status": {"ok"},
        "finish_reason": {"length", None},
        "kind": {"arrive", "admit", "preempt", "resume", "finish"},
        "problem": {None},
    }
    parts = sorted(found.run.rglob("*.parquet"))
    assert {"requests", "events", "steps", "samples"} <= {part.parent.name for part in parts}
    for part in parts:
        frame = pl.read_parquet(part)
        for column in frame.select(pl.col(pl.String)).iter_columns():
            values = set(column)
            if column.name == "name":
                bases = {re.sub("_(bucket|sum|count)$", "", name) for name in values - set(KNOWN)}
                assert bases <= set(KNOWN), part
            elif column.name == "labels":
                assert all(SHORT_LABELS.fullmatch(value) for value in values), part
            else:
                assert values <= allowed[column.name], (part, column.name)


def test_no_prompt_is_anywhere(collect: Collect) -> None:
    """The tokens that were sent are in no file of the run and in none of the spool."""
    found = collect(PLAIN)
    prompts = Prompts(workload(), 0, TokenIds())
    begins = [prompts.tokens(k, r)[40:48] for k, r in enumerate(workload().requests)]
    begins = [tokens for tokens in begins if len(tokens) == 8]
    looks = [re.compile(rb"\D+".join(b"%d" % token for token in tokens)) for tokens in begins]
    assert len(looks) > REQUESTS // 3
    files = [path for place in (found.run, found.spool) for path in place.rglob("*")]
    read = 0
    for path in (path for path in files if path.is_file() and path.suffix != ".parquet"):
        text = plain(path)
        read += len(text)
        assert not any(look.search(text) for look in looks), path
    assert read > REQUESTS


# It goes on from there.


@every_setting
def test_the_replay_of_a_live_run_preempts_exactly_as_the_engine_did(
    setting: Setting, collect: Collect, tmp_path: Path
) -> None:
    """Every event in its step, every preemption with its numbers; and nothing withholds exact."""
    found = collect(setting)
    assert_reproduced(found.run, tmp_path / "ledger")


def test_durations_fitted_to_a_live_run_give_its_times_again(
    collect: Collect, tmp_path: Path
) -> None:
    """Calibrated on itself a run has no drift, and a token takes about as long as it took."""
    run, timing, ledger = collect(PLAIN).run, tmp_path / "timing.toml", tmp_path / "timed"
    preempt("calibrate", run, "-o", timing)
    preempt("replay", run, "--timing", timing, "--out", ledger)
    preempt("verify", ledger)
    shown = json.loads(preempt("fidelity", ledger, run, "--json", "-q").stdout)
    assert "timed, calibrated on this run" == shown["level"]
    assert 1 == pytest.approx(shown["drift"], abs=0.01)
    errors = {score["metric"]: score["error_frac"] for score in shown["scores"]}
    assert abs(errors["tpot_us_p50"]) < 0.5
    assert abs(errors["preemptions"]) < 0.5


GATE = """schema = "preemption-gate/1"
name = "the-same-twice"
[change]
fields = []
[design]
kind = "driven"
pairs = 1
arrival_seeds = 1
warmup_us = 0
follow_up_us = 0
[[predicate]]
id = "no-erased-progress"
kind = "erased_progress"
[[predicate]]
id = "repeat"
kind = "repeated_preemption"
max_preemptions = 100
"""


def test_two_runs_go_through_store_report_and_gate(collect: Collect, tmp_path: Path) -> None:
    """Load, sql, report and gate take what was collected, as it is."""
    found = collect(PLAIN)
    assert found.second is not None
    ledger, db = tmp_path / "ledger", tmp_path / "store.duckdb"
    preempt("replay", found.run, "--out", ledger)
    preempt("load", found.run, found.second, ledger, "--db", db)
    query = "SELECT count(*) AS n FROM measured_requests"
    assert str(2 * REQUESTS) in preempt("sql", query, "--db", db).stdout
    preempt("report", found.run, found.second, ledger, "--out", tmp_path / "report")
    assert found.read.run_id in (tmp_path / "report" / "report.md").read_text()
    (tmp_path / "gate.toml").write_text(GATE)
    sides = ("--baseline", found.run, "--candidate", found.second)
    preempt("gate", "run", tmp_path / "gate.toml", *sides, "--out", tmp_path / "verdict")
    second = read_run(found.second)
    assert REQUESTS == run_workload(second).__len__()
    assert {"ok"} == set(second.requests["status"])


@every_setting
def test_the_doctor_knows_a_living_engine(setting: Setting, collect: Collect) -> None:
    """Release, capacity, recorder and preemptions, before and after; nothing is missing."""
    before, after = collect(setting).doctors
    for seen in (before, after):
        assert (setting.release, ["tinymodel"], [0]) == (
            seen["version"],
            seen["models"],
            seen["engines"],
        )
        assert BLOCKS - 1 == seen["capacity"][0]["capacity_blocks"]
        assert 32 * (BLOCKS - 1) == seen["capacity"][0]["capacity_tokens"]
        assert setting.caching == seen["capacity"][0]["enable_prefix_caching"]
        assert (True, 0) == (seen["recorder"]["active"], seen["recorder"]["dropped"])
        assert setting.policy == seen["scheduler"]["scheduling_policy"]
        assert ([], [], []) == (
            seen["metrics"]["needed"],
            seen["metrics"]["unmatched"],
            seen["not_modelled"],
        )
    assert 0 == before["now"]["preemptions"]
    assert total(collect(setting).page, "num_preemptions_total") == after["now"]["preemptions"]


# What installing it moves.


def frozen(release: str, *paths: Path) -> set[str]:
    """Names and versions of every distribution that an environment sees."""
    code = (
        "import importlib.metadata as m\n"
        "print('\\n'.join({f'{d.name}=={d.version}' for d in m.distributions()}))"
    )
    environ = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    done = subprocess.run(
        [found(release).python, "-c", code],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.split())


@pytest.mark.parametrize("release", [NEW, OLD])
def test_installing_the_recorder_moves_nothing(release: str, recorder: Path) -> None:
    """One distribution more, and none in another version; an installer would do just that."""
    before, after = frozen(release), frozen(release, recorder)
    assert before <= after
    (added,) = after - before
    assert added.startswith("preemption-ledger-recorder==")
    plan = uv("pip", "install", "--dry-run", "--python", found(release).python, RECORDER).stderr
    moved = [line.split()[:2] for line in plan.splitlines() if line.lstrip().startswith(("+", "-"))]
    assert ["+", "preemption-ledger-recorder"] == [word.partition("==")[0] for word in moved[0]]
    assert 1 == len(moved)


def test_requests_are_the_ones_the_trace_has() -> None:
    """The workload of these files: one shape, whatever the release."""
    assert REQUESTS == len(workload())
    assert all(isinstance(request, Request) for request in workload().requests)
    assert len({request.request_id for request in workload().requests}) == REQUESTS
