"""What the driver knows, on disk as it happens: a killed drive loses nothing that had ended.

`drive.jsonl.gz` holds frames (`frames`) of JSON lines: a header with the settings, `["S", …]` for
every send, `["D", …]` for everything that ended, `["E", …]` at the proper end. A thread writes, so
that a slow disk makes no request late; what waits while it writes goes into one frame together.
"""

import json
import os
import threading
from collections.abc import Iterator
from dataclasses import asdict, astuple, dataclass, fields
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from collectors.drive.seen import Seen
from collectors.frames import append_frame, read_frames
from replay.errors import InputError, OutputExists
from replay.strict import check_schema, decode, parse_json

NAME = "drive.jsonl.gz"
SCHEMA = "preemption-drive/1"
_LEVEL = 1
_MOST_LINES = 1000
_SEEN = tuple(field.name for field in fields(Seen))


@dataclass(frozen=True)
class Settings:
    """How a workload was offered; times in microseconds, `speed` a fraction such as 11/5.

    `spool` is whether what the engine recorded was to be added.
    """

    speed: str
    max_gap_us: int | None
    concurrency: int | None
    token_seed: int
    lateness_limit_us: int
    timeout_us: int
    interval_us: int | None
    spool: bool = False


@dataclass(frozen=True)
class End:
    """How it ended; lag is how long the event loop kept others waiting at worst.

    `scrapes_lost` are pages that the disk did not take.
    """

    send_end_us: int | None
    drain_end_us: int
    loop_lag_us: int
    stopped: str | None
    scrapes_lost: int = 0


@dataclass(frozen=True)
class Found:
    """A journal read back: what was seen of each request, by its place in the workload."""

    settings: Settings
    seen: dict[int, Seen]
    end: End | None
    last_us: int


class Journal:
    """A journal being written; `failed` is what the disk said, if it took something not."""

    def __init__(self, run: Path, settings: Settings) -> None:
        path = run / NAME
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        self._file = os.fdopen(descriptor, "r+b", buffering=0)
        self._lines: SimpleQueue[Any] = SimpleQueue()
        self.failed: OSError | None = None
        self._lines.put({"schema": SCHEMA, **asdict(settings)})
        self._thread = threading.Thread(target=self._write, name="journal", daemon=True)
        self._thread.start()

    def sent(self, place: int, seen: Seen) -> None:
        """Request `place` of the workload was sent."""
        self._lines.put(["S", place, seen.intended_us, seen.lateness_us, seen.sent_us])

    def ended(self, place: int, seen: Seen) -> None:
        """Nothing more comes of it."""
        self._lines.put(["D", place, *(getattr(seen, name) for name in _SEEN)])

    def close(self, end: End | None) -> None:
        """Write what waits, and wait for the disk; `OutputExists` if it took not all."""
        if self._file.closed:
            return
        if end is not None:
            self._lines.put(["E", *astuple(end)])
        self._lines.put(None)
        self._thread.join()
        if self.failed is None:
            try:
                os.fsync(self._file.fileno())
            except OSError as exc:
                self.failed = exc
        self._file.close()
        if self.failed is not None:
            raise OutputExists(f"{NAME}: cannot be written: {self.failed.strerror}")

    def _write(self) -> None:
        open_still = True
        while open_still:
            lines = [self._lines.get()]
            while lines[-1] is not None and len(lines) < _MOST_LINES and not self._lines.empty():
                lines.append(self._lines.get())
            if lines[-1] is None:
                lines.pop()
                open_still = False
            try:
                if lines and self.failed is None:
                    append_frame(self._file, map(_line, lines), _LEVEL)
            except OSError as exc:
                self.failed = exc


def read_journal(run: Path, requests: int) -> Found:
    """Journal of a run that offered so many requests; what breaks its format is an `InputError`."""
    path = run / NAME
    settings, seen, end, last_us = None, dict[int, Seen](), None, 0
    for number, value in enumerate(_values(path)):
        place = f"{path}: line {number}"
        try:
            match value:
                case dict():
                    check_schema(value.pop("schema", None), SCHEMA, place)
                    settings = Settings(**value)
                case ["S", int(index), int(intended), int(lateness), int(sent)]:
                    seen[index] = Seen(intended, lateness, sent)
                    last_us = max(last_us, sent)
                case ["D", int(index), *rest]:
                    seen[index] = Seen(**dict(zip(_SEEN, rest, strict=True)))
                    last_us = max(last_us, seen[index].last_us or 0)
                case ["E", sends, int(drain), int(lag), stopped, int(lost)]:
                    end = End(sends, drain, lag, stopped, lost)
                case _:
                    raise InputError(place, "", "must be a line of a drive's journal")
        except (TypeError, ValueError) as exc:
            if isinstance(exc, InputError):
                raise
            raise InputError(place, "", "must be a line of a drive's journal") from exc
    if settings is None or any(not 0 <= index < requests for index in seen):
        raise InputError(str(path), "", "must be the journal of the workload that was offered")
    return Found(settings, seen, end, last_us)


def _values(path: Path) -> Iterator[Any]:
    for end, text in read_frames(path):
        for line in text.splitlines():
            place = f"{path}: frame before byte {end}"
            yield parse_json(decode(line, place), place)


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()
