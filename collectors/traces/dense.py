"""Hash ids renumbered from 0 by first appearance, in a few bytes each."""

from array import array
from collections.abc import Iterable

_ROOM = 2**16
_SPREAD = 8


class Dense:
    """Numbers for ids; published ids are small integers mostly, and need no dictionary."""

    def __init__(self) -> None:
        self._given = 0
        self._small = array("q")  # number of the id that is the index, -1 for none
        self._large: dict[int, int] = {}

    def numbers(self, ids: Iterable[int]) -> tuple[int, ...]:
        """The ids' numbers, new ones where an id is new."""
        small, found = self._small, []
        for one in ids:
            number = small[one] if one < len(small) else -1
            if number < 0:
                number = self._large.get(one, -1)
            found.append(self._new(one) if number < 0 else number)
        return tuple(found)

    def _new(self, one: int) -> int:
        number, self._given = self._given, self._given + 1
        # So many unused places at most, whatever the file claims.
        if one < _ROOM + _SPREAD * number:
            if one >= len(self._small):
                self._small.extend([-1] * (one + _ROOM - len(self._small)))
            self._small[one] = number
        else:
            self._large[one] = number
        return number
