"""Append-only files of JSON lines in which every frame is whole or not there at all.

A frame is one gzip member: its CRC-32 and length say whether it is whole, members one after the
other are one gzip file, and `zcat` reads it. Whatever kills a writer costs the frame it was
writing and no other.
"""

import gzip
import os
import zlib
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO

from replay.errors import InputError
from replay.strict import open_regular

MOST_FRAME_BYTES = 64 * 2**20
_CHUNK_BYTES = 2**16
_MEMBER_BEGINS = b"\x1f\x8b\x08"
_GZIP = 31  # zlib's window bits for one gzip member


def append_frame(file: IO[bytes], lines: Iterable[bytes], level: int = 6) -> int:
    """Append one frame of `lines` (each without its newline), flushed; returns its bytes.

    A frame that the disk takes only in part is cut off again before the error is raised, so the
    next one does not stand behind garbage. `file` is unbuffered or at its end.
    """
    frame = gzip.compress(b"".join(line + b"\n" for line in lines), level, mtime=0)
    start = file.seek(0, os.SEEK_END)
    try:
        done = 0
        while done < len(frame):
            done += file.write(frame[done:])
        file.flush()
    except OSError:
        os.ftruncate(file.fileno(), start)
        raise
    return len(frame)


def read_frames(
    path: Path, *, start: int = 0, most_frame_bytes: int = MOST_FRAME_BYTES
) -> Iterator[tuple[int, bytes]]:
    """Whole frames from byte `start` on: (byte after the frame, its lines).

    Ends before a torn tail. A damaged frame with more behind it, and one that decompresses to more
    than `most_frame_bytes`, is an `InputError`.
    """
    with open_regular(path) as file:
        begin = file.seek(start)
        held = b""
        while True:
            member, text = zlib.decompressobj(_GZIP), bytearray()
            while not member.eof:
                held = held or file.read(_CHUNK_BYTES)
                if not held:
                    return
                try:
                    text += member.decompress(held, most_frame_bytes + 1 - len(text))
                except zlib.error as exc:
                    if _more_behind(file, begin):
                        raise InputError(
                            str(path), "", "must hold whole frames", f"damage at byte {begin}"
                        ) from exc
                    return
                if len(text) > most_frame_bytes:
                    rule = f"frames must hold at most {most_frame_bytes} bytes"
                    raise InputError(str(path), "", rule, f"more at byte {begin}")
                held = member.unused_data if member.eof else member.unconsumed_tail
            begin = file.tell() - len(held)
            yield begin, bytes(text)


def cut_torn_tail(path: Path) -> int:
    """Cut a file to its whole frames; returns how many bytes that took off."""
    whole = 0
    for end, _ in read_frames(path):
        whole = end
    torn = path.stat().st_size - whole
    if torn:
        with path.open("r+b") as file:
            file.truncate(whole)
            os.fsync(file.fileno())
    return torn


def _more_behind(file: IO[bytes], begin: int) -> bool:
    """Whether another frame begins after the one at `begin`."""
    file.seek(begin + 1)
    last = b""
    while chunk := file.read(_CHUNK_BYTES):
        if _MEMBER_BEGINS in last + chunk:
            return True
        last = chunk[-2:]
    return False
