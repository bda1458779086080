"""The key of the pseudonyms: a file only its owner can read, made when it is not there yet."""

import errno
import os
import secrets
import stat
from pathlib import Path

from replay.errors import InputError, OutputExists
from replay.output import new_file

KEY_BYTES = 32
_LEAST_BYTES, _MOST_BYTES = 16, 4096
_TO_OTHERS = stat.S_IRWXG | stat.S_IRWXO


def read_key(path: Path) -> bytes | None:
    """The key, the file's bytes without white space around them; None where there is no file.

    A file that others can read or write, is somebody else's, is no regular file, holds less than 16
    bytes, or one byte again and again is an `InputError`.
    """
    try:
        # Without O_NONBLOCK a fifo would hang the open itself.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW)
    except FileNotFoundError:
        return None
    except OSError as exc:
        link = exc.errno == errno.ELOOP
        rule = "must not be a symbolic link" if link else f"cannot be read: {exc.strerror}"
        raise InputError(str(path), "key", rule) from exc
    try:
        _check_private(os.fstat(descriptor), str(path))
        key = os.read(descriptor, _MOST_BYTES + 1).strip()
    finally:
        os.close(descriptor)
    if not _LEAST_BYTES <= len(key) <= _MOST_BYTES:
        rule = f"must hold {_LEAST_BYTES} to {_MOST_BYTES} bytes; remove it to have one made"
        raise InputError(str(path), "key", rule, f"{len(key)}")
    if len(set(key)) == 1:
        rule = "must be random; remove it to have one made"
        raise InputError(str(path), "key", rule, "bytes that are all the same")
    return key


def make_key(path: Path) -> bytes:
    """A new key of 64 hex digits, its file of mode 0600; another's where one was made meanwhile."""
    try:
        with new_file(path, force=False, mode=stat.S_IRUSR | stat.S_IWUSR) as temporary:
            temporary.write_text(secrets.token_hex(KEY_BYTES) + "\n", encoding="ascii")
    except OutputExists:
        found = read_key(path)
        if found is None:
            raise
        return found
    made = read_key(path)
    assert made is not None, path  # noqa: S101 - it was just written
    return made


def _check_private(found: os.stat_result, place: str) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise InputError(place, "key", "must be a regular file")
    if found.st_mode & _TO_OTHERS:
        rule = "must not be readable or writable by others; run: chmod 600 on it"
        raise InputError(place, "key", rule, f"mode {stat.S_IMODE(found.st_mode):04o}")
    if found.st_uid != os.geteuid():
        raise InputError(place, "key", "must belong to the user who runs this", "another's")
