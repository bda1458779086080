"""A workload as JSON Lines with hash ids, in two goes: what it holds first, then its lines.

Replayers make a prompt out of its hash ids, so there is one for every chunk of every prompt: those
the workload has, and where it says nothing about a chunk, an id that no other chunk has. Rows keep
the workload's order. What the form cannot hold raises `InputError` before anything is written.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl

from collectors.exports import Exporter
from replay.errors import InputError
from replay.strict import MAX_SAFE_INTEGER
from replay.workload_frame import Batches, Sums

MOST_HASH_IDS = 2**16  # of a request: its line is one that the importer takes, 2 MiB
_PART_HASH_IDS = 2**20
_PART_ROWS = 2**14


@dataclass
class Exported:
    """What a file holds and what it had no place for; counts are of requests."""

    block_tokens: int
    requests: int = 0
    prompt_tokens: int = 0
    output_tokens: int = 0
    workload_sha256: str = ""
    hash_ids: int = 0
    fresh_hash_ids: int = 0
    first_fresh: int = 0
    rounded: int = 0
    with_priority: int = 0
    with_tenant: int = 0


def look(batches: Batches, form: Exporter, place: str, block_tokens: int | None = None) -> Exported:
    """Go through the workload once; `rounded` counts arrivals that are no whole unit."""
    chunk = batches.head.prefix_block_tokens or block_tokens or form.block_tokens
    if block_tokens not in {None, chunk}:
        rule = f"must be the workload's own prefix_block_tokens, {chunk}"
        raise InputError(place, "--block-tokens", rule, str(block_tokens))
    found, sums = Exported(chunk), Sums(batches.head)
    for batch in sums.through(batches):
        entries = batch.select(n=_entries(chunk))["n"]
        if (entries > MOST_HASH_IDS).any():
            row = found.requests + int((entries > MOST_HASH_IDS).arg_max() or 0)
            rule = f"must be at most {MOST_HASH_IDS * chunk} ({MOST_HASH_IDS} hash ids)"
            raise InputError(f"{place}: request {row}", "prompt_tokens", rule, "more")
        named = batch["prefix_blocks"].list.len().fill_null(0)
        highest = batch["prefix_blocks"].list.max().max()
        found.first_fresh = max(found.first_fresh, 1 + (-1 if highest is None else int(highest)))  # type: ignore[arg-type]
        found.requests += batch.height
        found.hash_ids += int(entries.sum())
        found.fresh_hash_ids += int(entries.sum()) - int(named.sum())
        found.rounded += int((batch["arrival_us"] % form.unit_us != 0).sum())
        found.with_priority += int((batch["priority"] != 0).sum())
        found.with_tenant += int(batch["tenant"].is_not_null().sum())
    last_fresh = found.first_fresh + found.fresh_hash_ids - 1
    if found.fresh_hash_ids and last_fresh > MAX_SAFE_INTEGER:
        rule = f"must leave room for {found.fresh_hash_ids} new ids below 2^53"
        raise InputError(place, "prefix_blocks", rule, f"{found.first_fresh - 1}")
    found.prompt_tokens, found.output_tokens = sums.prompt_tokens, sums.output_tokens
    found.workload_sha256 = sums.sha256
    return found


def write(batches: Batches, form: Exporter, found: Exported, path: Path) -> None:
    """Write the lines of what `look` found."""
    fresh = found.first_fresh
    with path.open("wb") as file:
        for batch in batches:
            for part in _parts(batch, found.block_tokens):
                text, fresh = _lines(part, form, found.block_tokens, fresh)
                file.write(text)


def _entries(chunk: int) -> pl.Expr:
    return (pl.col("prompt_tokens") - 1) // chunk + 1


def _parts(batch: pl.DataFrame, chunk: int) -> Iterator[pl.DataFrame]:
    """The batch in parts whose hash ids fit into memory as text."""
    for rows in batch.iter_slices(_PART_ROWS):
        part = _entries(chunk).cum_sum() // _PART_HASH_IDS
        yield from rows.with_columns(part=part).partition_by("part", maintain_order=True)


def _lines(part: pl.DataFrame, form: Exporter, chunk: int, fresh: int) -> tuple[bytes, int]:
    missing = _entries(chunk) - pl.col("prefix_blocks").list.len().fill_null(0)
    last = missing.cum_sum() + fresh
    ids = pl.concat_list(
        pl.col("prefix_blocks").fill_null([]),
        pl.int_ranges(last - missing, last, dtype=pl.Int64),
    )
    line = pl.concat_str(
        pl.lit('{"timestamp": '),
        form.timestamp(),
        pl.lit(', "input_length": '),
        "prompt_tokens",
        pl.lit(', "output_length": '),
        "output_tokens",
        pl.lit(', "hash_ids": ['),
        ids.cast(pl.List(pl.String)).list.join(", "),
        pl.lit("]}\n"),
    )
    text, used = part.select(line.str.join(), missing.sum().alias("used")).row(0)
    return str(text).encode(), fresh + int(used)
