"""Times of public traces that are seconds as a decimal number, read digit by digit into integers.

A binary float holds few of them exactly, so no float is made. The same reading twice: of one text
exactly, with every error, and of a column, null where the text is not plainly of the form.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import polars as pl

from replay.errors import InputError, Oversized, describe
from replay.strict import MAX_SAFE_INTEGER, integer

_SECOND_NS = 10**9
_MAX_CHARACTERS = 64
_RULE = f"must be seconds >= 0 as a decimal number of at most {_MAX_CHARACTERS} digits"
# As Python and pandas write floats: an exponent only where the number is tiny or huge.
_DECIMAL = re.compile(r"(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,3})?")
_PLAIN = r"^(0|[1-9][0-9]{0,15})(?:\.([0-9]{1,9}))?$"
_MOST_SECONDS = 9 * 10**9  # a column counts in 64 bit


@dataclass(frozen=True)
class Seconds:
    """A decimal number of seconds >= 0; digits below the nanosecond are dropped."""

    field: str

    def ns(self, text: str, place: str, found: str | None = None) -> int:
        """Nanoseconds; a message says `found`, or else of the text only its length."""
        found = describe(text) if found is None else found
        if len(text) > _MAX_CHARACTERS or not _DECIMAL.fullmatch(text):
            raise InputError(place, self.field, _RULE, found)
        time_ns = int(Fraction(text) * _SECOND_NS)
        if time_ns > MAX_SAFE_INTEGER * _SECOND_NS:
            raise InputError(place, self.field, "must be at most 2^53 - 1 seconds", found)
        return time_ns

    def of_json(self, text: str, record: Mapping[str, Any], place: str) -> int:
        """Nanoseconds of the field of a parsed line; `text` is the line."""
        value = record[self.field]
        if type(value) not in (int, float, Oversized):
            raise InputError(place, self.field, _RULE, describe(value))
        if not isinstance(value, float):
            return self.ns(str(integer(value, place, self.field)), place)
        # The record has the nearest binary number; the text says which one was meant.
        exact = json.loads(text, parse_float=str, parse_constant=str)[self.field]
        return self.ns(exact, place, describe(value))

    def column_ns(self, texts: pl.Expr, zero_ns: int) -> pl.Expr:
        """Nanoseconds after `zero_ns`; null for another form, or one too far from it."""
        zero_s, rest_ns = divmod(zero_ns, _SECOND_NS)
        whole = texts.str.extract(_PLAIN, 1).cast(pl.Int64) - zero_s
        digits = texts.str.extract(_PLAIN, 2).fill_null("")
        fraction = digits.str.pad_end(9, "0").cast(pl.Int64)
        near = whole.is_between(-_MOST_SECONDS, _MOST_SECONDS)
        return pl.when(near).then(whole * _SECOND_NS + fraction - rest_ns)
