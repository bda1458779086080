"""Keyed pseudonyms: equal under one key, unrelated under another, without the key a dead end.

HMAC-SHA-256 (RFC 2104) of the kind of name and the name, cut to 128 bit. A request's is preceded by
its place in the order of arrival, so that ids sort as requests arrive and no key decides a tie.
"""

import hmac
import re
from collections.abc import Collection, Iterable

PSEUDONYM_HEX = 32
MIN_ORDER_DIGITS = 8
REQUEST_ID = re.compile(rf"[0-9]{{{MIN_ORDER_DIGITS},16}}-[0-9a-f]{{{PSEUDONYM_HEX}}}")
TENANT = re.compile(rf"tenant-[0-9a-f]{{{PSEUDONYM_HEX}}}")
RARE_TENANT = "tenant-rare"


class Pseudonyms:
    """Pseudonyms of one key."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def of(self, kind: str, names: Iterable[str]) -> list[str]:
        """Hex digits for each name; kinds never give one name the same pseudonym."""
        start = hmac.new(self._key, kind.encode() + b"\0", "sha256")
        found = []
        for name in names:
            one = start.copy()
            one.update(name.encode())
            found.append(one.hexdigest()[:PSEUDONYM_HEX])
        return found

    def one(self, kind: str, name: str) -> str:
        """A pseudonym that says its kind."""
        return f"{kind}-{self.of(kind, [name])[0]}"

    def tenants(self, names: Collection[str]) -> dict[str, str]:
        """Tenants and what they are called."""
        return self._named("tenant", names)

    def models(self, names: Collection[str]) -> dict[str, str]:
        """Models and what they are called."""
        return self._named("model", names)

    def _named(self, kind: str, names: Collection[str]) -> dict[str, str]:
        told = zip(names, self.of(kind, names), strict=True)
        return {name: f"{kind}-{digits}" for name, digits in told}


def order_digits(requests: int) -> int:
    """Width of the order in the ids of so many requests."""
    return max(MIN_ORDER_DIGITS, len(str(max(requests - 1, 0))))
