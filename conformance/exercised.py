"""Which options a case really exercised, and how many preemptions each option and pair has seen.

An option that is on but changes nothing proves nothing. So caching counts where a lookup hit,
priority where the victim was not the last running request, chunked prefill where a prompt was
split, the watermark where it alone refused an admission, and no full-sequence reserve where it
let someone in whose whole sequence would not have fit.
"""

import itertools
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from conformance.cases import FEATURES, Case

Cell = tuple[str, ...]


def exercised(case: Case, result: Mapping[str, Any]) -> tuple[str, ...]:
    """Features, in the order of `FEATURES`, that made a difference somewhere in the case."""
    engine, seen = case["config"]["engine"], result["seen"]
    holds = {
        "caching": seen["hit_tokens"] > 0,
        "async": engine["async_scheduling"],
        "priority": engine["scheduling_policy"] == "priority" and seen["not_the_last"] > 0,
        "chunked": engine["enable_chunked_prefill"] and seen["split_prompts"] > 0,
        "watermark": seen["refused_by_watermark"] > 0,
        "no-reserve": engine.get("scheduler_reserve_full_isl") is False
        and seen["overcommitted"] > 0,
    }
    return tuple(feature for feature in FEATURES if holds[feature])


def cells(features: tuple[str, ...]) -> list[Cell]:
    """Every feature alone, then every pair."""
    return [*((f,) for f in features), *itertools.combinations(features, 2)]


@dataclass
class Coverage:
    """Cases and preemptions per feature and per pair of these features."""

    features: tuple[str, ...]
    cases: Counter[Cell] = field(default_factory=Counter)
    preemptions: Counter[Cell] = field(default_factory=Counter)

    @property
    def cells(self) -> list[Cell]:
        """Every feature, then every pair."""
        return cells(self.features)

    def add(self, case: Case, result: Mapping[str, Any]) -> None:
        """Count one case for each feature and pair it exercised."""
        for cell in cells(exercised(case, result)):
            self.cases[cell] += 1
            self.preemptions[cell] += len(result["preemptions"])

    def short_of(self, least: int) -> list[Cell]:
        """Features and pairs with fewer preemptions than that."""
        return [cell for cell in self.cells if self.preemptions[cell] < least]

    def table(self) -> str:
        """For people: one line per feature and pair."""
        lines = [f"{'exercised':<24}{'cases':>8}{'preemptions':>14}"]
        for cell in self.cells:
            name = " + ".join(cell)
            lines.append(f"{name:<24}{self.cases[cell]:>8,}{self.preemptions[cell]:>14,}")
        return "\n".join(lines)
