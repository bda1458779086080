"""Workloads as the input of other people's replayers, so that they can offer the same work.

A new format is one line in `FORMATS`: these differ in how a line says when a request arrives.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

__all__ = ["FORMATS", "Exporter"]


@dataclass(frozen=True)
class Exporter:
    """One line on what it writes, and what its lines are made of.

    `timestamp` is the text of `arrival_us` in the format's unit, which is a whole number of
    `unit_us`; `block_tokens` is the chunk of a hash id where the workload declares none.
    """

    description: str
    timestamp: "Callable[[], pl.Expr]"
    unit_us: int
    block_tokens: int


def _milliseconds() -> "pl.Expr":
    import polars as pl

    return (pl.col("arrival_us") // 1000).cast(pl.String)


def _seconds() -> "pl.Expr":
    import polars as pl

    digits = (pl.col("arrival_us") % 10**6).cast(pl.String).str.zfill(6)
    return pl.concat_str(pl.col("arrival_us") // 10**6, pl.lit("."), digits)


FORMATS = {
    "mooncake": Exporter("Mooncake trace, timestamps in milliseconds", _milliseconds, 1000, 512),
    "vllm-bench": Exporter(
        "trace for `vllm bench serve --dataset-name timed_trace` (seconds)", _seconds, 1, 16
    ),
}
