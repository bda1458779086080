"""Strict, bounded reading of what the recorder inside an engine left on disk.

A spool directory holds parts named `<engine>-<pid>-<unix_ns>-<part>.spool.jsonl.gz`; those that
differ only in their part are one session, the life of one engine process. A part is frames
(`frames`) of JSON lines: a header object, then arrays that begin with their kind. The end of a part
may be torn; anything else that breaks the format is an `InputError` with part and line.
"""

import io
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from collectors.frames import read_frames
from replay.errors import InputError, Oversized, describe
from replay.strict import MAX_SAFE_INTEGER, check_schema, parse_json, table

SCHEMA = "preemption-spool/1"
ENDED = ("ok", "aborted", "error")
MOST_PARTS = 100_000
MOST_FRAME_BYTES = 16 * 2**20
MOST_LINE_BYTES = 4 * 2**20
_LINES_AT_ONCE = 256
_MOST_NS = 2**63 - 1
_MOST_TEXT = 128
_NAME = re.compile(r"([0-9]{1,4})-([0-9]{1,10})-([0-9]{1,19})-([0-9]{5})\.spool\.jsonl\.gz")
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


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


class Request(NamedTuple):
    """A request reached the engine; its later records name it by `n`."""

    n: int
    request_id: str
    arrival_unix_ns: int | None
    prompt_tokens: int
    max_tokens: int | None
    priority: int | None
    prefix_ids: list[int] | None
    features: list[str] | None = None  # what a replay of lengths does not model


class Arrive(NamedTuple):
    """Queued; `step` is the first that can schedule it."""

    seq: int
    step: int
    t_ns: int
    n: int


class Admit(NamedTuple):
    """First scheduled."""

    seq: int
    step: int
    t_ns: int
    n: int
    cached_tokens: int | None


class Preempt(NamedTuple):
    """Preempted; the engine's state is that after the act."""

    seq: int
    step: int
    t_ns: int
    n: int
    context: int
    computed: int
    generated: int
    freed: int
    free_before: int
    running: int
    waiting: int
    num_preemptions: int


class Resume(NamedTuple):
    """Scheduled again after a preemption."""

    seq: int
    step: int
    t_ns: int
    n: int
    cached_tokens: int | None


class Finish(NamedTuple):
    """Left the engine."""

    seq: int
    step: int
    t_ns: int
    n: int
    generated: int
    num_preemptions: int
    status: str
    finish_reason: str | None
    first_token_ns: int | None
    last_token_ns: int | None
    queue_ns: int | None
    requeue_ns: int | None


class Step(NamedTuple):
    """Totals of one step that scheduled something."""

    step: int
    t_ns: int
    scheduled: int
    prefill: int | None
    decode_requests: int | None
    kv_tokens: int | None
    free_blocks: int | None
    running: int | None
    waiting: int | None


class Clocks(NamedTuple):
    """Both clocks read at once."""

    unix_ns: int
    monotonic_ns: int


class Dropped(NamedTuple):
    """What the recorder lost since the session began, and where it gave up, if it did."""

    dropped: int
    forgotten_prefixes: int = 0
    internal_errors: int = 0
    off: str | None = None


class End(NamedTuple):
    """The engine ended properly."""

    t_ns: int


Record: TypeAlias = (
    Request | Arrive | Admit | Preempt | Resume | Finish | Step | Clocks | Dropped | End
)


@dataclass(frozen=True)
class Frame:
    """Records of one whole frame, and the byte after it; `unknown` counts what is not in them."""

    part: Part
    end: int
    header: Header | None
    records: list[Record]
    unknown: Counter[str] = field(default_factory=Counter)


def list_parts(directory: Path) -> dict[Key, list[Part]]:
    """Parts by session, sessions by their beginning; files of other names are nobody's."""
    try:
        names = islice((entry.name for entry in directory.iterdir()), MOST_PARTS + 1)
        found = [(name, _NAME.fullmatch(name)) for name in names]
    except OSError as exc:
        rule = f"must be a recorder's spool directory: {exc.strerror}"
        raise InputError(str(directory), "", rule) from exc
    if len(found) > MOST_PARTS:
        raise InputError(str(directory), "", f"must hold at most {MOST_PARTS} files", "more")
    sessions: dict[Key, list[Part]] = {}
    for name, match in sorted((name, match) for name, match in found if match):
        engine, pid, unix_ns, number = (int(group) for group in match.groups())
        part = Part(engine, pid, unix_ns, number, directory / name)
        sessions.setdefault(Key(unix_ns, engine, pid), []).append(part)
    return dict(sorted(sessions.items()))


def read_part(part: Part, start: int = 0) -> Iterator[Frame]:
    """Whole frames of a part from byte `start` on; the first frame of all brings the header."""
    first = read_header(part)
    if first is None:
        return
    widths = _widths(first)
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
            record = _record(value, widths, place, line)
            if record is None:
                unknown["records"] += 1
            elif type(record) is Request:
                records.append(_safe(record, unknown))
            else:
                records.append(record)
        yield Frame(part, end, header, records, unknown)


def _safe(request: Request, unknown: Counter[str]) -> Request:
    """The request without numbers of its client's that no reader of JSON keeps exactly."""
    lost: dict[str, Any] = {}
    if not _count_or_null(request.max_tokens):
        lost["max_tokens"] = None
    priority: Any = request.priority  # what is too long to convert is no int
    if priority is not None and not (type(priority) is int and abs(priority) <= MAX_SAFE_INTEGER):
        lost["priority"] = None
    if not lost:
        return request
    unknown["unsafe_numbers"] += len(lost)
    return request._replace(**lost)


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


def _widths(header: Header) -> dict[str, int]:
    """Fields of each kind: a recorder may add some behind those that all of this schema have."""
    widths = {kind: len(rules) for kind, (_, rules) in _KINDS.items()}
    columns = header.facts.get("columns")
    for kind, names in columns.items() if isinstance(columns, dict) else ():
        if kind in widths and isinstance(names, list):
            widths[kind] = max(widths[kind], len(names))
    return widths


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


def _record(value: Any, widths: Mapping[str, int], place: str, line: int) -> Record | None:
    kind = value[0] if type(value) is list and value else None
    if type(kind) is not str:
        found = describe(value)
        raise InputError(f"{place}: line {line}", "", "must be an array that names its kind", found)
    if kind not in _KINDS:
        return None
    record, holds = _READ[kind]
    if len(value) != (width := widths[kind] + 1):
        rule, found = f"must have {width - 1} fields", str(len(value) - 1)
        raise InputError(f"{place}: line {line}", kind, rule, found)
    known = value[1 : len(holds) + 1]
    for hold, one in zip(holds, known, strict=False):
        if not hold(one):
            _refuse(kind, known, f"{place}: line {line}")
    made: Record = record._make(known) if len(known) == len(record._fields) else record(*known)
    return made


def _refuse(kind: str, values: list[Any], place: str) -> None:
    """Name the first field that breaks its rule."""
    record, rules = _KINDS[kind]
    for k, rule in enumerate((*rules, *_MORE.get(kind, ()))):
        if not rule.holds(values[k]):
            name = f"{kind}.{record._fields[k]}"
            raise InputError(place, name, rule.text, describe(values[k]))


@dataclass(frozen=True)
class _Rule:
    holds: Callable[[Any], bool]
    text: str


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_SAFE_INTEGER


def _nanoseconds(value: Any) -> bool:
    return type(value) is int and 0 <= value <= _MOST_NS


def _prefix(value: Any) -> bool:
    return value is None or (
        type(value) is list and all(type(v) is int and 0 <= v < MOST_PREFIX_IDS for v in value)
    )


def _reason(value: Any) -> bool:
    return value is None or (
        type(value) is str and len(value) <= _MOST_TEXT and not _CONTROL.search(value)
    )


def _features(value: Any) -> bool:
    return value is None or (
        type(value) is list
        and len(value) <= _MOST_TEXT
        and all(type(v) is str and len(v) <= _MOST_TEXT for v in value)
    )


def _count_or_null(value: Any) -> bool:  # most fields: a call less each
    return value is None or (type(value) is int and 0 <= value <= MAX_SAFE_INTEGER)


def _or_null(rule: _Rule) -> _Rule:
    return _Rule(lambda value: value is None or rule.holds(value), f"{rule.text} or null")


MOST_PREFIX_IDS = 2**32
_COUNT = _Rule(_count, "must be an integer >= 0")
_COUNT_OR_NULL = _Rule(_count_or_null, f"{_COUNT.text} or null")
_POSITIVE = _Rule(lambda v: _count(v) and v >= 1, "must be an integer >= 1")
_NS = _Rule(_nanoseconds, "must be nanoseconds, an integer >= 0")
_INTEGER = _Rule(lambda v: type(v) in (int, Oversized), "must be an integer")
_TEXT = _Rule(lambda v: type(v) is str, "must be a string")
_STATUS = _Rule(lambda v: v in ENDED, f"must be one of {', '.join(ENDED)}")
_REASON = _Rule(_reason, f"must be null or at most {_MOST_TEXT} printable code points")
_PREFIX = _Rule(_prefix, "must be null or a list of integers from 0 to 2^32 - 1")
_FEATURES = _Rule(_features, "must be null or a short list of names")
_HEADER = {"part": _COUNT, "engine": _COUNT, "unix_ns": _NS, "monotonic_ns": _NS}
_EVENT = (_COUNT, _COUNT, _NS, _COUNT)
_KINDS: Mapping[str, tuple[Any, tuple[_Rule, ...]]] = {
    "R": (
        Request,
        (_COUNT, _TEXT, _or_null(_NS), _POSITIVE, *[_or_null(_INTEGER)] * 2, _PREFIX),
    ),
    "A": (Arrive, _EVENT),
    "D": (Admit, (*_EVENT, _COUNT_OR_NULL)),
    "P": (Preempt, (*_EVENT, *[_COUNT] * 8)),
    "U": (Resume, (*_EVENT, _COUNT_OR_NULL)),
    "F": (Finish, (*_EVENT, _COUNT, _COUNT, _STATUS, _REASON, *[_or_null(_NS)] * 4)),
    "S": (Step, (_COUNT, _NS, _POSITIVE, *[_COUNT_OR_NULL] * 6)),
    "C": (Clocks, (_NS, _NS)),
    "X": (Dropped, (_COUNT,)),
    "E": (End, (_NS,)),
}
# Fields that came later, in the order they stand in.
_MORE: Mapping[str, tuple[_Rule, ...]] = {
    "R": (_FEATURES,),
    "X": (_COUNT, _COUNT, _REASON),
}
_READ = {
    kind: (record, tuple(rule.holds for rule in (*rules, *_MORE.get(kind, ()))))
    for kind, (record, rules) in _KINDS.items()
}
