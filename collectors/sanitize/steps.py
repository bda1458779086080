"""The chain that makes a workload shareable: small steps in order, the allow-list last.

Each step takes a batch and gives one. A step sees only its batch; what spans batches (the order,
which tenants are merged, which prefix blocks were seen) it is given, or keeps.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from collectors.sanitize.options import Blur
from collectors.sanitize.pseudonyms import Pseudonyms, order_digits
from replay.strict import MAX_SAFE_INTEGER
from replay.workload import ENGINE_ARRIVAL, FIELDS
from replay.workload_frame import Batches

_OFF_LIST = "columns off the allow-list dropped"
ORDER = "order"  # place of a request in the order of arrival, while the chain runs


@dataclass(frozen=True)
class Step:
    """What is done to a batch; nothing but `columns` becomes other values."""

    name: str
    columns: tuple[str, ...]
    apply: Callable[[pl.DataFrame], pl.DataFrame]


@dataclass
class Report:
    """What each step did: rows that went by, rows of which it changed something."""

    rows: Counter[str] = field(default_factory=Counter)
    changed: Counter[str] = field(default_factory=Counter)

    def lines(self) -> Iterator[str]:
        """One line a step, in order.

        The readers refuse what no contract knows, so the allow-list has nothing to tell of.
        """
        for name, rows in self.rows.items():
            if name == _OFF_LIST and not self.changed[name]:
                continue
            yield f"{name}: {self.changed[name]:,} of {rows:,} rows"


@dataclass(frozen=True)
class Chain:
    """Steps in order; `report` counts what they did."""

    steps: Sequence[Step]
    report: Report = field(default_factory=Report)

    def __call__(self, batch: pl.DataFrame) -> pl.DataFrame:
        """The batch after every step."""
        for step in self.steps:
            after = step.apply(batch)
            self.report.rows[step.name] += batch.height
            self.report.changed[step.name] += _changed(batch, after, step.columns)
            batch = after
        return batch


def workload_chain(
    pseudonyms: Pseudonyms,
    blur: Blur,
    requests: int,
    merged: Mapping[str, str | None],
    start_us: int,
    engine_start_us: int | None = None,
) -> Chain:
    """Chain for the batches of a workload that has a column `order`.

    `merged`: what rare tenants become; `start_us`: the arrival that becomes 0; `engine_start_us`:
    the engine arrival that does, None where the workload has none.
    """
    digits = order_digits(requests)
    numbers = ("prompt_tokens", "output_tokens")
    zeros = {"arrival_us": start_us}
    if engine_start_us is not None:
        zeros[ENGINE_ARRIVAL] = engine_start_us
    times = tuple(zeros)
    steps = [Step("times become offsets", times, lambda b: _offset(b, zeros))]
    if blur.arrival_us > 1:
        down = [rounded_down(name, blur.arrival_us) for name in times]
        steps.append(Step("arrivals rounded", times, lambda b: b.with_columns(down)))
    if blur.tokens > 1:
        up = [bucketed(name, blur.tokens) for name in numbers]
        steps.append(Step("tokens bucketed", numbers, lambda b: b.with_columns(up)))
    if blur.no_tenants:
        steps.append(Step("tenants dropped", ("tenant",), _without_tenants))
    else:
        steps.append(Step("tenants pseudonymised", ("tenant",), lambda b: _tenants(b, pseudonyms)))
    if merged:
        # After they are pseudonyms: before, one could be called what the others become.
        called = pseudonyms.tenants(merged)
        rare = {called[name]: become for name, become in merged.items()}
        steps.append(Step("rare tenants merged", ("tenant",), lambda b: _merged(b, rare)))
    steps += [
        Step(
            "request ids pseudonymised",
            ("request_id",),
            lambda b: _request_ids(b, pseudonyms, digits),
        ),
        Step("prefix blocks renumbered", ("prefix_blocks",), Renumbered().step),
        Step(_OFF_LIST, (), lambda b: b.select(*FIELDS, *times[1:])),
    ]
    return Chain(steps)


def ordered(batches: Batches) -> Iterator[pl.DataFrame]:
    """Batches with the place of each request in the order of arrival."""
    done = 0
    for batch in batches:
        yield batch.with_columns(pl.int_range(done, done + batch.height).alias(ORDER))
        done += batch.height


def rounded_down(name: str, to_us: int) -> pl.Expr:
    """A column's times, rounded down to a multiple."""
    return pl.col(name) // to_us * to_us


def bucketed(name: str, tokens: int) -> pl.Expr:
    """A column's tokens, rounded up to a multiple: down, a request could have none left.

    At the top, where there is no room for up, they stay within what a contract holds.
    """
    up = (pl.col(name) + (tokens - 1)) // tokens * tokens
    return up.clip(upper_bound=MAX_SAFE_INTEGER)


class Renumbered:
    """Prefix blocks as dense numbers by first appearance: what they were called is gone."""

    def __init__(self) -> None:
        self.known: dict[int, int] = {}

    def __call__(self, blocks: pl.Series) -> pl.Series:
        """The lists with their own numbers."""
        if blocks.null_count() == blocks.len():
            return blocks
        known = self.known
        renumbered = [
            None if row is None else [known.setdefault(k, len(known)) for k in row]
            for row in blocks.to_list()
        ]
        return pl.Series(blocks.name, renumbered, dtype=pl.List(pl.Int64()))

    def step(self, batch: pl.DataFrame) -> pl.DataFrame:
        """A batch with its own numbers."""
        return batch.with_columns(self(batch["prefix_blocks"]))


def _offset(batch: pl.DataFrame, zeros: Mapping[str, int]) -> pl.DataFrame:
    return batch.with_columns(pl.col(name) - zero for name, zero in zeros.items())


def _without_tenants(batch: pl.DataFrame) -> pl.DataFrame:
    return batch.with_columns(tenant=pl.lit(None, pl.String))


def _merged(batch: pl.DataFrame, rare: Mapping[str, str | None]) -> pl.DataFrame:
    return batch.with_columns(pl.col("tenant").replace(list(rare), list(rare.values())))


def _tenants(batch: pl.DataFrame, pseudonyms: Pseudonyms) -> pl.DataFrame:
    renamed = pseudonyms.tenants(batch["tenant"].drop_nulls().unique().to_list())
    return batch.with_columns(
        pl.col("tenant").replace_strict(renamed, default=None, return_dtype=pl.String)
    )


def _request_ids(batch: pl.DataFrame, pseudonyms: Pseudonyms, digits: int) -> pl.DataFrame:
    told = pl.Series(pseudonyms.of("request", batch["request_id"].to_list()), dtype=pl.String)
    place = batch[ORDER].cast(pl.String).str.zfill(digits)
    return batch.with_columns((place + "-" + told).alias("request_id"))


def _changed(before: pl.DataFrame, after: pl.DataFrame, columns: Sequence[str]) -> int:
    """Rows of which one of `columns` is another value than it was, or anything is gone."""
    if set(before.columns) - {ORDER} - set(after.columns):
        return before.height
    other = [before[name].ne_missing(after[name]).alias(name) for name in columns]
    return int(before.select(pl.any_horizontal(pl.lit(value=False), *other)).to_series().sum())
