"""Lines of a trace file, plain or gzip, with bounds that hold whatever the file claims.

A line too long, a compressed file that is cut, a blank line before a row, a byte-order mark and
bytes that are not UTF-8 raise `InputError` with the line's number. Empty lines at the end are
nothing.
"""

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple, cast

from replay.errors import InputError
from replay.strict import decode, open_regular, printable

_GZIP_MAGIC = b"\x1f\x8b"
_BLOCK_BYTES = 4 * 2**20
_LINE_ENDS = b"\r\n"


def place_of(path: Path) -> str:
    """How messages call the file: its path on one line, or `standard input` for `-`."""
    return "standard input" if str(path) == "-" else printable(str(path), 200)


class Block(NamedTuple):
    """Whole lines of a file, and the number of the first of them, from 1."""

    data: bytes
    line: int


def numbered_lines(path: Path, max_line_bytes: int) -> Iterator[tuple[int, str, str]]:
    """Line number from 1, its place for messages, its text without LF or CRLF, one at a time.

    `-` is standard input. gzip is known by its first two bytes, not by the file's name.
    """
    place = place_of(path)
    for block in blocks(path, max_line_bytes):
        yield from numbered(block, place, max_line_bytes)


def numbered(block: Block, place: str, max_line_bytes: int) -> Iterator[tuple[int, str, str]]:
    """Lines of one block as `numbered_lines` gives them."""
    for number, line in enumerate(io.BytesIO(block.data), block.line):
        where = f"{place}:{number}"
        if len(line) > max_line_bytes:
            raise InputError(where, "", f"must be at most {max_line_bytes} bytes", "more")
        if not line.strip():
            rule = "must hold a row (empty lines may stand at the end of the file only)"
            raise InputError(where, "", rule, "a blank line")
        yield number, where, decode(line, where).removesuffix("\n").removesuffix("\r")


def blocks(path: Path, max_line_bytes: int) -> Iterator[Block]:
    """A file in blocks of whole lines, some megabytes each; a file without a line is refused.

    A line that is too long is the last of its block, and perhaps cut: `numbered` refuses it, and
    more empty lines than a line has bytes, too.
    """
    place = place_of(path)
    with unpacked(path) as source:
        number, tail = 1, b""
        while read := read_some(source, _BLOCK_BYTES, place):
            data = tail + read
            end = _end_of_rows(data)
            whole, tail = data[:end], data[end:]
            if whole:
                yield Block(whole, number)
                number += whole.count(b"\n")
            if len(tail) > max_line_bytes:
                yield Block(tail, number)
                return
        if tail.strip(_LINE_ENDS):
            yield Block(tail, number)
        elif number == 1:
            raise InputError(place, "", "must not be empty", "no line")


def _end_of_rows(data: bytes) -> int:
    """Bytes of whole lines, without empty ones at the end, which perhaps are the file's last."""
    text = len(data.rstrip(_LINE_ENDS))
    if not text:
        return 0
    end = data.find(b"\n", text)
    return (data.rfind(b"\n") if end < 0 else end) + 1


@contextmanager
def unpacked(path: Path) -> Iterator[BinaryIO]:
    """A file's bytes, or standard input's for `-`; gzip is unpacked as it is read."""
    with _open(path) as file:
        packed = file.peek(2)[:2] == _GZIP_MAGIC
        yield cast("BinaryIO", gzip.GzipFile(fileobj=file)) if packed else file


def read_some(source: BinaryIO, size: int, place: str) -> bytes:
    """At most `size` bytes of what `unpacked` gives, none at its end."""
    try:
        return source.read(size)
    except (EOFError, zlib.error, gzip.BadGzipFile) as exc:
        raise InputError(place, "", "must be a whole gzip file and nothing after it") from exc
    except OSError as exc:
        raise InputError(place, "", f"cannot be read: {exc.strerror}") from exc


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
