"""The workload contract: what was asked of an engine, without any content.

`Request` and `Workload` are the facts a replay starts from and a collector ends with (SPEC §2).
Malformed records raise `InputError` with the place the reader gave.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from replay.canonical import canonical_json, canonical_line, sha256
from replay.errors import InputError, describe
from replay.strict import check_schema, identifier, integer, only_keys

if TYPE_CHECKING:
    import polars as pl

SCHEMA = "preemption-workload/1"
REQUIRED = ("request_id", "arrival_us", "prompt_tokens", "output_tokens")
OPTIONAL = ("priority", "tenant", "prefix_blocks")
FIELDS = REQUIRED + OPTIONAL
# In all requests of a workload or in none, and then in no file, text form or hash of it.
ENGINE_ARRIVAL = "engine_arrival_us"
KNOWN = (*FIELDS, ENGINE_ARRIVAL)
MAX_REQUESTS = 10_000_000
MAX_DEPTH = 32
_LOWEST_PRIORITY = -(2**53 - 1)


@dataclass(frozen=True, slots=True)
class Request:
    """One request: when it arrives and how many tokens it brings and will generate.

    `arrival_us` counts from the workload's start; a lower `priority` is more important;
    `prefix_blocks` names the prompt's chunks of `prefix_block_tokens` tokens, equal ids meaning
    equal text. `engine_arrival_us` is what a priority scheduler compares between equal priorities,
    from any zero; where it is None, that is the workload's order.
    """

    request_id: str
    arrival_us: int
    prompt_tokens: int
    output_tokens: int
    priority: int = 0
    tenant: str | None = None
    prefix_blocks: tuple[int, ...] | None = None
    engine_arrival_us: int | None = None


Check = Callable[[Request, str], None]


@dataclass(frozen=True)
class Workload:
    """Requests in order: by `arrival_us`, ties as they were given (file order is data).

    `name` and `provenance` say where it came from and are in no hash.
    """

    requests: tuple[Request, ...]
    prefix_block_tokens: int | None = None
    name: str | None = None
    provenance: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        ordered = tuple(sorted(self.requests, key=lambda r: r.arrival_us))
        object.__setattr__(self, "requests", ordered)

    def __len__(self) -> int:
        return len(self.requests)

    @property
    def fields(self) -> tuple[str, ...]:
        """What its requests have: the contract's fields, and their engine arrival where given."""
        given = bool(self.requests) and self.requests[0].engine_arrival_us is not None
        return KNOWN if given else FIELDS

    def column(self, name: str) -> "pl.Series":
        """One field of every request, in order."""
        import polars as pl

        from replay.workload_frame import DTYPES

        return pl.Series(name, [getattr(r, name) for r in self.requests], DTYPES[name])

    def header(self) -> dict[str, Any]:
        """First line of the text form."""
        return {"prefix_block_tokens": self.prefix_block_tokens, "schema": SCHEMA}

    def text_lines(self) -> Iterator[bytes]:
        """The text form whose bytes are hashed: header, then each request with every field."""
        yield canonical_line(self.header())
        fields = self.fields
        for request in self.requests:
            # Not dataclasses.asdict: it copies deeply, which takes most of the time of the hash.
            yield canonical_line({name: getattr(request, name) for name in fields})

    @cached_property
    def sha256(self) -> str:
        """`workload_sha256`, the same for equal requests in every file format."""
        return sha256(b"".join(self.text_lines()))


def parse_header(record: Mapping[str, Any], place: str) -> int | None:
    """Check a header and give its `prefix_block_tokens`."""
    check_schema(record.get("schema"), SCHEMA, place)
    chunk = record.get("prefix_block_tokens")
    return None if chunk is None else integer(chunk, place, "prefix_block_tokens", 1)


def parse_request(record: Any, place: str, prefix_block_tokens: int | None) -> Request:
    """Check one record against every rule of its fields."""
    if not isinstance(record, dict):
        raise InputError(place, "", "must be an object", describe(record))
    only_keys(record, KNOWN, place, quote=False)
    for field in REQUIRED:
        if field not in record:
            raise InputError(place, field, "is required", "nothing")
    prompt = integer(record["prompt_tokens"], place, "prompt_tokens", 1)
    priority, tenant = record.get("priority"), record.get("tenant")
    engine_arrival = record.get(ENGINE_ARRIVAL)
    return Request(
        request_id=identifier(record["request_id"], place, "request_id"),
        arrival_us=integer(record["arrival_us"], place, "arrival_us"),
        prompt_tokens=prompt,
        output_tokens=integer(record["output_tokens"], place, "output_tokens", 1),
        priority=0 if priority is None else integer(priority, place, "priority", _LOWEST_PRIORITY),
        tenant=None if tenant is None else identifier(tenant, place, "tenant"),
        prefix_blocks=_chunks(record.get("prefix_blocks"), place, prompt, prefix_block_tokens),
        engine_arrival_us=(
            None if engine_arrival is None else integer(engine_arrival, place, ENGINE_ARRIVAL)
        ),
    )


def check_engine_arrival(request: Request, place: str, *, given: bool) -> None:
    """Refuse a request that has an engine arrival where the first has none, or the reverse."""
    if given != (request.engine_arrival_us is not None):
        rule = "must be in all requests of a workload or in none"
        raise InputError(place, ENGINE_ARRIVAL, rule, "in some")


def parse_requests(
    records: Iterable[tuple[str, Any]],
    prefix_block_tokens: int | None,
    place: str,
    limit: int,
    check: Check = lambda _, __: None,
) -> tuple[Request, ...]:
    """Check (place, record) pairs one by one; ids unique, at least one and at most `limit`.

    `check` is what else the caller asks of each request; it raises `InputError` with the place.
    """
    requests: list[Request] = []
    seen: dict[str, str] = {}
    for where, record in records:
        if len(requests) == limit:
            rule = f"must hold at most {limit} requests (limits.max_requests)"
            raise InputError(place, "", rule, f"at least {limit + 1}")
        request = parse_request(record, where, prefix_block_tokens)
        given = (requests[0] if requests else request).engine_arrival_us is not None
        check_engine_arrival(request, where, given=given)
        check(request, where)
        if (first := seen.setdefault(request.request_id, where)) is not where:
            rule = f"must be unique, already at {first}"
            raise InputError(where, "request_id", rule, describe(request.request_id))
        requests.append(request)
    if not requests:
        raise InputError(place, "", "must hold at least one request", "none")
    return tuple(requests)


def parse_origin(
    record: Mapping[str, Any], place: str
) -> tuple[str | None, Mapping[str, Any] | None]:
    """Check `name` and `provenance`, which are in no hash but have to be writable again."""
    name, provenance = record.get("name"), record.get("provenance")
    if name is not None:
        identifier(name, place, "name")
    if provenance is None:
        return name, None
    if not isinstance(provenance, dict):
        raise InputError(place, "provenance", "must be an object", describe(provenance))
    if _depth(provenance) > MAX_DEPTH:
        raise InputError(place, "provenance", f"must nest at most {MAX_DEPTH} deep", "more")
    try:
        canonical_json(provenance)
    except ValueError as exc:
        rule = "must hold only safe integers, finite numbers and text without surrogates"
        raise InputError(place, "provenance", rule) from exc
    return name, provenance


def window(workload: Workload, start: int, count: int | None, place: str) -> Workload:
    """Requests `start` to `start + count` in order, the first arriving at 0.

    The provenance says which window it is; one that leaves the workload is an `InputError`.
    """
    stop = check_window(len(workload), start, count, place)
    requests = workload.requests[start:stop]
    zero = requests[0].arrival_us
    return replace(
        workload,
        requests=tuple(replace(r, arrival_us=r.arrival_us - zero) for r in requests),
        provenance=dict(workload.provenance or {})
        | {"window": {"start": start, "count": stop - start}},
    )


def check_window(requests: int, start: int, count: int | None, place: str) -> int:
    """End of the window `start` to `start + count` of so many requests."""
    stop = requests if count is None else start + count
    if not 0 <= start < stop <= requests:
        rule = f"must be a part of {requests} requests"
        raise InputError(place, "window", rule, f"{start}:{stop}")
    return stop


def _depth(value: object) -> int:
    """Levels of nesting, counted level by level: recursion would be what it guards against."""
    level: list[object] = [value]
    depth = 0
    while level:
        depth += 1
        tables = [list(v.values()) for v in level if isinstance(v, dict)]
        lists = [v for v in level if isinstance(v, list)]
        level = [value for values in (*tables, *lists) for value in values]
    return depth


def _chunks(
    value: Any, place: str, prompt_tokens: int, chunk: int | None
) -> tuple[int, ...] | None:
    if value is None or value == []:
        return None
    if not isinstance(value, list):
        raise InputError(place, "prefix_blocks", "must be a list of integers", describe(value))
    if chunk is None:
        rule = "needs prefix_block_tokens in the header"
        raise InputError(place, "prefix_blocks", rule, describe(value))
    if len(value) > (most := -(-prompt_tokens // chunk)):
        rule = f"must have at most {most} entries (prompt_tokens / {chunk}, rounded up)"
        raise InputError(place, "prefix_blocks", rule, describe(value))
    return tuple(integer(v, place, f"prefix_blocks[{k}]") for k, v in enumerate(value))
