"""Asking an engine who it is beside scraping it: one that hangs there delays no scrape."""

import asyncio
from collections.abc import Awaitable, Callable

from collectors.scrape.clock import Clock
from collectors.scrape.probe import Probed

_AGAIN_US = 60_000_000
_PATIENCE_US = 250_000  # an engine that gave its page says at once who it is, or not at all


class Asking:
    """Asks once, and again when that is due; `probed` is what is known now."""

    def __init__(
        self, ask: Callable[[], Awaitable[Probed]], clock: Clock, interval_us: int
    ) -> None:
        self.probed = Probed()
        self._ask, self._clock = ask, clock
        # A page of another release goes to the run of that release if the answer comes meanwhile.
        self._patience_s = min(_PATIENCE_US, interval_us // 4) / 1_000_000
        self._due_ns: int | None = 0
        self._task: asyncio.Task[None] | None = None

    def again(self) -> None:
        """Ask at the next opportunity, unless another time is set already."""
        self._due_ns = self._due_ns or 0

    async def anew(self) -> None:
        """Ask at the next opportunity; what is under way may be about the process before."""
        self._due_ns = 0
        await self.stop()

    async def when_due(self) -> None:
        """Ask if it is time to, and wait a little for the answer; later it counts when it comes."""
        if self._task is not None and self._task.done():
            task, self._task = self._task, None
            task.result()
        due = self._due_ns is not None and self._clock.monotonic_ns() >= self._due_ns
        if due and self._task is None:
            self._due_ns, self.probed = None, Probed()
            self._task = asyncio.create_task(self._learn())
            await asyncio.wait({self._task}, timeout=self._patience_s)

    async def stop(self) -> None:
        """Wait for no answer any more."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    async def _learn(self) -> None:
        self.probed = await self._ask()
        if self.probed.version is None:
            self._due_ns = self._clock.monotonic_ns() + _AGAIN_US * 1000
