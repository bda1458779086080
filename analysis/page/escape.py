"""Names from elsewhere on a page: they are shown as text, and can be nothing else.

Control characters, also those that turn the reading direction, are written out. Text is cut, so
that a name of thousands of characters does not push the verdict off the page.
"""

import html
import json
from typing import Any

from replay.strict import printable

MOST_CHARACTERS = 128
MOST_IN_A_SENTENCE = 4000
# What could end a script element, or a line for a reader that takes these for line ends.
_UNSAFE = {c: f"\\u{ord(c):04x}" for c in "<>&\u2028\u2029"}


def text(value: str, limit: int = MOST_CHARACTERS) -> str:
    """Text for an element or a quoted attribute, on one line, of at most `limit` characters."""
    return html.escape(printable(value, limit), quote=True)


def sentence(value: str) -> str:
    """As `text`, for sentences, in which names are bounded already."""
    return text(value, MOST_IN_A_SENTENCE)


def json_script(value: Any) -> str:
    """JSON that may stand in a script element: parses to the same value, holds no markup."""
    found = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    found = found.encode("utf-8", "backslashreplace").decode()
    for character, escaped in _UNSAFE.items():
        found = found.replace(character, escaped)
    return found
