"""From the engine's thread to the disk: a bounded buffer, and a thread that empties it.

The engine only appends tuples. This side makes text of them, in short bites, so that the engine
never waits long for the interpreter, and writes whole frames several times a second. What the
buffer or the disk does not take is dropped, newest first, and counted.
"""

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any

from preemption_ledger_recorder.files import Parts
from preemption_ledger_recorder.ids import client_id
from preemption_ledger_recorder.prefixes import PrefixNumbers

FLUSH_S = 0.2
REFUSED_S = 2.0
CLOCKS_S = 10.0
MOST_RECORDS = 65_536  # in the buffer: at 100 steps a second ten minutes of a full disk
MOST_HASHES = 2**20  # in the buffer, over all requests
FRAME_RECORDS = 4096
_BITE = 32  # records encoded before the engine's thread may go first
_PAUSE_S = 0.00005
_FRAME_BYTES = 2**20  # of text; a frame ends behind the record that passes it
_MAX_SAFE_INTEGER = 2**53 - 1
_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Buffer:
    """A bounded queue from one thread to another, without a lock."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Any, ...]] = deque()
        self.refused = 0
        # Each is written by one side only.
        self._hashes_in = self._hashes_out = 0

    def put(self, record: tuple[Any, ...]) -> None:
        """The engine's side: take a record or count it as refused."""
        if len(self._queue) >= MOST_RECORDS:
            self.refused += 1
            return
        if record[0] == "R" and (hashes := record[7]):
            if self._hashes_in - self._hashes_out > MOST_HASHES:
                self.refused += 1
                return
            self._hashes_in += len(hashes)
        self._queue.append(record)

    def waiting(self) -> int:
        """Records in it."""
        return len(self._queue)

    def get(self) -> tuple[Any, ...] | None:
        """The writer's side: the oldest record."""
        try:
            record = self._queue.popleft()
        except IndexError:
            return None
        if record[0] == "R" and (hashes := record[7]):
            self._hashes_out += len(hashes)
        return record


class Spool:
    """The writer of one session, in its own thread from `start` to `close`."""

    def __init__(
        self,
        parts: Parts,
        prefixes: PrefixNumbers,
        *,
        pair: Callable[[], tuple[int, int]],
        feature: Callable[[str], None] = lambda _: None,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self.buffer = Buffer()
        self.errors = 0  # inside the recorder, in the engine's thread
        self.off: str | None = None
        self._parts, self._prefixes, self._pair, self._pause = parts, prefixes, pair, pause
        self._feature = feature
        self._lost = 0  # records that became no text
        self._told: tuple[Any, ...] = (0, 0, 0, None)
        self._lines: list[bytes] = []  # a frame the disk has not taken yet
        self._clocks_at: float | None = None
        self._pid = os.getpid()
        self._ending = threading.Event()
        self._end: tuple[Any, ...] | None = None
        self._thread = threading.Thread(target=self._run, name="preemption-ledger", daemon=True)

    def start(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self, wait_s: float = 2.0) -> None:
        """Write what is left and the end record; waits no longer than `wait_s`."""
        if self._pid != os.getpid() or self._ending.is_set():
            return
        self._end = ("E", self._pair()[1])
        self._ending.set()
        if self._thread.is_alive():
            self._thread.join(wait_s)

    def _run(self) -> None:
        try:
            wait = FLUSH_S
            while not self._ending.wait(wait):
                wait = FLUSH_S
                while self.flush() and self.buffer.waiting() > FRAME_RECORDS:
                    pass
                if self._lines:
                    wait = REFUSED_S  # the disk refused: it is not asked five times a second
            while self.flush():
                pass
            self.finish()
        except Exception:  # noqa: BLE001 (a thread of its own dies alone)
            self.off = self.off or "writer"
        finally:
            self._parts.close()

    def flush(self) -> bool:
        """Write one frame; False if there was nothing to write or the disk refused."""
        if not self._lines:
            self._collect()
        if not self._lines:
            return False
        try:
            self._parts.append(self._lines)
        except OSError:
            return False  # the same frame again, next time
        self._lines = []
        return True

    def finish(self) -> None:
        """Write the end, and what the disk refused before if it takes it now."""
        self._lines += self._losses()
        if self._end is not None:
            self._lines.append(_encode(self._end).encode())
        with contextlib.suppress(OSError):  # a disk that refuses gets no end either
            self._parts.append(self._lines, last=True)
        self._lines = []

    def _collect(self) -> None:
        """Text of what waits in the buffer, a clock pair when it is due, and losses if any."""
        lines, size = self._lines, 0
        while len(lines) < FRAME_RECORDS and size < _FRAME_BYTES:
            record = self.buffer.get()
            if record is None:
                break
            line = self._text(record)
            if line is not None:
                lines.append(line)
                size += len(line)
            if len(lines) % _BITE == 0:
                self._pause(_PAUSE_S)
        unix_ns, monotonic_ns = self._pair()
        if self._clocks_at is None or monotonic_ns / 1e9 - self._clocks_at >= CLOCKS_S:
            self._clocks_at = monotonic_ns / 1e9
            lines.append(_encode(("C", unix_ns, monotonic_ns)).encode())
        lines += self._losses()

    def _text(self, record: tuple[Any, ...]) -> bytes | None:
        try:
            if record[0] == "R":
                record = self._request(record)
            return _encode(record).encode()
        except Exception:  # noqa: BLE001 (one record less, and counted)
            self._lost += 1
            return None

    def _request(self, record: tuple[Any, ...]) -> tuple[Any, ...]:
        kind, n, engine_id, arrival, prompt_tokens, *given, hashes, features = record
        for name in features or ():
            self._feature(name)
        numbers = None if hashes is None else self._prefixes.of(hashes)
        sizes = (arrival, prompt_tokens, *map(_safe, given))
        return (kind, n, client_id(engine_id), *sizes, numbers, features)

    def _losses(self) -> list[bytes]:
        dropped = self.buffer.refused + self._lost + self.errors
        now = (dropped, self._prefixes.forgotten, self.errors, self.off)
        if now == self._told:
            return []
        self._told = now
        return [_encode(("X", *now)).encode()]


def _safe(given: Any) -> int | None:
    """An integer that a client chose; null where not every reader of JSON keeps it exactly."""
    return given if type(given) is int and abs(given) <= _MAX_SAFE_INTEGER else None
