"""What the live tests say where a replay is not what the engine did."""

import json
import shutil
from pathlib import Path

import polars as pl
import pytest
from live_vllm import overtaken, parted
from test_live_runs import PREEMPT, RUNS

from collectors.run import read_run


@pytest.mark.parametrize("lacking", [False, True])
def test_the_first_row_that_differs_is_shown_with_what_may_be_why(
    lacking: bool, tmp_path: Path
) -> None:
    """Both sides of it, the order of arrivals, and what the manifest says of clocks and gaps."""
    run = Path(shutil.copytree(RUNS["base-1"][0], tmp_path / "run"))
    manifest = json.loads((run / "manifest.json").read_text())
    notes = ["engine 0: the wall clock was set by +1.000 s at or before 7 us"]
    (run / "manifest.json").write_text(json.dumps(manifest | {"recorder": {"notes": notes}}))
    found = read_run(run)
    did = found.events.filter(pl.col("kind") == "preempt").select(*PREEMPT).rows()
    replayed = did[:2] if lacking else [*did[:2], (0, *did[2][1:]), *did[3:]]
    lines = parted(found, did, replayed).splitlines()
    assert f"preemption 2 of {len(did)} measured, {len(replayed)} replayed: step," in lines[0]
    assert [f"  engine: {did[2]}", f"  replay: {None if lacking else replayed[2]}"] == lines[1:3]
    assert lines[3].startswith("0 requests reached")
    assert lines[3].endswith("; 240 have no such time")
    assert f"wall clock set: True; gaps: []; notes: {notes}" == lines[4]
    assert parted(found, [], []).startswith("preemption 0 of 0 measured, 0 replayed: ")


def test_requests_that_a_later_one_overtook_are_counted() -> None:
    """In another step, and on the same engine."""
    run = read_run(RUNS["base-1"][0])
    steps = [(0, 1, 10), (0, 2, 30), (0, 2, 20), (0, 3, 25), (0, 4, 5), (0, 5, 40), (1, 9, 1)]
    names = [f"r{k}" for k in range(len(steps))]
    engines, at, times = zip(*steps, strict=True)
    keys = {"engine": engines, "request_id": names}
    events = pl.DataFrame({**keys, "step": at, "kind": ["arrive"] * len(steps)})
    requests = pl.DataFrame({**keys, "engine_arrival_us": times})
    assert 2 == overtaken(type(run)(**{**vars(run), "events": events, "requests": requests}))
