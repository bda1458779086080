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
from fault_server import FaultServer, Writer, fault_server, page, send
from spools import WritingRecorder, header

from collectors.pack.packer import STATE
from collectors.run import Run, read_run
from collectors.scrape.pages import page_parts, read_pages
from collectors.spool import Finish, list_parts, read_part

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
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=environment,
        start_new_session=True,
    ) as process:
        try:
            yield process
        finally:  # with the collectors that a failed test left
            os.killpg(process.pid, signal.SIGKILL)


def started(
    forker: "subprocess.Popen[str]", server: FaultServer, out: Path, spool: Path | None = None
) -> int:
    """Process id of a new collector."""
    assert forker.stdin is not None
    assert forker.stdout is not None
    forker.stdin.write(f"{server.url} {out} {spool or '-'}\n")
    forker.stdin.flush()
    return int(forker.stdout.readline())


class Pages:
    """Answers with pages that count the requests, and knows which were followed by another."""

    def __init__(self) -> None:
        self._count = 0
        self._by_connection: dict[Writer, list[int]] = {}

    async def __call__(self, server: FaultServer, request: str, writer: Writer) -> None:
        """The next page."""
        del server, request
        self._count += 1
        self._by_connection.setdefault(writer, []).append(self._count)
        await send(writer, page(self._count))

    def followed(self) -> set[int]:
        """Pages whose collector asked again: it has them."""
        return {page for pages in list(self._by_connection.values()) for page in pages[:-1]}


def until(true: Callable[[], bool]) -> None:
    """Wait for something, not for ever."""
    deadline = time.monotonic() + 120
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


@pytest.mark.parametrize("seed", range(4))
def test_a_kill_at_any_moment_loses_at_most_the_scrape_in_flight(
    tmp_path: Path, forker: "subprocess.Popen[str]", seed: int
) -> None:
    """Every page followed by another request of the same collector is there, exactly once."""
    moments, out = random.Random(seed), tmp_path / "run"  # noqa: S311 (no secret)
    pages = Pages()
    with fault_server() as server:
        server.answer = pages
        for _ in range(KILLS):
            before = len(server.requests)
            pid = started(forker, server, out)
            if moments.random() < 0.7:  # else while the last run is being taken up
                until(lambda before=before: len(server.requests) > before)
            time.sleep(moments.uniform(0, 0.06))
            os.kill(pid, signal.SIGKILL)
            gone(pid)
            if (out / "manifest.json").exists():
                read_run(out)
                assert pages.followed() <= set(kept(out))
        pid = started(forker, server, out)
        before = len(server.requests)
        until(lambda: len(server.requests) > before + 3)
        os.kill(pid, signal.SIGTERM)
        gone(pid)
    every_page_is_there_once(out, pages.followed())
    assert [] == [p for p in out.rglob("*") if p.name.startswith(".") and p.name != ".lock"]


def every_page_is_there_once(out: Path, expected: set[int]) -> Run:
    """The run of a collector that ended: its pages, its samples and its counts agree."""
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
    assert [] == list(out.glob("pages/journal-*"))
    return run


def waiting(spool: Path) -> set[str]:
    """Ids of requests whose end is in a part that is still there."""
    ended = set()
    for parts in list_parts(spool).values():
        for part in parts:
            for frame in read_part(part):
                ended |= {f"r{r.n}" for r in frame.records if isinstance(r, Finish)}
    return ended


@pytest.mark.parametrize("seed", range(4, 8))
def test_a_kill_loses_no_row_of_a_spool_that_is_being_written_and_doubles_none(
    tmp_path: Path, forker: "subprocess.Popen[str]", seed: int
) -> None:
    """What the engine wrote is in the run or still in the spool, at any moment; then in the run."""
    moments, out, spool = random.Random(seed), tmp_path / "run", tmp_path / "spool"  # noqa: S311
    cache = {"block_size": 16, "num_gpu_blocks": 64, "enable_prefix_caching": False}
    packed, pages, sittings = set[str](), Pages(), 0
    with fault_server() as server:
        server.answer = pages
        gone(first_scrape(forker, server, out))
        with WritingRecorder(spool, header(model="tiny", cache=cache)) as recorder:
            for kill in range(10 * KILLS):
                if kill >= KILLS and sittings > 1:  # a slow machine commits less in its moments
                    break
                before = commits(out)
                pid = started(forker, server, out, spool)
                if kill % 8 == 7:  # while it commits; else while it starts, or reads
                    until(lambda before=before: commits(out) > before)
                time.sleep(moments.uniform(0, 0.06))
                os.kill(pid, signal.SIGKILL)
                gone(pid)
                written = set(recorder.ended)
                left = waiting(spool)
                rows = read_run(out).requests["request_id"].to_list()
                assert len(set(rows)) == len(rows)
                assert packed <= set(rows)
                assert written <= left | set(rows)
                sittings += packed < set(rows)
                packed = set(rows)
        assert sittings > 1
        pid = started(forker, server, out, spool)
        before = len(server.requests)
        until(lambda: len(server.requests) > before + 3)
        os.kill(pid, signal.SIGTERM)
        gone(pid)
    run = every_page_is_there_once(out, pages.followed())
    assert sorted(recorder.ended) == sorted(run.requests["request_id"])
    assert {"ok"} == set(run.requests["status"])
    assert list(range(3 * len(recorder.ended))) == run.events["seq"].to_list()
    assert list(range(len(recorder.ended))) == run.steps["step"].to_list()
    assert [] == list(spool.iterdir())
    assert run.manifest["recorder"]["complete"]
    hidden = {p.name for p in out.rglob("*") if p.name.startswith(".")}
    assert {".lock", STATE} == hidden


def commits(out: Path) -> int:
    """How many parts of events a run has: a commit writes them between the other tables'."""
    return len(list(out.glob("events/part-*.parquet")))


def first_scrape(forker: "subprocess.Popen[str]", server: FaultServer, out: Path) -> int:
    """A collector that made a run and was killed: nothing the engine does later is before it."""
    pid = started(forker, server, out)
    until((out / "manifest.json").exists)
    os.kill(pid, signal.SIGKILL)
    return pid
