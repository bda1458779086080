"""A packing beside the run it is for: nothing of the run changes until all of it is made.

What is made lies in a hidden directory, which no reader of runs looks into. Once it is whole it is
renamed, and from then on it is only moved: what a kill left of that, the next packing moves. What a
kill left unfinished is made anew.
"""

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from collectors.columns import DIRECTORIES
from collectors.pack.packer import STATE
from collectors.writer import LOCK, RunWriter
from replay.errors import OutputExists

_MAKING, _MADE = ".packing", ".packed"
_MANIFEST = "manifest.json"


class Stage(RunWriter):
    """Writes what is to be added to a run that `run` has locked; parts go on with the run's."""

    def __init__(self, run: RunWriter) -> None:
        path = run.path / _MAKING
        path.mkdir(mode=0o700)
        for name in (_MANIFEST, STATE):
            if (run.path / name).exists():
                shutil.copy2(run.path / name, path / name)
        super().__init__(path, run.manifest, lock=-1)  # the run's is held by `run`
        self._next = {table: run.next_part(table) for table in DIRECTORIES}
        self.run = run


@contextmanager
def added_to(path: Path, begun: Callable[[RunWriter], Any]) -> Iterator[Stage]:
    """A stage for a run; what is in it becomes the run's when the block ends without an error.

    `begun` looks at the run first, and may refuse it.
    """
    unlocked = not (path / LOCK).exists()
    with RunWriter.resume(path) as run:
        try:
            _install(path)
            begun(run)
            shutil.rmtree(path / _MAKING, ignore_errors=True)  # of one that was killed
            stage = Stage(run)
            yield stage
            stage.path.rename(path / _MADE)
        except BaseException:
            shutil.rmtree(path / _MAKING, ignore_errors=True)
            if unlocked:
                (path / LOCK).unlink(missing_ok=True)
            raise
        _install(path)


def _install(path: Path) -> None:
    """Move a whole packing into its run; done twice it is the same."""
    made = path / _MADE
    if not made.is_dir():
        return
    # The state first: from here on no other packer adds to the run.
    names = [STATE, _MANIFEST]
    for folder in DIRECTORIES.values():
        names += sorted(f"{folder}/{part.name}" for part in (made / folder).glob("part-*.parquet"))
    for name in names:
        if (made / name).exists():
            (path / name).parent.mkdir(mode=0o700, exist_ok=True)
            (made / name).replace(path / name)
    shutil.rmtree(made)


@contextmanager
def made_parents(path: Path) -> Iterator[None]:
    """The directories above that the block makes go again if it fails."""
    above = [parent for parent in path.parents if not parent.exists()]
    try:
        yield
    except BaseException:
        with suppress(OSError):
            for parent in above:
                parent.rmdir()
        raise


@contextmanager
def made_beside(path: Path, manifest: dict[str, Any]) -> Iterator[RunWriter]:
    """A new run under another name, that `appear` gives its own; gone if the block fails."""
    hidden = _hidden(path)
    if (hidden / _MANIFEST).exists():
        RunWriter.resume(hidden).close()  # refused while somebody else makes it
    shutil.rmtree(hidden, ignore_errors=True)  # of one that was killed
    try:
        with RunWriter.create(hidden, manifest) as writer:
            yield writer
    except BaseException:
        shutil.rmtree(hidden, ignore_errors=True)
        raise


def appear(path: Path) -> None:
    """Give a run that is made its name."""
    try:
        _hidden(path).rename(path)
    except OSError as exc:
        raise OutputExists(f"{path}: cannot be created: {exc.strerror}") from exc


def forget(path: Path) -> None:
    """Take away a run that was made and is not to appear."""
    shutil.rmtree(_hidden(path), ignore_errors=True)


def _hidden(path: Path) -> Path:
    return path.with_name(f".{path.name}{_MAKING}")
