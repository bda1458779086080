"""The service's own log: one line when something begins, changes or ends. Told, never kept."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from collectors.durations import about_bytes, duration_text
from collectors.scrape.loop import Collector
from collectors.service.discover import Instance
from collectors.service.housekeeping import Tidied
from collectors.service.settings import Collect
from collectors.service.standing import Standing

_MOST_NAMED = 3


@dataclass
class Diary:
    """Says what the others report, and the same thing only once."""

    told: Callable[[str], None]
    _failing: dict[Instance, str] = field(default_factory=dict)  # not collected, and why
    _engines: dict[str, str] = field(default_factory=dict)  # by target, what was said of them
    _trouble: str | None = None
    _first: dict[Path, int] = field(default_factory=dict)  # part of each run that is written

    def began(self, instance: Instance, collect: Collect) -> None:
        """An engine is collected from now on, unless it is only tried again."""
        if instance not in self._failing:
            every = duration_text(collect.interval_us)
            where = collect.output / instance.target / instance.name
            self._say(instance, f"collecting {instance.url} every {every} into {where}")

    def failed(self, instance: Instance, why: str, collect: Collect) -> None:
        """An engine cannot be collected, or its collector ended by itself."""
        if self._failing.get(instance) != why:
            self._failing[instance] = why
            every = duration_text(collect.rediscover_us)
            self._say(instance, f"not collecting: {why}; tried again every {every}")

    def ended(self, instance: Instance) -> None:
        """An engine is no longer wanted, or its settings changed."""
        if self._failing.pop(instance, None) is None:
            self._say(instance, "ending; its run is written and closed")

    def scraped(
        self, instance: Instance, standing: Standing, collector: Collector, now_ns: int
    ) -> None:
        """One more scrape was made."""
        self._failing.pop(instance, None)
        counters = collector.counters
        problems = dict(counters.tally.problems)
        if counters.tally.not_written:
            problems["not_written"] = counters.tally.not_written
        for line in standing.see(counters.outcomes, problems, collector.run_path, now_ns):
            self._say(instance, line)

    def engines(self, target: str, found: int | str) -> None:
        """So many engines were found for a target, or why that is unknown."""
        said = f"engines unknown: {found}" if isinstance(found, str) else f"engines found: {found}"
        if self._engines.get(target) != said:
            self._engines[target] = said
            self.told(f"{target}: {said}")

    def tidied(self, done: Tidied) -> None:
        """Ended runs, or parts of runs that are written, went by the rules of retention."""
        if self._trouble is not None:
            self._trouble = None
            self.told("output: can be read again")
        if done.gone:
            self.told(f"retention: deleted {_named(done.gone)}, {about_bytes(done.freed_bytes)}")
        before, self._first = self._first, done.first_parts
        if cut := [run for run, first in self._first.items() if first > before.get(run, first)]:
            self.told(f"retention: deleted the oldest parts of {_named(cut)}")

    def trouble(self, why: str) -> None:
        """The output directory cannot be looked through."""
        if self._trouble != why:
            self._trouble = why
            self.told(f"output: {why}")

    def _say(self, instance: Instance, line: str) -> None:
        self.told(f"{instance.target}/{instance.name}: {line}")


def _named(runs: list[Path]) -> str:
    named = ", ".join(f"{run.parent.name}/{run.name}" for run in runs[:_MOST_NAMED])
    more = len(runs) - _MOST_NAMED
    return named + (f" and {more} more" if more > 0 else "")
