"""Durations and moments as people write them on a command line or in a TOML file."""

import re
from datetime import UTC, datetime
from fractions import Fraction

from replay.errors import InputError

_UNITS_US = {
    "us": 1,
    "ms": 1_000,
    "s": 1_000_000,
    "m": 60_000_000,
    "h": 3_600_000_000,
    "d": 86_400_000_000,
}
_DURATION = re.compile(r"([0-9]{1,12})(?:\.([0-9]{1,9}))?(us|ms|s|m|h|d)", re.ASCII)
_SIZES = {"": 1, "B": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_SIZE = re.compile(r"([0-9]{1,15}) ?(|B|KiB|MiB|GiB|TiB)", re.ASCII)
LONGEST_US = 36_500 * _UNITS_US["d"]


def duration_us(text: str, field: str, place: str = "", minimum_us: int = 1) -> int:
    """Microseconds of `500ms`, `1s`, `1.5s`, `10m`, `6h` or `30d`.

    Anything else, a fraction of a microsecond, and less than `minimum_us` is an `InputError`.
    """
    match = _DURATION.fullmatch(text)
    if not match:
        rule = "must be a number and a unit (us, ms, s, m, h, d), e.g. 1s, 500ms or 10m"
        raise InputError(place or "options", field, rule, f"{len(text)} characters")
    whole, fraction, unit = match.groups()
    exact = Fraction(f"{whole}.{fraction or 0}") * _UNITS_US[unit]
    if exact.denominator != 1 or not minimum_us <= exact <= LONGEST_US:
        rule = f"must be whole microseconds, from {minimum_us}us to {LONGEST_US}us"
        raise InputError(place or "options", field, rule, "another duration")
    return int(exact)


def duration_text(us: int) -> str:
    """A duration as people write it, exactly: `1s`, `500ms`, `90s`, `30d`."""
    fitting = [(unit, of_us) for unit, of_us in _UNITS_US.items() if us and us % of_us == 0]
    unit, of_us = fitting[-1] if fitting else ("s", 1)
    return f"{us // of_us}{unit}"


def size_bytes(text: str, field: str, place: str = "", most_bytes: int | None = None) -> int:
    """Bytes of `1048576`, `64KiB`, `64MiB` or `2GiB`, at least 1 and at most `most_bytes`."""
    match = _SIZE.fullmatch(text)
    if not match or not (size := int(match[1]) * _SIZES[match[2]]):
        rule = "must be a size of at least 1 byte, e.g. 64MiB or 2GiB"
        raise InputError(place or "options", field, rule, f"{len(text)} characters")
    if most_bytes is not None and size > most_bytes:
        rule = f"must be at most {most_bytes} bytes"
        raise InputError(place or "options", field, rule, str(size))
    return size


def size_text(size: int) -> str:
    """A size as people write it, exactly: `256 MiB`, `20 GiB`, `1000 B`."""
    fitting = [(unit, one) for unit, one in _SIZES.items() if unit and size % one == 0]
    unit, one = fitting[-1] if size and fitting else ("B", 1)
    return f"{size // one} {unit}"


def about_bytes(size: int) -> str:
    """A size to two digits for people: `1.2 GiB`, `310 MiB`."""
    unit, one = next((u, n) for u, n in reversed(_SIZES.items()) if u and (size >= n or n == 1))
    return f"{size / one:.{1 if one > 1 and size < 10 * one else 0}f} {unit}"


def moment_ns(text: str, field: str, place: str = "") -> int:
    """Nanoseconds since the epoch of an ISO 8601 moment that names its zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        moment = None
    if moment is None or moment.tzinfo is None:
        rule = "must be a moment with its zone, e.g. 2026-11-30T06:00:00Z"
        raise InputError(place or "options", field, rule, f"{len(text)} characters")
    since = moment - datetime(1970, 1, 1, tzinfo=UTC)
    return ((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds) * 1_000
