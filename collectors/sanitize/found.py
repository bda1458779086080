"""What a scan tells of a file, a column or a key at a time, whatever the file is."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

EACH = "[]"  # stands for every entry of a list
ABSOLUTE_TIMES = "absolute times"
_MOST = 1e300  # nobody counts so far, and no float goes much further
UNREADABLE = "cannot be read: "


@dataclass(frozen=True)
class Found:
    """Texts, or the range of numbers, of one column or key; or its name; or what it is at all.

    `column` are names from the outside in; `position` counts a column from 1 where its name could
    be a value. `odd` says in our words what is wrong with it as such. `beside` are texts that are
    no values: comments, or bytes that look like text.
    """

    place: Path
    column: tuple[str, ...]
    texts: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    name: str | None = None
    odd: str | None = None
    position: int | None = None
    beside: tuple[str, ...] = ()


def scan_value(place: Path, column: tuple[str, ...], value: Any) -> Iterator[Found]:
    """Keys, texts and numbers of what JSON or TOML holds."""
    todo = [(column, value)]
    while todo:
        names, one = todo.pop()
        match one:
            case dict():
                for key, inner in one.items():
                    yield Found(place, (*names, key), name=key)
                    todo.append(((*names, key), inner))
            case list():
                todo += [((*names, EACH), inner) for inner in one]
            case str():
                yield Found(place, names, (one,))
            case bool() | None:
                pass
            case int() | float() if abs(one) <= _MOST:
                yield Found(place, names, (), float(one), float(one))
            case datetime() | date() | time():
                yield Found(place, names, odd=ABSOLUTE_TIMES)
            case _:
                yield Found(place, names, odd="a number of too many digits")
