"""Outputs appear whole or not at all, never over someone else's, whoever else writes or dies."""

import contextlib
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replay.errors import OutputExists
from replay.output import new_directory, new_file

CHECKOUT = Path(__file__).resolve().parent.parent
OWNED = ("a", "b")
# Names that would be patterns, options or hidden files to something careless.
NAMES = ["out", "o*t", "o?t", "[out]", "a**b", "-out", ".out", "o t", "é", "out\udcff", "x" * 200]

WRITER = """
import sys
from pathlib import Path
from replay.errors import OutputExists
from replay.output import new_directory
for line in sys.stdin:
    path, content, force = line.rstrip("\\n").split("\\t")
    try:
        with new_directory(Path(path), force=force == "force", owned=["a", "b"]) as directory:
            print("inside", flush=True)
            if sys.argv[1] == "wait":
                sys.stdin.readline()
            (directory / "a").write_text(content)
        print("won", flush=True)
    except OutputExists:
        print("refused", flush=True)
"""


def names(path: Path) -> list[str]:
    """Names of the entries of a directory, hidden ones included."""
    return sorted(entry.name for entry in path.iterdir())


def nothing() -> None:
    """Happens while most outputs are written."""


def write_directory(
    path: Path,
    content: str = "new",
    *,
    force: bool = False,
    meanwhile: Callable[[], object] = nothing,
) -> None:
    """Make a directory with one entry."""
    with new_directory(path, force=force, owned=OWNED) as directory:
        (directory / "a").write_text(content)
        meanwhile()


def write_file(
    path: Path,
    content: str = "new",
    *,
    force: bool = False,
    meanwhile: Callable[[], object] = nothing,
) -> None:
    """Make a file."""
    with new_file(path, force=force) as temporary:
        temporary.write_text(content)
        meanwhile()


Write = Callable[..., None]
BOTH = pytest.mark.parametrize("write", [write_file, write_directory], ids=["file", "directory"])
FORCE = pytest.mark.parametrize("force", [False, True], ids=["plain", "forced"])


class Writer:
    """Another process that makes directories on request."""

    def __init__(self, mode: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", WRITER, mode],
            cwd=CHECKOUT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, text: str) -> None:
        """Hand over one line."""
        assert self.process.stdin
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def start(self, path: Path, content: str = "other", *, force: bool = False) -> None:
        """Begin a directory."""
        self.send(f"{path}\t{content}\t{'force' if force else ''}")

    def hear(self) -> str:
        """Next line the writer says."""
        assert self.process.stdout
        return self.process.stdout.readline().strip()

    def verdict(self) -> str:
        """How a directory ended."""
        heard = self.hear()
        return self.hear() if heard == "inside" else heard


@pytest.fixture(name="writers")
def _writers() -> Iterator[Callable[[str], Writer]]:
    """Start writers; they end with the test."""
    with contextlib.ExitStack() as stack:

        def start(mode: str) -> Writer:
            writer = Writer(mode)
            stack.enter_context(writer.process)
            stack.callback(writer.process.kill)
            return writer

        yield start


# One writer


@BOTH
@FORCE
@pytest.mark.parametrize("name", NAMES)
def test_a_new_output_appears_under_its_name_and_nothing_beside_it(
    tmp_path: Path, write: Write, name: str, *, force: bool
) -> None:
    """Any name works, and no temporary stays."""
    write(tmp_path / name, force=force)
    assert [name] == names(tmp_path)


@BOTH
def test_parent_directories_are_made(tmp_path: Path, write: Write) -> None:
    """`--out results/today/swap` needs no mkdir."""
    write(tmp_path / "x" / "y" / "out")
    assert ["out"] == names(tmp_path / "x" / "y")


def test_an_output_is_not_there_before_its_block_ends(tmp_path: Path) -> None:
    """A reader never sees half of it."""
    with new_file(tmp_path / "f", force=False) as temporary:
        temporary.write_text("half")
        assert not (tmp_path / "f").exists()
    with new_directory(tmp_path / "d", force=False, owned=OWNED) as directory:
        (directory / "a").write_text("half")
        assert not (tmp_path / "d").exists()
    assert ["a"] == names(tmp_path / "d")


def test_permissions_follow_the_umask(tmp_path: Path) -> None:
    """A temporary's own are private."""
    before = os.umask(0o027)
    try:
        write_file(tmp_path / "f")
        write_directory(tmp_path / "d")
    finally:
        os.umask(before)
    assert 0o640 == stat.S_IMODE((tmp_path / "f").stat().st_mode)
    assert 0o750 == stat.S_IMODE((tmp_path / "d").stat().st_mode)


class Stop(BaseException):
    """Even what no handler expects."""


@BOTH
@FORCE
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, Stop])
def test_an_error_inside_the_block_leaves_nothing_and_changes_nothing(
    tmp_path: Path, write: Write, error: type[BaseException], *, force: bool
) -> None:
    """What was there stays; what was begun goes, with every error."""

    def fail() -> None:
        raise error

    if force:
        write(tmp_path / "out", "old")
    with pytest.raises(error):
        write(tmp_path / "out", "half", force=force, meanwhile=fail)
    assert (["out"] if force else []) == names(tmp_path)
    assert all("old" == p.read_text() for p in tmp_path.rglob("*") if p.is_file())


# What is there already


@BOTH
def test_an_existing_output_is_refused_without_force(tmp_path: Path, write: Write) -> None:
    """By its path, with the way out."""
    write(tmp_path / "out", "old")
    with pytest.raises(OutputExists, match="out: exists; choose another path or pass --force"):
        write(tmp_path / "out")
    assert ["out"] == names(tmp_path)
    assert ["old"] == [p.read_text() for p in tmp_path.rglob("*") if p.is_file()]


@BOTH
def test_force_replaces_an_output(tmp_path: Path, write: Write) -> None:
    """Wholly: entries of the old one do not stay."""
    write(tmp_path / "out", "old")
    if (tmp_path / "out").is_dir():
        (tmp_path / "out" / "b").write_text("old")
    write(tmp_path / "out", force=True)
    assert ["out"] == names(tmp_path)
    assert ["new"] == [p.read_text() for p in tmp_path.rglob("*") if p.is_file()]


def test_an_empty_directory_is_an_existing_one(tmp_path: Path) -> None:
    """Refused without force, like any other; with it there is nothing to lose."""
    (tmp_path / "out").mkdir()
    with pytest.raises(OutputExists, match="exists; choose another path or pass --force"):
        write_directory(tmp_path / "out", force=False)
    write_directory(tmp_path / "out", force=True)
    assert (["out"], ["a"]) == (names(tmp_path), names(tmp_path / "out"))


@FORCE
@pytest.mark.parametrize("foreign", ["c", ".a", "A", "a.bak"])
def test_a_directory_with_a_foreign_entry_is_never_replaced(
    tmp_path: Path, foreign: str, *, force: bool
) -> None:
    """One entry of another name is enough."""
    write_directory(tmp_path / "out", "old")
    (tmp_path / "out" / foreign).write_text("mine")
    with pytest.raises(OutputExists, match=r"holds entries|exists; choose another"):
        write_directory(tmp_path / "out", force=force)
    assert ["out"] == names(tmp_path)
    assert ["mine", "old"] == sorted(p.read_text() for p in (tmp_path / "out").iterdir())


def test_a_foreign_entry_that_came_during_the_block_is_not_lost(tmp_path: Path) -> None:
    """A replay of hours leaves time for that."""
    write_directory(tmp_path / "out", "old")
    notes = tmp_path / "out" / "notes"
    with pytest.raises(OutputExists, match="holds entries"):
        write_directory(tmp_path / "out", force=True, meanwhile=lambda: notes.write_text("mine"))
    assert (["out"], ["a", "notes"]) == (names(tmp_path), names(tmp_path / "out"))


def test_an_owned_name_that_is_a_directory_is_foreign(tmp_path: Path) -> None:
    """This project writes files; a directory of the same name is someone's work."""
    (tmp_path / "out" / "a").mkdir(parents=True)
    (tmp_path / "out" / "a" / "thesis.tex").write_text("mine")
    with pytest.raises(OutputExists):
        write_directory(tmp_path / "out", force=True)
    assert "mine" == (tmp_path / "out" / "a" / "thesis.tex").read_text()


@FORCE
def test_a_directory_is_never_replaced_by_a_file_nor_a_file_by_a_directory(
    tmp_path: Path, *, force: bool
) -> None:
    """--force is no rm."""
    (tmp_path / "f").write_text("mine")
    (tmp_path / "d").mkdir()
    with pytest.raises(OutputExists, match="d: is a directory"):
        write_file(tmp_path / "d", force=force)
    with pytest.raises(OutputExists, match="f: exists and is not a directory"):
        write_directory(tmp_path / "f", force=force)
    assert ("mine", ["d", "f"]) == ((tmp_path / "f").read_text(), names(tmp_path))


@BOTH
@FORCE
def test_a_fifo_or_device_is_never_replaced(tmp_path: Path, write: Write, *, force: bool) -> None:
    """`-o /dev/null --force` as root must not remove /dev/null."""
    os.mkfifo(tmp_path / "out")
    with pytest.raises(OutputExists):
        write(tmp_path / "out", force=force)
    assert stat.S_ISFIFO((tmp_path / "out").lstat().st_mode)
    assert ["out"] == names(tmp_path)


@BOTH
@FORCE
@pytest.mark.parametrize("target", ["there", "nowhere"])
def test_what_a_symbolic_link_leads_to_is_never_written(
    tmp_path: Path, write: Write, target: str, *, force: bool
) -> None:
    """A file's link is replaced with --force, a directory's never."""
    if target == "there":
        write(tmp_path / "there", "old")
    before = names(tmp_path)
    (tmp_path / "out").symlink_to(tmp_path / target)
    replaced = force and write is write_file
    with contextlib.nullcontext() if replaced else pytest.raises(OutputExists):
        write(tmp_path / "out", force=force)
    assert replaced is not (tmp_path / "out").is_symlink()
    assert sorted([*before, "out"]) == names(tmp_path)
    left = [p.read_text() for p in (tmp_path / "there").rglob("*") if p.is_file()]
    assert (["old"] if target == "there" and write is write_directory else []) == left
    if target == "there" and write is write_file:
        assert "old" == (tmp_path / "there").read_text()


def test_a_link_to_the_parent_is_followed(tmp_path: Path) -> None:
    """Only the last name must not be a link."""
    (tmp_path / "disk").mkdir()
    (tmp_path / "results").symlink_to("disk")
    write_directory(tmp_path / "results" / "out")
    assert ["out"] == names(tmp_path / "disk")


# What cannot be written


@BOTH
@FORCE
@pytest.mark.parametrize("inner", ["out", "x/out"])
def test_an_output_below_a_file_is_refused(
    tmp_path: Path, write: Write, inner: str, *, force: bool
) -> None:
    """Its parent cannot be made."""
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OutputExists, match="cannot be created"):
        write(tmp_path / "file" / inner, force=force)
    assert (["file"], "mine") == (names(tmp_path), (tmp_path / "file").read_text())


@BOTH
def test_a_name_too_long_for_the_file_system_is_an_error_that_leaves_nothing(
    tmp_path: Path, write: Write
) -> None:
    """An OSError, or this package's own."""
    with pytest.raises((OSError, OutputExists)):
        write(tmp_path / ("x" * 255))
    assert [] == names(tmp_path)


@pytest.mark.parametrize("call", [1, 2])
def test_a_rename_that_fails_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: int
) -> None:
    """Whichever of the two it is, the old output is there, at once, under its name."""
    write_directory(tmp_path / "out", "old")
    calls: list[Any] = []
    real_rename = os.rename

    def rename(source: Any, target: Any, **options: Any) -> None:
        calls.append(source)
        if len(calls) == call:
            raise OSError(28, "No space left on device")
        real_rename(source, target, **options)

    with monkeypatch.context() as patch:
        patch.setattr(os, "rename", rename)
        with pytest.raises((OSError, OutputExists)):
            write_directory(tmp_path / "out", force=True)
    assert call <= len(calls)
    assert ["out"] == names(tmp_path)
    assert "old" == (tmp_path / "out" / "a").read_text()


# Several writers


@BOTH
def test_a_faster_writer_wins_and_the_slower_one_is_refused(tmp_path: Path, write: Write) -> None:
    """Also when both began before either was done."""
    out = tmp_path / "out"
    with pytest.raises(OutputExists):
        write(out, "slow", meanwhile=lambda: write(out, "fast"))
    assert ["out"] == names(tmp_path)
    assert ["fast"] == [p.read_text() for p in tmp_path.rglob("*") if p.is_file()]


def test_a_writer_that_lands_just_before_the_rename_is_not_overwritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The rename itself refuses a directory that holds something."""
    real_rename, out = os.rename, tmp_path / "out"

    def rename(source: Any, target: Any, **options: Any) -> None:
        monkeypatch.setattr(os, "rename", real_rename)
        write_directory(out, "fast")
        real_rename(source, target, **options)

    monkeypatch.setattr(os, "rename", rename)
    with pytest.raises(OutputExists):
        write_directory(out, "slow")
    assert ["out"] == names(tmp_path)
    assert "fast" == (out / "a").read_text()


def test_of_writers_at_once_exactly_one_wins(
    tmp_path: Path, writers: Callable[[str], Writer]
) -> None:
    """Over many rounds the others are refused, and what is there is the winner's."""
    crowd = [writers("go") for _ in range(3)]
    for number in range(100):
        path = tmp_path / f"{number}"
        for k, writer in enumerate(crowd):
            writer.start(path, f"writer {k}")
        verdicts = [writer.verdict() for writer in crowd]
        assert ["refused", "refused", "won"] == sorted(verdicts), number
        assert f"writer {verdicts.index('won')}" == (path / "a").read_text()
    assert sorted(f"{number}" for number in range(100)) == names(tmp_path)


def test_what_a_killed_writer_left_is_swept_by_the_next(
    tmp_path: Path, writers: Callable[[str], Writer]
) -> None:
    """Of this output only."""
    writer = writers("wait")
    writer.start(tmp_path / "out")
    assert "inside" == writer.hear()
    writer.process.send_signal(signal.SIGKILL)
    writer.process.wait()
    assert 1 == len(names(tmp_path))
    write_directory(tmp_path / "another")
    write_directory(tmp_path / "ou?")
    assert 3 == len(names(tmp_path))
    write_directory(tmp_path / "out")
    assert ["another", "ou?", "out"] == names(tmp_path)


def test_what_a_living_writer_is_filling_is_left_alone(
    tmp_path: Path, writers: Callable[[str], Writer]
) -> None:
    """The next writer wins; the slow one is then refused and leaves nothing."""
    writer = writers("wait")
    writer.start(tmp_path / "out")
    assert "inside" == writer.hear()
    (partial,) = names(tmp_path)
    write_directory(tmp_path / "out", "fast")
    assert [partial, "out"] == names(tmp_path)
    writer.send("go on")
    assert "refused" == writer.hear()
    assert ["out"] == names(tmp_path)
    assert "fast" == (tmp_path / "out" / "a").read_text()


DYING = """
import os, sys
from pathlib import Path
from replay.output import new_directory
real_rename = os.rename
def rename_and_die(source, target, **options):
    real_rename(source, target, **options)
    if os.fspath(source) == sys.argv[1]:
        os._exit(9)
os.rename = rename_and_die
with new_directory(Path(sys.argv[1]), force=True, owned=["a", "b"]) as directory:
    (directory / "a").write_text("new")
"""


def test_a_writer_killed_between_its_renames_loses_nothing(tmp_path: Path) -> None:
    """The replaced directory is set aside first; the next run brings it back."""
    write_directory(tmp_path / "out", "old")
    command = [sys.executable, "-c", DYING, str(tmp_path / "out")]
    assert 9 == subprocess.run(command, cwd=CHECKOUT, check=False).returncode
    assert "out" not in names(tmp_path)
    with pytest.raises(OutputExists):
        write_directory(tmp_path / "out", "next")
    assert ["out"] == names(tmp_path)
    assert "old" == (tmp_path / "out" / "a").read_text()
