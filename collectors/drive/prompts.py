"""Prompts as token ids, made from nothing but a workload and a seed: the same on every machine.

Equal chunk ids become equal tokens, and everything else is unique to its request, so that a prefix
cache hits exactly where the workload says. Every chunk and every request's own part begins with a
number of its own, written in token ids, its lowest digit first: two of them differ within their
first tokens, whatever follows. What follows is drawn from SHAKE-256.
"""

import sys
from array import array
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import shake_256

from replay.errors import InputError
from replay.workload import Request, Workload

# Special tokens come first in most vocabularies, and the smallest vocabulary we meet has 1,024.
LOWEST, END = 100, 1000
_MOST_RANGE = 2**32


@dataclass(frozen=True)
class TokenIds:
    """Ids that prompts are made of: `low` up to and without `high`."""

    low: int = LOWEST
    high: int = END

    @property
    def count(self) -> int:
        """How many there are."""
        return self.high - self.low


def token_ids(text: str) -> TokenIds:
    """Range of `LOW:HIGH`, at least two ids."""
    low, colon, high = text.partition(":")
    numbers = [int(n) for n in (low, high) if n.isascii() and n.isdigit() and len(n) <= 10]  # noqa: PLR2004
    found = TokenIds(*numbers) if colon and len(numbers) == 2 else None  # noqa: PLR2004
    if found is None or not 2 <= found.count <= _MOST_RANGE:  # noqa: PLR2004
        rule = f"must be LOW:HIGH, LOW at least 0 and HIGH at least 2 more, e.g. {LOWEST}:{END}"
        raise InputError("options", "--token-ids", rule)
    return found


class Prompts:
    """Prompts of one workload's requests, made one at a time."""

    def __init__(self, workload: Workload, seed: int, ids: TokenIds) -> None:
        self._chunk_tokens = workload.prefix_block_tokens or 0
        self._seed, self._ids = seed, ids
        self._chunks: dict[int, int] = {}
        for request in workload.requests:
            for chunk in request.prefix_blocks or ():
                self._chunks.setdefault(chunk, len(self._chunks))
        numbered = len(self._chunks) + len(workload)
        self._digits, self._numbers = 1, ids.count
        while self._numbers < numbered:
            self._digits, self._numbers = self._digits + 1, self._numbers * ids.count
        self._first = int.from_bytes(self._drawn("first", 0, 8)) % self._numbers

    def tokens(self, place: int, request: Request) -> list[int]:
        """Prompt of the request at this place of the workload, exactly `prompt_tokens` ids."""
        found: list[int] = []
        for chunk in request.prefix_blocks or ():
            found += self._part("chunk", self._chunks[chunk], self._chunk_tokens)
        left = request.prompt_tokens - len(found)
        if left > 0:
            found += self._part("own", len(self._chunks) + place, left)
        # The last chunk is cut to the prompt's length.
        return found[: request.prompt_tokens]

    def _part(self, kind: str, number: int, length: int) -> list[int]:
        """`length` tokens that begin with `number`."""
        low, count = self._ids.low, self._ids.count
        begin = list(self._number(number))[:length]
        rest = array("I" if count > 2**16 else "H")
        rest.frombytes(self._drawn(kind, number, rest.itemsize * (length - len(begin))))
        if sys.byteorder == "big":
            rest.byteswap()
        return begin + [low + drawn % count for drawn in rest]

    def _number(self, number: int) -> Iterator[int]:
        left = (self._first + number) % self._numbers
        for _ in range(self._digits):
            left, digit = divmod(left, self._ids.count)
            yield self._ids.low + digit

    def _drawn(self, kind: str, number: int, length: int) -> bytes:
        return shake_256(f"{self._seed}/{kind}/{number}".encode()).digest(length)
