"""JSON larger than memory, read value by value: a pull parser over `ijson` with bounds of its own.

A number comes as its own text says (an integer or a `Decimal`), never as a float. What is no JSON
raises `InputError` that shows nothing of the file; `NaN` and `Infinity`, which Python writes though
JSON has neither, come through as those words, so that the rule of the field they stand in refuses
them, and only if somebody reads that field. One text or number that fills the memory is refused.
"""

import io
import re
from codecs import BOM_UTF8
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from decimal import Decimal, DecimalException
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple, cast

import ijson

from collectors.traces.lines import read_some, unpacked
from replay.errors import InputError, describe

Scalar = str | int | Decimal | bool | None
Spec = Mapping[str, Any]


class Ends(NamedTuple):
    """First and last entry of a list, and how many there are."""

    first: Scalar
    last: Scalar
    entries: int


ENDS = object()
ENDED = "the end of the file"
CHUNK_BYTES = 2**16
MAX_TEXT_BYTES = 16 * 2**20
WORDS = ("NaN", "Infinity", "-Infinity")
_BEGUN = re.compile(rb"(?:(?<!Na)Na?|-?I[nfity]{0,6}|-)\Z")
_WORD = re.compile(rb'("(?:[^"\\]++|\\.)*+"?)|-?Infinity|NaN', re.DOTALL)
# An integer of more digits than Python converts kills the process inside ijson's parser.
_MANY_DIGITS = b"0" * 1000
_ALL_ZERO = bytes.maketrans(b"123456789", b"000000000")
_STARTS = ("start_map", "start_array")
_ENDS = ("end_map", "end_array")


@contextmanager
def opened(path: Path, place: str) -> Iterator["Bounded"]:
    """The bytes of a file, plain or gzip, or of standard input (`-`), for a `Cursor`."""
    with unpacked(path) as file:
        yield Bounded(file, place)


def line_cursor(text: str, place: str) -> "Cursor":
    """A cursor before the one value of a line."""
    return Cursor(Bounded(io.BytesIO(text.encode()), place), place)


class Bounded:
    """What the parser reads from: no text or number longer than it may be, words for NaN.

    A `fault` ends what is read, and whoever reads has to raise it: an exception from within would
    leave a parser half done, which in pure Python says so, and what it had read, when it is freed.
    """

    def __init__(self, file: BinaryIO, place: str) -> None:
        self._file, self._place = file, place
        self._kept = b""
        self._inside = False  # of a string
        self._long = 0
        self.bytes_read = 0
        self.ended = False
        self.fault: InputError | None = None

    def read(self, size: int = -1) -> bytes:
        """Some bytes, none at the end of the file or at a fault."""
        if size == 0 or self.fault is not None:
            return b""
        try:
            return self._some()
        except InputError as exc:
            self.fault = exc
            return b""

    def _some(self) -> bytes:
        while True:
            new = self._read()
            data = self._kept + new
            whole = len(data) - (_begun(data) if new else 0)
            data, self._kept = data[:whole], data[whole:]
            if data or not new:
                return self._passed(data)

    def _read(self) -> bytes:
        new = read_some(self._file, CHUNK_BYTES, self._place)
        if not self.bytes_read and new.startswith(BOM_UTF8):
            raise InputError(self._place, "", "must be UTF-8 without a byte-order mark", "one")
        self.bytes_read += len(new)
        self.ended = not new
        return new

    def _passed(self, data: bytes) -> bytes:
        inside = self._inside
        quotes = data.replace(b"\\\\", b"").replace(b'\\"', b"").count(b'"')
        self._inside ^= quotes % 2 == 1
        self._long = len(data) + (self._long if inside and not quotes else 0)
        if self._inside and self._long > MAX_TEXT_BYTES:
            rule = f"must hold no text of more than {MAX_TEXT_BYTES} bytes"
            raise InputError(self._place, "", rule, "more")
        digits = _MANY_DIGITS in data.translate(_ALL_ZERO)
        if not digits and b"NaN" not in data and b"Infinity" not in data:
            return data
        opening = b'"' if inside else b""
        if digits and _MANY_DIGITS in _WORD.sub(b"", opening + data).translate(_ALL_ZERO):
            rule = f"must hold no number of {len(_MANY_DIGITS)} digits"
            raise InputError(self._place, "", rule, "one")
        return _WORD.sub(_quoted, opening + data)[len(opening) :]


def _begun(data: bytes) -> int:
    """Bytes at the end that only the next ones tell what they are: half an escape, half a word."""
    escapes = len(data) - len(data.rstrip(b"\\"))
    word = _BEGUN.search(data[-len("-Infinity") :])
    return escapes % 2 or (len(word[0]) if word else 0)


def _quoted(match: "re.Match[bytes]") -> bytes:
    return match[1] or b'"' + match[0] + b'"'


class Cursor:
    """A place in a stream of JSON values, moved on by whoever reads a value.

    `object` and `array` step over every value that their reader did not take.
    """

    def __init__(self, source: Bounded, place: str) -> None:
        self.place = place
        self._source = source
        self._events = self._guarded()
        self._back: tuple[str, Any] | None = None
        self._offered = False

    def _guarded(self) -> Iterator[tuple[str, Any]]:
        """The parser's events; its errors show the text they are about, so none gets out."""
        try:
            yield from ijson.basic_parse(self._source, multiple_values=True, buf_size=CHUNK_BYTES)
        except (ijson.JSONError, DecimalException, ValueError, SystemError):
            if self._source.fault is None:
                raise self._no_json() from None
        if self._source.fault is not None:
            raise self._source.fault

    def _no_json(self) -> InputError:
        """The parsers word what they find each in their own way, and at their own places."""
        read = self._source.bytes_read
        if self._source.ended:
            return InputError(self.place, "", "must be JSON", ENDED)
        near = f"the first {read} bytes"
        if read > CHUNK_BYTES:
            near = f"the {CHUNK_BYTES} bytes before {read}"
        rule = "must be JSON in UTF-8 with numbers of a sane size"
        return InputError(self.place, "", rule, f"a mistake in {near}")

    def _next(self) -> tuple[str, Any]:
        self._offered = False
        if self._back is not None:
            event, self._back = self._back, None
            return event
        return next(self._events)

    def more(self) -> bool:
        """Whether another value follows; between values, not inside one."""
        if self._back is None:
            self._back = next(self._events, None)
        return self._back is not None

    def end(self) -> None:
        """Refuse another value where one is all there may be."""
        if self.more():
            raise InputError(self.place, "", "must be one JSON value", "more")

    def is_list(self) -> bool:
        """Whether the value that follows is a list; it is not read."""
        return self.more() and self._back is not None and self._back[0] == "start_array"

    def skip(self) -> None:
        """Step over one value, however large."""
        if self._next()[0] not in _STARTS:
            return
        depth = 1
        for event, _ in self._events:
            if event in _STARTS:
                depth += 1
            elif event in _ENDS:
                depth -= 1
                if not depth:
                    return

    def object(self, known: Mapping[str, Any] | tuple[str, ...], field: str) -> Iterator[str]:
        """Keys of the object that stands here, those of `known` only; none of them twice."""
        self._start("start_map", "an object", field)
        seen: set[str] = set()
        while True:
            event, key = self._next()
            if event == "end_map":
                return
            if key not in known:
                self.skip()
                continue
            if key in seen:
                raise InputError(self.place, field, "must not repeat a key", f"{key} twice")
            seen.add(key)
            self._offered = True
            yield key
            if self._offered:
                self.skip()

    def array(self, field: str) -> Iterator[int]:
        """Numbers of the entries of the list that stands here."""
        self._start("start_array", "a list", field)
        k = 0
        while True:
            self._back = self._next()
            if self._back[0] == "end_array":
                self._back = None
                return
            self._offered = True
            yield k
            if self._offered:
                self.skip()
            k += 1

    def scalars(self, field: str) -> Iterator[Scalar]:
        """Entries of a list of numbers, texts and the like; faster than `array`."""
        self._start("start_array", "a list", field)
        for event, value in self._events:
            if event == "number":
                yield value
            elif event == "end_array":
                return
            elif event in _STARTS:
                raise InputError(self.place, field, "must hold single values", _kind(event))
            else:
                yield value

    def scalar(self, field: str) -> Scalar:
        """The number, text or the like that stands here."""
        event, value = self._next()
        if event in _STARTS:
            raise InputError(self.place, field, "must be a single value", _kind(event))
        return cast("Scalar", value)

    def scalar_or_none(self) -> Scalar:
        """The single value that stands here; None of an object or a list, which is stepped over."""
        self._back = self._next()
        if self._back[0] in _STARTS:
            self.skip()
            return None
        return cast("Scalar", self._next()[1])

    def ends(self, field: str) -> Ends:
        """First and last of a list of single values, and how many there are."""
        first = last = None
        count = 0
        for value in self.scalars(field):
            first, last, count = value if not count else first, value, count + 1
        return Ends(first, last, count)

    def pick(self, spec: Spec, field: str) -> dict[str, Any] | None:
        """What `spec` names of the object that stands here, and nothing else; None of a null.

        In `spec` a key leads to None (a single value), to another spec, to a list of one spec (all
        entries of a list), or to `ENDS` (of a list of single values only these). A key that is not
        there is not in the result.
        """
        if self._is_null():
            return None
        found: dict[str, Any] = {}
        for key in self.object(spec, field):
            inner, name = spec[key], f"{field}.{key}" if field else key
            if inner is None:
                found[key] = self.scalar(name)
            elif inner is ENDS:
                found[key] = None if self._is_null() else self.ends(name)
            elif isinstance(inner, list):
                found[key] = (
                    None
                    if self._is_null()
                    else [self.pick(inner[0], f"{name}[{k}]") for k in self.array(name)]
                )
            else:
                found[key] = self.pick(inner, name)
        return found

    def _is_null(self) -> bool:
        event = self._next()
        if event[0] == "null":
            return True
        self._back = event
        return False

    def _start(self, wanted: str, name: str, field: str) -> None:
        event, value = self._next()
        if event != wanted:
            found = _kind(event) if event in _STARTS else describe(value)
            raise InputError(self.place, field, f"must be {name}", found)


def _kind(event: str) -> str:
    return "an object" if event == "start_map" else "a list"
