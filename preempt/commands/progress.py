"""Progress on standard error for whoever waits at a terminal, and nothing for anybody else.

Only what waits for another machine tells a log, too: a line every half minute.
"""

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeAlias

from preempt.commands.options import console, say
from replay.strict import printable

if TYPE_CHECKING:
    from rich import progress

DELAY_SECONDS = 2.0
LINE_SECONDS = 30.0
Counter: TypeAlias = Callable[[int, int], None]  # (done, total), as often as the caller likes


@contextmanager
def progress_shown(*, quiet: bool, logged: bool = False) -> Iterator["Progress"]:
    """Progress of the block, shown from `DELAY_SECONDS` on and gone when it ends.

    `logged` tells counted phases where there is no terminal, too, a line every `LINE_SECONDS`.
    """
    terminal = sys.stderr.isatty()
    shown = Progress(visible=not quiet and terminal, logged=logged and not quiet and not terminal)
    try:
        yield shown
    finally:
        shown.close()


class Progress:
    """What is being done, and how much of it is done."""

    def __init__(self, *, visible: bool, logged: bool = False) -> None:
        self._visible, self._logged = visible, logged
        self._line_s = time.monotonic() + LINE_SECONDS
        self._text = ""
        self._bar: progress.Progress | None = None
        self._lock = threading.Lock()
        # A timer, because reading and writing large files call nobody on their way.
        self._timer = threading.Timer(DELAY_SECONDS, self._show)
        self._timer.daemon = True
        if visible:
            self._timer.start()

    def phase(self, text: str) -> None:
        """Say what is being done from now on, how much of it unknown."""
        self._update(printable(text), 0, None)

    def requests(self, text: str) -> Counter | None:
        """A phase that is told (requests done, requests) now and then; None if nobody looks."""
        return self._counted(text, "requests")

    def events(self, text: str) -> Counter | None:
        """A phase that is told (events done, events) now and then; None if nobody looks."""
        return self._counted(text, "events")

    def seconds(self, text: str) -> Counter | None:
        """A phase that is told (seconds done, seconds) now and then; None if nobody looks."""
        return self._counted(text, "s")

    def _counted(self, text: str, what: str) -> Counter | None:
        self.phase(text)
        if self._logged:
            return lambda done, total: self._log(f"{text}: {done:,} of {total:,} {what}")
        if not self._visible:
            return None
        return lambda done, total: self._update(
            f"{printable(text)}: {done:,} of {total:,} {what}", done, total
        )

    def close(self) -> None:
        """Take it off the terminal, for good."""
        self._timer.cancel()
        with self._lock:
            self._visible = False
            if self._bar is not None:
                self._bar.stop()

    def _log(self, line: str) -> None:
        now_s = time.monotonic()
        if now_s >= self._line_s:
            self._line_s = now_s + LINE_SECONDS
            say(line)

    def _show(self) -> None:
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

        text = TextColumn("{task.description}", markup=False)
        columns = (SpinnerColumn(), text, BarColumn(), TimeElapsedColumn())
        with self._lock:
            if self._visible:
                self._bar = Progress(
                    *columns, console=console(stderr=True), transient=True, redirect_stdout=False
                )
                self._bar.add_task(self._text, total=None)
                self._bar.start()

    def _update(self, text: str, done: int, total: int | None) -> None:
        with self._lock:
            self._text = text
            if self._bar is not None and self._visible:
                task = self._bar.tasks[0]
                task.total = total
                self._bar.update(task.id, description=text, completed=done)
