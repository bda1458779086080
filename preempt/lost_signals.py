"""A signal whose exception nobody could catch comes again.

Python runs a signal's handler wherever the main thread happens to be. Within the callback of a weak
reference or a `__del__`, nothing is above to take what the handler raises: Python prints it and
goes on, and so would a comparison of hours after its Ctrl-C.
"""

import _thread
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sys import UnraisableHookArgs

TERMINATED = 128 + signal.SIGTERM
_SOON_S = 0.05


@contextmanager
def coming_again() -> Iterator[None]:
    """While the block runs, a lost `KeyboardInterrupt` or exit by SIGTERM is sent once more."""
    before = sys.unraisablehook

    def take(lost: "UnraisableHookArgs") -> None:
        number = _number(lost.exc_value)
        if number is None:
            before(lost)
        else:
            # Later and from outside: here its handler would raise within the same callback. And
            # without the locks of `threading`, which may be held down there.
            _thread.start_new_thread(_send, (number,))

    sys.unraisablehook = take
    try:
        yield
    finally:
        sys.unraisablehook = before


def _number(error: BaseException | None) -> signal.Signals | None:
    """The signal that an exception stands for."""
    if isinstance(error, KeyboardInterrupt):
        return signal.SIGINT
    if isinstance(error, SystemExit) and error.code == TERMINATED:
        return signal.SIGTERM
    return None


def _send(number: signal.Signals) -> None:
    time.sleep(_SOON_S)
    os.kill(os.getpid(), number)
