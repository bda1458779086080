"""A ledger's columns, in ledger order or with each request's events together, and what they break.

The vectorised checks of `replay.oracle.equations` are written in these terms.
"""

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from replay.events import COLUMN, NULL, Kind
from replay.oracle.names import COLUMNS as EQUATIONS
from replay.oracle.walk import Violation

Ints: TypeAlias = NDArray[np.int64]
Mask: TypeAlias = NDArray[np.bool_]
ENTRIES = (Kind.ADMIT, Kind.RESUME)


class Columns:
    """Events by column, in the order of the ledger; what is wrong is noted in `found`."""

    def __init__(self, columns: Ints, found: list[Violation]) -> None:
        self.columns, self.found = columns, found
        self.index = self.places = np.arange(columns.shape[1])

    def __getitem__(self, column: str) -> Ints:
        values: Ints = self.columns[COLUMN[column]]
        return values

    def given(self, column: str) -> Mask:
        """Whether a column holds a value."""
        given: Mask = self[column] != NULL
        return given

    def kind(self, *kinds: Kind) -> Mask:
        """Whether an event is of one of these kinds."""
        found = np.zeros(len(self.index), bool)
        for kind in kinds:
            found |= self["kind"] == kind
        return found

    def equal(self, column: str, right: Any, where: Mask | None = None) -> None:
        """Note every event, of some only if told so, whose column has another value."""
        wrong = self[column] != right
        wrong = wrong if where is None else wrong & where
        for k in np.flatnonzero(wrong).tolist():
            value = right if np.ndim(right) == 0 else right[k]
            detail = f"{column} must be {_shown(value)}, found {_shown(self[column][k])}"
            self.found.append(Violation(EQUATIONS[column], int(self.places[k]), detail))

    def hold(self, equation: str, holds: Mask, detail: str) -> None:
        """Note every event at which an equation does not hold; `detail` says what should."""
        for seq in self.places[~holds].tolist():
            self.found.append(Violation(equation, seq, detail))


class Own(Columns):
    """Each request's events together, in order, and what came before them.

    Places here are places among these columns, -1 is none; `places` are those in the ledger.
    """

    def __init__(self, ledger: Columns, requests: int) -> None:
        super().__init__(ledger.columns, ledger.found)
        self.places = np.argsort(ledger["request_id"], kind="stable")
        self._values: dict[str, Ints] = {}
        who = self["request_id"]
        begins = np.searchsorted(who, np.arange(requests + 1))
        self.begin = begins[who]  # where this event's request begins
        self.has_events = begins[:-1] < begins[1:]
        self.ends = begins[1:][self.has_events] - 1  # last event of each request
        moves = (Kind.ARRIVE, *ENTRIES, Kind.PREEMPT, Kind.COMPLETE)
        self.move = self.before(self.kind(*moves))
        self.entry = self.before(self.kind(*ENTRIES))
        self.eviction = self.before(self.kind(Kind.PREEMPT))
        last = np.where(self.move < 0, -1, self["kind"][self.move])
        self.was_waiting = (last == Kind.ARRIVE) | (last == Kind.PREEMPT)
        self.was_running = (last == Kind.ADMIT) | (last == Kind.RESUME)

    def __getitem__(self, column: str) -> Ints:
        if column not in self._values:
            self._values[column] = super().__getitem__(column)[self.places]
        return self._values[column]

    def before(self, marked: Mask) -> Ints:
        """Place of the request's last marked event before each event."""
        place = np.maximum.accumulate(np.where(marked, self.index, -1))
        place = np.concatenate((place[:1] * 0 - 1, place[:-1]))
        return np.where(place >= self.begin, place, -1)

    def at(self, places: Ints, column: str) -> Ints:
        """A column's values at other places, NULL where there is none."""
        return np.where(places < 0, NULL, self[column][places])

    def so_far(self, amounts: Ints) -> Ints:
        """Sum of a request's amounts, this event's included."""
        total = np.cumsum(amounts)
        return total - (total - amounts)[self.begin]

    def greatest_so_far(self, values: Ints) -> Ints:
        """Greatest of a request's values (0 and up), this event's included."""
        distinct, ranks = np.unique(values, return_inverse=True)
        width = len(distinct)
        return distinct[np.maximum.accumulate(self.begin * width + ranks) - self.begin * width]

    def in_ledger_order(self, values: Ints) -> Ints:
        """Put values of these events into the order of the ledger."""
        result = np.empty_like(values)
        result[self.places] = values
        return result


def _shown(value: Any) -> str:
    return "null" if value == NULL else str(int(value))
