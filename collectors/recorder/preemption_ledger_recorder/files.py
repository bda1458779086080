"""Parts of a spool on disk: whole frames, appended; a directory of ours; a cap on all of it."""

import gzip
import os
import stat
from collections.abc import Callable
from pathlib import Path

SUFFIX = ".spool.jsonl.gz"
PART_BYTES = 16 * 2**20
_RECOUNT_AT = 5.0  # seconds between two looks at what the directory holds


class SpoolFull(OSError):
    """The directory holds as much as it may."""


def check_directory(path: Path) -> None:
    """Make the directory, 0700, or see that nobody else can write there; `OSError` if not."""
    path.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = path.lstat()
    if not stat.S_ISDIR(found.st_mode):
        raise NotADirectoryError("must be a directory, and no link to one")
    if found.st_uid != os.geteuid():
        raise PermissionError("must belong to the engine's user")
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError("must not be writable for group or others")


class Parts:
    """The numbered files of one session; `header` gives the first line of a part."""

    def __init__(
        self,
        directory: Path,
        stem: str,
        header: Callable[[int], bytes],
        *,
        most_bytes: int,
        clock: Callable[[], float],
    ) -> None:
        self._directory, self._stem, self._header = directory, stem, header
        self._most_bytes, self._clock = most_bytes, clock
        self._next = 0
        self._file: int | None = None
        self._size = 0
        self._held, self._counted_at = 0, float("-inf")

    def append(self, lines: list[bytes], *, last: bool = False) -> None:
        """Write one frame, whole or not at all; `OSError` says it is not there.

        The frame that ends a session may pass the cap: that it ended properly must be told.
        """
        frame, head = _frame(lines), b""
        if self._file is not None and not self._goes_on(len(frame)):
            self.close()
        if self._file is None:
            head = _frame([self._header(self._next)])
        if not last:
            self._reserve(len(head) + len(frame))
        if head:
            self._open(head)
        self._write(frame)

    def close(self) -> None:
        """Let go of the file in hand."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)

    def _goes_on(self, more: int) -> bool:
        """Whether the part in hand has room and is still in the directory."""
        assert self._file is not None  # noqa: S101
        return self._size + more <= PART_BYTES and os.fstat(self._file).st_nlink > 0

    def _reserve(self, more: int) -> None:
        now = self._clock()
        if now - self._counted_at >= _RECOUNT_AT:
            self._held, self._counted_at = self._all_bytes(), now
        if self._held + more > self._most_bytes:
            raise SpoolFull(f"the spool holds {self._held} bytes and may hold {self._most_bytes}")

    def _all_bytes(self) -> int:
        held = 0
        try:
            with os.scandir(self._directory) as entries:
                for entry in entries:
                    if entry.name.endswith(SUFFIX):
                        held += entry.stat(follow_symlinks=False).st_size
        except FileNotFoundError:  # gone, or a part was packed meanwhile
            pass
        return held

    def _open(self, head: bytes) -> None:
        check_directory(self._directory)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        number, self._next = self._next, self._next + 1
        self._file = os.open(
            self._directory / f"{self._stem}-{number:05d}{SUFFIX}", flags, mode=0o600
        )
        self._size = 0
        try:
            self._write(head)
        except OSError:
            self.close()  # a part without a header is none; its number is used up
            raise

    def _write(self, frame: bytes) -> None:
        file = self._file
        assert file is not None  # noqa: S101
        view = memoryview(frame)
        try:
            while view:
                view = view[os.write(file, view) :]
        except OSError:
            self._cut(file)
            raise
        self._size += len(frame)
        self._held += len(frame)

    def _cut(self, file: int) -> None:
        """Take a frame off again that the disk took only in part."""
        try:
            os.ftruncate(file, self._size)
        except OSError:
            self.close()  # its torn end is the last thing in it


def _frame(lines: list[bytes]) -> bytes:
    """One gzip member of lines; its checksum and length say whether it is whole."""
    return gzip.compress(b"\n".join((*lines, b"")), 6, mtime=0)
