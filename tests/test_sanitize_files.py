"""Files of the sanitizer: whole or not at all, over nothing, the same bytes every time."""

import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from sanitize_tools import (
    BASE,
    KEY,
    attempts,
    counting,
    done,
    event_row,
    key_file,
    manifest,
    preempt,
    raw_run,
    request_row,
    said,
    sanitized,
    workload,
    write,
)

from collectors.run import read_run
from preempt.commands import importing
from replay.workload import window
from replay.workload_file import read_workload


def test_the_same_input_and_key_give_the_same_bytes(tmp_path: Path) -> None:
    """Nothing of the moment or the machine is in what is written."""
    path = write(workload(provenance=counting(failed=1)), tmp_path / "raw" / "w.parquet")
    attempts(path, [(1, "failed", 0, 1, None)])
    for source in (BASE, path):
        one, two = (sanitized(source, tmp_path / f"{source.name}-{k}") for k in (0, 1))
        assert _bytes(one.folder) == _bytes(two.folder)


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


@pytest.mark.parametrize("taken", ["w.parquet", "w.attempts.parquet", "w.run"])
def test_an_output_that_exists_is_refused_before_a_key_is_made(tmp_path: Path, taken: str) -> None:
    """Nothing is written over, nothing is written beside it."""
    run = raw_run(tmp_path / "raw", manifest(), requests=[request_row("r", 0)])
    (tmp_path / taken).write_text("mine")
    key = tmp_path / "key"
    ended = preempt("sanitize", run, "-o", tmp_path / "w.parquet", "--key-file", key)
    assert 2 == ended.code
    assert f"{taken}: exists" in ended.err
    assert not key.exists()
    assert {"raw", taken} == {p.name for p in tmp_path.iterdir()}
    assert "mine" == (tmp_path / taken).read_text()


def test_force_replaces_a_workload_and_never_a_run(tmp_path: Path) -> None:
    """A workload's file is one thing, a directory of somebody's run another."""
    run = raw_run(tmp_path / "raw", manifest(), requests=[request_row("r", 0)])
    out, key = tmp_path / "w.parquet", key_file(tmp_path)
    out.write_text("old")
    options = ("-o", out, "--key-file", key, "--force")
    assert 0 == preempt("sanitize", run, *options).code
    assert 1 == len(read_workload(out))
    again = preempt("sanitize", run, *options)
    assert 2 == again.code
    assert "w.run: exists" in again.err
    told = " ".join(preempt("sanitize", "--help").out.split())
    assert "--force replaces a workload and its attempts, never the directory of a run." in told


@pytest.mark.parametrize(
    ("out", "key", "told"),
    [
        ("raw.parquet", "key", "is a file to be read"),
        ("key.parquet", "key.parquet", "is a file to be read"),
        ("raw.jsonl", "key", "raw.attempts.parquet: is a file to be read"),
    ],
)
def test_force_never_destroys_what_is_read(tmp_path: Path, out: str, key: str, told: str) -> None:
    """Neither the input, nor the attempts beside it, nor the key is written over."""
    path = write(workload(), tmp_path / "raw.parquet")
    beside = attempts(path, [(1, "failed", 0, 1, 1)])
    (tmp_path / key).touch(mode=0o600)
    (tmp_path / key).write_text(KEY)
    before = _bytes(tmp_path)
    ended = preempt("sanitize", path, "-o", tmp_path / out, "--key-file", tmp_path / key, "--force")
    assert 2 == ended.code
    assert told in ended.err
    assert before == _bytes(tmp_path)
    assert beside.exists()


@pytest.mark.parametrize(
    ("out", "run_out", "key"),
    [("raw/w.parquet", "o", "k"), ("s/w.parquet", "s", "k"), ("w.parquet", "s", "s/k")],
)
def test_outputs_lie_neither_in_the_raw_run_nor_in_one_another(
    tmp_path: Path, out: str, run_out: str, key: str
) -> None:
    """A raw run stays as it is, and a shareable one holds nothing but itself."""
    run = raw_run(tmp_path / "raw", manifest(), requests=[request_row("r", 0)])
    before = _bytes(tmp_path)
    ended = preempt(
        *("sanitize", run, "-o", tmp_path / out),
        *("--run", tmp_path / run_out, "--key-file", tmp_path / key),
    )
    assert 2 == ended.code
    assert before == _bytes(tmp_path)


def test_a_workload_that_cannot_be_written_leaves_no_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run, workload and attempts appear together: what stops one stops all."""
    run = raw_run(
        tmp_path / "raw",
        manifest(),
        requests=[request_row("r", 0), request_row("s", 1, generated_tokens=0)],
    )

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "w.parquet")

    monkeypatch.setattr("replay.workload_frame.write_workload_batches", full)
    result = sanitized(run, tmp_path / "shared")
    assert (2, "") == (result.ended.code, said(result.folder))


def test_a_full_disk_is_told_by_the_name_of_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a run is written before it is whole is nobody's business."""
    run = raw_run(tmp_path / "raw", manifest(), requests=[request_row("r", 0)])

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("collectors.writer.write_frame", full)
    result = sanitized(run, tmp_path / "shared")
    assert (2, "") == (result.ended.code, said(result.folder))
    assert f"{result.run}: cannot be written: No space left on device" in result.ended.err
    assert "partial" not in result.ended.err


def test_a_run_whose_place_is_taken_meanwhile_takes_its_workload_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another's run that appears while this one is written stays, without this one's workload."""
    run = raw_run(
        tmp_path / "raw",
        manifest(),
        requests=[request_row("r", 0), request_row("s", 1, generated_tokens=0)],
    )

    def and_another(*arguments: Any, **options: Any) -> Any:
        found = importing.write_result(*arguments, **options)
        (tmp_path / "shared" / "w.run").mkdir()
        return found

    monkeypatch.setattr("preempt.commands.sanitize.write_result", and_another)
    result = sanitized(run, tmp_path / "shared")
    assert 2 == result.ended.code
    assert "w.run" == said(result.folder)


KILLED_AT = """
import os, signal, sys
left, fsync = int(sys.argv.pop(1)), os.fsync
def counted(descriptor):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
    fsync(descriptor)
os.fsync = counted
from preempt.main import main
main(sys.argv[1:])
"""


@pytest.mark.parametrize("moment", [1, 5, 9, 12, 14, 16])
def test_whatever_kills_it_nothing_is_half_there(tmp_path: Path, moment: int) -> None:
    """Killed between any two writes, a name has its whole content or does not exist."""
    rows = [request_row("r", 0), request_row("s", 1, generated_tokens=0)]
    events = [event_row("r", 0)]
    run = raw_run(tmp_path / "raw", manifest(), requests=rows, events=events)
    out = tmp_path / "w.parquet"
    command = [sys.executable, "-c", KILLED_AT, str(moment), "sanitize", str(run)]
    command += ["-o", str(out), "--key-file", str(key_file(tmp_path)), "-q"]
    ended = subprocess.run(command, cwd=BASE.parents[2], check=False)
    assert ended.returncode == -9
    if out.exists():
        assert 1 == len(read_workload(out))
    if (beside := tmp_path / "w.attempts.parquet").exists():
        assert 1 == pl.read_parquet(beside).height
    if (made := tmp_path / "w.run").exists():
        assert 2 == read_run(made).requests.height
        assert {"manifest.json", "requests", "events"} == {p.name for p in made.iterdir()}


def test_of_two_at_once_one_writes_everything(tmp_path: Path) -> None:
    """Two that sanitize the same run to the same place end with one whole result."""
    key_file(tmp_path)
    folder = tmp_path / "shared"
    folder.mkdir()
    codes: list[object] = []
    barrier = threading.Barrier(2)

    def one() -> None:
        barrier.wait()
        command = [sys.executable, "-m", "preempt", "sanitize", str(BASE), "-q"]
        command += ["-o", str(folder / "w.parquet"), "--key-file", str(key_file(tmp_path))]
        codes.append(subprocess.run(command, cwd=BASE.parents[2], check=False).returncode)

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [0, 2] == sorted(map(int, map(str, codes)))
    assert {"w.parquet", "w.run"} == {p.name for p in folder.iterdir()}
    assert (
        240
        == len(read_workload(folder / "w.parquet"))
        == read_run(folder / "w.run").requests.height
    )


def test_a_file_of_another_kind_is_told_how_to_become_a_workload(tmp_path: Path) -> None:
    """A trace has to be imported first; the line says so."""
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n")
    result = sanitized(path, tmp_path / "shared")
    assert 2 == result.ended.code
    assert "must be a run's directory or a workload; preempt import makes one" in result.ended.err


def test_an_input_that_is_not_there_is_told_as_such(tmp_path: Path) -> None:
    """A directory or file that does not exist is one line, and makes neither output nor key."""
    for name in ("run", "w.parquet", "w.jsonl"):
        key = tmp_path / "key"
        ended = preempt("sanitize", tmp_path / name, "-o", tmp_path / "o.json", "--key-file", key)
        assert (2, 1) == (ended.code, len(ended.err.splitlines()))
        assert "cannot be read: " in ended.err
    assert [] == list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("options", "told"),
    [
        (("IN",), "Missing option -o or --key-file"),
        (("IN", "-o", "w.parquet"), "Missing option -o or --key-file"),
        (("IN", "-o", "w.csv", "--key-file", "k"), "must end in one of"),
        (("IN", "-o", "w.parquet", "--key-file", "k", "--run", "r"), "--run goes with a run"),
        (
            ("IN", "-o", "w.json", "--key-file", "k", "--merge-tenants", "2", "--drop-tenants"),
            "--drop-tenants leaves none for --merge-tenants",
        ),
        (("IN", "--check", "-o", "w.parquet"), "--check writes nothing"),
        (
            ("IN", "-o", "w.parquet", "--key-file", "k", "--round-arrivals", "fast"),
            "--round-arrivals",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused_and_nothing_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: tuple[str, ...], told: str
) -> None:
    """One line says which option, exit 2, not even a key is made."""
    monkeypatch.chdir(tmp_path)
    path = write(workload(), tmp_path / "raw.jsonl")
    ended = preempt("sanitize", *(str(path) if o == "IN" else o for o in options))
    assert 2 == ended.code
    assert told in ended.err
    assert ["raw.jsonl"] == [p.name for p in tmp_path.iterdir()]


def test_a_window_of_a_workload_keeps_its_window(tmp_path: Path) -> None:
    """What a window says of itself are numbers, and stays."""
    part = window(workload(), 1, 2, "w")
    made = done(sanitized(write(part, tmp_path / "w.json"), tmp_path / "shared")).read_workload()
    assert made.provenance is not None
    assert {"start": 1, "count": 2} == made.provenance["window"]
