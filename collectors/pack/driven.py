"""A driven run's rows: what the client saw of each offered request, and what the engine did.

An id alone does not say that both are one: after a restart, or beside this drive, somebody may send
the same ids. A request is the driver's if it arrived while the driver's was on its way.
"""

from collections.abc import Collection
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

MARGIN_US = 1_000_000  # how far apart the clocks of a driver and an engine may be
_NEVER = (1, 0)
_NOT_SENT = frozenset({"unsent", "rejected"})
# Only the engine knows these.
OF_THE_ENGINE = (
    "engine",
    "engine_arrival_us",
    "cached_tokens",
    "queue_time_us",
    "requeue_time_us",
    "prefill_time_us",
    "decode_time_us",
    "num_preemptions",
)
# The client's, where it learnt them.
_OF_EITHER = ("generated_tokens", "finish_reason")


def merge_driven(rows_of_driver: "pl.DataFrame", rows_of_engine: "pl.DataFrame") -> "pl.DataFrame":
    """One row per offered request, in the driver's order and columns, joined by `request_id`.

    Both frames have the contract's columns. Arrival, TTFT, TPOT, e2e and status stay the client's,
    `OF_THE_ENGINE` come from the engine, and so does `prefix_blocks` if it recorded any, because
    the two count in other chunks. What reached no engine has nothing of it; what the driver never
    offered has no row. Of an id that came twice the first is taken. Merging twice changes nothing.
    """
    import polars as pl

    shared = rows_of_engine["prefix_blocks"].null_count() < rows_of_engine.height
    taken = (*OF_THE_ENGINE, *(("prefix_blocks",) if shared else ()))
    first = rows_of_engine.sort("arrival_us", maintain_order=True).unique(
        "request_id", keep="first", maintain_order=True
    )
    theirs = first.select(
        "request_id", *(pl.col(name).alias(f"engine:{name}") for name in (*taken, *_OF_EITHER))
    )
    joined = rows_of_driver.join(theirs, on="request_id", how="left", maintain_order="left")
    return joined.with_columns(
        *(pl.col(f"engine:{name}").alias(name) for name in taken),
        *(pl.coalesce(name, f"engine:{name}").alias(name) for name in _OF_EITHER),
    ).select(rows_of_driver.columns)


def spans(
    rows_of_driver: "pl.DataFrame", drain_end_us: int, not_connected: Collection[str]
) -> dict[str, tuple[int, int]]:
    """First and last moment at which the engine's clock can say that an offered request arrived.

    From the send to the end of the answer, or of the drive where there was none; wider by
    `MARGIN_US`. What was not sent, or found no server (`not_connected`), arrived nowhere.
    """
    rows = rows_of_driver.select("request_id", "status", "arrival_us", "e2e_us")
    found = {}
    for one, status, sent, took in rows.iter_rows():
        end = drain_end_us if took is None else sent + took
        away = status in _NOT_SENT or one in not_connected
        found[one] = _NEVER if away else (sent - MARGIN_US, end + MARGIN_US)
    return found


def clock_behind_us(rows_of_driver: "pl.DataFrame", rows_of_engine: "pl.DataFrame") -> int:
    """By how much at least the engine's clock is behind the driver's, 0 to `MARGIN_US`.

    Nothing arrives before it was sent or is answered after its answer came, so every pair of rows
    allows some shifts. Of those that the most pairs allow it is the smallest: rows of strangers
    that came under the same ids are outvoted.
    """
    import polars as pl

    times = ("arrival_us", "e2e_us")
    both = rows_of_driver.select("request_id", *times).join(
        rows_of_engine.select("request_id", "engine_arrival_us", took="e2e_us"), on="request_id"
    )
    least = pl.col("arrival_us") - pl.col("engine_arrival_us")
    allowed = both.select(
        least=least.clip(0), most=(least + pl.col("e2e_us") - pl.col("took")).fill_null(MARGIN_US)
    ).filter(pl.col("least") <= pl.col("most"), pl.col("least") <= MARGIN_US)
    edges = pl.concat(
        [
            allowed.select(at="least", more=pl.lit(1)),
            allowed.select(at=pl.col("most") + 1, more=pl.lit(-1)),
        ]
    )
    votes = edges.group_by("at").agg(pl.col("more").sum()).sort("at")
    if votes.is_empty():
        return 0
    best = votes["more"].cum_sum().arg_max() or 0
    return int(votes["at"][best])
