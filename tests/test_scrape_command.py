"""`preempt collect metrics` as a person or a service manager runs it."""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest
from fault_server import FaultServer, fault_server
from ports import held

from collectors.durations import duration_us, moment_ns, size_bytes
from collectors.run import read_run
from collectors.scrape.device import device_facts, is_here
from replay.errors import InputError

ROOT = Path(__file__).parent.parent
SECRET = "sesame-open-7781"  # noqa: S105 (of nothing)


def preempt(*arguments: object) -> "subprocess.Popen[str]":
    """The command, started."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}",
    }
    command = [sys.executable, "-m", "preempt", "collect", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment
    )


def scraped(server: FaultServer, process: "subprocess.Popen[str]", pages: int) -> None:
    """Wait until so many pages went out."""
    deadline = time.monotonic() + 30
    while server.served < pages and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_collection_for_a_time_ends_by_itself(tmp_path: Path) -> None:
    """Exit 0, a summary for a machine, and a run that is read."""
    with fault_server() as server:
        arguments = ("--interval", "50ms", "--duration", "400ms", "--json")
        process = preempt("metrics", "--url", server.url, "--out", tmp_path / "run", *arguments)
        output, errors = process.communicate(timeout=60)
    assert (0, "") == (process.returncode, errors)
    summary = json.loads(output)
    assert str(tmp_path / "run") == summary["run"]
    assert summary["outcomes"] == {"ok": summary["scrapes"]}
    assert 1 <= summary["scrapes"] <= 8
    assert summary["scrapes"] == read_run(tmp_path / "run").manifest["scrapes"]


def test_where_nothing_was_ever_collected_the_exit_code_says_so(tmp_path: Path) -> None:
    """The first failure is told at once, not after the whole duration."""
    arguments = ("--out", tmp_path / "run", "--interval", "50ms", "--duration", "200ms")
    with held() as port:
        process = preempt("metrics", "--url", f"http://127.0.0.1:{port}", *arguments)
        _, errors = process.communicate(timeout=60)
    assert 1 == process.returncode
    assert "the first scrape gave no samples (refused); trying on" == errors.splitlines()[0]


def test_a_finished_run_of_another_command_is_left_alone(tmp_path: Path) -> None:
    """Scrapes of now have no place in a drive of yesterday."""
    shutil.copytree(ROOT / "fixtures" / "runs" / "base-1", tmp_path / "run")
    before = (tmp_path / "run" / "manifest.json").read_bytes()
    with fault_server() as server:
        arguments = ("--interval", "50ms", "--duration", "200ms")
        process = preempt("metrics", "--url", server.url, "--out", tmp_path / "run", *arguments)
        _, errors = process.communicate(timeout=60)
    assert 2 == process.returncode
    assert "is a run that no collector of metrics made" in errors
    assert before == (tmp_path / "run" / "manifest.json").read_bytes()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 0), (signal.SIGINT, 130)])
def test_a_signal_finishes_the_run(tmp_path: Path, number: int, code: int) -> None:
    """Everything is written; only a person at the keyboard gets 130."""
    with fault_server() as server:
        url, out = server.url, tmp_path / "run"
        process = preempt("metrics", "--url", url, "--out", out, "--interval", "20ms")
        scraped(server, process, 3)
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert code == process.returncode, errors
    assert "with samples" in errors
    run = read_run(out)
    assert 3 <= run.manifest["scrapes"]
    assert run.manifest["scrapes"] == run.samples["scrape"].n_unique()
    assert [] == list((out / "pages").glob("journal-*"))


def test_a_token_appears_nowhere(tmp_path: Path) -> None:
    """Not in the run, not in the output, not in the process's arguments; the server gets it."""
    token = tmp_path / "token"
    token.write_text(SECRET + "\n")
    with fault_server() as server:
        arguments = ("--bearer-token-file", token, "--interval", "20ms", "--json")
        process = preempt("metrics", "--url", server.url, "--out", tmp_path / "run", *arguments)
        scraped(server, process, 2)
        title = Path(f"/proc/{process.pid}/cmdline")
        shown = title.read_bytes() if title.exists() else b""
        process.terminate()
        output = "".join(process.communicate(timeout=60))
        assert any(SECRET in request for request in server.requests)
    assert SECRET not in output
    assert SECRET.encode() not in shown
    for path in (tmp_path / "run").rglob("*"):
        assert path.is_dir() or SECRET.encode() not in path.read_bytes()
    reparsed = preempt("reparse", tmp_path / "run")
    assert SECRET not in "".join(reparsed.communicate(timeout=60))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--interval", "1"), "options: --interval must be a number and a unit"),
        (("--interval", "0s"), "options: --interval must be whole microseconds, from 1000us"),
        (("--until", "tomorrow"), "options: --until must be a moment with its zone"),
        (("--keep-bytes", "many"), "options: --keep-bytes must be a size"),
        (("--bearer-token-file", "absent"), "absent: cannot be read"),
        (("--url", "http://u:p@h"), "options: url must have no user"),
    ],
)
def test_a_mistake_in_the_options_writes_nothing(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    """One line, exit 2."""
    out = tmp_path / "run"
    process = preempt("metrics", "--url", "http://127.0.0.1:1", "--out", out, *arguments)
    _, errors = process.communicate(timeout=60)
    assert 2 == process.returncode
    assert message in errors
    assert not out.exists()


def test_a_collector_of_metrics_keeps_its_process_small() -> None:
    """One thread for frames, and nothing kept that was freed, set before polars is loaded."""
    code = (
        "import os, sys, preempt.main, preempt.commands.collect_metrics\n"
        "from collectors.scrape.footprint import keep_small\n"
        "keep_small(); import polars\n"
        "print(polars.thread_pool_size(), os.environ['_RJEM_MALLOC_CONF'])\n"
        "os.environ.clear(); keep_small(); print(dict(os.environ))"
    )
    environment = {k: v for k, v in os.environ.items() if "MALLOC" not in k and "POLARS" not in k}
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
        env=environment,
    )
    first, second = done.stdout.splitlines()  # polars puts settings of its own before ours
    assert first.startswith("1 ")
    assert first.endswith("dirty_decay_ms:0,muzzy_decay_ms:0")
    assert "{}" == second


def test_the_collector_imports_neither_duckdb_nor_a_compiler() -> None:
    """They would double its memory on a host that is there for something else."""
    code = (
        "import sys, collectors.scrape.command, preempt.commands.collect_metrics, polars\n"
        "from collectors.scrape.settle import settle\n"
        "print({'duckdb', 'numba'} & set(sys.modules))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT
    )
    assert "set()\n" == done.stdout


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1s", 1_000_000), ("500ms", 500_000), ("1.5s", 1_500_000), ("10m", 600_000_000), ("7us", 7)],
)
def test_durations_are_read_as_people_write_them(text: str, expected: int) -> None:
    """A number and its unit, exactly."""
    assert expected == duration_us(text, "interval")


@pytest.mark.parametrize(
    "text", ["", "1", "s", "-1s", "1 s", "1e3s", "0.1us", "١s", "9" * 30 + "d"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """By rule, and without what was found."""
    with pytest.raises(InputError, match="options: interval must be"):
        duration_us(text, "interval")


def test_sizes_and_moments() -> None:
    """Binary units, and a zone that is never guessed."""
    assert (1024, 3 * 2**30, 5) == tuple(size_bytes(s, "size") for s in ("1KiB", "3GiB", "5"))
    assert 1_000_000_000 == moment_ns("1970-01-01T01:00:01+01:00", "until")
    for text in ("2026-11-30T06:00:00", "x"):
        with pytest.raises(InputError, match="until must be a moment with its zone"):
            moment_ns(text, "until")
    with pytest.raises(InputError, match="--most-page must be at most 10485760 bytes"):
        size_bytes("11MiB", "--most-page", most_bytes=10 * 2**20)
    for text in ("0", "1KB", "-1", ""):
        with pytest.raises(InputError, match="size must be a size"):
            size_bytes(text, "size")


def nvml(count: int, **more: object) -> SimpleNamespace:
    """A driver with so many devices."""
    return SimpleNamespace(
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetCount=lambda: count,
        nvmlDeviceGetHandleByIndex=lambda k: k,
        nvmlDeviceGetName=lambda _: b"Fake 9000",
        nvmlSystemGetDriverVersion=lambda: "1.2.3",
        **more,
    )


def test_devices_are_named_by_nvml() -> None:
    """Of several nobody knows how many the engine uses; without a driver nothing is known."""
    expected = {"kind": "cuda", "name": "Fake 9000", "count": 1, "driver": "1.2.3"}
    assert expected == device_facts(nvml(1))
    assert expected | {"count": None} == device_facts(nvml(8))

    def absent() -> None:
        raise RuntimeError("no driver")

    broken = nvml(1)
    broken.nvmlInit = absent
    assert {None} == set(device_facts(broken).values())
    assert {None} == set(device_facts(nvml(0)).values())
    assert is_here("http://127.0.0.1:8000")
    assert not is_here("http://10.1.2.3:8000")
