"""Files of the sanitizer: whole or not at all, over nothing, the same bytes every time."""

import os
import stat
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

from collectors.run import read_run, run_workload
from preempt.commands import workload_output
from replay.workload import window
from replay.workload_file import read_workload


def small_run(folder: Path, *, with_attempt: bool = False) -> Path:
    """A raw run of one request, and of one more that generated nothing."""
    rows = [request_row("r", 0), request_row("s", 1, generated_tokens=0)]
    return raw_run(folder / "raw", manifest(), requests=rows[: 1 + with_attempt])


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
    run = small_run(tmp_path)
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
    run = small_run(tmp_path)
    out, key = tmp_path / "w.parquet", key_file(tmp_path)
    out.write_text("old")
    (tmp_path / "w.run").mkdir()  # a killed run's, of which nothing came
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
    run = small_run(tmp_path)
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
    run = small_run(tmp_path, with_attempt=True)

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device", "w.parquet")

    monkeypatch.setattr("replay.workload_frame.write_workload_batches", full)
    result = sanitized(run, tmp_path / "shared")
    assert (2, "") == (result.ended.code, said(result.folder))


def test_a_full_disk_is_told_by_the_name_of_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where a run is written before it is whole is nobody's business."""
    run = small_run(tmp_path)

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
    run = small_run(tmp_path, with_attempt=True)

    def and_another(*arguments: Any, **options: Any) -> Any:
        found = workload_output.write_result(*arguments, **options)
        (tmp_path / "shared" / "w.run" / "mine").mkdir()
        return found

    monkeypatch.setattr("preempt.commands.sanitize.write_result", and_another)
    result = sanitized(run, tmp_path / "shared")
    assert 2 == result.ended.code
    assert "w.run\nw.run/mine" == said(result.folder)


@pytest.mark.parametrize("fails", ["swap", "sync"])
def test_with_force_what_was_there_comes_back_if_the_run_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    """An old workload and its attempts are as they were; nothing new is left beside them."""
    run, folder = small_run(tmp_path, with_attempt=True), tmp_path / "shared"
    write(workload(), folder / "w.parquet")
    attempts(folder / "w.parquet", [(1, "failed", 0, 1, 1)])
    before, rename = _bytes(folder), Path.rename

    def broken(path: Path, target: Path) -> Path:
        if target.name == "w.run" and not path.name.endswith("-replaced"):
            raise OSError(5, "Input/output error")
        return rename(path, target)

    def full(descriptor: int) -> None:
        if (folder / "w.run").exists():  # its place is taken
            raise OSError(28, "No space left on device")
        os.fdatasync(descriptor)

    if fails == "swap":
        monkeypatch.setattr(Path, "rename", broken)
    else:
        monkeypatch.setattr(os, "fsync", full)
    options = ("-o", folder / "w.parquet", "--key-file", key_file(tmp_path), "--force")
    assert 2 == preempt("sanitize", run, *options).code
    assert before == _bytes(folder)
    assert ["w.attempts.parquet", "w.parquet"] == sorted(p.name for p in folder.iterdir())


def test_what_is_shareable_is_for_whom_the_umask_says(tmp_path: Path) -> None:
    """A raw run is its owner's; a shareable run's files are like any other file."""
    run = small_run(tmp_path)
    before = os.umask(0o027)
    try:
        made = done(sanitized(run, tmp_path / "shared"))
    finally:
        os.umask(before)
    assert {0o700} == {mode for path, mode in _modes(run) if path.is_dir()}
    assert {0o750} == {mode for path, mode in _modes(made.run) if path.is_dir()}
    assert {0o640} == {mode for path, mode in _modes(made.folder) if path.is_file()}


def _modes(folder: Path) -> list[tuple[Path, int]]:
    return [(path, stat.S_IMODE(path.stat().st_mode)) for path in (folder, *folder.rglob("*"))]


KILLED_AT = """
import os, signal, sys
left, names = int(sys.argv.pop(1)), sys.argv.pop(1).split(",")
def counted(call):
    def counting(*arguments, **options):
        global left
        left -= 1
        if not left:
            os.kill(os.getpid(), signal.SIGKILL)
        return call(*arguments, **options)
    return counting
for name in names:
    setattr(os, name, counted(getattr(os, name)))
from preempt.main import main
main(sys.argv[1:])
"""


def killed(moment: int, calls: str, run: Path, folder: Path, *options: str) -> int:
    """Sanitize in a process that is killed before one of its calls; how it ended."""
    command = [sys.executable, "-c", KILLED_AT, str(moment), calls, "sanitize", str(run), *options]
    command += ["-o", str(folder / "w.parquet"), "--key-file", str(key_file(folder.parent)), "-q"]
    return subprocess.run(command, cwd=BASE.parents[2], check=False).returncode


@pytest.mark.parametrize("moment", [1, 5, 9, 12, 14, 16])
def test_whatever_kills_it_nothing_is_half_there(tmp_path: Path, moment: int) -> None:
    """Killed between any two writes, a name has its whole content or does not exist."""
    rows = [request_row("r", 0), request_row("s", 1, generated_tokens=0)]
    run = raw_run(tmp_path / "raw", manifest(), requests=rows, events=[event_row("r", 0)])
    folder = tmp_path / "shared"
    assert -9 == killed(moment, "fsync", run, folder)
    if (folder / "w.parquet").exists():
        assert 1 == len(read_workload(folder / "w.parquet"))
    if (beside := folder / "w.attempts.parquet").exists():
        assert 1 == pl.read_parquet(beside).height
    if (made := folder / "w.run").exists() and any(made.iterdir()):
        assert 2 == read_run(made).requests.height
        assert {"manifest.json", "requests", "events"} == {p.name for p in made.iterdir()}


def test_killed_at_any_rename_the_next_with_force_makes_it_whole(tmp_path: Path) -> None:
    """What is left is an empty directory or none beside a whole workload; then all three join."""
    run, moment, ended = small_run(tmp_path, with_attempt=True), 0, -9
    while ended == -9:
        moment += 1
        folder = tmp_path / f"{moment}" / "shared"
        write(workload(), folder / "w.parquet")
        ended = killed(moment, "rename,replace,link", run, folder, "--force")
        assert len(read_workload(folder / "w.parquet")) in (1, 3)
        if ended == -9 and not any((folder / "w.run").glob("*")):
            options = ("-o", folder / "w.parquet", "--key-file", key_file(folder.parent))
            again = preempt("sanitize", run, *options, "--force")
            assert 0 == again.code, again.err
            assert {"w.attempts.parquet", "w.parquet", "w.run"} == _plain(folder)
        assert read_workload(folder / "w.parquet").requests == (
            run_workload(read_run(folder / "w.run")).requests
        )
        assert 1 == pl.read_parquet(folder / "w.attempts.parquet").height
    assert 0 == ended
    assert moment > 4


def _plain(folder: Path) -> set[str]:
    """Names that are not hidden: a killed process can leave a hidden file of its own."""
    return {path.name for path in folder.iterdir() if not path.name.startswith(".")}


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
