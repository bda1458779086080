"""An engine's monotonic marks, and its wall clock, on one axis: microseconds since a run's zero.

The pair of clocks that held when the run began places the axis. After that only the monotonic clock
counts, so that a wall clock that is set moves no event; how far it was set is kept, and taken off
wall-clock marks.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from replay.errors import InputError

STEP_NS = 100_000_000  # reading two clocks takes time, and a busy machine makes it longer
MOST_STEPS = 100


class Clock:
    """Times of one engine process; `steps` are (run time in microseconds, nanoseconds set)."""

    def __init__(self, zero_ns: int, unix_ns: int, monotonic_ns: int) -> None:
        self._zero = zero_ns
        self._reference = self._now = unix_ns - monotonic_ns
        self.steps: list[tuple[int, int]] = []

    def pair(self, unix_ns: int, monotonic_ns: int) -> None:
        """Take another pair of the two clocks."""
        found = unix_ns - monotonic_ns
        if self.us(monotonic_ns) <= 0:  # the run has not begun, whatever the wall clock says
            self._reference = self._now = found
        elif abs(found - self._now) > STEP_NS:
            if len(self.steps) < MOST_STEPS:
                self.steps.append((self.us(monotonic_ns), found - self._now))
            self._now = found

    def us(self, monotonic_ns: int) -> int:
        """Run time of a monotonic mark; negative before the run."""
        return (monotonic_ns + self._reference - self._zero) // 1000

    def wall_us(self, unix_ns: int) -> int:
        """Run time of a wall-clock mark."""
        return (unix_ns - self._now + self._reference - self._zero) // 1000

    def state(self) -> list[Any]:
        """What `restored` takes."""
        return [self._zero, self._reference, self._now, self.steps]

    @classmethod
    def restored(cls, state: list[Any]) -> "Clock":
        """The clock that gave this state."""
        zero, reference, now, steps = state
        clock = cls(zero, reference, 0)
        clock._now = now
        clock.steps = [(int(at), int(by)) for at, by in steps]
        return clock


def zero_ns(manifest: Mapping[str, Any], path: Path) -> int:
    """The run's zero in nanoseconds since 1970."""
    start = manifest["start"]
    if start is None:
        rule = "must be known to place what the engine did"
        raise InputError(str(path / "manifest.json"), "start", rule, "null")
    whole, _, digits = start.removesuffix("Z").partition(".")
    try:
        seconds = datetime.fromisoformat(whole).replace(tzinfo=UTC)
    except ValueError as exc:
        rule = "must be a time of the calendar"
        raise InputError(str(path / "manifest.json"), "start", rule) from exc
    return int(seconds.timestamp()) * 10**9 + int(digits.ljust(9, "0") or 0)
