"""Which sessions gave their place to a later one of their engine, by when their files were written.

Not by looking for processes: an engine in another container has none that could be seen here. A
recorder that lives writes every 10 s, whatever its engine does.
"""

from collections.abc import Iterator, Mapping
from contextlib import suppress

from collectors.spool import Key, Part

SILENT_S = 30


def replaced(listed: Mapping[Key, list[Part]]) -> set[Key]:
    """Sessions that are silent while a later one of their engine writes."""
    later: dict[int, float] = {}
    found = set()
    for key, at in _written(listed):
        newest = later.get(key.engine, 0.0)
        if newest > at + SILENT_S:
            found.add(key)
        later[key.engine] = max(newest, at)
    return found


def over_before(listed: Mapping[Key, list[Part]], zero_ns: int) -> set[Key]:
    """Sessions that wrote nothing since `zero_ns`, and whose place was taken before it."""
    later: set[int] = set()
    found = set()
    for key, at in _written(listed):
        if key.engine in later and at < zero_ns / 1e9:
            found.add(key)
        if key.unix_ns <= zero_ns:
            later.add(key.engine)
    return found


def _written(listed: Mapping[Key, list[Part]]) -> Iterator[tuple[Key, float]]:
    """When each session last wrote, the latest session first; 0 if its file has gone."""
    for key in sorted(listed, reverse=True):
        last = 0.0
        with suppress(OSError):
            last = listed[key][-1].path.stat().st_mtime
        yield key, last
