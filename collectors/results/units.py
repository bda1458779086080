"""Numbers of result files, exactly: from the digits a tool wrote to whole units of ours.

Rounding is half to even and happens once. NaN, the infinities, text, and a duration below zero
raise `InputError`; null stays null only where the caller says so.
"""

import re
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction

from collectors.results.stream import WORDS
from replay.errors import InputError, describe
from replay.strict import integer

SECONDS, MILLISECONDS, NANOSECONDS = 0, 3, 9  # decimal places of a unit below the second
_MICRO, _NANO = 6, 9
_US_PER_S = 1_000_000
_MOST_SECONDS = 9_000_000_000  # as nanoseconds they have 64 bit; the year 2255 on the usual clock
_LEAST_EXPONENT = -300
_EXACT = Context(prec=400, rounding=ROUND_HALF_EVEN)


def number(value: object, place: str, field: str, unit: int = SECONDS) -> Decimal:
    """A time in `unit` as its text says: finite, and one that 64 bit of nanoseconds hold."""
    if type(value) is int:
        value = Decimal(value)
    if not isinstance(value, Decimal):
        found = value if isinstance(value, str) and value in WORDS else describe(value)
        raise InputError(place, field, "must be a finite number", found)
    if value and value.adjusted() < _LEAST_EXPONENT:
        return Decimal(0)
    if abs(value) >= _MOST_SECONDS * 10**unit:
        raise InputError(place, field, f"must be below {_MOST_SECONDS} s", "more")
    return value


def add(left: Decimal, right: Decimal) -> Decimal:
    """Their exact sum."""
    return _EXACT.add(left, right)


def less(left: Decimal, right: Decimal) -> Decimal:
    """Their exact difference."""
    return _EXACT.subtract(left, right)


def us(value: Decimal, unit: int = SECONDS) -> int:
    """Whole microseconds."""
    return _whole(value, _MICRO - unit)


def ns(value: Decimal, unit: int = SECONDS) -> int:
    """Whole nanoseconds."""
    return _whole(value, _NANO - unit)


def duration(value: object, place: str, field: str, unit: int = SECONDS) -> Decimal:
    """Exact seconds of a duration, which is never negative."""
    found = number(value, place, field, unit)
    if found < 0:
        raise InputError(place, field, "must be >= 0", describe(found))
    return _EXACT.scaleb(found, -unit) if unit else found


def duration_us(value: object, place: str, field: str, unit: int = SECONDS) -> int:
    """Whole microseconds of a duration, which is never negative."""
    return us(duration(value, place, field, unit))


def tpot_us(first: Decimal | None, last: Decimal | None, count: int | None) -> int | None:
    """TPOT of `count` tokens between two moments in seconds, rounded once; None below two tokens.

    `collectors.tpot` is of whole microseconds: these would be rounded before they are divided.
    """
    if first is None or last is None or count is None or count < 2:  # noqa: PLR2004
        return None
    return round(Fraction(less(last, first)) * _US_PER_S / (count - 1))


def between_us(start: Decimal, end: Decimal, place: str, field: str) -> int:
    """Whole microseconds from one moment to another, in seconds both, that is not before it."""
    took = less(end, start)
    if took < 0:
        raise InputError(place, field, "must not be before the request was sent", describe(took))
    return us(took)


def tokens(value: object, place: str, field: str) -> int | None:
    """A number of tokens, or null; `5.0`, which some tools write for 5, is 5."""
    return None if value is None else count(value, place, field)


def count(value: object, place: str, field: str) -> int:
    """The same where it has to be there."""
    if isinstance(value, Decimal):
        value = number(value, place, field)
        if value != value.to_integral_value():
            raise InputError(place, field, "must be an integer", describe(value))
        value = int(value)
    return integer(value, place, field)


def _whole(value: Decimal, places: int) -> int:
    return int(_EXACT.to_integral_value(_EXACT.scaleb(value, places)))


def epoch(value: object, place: str, field: str) -> Decimal:
    """Seconds since 1970, not before it: one such moment would move all others by decades."""
    found = number(value, place, field)
    if found < 0:
        raise InputError(place, field, "must be >= 0 (seconds since 1970)", describe(found))
    return found


def moment_ns(value: object, place: str, field: str) -> int:
    """Nanoseconds since 1970: beyond the integers that every JSON reader holds, so 64 bit."""
    if type(value) is not int:
        raise InputError(place, field, "must be an integer", describe(value))
    if not 0 <= value < 2**63:
        raise InputError(place, field, "must be >= 0 and below 2^63", describe(value))
    return value


def digits(value: object) -> object:
    """An integer for a text of digits, as protobuf's JSON writes 64 bit; anything else as it is."""
    plain = isinstance(value, str) and re.fullmatch("[0-9]{1,19}", value)
    return int(plain[0]) if plain else value
