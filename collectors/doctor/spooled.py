"""What a spool directory tells about the recorder: is it alive, whose is it, did it lose anything.

Only headers and the newest part of each living session are read: a look must not take minutes.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from collectors.spool import Dropped, End, Key, Part, Preempt, Request, list_parts, read_part
from replay.errors import InputError

# An idle engine writes its clocks every ten seconds.
FRESH_NS = 35_000_000_000
_MOST_SESSIONS = 64


class State(StrEnum):
    """What the newest sessions of a directory are doing."""

    UNREADABLE = "unreadable"
    NOTHING = "nothing"  # no session at all
    RECORDING = "recording"
    SILENT = "silent"  # neither ended nor written to: killed, or the disk refuses
    ENDED = "ended"


@dataclass(frozen=True)
class Spooled:
    """Findings; counts are of the newest part of each session in `state`, losses of all of it."""

    directory: str
    state: State
    problem: str | None = None
    sessions: int = 0
    engines: tuple[int, ...] = ()
    age_s: float | None = None  # since the last write
    header: Mapping[str, Any] | None = field(default=None, repr=False)
    requests: int = 0
    preempts: int = 0
    dropped: int = 0
    errors: int = 0
    off: bool = False


@dataclass
class _Session:
    key: Key
    age_ns: int
    ended: bool = False
    header: Mapping[str, Any] | None = None
    requests: int = 0
    preempts: int = 0
    lost: Dropped = field(default_factory=lambda: Dropped(0))

    @property
    def state(self) -> State:
        if self.ended:
            return State.ENDED
        return State.RECORDING if self.age_ns <= FRESH_NS else State.SILENT


def spooled(directory: Path, unix_ns: int) -> Spooled:
    """Look into a spool directory at the time `unix_ns`; whatever is wrong is a finding.

    A damaged session hides no other one.
    """
    place, sessions, problem = str(directory), list[_Session](), None
    try:
        parts = list_parts(directory)
    except (InputError, OSError) as exc:
        return Spooled(place, State.UNREADABLE, problem=_said(exc))
    for key, found in list(parts.items())[-_MOST_SESSIONS:]:
        try:
            sessions.append(_session(key, found, unix_ns))
        except (InputError, OSError) as exc:
            problem = _said(exc)
    if problem is not None and not any(one.state is State.RECORDING for one in sessions):
        return Spooled(place, State.UNREADABLE, problem=problem)
    if not sessions:
        return Spooled(place, State.NOTHING)
    # Of several, the ones that are alive; else the one that began last.
    alive = [one for one in sessions if one.state is State.RECORDING] or sessions[-1:]
    last = alive[-1]
    return Spooled(
        place,
        last.state,
        sessions=len(parts),
        engines=tuple(sorted({one.key.engine for one in alive})),
        age_s=min(one.age_ns for one in alive) / 1e9,
        header=last.header,
        requests=sum(one.requests for one in alive),
        preempts=sum(one.preempts for one in alive),
        dropped=sum(one.lost.dropped for one in alive),
        errors=sum(one.lost.internal_errors for one in alive),
        off=any(one.lost.off for one in alive),
    )


def _said(exc: InputError | OSError) -> str:
    return str(exc) if isinstance(exc, InputError) else f"cannot be read: {exc.strerror}"


def _session(key: Key, parts: list[Part], unix_ns: int) -> _Session:
    part = parts[-1]
    found = _Session(key, max(0, unix_ns - part.path.stat().st_mtime_ns))
    for frame in read_part(part):
        if frame.header is not None:
            found.header = frame.header.facts
        for record in frame.records:
            match record:
                case Request():
                    found.requests += 1
                case Preempt():
                    found.preempts += 1
                case Dropped():
                    found.lost = record
                case End():
                    found.ended = True
    return found
