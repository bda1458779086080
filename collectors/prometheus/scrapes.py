"""Series cut out of a server, put together again to the pages that were scraped. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median_low

from collectors.exposition.parse import Page, RawSample
from collectors.prometheus.api import PLACE, Series
from collectors.prometheus.targets import Target
from replay.errors import InputError

Labels = tuple[tuple[str, str], ...]


@dataclass
class Scraped:
    """One scrape: `up` is what Prometheus says of it, None where it says nothing."""

    time_ms: int
    up: bool | None = None
    samples: list[RawSample] = field(default_factory=list, repr=False)

    def page(self) -> Page:
        """What the parser would have made of the page."""
        return Page(self.samples, {}, [], "prometheus", complete=True)


def scrapes_of(series: Iterable[Series], ups: Iterable[Series], target: Target) -> list[Scraped]:
    """All series of one target by time: what has one time stamp came from one page.

    Two series that are one without Prometheus's labels are several targets, and an `InputError`.
    """
    found: dict[int, Scraped] = {}
    for up in ups:
        for time_ms, value in up.points:
            found.setdefault(time_ms, Scraped(time_ms)).up = value == 1
    seen: dict[tuple[str, Labels], set[int]] = {}
    for one in series:
        labels = target.page_labels(one.labels)
        times = seen.setdefault((one.name, tuple(sorted(labels.items()))), set())
        for time_ms, value in one.points:
            if time_ms in times:
                rule = "must leave one engine: two of its series differ in no label of the page"
                raise InputError("options", "--selector", rule)
            times.add(time_ms)
            scraped = found.setdefault(time_ms, Scraped(time_ms))
            scraped.samples.append(RawSample(one.name, labels, value))
    return [found[time_ms] for time_ms in sorted(found)]


def interval_ms(times_ms: Iterable[int]) -> int | None:
    """The usual time between scrapes; None for fewer than two."""
    between = [after - before for before, after in pairwise(times_ms)]
    return median_low(between) if between else None


@dataclass
class Deduplicated:
    """Drops what looking back repeats: a value is new if its own time stamp is.

    A step shows the newest sample before it, so one sample can be seen at several steps.
    """

    start_ms: int
    end_ms: int
    _last: dict[tuple[str, Labels], int] = field(default_factory=dict)

    def new(self, values: list[Series], stamps: list[Series]) -> list[Series]:
        """Series with the samples not seen yet, at their own times within start <= time < end."""
        by_labels = {_key(one): dict(one.points) for one in stamps}
        found = []
        for one in values:
            at, points = by_labels.get(_key(one), {}), []
            last = self._last.get((one.name, _key(one)), self.start_ms - 1)
            for step_ms, value in one.points:
                if step_ms not in at:
                    raise InputError(PLACE, "timestamp", "must be known of every value")
                time_ms = round(at[step_ms] * 1000)
                if last < time_ms < self.end_ms:
                    points.append((time_ms, value))
                    last = time_ms
            self._last[one.name, _key(one)] = last
            found.append(Series(one.labels, points))
        return found


def _key(one: Series) -> Labels:
    """Labels without the name, which `timestamp` takes off."""
    return tuple(sorted((k, v) for k, v in one.labels.items() if k != "__name__"))
