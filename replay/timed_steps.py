"""What the steps of a timed replay came to, and how far they left what their durations rest on."""

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any

from replay.timing import Calibration


@dataclass(frozen=True)
class Greatest:
    """One number for each thing that a step's duration depends on."""

    prefill_tokens: int
    decode_requests: int
    kv_tokens: int


@dataclass(frozen=True)
class TimedSteps:
    """Steps that computed something, and the greatest of each size among them.

    `outside` of them went beyond the calibration's range (`beyond` counts by what, a step maybe
    under several), the first at tick `outside_since`; 0 and None without a calibration.
    """

    steps: int
    greatest: Greatest
    outside: int
    beyond: Greatest
    outside_since: int | None


def may_be_steps(found: Any, calibration: Calibration | None) -> bool:
    """Whether what a receipt says can be the `TimedSteps` of a replay with this calibration.

    No event tells how many steps computed something, or how large they were; but these numbers
    bound each other, and those beyond the calibration are those greater than it.
    """
    if not _has_keys(found, TimedSteps):
        return False
    greatest, beyond, since = found["greatest"], found["beyond"], found["outside_since"]
    if not (_has_keys(greatest, Greatest) and _has_keys(beyond, Greatest)):
        return False
    steps, outside, over = found["steps"], found["outside"], list(beyond.values())
    if not _counts([steps, outside, *greatest.values(), *over, 0 if since is None else since]):
        return False
    return (
        max(over) <= outside <= min(steps, sum(over))
        and (since is None) == (outside == 0)
        and all(
            (beyond[size] > 0)
            == (calibration is not None and greatest[size] > getattr(calibration, size))
            for size in beyond
        )
    )


def _has_keys(found: Any, kind: type[TimedSteps | Greatest]) -> bool:
    return isinstance(found, dict) and found.keys() == {field.name for field in fields(kind)}


def _counts(values: Iterable[Any]) -> bool:
    return all(type(value) is int and value >= 0 for value in values)
