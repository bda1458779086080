"""Real vLLM servers for the live tests: started, driven, collected from, and compared with replays.

Servers stand on loopback and record into a spool; `preempt` runs in processes of its own, as a
person's would.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import zip_longest
from pathlib import Path
from typing import Any

import click
import polars as pl
from test_live_runs import KINDS, PREEMPT

from collectors.run import Run, read_run
from collectors.traces import azure
from conformance.install import Environment, Machine, environment, find_python, tools
from conformance.serve import Options, Server
from replay.workload import Workload
from replay.workload_file import write_workload

ROOT = Path(__file__).parents[1]
TRACE = ROOT / "fixtures" / "traces" / "azure-2023-conv-head.csv"
RECORDER = ROOT / "collectors" / "recorder"
NEW, OLD = "0.32.0", "0.17.1"
REQUESTS, SPEED = 75, "12"
BLOCKS = 40
READY_S = 600  # half a minute where nobody else is at work


@dataclass(frozen=True)
class Setting:
    """A release, and how its server is started."""

    release: str
    policy: str
    caching: bool

    def __str__(self) -> str:
        return f"{self.release}-{self.policy}-{'cached' if self.caching else 'plain'}"


PLAIN = Setting(NEW, "fcfs", caching=False)


@cache
def workload() -> Workload:
    """Requests of the public trace, made small; most begin with one of three prefixes."""
    found = []
    for k, request in enumerate(azure.read(TRACE).workload.requests[:REQUESTS]):
        prompt = max(33, min(request.prompt_tokens // 8, 480))
        shared = (k % 3,) if prompt > 64 else ()
        own = tuple(range(100 + 20 * k, 100 + 20 * k + prompt // 32 - len(shared)))
        found.append(
            replace(
                request,
                request_id=f"az{k:04d}",
                prompt_tokens=prompt,
                output_tokens=max(1, min(request.output_tokens, 300)),
                priority=k % 3 % 2,
                prefix_blocks=(*shared, *own),
            )
        )
    return Workload(tuple(found), prefix_block_tokens=32)


def first(count: int) -> Workload:
    """The first requests of it."""
    return replace(workload(), requests=workload().requests[:count])


@cache
def found(release: str) -> Environment:
    """The environment of a release."""
    return environment(release, machine=Machine(say=click.echo))


def uv(*arguments: object) -> subprocess.CompletedProcess[str]:
    """What uv says; it has to succeed."""
    machine = Machine()
    _, base = find_python(machine)
    command = [str(tools(base, machine) / "uv"), "--no-config", *map(str, arguments)]
    return subprocess.run(command, env=machine.calm, capture_output=True, text=True, check=True)


@cache
def recorder_below(folder: Path) -> Path:
    """The recorder, installed into a directory of its own: the environments are not ours."""
    target = folder / "recorder"
    uv("pip", "install", "--quiet", "--target", target, "--python", found(NEW).python, RECORDER)
    return target


def preempt(*arguments: object, code: int = 0) -> subprocess.CompletedProcess[str]:
    """One command of ours, as a person runs it."""
    done = subprocess.run(
        [*pinned(), sys.executable, "-m", "preempt", *map(str, arguments)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=READY_S,
    )
    assert code == done.returncode, f"{arguments}: {done.stderr}"
    return done


def pinned() -> list[str]:
    """The server has the first core, whoever asks it another: unpinned, they fight for both."""
    return ["taskset", "-c", "1"] if (os.cpu_count() or 1) > 1 else []


def server_of(setting: Setting, recorder: Path, folder: Path, **changed: Any) -> Server:
    """A server under KV pressure that records into `folder/spool`; `changed` are other options."""
    (folder / "spool").mkdir(mode=0o700)
    options = Options(
        blocks=BLOCKS,
        prefix_caching=setting.caching,
        scheduling_policy=setting.policy,
        core=0 if (os.cpu_count() or 1) > 1 else None,
        environ={"PREEMPTION_LEDGER_SPOOL": str(folder / "spool")},
        pythonpath=(recorder,),
    )
    options = replace(options, **changed)
    return Server(found(setting.release), options, folder, ready_s=READY_S)


def drive(
    server: Server,
    folder: Path,
    out: str,
    *options: object,
    offered: Workload | None = None,
    spool: bool = True,
    speed: str = SPEED,
) -> Path:
    """Offer a workload into the run `folder/out`, collecting with everything the driver has."""
    file = folder / f"{out}.jsonl"
    write_workload(offered or workload(), file, ".jsonl")
    recorded = ("--spool", folder / "spool") if spool else ()
    place = ("--url", server.url, "--out", folder / out)
    how = ("--speed", speed, "--interval", "500ms")
    preempt("collect", "drive", file, *place, *how, *recorded, *options)
    return folder / out


@contextmanager
def in_the_middle_of(server: Server, *arguments: Any) -> Iterator[None]:
    """A drive with these arguments; the block begins when the engine is under pressure."""
    before = total(page_of(server), "num_preemptions_total")
    driving = threading.Thread(target=drive, args=(server, *arguments))
    driving.start()
    try:
        wait_for(lambda: busy(server, before), READY_S)
        yield
    finally:
        driving.join(READY_S)
        assert not driving.is_alive()


def busy(server: Server, before: float) -> bool:
    """Whether requests were preempted since there were so many, and others still run."""
    with suppress(OSError):
        page = page_of(server)
        risen = total(page, "num_preemptions_total") > before
        return risen and total(page, "num_requests_running") > 0
    return False


def written(spool: Path) -> None:
    """Wait until the recorder has what it knows now on disk: its second write from here has it."""
    for _ in range(2):
        before = newest(spool)
        wait_for(lambda before=before: before != newest(spool))


def newest(spool: Path) -> tuple[str, int]:
    """The part that is being written, and how long it is."""
    part = max(spool.iterdir())
    return part.name, part.stat().st_size


@contextmanager
def watching(server: Server, out: Path, *options: object) -> Iterator[Path]:
    """A collector of metrics beside the block, ended as a service manager ends it."""
    command = ("collect", "metrics", "--url", server.url, "--out", out, "--interval", "250ms")
    collector = subprocess.Popen(
        [*pinned(), sys.executable, "-m", "preempt", *map(str, (*command, *options)), "--quiet"],
        cwd=ROOT,
    )
    try:
        wait_for(lambda: scraped_bytes(out))
        yield out
        for _ in range(2):  # the second of them began after the last request had ended
            before = scraped_bytes(out)
            wait_for(lambda before=before: scraped_bytes(out) != before)  # type: ignore[misc]
    finally:
        collector.terminate()
        assert 0 == collector.wait(timeout=60)


def scraped_bytes(run: Path) -> int:
    """Bytes of all pages a collector has written so far and not packed."""
    return sum(path.stat().st_size for path in (run / "pages").glob("journal-*"))


def wait_for(condition: Callable[[], object], seconds: float = 60) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.05)


def page_of(server: Server) -> str:
    """The metrics page as it is now."""
    from urllib.request import ProxyHandler, build_opener

    with build_opener(ProxyHandler({})).open(f"{server.url}/metrics", timeout=10) as answer:
        text: str = answer.read().decode()
    return text


def total(page: str, name: str, engine: int | None = None) -> float:
    """Sum of a metric's series on a page that must have it, or of one engine's."""
    series = re.findall(rf"^vllm:{name}\{{([^}}]*)\}} (\S+)$", page, re.MULTILINE)
    values = [
        float(value)
        for labels, value in series
        if engine is None or f'engine="{engine}"' in labels.split(",")
    ]
    assert values, name
    return sum(values)


def number(value: Any) -> float:
    """A sum, mean or bound that a column has to have."""
    assert value is not None
    return float(value)


def preemptions(run: Path) -> int:
    """Preempt events of a run."""
    return read_run(run).events.filter(pl.col("kind") == "preempt").height


Rows = list[tuple[Any, ...]]


def parted(run: Run, did: Rows, replayed: Rows) -> str:
    """Where a replay of a run parts first from what the engine did, and what may be why."""
    pairs = enumerate(zip_longest(did, replayed))
    differing = ((k, pair) for k, pair in pairs if pair[0] != pair[1])
    at, (one, other) = next(differing, (0, (None, None)))  # both can be empty
    columns, sizes = ", ".join(PREEMPT), f"{len(did)} measured, {len(replayed)} replayed"
    notes = (run.manifest.get("recorder") or {}).get("notes") or []
    clock = any("wall clock was set" in note for note in notes)
    return "\n".join(
        (
            f"preemption {at} of {sizes}: {columns}",
            f"  engine: {one}",
            f"  replay: {other}",
            f"{overtaken(run)} requests reached the scheduler in a later step than one that was"
            f" received later; {run.requests['engine_arrival_us'].null_count()} have no such time",
            f"wall clock set: {clock}; gaps: {run.manifest['gaps']}; notes: {notes}",
        )
    )


def overtaken(run: Run) -> int:
    """Requests that arrived in a later step than one with a greater `engine_arrival_us`."""
    arrived = run.events.filter(pl.col("kind") == "arrive").select("engine", "request_id", "step")
    known = run.requests.filter(pl.col("engine_arrival_us").is_not_null())
    rows = known.join(arrived, on=["engine", "request_id"])
    steps = rows.group_by("engine", "step").agg(pl.max("engine_arrival_us").alias("latest"))
    before = pl.col("latest").cum_max().shift(1).over("engine", order_by="step").alias("before")
    rows = rows.join(steps.with_columns(before), on=["engine", "step"])
    return rows.filter(pl.col("engine_arrival_us") < pl.col("before")).height


def assert_reproduced(run: Path, ledger: Path, engine: int | None = None) -> None:
    """The replay of a run, or of one engine's part of it, is what that engine did; and says so.

    Every event in its step, every preemption with its numbers, and nothing withholds exact.
    """
    chosen = () if engine is None else ("--engine", engine)
    said = preempt("replay", run, "--out", ledger, *chosen).stderr
    assert "not exact" not in said
    preempt("verify", ledger)
    measured = read_run(run).events.filter(pl.col("engine") == (engine or 0))
    modelled = pl.read_parquet(ledger / "events.parquet").with_columns(
        free_blocks_before=pl.col("capacity_blocks") - pl.col("occupied_blocks_before")
    )
    expected = measured.filter(pl.col("kind") == "preempt")
    same = modelled.filter(pl.col("kind") == "preempt")
    did, replayed = expected.select(*PREEMPT).rows(), same.select(*PREEMPT.values()).rows()
    assert did == replayed != [], parted(read_run(run), did, replayed)
    for name, kind in KINDS.items():
        one = measured.filter(pl.col("kind") == name).select("step", "request_id")
        other = modelled.filter(pl.col("kind") == kind).select("tick", "request_id")
        assert sorted(one.rows()) == sorted(other.rows()), name
    shown = json.loads(preempt("fidelity", ledger, run, "--json", "-q").stdout)
    assert ("stepped", [], None) == (shown["level"], shown["not_exact"], shown["divergence"])
    assert all(r["modelled_preemptions"] == r["measured_num_preemptions"] for r in shown["rows"])
