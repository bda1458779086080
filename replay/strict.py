"""Reading JSON and TOML from strangers: bounded, without repeated keys, and with exact types.

Malformed input raises `InputError`; what a parser cannot place is named by its line.
"""

import difflib
import json
import os
import re
import stat
import tomllib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, BinaryIO

from replay.errors import MAX_DIGITS, InputError, Oversized, describe

MAX_SAFE_INTEGER = 2**53 - 1
MAX_ID_CODE_POINTS = 128
MAX_TEXT_BYTES = 64 * 2**20
MAX_KEY_PARTS = 32
_LONGEST_SUGGESTED = 64
_NESTED_KEY = re.compile(rf"^[^=#\n]*(?:\.[^=#.\n]*){{{MAX_KEY_PARTS}}}", re.MULTILINE)
_QUOTED = re.compile(r""""(?:[^"\\\n]|\\.)*"|'[^'\n]*[']""")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029]")
_SURROGATE = re.compile("[\ud800-\udfff]")


def open_regular(path: Path) -> BinaryIO:
    """Open a regular file for reading; directories, devices and absences are input faults."""
    try:
        # Without O_NONBLOCK a fifo would hang the open itself.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError as exc:
        raise InputError(str(path), "", f"cannot be read: {exc.strerror}") from exc
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a directory" if stat.S_ISDIR(mode) else "not a regular file"
        raise InputError(str(path), "", "must be a file", kind)
    return os.fdopen(descriptor, "rb")


def read_text(path: Path, max_bytes: int = MAX_TEXT_BYTES) -> str:
    """Whole file as text; refuses what is empty, too large or not UTF-8."""
    with open_regular(path) as file:
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise InputError(str(path), "", f"must be at most {max_bytes} bytes", "more")
    return decode(data, str(path))


def decode(data: bytes, place: str) -> str:
    """Text of UTF-8 bytes without a byte-order mark."""
    if not data.strip():
        raise InputError(place, "", "must not be empty", f"{len(data)} bytes")
    if data.startswith(b"\xef\xbb\xbf"):
        raise InputError(place, "", "must be UTF-8 without a byte-order mark", "one")
    try:
        return data.decode()
    except UnicodeDecodeError as exc:
        raise InputError(
            place, "", "must be UTF-8 text", f"a bad byte at offset {exc.start}"
        ) from exc


def parse_json(text: str, place: str, fields: Collection[str] = ()) -> Any:
    """Value of one JSON text; integers too long to convert come back as `Oversized`.

    Floats and NaN are kept, so that the field's own rule can refuse them by name. A repeated key is
    named if it is one of `fields`; other keys are data.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) != len(pairs):
            (key, _), *_ = Counter(k for k, _ in pairs).most_common(1)
            twice = f"{key} twice" if key in fields else f"a key of {len(key)} code points twice"
            raise InputError(place, "", "must not repeat a key", twice)
        return found

    try:
        return json.loads(text, object_pairs_hook=unique, parse_int=_integer)
    except json.JSONDecodeError as exc:
        where = f"line {exc.lineno} column {exc.colno}" if "\n" in text else f"column {exc.colno}"
        raise InputError(place, "", f"must be JSON: {exc.msg} at {where}") from exc
    except RecursionError as exc:
        raise InputError(place, "", "must be JSON", "nesting too deep to parse") from exc


def read_toml(path: Path, max_bytes: int = 2**20) -> dict[str, Any]:
    """Tables of a TOML file."""
    return parse_toml(read_text(path, max_bytes), str(path))


def parse_toml(text: str, place: str) -> dict[str, Any]:
    """Tables of a TOML text; a repeated key is the parser's own error."""
    # The parser's time grows with the square of a key's parts; a quoted part hides no dot.
    if _NESTED_KEY.search(_QUOTED.sub("", text)):
        rule = f"must be TOML with keys of at most {MAX_KEY_PARTS} parts"
        raise InputError(place, "", rule, "more")
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as exc:
        raise InputError(place, "", f"must be TOML: {exc}") from exc
    except RecursionError as exc:
        raise InputError(place, "", "must be TOML", "nesting too deep to parse") from exc
    except ValueError as exc:  # int() refuses thousands of digits before tomllib can place them
        raise InputError(place, "", "must be TOML", "an integer of thousands of digits") from exc


def only_keys(found: Iterable[str], known: Iterable[str], place: str, *, quote: bool) -> None:
    """Refuse an unknown key; `quote` its name only where keys are not data (never in a trace)."""
    known = list(known)
    for key in found:
        if key in known:
            continue
        near = difflib.get_close_matches(key[:_LONGEST_SUGGESTED], known, n=1)
        hint = f"; did you mean {near[0]}?" if near else f"; known: {', '.join(known)}"
        name = f"key {printable(key)}" if quote else f"key of {len(key)} code points"
        raise InputError(place, "", f"unknown {name}{hint}")


def integer(value: object, place: str, field: str, minimum: int = 0) -> int:
    """An integer of at least `minimum` that every JSON reader can hold exactly."""
    if isinstance(value, Oversized) or (type(value) is int and abs(value) > MAX_SAFE_INTEGER):
        raise InputError(place, field, "must be within ±(2^53 - 1)", describe(value))
    if type(value) is not int:
        raise InputError(place, field, "must be an integer", describe(value))
    if value < minimum:
        raise InputError(place, field, f"must be >= {minimum}", describe(value))
    return value


def boolean(value: object, place: str, field: str) -> bool:
    """True or false, nothing that merely behaves like it."""
    if type(value) is not bool:
        raise InputError(place, field, "must be true or false", describe(value))
    return value


def identifier(value: object, place: str, field: str) -> str:
    """A name of 1 to 128 code points without control characters or surrogates."""
    if not isinstance(value, str):
        raise InputError(place, field, "must be a string", describe(value))
    if not 1 <= len(value) <= MAX_ID_CODE_POINTS:
        raise InputError(place, field, "must have 1 to 128 code points", describe(value))
    if _CONTROL.search(value) or _SURROGATE.search(value):
        rule = "must hold no control character and no surrogate"
        raise InputError(place, field, rule, describe(value))
    return value


def choice(value: object, place: str, field: str, options: Iterable[str]) -> str:
    """One of the named options."""
    options = list(options)
    if value not in options or not isinstance(value, str):
        raise InputError(place, field, f"must be one of {', '.join(options)}", describe(value))
    return value


def table(value: object, place: str, field: str) -> Mapping[str, Any]:
    """A JSON object or TOML table."""
    if not isinstance(value, dict):
        raise InputError(place, field, "must be a table", describe(value))
    return value


def check_schema(found: object, wanted: str, place: str) -> None:
    """Refuse another schema or version, by name."""
    if found != wanted:
        raise InputError(place, "schema", f"must be {wanted}", named_version(found))


def named_version(value: object) -> str:
    """A schema name as it is if it is one of ours in another version; else its kind and length."""
    if isinstance(value, str) and re.fullmatch(r"preemption-[a-z]{1,20}/[0-9]{1,6}", value):
        return value
    return describe(value)


def printable(text: str, limit: int = 64) -> str:
    """Text on one line for a terminal: control characters escaped, long text cut."""
    escaped = "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode()
        for c in text[: limit + 1]
    )
    return escaped if len(text) <= limit else escaped[:limit] + "…"


def _integer(digits: str) -> int | Oversized:
    return int(digits) if len(digits) <= MAX_DIGITS else Oversized(len(digits.lstrip("-")))
