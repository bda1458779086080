"""Numbers in the cells of CSV traces: exactly, one at a time, or a column with nulls for doubt."""

import re

import polars as pl

from replay.errors import InputError, Oversized, describe
from replay.strict import MAX_SAFE_INTEGER, integer

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]*)")
_MAX_DIGITS = 30


def integer_of(text: str, place: str, field: str) -> int:
    """A safe integer >= 0 in plain digits."""
    if not _INTEGER.fullmatch(text):
        raise InputError(place, field, "must be an integer in plain digits", describe(text))
    value = int(text) if len(text) <= _MAX_DIGITS else Oversized(len(text.lstrip("-")))
    return integer(value, place, field)


def integer_column(name: str) -> pl.Expr:
    """The same of a column; null where `integer_of` would refuse."""
    value = pl.col(name).cast(pl.Int64, strict=False)
    plain = pl.col(name).str.contains("^(?:0|[1-9][0-9]*)$") & (value <= MAX_SAFE_INTEGER)
    return pl.when(plain).then(value)
