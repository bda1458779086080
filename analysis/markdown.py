"""Markdown from data that may be hostile: names cannot become markup, tables stay tables."""

import re
from collections.abc import Iterable, Sequence

from replay.strict import printable

# An underscore inside a word is only an underscore.
_SPECIAL = re.compile(r"([\\`*\[\]|~$]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9]))")
MOST_CHARACTERS = 128


def escape(text: str, limit: int = MOST_CHARACTERS) -> str:
    """Text of at most `limit` characters that renders as itself, on one line, without HTML."""
    safe = _SPECIAL.sub(r"\\\1", printable(text, limit))
    safe = safe.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return safe.replace("://", ":\u200b//").replace("@", "&#64;").replace("www.", "www&#46;")


def milliseconds(microseconds: float | None) -> str | None:
    """A time as people read it; what nobody measured stays None."""
    return None if microseconds is None else f"{microseconds / 1000:,.1f}"


def table(
    headings: Sequence[str], rows: Iterable[Sequence[object]], limit: int = MOST_CHARACTERS
) -> list[str]:
    """Lines of a table; None is shown as an en dash, text is escaped, numbers align right.

    Text of a cell is cut to `limit` characters.
    """
    rows = [list(row) for row in rows]
    numeric = [
        all(isinstance(r[k], int | float | None) for r in rows) and bool(rows)
        for k in range(len(headings))
    ]
    lines = [headings, ["---:" if right else "---" for right in numeric]]
    return [f"| {' | '.join(line)} |" for line in lines] + [
        f"| {' | '.join(_cell(value, limit) for value in row)} |" for row in rows
    ]


def _cell(value: object, limit: int) -> str:
    match value:
        case None:
            return "–"
        case bool():
            return "yes" if value else "no"
        case int():
            return f"{value:,}"
        case float():
            return f"{value:,.3f}".rstrip("0").rstrip(".")
    return escape(str(value), limit)
