"""The two ways to the samples of one engine: as they were stored, or as steps show them."""

from dataclasses import dataclass
from typing import Protocol

from collectors.prometheus.api import PLACE, Api
from collectors.prometheus.matchers import OURS, RUNNING, WITH_PROCESS, named, select
from collectors.prometheus.scrapes import Deduplicated, Scraped, scrapes_of
from collectors.prometheus.targets import Target, only_target, target_of
from replay.errors import InputError

_MOST_STEPS = 10_000  # Prometheus refuses more than 11,000 points a series


@dataclass(frozen=True)
class Range:
    """Milliseconds since the epoch, `start_ms` <= time < `end_ms`."""

    start_ms: int
    end_ms: int


class Source(Protocol):
    """Scrapes of one engine, window by window, each later than the one before."""

    unit_ms: int  # windows begin and end at multiples of it after the start

    @property
    def most_ms(self) -> int | None:
        """Longest window that one query can be asked for, if there is a limit."""

    async def window(self, start_ms: int, end_ms: int) -> list[Scraped]:
        """All scrapes of start <= time < end; `TooMuch` where a shorter window may do."""


async def find_target(api: Api, when: Range, more: str) -> Target:
    """The one engine that the matchers `more` leave; `InputError` where it is none or several."""
    for names in (RUNNING, OURS):
        listed = await api.listed(select(names, {}, more), when.start_ms, when.end_ms - 1)
        if listed:
            labels = only_target(listed)
            ups = await api.listed(named("up", labels), when.start_ms, when.end_ms - 1)
            return target_of(labels, ups)
    rule = "must have a sample of vLLM's in this time under this selector"
    raise InputError(PLACE, "", rule, "none")


@dataclass
class RawSource:
    """Samples as they were stored: exact times, exact values."""

    api: Api
    target: Target
    more: str
    unit_ms: int = 1
    most_ms: int | None = None

    async def window(self, start_ms: int, end_ms: int) -> list[Scraped]:
        """As `Source` says."""
        labels = self.target.labels
        series = await self.api.raw(select(WITH_PROCESS, labels, self.more), start_ms, end_ms)
        ups = await self.api.raw(named("up", labels), start_ms, end_ms)
        return scrapes_of(series, ups, self.target)


@dataclass
class StepSource:
    """For servers that have query_range only: what a step repeats is told by its time stamp.

    `timestamp` takes the name off, so each name is asked for alone.
    """

    api: Api
    target: Target
    more: str
    names: list[str]
    unit_ms: int
    seen: Deduplicated
    ups_seen: Deduplicated

    @property
    def most_ms(self) -> int:
        """As many steps as Prometheus gives at once, and a few less."""
        return _MOST_STEPS * self.unit_ms

    @classmethod
    async def of(
        cls, api: Api, target: Target, more: str, when: Range, step_ms: int
    ) -> "StepSource":
        """Find the names, once."""
        selector = select(WITH_PROCESS, target.labels, more)
        listed = await api.listed(selector, when.start_ms, when.end_ms - 1)
        names = sorted({one["__name__"] for one in listed if "__name__" in one})
        seen = Deduplicated(when.start_ms, when.end_ms)
        ups_seen = Deduplicated(when.start_ms, when.end_ms)
        return cls(api, target, more, names, step_ms, seen, ups_seen)

    async def window(self, start_ms: int, end_ms: int) -> list[Scraped]:
        """As `Source` says; all answers are there before one counts as seen."""
        answers = []
        labels, step_ms = self.target.labels, self.unit_ms
        selectors = [named(name, labels, self.more) for name in self.names]
        for selector in (named("up", labels), *selectors):
            stamps = await self.api.steps(f"timestamp({selector})", start_ms, end_ms, step_ms)
            values = await self.api.steps(selector, start_ms, end_ms, step_ms)
            answers.append((values, stamps))
        ups = self.ups_seen.new(*answers[0])
        series = [one for answer in answers[1:] for one in self.seen.new(*answer)]
        return scrapes_of(series, ups, self.target)
