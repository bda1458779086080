"""Telling several workers behind one address from one worker that restarted. Pure.

Without Prometheus's multiprocess mode each API server counts alone, and a scrape reaches any of
them: counters go up and down like the teeth of a saw, and nothing was reset. What gives it away is
that an earlier process, or an earlier rising sequence, comes back.
"""

from collections import deque
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from typing import Any

_MOST_PROCESSES = 64
_MOST_TRACKS = 16
_MOST_COUNTERS = 4096
_FALLS = 3  # that an earlier sequence explains, before we believe it
_WINDOW = 30  # scrapes in which they must lie
_TOLERANCE_S = 1.0


@dataclass
class _Tracks:
    """Rising sequences that one counter's values belong to."""

    tops: list[float]
    explained: deque[int] = field(default_factory=deque)

    def take(self, value: float, scrape: int, *, fell: bool) -> None:
        below = [k for k, top in enumerate(self.tops) if top <= value]
        if not below:
            self.tops.append(value)
            del self.tops[:-_MOST_TRACKS]
            return
        best = max(below, key=lambda k: self.tops[k])
        # A sequence that stands at zero says nothing: every restart begins there.
        if fell and self.tops[best] > 0:
            self.explained.append(scrape)
        self.tops[best] = value


@dataclass
class Workers:
    """Decides, scrape by scrape; `since` is the first scrape of the saw-tooth once there is one."""

    since: int | None = None
    _processes: dict[float, int] = field(default_factory=dict)  # start -> scrape it last answered
    _current: float | None = None
    _tracks: dict[Hashable, _Tracks] = field(default_factory=dict)

    def see(
        self,
        scrape: int,
        process_start_s: float | None,
        before: Mapping[Any, float],
        after: Mapping[Any, float],
    ) -> bool:
        """Whether several workers answer, after one more scrape."""
        if self.since is None and process_start_s is not None:
            self._see_process(scrape, process_start_s)
        if self.since is None and process_start_s is None:
            self._see_values(scrape, before, after)
        return self.since is not None

    def interrupted(self) -> None:
        """Forget sequences: while nobody answered, whatever answered may have restarted."""
        self._tracks.clear()

    def _see_process(self, scrape: int, start_s: float) -> None:
        known = next((p for p in self._processes if abs(p - start_s) <= _TOLERANCE_S), start_s)
        if known in self._processes and known != self._current:
            # It has lived beside the one that answered meanwhile. An earlier start alone says
            # nothing: the host's clock may have been set back before a restart.
            self.since = self._processes[known] + 1
        self._current = known
        self._processes[known] = scrape
        if len(self._processes) > _MOST_PROCESSES:
            del self._processes[min(self._processes)]

    def _see_values(
        self, scrape: int, before: Mapping[Any, float], after: Mapping[Any, float]
    ) -> None:
        for key, value in after.items():
            fell = value < before.get(key, value)
            if key in self._tracks:
                self._tracks[key].take(value, scrape, fell=fell)
            elif fell and len(self._tracks) < _MOST_COUNTERS:
                self._tracks[key] = _Tracks([before[key], value])
        for tracks in self._tracks.values():
            recent = tracks.explained
            while recent and recent[0] <= scrape - _WINDOW:
                recent.popleft()
            if len(recent) >= _FALLS:
                self.since = max(0, recent[0] - _WINDOW)
                return
