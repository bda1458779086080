"""Checks of single gate values that `replay.strict` does not know: shares, numbers, name lists."""

import math
from typing import Any

from replay.errors import InputError, describe
from replay.strict import MAX_SAFE_INTEGER, identifier

_MOST_ENTRIES = 256


def number(value: object, place: str, field: str) -> float:
    """A finite number; integers count, truth values do not."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise InputError(place, field, "must be a number", describe(value))
    if abs(value) > MAX_SAFE_INTEGER or math.isnan(value):
        raise InputError(place, field, "must be finite and within 2^53", describe(value))
    return float(value)


def at_least_zero(value: object, place: str, field: str, most: float) -> float:
    """A number from 0 to `most`."""
    found = number(value, place, field)
    if not 0 <= found <= most:
        raise InputError(place, field, f"must be from 0 to {most:g}", describe(value))
    return found


def fraction(value: object, place: str, field: str) -> float:
    """A share strictly between 0 and 1: no sample can show that a share is exactly either."""
    found = number(value, place, field)
    if not 0 < found < 1:
        raise InputError(place, field, "must be above 0 and below 1", describe(value))
    return found


def array(value: object, place: str, field: str, least: int = 0) -> list[Any]:
    """A TOML array of bounded length."""
    if not isinstance(value, list):
        raise InputError(place, field, "must be a list", describe(value))
    if not least <= len(value) <= _MOST_ENTRIES:
        rule = f"must have {least} to {_MOST_ENTRIES} entries"
        raise InputError(place, field, rule, describe(value))
    return value


def names(value: object, place: str, field: str, least: int = 0) -> tuple[str, ...]:
    """Distinct names in their order."""
    found = array(value, place, field, least)
    for k, name in enumerate(found):
        identifier(name, place, f"{field}[{k}]")
        if name in found[:k]:
            raise InputError(place, f"{field}[{k}]", "must not repeat an entry", describe(name))
    return tuple(found)
