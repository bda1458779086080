"""What a look comes to: findings for people, the same as facts for machines, and a code."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

FINE, MISSING, NO_LOOK = 0, 1, 2


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"
    NOTE = "note"
    WARN = "warn"
    MISS = "miss"  # something that is needed is not there


@dataclass(frozen=True)
class Finding:
    """One thing that was found; `text` may hold names that came from the server."""

    level: Level
    topic: str
    text: str


@dataclass(frozen=True)
class Diagnosis:
    """`code` is what the command ends with; where it is `NO_LOOK`, `headline` says all there is.

    `steps` are commands to copy, lines that begin with # are for people.
    """

    code: int
    headline: str
    facts: Mapping[str, Any]
    findings: tuple[Finding, ...] = ()
    steps: tuple[str, ...] = ()


def listed(names: list[str], most: int = 6) -> str:
    """Some names, and how many there are beside them."""
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def plural(count: int, what: str) -> str:
    """`1 block`, `2 blocks`."""
    return f"{count:,} {what}" + ("" if count == 1 else "s")
