"""What the predicate modules share: values in report order, ids with totals, numbers in words."""

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Any

from analysis.gate.comparability import GateRun
from analysis.gate.evidence import Row
from analysis.gate.verdict import MOST_IDS, RequestRef

SIDES = ("baseline", "candidate")


def of_side(runs: Sequence[GateRun], side: str) -> list[GateRun]:
    """Runs of one side in pair order."""
    return [r for r in runs if r.side == side]


def per_side(runs: Sequence[GateRun], values: Mapping[str, float | None]) -> dict[str, Any]:
    """The keyword arguments `baseline` and `candidate` of a result; None for an unknown run."""
    return {side: tuple(values.get(r.run_id) for r in of_side(runs, side)) for side in SIDES}


def references(found: Iterable[Row]) -> tuple[RequestRef, ...]:
    """Requests of finding rows, each once, at most `MOST_IDS`."""
    refs = sorted({RequestRef(r["run_id"], r["request_id"]) for r in found})
    return tuple(refs[:MOST_IDS])


def totals(found: Iterable[Row], kind: str) -> dict[tuple[str, str], int]:
    """Total per (run, kind of finding); every row of it repeats it."""
    return {(r["run_id"], r[kind]): r["total"] for r in found}


def total(found: Iterable[Row]) -> int:
    """Requests behind the rows of one kind of finding, the unlisted ones included."""
    return sum({r["run_id"]: r["total"] for r in found}.values())


def count(number: int, noun: str) -> str:
    """A number with its noun."""
    return f"{number} {noun}{'s' * (number != 1)}"


def percent(share: float | Fraction) -> str:
    """A share for people, three significant digits."""
    return f"{float(share) * 100:.3g} %"


def exact(limit: float) -> Fraction:
    """The share as it is written in the gate: 0.1 is one tenth, not its nearest double."""
    return Fraction(repr(limit))


def least_to_show(limit: Fraction) -> int:
    """Requests that can show so small a share: with none seen in n, its 95 % bound is 3 / n."""
    return ceil(3 / limit)


def outcome(
    verdict: str,
    why: str,
    reason: str | None = None,
    found: Sequence[Row] = (),
    number: int | None = None,
) -> dict[str, Any]:
    """The deciding fields of a result; `found` are the rows of the requests it rests on."""
    return {
        "verdict": verdict,
        "why": why,
        "reasons": () if reason is None else (reason,),
        "ids": references(found),
        "ids_total": total(found) if number is None else number,
    }
