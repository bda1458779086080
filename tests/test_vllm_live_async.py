"""Asynchronous scheduling, which a GPU's engine does unless it is told not to, in a live server.

vLLM's CPU platform sets `async_scheduling` to false, whatever was asked for. A plugin sets it in
the engine core alone (async_on_cpu.py); the served engine then schedules step t + 1 before the
tokens of step t are back.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import polars as pl
import pytest
from live_vllm import (
    NEW,
    Setting,
    assert_reproduced,
    drive,
    first,
    number,
    page_of,
    preempt,
    preemptions,
    recorder_below,
    server_of,
    total,
)

from collectors.run import read_run
from replay.workload import Request, Workload

pytestmark = pytest.mark.vllm
SETTING = Setting(NEW, "priority", caching=True)
ALONE = 6


@dataclass(frozen=True)
class Served:
    """A driven run, and the page behind it."""

    run: Path
    page: str


def plugin_in(folder: Path) -> Path:
    """The plugin as an installer leaves it."""
    info = folder / "async_on_cpu-1.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: async-on-cpu\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[vllm.general_plugins]\nasync_on_cpu = async_on_cpu:register\n"
    )
    shutil.copy(Path(__file__).with_name("async_on_cpu.py"), folder)
    return folder


def offered() -> Workload:
    """The trace's requests, and then some that fit into the cache only one at a time.

    They come last, and the last of them when nobody else is left. While its predecessor's last
    token is in flight nobody can be scheduled.
    """
    trace = first(50).requests
    after_us = trace[-1].arrival_us
    alone = tuple(
        Request(
            request_id=f"alone{k}",
            arrival_us=after_us + k,
            prompt_tokens=700,
            output_tokens=80,
            priority=9,
            prefix_blocks=tuple(range(10_000 + 100 * k, 10_000 + 100 * k + 21)),
        )
        for k in range(ALONE)
    )
    return Workload((*trace, *alone), prefix_block_tokens=32)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """What was collected of an engine with two batches in flight."""
    folder = tmp_path_factory.mktemp("async")
    recorder = recorder_below(tmp_path_factory.getbasetemp())
    path = (recorder, plugin_in(folder / "plugin"))
    with server_of(SETTING, recorder, folder, pythonpath=path) as server:
        run = drive(server, folder, "run", offered=offered())
        return Served(run, page_of(server))


def test_events_counter_and_rows_agree_under_asynchronous_scheduling(served: Served) -> None:
    """One number of preemptions, whoever counts; and the engine says how it schedules."""
    run = read_run(served.run)
    assert run.manifest["scheduler"]["async_scheduling"] is True
    events = preemptions(served.run)
    assert events >= 10
    assert total(served.page, "num_preemptions_total") == events
    assert events == run.requests["num_preemptions"].sum()
    assert (len(offered()), {"ok"}) == (run.requests.height, set(run.requests["status"]))


def test_a_step_that_only_waits_for_tokens_is_counted(served: Served) -> None:
    """It has a number and no row: it scheduled nothing, and the next one schedules after it."""
    steps = read_run(served.run).steps["step"]
    assert steps.len() < number(steps.max()) + 1


def test_the_replay_of_an_asynchronous_engine_does_what_it_did(
    served: Served, tmp_path: Path
) -> None:
    """The run's own manifest makes the replay asynchronous; nothing is said to be inexact."""
    assert_reproduced(served.run, tmp_path / "ledger")


def test_a_synchronous_replay_of_an_asynchronous_engine_is_another_one(
    served: Served, tmp_path: Path
) -> None:
    """A token that counts one step later shows: exactness above is no accident."""
    preempt("replay", served.run, "--out", tmp_path / "ledger")
    text = (tmp_path / "ledger" / "config.toml").read_text()
    assert "async_scheduling = true" in text
    (tmp_path / "sync.toml").write_text(
        text.replace("async_scheduling = true", "async_scheduling = false")
    )
    sync = ("--config", tmp_path / "sync.toml")
    preempt("replay", served.run, *sync, "--out", tmp_path / "other")
    one, other = (
        pl.read_parquet(tmp_path / name / "events.parquet").filter(pl.col("kind") == "preempt")
        for name in ("ledger", "other")
    )
    columns = ["tick", "request_id"]
    assert not one.select(columns).equals(other.select(columns))
