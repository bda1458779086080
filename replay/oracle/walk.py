"""Comparing a ledger, event by event, with the events that a profile's rules call for (SPEC §8).

A walk works out the right events on its own and hands each to a `Comparison`. A wrong value is a
violation at that event's `seq`, and the walk goes on from the right one; an event that should not
be there, or is missing, ends the walk (`Diverged`), because everything after it would be judged
against a run that never was.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NoReturn, Protocol, TypeAlias

from replay.events import CODES, COLUMNS, Event, Kind, Rows, to_events

EventProgress: TypeAlias = Callable[[int, int], None]  # (events compared, events), now and then
_EVENTS_AT_ONCE = 4096
_EVENTS_PER_REPORT = 512


@dataclass(frozen=True)
class Violation:
    """One broken equation, at one event (`seq` None: not an event's) with what was expected."""

    equation: str
    seq: int | None
    detail: str


@dataclass(frozen=True)
class Equations:
    """What a profile's events have to satisfy, by what breaks it.

    `columns`: column -> the equation a wrong value there breaks. `surplus`: kind -> the equation
    that an event of that kind breaks by being there when nothing calls for it. `complete`: the
    equation of where the ledger ends.
    """

    columns: Mapping[str, str]
    surplus: Mapping[Kind, str]
    complete: str

    @property
    def all(self) -> tuple[str, ...]:
        """Every equation once."""
        named = (*self.columns.values(), *self.surplus.values(), self.complete)
        return tuple(dict.fromkeys(named))


class Diverged(Exception):
    """The ledger's next event is not the one the rules give; holds the violation."""

    def __init__(self, violation: Violation) -> None:
        super().__init__(violation.detail)
        self.violation = violation


class Events(Protocol):
    """Events in order, to be looked at one by one."""

    def __len__(self) -> int: ...

    def __getitem__(self, place: int, /) -> Event: ...


class EventsOf:
    """Events of rows, made some at a time: all at once take several times the rows' memory."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._start = 0
        self._made: list[Event] = []

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int, /) -> Event:
        within = place - self._start
        if not 0 <= within < len(self._made):
            self._start = place - place % _EVENTS_AT_ONCE
            self._made = to_events(self._rows[self._start : self._start + _EVENTS_AT_ONCE])
            within = place - self._start
        return self._made[within]


class Comparison:
    """A ledger's events and how far they have been compared.

    `progress` hears of it now and then.
    """

    def __init__(
        self, events: Events, equations: Equations, progress: EventProgress | None = None
    ) -> None:
        self.events, self.equations = events, equations
        self._progress = progress
        self.next = 0  # position of the next event to compare
        self.violations: list[Violation] = []

    def upcoming_tick(self) -> int | None:
        """Tick of the next event, None at the end of the ledger."""
        return self.events[self.next].tick if self.next < len(self.events) else None

    def expect(self, right: Event, equation: str) -> None:
        """Compare the next event with the right one; `equation` breaks if it is missing."""
        if self._progress is not None and self.next % _EVENTS_PER_REPORT == 0:
            self._progress(self.next, len(self.events))
        if self.next == len(self.events):
            self._diverge(equation, right, "the ledger ends")
        found = self.events[self.next]
        if found != right:
            if not self._is(self.next, right):
                if self._is(self.next + 1, right):  # the right one comes next: this is surplus
                    kinds, order = self.equations.surplus, self.equations.columns["kind"]
                    equation = kinds.get(Kind(found.kind), order)
                self._diverge(equation, right, _name(found))
            self._differ(right, found)
        self.next += 1

    def finish(self) -> None:
        """Nothing more is called for: the ledger must end here."""
        if self.next < len(self.events):
            detail = f"expected no more events, found {_name(self.events[self.next])}"
            raise Diverged(Violation(self.equations.complete, self.next, detail))

    def _is(self, position: int, right: Event) -> bool:
        if position >= len(self.events):
            return False
        event = self.events[position]
        return event[_WHAT] == right[_WHAT] and event.tick == right.tick

    def _differ(self, right: Event, found: Event) -> None:
        for column, value, other in zip(COLUMNS, right, found, strict=True):
            if value != other:
                detail = f"{column} must be {_shown(column, value)}, found {_shown(column, other)}"
                equation = self.equations.columns[column]
                self.violations.append(Violation(equation, self.next, detail))

    def _diverge(self, equation: str, right: Event, found: str) -> NoReturn:
        seq = min(self.next, len(self.events) - 1) if self.events else None
        raise Diverged(Violation(equation, seq, f"expected {_name(right)}, found {found}"))


_WHAT = slice(COLUMNS.index("kind"), COLUMNS.index("request_id") + 1)


def _name(event: Event) -> str:
    return f"{_shown('kind', event.kind)} of request {event.request_id} at tick {event.tick}"


def _shown(column: str, value: int | None) -> str:
    if value is None:
        return "null"
    codes = CODES.get(column)
    if codes is not None:
        return next((c.name.lower() for c in codes if c == value), "an unknown name")
    return f"request {value}" if column in ("request_id", "requester_id") else str(value)
