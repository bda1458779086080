"""Sentences that collectors write into manifests, gathered where they are defined."""

from collections.abc import Iterator
from functools import cache
from importlib import import_module
from types import ModuleType

from collectors import results
from collectors.drive.command import CLOCK as DRIVER_CLOCK
from collectors.features import FEATURES
from collectors.pack.facts import ARRIVAL_CLOCK, ENGINE_CLOCK
from collectors.prometheus.backfill import CLOCK as PROMETHEUS_CLOCK
from collectors.scrape.observe import CLOCK as SCRAPE_CLOCK

NOT_MODELLED = frozenset(FEATURES.values())


@cache
def clocks() -> frozenset[str]:
    """Words for every clock a time of a run can come from."""
    ours = (ARRIVAL_CLOCK, ENGINE_CLOCK, DRIVER_CLOCK, PROMETHEUS_CLOCK, SCRAPE_CLOCK)
    return frozenset((*ours, *(module.CLOCK for module in _result_modules())))


@cache
def definitions() -> frozenset[str]:
    """What tools whose results are imported mean by their latencies."""
    told = (module.DEFINITIONS for module in _result_modules())
    return frozenset(text for one in told for text in (one.ttft, one.tpot, one.itl, one.e2e))


def _result_modules() -> Iterator[ModuleType]:
    for one in results.FORMATS.values():
        yield import_module(f"collectors.results.{one.module}")
