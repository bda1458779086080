"""Whether the server still answers: silence while something is awaited, told early and in words.

A sign of life is an event of a stream, or a refusal that is no failure of the server's own (a 5xx
but 503). Without this each request would wait for its own time-out, one after the other. Pure:
times are microseconds of the run, given by whoever asks.
"""

from dataclasses import dataclass

from collectors.durations import duration_text

WARN_US = 15_000_000
_SECOND_US = 1_000_000


@dataclass
class Pulse:
    """How long nothing came although something was awaited; `give_up_us` None never gives up."""

    give_up_us: int | None
    _since_us: int | None = None  # of the wait for a sign of life; None while nothing is awaited
    _failed: int = 0  # requests that ended since then without one
    _problem: str | None = None  # of the last of them
    _last_us: int = 0  # when that was
    _told: bool = False
    _over_us: int | None = None  # how long a silence was that was told of and is over

    def sent(self, now_us: int) -> None:
        """A request is on its way."""
        if self._since_us is None:
            self._since_us = self._last_us = now_us

    def alive(self, now_us: int) -> None:
        """Some of a proper answer came."""
        if self._told and self._since_us is not None:
            self._told, self._over_us = False, now_us - self._since_us
        self._since_us, self._failed = now_us, 0

    def ended(self, now_us: int, in_flight: int, problem: str | None) -> None:
        """A request ended; `problem` is that of one that had no proper answer at all, else None."""
        if problem is not None:
            self._failed, self._problem, self._last_us = self._failed + 1, problem, now_us
        elif not in_flight and not self._failed:
            self._since_us = None

    def look(self, now_us: int, in_flight: int) -> tuple[str | None, str | None]:
        """What to tell now, once for each silence and its end; and why to give up, if it is time.

        Between requests nobody knows whether the server is there: then time stands still at the
        last failure.
        """
        if self._over_us is not None:
            over_us, self._over_us = self._over_us, None
            return f"the server answers again, after {over_us // _SECOND_US} s", None
        if self._since_us is None:
            return None, None
        silent_us = (now_us if in_flight else self._last_us) - self._since_us
        said = f"no token from the server for {silent_us // _SECOND_US} s, {self._open(in_flight)}"
        if self.give_up_us is not None and silent_us >= self.give_up_us:
            return None, f"the server is gone, {said}"
        patience_us = WARN_US if self.give_up_us is None else min(WARN_US, self.give_up_us // 2)
        if self._told or silent_us < patience_us:
            return None, None
        self._told = True
        limit = self.give_up_us
        return said + ("" if limit is None else f"; given up after {duration_text(limit)}"), None

    def _open(self, in_flight: int) -> str:
        failed = f", failed: {self._failed} ({self._problem})" if self._failed else ""
        return f"open requests: {in_flight}{failed}"
