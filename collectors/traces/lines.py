"""Lines of a trace file, plain or gzip, with bounds that hold whatever the file claims.

A line too long, a compressed file that unpacks to too much, one that is cut, a blank line, a
byte-order mark and bytes that are not UTF-8 raise `InputError` with the line's number.
"""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, cast

from replay.errors import InputError
from replay.strict import MAX_TEXT_BYTES, decode, open_regular, printable

MAX_UNPACKED_BYTES = MAX_TEXT_BYTES
_GZIP_MAGIC = b"\x1f\x8b"


def place_of(path: Path) -> str:
    """How messages call the file: its path on one line, or `standard input` for `-`."""
    return "standard input" if str(path) == "-" else printable(str(path), 200)


def numbered_lines(path: Path, max_line_bytes: int) -> Iterator[tuple[int, str, str]]:
    """Line number from 1, its place for messages, its text without LF or CRLF, one at a time.

    `-` is standard input. gzip is known by its first two bytes, not by the file's name.
    """
    place = place_of(path)
    with _open(path) as file:
        packed = file.peek(2)[:2] == _GZIP_MAGIC
        source = cast("BinaryIO", gzip.GzipFile(fileobj=file)) if packed else file
        number = unpacked = 0
        while line := _read_line(source, max_line_bytes + 1, place):
            number += 1
            where = f"{place}:{number}"
            if len(line) > max_line_bytes:
                raise InputError(where, "", f"must be at most {max_line_bytes} bytes", "more")
            unpacked += len(line)
            if packed and unpacked > MAX_UNPACKED_BYTES:
                rule = f"must unpack to at most {MAX_UNPACKED_BYTES} bytes; unpack it yourself"
                raise InputError(place, "", rule, "more")
            yield number, where, decode(line, where).removesuffix("\n").removesuffix("\r")
    if number == 0:
        raise InputError(place, "", "must not be empty", "no line")


@contextmanager
def _open(path: Path) -> Iterator[io.BufferedReader]:
    if str(path) != "-":
        with open_regular(path) as file:
            yield cast("io.BufferedReader", file)
        return
    reader = io.BufferedReader(cast("io.RawIOBase", sys.stdin.buffer))
    try:
        yield cast("io.BufferedReader", reader)
    finally:
        reader.detach()  # or it would close the process's standard input with itself


def _read_line(source: BinaryIO, limit: int, place: str) -> bytes:
    try:
        return source.readline(limit)
    except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
        raise InputError(place, "", "must be a whole gzip file") from exc
    except OSError as exc:
        raise InputError(place, "", f"cannot be read: {exc.strerror}") from exc
