"""The service while it runs: engines come and go, files are finished, and it says how it goes."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest
from fault_server import FaultServer, fault_server, fixed, hang, page

from collectors.run import read_run
from collectors.service.begin import machine
from collectors.service.discover import Resolve
from collectors.service.service import Service
from preempt.main import main
from replay.errors import InputError

ROOT = Path(__file__).parent.parent
SECRET = "sesame-open-4412"  # noqa: S105 (of nothing)
# An answer may take its time on a busy machine; only where none ever comes it is not waited for.
HEAD = '[collect]\noutput = "runs"\ninterval = "50ms"\ntimeout = "20s"\nlisten = "127.0.0.1:0"\n'
IMPATIENT = HEAD.replace('"20s"', '"1s"')


def write(path: Path, text: str, head: str = HEAD) -> Path:
    """A configuration file."""
    path.write_text(head + text)
    return path


def url_target(name: str, url: str, more: str = "") -> str:
    """A table of one engine."""
    return f'[[targets]]\nname = "{name}"\nurl = "{url}"\n{more}'


async def nobody(host: str, port: int) -> list[str]:
    """A resolver that does not know."""
    del host, port
    raise socket.gaierror(socket.EAI_AGAIN, "later")


@asynccontextmanager
async def running(
    path: Path, resolve: Resolve = nobody, log: list[str] | None = None
) -> AsyncIterator[Service]:
    """A service that runs while the block does, and has ended properly after it."""
    lines: list[str] = [] if log is None else log
    with machine({}, lines.append) as outside:
        service = Service(path, replace(outside, resolve=resolve))
        task = asyncio.create_task(service.run())
        try:
            yield service
        finally:
            service.stop.set()
            await asyncio.wait_for(task, 20)


async def until(condition: Callable[[], object], seconds: float = 20) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        await asyncio.sleep(0.01)


def scrapes(service: Service, target: str, outcome: str = "ok") -> int:
    """How many scrapes of a target had this outcome."""
    return sum(
        worker.collector.counters.outcomes[outcome]
        for instance, worker in service.supervisor.workers.items()
        if instance.target == target and worker.collector is not None
    )


def several(service: Service, target: str, others: int) -> bool:
    """Whether a target was scraped more than twice in each scrape of another, on average."""
    return 0 < 2 * others < scrapes(service, target)


async def fetched(service: Service, path: str) -> tuple[int, str]:
    """Status and text of one of its own pages."""

    def ask() -> tuple[int, str]:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{service.port}{path}") as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as exc:
            with exc:
                return exc.code, exc.read().decode()

    return await asyncio.to_thread(ask)


def health_of(said: str) -> tuple[str, list[str]]:
    """Status and reasons of a page of health."""
    found = json.loads(said)
    return found["status"], found["reasons"]


def test_a_slow_and_a_dead_engine_delay_no_other(tmp_path: Path) -> None:
    """Scrapes of a good engine go on at their interval beside a hanging and a refusing one."""

    async def check(good: FaultServer, slow: FaultServer) -> None:
        slow.answer = hang
        text = url_target("good", good.url) + url_target("slow", slow.url)
        text += url_target("dead", "http://127.0.0.1:1")
        text += '[[targets]]\nname = "pods"\ndns = "vllm.invalid"\n'
        async with running(write(tmp_path / "c.toml", text, IMPATIENT)) as service:
            # One behind the other they would be one for one.
            await until(lambda: several(service, "good", scrapes(service, "slow", "timeout")))
            await until(lambda: scrapes(service, "dead", "refused") > 2)
            status, said = await fetched(service, "/healthz")
            why = ["pods: engines unknown: the name could not be resolved just now"]
            assert (503, "unhealthy", why) == (status, *health_of(said))
            assert (200, "ok\n") == await fetched(service, "/livez")

    with fault_server() as good, fault_server() as slow:
        asyncio.run(check(good, slow))
    run = read_run(tmp_path / "runs" / "good" / "run")
    assert run.manifest["scrapes"] == run.samples["scrape"].n_unique()
    assert 0 == read_run(tmp_path / "runs" / "dead" / "run").manifest["scrapes"]


def test_an_engine_that_goes_and_comes_is_logged_once_each(tmp_path: Path) -> None:
    """Begin, first samples, down with its reason, back: a line each, and none a scrape."""
    log: list[str] = []

    async def check(server: FaultServer) -> None:
        path = write(tmp_path / "c.toml", url_target("one", server.url))
        async with running(path, log=log) as service:
            await until(lambda: scrapes(service, "one") > 3)
            server.answer = fixed(b"secret text", status="500 secret text")
            await until(lambda: scrapes(service, "one", "http_500") > 6)
            server.answer = fixed(page(9, blocks=32))
            await until(lambda: any("a new run" in line for line in log))

    with fault_server() as server:
        asyncio.run(check(server))
    out = tmp_path / "runs" / "one" / "run"
    assert log[:3] == [
        f"one/run: collecting {server.url} every 50ms into {out}",
        f"one/run: first samples; its run is {out}",
        "one/run: down: http_500",
    ]
    assert "stopping: every run is written and closed" == log[-1]
    new, back = sorted(log[3:-1])
    assert f"one/run: a new run: {out}-2" == new
    assert re.fullmatch(r"one/run: answers again, after \d+s, \d+ scrapes without samples", back)


def test_a_run_that_vanishes_is_logged_with_the_one_after_it(tmp_path: Path) -> None:
    """The trouble by its name, where it goes on, and among the reasons of /healthz."""
    log: list[str] = []
    out = tmp_path / "runs" / "one" / "run"

    async def check(server: FaultServer) -> None:
        path = write(tmp_path / "c.toml", url_target("one", server.url))
        async with running(path, log=log) as service:
            await until(lambda: scrapes(service, "one") > 3)
            out.rename(tmp_path / "away")
            await until(lambda: any("a new run" in line for line in log))
            reason = "one/run: run_vanished: the run's directory is gone; another one is begun"
            assert reason in log
            assert [reason] == service.health()["reasons"]

    with fault_server() as server:
        asyncio.run(check(server))


def test_health_says_since_when_and_why_an_engine_is_down(tmp_path: Path) -> None:
    """As JSON: each engine that is down, its last error and its last success."""

    async def check(server: FaultServer) -> None:
        text = url_target("good", server.url) + url_target("dead", "http://127.0.0.1:1")
        async with running(write(tmp_path / "c.toml", text)) as service:
            await until(lambda: scrapes(service, "good") and scrapes(service, "dead", "refused"))
            dead = next(w for i, w in service.supervisor.workers.items() if i.target == "dead")
            await until(lambda: dead.standing.last_error)
            dead.standing.began_ns -= 3600 * 10**9  # an hour ago
            status, said = await fetched(service, "/healthz")
        found = json.loads(said)
        (down,) = found["down"]
        assert (503, 2, 1) == (status, found["engines"], found["engines_down"])
        assert re.fullmatch(r"dead/run: no samples for 36\d\d s: refused", found["reasons"][0])
        since = datetime.fromisoformat(down.pop("since"))
        assert since - datetime.now(UTC) < timedelta(minutes=1)
        assert {
            "target": "dead",
            "instance": "run",
            "last_error": "refused",
            "last_success": None,
        } == down

    with fault_server() as server:
        asyncio.run(check(server))


def test_a_huge_page_delays_no_other_engine(tmp_path: Path) -> None:
    """While one page of twenty thousand series is read, others are scraped again and again."""
    huge = page(1) + b"".join(b'vllm:x{k="%d"} 1\n' % k for k in range(20_000))

    async def check(good: FaultServer, large: FaultServer) -> None:
        large.answer = fixed(huge)
        text = url_target("good", good.url) + url_target("large", large.url)
        async with running(write(tmp_path / "c.toml", text)) as service:
            await until(lambda: scrapes(service, "large") > 2)
            # One behind the other they would be one for one.
            await until(lambda: several(service, "good", scrapes(service, "large")))

    with fault_server() as good, fault_server() as large:
        asyncio.run(check(good, large))


def test_names_that_hang_in_the_resolver_delay_no_other_engine(tmp_path: Path) -> None:
    """Whatever holds asyncio's own threads, in which names are looked up, pages are read."""

    async def check(server: FaultServer) -> None:
        over = threading.Event()
        try:
            for _ in range(64):
                asyncio.get_running_loop().run_in_executor(None, over.wait)
            path = write(tmp_path / "c.toml", url_target("one", server.url))
            async with running(path) as service:
                await until(lambda: scrapes(service, "one") > 3)
        finally:
            over.set()

    with fault_server() as server:
        asyncio.run(check(server))


def test_pods_come_and_go(tmp_path: Path) -> None:
    """A new address gets a run of its own, one that is gone is closed, and one that fails stays."""
    with fault_server() as server:
        answers: list[list[str] | Exception] = [["127.0.0.1"]]

        async def resolve(host: str, port: int) -> list[str]:
            assert ("pods.example", server.port) == (host, port)
            if isinstance(answers[0], Exception):
                raise answers[0]
            return answers[0]

        async def check() -> None:
            text = f'[[targets]]\nname = "pods"\ndns = "pods.example"\nport = {server.port}\n'
            head = HEAD + 'rediscover = "1s"\n'
            path, log = write(tmp_path / "c.toml", text, head), list[str]()
            async with running(path, resolve, log) as service:
                await until(lambda: scrapes(service, "pods") > 2)
                answers[0] = ["127.0.0.1", "127.0.0.2"]
                await until(lambda: 2 == len(service.supervisor.workers))
                answers[0] = socket.gaierror(socket.EAI_AGAIN, "later")
                await until(service.state.unknown.__len__)
                assert 2 == len(service.supervisor.workers)
                answers[0] = ["127.0.0.2"]
                await until(lambda: 1 == len(service.supervisor.workers))
                assert {} == service.state.unknown
                assert [
                    "pods: engines found: 1",
                    "pods: engines found: 2",
                    "pods: engines unknown: the name could not be resolved just now",
                    "pods: engines found: 1",
                ] == [line for line in log if line.startswith("pods: ")]
                assert f"pods/127.0.0.1_{server.port}: ending; its run is written and closed" in log
                # Closed, so anybody may read it, and it holds all of its scrapes.
                old = tmp_path / "runs" / "pods" / f"127.0.0.1_{server.port}"
                await until((old / "samples").is_dir)

        asyncio.run(check())
    names = {entry.name for entry in (tmp_path / "runs" / "pods").iterdir()}
    assert {f"127.0.0.1_{server.port}", f"127.0.0.2_{server.port}"} == names


def test_its_own_metrics_say_what_it_does(tmp_path: Path) -> None:
    """Scrapes by outcome, failures, bytes, last success and memory, and nothing that is secret."""

    async def check(server: FaultServer) -> None:
        token = tmp_path / "token"
        token.write_text(SECRET)
        more = f'bearer_token_file = "{token}"\n'
        text = url_target("good", server.url, more) + url_target("dead", "http://127.0.0.1:1")
        async with running(write(tmp_path / "c.toml", text)) as service:
            await until(lambda: scrapes(service, "good") > 2 < scrapes(service, "dead", "refused"))
            status, page = await fetched(service, "/metrics")
            assert 200 == status
            values = {
                line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1])
                for line in page.splitlines()
                if not line.startswith("#")
            }
            good = '{instance="run",target="good"}'
            assert (
                2
                < values[
                    'preempt_collector_scrapes_total{instance="run",outcome="ok",target="good"}'
                ]
            )
            assert 0 == values[f"preempt_collector_scrape_failures_total{good}"]
            assert (
                2 < values['preempt_collector_scrape_failures_total{instance="run",target="dead"}']
            )
            assert (
                time.time() - 60 < values[f"preempt_collector_last_success_timestamp_seconds{good}"]
            )
            assert 0 < values[f"preempt_collector_written_bytes_total{good}"]
            assert 0 == values[f"preempt_collector_scrapes_dropped_total{good}"]
            assert 1 == values['preempt_collector_targets{target="good"}']
            assert 2**20 < values["process_resident_memory_bytes"]
            assert SECRET not in page + (await fetched(service, "/healthz"))[1]
            assert any(f"Bearer {SECRET}" in request for request in server.requests)

    with fault_server() as server:
        asyncio.run(check(server))
    files = [entry for entry in tmp_path.rglob("*") if entry.is_file() and entry.name != "token"]
    assert [] == [entry for entry in files if SECRET.encode() in entry.read_bytes()]
    assert {0o600} == {e.stat().st_mode & 0o777 for e in files if "runs" in e.parts}


def test_a_reload_brings_new_targets_and_refuses_mistakes(tmp_path: Path) -> None:
    """A file that breaks a rule changes nothing but what /healthz says."""

    async def check(server: FaultServer) -> None:
        path = write(tmp_path / "c.toml", url_target("one", server.url))
        async with running(path) as service:
            await until(lambda: scrapes(service, "one") > 1)
            write(path, url_target("two", server.url, "oops = 1\n"))
            service.reload()
            status, said = await fetched(service, "/healthz")
            assert (503, True) == (status, "unknown key oops" in said)
            assert ["one"] == [worker.target for worker in service.supervisor.workers]
            write(path, url_target("two", server.url))
            service.reload()
            await until(lambda: scrapes(service, "two") > 1)
            assert ["two"] == [worker.target for worker in service.supervisor.workers]
            status, said = await fetched(service, "/healthz")
            assert (200, "ok", []) == (status, *health_of(said))
            write(path, url_target("two", server.url), HEAD.replace(":0", ":1"))
            service.reload()
            assert "takes effect with a restart only" in (service.state.reload_error or "")

    with fault_server() as server:
        asyncio.run(check(server))
    assert 1 < read_run(tmp_path / "runs" / "one" / "run").manifest["scrapes"]


def test_a_changed_interval_goes_on_with_the_same_run(tmp_path: Path) -> None:
    """The collector is begun anew with the new settings, in the run it had."""

    async def check(server: FaultServer) -> None:
        path = write(tmp_path / "c.toml", url_target("one", server.url))
        async with running(path) as service:
            await until(lambda: scrapes(service, "one") > 1)
            write(path, url_target("one", server.url), HEAD.replace("50ms", "70ms"))
            service.reload()
            await until(lambda: service.supervisor.begun == 2)
            await until(lambda: scrapes(service, "one") > 1)

    with fault_server() as server:
        asyncio.run(check(server))
    assert ["run"] == [entry.name for entry in (tmp_path / "runs" / "one").iterdir()]
    assert 70_000 == read_run(tmp_path / "runs" / "one" / "run").manifest["scrape_interval_us"]


def test_a_run_that_another_process_writes_is_said_and_tried_again(tmp_path: Path) -> None:
    """Two services on one output do not spoil each other's files."""

    async def check(server: FaultServer) -> None:
        path = write(tmp_path / "c.toml", url_target("one", server.url))
        async with running(path) as first:
            await until(lambda: scrapes(first, "one") > 1)
            async with running(path) as second:
                await until(lambda: second.health()["reasons"])
                assert "another process writes this run" in second.health()["reasons"][0]

    with fault_server() as server:
        asyncio.run(check(server))


def test_an_address_that_is_taken_is_one_line(tmp_path: Path) -> None:
    """Before anything is collected."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        head = HEAD.replace(":0", f":{taken.getsockname()[1]}")
        path = write(tmp_path / "c.toml", url_target("one", "http://127.0.0.1:1"), head)

        async def check() -> None:
            async with running(path):
                await asyncio.sleep(0)

        with pytest.raises(InputError, match="cannot be listened on"):
            asyncio.run(check())


@contextmanager
def command(*arguments: object) -> Iterator["subprocess.Popen[str]"]:
    """`preempt collect run`, started, and gone after the block."""
    line = [sys.executable, "-m", "preempt", "collect", "run", *map(str, arguments)]
    environment = {**os.environ, "PREEMPT_BEARER_TOKEN": SECRET}
    process = subprocess.Popen(
        line, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def test_signals_reread_and_finish(tmp_path: Path) -> None:
    """SIGHUP brings the file's new targets, SIGTERM writes everything and exits 0."""
    with fault_server() as one, fault_server() as two:
        path = write(tmp_path / "c.toml", url_target("one", one.url))
        with command(path) as process:
            wait_for(lambda: one.served > 2)
            write(path, url_target("one", one.url) + url_target("two", two.url))
            process.send_signal(signal.SIGHUP)
            wait_for(lambda: two.served > 2)
            process.send_signal(signal.SIGTERM)
            output, errors = process.communicate(timeout=30)
        assert (0, "") == (process.returncode, output)
        lines = errors.splitlines()
        every = f"every 50ms into {tmp_path / 'runs'}"
        assert lines[:2] == [
            f"one/run: collecting {one.url} {every}/one/run",
            f"one/run: first samples; its run is {tmp_path / 'runs' / 'one' / 'run'}",
        ]
        assert {"configuration reloaded", f"two/run: collecting {two.url} {every}/two/run"} < set(
            lines
        )
        assert "stopping: every run is written and closed" == lines[-1]
        assert 6 == len(lines)
        for name, server in (("one", one), ("two", two)):
            manifest = read_run(tmp_path / "runs" / name / "run").manifest
            # One may have been under way when the signal came.
            assert server.served - 1 <= manifest["scrapes"] <= server.served
        assert any(f"Bearer {SECRET}" in request for request in one.requests)


def wait_for(condition: Callable[[], object], seconds: float = 30) -> None:
    """Wait until something is true."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited too long"
        time.sleep(0.01)


def exit_code(*arguments: object) -> int:
    """What the command ends with."""
    with pytest.raises(SystemExit) as left:
        main(["collect", "run", *map(str, arguments)])
    return int(left.value.code or 0)


def test_once_scrapes_every_engine_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A second call goes on with the same run; an engine without samples makes it 1."""
    with fault_server() as good, fault_server() as bad:
        bad.answer = fixed(b"no", status="503 Service Unavailable")
        path = write(tmp_path / "c.toml", url_target("good", good.url))
        assert 0 == exit_code(path, "--once")
        assert 0 == exit_code(path, "--once", "--quiet")
        assert 2 == good.served
        assert 2 == read_run(tmp_path / "runs" / "good" / "run").manifest["scrapes"]
        write(path, url_target("good", good.url) + url_target("bad", bad.url))
        capsys.readouterr()
        assert 1 == exit_code(path, "--once", "--json")
    engines = {"bad/run": "http_503", "good/run": "ok"}
    assert {"deleted_runs": 0, "engines": engines, "unknown": {}} == json.loads(
        capsys.readouterr().out
    )


def test_check_says_what_it_would_do_and_does_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It names every target's engines without asking any of them."""
    (tmp_path / "t.json").write_text('[{"targets": ["10.0.0.1:8000"]}]')
    text = url_target("one", "http://10.0.0.2:8000")
    text += '[[targets]]\nname = "listed"\nfile_sd = "t.json"\n'
    text += '[[targets]]\nname = "pods"\ndns = "vllm.svc"\n'
    keep = 'keep_age = "720h"\nkeep_bytes = "64MiB"\n'
    path = write(tmp_path / "c.toml", text, HEAD + keep)
    assert 0 == exit_code(path, "--check")
    said = capsys.readouterr().err
    for line in (
        "one: the engine at http://10.0.0.2:8000",
        f"listed: 1 engine now in {tmp_path / 't.json'}",
        "pods: every address of vllm.svc, port 8000, http",
        f"each scraped every 50ms, within 20s, into {tmp_path / 'runs'}",
        "kept: 30d, at most 64 MiB",
    ):
        assert line in said
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            'bearer_token_file = "none"',
            "targets[0].bearer_token_file cannot be used: {0}/none: ",
        ),
        ('bearer_token_file = "empty"', "targets[0].bearer_token_file cannot be used: {0}/empty: "),
        ('ca_file = "none"', "targets[0].ca_file must be a file that can be read, got {0}/none"),
        ('ca_file = "empty"', "targets[0].ca_file cannot be used: {0}/empty: must hold certificat"),
        ('cert_file = "none"', "targets[0].cert_file must be a file that can be read"),
        (
            'spool = "none"',
            "targets[0].spool must be the recorder's directory, which it",
        ),
        ('spool = "empty"', "targets[0].spool must be the recorder's directory"),
        (
            '[[targets]]\nname = "l"\nfile_sd = "none.json"',
            "targets[1].file_sd cannot be used: {0}",
        ),
        (
            '[[targets]]\nname = "l"\nfile_sd = "empty"',
            "targets[1].file_sd cannot be used: {0}/empt",
        ),
    ],
)
def test_check_names_what_will_not_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], line: str, said: str
) -> None:
    """Exit 2 and one line: the file, its table, the field, and what is there."""
    (tmp_path / "empty").touch()
    path = write(tmp_path / "c.toml", url_target("one", "http://h:1", f"{line}\n"))
    assert 2 == exit_code(path, "--check")
    errors = capsys.readouterr().err
    assert errors.startswith(f"preempt: {path}: {said.format(tmp_path)}")
    assert 1 == errors.count("\n")


@pytest.mark.parametrize(
    ("output", "keep", "said"),
    [
        (
            "c.toml",
            "",
            "collect.output must be a directory, or one that can be made, got {0}/c",
        ),
        ("c.toml/x", "", "collect.output must be a directory, or one that can be made, got {0}"),
        ("full", "", "collect.output must have at least 256 MiB free on its disk, got 10 MiB free"),
        (
            "runs",
            'keep_bytes = "2GiB"',
            "collect.keep_bytes must fit on the disk of {0}/runs: 2 ",
        ),
    ],
)
def test_check_finds_an_output_that_will_not_do(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    output: str,
    keep: str,
    said: str,
) -> None:
    """No directory, too little room now, or less than is to be kept."""
    free = 10 * 2**20 if output == "full" else 2**30
    monkeypatch.setattr("shutil.disk_usage", lambda _: SimpleNamespace(free=free))
    head = HEAD.replace('"runs"', f'"{output}"') + f"{keep}\n"
    path = write(tmp_path / "c.toml", url_target("one", "http://h:1"), head)
    assert 2 == exit_code(path, "--check")
    assert f"{path}: {said.format(tmp_path)}" in capsys.readouterr().err


@pytest.mark.parametrize("what", ["output", "spool"])
def test_check_finds_a_directory_that_another_user_owns(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """The user that would have to own it is named, and where it would be made."""
    (tmp_path / "theirs").mkdir()

    def access(path: Path, _: int) -> bool:
        return path != tmp_path / "theirs"

    monkeypatch.setattr("os.access", access)
    head = HEAD.replace('"runs"', '"theirs/runs"') if what == "output" else HEAD
    more = 'spool = "theirs"\n' if what == "spool" else ""
    path = write(tmp_path / "c.toml", url_target("one", "http://h:1", more), head)
    assert 2 == exit_code(path, "--check")
    said = {
        "output": f"collect.output must be writable by user {os.getuid()}; {tmp_path}/theirs/runs"
        f" is to be made in it, got {tmp_path / 'theirs'}",
        "spool": f"targets[0].spool must be readable and writable by user {os.getuid()}: packed",
    }
    assert f"{path}: {said[what]}" in capsys.readouterr().err
