"""Files and directories that appear whole or not at all, and never over someone else's.

Everything is written beside its destination and renamed into place. An existing destination is
refused unless `force`, and even then a directory is replaced only when it holds nothing but
entries this project writes there.
"""

import errno
import fcntl
import glob
import os
import secrets
import shutil
import tempfile
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from replay.errors import OutputExists

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
_LOCK_SECONDS = 5.0
_PARTIAL = ".partial-"
_REPLACED = "-replaced"  # ends the name of a directory that --force is just replacing


@contextmanager
def new_file(path: Path, *, force: bool, mode: int = 0o666) -> Iterator[Path]:
    """A temporary path to write to; becomes `path` when the block ends without an error.

    The umask is taken off `mode`. What stops the writing, such as a full disk, is `OutputExists`.
    """
    if path.is_dir():
        raise OutputExists(f"{path}: is a directory; name a file")
    if path.exists() and not path.is_file():
        raise OutputExists(f"{path}: exists and is not a regular file; choose another path")
    if path.exists() and not force:
        raise OutputExists(f"{path}: exists; choose another path or pass --force")
    with _parents(path):
        # Named before it is made, so that a signal in between leaves nothing behind.
        temporary = path.parent / f".{path.name}.{secrets.token_urlsafe(6)}"
        try:
            with _written(path):
                os.close(os.open(temporary, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
            yield temporary
            sync(temporary)
            temporary.chmod(mode & ~_umask())
            with _written(path):
                _move_file(temporary, path, force=force)
        finally:
            temporary.unlink(missing_ok=True)
        sync(path.parent)


def check_new_directory(path: Path, *, force: bool, owned: Iterable[str]) -> None:
    """Refuse before long work what `new_directory` would refuse after it; writes nothing."""
    above = next((p for p in path.parents if p.exists()), None)
    if above is not None and not above.is_dir():
        raise OutputExists(f"{path.parent}: cannot be created: {above} is not a directory")
    _check_directory(path, force=force, owned=frozenset(owned))


@contextmanager
def new_directory(path: Path, *, force: bool, owned: Iterable[str]) -> Iterator[Path]:
    """A temporary directory to fill; becomes `path` when the block ends without an error.

    `owned` are the files, relative to it, that may be lost when `force` replaces a directory.
    """
    owned = frozenset(owned)
    with _parents(path):
        # Locked, else another run could sweep what this one has just made.
        with _written(path), _locked(path.parent):
            _sweep(path)
            _check_directory(path, force=force, owned=owned)
            temporary = Path(tempfile.mkdtemp(prefix=f".{path.name}{_PARTIAL}", dir=path.parent))
            lock = os.open(temporary, os.O_RDONLY)
            _lock(lock)
        try:
            yield temporary
            for entry in sorted(temporary.rglob("*")):
                sync(entry)
            temporary.chmod(0o777 & ~_umask())
            _check_directory(path, force=force, owned=owned)
            with _written(path):
                _swap_in(temporary, path, force=force)
        finally:
            shutil.rmtree(temporary, ignore_errors=True)
            os.close(lock)
        sync(path.parent)


@contextmanager
def _parents(path: Path) -> Iterator[None]:
    """Make the directories above `path`; those made go again if the block fails."""
    made = [p for p in path.parents if not p.exists()]
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise OutputExists(f"{path.parent}: cannot be created: {exc.strerror}") from exc
    try:
        yield
    except BaseException as exc:
        with suppress(OSError):  # not empty: somebody else uses it by now
            for parent in made:
                parent.rmdir()
        if isinstance(exc, OSError) and exc.errno in _NO_ROOM:
            raise OutputExists(f"{path}: cannot be written: {exc.strerror}") from exc
        raise


@contextmanager
def _written(path: Path) -> Iterator[None]:
    """Say in the project's words why `path` could not be written."""
    try:
        yield
    except OSError as exc:
        if exc.errno in (errno.EEXIST, errno.ENOTEMPTY):
            raise OutputExists(f"{path}: was created meanwhile; nothing was written") from exc
        raise OutputExists(f"{path}: cannot be written: {exc.strerror}") from exc


def _move_file(temporary: Path, path: Path, *, force: bool) -> None:
    if force:
        temporary.replace(path)
        return
    try:
        os.link(temporary, path)  # unlike rename, it fails when another run was faster
    except OSError as exc:
        if exc.errno not in (errno.EPERM, errno.ENOTSUP, errno.ENOSYS) or path.exists():
            raise
        temporary.rename(path)  # a file system without hard links


def _check_directory(path: Path, *, force: bool, owned: frozenset[str]) -> None:
    if not path.exists() and not path.is_symlink():
        return
    if not path.is_dir() or path.is_symlink():
        raise OutputExists(f"{path}: exists and is not a directory; choose another path")
    if not force:
        raise OutputExists(f"{path}: exists; choose another path or pass --force")
    if any(_foreign(entry, path, owned) for entry in path.rglob("*")):
        raise OutputExists(
            f"{path}: holds entries this command does not write;"
            " --force replaces only its own output, choose another path"
        )


def _foreign(entry: Path, root: Path, owned: frozenset[str]) -> bool:
    name = entry.relative_to(root).as_posix()
    if entry.is_dir() and not entry.is_symlink():
        return not any(file.startswith(f"{name}/") for file in owned)
    return name not in owned or not entry.is_file()


def _swap_in(temporary: Path, path: Path, *, force: bool) -> None:
    aside = temporary.with_name(temporary.name + _REPLACED)
    if force and path.exists():
        path.rename(aside)
    try:
        temporary.rename(path)
    except OSError:
        if aside.exists():
            aside.rename(path)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _sweep(path: Path) -> None:
    """Remove what a killed run left: partial directories that no living process has locked.

    A run killed between its two renames has left the replaced directory aside: that goes back.
    """
    for left in path.parent.glob(f".{glob.escape(path.name)}{_PARTIAL}*"):
        try:
            descriptor = os.open(left, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except OSError:
            continue
        try:
            if not _lock(descriptor, wait=False):
                continue
            if left.name.endswith(_REPLACED) and not path.exists():
                left.rename(path)
            else:
                shutil.rmtree(left, ignore_errors=True)
        finally:
            os.close(descriptor)


@contextmanager
def _locked(directory: Path) -> Iterator[None]:
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        _lock(descriptor)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, *, wait: bool = True) -> bool:
    """Lock a directory until it is closed; False where it is taken, or cannot be locked.

    Waiting is bounded: a stranger who keeps a lock must not hang us.
    """
    deadline = time.monotonic() + (_LOCK_SECONDS if wait else 0)
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.01)
        except OSError:  # some network file systems lock no directories
            return False
        else:
            return True


def sync(path: Path) -> None:
    """Have the disk hold a file, or the names in a directory."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
