"""A comparison of two real servers, started and ended by `preempt compare`, up to the verdict."""

import json
import socket
from pathlib import Path

import pytest
from live_vllm import (
    BLOCKS,
    NEW,
    READY_S,
    assert_reproduced,
    first,
    found,
    pinned,
    preempt,
    preemptions,
    recorder_below,
)

from collectors.compare.turns import SIDES
from collectors.run import read_run
from conformance.serve import Options, free_port, start_line, write_model
from replay.workload_file import write_workload

pytestmark = pytest.mark.vllm
REQUESTS = 40
GATE = f"""
schema = "preemption-gate/1"
name = "more-blocks"
[change]
fields = ["cache.num_gpu_blocks"]
[design]
kind = "driven"
pairs = 1
[[predicate]]
id = "repeat"
kind = "repeated_preemption"
max_preemptions = {REQUESTS}
[[predicate]]
id = "failures"
kind = "failures"
max_failed_fraction = 0.1
"""


def test_two_servers_are_started_driven_judged_and_ended(
    tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """What the gate is given is whole: both sides recorded, comparable, and replayed exactly."""
    recorder = recorder_below(tmp_path_factory.getbasetemp())
    port, model = free_port(), write_model(tmp_path / "model")
    started = []
    for side, blocks in zip(SIDES, (BLOCKS, 2 * BLOCKS), strict=True):
        core = 0 if pinned() else None
        options = Options(blocks=blocks, core=core, pythonpath=(recorder,))
        started += [f"--{side}-start", start_line(found(NEW), model, port, options)]
    write_workload(first(REQUESTS), tmp_path / "offered.jsonl", ".jsonl")
    (tmp_path / "gate.toml").write_text(GATE)
    out = tmp_path / "out"
    files = (tmp_path / "gate.toml", tmp_path / "offered.jsonl", "--out", out)
    where = ("--url", f"http://127.0.0.1:{port}", "--recorder", "--ready", f"{READY_S}s")
    done = preempt("compare", *files, *where, *started, "--speed", "12", "--lateness-limit", "1h")
    assert "pass: " in done.stdout
    report = json.loads((out / "verdict" / "report.json").read_text())
    assert "pass" == report["verdict"]
    runs = {side: out / f"pair-00-{side}" for side in SIDES}
    manifests = {side: read_run(run).manifest for side, run in runs.items()}
    sizes = [manifests[side]["cache"]["num_gpu_blocks"] for side in SIDES]
    assert [BLOCKS, 2 * BLOCKS] == sizes
    assert preemptions(runs["baseline"]) > preemptions(runs["candidate"])
    assert_reproduced(runs["baseline"], tmp_path / "ledger")
    with socket.socket() as probe:
        assert 0 != probe.connect_ex(("127.0.0.1", port))
