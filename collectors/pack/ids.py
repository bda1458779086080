"""Request ids made unique within an engine, in memory that millions of requests fit into."""

import re
from array import array
from collections.abc import Iterable
from hashlib import blake2b

from replay.strict import MAX_ID_CODE_POINTS

_ODD = re.compile("[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_SLOTS = 1024


class SeenIds:
    """A set of ids that keeps eight bytes of a hash of each, in a table at most half full.

    Two ids of one hash are as rare as 2^-64 a pair, and then only one is renamed without need.
    """

    def __init__(self, ids: Iterable[str] = ()) -> None:
        self._slots = array("Q", bytes(8 * _SLOTS))
        self._count = 0
        for one in ids:
            self.add(one)

    def add(self, one: str) -> bool:
        """Keep an id; False if it was there."""
        digest = blake2b(one.encode("utf-8", "surrogatepass"), digest_size=8).digest()
        value = int.from_bytes(digest) or 1
        slot = self._slot(value)
        if self._slots[slot]:
            return False
        self._slots[slot] = value
        self._count += 1
        if 2 * self._count > len(self._slots):
            self._grow()
        return True

    def _slot(self, value: int) -> int:
        """Where a hash is, or would be put."""
        slots, last = self._slots, len(self._slots) - 1
        slot = value & last
        while slots[slot] not in {0, value}:
            slot = (slot + 1) & last
        return slot

    def _grow(self) -> None:
        old, self._slots = self._slots, array("Q", bytes(16 * len(self._slots)))
        for value in old:
            if value:
                self._slots[self._slot(value)] = value


def row_id(found: str, mark: str, seen: SeenIds, *, free: bool = True) -> str:
    """Id for a request's rows: its own, or marked with `mark` where that is taken or no id at all.

    `mark` is the request's alone within its engine, so the same records give the same ids. An id
    that is not `free` is kept for another request.
    """
    if not found or len(found) > MAX_ID_CODE_POINTS or _ODD.search(found):
        found = ""
    if found and free and seen.add(found):
        return found
    end = f"~{mark}"
    one = (found or "unnamed")[: MAX_ID_CODE_POINTS - len(end)] + end
    while not seen.add(one):  # a client may well have sent an id that looks like ours
        end += "~"
        one = one[: MAX_ID_CODE_POINTS - len(end)] + end
    return one
