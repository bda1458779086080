"""A driven run's rows: what the client saw of each offered request, and what the engine did."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import polars as pl

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


def never_offered(rows_of_driver: "pl.DataFrame", rows_of_engine: "pl.DataFrame") -> int:
    """How many requests reached the engine that the driver did not offer."""
    return rows_of_engine.join(rows_of_driver, on="request_id", how="anti").height


def clock_behind_us(rows_of_driver: "pl.DataFrame", rows_of_engine: "pl.DataFrame") -> int:
    """By how much at least the engine's clock is behind the driver's: nothing arrives unsent."""
    import polars as pl

    both = rows_of_driver.select("request_id", sent="arrival_us").join(
        rows_of_engine.select("request_id", "engine_arrival_us"), on="request_id"
    )
    behind = both.select((pl.col("sent") - pl.col("engine_arrival_us")).max()).item()
    return max(behind or 0, 0)
