"""Scrapes that could not be written yet, within a bound: a full disk must not end a collection."""

from collections import deque
from collections.abc import Iterator

from collectors.scrape.entry import Entry

MOST_BYTES = 16 * 2**20
_ENTRY_BYTES = 512


class Backlog:
    """Entries in order; when they are too many the oldest go, and are counted."""

    def __init__(self, most_bytes: int | None = None) -> None:
        self._entries: deque[Entry] = deque()
        self._bytes, self._most = 0, most_bytes or MOST_BYTES
        self.dropped: list[Entry] = []  # first and last of those that went since `forget`
        self.dropped_count = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, entry: Entry) -> None:
        """Keep an entry, and let the oldest go if that takes too much room."""
        self._entries.append(entry)
        self._bytes += _weight(entry)
        while self._bytes > self._most and len(self._entries) > 1:
            gone = self.next_out()
            self.dropped = [*self.dropped[:1], gone] if self.dropped else [gone]
            self.dropped_count += 1

    def first(self) -> Entry:
        """The oldest entry."""
        return self._entries[0]

    def next_out(self) -> Entry:
        """Take the oldest entry out."""
        entry = self._entries.popleft()
        self._bytes -= _weight(entry)
        return entry

    def drain(self) -> Iterator[Entry]:
        """Take out all, oldest first."""
        while self._entries:
            yield self.next_out()

    def forget(self) -> tuple[list[Entry], int]:
        """What was dropped since last time: first and last of it, and how many."""
        gone, self.dropped, count = self.dropped, [], self.dropped_count
        self.dropped_count = 0
        return gone, count


def _weight(entry: Entry) -> int:
    # Four bytes a character: what Python takes at most.
    return _ENTRY_BYTES + 4 * len(entry.page or "")
