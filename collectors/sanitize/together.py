"""A run and its workload appear together: what stops the one takes the other back.

The run's place is taken first, by an empty directory, so that of two that write there only one goes
on; then the workload is put in its place, and the run over the empty directory last. Killed in
between, a run's directory is empty or missing beside a whole workload, and can be made again.
"""

import os
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from replay.errors import OutputExists

_KEPT = ".kept-"


@contextmanager
def place_taken(run: Path, *, force: bool) -> Iterator[None]:
    """An empty directory at a run's place, gone if the block fails; `force` takes one there."""
    if force:
        with suppress(OSError):  # nothing there, or something: the next step says so
            run.rmdir()
    try:
        run.mkdir()
    except OSError as exc:
        told = f"cannot be written: {exc.strerror}"
        if isinstance(exc, FileExistsError):
            told = "was created meanwhile; nothing was written"
        raise OutputExists(f"{run}: {told}") from exc
    try:
        yield
    except BaseException:
        with suppress(OSError):  # somebody put something in it
            run.rmdir()
        raise


@contextmanager
def old_kept(files: Sequence[Path]) -> Iterator[None]:
    """What is at these places keeps a second name until the block ends, and returns if it fails."""
    name, folder = files[0].name, files[0].parent
    if not any(file.is_file() for file in files):
        yield
        return
    for left in folder.glob(f".{name}{_KEPT}*"):  # a killed run's, whose files were to go
        shutil.rmtree(left, ignore_errors=True)
    with TemporaryDirectory(prefix=f".{name}{_KEPT}", dir=folder) as aside:
        kept = {file: Path(aside, file.name) for file in files if file.is_file()}
        for file, second in kept.items():
            try:
                os.link(file, second)
            except OSError:  # a file system without hard links
                shutil.copy2(file, second)
        try:
            yield
        except BaseException:
            for file, second in kept.items():
                second.replace(file)
            raise
