"""Whose TTFT, TPOT and e2e a run has: the same name is another moment in every tool.

Numbers of two sources stand in separate rows and are never judged against each other.
"""

from collections.abc import Callable
from typing import Any

from replay.canonical import canonical_json, sha256
from replay.strict import printable

FORMAT = "imported.format"
_DEFINITIONS = ("ttft", "tpot", "e2e")
_OWN = {"driven": "TTFT of the client", "observed": "TTFT of the engine"}


def latencies(value: Callable[[str], Any]) -> str | None:
    """The source in words, None where unknown; `value` gives a manifest field by its dotted name.

    A tool's name alone does not say it: what its importer keeps is part of the answer.
    """
    tool = value(FORMAT)
    if tool is None:
        return _OWN.get(value("kind"))
    told = [value(f"imported.definitions.{name}") for name in _DEFINITIONS]
    if None in told:
        return None
    return f"TTFT of {printable(tool)}, definitions {sha256(canonical_json(told))[:8]}"


def import_limitations(run_id: str, value: Callable[[str], Any]) -> list[str]:
    """What an imported run must not be read as, nothing for any other."""
    name, tool = printable(run_id), value(FORMAT)
    if tool is None:
        return []
    told = value("imported.definitions.ttft")
    found = [
        f"{name} was imported from a file of {printable(tool)}. TTFT there:"
        f" {'of an unknown definition' if told is None else printable(told, 200)}."
    ]
    return found + [text for text in [left_out(run_id, value)] if text]


def left_out(run_id: str, value: Callable[[str], Any]) -> str | None:
    """That requests of a file have no row, None where all of them have."""
    reasons = value("imported.left_out") or {}
    if not (number := sum(reasons.values())):
        return None
    words = ", ".join(f"{n:,} {printable(reason)}" for reason, n in sorted(reasons.items()))
    return (
        f"{printable(run_id)} lacks {number:,} more request{'s' * (number != 1)} of its benchmark"
        f" ({words}): no number of this run counts them."
    )
