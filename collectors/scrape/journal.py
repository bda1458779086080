"""The file that scrapes go to first: one frame each, so that a kill costs the one in flight.

`pages/journal-00000.jsonl.gz` is part 0 while it is being written. When it is full `settle` makes
`samples/part-00000.parquet` and `pages/part-00000.jsonl.xz` of it, and then it goes.
"""

import errno
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from collectors.frames import append_frame, cut_torn_tail, read_frames
from collectors.scrape.entry import Entry, entry_of
from replay.errors import InputError

PAGES = "pages"
_NAME = re.compile(r"journal-([0-9]{5})\.jsonl\.gz")
# Speed: the frames of a full journal are compressed again, and better, when it is settled.
_LEVEL = 1


class Vanished(OSError):
    """The journal is no longer where it was made."""


class Journal:
    """One journal open for appending; another process must not have it open."""

    def __init__(self, run: Path, number: int) -> None:
        self.number, self.path = number, journal_path(run, number)
        self.path.parent.mkdir(mode=0o700, exist_ok=True)
        descriptor = os.open(
            self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
        )
        self._file: IO[bytes] = os.fdopen(descriptor, "r+b", buffering=0)
        self._inode = os.fstat(descriptor).st_ino
        self.bytes = self._file.seek(0, os.SEEK_END)

    def append(self, entry: Entry) -> int:
        """Give one scrape to the operating system; returns bytes written.

        `OSError` where the disk is full, `Vanished` where the run is no longer there; nothing was
        appended then.
        """
        try:
            there = self.path.stat().st_ino == self._inode
        except OSError:
            there = False
        if not there:
            raise Vanished(errno.ENOENT, "vanished", str(self.path))
        written = append_frame(self._file, [entry.line()], _LEVEL)
        self.bytes += written
        return written

    def sync(self) -> None:
        """Wait until the disk has everything."""
        os.fsync(self._file.fileno())

    def close(self) -> None:
        """Close the file, whatever became of it."""
        try:
            self._file.close()
        except OSError:
            return


def journal_path(run: Path, number: int) -> Path:
    """Where the journal of a part lies."""
    return run / PAGES / f"journal-{number:05d}.jsonl.gz"


def journal_numbers(run: Path) -> list[int]:
    """Parts that still have a journal, in order."""
    folder = run / PAGES
    names = (entry.name for entry in folder.iterdir()) if folder.is_dir() else ()
    return sorted(int(m[1]) for m in map(_NAME.fullmatch, names) if m)


def journal_entries(path: Path) -> Iterator[Entry]:
    """Entries of a journal, one at a time; a torn tail is passed over."""
    for number, (_, lines) in enumerate(read_frames(path)):
        for line in lines.splitlines():
            yield entry_of(line, f"{path}: frame {number}")


def repair(path: Path) -> int:
    """Cut a journal to its whole frames; returns how many bytes that took off.

    A journal damaged in its middle is kept aside, cut to what is whole before the damage.
    """
    try:
        return cut_torn_tail(path)
    except InputError:
        whole = 0
        try:
            for end, _ in read_frames(path):
                whole = end
        except InputError:
            pass
        torn = path.stat().st_size - whole
        path.with_name(f"{path.name}.damaged").write_bytes(path.read_bytes()[whole:])
        os.truncate(path, whole)
        return torn
