"""One engine process on its way into a run: read frame by frame, to its end or to damage."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from collectors.pack.facts import facts_of
from collectors.pack.rows import SessionRows
from collectors.spool import Header, Key, Part, read_part, said
from replay.errors import InputError

_OUTSIDE = ("steps_outside", "requests_before", "requests_after")


@dataclass
class Session:
    """What was read of a session: up to byte `offset` of part `part`."""

    key: Key
    header: Header
    rows: SessionRows
    part: int = -1
    offset: int = 0
    closed: bool = False
    lost_parts: int = 0
    left_out: list[int] = field(default_factory=list)  # parts that hold more than the run does
    damage: str | None = None  # what ended it, and where

    @property
    def position(self) -> list[Any]:
        """How far it is, and what became of it."""
        return [self.part, self.offset, self.closed, self.left_out, self.damage]

    def read(self, part: Part, parts: list[Part], stop: Callable[[], bool]) -> bool:
        """Read a part on, of those listed; False if `stop`, asked after each frame, said so."""
        if part.number < self.part:
            return True
        start = self.offset if part.number == self.part else 0
        for frame in read_part(part, start):
            if frame.header is not None:
                self._check(part, frame.header)
            before = self._outside()
            self.rows.take(frame)
            if frame.header is not None:
                self._enter(part, frame.header, parts)
            self.offset = frame.end
            if self._outside() > before:
                self._leave_out(part)
            if stop():
                return False
        return True

    def read_until(self, parts: list[Part], end: tuple[int, int]) -> None:
        """Read on to a position that it had before."""
        if end == (self.part, self.offset):
            return
        for part in parts:
            try:
                if not self.read(part, parts, lambda: end == (self.part, self.offset)):
                    return
            except InputError as exc:
                if is_passing(exc):
                    raise
                break
        self.lost_parts += 1  # somebody deleted, or damaged, what was not packed

    def spoil(self, part: Part, exc: InputError | OSError) -> None:
        """Nothing more can be taken of it."""
        self.damage = said(part, exc)
        self._leave_out(part)

    def close(self) -> None:
        """It is over: what has not ended is censored."""
        self.rows.censor()
        self.closed = True

    def _check(self, part: Part, header: Header) -> None:
        place = f"{part.path}: line 1"
        check_same(facts_of(header, place), facts_of(self.header, place), place)

    def _enter(self, part: Part, header: Header, parts: list[Part]) -> None:
        between = range(self.part + 1, part.number)
        self.lost_parts += len(between) - sum(one.number in between for one in parts)
        self.part = part.number
        self.header = header  # a later one has seen more of what requests use

    def _outside(self) -> int:
        return sum(self.rows.known.counts[name] for name in _OUTSIDE)

    def _leave_out(self, part: Part) -> None:
        self.left_out = sorted({*self.left_out, part.number})


def check_same(told: Mapping[str, Any], first: Mapping[str, Any], place: str) -> None:
    """Hold a part's facts to those of its session's first part."""
    if told != first:
        raise InputError(place, "", "must describe the engine of its session's first part")


def is_passing(exc: InputError | OSError) -> bool:
    """Whether reading failed, and not what was read: it may succeed another time."""
    return isinstance(exc, OSError) or isinstance(exc.__cause__, OSError)
