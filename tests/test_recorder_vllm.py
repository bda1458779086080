"""The recorder on vLLM's own scheduler classes: what it noted is what the suite's driver saw.

Deselected by default; `pytest -m vllm -n 0` runs it in environments that it installs.
"""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import click
import pytest

from collectors.features import not_modelled
from collectors.spool import (
    Admit,
    End,
    Finish,
    Header,
    Preempt,
    Request,
    Resume,
    list_parts,
    read_header,
    read_part,
)
from conformance.cases import generate
from conformance.install import Machine, environment
from replay.rules import CHECKED

RELEASES = [name.removeprefix("vllm-") for name in CHECKED]
DRIVER = Path(__file__).with_name("test_recorder_drive_class.py")
FLAGS = (False, True)
EACH = 12  # cases with asynchronous scheduling, and as many without
pytestmark = [pytest.mark.vllm, pytest.mark.parametrize("release", RELEASES)]


def records_of(directory: Path) -> list[Any]:
    """All records of the one session in a directory."""
    ((_, parts),) = list_parts(directory).items()
    return [record for part in parts for frame in read_part(part) for record in frame.records]


def header_of(directory: Path) -> Header:
    """What the engine of the one session told of itself."""
    ((_, parts),) = list_parts(directory).items()
    return read_header(parts[0])


def driven(release: str, cases: list[Any], spools: Path) -> list[dict[str, Any]]:
    """What the driver saw of each case, which the recorder watched, too."""
    found = environment(release, machine=Machine(say=click.echo))
    quiet = {"VLLM_CACHE_ROOT": str(found.cache / "vllm"), "VLLM_NO_USAGE_STATS": "1"}
    done = subprocess.run(
        [found.python, "-I", "-X", f"pycache_prefix={found.cache / 'bytecode'}", DRIVER, spools],
        input="".join(json.dumps(case) + "\n" for case in cases),
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        env=os.environ | quiet,
    )
    return [json.loads(line) for line in done.stdout.splitlines()]


def noted_in(records: list[Any]) -> dict[str, list[list[Any]]]:
    """What the recorder says, in the driver's columns."""
    ids = {r.n: r.request_id for r in records if isinstance(r, Request)}
    return {
        "preemptions": [
            [
                *(ids[p.n], p.freed, p.computed, p.context, p.generated),
                *(p.free_before + p.freed, p.running, p.waiting),
            ]
            for p in records
            if isinstance(p, Preempt)
        ],
        "admissions": [
            [ids[a.n], int(isinstance(a, Resume)), a.cached_tokens]
            for a in records
            if isinstance(a, Admit | Resume)
        ],
        "completions": [[ids[f.n]] for f in records if isinstance(f, Finish)],
    }


def seen_in(result: dict[str, Any]) -> dict[str, list[list[Any]]]:
    """The same columns of what the driver saw; tick and requester are its own."""
    return {
        "preemptions": [[row[1], *row[3:]] for row in result["preemptions"]],
        "admissions": [row[1:4] for row in result["admissions"]],
        "completions": [row[1:2] for row in result["completions"]],
    }


def test_the_recorder_notes_what_either_scheduler_class_does(release: str, tmp_path: Path) -> None:
    """Every preemption with its numbers, every admission with its hits, every end, in order."""
    every = list(generate(release, 400, 7))
    kinds = [[c for c in every if c["config"]["engine"]["async_scheduling"] is a] for a in FLAGS]
    cases = [case for kind in kinds for case in kind[:EACH]]
    preemptions = 0
    for number, result in enumerate(driven(release, cases, tmp_path)):
        records = records_of(tmp_path / str(number))
        assert seen_in(result) == noted_in(records), result["name"]
        facts = header_of(tmp_path / str(number)).facts
        assert [] == not_modelled(facts, {}), facts["options_set"]
        assert ("cpu", 1) == (facts["device"]["kind"], facts["device"]["count"])
        assert isinstance(records[-1], End)
        preemptions += len(result["preemptions"])
    assert preemptions > len(cases)
