"""The clock a collector lives by, handed in so that a day passes in seconds in a test."""

import asyncio
import time
from typing import Protocol


class Clock(Protocol):
    """Wall clock, monotonic clock, and waiting for the latter."""

    def unix_ns(self) -> int:
        """Wall clock, which may step."""

    def monotonic_ns(self) -> int:
        """Monotonic clock, which does not."""

    async def sleep_until(self, monotonic_ns: int, stop: asyncio.Event) -> None:
        """Wait for that moment, or for `stop`."""


class SystemClock:
    """The machine's clocks."""

    def unix_ns(self) -> int:
        """Nanoseconds since the epoch."""
        return time.time_ns()

    def monotonic_ns(self) -> int:
        """Nanoseconds since some moment."""
        return time.monotonic_ns()

    async def sleep_until(self, monotonic_ns: int, stop: asyncio.Event) -> None:
        """Wait for that moment, or for `stop`."""
        left_s = (monotonic_ns - time.monotonic_ns()) / 1e9
        if left_s > 0:
            try:
                async with asyncio.timeout(left_s):
                    await stop.wait()
            except TimeoutError:
                pass
        else:
            await asyncio.sleep(0)  # a loop that is behind still lets others run
