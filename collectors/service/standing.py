"""How one engine is doing, followed scrape by scrape, and what of it is worth a line. Pure.

A line is told when something changes, never once a scrape: an engine is down after three scrapes in
a row without samples, and one that goes up and down is told of once a minute. Lines are made of our
own words and of paths: no text of a page or a server is in them.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from collectors.durations import duration_text

DOWN_AFTER = 3  # scrapes in a row without samples
_S = 1_000_000_000
_FLAP_NS = 60 * _S
_OVER_NS = 60 * _S  # a trouble that was not met for so long
_AGAIN_NS = 600 * _S  # one that goes on is told again
_LOST = "not_written"
_TROUBLES: Mapping[str, str] = {
    "disk_full": "the disk is full; scrapes wait in memory, up to 16 MiB",
    "disk_error": "the disk takes nothing; scrapes wait in memory, up to 16 MiB",
    "run_vanished": "the run's directory is gone; another one is begun",
    "run_not_made": "no run can be made in the output directory",
    "settle_failed": "a journal cannot be made a part; its pages are kept",
    "spool_failed": "the recorder's spool cannot be packed",
    "spool_not_deleted": "packed parts of the spool cannot be deleted: it will reach its cap",
    _LOST: "scrapes are lost, there is no room for them",
}


@dataclass
class _Trouble:
    count: int = 0
    last_ns: int = 0
    told_ns: int | None = None  # None: over


@dataclass
class Standing:
    """One engine since its collector began; times are nanoseconds since 1970."""

    began_ns: int
    last_ok_ns: int | None = None
    failing_since_ns: int | None = None  # the first scrape without samples since the last with
    last_error: str | None = None  # its outcome, of the last scrape without samples
    _failures: int = 0
    _outcomes: Counter[str] = field(default_factory=Counter)
    _down_told: bool = False
    _flaps: int = 0
    _down_ns: int | None = None  # when it was last told that it is down
    _run: Path | None = None
    _troubles: dict[str, _Trouble] = field(default_factory=dict)

    def see(
        self,
        outcomes: Counter[str],
        problems: Mapping[str, int],
        run: Path | None,
        now_ns: int,
    ) -> list[str]:
        """Take the counts after one more scrape; lines on what changed with it."""
        outcome = next(iter(outcomes - self._outcomes), None)
        self._outcomes = outcomes.copy()
        lines = [*self._new_run(run)]
        if outcome == "ok":
            lines += self._answered(now_ns)
        elif outcome is not None:
            lines += self._failed(outcome, now_ns)
        return [*lines, *self._in_trouble(problems, now_ns)]

    def troubles(self) -> list[str]:
        """What is wrong with the disk or the spool now, in words."""
        return [_said(kind) for kind, one in self._troubles.items() if one.told_ns is not None]

    def _new_run(self, run: Path | None) -> Iterator[str]:
        if run is None or run == self._run:
            return
        if self._run is not None:
            yield f"a new run: {run}"
        self._run = run

    def _answered(self, now_ns: int) -> Iterator[str]:
        if self._down_told:
            since_ns = now_ns - (self.failing_since_ns or now_ns)
            after = f"{_seconds(since_ns)}, {self._failures} scrapes without samples"
            yield f"answers again, after {after}"
        elif self.last_ok_ns is None:
            yield f"first samples; its run is {self._run}"
        self._down_told, self._failures = False, 0
        self.last_ok_ns, self.failing_since_ns = now_ns, None

    def _failed(self, outcome: str, now_ns: int) -> Iterator[str]:
        self._failures, self.last_error = self._failures + 1, outcome
        if self.failing_since_ns is None:
            self.failing_since_ns = now_ns
        if self._failures != DOWN_AFTER:
            return
        if self._down_ns is not None and 0 <= now_ns - self._down_ns < _FLAP_NS:
            self._flaps += 1
            return
        more = f" (and so {self._flaps} times since that was last told)" if self._flaps else ""
        self._down_told, self._down_ns, self._flaps = True, now_ns, 0
        yield f"down: {outcome}{more}"

    def _in_trouble(self, problems: Mapping[str, int], now_ns: int) -> Iterator[str]:
        for kind, count in problems.items():
            one = self._troubles.setdefault(kind, _Trouble())
            if count > one.count:
                one.count, one.last_ns = count, now_ns
                if one.told_ns is None:
                    one.told_ns = now_ns
                    yield _said(kind)
                elif now_ns - one.told_ns >= _AGAIN_NS:
                    one.told_ns = now_ns
                    yield f"still {_said(kind)} ({count} times by now)"
            elif one.told_ns is not None and now_ns - one.last_ns >= _OVER_NS:
                one.told_ns = None
                yield f"over since {_seconds(now_ns - one.last_ns)}: {kind}"


def _said(kind: str) -> str:
    return f"{kind}: {_TROUBLES.get(kind, 'see docs/collecting.md')}"


def _seconds(ns: int) -> str:
    return duration_text(max(0, ns) // _S * 1_000_000)
