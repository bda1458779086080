"""SIGKILL at any moment: nothing committed is lost, and every file can be read."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from fault_server import FaultServer, fault_server

from collectors.run import read_run
from collectors.scrape.pages import page_parts, read_pages

KILLS = 25
ROOT = Path(__file__).parent.parent


@pytest.fixture
def forker() -> Iterator["subprocess.Popen[str]"]:
    """A process that forks collectors."""
    command = [sys.executable, str(ROOT / "tests" / "kill_child.py")]
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
        "POLARS_MAX_THREADS": "1",
    }
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        yield process
        process.stdin.close()  # type: ignore[union-attr]
        process.wait(10)


def started(forker: "subprocess.Popen[str]", server: FaultServer, out: Path) -> int:
    """Process id of a new collector."""
    assert forker.stdin is not None
    assert forker.stdout is not None
    forker.stdin.write(f"{server.url} {out}\n")
    forker.stdin.flush()
    return int(forker.stdout.readline())


def until(true: Callable[[], bool]) -> None:
    """Wait for something, not for ever."""
    deadline = time.monotonic() + 30
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.0005)


def gone(pid: int) -> None:
    """Wait until a process is no more."""

    def ended() -> bool:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return True
        return False

    until(ended)


def kept(out: Path) -> Counter[int]:
    """Counts of all pages that a run has, however they are kept."""
    found: Counter[int] = Counter()
    for part in page_parts(out):
        for entry in read_pages(part):
            text = (entry.page or "").partition("vllm:prompt_tokens_total")[2]
            if text:
                found[int(text.split("} ")[1].split("\n")[0])] += 1
    return found


@pytest.mark.parametrize("seed", range(8))
def test_a_kill_at_any_moment_loses_at_most_the_scrape_in_flight(
    tmp_path: Path, forker: "subprocess.Popen[str]", seed: int
) -> None:
    """Every page followed by another request of the same collector is there, exactly once."""
    moments, out = random.Random(seed), tmp_path / "run"  # noqa: S311 (no secret)
    expected: set[int] = set()
    with fault_server() as server:
        for _ in range(KILLS):
            first, before = server.served, len(server.requests)
            pid = started(forker, server, out)
            if moments.random() < 0.7:  # else while the last run is being taken up
                until(lambda before=before: len(server.requests) > before)
            time.sleep(moments.uniform(0, 0.06))
            os.kill(pid, signal.SIGKILL)
            gone(pid)
            requests = len(server.requests) - before
            expected |= set(range(first + 1, first + requests))
            if (out / "manifest.json").exists():
                read_run(out)
                assert expected <= set(kept(out))
        pid = started(forker, server, out)
        before = len(server.requests)
        until(lambda: len(server.requests) > before + 3)
        os.kill(pid, signal.SIGTERM)
        gone(pid)
    run = read_run(out)
    pages = kept(out)
    assert {1} == set(pages.values())
    assert expected <= set(pages)
    counted = run.samples.filter(run.samples["name"] == "prompt_tokens")["value"].to_list()
    assert sorted(pages) == sorted(map(int, counted))
    assert run.manifest["scrapes"] == len(pages)
    assert run.manifest["collection"]["outcomes"] == {"ok": len(pages)}
    assert run.samples["scrape"].is_sorted()
    assert run.samples["time_us"].is_sorted()
    assert [] == [p for p in out.rglob("*") if p.name.startswith(".") and p.name != ".lock"]
    assert [] == list(out.glob("pages/journal-*"))
