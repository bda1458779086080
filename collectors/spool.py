"""Strict, bounded reading of what the recorder inside an engine left on disk.

A spool directory holds parts named `<engine>-<pid>-<unix_ns>-<part>.spool.jsonl.gz`; those that
differ only in their part are one session, the life of one engine process. A part is frames
(`frames`) of JSON lines: a header object, then arrays that begin with their kind. The end of a part
may be torn; anything else that breaks the format is an `InputError` with part and line.
"""

import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from collectors.frames import read_frames
from collectors.spool_records import (
    COUNT,
    ENDED,
    MOST_PREFIX_IDS,
    NANOSECONDS,
    Admit,
    Arrive,
    Clocks,
    Dropped,
    End,
    Finish,
    Preempt,
    Record,
    Request,
    Resume,
    Step,
    read_record,
    widths_of,
)
from replay.errors import InputError, describe
from replay.strict import check_schema, parse_json, table

__all__ = [
    "ENDED",
    "MOST_PREFIX_IDS",
    "Admit",
    "Arrive",
    "Clocks",
    "Dropped",
    "End",
    "Finish",
    "Frame",
    "Header",
    "Key",
    "Listing",
    "Part",
    "Preempt",
    "Record",
    "Request",
    "Resume",
    "Step",
    "list_parts",
    "list_spool",
    "read_header",
    "read_part",
    "said",
]

SCHEMA = "preemption-spool/1"
MOST_PARTS = 100_000
MOST_FRAME_BYTES = 16 * 2**20
MOST_LINE_BYTES = 4 * 2**20
_LINES_AT_ONCE = 256
_MOST_SAID = 500
_NAME = re.compile(r"([0-9]{1,4})-([0-9]{1,10})-([0-9]{1,19})-([0-9]{5})\.spool\.jsonl\.gz")
_HEADER = {"part": COUNT, "engine": COUNT, "unix_ns": NANOSECONDS, "monotonic_ns": NANOSECONDS}


class Part(NamedTuple):
    """One file: part `number` of the session that began at `unix_ns`."""

    engine: int
    pid: int
    unix_ns: int
    number: int
    path: Path


class Key(NamedTuple):
    """What names a session; ordered by its beginning."""

    unix_ns: int
    engine: int
    pid: int


@dataclass(frozen=True)
class Header:
    """What an engine says about itself; `facts` is the whole object, its sections unchecked."""

    part: int
    engine: int
    unix_ns: int
    monotonic_ns: int
    facts: Mapping[str, Any]


@dataclass(frozen=True)
class Frame:
    """Records of one whole frame, and the byte after it; `unknown` counts what is not in them."""

    part: Part
    end: int
    header: Header | None
    records: list[Record]
    unknown: Counter[str] = field(default_factory=Counter)


class Listing(NamedTuple):
    """What a spool directory holds; `strangers` are visible names that are no part's."""

    sessions: dict[Key, list[Part]]
    strangers: list[str]


def list_parts(directory: Path) -> dict[Key, list[Part]]:
    """Parts by session, sessions by their beginning; files of other names are nobody's."""
    return list_spool(directory).sessions


def list_spool(directory: Path) -> Listing:
    """Parts by session, sessions by their beginning, and what else lies there."""
    try:
        names = sorted(islice((entry.name for entry in directory.iterdir()), MOST_PARTS + 1))
    except OSError as exc:
        rule = f"must be a recorder's spool directory: {exc.strerror}"
        raise InputError(str(directory), "", rule) from exc
    if len(names) > MOST_PARTS:
        raise InputError(str(directory), "", f"must hold at most {MOST_PARTS} files", "more")
    sessions: dict[Key, list[Part]] = {}
    strangers = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match is None:
            strangers += [name] * (not name.startswith("."))
            continue
        engine, pid, unix_ns, number = (int(group) for group in match.groups())
        part = Part(engine, pid, unix_ns, number, directory / name)
        sessions.setdefault(Key(unix_ns, engine, pid), []).append(part)
    return Listing(dict(sorted(sessions.items())), strangers)


def said(part: Part, exc: InputError | OSError) -> str:
    """What is wrong with a part, in our words, by the name of its file and without its folder."""
    if isinstance(exc, InputError):
        return str(exc).replace(f"{part.path.parent}/", "")[:_MOST_SAID]
    return f"{part.path.name}: cannot be read: {exc.strerror}"


def read_part(part: Part, start: int = 0) -> Iterator[Frame]:
    """Whole frames of a part from byte `start` on; the first frame of all brings the header."""
    first = read_header(part)
    if first is None:
        return
    widths = widths_of(first.facts)
    for end, text in read_frames(part.path, start=start, most_frame_bytes=MOST_FRAME_BYTES):
        lines, header = io.BytesIO(text), None
        place = f"{part.path}: frame before byte {end}"
        if start == 0:
            lines.readline(MOST_LINE_BYTES + 1)
            header = first
        start = end
        records: list[Record] = []
        unknown: Counter[str] = Counter()
        for line, value in _values(lines, place, 2 if header else 1):
            record = read_record(value, widths, place, line, unknown)
            if record is not None:
                records.append(record)
        yield Frame(part, end, header, records, unknown)


def read_header(part: Part) -> Header | None:
    """Header of a part; None while no frame of it is whole."""
    for _, text in read_frames(part.path, most_frame_bytes=MOST_FRAME_BYTES):
        line = io.BytesIO(text).readline(MOST_LINE_BYTES + 1)
        return _header(line, part, f"{part.path}: line 1")
    return None


def _header(line: bytes, part: Part, place: str) -> Header:
    if len(line) > MOST_LINE_BYTES:
        raise InputError(place, "", f"must have at most {MOST_LINE_BYTES} bytes", "more")
    found = table(_parsed(line, place), place, "header")
    check_schema(found.get("schema"), SCHEMA, place)
    numbers = {}
    for name, rule in _HEADER.items():
        if not rule.holds(found.get(name)):
            raise InputError(place, name, rule.text, describe(found.get(name)))
        numbers[name] = found[name]
    for name, named in {"engine": part.engine, "part": part.number}.items():
        if numbers[name] != named:
            raise InputError(place, name, f"must be the file name's {named}", str(numbers[name]))
    return Header(**numbers, facts=found)


def _values(lines: io.BytesIO, place: str, first: int) -> Iterator[tuple[int, Any]]:
    """Number and value of each line; parsed many at once, because a call for each costs most."""
    number = first
    every = iter(lambda: lines.readline(MOST_LINE_BYTES + 1), b"")
    while batch := list(islice(every, _LINES_AT_ONCE)):
        for k, line in enumerate(batch):
            if len(line) > MOST_LINE_BYTES:
                rule = f"must have at most {MOST_LINE_BYTES} bytes"
                raise InputError(f"{place}: line {number + k}", "", rule, "more")
        try:
            held = _parsed(b"[[" + b"],[".join(batch) + b"]]", place)
        except InputError:
            held = []
        if len(held) == len(batch) and all(type(v) is list and len(v) == 1 for v in held):
            values = [value for (value,) in held]
        else:  # to say which line it is
            values = [_parsed(line, f"{place}: line {number + k}") for k, line in enumerate(batch)]
        yield from enumerate(values, number)
        number += len(batch)


def _parsed(line: bytes, place: str) -> Any:
    try:
        text = line.decode()
    except UnicodeDecodeError as exc:
        raise InputError(place, "", "must be UTF-8 text", "a bad byte") from exc
    return parse_json(text, place)
