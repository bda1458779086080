"""Workloads made of workloads: a window, a stretched or shortened copy, several at once, repeats.

Each takes batches and gives batches; its provenance says what was done, after what was done before.
Only a slice keeps `engine_arrival_us`: what is moved, mixed or repeated arrives anew.
Token counts stay at least 1, prefix blocks within their prompt, ids unique: what cannot be so is an
`InputError`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any

import polars as pl

from replay.errors import InputError
from replay.strict import MAX_SAFE_INTEGER
from replay.workload import FIELDS
from replay.workload_frame import BATCH_ROWS, DTYPES, Batches, numbered, window_batches

_UNITS_US = (1_000_000, 100_000, 10_000, 1_000, 1)
_MOST_PARTS = 1_000_000  # of a factor's numerator and denominator: products have 128 bit


def sliced(
    batches: Batches, place: str, *, from_us: int = 0, until_us: int | None = None
) -> Batches:
    """Requests that arrive from `from_us` on and before `until_us`, the first of them at 0."""
    first = last = 0
    for batch in batches:
        times = batch["arrival_us"]
        first += int((times < from_us).sum())
        last += batch.height if until_us is None else int((times < until_us).sum())
    if first >= last:
        rule = f"must keep at least one request; the last arrives at {_last_us(batches)} us"
        raise InputError(place, "--from, --until", rule, "none")
    part = window_batches(batches, first, last - first, place)
    return _noted(part, batches, "slice", {"from_us": from_us, "until_us": until_us})


def scaled(
    batches: Batches, place: str, *, time: Fraction, prompt: Fraction, output: Fraction
) -> Batches:
    """Arrivals and lengths multiplied; times rounded down, lengths to the nearest, at least 1.

    A prompt that shrinks loses the prefix blocks beyond its end. One that grows shares no more: the
    block that its last tokens filled in part is no longer the one that others have.
    """
    for factor in (time, prompt, output):
        if factor <= 0 or max(factor.numerator, factor.denominator) > _MOST_PARTS:
            rule = "must be above 0, with at most 6 digits before or after the point"
            raise InputError(place, "factor", rule)
    chunk = batches.head.prefix_block_tokens

    def read() -> Iterator[pl.DataFrame]:
        for batch in batches:
            whole = pl.col("prompt_tokens") // (chunk or 1)  # blocks that its tokens fill
            moved = batch.select(FIELDS).with_columns(
                _times("arrival_us", time),
                _length("prompt_tokens", prompt),
                _length("output_tokens", output),
                pl.col("prefix_blocks").list.head(whole) if prompt > 1 else "prefix_blocks",
            )
            for name in ("arrival_us", "prompt_tokens", "output_tokens"):
                if (moved[name] > MAX_SAFE_INTEGER).any():
                    raise InputError(place, name, "must stay within 2^53 - 1 when multiplied")
            if chunk is not None:
                most = (pl.col("prompt_tokens") + (chunk - 1)) // chunk
                blocks = pl.col("prefix_blocks").list.head(most)
                moved = moved.with_columns(pl.when(blocks.list.len() > 0).then(blocks))
            yield moved.cast(pl.Schema(DTYPES))

    told = {"time": str(time), "prompt": str(prompt), "output": str(output)}
    return _noted(replace(batches, read=read), batches, "scale", told)


def merged(parts: Mapping[str, Batches], *, renumber: bool, same_prefixes: bool) -> Batches:
    """All requests by arrival, ties in the order of the parts, which are given by their names.

    Ids must differ, or are given anew. Prefix blocks of different parts are different text unless
    `same_prefixes` says that their numbers mean the same.
    """
    chunks = {one.head.prefix_block_tokens for one in parts.values()} - {None}
    if len(chunks) > 1:
        sizes = ", ".join(map(str, sorted(c for c in chunks if c is not None)))
        rule = "must be the same in all workloads that are merged"
        raise InputError(", ".join(parts), "prefix_block_tokens", rule, sizes)
    frames, above = [], 0
    for one in parts.values():
        frame = pl.concat([batch.select(FIELDS) for batch in one])
        if not same_prefixes:
            frame, above = _apart(frame, above)
        frames.append(frame)
    whole = pl.concat(frames).sort("arrival_us", maintain_order=True)
    if renumber:
        whole = _renumbered(whole, 0, "merge", whole.height)
    elif not whole["request_id"].is_unique().all():
        rule = "must differ between the workloads; --renumber gives new ones"
        raise InputError(", ".join(parts), "request_id", rule)
    first = next(iter(parts.values()))
    head = replace(first.head, prefix_block_tokens=next(iter(chunks), None), name=None)
    found = Batches(head, whole.height, lambda: whole.iter_slices(BATCH_ROWS))
    told = {
        "requests": [one.requests for one in parts.values()],
        "of": [dict(one.head.provenance or {}) for one in parts.values()],
        "renumbered": renumber,
        "same_prefixes": same_prefixes,
    }
    return _noted(found, None, "merge", told)


def tiled(
    batches: Batches, place: str, times: int, *, period_us: int | None, same_prefixes: bool
) -> Batches:
    """The workload `times` times, each copy `period_us` after the one before, with new ids.

    By default a copy begins a mean gap after the last arrival of the one before, rounded up to the
    unit that all arrivals are multiples of. Copies share no prefix unless `same_prefixes`.
    """
    last_us, blocks, units = 0, 0, list(_UNITS_US)
    for batch in batches:
        arrivals = batch["arrival_us"]
        units = [unit for unit in units if not (arrivals % unit != 0).any()]
        last_us, blocks = arrivals[-1], max(blocks, _top(batch))
    if period_us is None and last_us == 0 and times > 1:
        rule = "is needed: all requests arrive at once"
        raise InputError(place, "--period", rule)
    gap_us = -(-last_us // max(batches.requests - 1, 1))
    period = -(-(last_us + gap_us) // units[0]) * units[0] if period_us is None else period_us
    if period <= last_us and times > 1:
        rule = f"must be above the last arrival, {last_us} us: copies would overlap"
        raise InputError(place, "--period", rule, str(period))
    step = 0 if same_prefixes else blocks
    if (
        last_us + period * (times - 1) > MAX_SAFE_INTEGER
        or blocks + step * times > MAX_SAFE_INTEGER
    ):
        raise InputError(place, "--times", "must keep every number within 2^53 - 1", str(times))
    total = batches.requests * times

    def read() -> Iterator[pl.DataFrame]:
        done = 0
        for copy in range(times):
            for batch in batches:
                moved = batch.select(FIELDS).with_columns(pl.col("arrival_us") + period * copy)
                if step:
                    moved = moved.with_columns(_plus(step * copy))
                yield _renumbered(moved, done, "tile", total)
                done += batch.height

    told = {"times": times, "period_us": period, "same_prefixes": same_prefixes}
    return _noted(Batches(batches.head, total, read), batches, "tile", told)


def _noted(found: Batches, before: Batches | None, tool: str, told: Mapping[str, Any]) -> Batches:
    provenance = dict((before.head.provenance if before else None) or {})
    # They counted the rows of another workload, whose attempts do not go with this one.
    for counted in ("attempts", "dropped", "rows_read"):
        provenance.pop(counted, None)
    if window := (found.head.provenance or {}).get("window"):
        told = {**told, "window": window}
    shaped = provenance.pop("shaped", [])
    shaped = [*(shaped if isinstance(shaped, list) else [shaped]), {"tool": tool, **told}]
    return replace(found, head=replace(found.head, provenance=provenance | {"shaped": shaped}))


def _last_us(batches: Batches) -> int:
    return max(int(batch["arrival_us"][-1]) for batch in batches)


def _times(name: str, factor: Fraction) -> pl.Expr:
    return pl.col(name).cast(pl.Int128) * factor.numerator // factor.denominator


def _length(name: str, factor: Fraction) -> pl.Expr:
    twice = pl.col(name).cast(pl.Int128) * (2 * factor.numerator) + factor.denominator
    return (twice // (2 * factor.denominator)).clip(lower_bound=1)


def _plus(offset: int) -> pl.Expr:
    return pl.col("prefix_blocks").list.eval(pl.element() + offset)


def _top(frame: pl.DataFrame) -> int:
    """One more than the greatest prefix block; 0 without any."""
    greatest = frame["prefix_blocks"].list.max().max()
    return 0 if greatest is None else int(greatest) + 1  # type: ignore[arg-type]


def _apart(frame: pl.DataFrame, above: int) -> tuple[pl.DataFrame, int]:
    """The frame with prefix blocks that nothing before it has, and the first number after them."""
    top = _top(frame)
    if above + top > MAX_SAFE_INTEGER:
        raise InputError("merge", "prefix_blocks", "must stay within 2^53 - 1 when kept apart")
    return (frame.with_columns(_plus(above)) if above and top else frame), above + top


def _renumbered(frame: pl.DataFrame, start: int, name: str, total: int) -> pl.DataFrame:
    return frame.with_columns(request_id=numbered(start, frame.height, total, name))
