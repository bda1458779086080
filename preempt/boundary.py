"""Replays at other rates for a gate's boundary: the one place that knows gates and replays both."""

from collections.abc import Callable
from fractions import Fraction
from typing import TYPE_CHECKING

from collectors.drive.schedule import scheduled
from replay.config import Config
from replay.run import request_outcomes
from replay.workload import Workload

if TYPE_CHECKING:
    import polars as pl

    from analysis.gate.boundary.scan import Replayer


def replayer(tell: Callable[[str], None] = lambda _: None) -> "Replayer":
    """Replays a workload whose requests arrive so many times as fast, each due time rounded down.

    That is the load that `preempt collect drive --speed` offers. `tell` hears what is being done.
    """
    done = 0

    def replayed(workload: Workload, config: Config, arrival: Fraction) -> "pl.DataFrame":
        nonlocal done
        done += 1
        tell(f"boundary: replay {done} of {len(workload):,} requests")
        return request_outcomes(scheduled(workload, arrival, None), config, "boundary")

    return replayed
