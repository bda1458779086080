"""The key: its owner's alone, made once, and worth nothing where others could have read it."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from sanitize_tools import CHECKOUT, Ended, preempt, said, workload, write

from collectors.sanitize.key import make_key, read_key
from replay.errors import InputError


def sanitize_with(key: Path, folder: Path) -> Ended:
    """Sanitize three requests with a key's file."""
    path = write(workload(), folder / "w.jsonl")
    return preempt("sanitize", path, "-o", folder / "out" / "w.parquet", "--key-file", key)


def test_a_key_is_made_for_its_owner_only(tmp_path: Path) -> None:
    """A file that is not there is made with mode 0600 and 64 hex digits, and kept."""
    key = tmp_path / "keys" / "key"
    before = os.umask(0)
    try:
        ended = sanitize_with(key, tmp_path)
    finally:
        os.umask(before)
    assert 0 == ended.code
    assert 0o600 == stat.S_IMODE(key.stat().st_mode)
    digits = key.read_text().strip()
    assert 32 == len(bytes.fromhex(digits))
    assert "made a key; keep it" in ended.err
    assert digits not in ended.err + ended.out + said(tmp_path / "out")
    assert ["key"] == [p.name for p in key.parent.iterdir()]
    assert digits.encode() == read_key(key)


def test_no_two_keys_made_are_the_same(tmp_path: Path) -> None:
    """A key comes from the system's randomness, not from a name or a time."""
    assert make_key(tmp_path / "a") != make_key(tmp_path / "b")


@pytest.mark.parametrize("mode", [0o640, 0o620, 0o604, 0o602, 0o666, 0o610])
def test_a_key_that_others_can_reach_is_refused(tmp_path: Path, mode: int) -> None:
    """Read or write for group or others, any of it, is an error that tells the way out."""
    key = tmp_path / "key"
    key.write_text("k" * 32)
    key.chmod(mode)
    ended = sanitize_with(key, tmp_path)
    assert 2 == ended.code
    assert f"run: chmod 600 on it, got mode {mode:04o}" in ended.err
    assert not (tmp_path / "out").exists()
    assert "kkkk" not in ended.err


@pytest.mark.parametrize(
    "kind", ["link", "dangling", "directory", "fifo", "short", "empty", "long", "same"]
)
def test_what_is_no_private_regular_file_is_no_key(tmp_path: Path, kind: str) -> None:
    """Links, pipes, files of a wrong size or of one byte only are refused, and nothing hangs."""
    key = tmp_path / "key"
    told = {
        "link": "must not be a symbolic link",
        "dangling": "must not be a symbolic link",
        "directory": "must be a regular file",
        "fifo": "must be a regular file",
        "short": "must hold 16 to 4096 bytes; remove it to have one made, got 15",
        "empty": "must hold 16 to 4096 bytes; remove it to have one made, got 0",
        "long": "must hold 16 to 4096 bytes; remove it to have one made, got 4097",
        "same": "must be random; remove it to have one made, got bytes that are all the same",
    }[kind]
    match kind:
        case "link" | "dangling":
            if kind == "link":
                (tmp_path / "real").touch(mode=0o600)
                (tmp_path / "real").write_text("k" * 32)
            key.symlink_to(tmp_path / "real")
        case "directory":
            key.mkdir(mode=0o700)
        case "fifo":
            os.mkfifo(key, 0o600)
        case _:
            key.touch(mode=0o600)
            texts = {"short": "k" * 15, "empty": "", "long": "k" * 5000, "same": "k" * 64}
            key.write_text(texts[kind] + "\n")
    ended = sanitize_with(key, tmp_path)
    assert 2 == ended.code
    assert told in ended.err
    assert not (tmp_path / "out").exists()


def test_a_key_of_somebody_else_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A key another user owns can be read by that user."""
    key = tmp_path / "key"
    make_key(key)
    monkeypatch.setattr(os, "geteuid", lambda: key.stat().st_uid + 1)
    with pytest.raises(InputError, match="must belong to the user who runs this"):
        read_key(key)


def test_white_space_around_a_key_is_none_of_it(tmp_path: Path) -> None:
    """A key written by an editor, with a newline, is the same key."""
    key = tmp_path / "key"
    key.touch(mode=0o600)
    key.write_bytes(b"  0123456789abcdef\r\n")
    assert b"0123456789abcdef" == read_key(key)


def test_bad_input_makes_no_key(tmp_path: Path) -> None:
    """The key is made for an output; where there is none, nothing is written."""
    path = tmp_path / "w.jsonl"
    path.write_text('{"request_id": 1}\n')
    key = tmp_path / "key"
    ended = preempt("sanitize", path, "-o", tmp_path / "o.parquet", "--key-file", key)
    assert 2 == ended.code
    assert ["w.jsonl"] == [p.name for p in tmp_path.iterdir()]


def test_a_key_that_cannot_be_made_says_where(tmp_path: Path) -> None:
    """A directory that is a file is no place for a key; no output is written."""
    (tmp_path / "file").write_text("")
    ended = sanitize_with(tmp_path / "file" / "key", tmp_path)
    assert 2 == ended.code
    assert "file/key" in ended.err or "cannot be created" in ended.err
    assert not (tmp_path / "out").exists()


def test_processes_that_make_a_key_at_once_end_with_one(tmp_path: Path) -> None:
    """Whoever comes second takes the first one's key, whole."""
    key = tmp_path / "key"
    code = (
        "import sys; from pathlib import Path; from collectors.sanitize.key import make_key;"
        " sys.stdin.read(); print(make_key(Path(sys.argv[1])).decode())"
    )
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(key)],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(6)
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.close()  # all of them go
        process.stdin = None
    told = {process.communicate(timeout=120)[0].strip() for process in processes}
    assert {key.read_text().strip()} == told
    assert ["key"] == [p.name for p in tmp_path.iterdir()]
