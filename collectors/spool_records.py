"""What a recorder writes about an engine: the kinds of records and the rules of their fields.

A record is an array that begins with its kind. Fields that came later stand behind those that every
recorder of the schema writes; kinds nobody here knows are left to the caller to count.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from replay.errors import InputError, Oversized, describe
from replay.strict import MAX_SAFE_INTEGER

ENDED = ("ok", "aborted", "error")
# Year 2096: sums of two such times, in microseconds, are still safe integers.
MOST_NS = 4 * 10**18
_MOST_TEXT = 128
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")


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


def widths_of(facts: Mapping[str, Any]) -> dict[str, int]:
    """Fields of each kind: a recorder may add some behind those that all of this schema have."""
    widths = {kind: len(rules) for kind, (_, rules) in _KINDS.items()}
    columns = facts.get("columns")
    for kind, names in columns.items() if isinstance(columns, dict) else ():
        if kind in widths and isinstance(names, list):
            widths[kind] = max(widths[kind], len(names))
    return widths


def read_record(
    value: Any, widths: Mapping[str, int], place: str, line: int, unknown: Counter[str]
) -> Record | None:
    """The record of one line, `line` of `place`; what is not in it is counted in `unknown`."""
    kind = value[0] if type(value) is list and value else None
    if type(kind) is not str:
        found = describe(value)
        raise InputError(f"{place}: line {line}", "", "must be an array that names its kind", found)
    if kind not in _KINDS:
        unknown["records"] += 1
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
    return _safe(made, unknown) if type(made) is Request else made


def _refuse(kind: str, values: list[Any], place: str) -> None:
    """Name the first field that breaks its rule."""
    record, rules = _KINDS[kind]
    for k, rule in enumerate((*rules, *_MORE.get(kind, ()))):
        if not rule.holds(values[k]):
            name = f"{kind}.{record._fields[k]}"
            raise InputError(place, name, rule.text, describe(values[k]))


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


@dataclass(frozen=True)
class _Rule:
    holds: Callable[[Any], bool]
    text: str


def _count(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MAX_SAFE_INTEGER


def _nanoseconds(value: Any) -> bool:
    return type(value) is int and 0 <= value <= MOST_NS


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
COUNT = _Rule(_count, "must be an integer >= 0")
_COUNT_OR_NULL = _Rule(_count_or_null, f"{COUNT.text} or null")
_POSITIVE = _Rule(lambda v: _count(v) and v >= 1, "must be an integer >= 1")
NANOSECONDS = _Rule(_nanoseconds, "must be nanoseconds, an integer >= 0")
_INTEGER = _Rule(lambda v: type(v) in (int, Oversized), "must be an integer")
_TEXT = _Rule(lambda v: type(v) is str, "must be a string")
_STATUS = _Rule(lambda v: v in ENDED, f"must be one of {', '.join(ENDED)}")
_REASON = _Rule(_reason, f"must be null or at most {_MOST_TEXT} printable code points")
_PREFIX = _Rule(_prefix, "must be null or a list of integers from 0 to 2^32 - 1")
_FEATURES = _Rule(_features, "must be null or a short list of names")
_EVENT = (COUNT, COUNT, NANOSECONDS, COUNT)
_KINDS: Mapping[str, tuple[Any, tuple[_Rule, ...]]] = {
    "R": (
        Request,
        (COUNT, _TEXT, _or_null(NANOSECONDS), _POSITIVE, *[_or_null(_INTEGER)] * 2, _PREFIX),
    ),
    "A": (Arrive, _EVENT),
    "D": (Admit, (*_EVENT, _COUNT_OR_NULL)),
    "P": (Preempt, (*_EVENT, *[COUNT] * 8)),
    "U": (Resume, (*_EVENT, _COUNT_OR_NULL)),
    "F": (Finish, (*_EVENT, COUNT, COUNT, _STATUS, _REASON, *[_or_null(NANOSECONDS)] * 4)),
    "S": (Step, (COUNT, NANOSECONDS, _POSITIVE, *[_COUNT_OR_NULL] * 6)),
    "C": (Clocks, (NANOSECONDS, NANOSECONDS)),
    "X": (Dropped, (COUNT,)),
    "E": (End, (NANOSECONDS,)),
}
# Fields that came later, in the order they stand in.
_MORE: Mapping[str, tuple[_Rule, ...]] = {
    "R": (_FEATURES,),
    "X": (COUNT, COUNT, _REASON),
}
_READ = {
    kind: (record, tuple(rule.holds for rule in (*rules, *_MORE.get(kind, ()))))
    for kind, (record, rules) in _KINDS.items()
}
