"""One load of a lake at a time, in a directory of its own that no reader looks at."""

import fcntl
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import duckdb

from analysis.database import one_line
from analysis.errors import StoreError
from analysis.lake.layout import UNFINISHED, check_contents
from replay.errors import is_interrupt
from replay.strict import printable


@contextmanager
def held(root: Path, wait_seconds: float) -> Iterator[None]:
    """The directory of a lake, made if missing, for one load at a time; a lock ends with its owner.

    One that was made goes again if nothing was loaded.
    """
    made = not root.exists()
    with worded(root):
        descriptor = _lock(root, wait_seconds)
    try:
        check_contents(root)
        yield
    except BaseException:
        if made:
            with suppress(OSError):  # not empty
                root.rmdir()
        raise
    finally:
        os.close(descriptor)


def _lock(root: Path, wait_seconds: float) -> int:
    deadline = time.monotonic() + wait_seconds
    while True:
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another load may have failed, and have taken the directory with it.
            if root.exists() and root.samefile(f"/dev/fd/{descriptor}"):
                return descriptor
            os.close(descriptor)
        except BlockingIOError as exc:
            os.close(descriptor)
            if time.monotonic() >= deadline:
                rule = "another process loads into it; nothing was done, try again later"
                raise StoreError(f"{printable(str(root), 200)}: {rule}") from exc
        except BaseException:
            os.close(descriptor)
            raise
        time.sleep(0.05)


@contextmanager
def staging(root: Path) -> Iterator[Path]:
    """A directory in the lake that no reader looks at; those of killed loads go first."""
    for left in root.glob(f"{UNFINISHED}*"):
        shutil.rmtree(left, ignore_errors=True)
    with worded(root):
        directory = Path(tempfile.mkdtemp(prefix=UNFINISHED, dir=root))
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


@contextmanager
def worded(root: Path) -> Iterator[None]:
    """What DuckDB or the disk refuses is a `StoreError` on one line."""
    try:
        yield
    except (duckdb.Error, OSError) as exc:
        if is_interrupt(exc):
            raise KeyboardInterrupt from exc
        place = printable(str(root), 200)
        raise StoreError(f"{place}: cannot be loaded into; {one_line(exc)}") from exc
