"""What a row of scrapes shows beside its values: gaps, counter resets, clock steps, stale gauges.

Pure: it is fed one scrape after the other, live, after a restart, or from kept pages, and comes to
the same findings. Every list is bounded; what found no room is counted.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from collectors.scrape.workers import Workers

MOST_LISTED = 1_000
_MOST_NOTES = 50
_STEP_NS = 100_000_000
_STEP_PER_NS = 1_000  # a clock being slewed by 1/1000 is no step
_STALE_US = 60_000_000
_STALE_SCRAPES = 5
_CREATED_TOLERANCE_S = 0.001
_START_TOLERANCE_S = 1.0


class Series(NamedTuple):
    """One counter of one engine and model."""

    name: str
    engine: int | None
    model: str | None
    labels: str


@dataclass(frozen=True)
class Moment:
    """When one scrape was made, by which start of the collector, and what became of it."""

    scrape: int
    time_us: int
    unix_ns: int
    monotonic_ns: int
    duration_us: int
    session: int
    outcome: str


@dataclass(frozen=True)
class Counts:
    """Counters of one page; `tokens` and `running` are None where the page has none."""

    values: Mapping[Series, float]
    created: Mapping[Series, float] = field(default_factory=dict)
    process_start_s: float | None = None
    tokens: float | None = None
    running: float | None = None


@dataclass
class Watch:
    """The findings so far; `gaps` and `resets` are as the manifest has them."""

    interval_us: int
    gaps: list[dict[str, Any]] = field(default_factory=list)
    resets: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    unlisted: Counter[str] = field(default_factory=Counter)
    workers: Workers = field(default_factory=Workers)
    _last: Moment | None = None  # scrape before, whatever became of it
    _good: Moment | None = None  # last one with values
    _failed: Counter[str] = field(default_factory=Counter)
    _told: int = 0  # scrapes since the last good one that another gap names
    _counts: Counts | None = None
    _still: tuple[int, int] = (0, 0)  # since when tokens stand still, and for how many scrapes

    def see(self, moment: Moment, counts: Counts | None) -> None:
        """Take the next scrape; `counts` is None where there was no page to read."""
        self._see_clock(moment)
        if counts is None:
            self._failed[moment.outcome] += 1
            self.workers.interrupted()
        else:
            self._close_gap(moment)
            self._see_counters(moment, self._counts or Counts({}), counts)
            if self._counts is not None:
                self._see_stillness(moment, self._counts, counts)
            self._counts, self._good = counts, moment
            self._failed.clear()
            self._told = 0
        self._last = moment

    def prime(self, moment: Moment, counts: Counts | None) -> None:
        """Remember a scrape whose findings are in the manifest already."""
        self._last = moment
        if counts is None:
            self._failed[moment.outcome] += 1
        else:
            self._counts, self._good = counts, moment
            self._failed.clear()

    def missed(self, scrapes: int, *, told: bool) -> None:
        """Take note of scrapes that nothing is left of; `told`: another gap names them."""
        if told:
            self._told += scrapes
        else:
            self._failed["not_kept"] += scrapes

    def open_gap(self) -> dict[str, Any] | None:
        """The gap that has not ended yet, as far as it is known."""
        if not self._failed or self._last is None:
            return None
        start_us = self._good.time_us if self._good else 0
        return {
            "start_us": start_us,
            "end_us": max(start_us, self._last.time_us),
            "scrapes_missed": sum(self._failed.values()),
            "reason": _reason(self._failed),
        }

    def reopen_gap(self) -> None:
        """Take a gap back that the manifest closed because the collector ended within it."""
        start_us = self._good.time_us if self._good else 0
        if self._failed and self.gaps and self.gaps[-1]["start_us"] == start_us:
            self.gaps.pop()

    def note(self, text: str) -> None:
        """Keep one sentence for the manifest."""
        if text in self.notes:
            return
        if len(self.notes) < _MOST_NOTES:
            self.notes.append(text)
        else:
            self.unlisted["notes"] += 1

    def lost(self, start_us: int, end_us: int, scrapes: int, reason: str) -> None:
        """Record scrapes that were made and could not be kept."""
        self._list("gaps", self.gaps, _gap(start_us, end_us, scrapes, reason))

    def _close_gap(self, moment: Moment) -> None:
        start_us = self._good.time_us if self._good else 0
        failed = sum(self._failed.values())
        slots = round((moment.time_us - start_us) / self.interval_us) - (self._good is not None)
        silent = max(0, slots - failed - self._told)
        if not failed and not (silent and self._last):
            return
        reasons = [_reason(self._failed)] if failed else []
        if silent and self._last and self._last.session != moment.session:
            reasons.append(f"collector not running: {silent}")
        elif silent:
            reasons.append(f"late, an earlier scrape took too long: {silent}")
        gap = _gap(start_us, moment.time_us, failed + silent, "; ".join(reasons))
        self._list("gaps", self.gaps, gap)

    def _see_clock(self, moment: Moment) -> None:
        last = self._last
        if last is None or last.session != moment.session:
            return
        elapsed = moment.monotonic_ns - last.monotonic_ns
        step = moment.unix_ns - last.unix_ns - elapsed
        if abs(step) > _STEP_NS + abs(elapsed) // _STEP_PER_NS:
            self.note(
                f"the wall clock stepped by {step // 1_000_000} ms before scrape {moment.scrape};"
                " times of samples follow the monotonic clock"
            )

    def _see_counters(self, moment: Moment, before: Counts, after: Counts) -> None:
        several = self.workers.see(moment.scrape, _process(after), before.values, after.values)
        if several:
            self._take_back(self.workers.since or 0)
            return
        restarted = _later(before.process_start_s, after.process_start_s)
        found: dict[tuple[int, str], list[float]] = {}
        for series, value in after.values.items():
            earlier = before.values.get(series)
            if earlier is None:
                continue
            anew = abs(after.created.get(series, 0.0) - before.created.get(series, 0.0))
            recreated = series in before.created and anew > _CREATED_TOLERANCE_S
            if value < earlier or ((restarted or recreated) and (earlier or value)):
                engine = -1 if series.engine is None else series.engine
                sums = found.setdefault((engine, series.name), [0.0, 0.0])
                sums[0] += earlier
                sums[1] += value
        for (engine, name), (earlier, value) in sorted(found.items()):
            reset = {
                "time_us": moment.time_us,
                "scrape": moment.scrape,
                "engine": None if engine < 0 else engine,
                "name": name,
                "before": earlier,
                "after": value,
            }
            self._list("counter_resets", self.resets, reset)

    def _take_back(self, since: int) -> None:
        """What looked like resets was another worker's count."""
        self.resets[:] = [reset for reset in self.resets if (reset["scrape"] or 0) < since]
        self.note(
            "several workers answer at this address, each with counters of its own, and they"
            " alternate: falls of a counter are not resets, and no single series is the whole"
        )

    def _see_stillness(self, moment: Moment, before: Counts, after: Counts) -> None:
        since_us, scrapes = self._still
        busy = after.tokens is not None and after.tokens == before.tokens and after.running
        if not busy:
            self._still = (moment.time_us, 0)
            return
        if not scrapes:
            since_us = self._good.time_us if self._good else moment.time_us
        self._still = (since_us, scrapes + 1)
        if moment.time_us - since_us >= _STALE_US and scrapes + 1 >= _STALE_SCRAPES:
            self.note(
                f"from {since_us} us no token counter moved for {_STALE_US // 1_000_000} s while"
                " requests were shown as running: gauges then are stale, not load"
            )

    def _list(self, what: str, listed: list[dict[str, Any]], entry: dict[str, Any]) -> None:
        if len(listed) < MOST_LISTED:
            listed.append(entry)
        else:
            self.unlisted[what] += 1


def _gap(start_us: int, end_us: int, scrapes: int, reason: str) -> dict[str, Any]:
    return {
        "start_us": start_us,
        "end_us": max(start_us, end_us),
        "scrapes_missed": scrapes,
        "reason": reason,
    }


def _reason(failed: Counter[str]) -> str:
    return ", ".join(f"{outcome}: {count}" for outcome, count in sorted(failed.items()))


def _process(counts: Counts) -> float | None:
    """Something that stays the same while a process lives, and is later in the next one."""
    if counts.process_start_s is not None:
        return counts.process_start_s
    return min(counts.created.values(), default=None)


def _later(before: float | None, after: float | None) -> bool:
    return before is not None and after is not None and after - before > _START_TOLERANCE_S
