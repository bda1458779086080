"""Timestamps of public traces, read digit by digit into integers.

`strptime` refuses a seventh fraction digit and other readers cut it. The same reading twice: of one
text exactly, with every error, and of a column, null where the text is not of the form.
"""

import re
from dataclasses import dataclass
from datetime import date

import polars as pl

from replay.errors import InputError, describe

_DAY_NS = 86_400 * 10**9
_MOST_DAYS = 104_000  # a column counts in 64 bit
_EPOCH = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Stamp:
    """`YYYY-MM-DD`, `separator`, `HH:MM:SS`, at most nine fraction digits, `zone`."""

    field: str
    separator: str = " "
    zone: str = ""

    @property
    def rule(self) -> str:
        """What it must be, in words."""
        zone = f"the zone {self.zone}" if self.zone else "no zone"
        return (
            f"must be YYYY-MM-DD{self.separator}HH:MM:SS with at most 9 fraction digits and {zone}"
        )

    @property
    def pattern(self) -> str:
        """Regular expression of the whole text, for readers with linear time, too."""
        two = "([0-9]{2})"
        day, time = f"([0-9]{{4}})-{two}-{two}", f"{two}:{two}:{two}"
        return rf"^{day}{self.separator}{time}(?:\.([0-9]{{1,9}}))?{re.escape(self.zone)}$"

    def ns(self, text: str, place: str) -> int:
        """Nanoseconds since 0001-01-01."""
        match = re.fullmatch(self.pattern, text)
        if match is None or not text.isascii():
            raise InputError(place, self.field, self.rule, describe(text))
        year, month, day, hour, minute, second = (int(part) for part in match.groups()[:6])
        try:
            days = date(year, month, day).toordinal() - 1
        except ValueError as exc:
            raise InputError(place, self.field, "must be a date that exists", "another") from exc
        if hour > 23 or minute > 59 or second > 59:  # noqa: PLR2004  # a clock's own numbers
            rule = "must be a time of day up to 23:59:59"
            raise InputError(place, self.field, rule, "a later one")
        seconds = ((days * 24 + hour) * 60 + minute) * 60 + second
        return seconds * 10**9 + int((match[7] or "").ljust(9, "0"))

    def column_ns(self, texts: pl.Expr, zero_ns: int) -> pl.Expr:
        """Nanoseconds after `zero_ns`; null for another form, date or time, or one too far."""
        zero_days, rest_ns = divmod(zero_ns, _DAY_NS)
        days = texts.str.slice(0, 10).str.to_date("%Y-%m-%d", strict=False).cast(pl.Int64)
        days += _EPOCH - 1 - zero_days
        hour, minute, second = (
            texts.str.slice(k, 2).cast(pl.Int64, strict=False) for k in (11, 14, 17)
        )
        bare = texts.str.strip_suffix(self.zone) if self.zone else texts
        digits = bare.str.slice(20)  # none, where the second is whole
        fraction = digits.str.pad_end(9, "0").cast(pl.Int64, strict=False)
        seconds = (hour * 60 + minute) * 60 + second
        fits = (
            texts.str.contains(self.pattern)
            & days.is_between(-_MOST_DAYS, _MOST_DAYS)
            & (hour < 24)  # noqa: PLR2004
            & (minute < 60)  # noqa: PLR2004
            & (second < 60)  # noqa: PLR2004
        )
        return pl.when(fits).then(days * _DAY_NS + seconds * 10**9 + fraction - rest_ns)
