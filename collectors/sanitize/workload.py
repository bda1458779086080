"""A workload file and its attempts, made shareable."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import polars as pl

from collectors.sanitize.options import Blur
from collectors.sanitize.provenance import OTHER, REASONS, dropped_keys, shareable_provenance
from collectors.sanitize.pseudonyms import Pseudonyms
from collectors.sanitize.steps import Report, bucketed, ordered, rounded_down, workload_chain
from collectors.sanitize.tenants import merged_tenants
from collectors.traces.result import (
    ATTEMPTS,
    ATTEMPTS_SCHEMA,
    attempts_beside,
    count_by_reason,
)
from replay.errors import InputError
from replay.parquet import read_frame
from replay.strict import MAX_SAFE_INTEGER
from replay.workload import ENGINE_ARRIVAL, MAX_REQUESTS
from replay.workload_frame import Batches, Head

_ATTEMPT_TYPES = {name: "string" if name == "reason" else "integer" for name in ATTEMPTS}


def shareable_workload(
    batches: Batches, attempts: pl.DataFrame, pseudonyms: Pseudonyms, blur: Blur
) -> tuple[Batches, pl.DataFrame, Report]:
    """The workload to share, its attempts, and a report that is full once the batches were read.

    The earliest of both is time 0; of engine arrivals their own earliest. Reading the batches twice
    counts twice.
    """
    first = next(iter(batches))
    start_us: int = min([first["arrival_us"][0], *attempts["arrival_us"].to_list()])
    engine_start_us = None
    if ENGINE_ARRIVAL in first:  # from another zero, and in another order
        engine_start_us = min(b.select(pl.col(ENGINE_ARRIVAL).min()).item() for b in batches)
    merged = merged_tenants([_requests_of_tenants(batches, blur)], blur)
    chain = workload_chain(pseudonyms, blur, batches.requests, merged, start_us, engine_start_us)

    def read() -> Iterator[pl.DataFrame]:
        return map(chain, ordered(batches))

    provenance = shareable_provenance(batches.head.provenance, blur)
    head = Head(batches.head.prefix_block_tokens, provenance=provenance)
    told = Batches(head, batches.requests, read)
    return told, shareable_attempts(attempts, blur, start_us), chain.report


def head_lines(head: Head) -> Iterator[str]:
    """What of a workload's own words does not come through, for a report."""
    if head.name is not None:
        yield "name: dropped"
    keys = dropped_keys(head.provenance)
    yield f"provenance: {keys} key{'s' * (keys != 1)} dropped or changed"


def shareable_attempts(attempts: pl.DataFrame, blur: Blur, start_us: int) -> pl.DataFrame:
    """Attempts with offsets for times and no reason but the known ones."""
    reason = pl.col("reason")
    offset = attempts.with_columns(pl.col("arrival_us") - start_us)
    return offset.with_columns(
        rounded_down("arrival_us", blur.arrival_us),
        *(bucketed(name, blur.tokens) for name in ("prompt_tokens", "output_tokens")),
        reason=pl.when(reason.is_in(REASONS)).then(reason).otherwise(pl.lit(OTHER)),
    )


def read_attempts(workload: Path, head: Head, max_rows: int = MAX_REQUESTS) -> pl.DataFrame:
    """Attempts beside a workload, every rule checked; none where there is no such file.

    They must be as many by reason as the provenance says, else they are another workload's; a file
    without one, as every `.jsonl` is, is believed.
    """
    path = attempts_beside(workload)
    if not path.exists() and not path.is_symlink():
        return ATTEMPTS.to_frame()
    frame = _checked_attempts(path, max_rows)
    told = head.provenance
    if told is not None and count_by_reason(frame) != (told.get("attempts") or {}):
        rule = (
            "must hold as many attempts by reason as the workload's provenance says; they may be"
            " another workload's: remove or move the file"
        )
        raise InputError(str(path), "", rule, f"{frame.height} in all")
    return frame


def _checked_attempts(path: Path, max_rows: int) -> pl.DataFrame:
    raw, _ = read_frame(path, max_rows, ATTEMPTS_SCHEMA, _ATTEMPT_TYPES)
    frame = raw.select(ATTEMPTS.names()).cast(ATTEMPTS, strict=False)
    for name in (name for name, kind in _ATTEMPT_TYPES.items() if kind == "integer"):
        whole = frame[name].is_between(0, MAX_SAFE_INTEGER)
        known = raw[name].is_not_null() | (name in ("source_row", "arrival_us"))
        bad = known & ~whole.fill_null(value=False)
        if bad.any():
            rule = f"must be an integer from 0 to {MAX_SAFE_INTEGER}"
            raise InputError(f"{path}: row {int(bad.arg_true()[0])}", name, rule)
    return frame


def _requests_of_tenants(batches: Batches, blur: Blur) -> Counter[str]:
    counted: Counter[str] = Counter()
    if blur.merges_tenants:
        for batch in batches:
            counted.update(dict(batch["tenant"].drop_nulls().value_counts().iter_rows()))
    return counted
