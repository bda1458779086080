"""A workload as batches of columns, for what is too large to be one object per request.

The same rules, order, files and hash as `replay.workload`. A batch is a polars frame with the
contract's fields as columns, and `engine_arrival_us` where the workload has it; batches come in the
workload's order. What breaks a rule is found by columns and told by the row's own rule, so that
both readers give the same error.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

import polars as pl

from replay.canonical import canonical_json, canonical_line
from replay.errors import InputError
from replay.parquet import read_batches, write_batches
from replay.strict import MAX_ID_CODE_POINTS, MAX_SAFE_INTEGER, parse_json
from replay.workload import (
    ENGINE_ARRIVAL,
    FIELDS,
    KNOWN,
    MAX_REQUESTS,
    OPTIONAL,
    SCHEMA,
    Workload,
    check_engine_arrival,
    check_window,
    parse_header,
    parse_origin,
    parse_request,
    parse_requests,
)
from replay.workload_file import COLUMNS, MAY_LACK, read_workload, unknown_suffix

BATCH_ROWS = 2**18
_MIN_ID_DIGITS = 8
_TEXT_ROWS = 2**14  # a line can hold hundreds of prefix blocks
_CONTROL = "[\u0000-\u001f\u007f-\u009f\u2028\u2029]"
_DTYPES: Mapping[str, pl.DataType] = {
    name: {
        "integer": pl.Int64(),
        "string": pl.String(),
        "list of integers": pl.List(pl.Int64()),
    }[kind]
    for name, kind in COLUMNS.items()
}
DTYPES: Mapping[str, pl.DataType] = {name: _DTYPES[name] for name in FIELDS}  # of every workload


@dataclass(frozen=True)
class Head:
    """What a workload says of all its requests; `name` and `provenance` are in no hash."""

    prefix_block_tokens: int | None = None
    name: str | None = None
    provenance: Mapping[str, Any] | None = None


@dataclass(frozen=True)
class Batches:
    """A workload of `requests` requests, read as often as somebody goes through it."""

    head: Head
    requests: int
    read: Callable[[], Iterator[pl.DataFrame]] = field(repr=False)

    def __iter__(self) -> Iterator[pl.DataFrame]:
        return self.read()


@dataclass
class Sums:
    """What went by: requests, their tokens, and the hash of the workload they are."""

    head: Head
    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    _digest: Any = field(default_factory=hashlib.sha256, repr=False)

    def __post_init__(self) -> None:
        self._digest.update(canonical_line(_first_line(self.head)))

    def through(self, batches: Iterable[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """The same batches, counted."""
        for batch in batches:
            self.requests += batch.height
            self.prompt_tokens += int(batch["prompt_tokens"].cast(pl.Int128).sum())
            self.output_tokens += int(batch["output_tokens"].cast(pl.Int128).sum())
            for text in text_form(batch):
                self._digest.update(text)
            yield batch

    @property
    def sha256(self) -> str:
        """`workload_sha256` of what went by."""
        return str(self._digest.hexdigest())


def text_form(batch: pl.DataFrame) -> Iterator[bytes]:
    """The hashed lines of a batch's requests, some thousand at a time."""
    numbers = pl.col("prefix_blocks").cast(pl.List(pl.String)).list.join(",")
    chunks = pl.concat_str(pl.lit("["), numbers, pl.lit("]")).fill_null("null")
    given = ENGINE_ARRIVAL in batch.columns
    engine_arrival = (pl.lit(f',"{ENGINE_ARRIVAL}":'), pl.col(ENGINE_ARRIVAL)) if given else ()
    line = pl.concat_str(
        pl.lit('{"arrival_us":'),
        "arrival_us",
        *engine_arrival,
        pl.lit(',"output_tokens":'),
        "output_tokens",
        pl.lit(',"prefix_blocks":'),
        chunks,
        pl.lit(',"priority":'),
        "priority",
        pl.lit(',"prompt_tokens":'),
        "prompt_tokens",
        pl.lit(',"request_id":'),
        _quoted("request_id"),
        pl.lit(',"tenant":'),
        _quoted("tenant").fill_null("null"),
        pl.lit("}\n"),
    )
    for part in batch.iter_slices(_TEXT_ROWS):
        yield part.select(line.str.join()).item().encode()


def frame_of(workload: Workload) -> pl.DataFrame:
    """A workload's requests as one batch."""
    columns = {name: [getattr(r, name) for r in workload.requests] for name in workload.fields}
    return pl.DataFrame(columns, schema={name: _DTYPES[name] for name in columns})


def batches_of(workload: Workload) -> Batches:
    """A workload of objects as batches."""
    head = Head(workload.prefix_block_tokens, workload.name, workload.provenance)
    frame = frame_of(workload)
    return Batches(head, frame.height, lambda: frame.iter_slices(BATCH_ROWS))


def window_batches(batches: Batches, start: int, count: int | None, place: str) -> Batches:
    """Requests `start` to `start + count` in order, as `replay.workload.window` has them."""
    stop = check_window(batches.requests, start, count, place)
    told = dict(batches.head.provenance or {}) | {"window": {"start": start, "count": stop - start}}

    def part() -> Iterator[pl.DataFrame]:
        done, zero = 0, None
        for batch in batches:
            cut = batch.slice(max(start - done, 0), min(stop - max(start, done), batch.height))
            cut = cut if done < stop and done + batch.height > start else cut.clear()
            done += batch.height
            if cut.height:
                zero = cut["arrival_us"][0] if zero is None else zero
                yield cut.with_columns(pl.col("arrival_us") - zero)

    return Batches(replace(batches.head, provenance=told), stop - start, part)


def workload_of(batches: Batches, place: str) -> Workload:
    """Batches as a workload of objects, every rule checked."""
    head, limit = batches.head, max(batches.requests, 1)
    rows = (row for batch in batches for row in batch.iter_rows(named=True))
    records = ((f"{place}: row {k}", row) for k, row in enumerate(rows))
    requests = parse_requests(records, head.prefix_block_tokens, place, limit)
    return Workload(requests, head.prefix_block_tokens, head.name, head.provenance)


def read_workload_batches(path: Path, max_requests: int = MAX_REQUESTS) -> Batches:
    """A workload file as batches; Parquet in order is never held whole, anything else is.

    Its rows are checked as they are gone through, each time.
    """
    if path.suffix != ".parquet":
        return batches_of(read_workload(path, max_requests))
    place = str(path)
    with read_batches(path, max_requests, SCHEMA, COLUMNS, MAY_LACK) as (metadata, raw):
        told = {
            key: parse_json(metadata[key], f"{place}: metadata {key}")
            for key in ("prefix_block_tokens", "provenance")
            if key in metadata
        }
        chunk = parse_header({"schema": metadata.get("schema")} | told, place)
        head = Head(chunk, *parse_origin(metadata | told, place))
        rows, ordered, last = 0, True, ("", -1)
        for batch in raw:
            ordered = ordered and batch.height > 0 and _in_order(batch, last)
            if not ordered:
                break
            rows, last = rows + batch.height, (batch["request_id"][-1], batch["arrival_us"][-1])
    if not ordered:
        return batches_of(read_workload(path, max_requests))

    def again() -> Iterator[pl.DataFrame]:
        with read_batches(path, max_requests, SCHEMA, COLUMNS, MAY_LACK) as (_, found):
            yield from _checked(found, place, chunk)

    return Batches(head, rows, again)


def write_workload_batches(batches: Batches, path: Path, suffix: str) -> Sums:
    """Write to `path` in the form that `suffix` names, in one go through the batches."""
    sums = Sums(batches.head)
    went_by = sums.through(batches)
    if suffix == ".parquet":
        first = list(islice(went_by, 1))  # shows which columns there are
        schema = _DTYPES if any(ENGINE_ARRIVAL in batch for batch in first) else DTYPES
        write_batches(chain(first, went_by), schema, path, _metadata(batches.head))
        return sums
    texts = (text for batch in went_by for text in text_form(batch))
    with path.open("wb") as file:
        match suffix:
            case ".jsonl":
                file.write(canonical_line(_first_line(batches.head)))
                file.writelines(texts)
            case ".json":
                file.write(canonical_json(_object_head(batches.head))[:-1] + b',"requests":[\n  ')
                body = (text.removesuffix(b"\n").replace(b"\n", b",\n  ") for text in texts)
                file.write(next(body, b""))
                file.writelines(b",\n  " + text for text in body)
                file.write(b"\n]}\n")
            case _:
                raise unknown_suffix(path.with_suffix(suffix))
    return sums


def numbered(start: int, rows: int, total: int, name: str) -> pl.Expr:
    """Ids of `rows` requests from place `start` on of `total`: `00000123-name`, in their order."""
    digits = max(_MIN_ID_DIGITS, len(str(max(total - 1, 0))))
    number = pl.int_range(start, start + rows).cast(pl.String).str.zfill(digits)
    return pl.concat_str(number, pl.lit(f"-{name}"))


def _first_line(head: Head) -> dict[str, Any]:
    return {"prefix_block_tokens": head.prefix_block_tokens, "schema": SCHEMA}


def _object_head(head: Head) -> dict[str, Any]:
    told = {"name": head.name, "provenance": head.provenance and dict(head.provenance)}
    return _first_line(head) | {k: v for k, v in told.items() if v is not None}


def _metadata(head: Head) -> dict[str, str]:
    metadata = {"schema": SCHEMA, "prefix_block_tokens": json.dumps(head.prefix_block_tokens)}
    if head.name is not None:
        metadata["name"] = head.name
    if head.provenance is not None:
        metadata["provenance"] = canonical_json(dict(head.provenance)).decode()
    return metadata


def _quoted(name: str) -> pl.Expr:
    """A JSON string; identifiers hold no control character, so only two are escaped."""
    escaped = pl.col(name).str.replace_all(r'["\\]', r"\$0")
    return pl.concat_str(pl.lit('"'), escaped, pl.lit('"'))


def _in_order(batch: pl.DataFrame, last: tuple[str, int]) -> bool:
    """Whether ids rise, as UTF-8 bytes, so that no two are equal, and arrivals do not fall."""
    ids, times = batch["request_id"], batch["arrival_us"]
    before = ids.shift(1, fill_value=last[0])
    return (
        not ids.null_count()
        and not times.null_count()
        and bool((ids > before).all())
        and bool(times[0] >= last[1])
        and times.is_sorted()
    )


def _checked(
    batches: Iterable[pl.DataFrame], place: str, chunk: int | None
) -> Iterator[pl.DataFrame]:
    """Batches in the contract's columns, each row held to every rule."""
    done, given = 0, False
    for raw in batches:
        if raw.height == 0:
            raise InputError(place, "", "must hold at least one request", "none")
        absent = [pl.lit(None, DTYPES[name]).alias(name) for name in OPTIONAL if name not in raw]
        full = raw.with_columns(absent).select(KNOWN if ENGINE_ARRIVAL in raw else FIELDS)
        if not done:
            given = ENGINE_ARRIVAL in raw and raw[ENGINE_ARRIVAL][0] is not None
        frame = _fitting(full, chunk, engine_arrival=given)
        if frame is None:
            for k, row in enumerate(full.iter_rows(named=True), done):
                request = parse_request(row, where := f"{place}: row {k}", chunk)
                check_engine_arrival(request, where, given=given)
            raise AssertionError(place)  # one of them broke a rule
        done += raw.height
        yield frame


def _fitting(
    frame: pl.DataFrame, chunk: int | None, *, engine_arrival: bool
) -> pl.DataFrame | None:
    """The frame in the contract's types; None if a value breaks its field's rule."""
    safe = pl.lit(MAX_SAFE_INTEGER, pl.Int64)
    try:
        typed = frame.cast(pl.Schema({name: _DTYPES[name] for name in frame.columns}))
    except pl.exceptions.PolarsError:  # an integer too large for 64 bit
        return None
    blocks = pl.col("prefix_blocks")
    typed = typed.with_columns(
        pl.col("priority").fill_null(0),
        pl.when(blocks.list.len() > 0).then(blocks),
    )
    text = (
        pl.col(name).str.len_chars().is_between(1, MAX_ID_CODE_POINTS)
        & ~pl.col(name).str.contains(_CONTROL)
        for name in ("request_id", "tenant")
    )
    request_id, tenant = text
    most = 0 if chunk is None else (pl.col("prompt_tokens") + (chunk - 1)) // chunk
    fits = (
        request_id.fill_null(value=False)
        & tenant.fill_null(value=True)
        & pl.col("arrival_us").is_between(0, safe).fill_null(value=False)
        & pl.col("prompt_tokens").is_between(1, safe).fill_null(value=False)
        & pl.col("output_tokens").is_between(1, safe).fill_null(value=False)
        & pl.col("priority").is_between(-safe, safe)
        & (blocks.list.len() <= most).fill_null(value=True)
        & blocks.list.eval(pl.element().is_between(0, safe).fill_null(value=False))
        .list.all()
        .fill_null(value=True)
    )
    if ENGINE_ARRIVAL in typed and not engine_arrival:
        fits &= pl.col(ENGINE_ARRIVAL).is_null()
    elif engine_arrival:
        fits &= pl.col(ENGINE_ARRIVAL).is_between(0, safe).fill_null(value=False)
    if not typed.select(fits.all()).item():
        return None
    return typed if engine_arrival else typed.select(FIELDS)
