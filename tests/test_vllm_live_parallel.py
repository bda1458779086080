"""`vllm serve --data-parallel-size 2`: two engines at one address, each with its own numbers."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from live_vllm import (
    NEW,
    PLAIN,
    assert_reproduced,
    drive,
    first,
    page_of,
    preempt,
    recorder_below,
    server_of,
    total,
    watching,
)

from collectors.run import Run, read_run
from collectors.spool import list_parts
from conformance.install import name_vllm

pytestmark = pytest.mark.vllm
ENGINES = [0, 1]
REQUESTS = 50
BLOCKS = 32  # of each
# As vLLM does it by itself, there is an API server for each engine.
SERVE = ("-m", "vllm.entrypoints.cli.main", "serve")


@dataclass(frozen=True)
class Served:
    """What was collected of both engines."""

    spool: Path
    driven: Path
    beside: Path
    page: str
    doctor: dict[str, Any]


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Served:
    """Both engines driven through their one address, by two collectors."""
    folder = tmp_path_factory.mktemp("parallel")
    recorder = recorder_below(tmp_path_factory.getbasetemp())
    named = folder / "named"
    named.mkdir()
    name_vllm(named, NEW)
    changed = {
        "program": SERVE,
        "arguments": ("--data-parallel-size", "2"),
        "pythonpath": (recorder, named),
        "core": None,
        "blocks": BLOCKS,
    }
    with server_of(PLAIN, recorder, folder, **changed) as server:
        with watching(server, folder / "beside", "--spool", folder / "spool") as beside:
            driven = drive(server, folder, "driven", offered=first(REQUESTS), speed="30")
        page = page_of(server)
        doctor = preempt("doctor", "--url", server.url, "--watch", 0, "--json")
    return Served(folder / "spool", driven, beside, page, json.loads(doctor.stdout))


def events_of(run: Run, engine: int) -> int:
    """Preempt events of one engine."""
    return run.events.filter((pl.col("kind") == "preempt") & (pl.col("engine") == engine)).height


def test_each_engine_of_two_has_its_own_spool_and_series(served: Served) -> None:
    """Both indexes are in the spool, in the scraped samples and in the run."""
    assert ENGINES == sorted(key.engine for key in list_parts(served.spool))
    for run in map(read_run, (served.driven, served.beside)):
        assert ENGINES == run.manifest["recorder"]["engines"]
        assert (2, BLOCKS) == (
            run.manifest["parallel"]["data"],
            run.manifest["cache"]["num_gpu_blocks"],
        )
        for table in (run.requests, run.events, run.steps):
            assert ENGINES == sorted(set(table["engine"]))
        assert ENGINES == sorted(set(run.samples["engine"].drop_nulls()))
        assert {r.request_id for r in first(REQUESTS).requests} == set(run.requests["request_id"])
        assert (REQUESTS, {"ok"}) == (run.requests.height, set(run.requests["status"]))


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engines_events_are_its_own_counters(served: Served, engine: int) -> None:
    """One number for each engine: events, rows, the page, the samples."""
    counted = total(served.page, "num_preemptions_total", engine)
    for run in map(read_run, (served.driven, served.beside)):
        assert counted == events_of(run, engine) > 0
        rows = run.requests.filter(pl.col("engine") == engine)
        assert counted == rows["num_preemptions"].sum()
        samples = run.samples.filter(
            (pl.col("name") == "num_preemptions") & (pl.col("engine") == engine)
        )
        assert counted == samples["value"].max()
        assert rows.height == total(served.page, "e2e_request_latency_seconds_count", engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_of_two_is_replayed_exactly(served: Served, engine: int, tmp_path: Path) -> None:
    """Each by itself, from its own steps."""
    assert_reproduced(served.driven, tmp_path / "ledger", engine)


def test_the_doctor_knows_each_engines_capacity(served: Served) -> None:
    """What the page has of both together is not taken for one's."""
    assert ENGINES == served.doctor["engines"]
    assert [BLOCKS - 1] * 2 == [one["capacity_blocks"] for one in served.doctor["capacity"]]


def test_a_spool_of_two_engines_is_one_run(served: Served, tmp_path: Path) -> None:
    """Packed by itself."""
    preempt("collect", "pack", served.spool, "--out", tmp_path / "run")
    assert [tmp_path / "run"] == list(tmp_path.iterdir())
    assert ENGINES == read_run(tmp_path / "run").manifest["recorder"]["engines"]
