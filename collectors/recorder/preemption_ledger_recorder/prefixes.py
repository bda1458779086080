"""Hashes of prompt blocks become small integers: equal text, equal number, and nothing to learn.

A number says only that two requests of this process began alike. The map is bounded: what was seen
longest ago is forgotten and, should it come back, gets a new number, which is counted.
"""

from collections.abc import Hashable, Iterable


class PrefixNumbers:
    """Numbers from 0 in order of first appearance, for at most `most` hashes at once."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._numbers: dict[Hashable, int] = {}
        self._next = 0
        self.forgotten = 0

    def of(self, hashes: Iterable[Hashable]) -> list[int]:
        """A number for each hash."""
        numbers = self._numbers
        found = []
        for one in hashes:
            number = numbers.pop(one, None)
            if number is None:
                number, self._next = self._next, self._next + 1
            numbers[one] = number  # behind all others: it was seen last
            found.append(number)
        while len(numbers) > self._most:
            del numbers[next(iter(numbers))]
            self.forgotten += 1
        return found
