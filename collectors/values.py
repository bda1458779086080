"""The rules of single columns, held over whole columns at once.

Each kind of `columns` has a polars type and a rule. A column comes in as the file gave it and goes
out in the contract's type; the first value that breaks the rule raises `InputError` with its row.
Only floats are repaired, and only one way: NaN and the infinities become null.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import polars as pl

from collectors.columns import EVENT_KINDS, STATUSES, nullable
from replay.errors import InputError, describe
from replay.strict import (
    MAX_ID_CODE_POINTS,
    MAX_SAFE_INTEGER,
    choice,
    identifier,
    integer,
    parse_json,
)

Places = Callable[[int], str]
Rule = Callable[[Any, str, str], object]

_MINIMA = {"count": 0, "positive": 1, "integer": -MAX_SAFE_INTEGER}
_CHOICES = {"status": STATUSES, "event": EVENT_KINDS}
_DTYPES: Mapping[str, pl.DataType] = {
    **dict.fromkeys(("id", "text", "labels", *_CHOICES), pl.String()),
    **dict.fromkeys(_MINIMA, pl.Int64()),
    **dict.fromkeys(("number", "bound"), pl.Float64()),
    "counts": pl.List(pl.Int64()),
}
_CONTROL = r"[\x{00}-\x{1f}\x{7f}-\x{9f}\x{2028}\x{2029}]"
_MAX_TEXT = 4096
_RESERVED_LABELS = {"engine", "model_name", "le"}


def dtype_of(kind: str) -> pl.DataType:
    """Type a column of this kind has in a frame."""
    return _DTYPES[kind.removesuffix("?")]


def type_of(kind: str) -> str:
    """Type a file's column must have, in the words of `replay.parquet`."""
    match dtype_of(kind):
        case pl.Int64():
            return "integer"
        case pl.Float64():
            return "float"
        case pl.List():
            return "list of integers"
    return "string"


def checked(column: pl.Series, kind: str, place: Places) -> pl.Series:
    """Return the column in the contract's type, every value held to its kind's rule."""
    if not nullable(kind):
        refuse_first(column.is_null(), column, place, "must not be null")
    match base := kind.removesuffix("?"):
        case "count" | "positive" | "integer":
            return _integers(column, _MINIMA[base], place)
        case "counts":
            return _lists(column, place)
        case "number" | "bound":
            return _floats(column.cast(pl.Float64), infinity=base == "bound")
    column = column.cast(pl.String)  # all null columns have no type of their own
    match base:
        case "id":
            _refuse(
                column, _odd_text(column, MAX_ID_CODE_POINTS) | (column == ""), place, identifier
            )
        case "text":
            _refuse(column, _odd_text(column, _MAX_TEXT), place, _text)
        case "labels":
            _refuse_labels(column, place)
        case _:
            options = _CHOICES[base]
            _refuse(column, ~column.is_in(options), place, partial(choice, options=options))
    return column


def refuse_first(bad: pl.Series, column: pl.Series, place: Places, rule: str) -> None:
    """Refuse the first row where `bad` is true; null is not."""
    if bad.any():
        row = int(bad.arg_true()[0])
        raise InputError(place(row), column.name, rule, describe(_value(column, row)))


def _refuse(column: pl.Series, bad: pl.Series, place: Places, rule: Rule) -> None:
    """As `refuse_first`, in the words of the rule that single values are held to."""
    if bad.any():
        row = int(bad.arg_true()[0])
        rule(_value(column, row), place(row), column.name)
        refuse_first(bad, column, place, "must keep the rule of its column")


def _value(column: pl.Series, row: int) -> Any:
    return column.slice(row, 1).to_list()[0]


def _integers(column: pl.Series, minimum: int, place: Places) -> pl.Series:
    exact = column.cast(pl.Int64, strict=False)  # what does not fit becomes null
    bad = (exact < minimum) | (exact > MAX_SAFE_INTEGER) | (exact.is_null() & column.is_not_null())
    _refuse(column, bad, place, partial(integer, minimum=minimum))
    return exact


def _lists(column: pl.Series, place: Places) -> pl.Series:
    exact = column.cast(pl.List(pl.Int64), strict=False)
    entry = pl.element()
    odd = entry.is_null() | (entry < 0) | (entry > MAX_SAFE_INTEGER)
    _refuse(column, exact.list.eval(odd).list.any(), place, _counts)
    return exact.to_frame().select(pl.when(exact.list.len() > 0).then(exact)).to_series()


def _floats(column: pl.Series, *, infinity: bool) -> pl.Series:
    keep = column.is_finite()
    if infinity:  # the last bucket of every histogram ends there
        keep |= column.is_infinite() & (column > 0)
    return column.to_frame().select(pl.when(keep).then(column)).to_series()


def _odd_text(column: pl.Series, most: int) -> pl.Series:
    return (column.str.len_chars() > most) | column.str.contains(_CONTROL)


def _refuse_labels(column: pl.Series, place: Places) -> None:
    for text in column.unique(maintain_order=True):
        try:
            _labels(text)
        except ValueError:
            rule = "must be a sorted JSON object of strings without engine, model_name and le"
            refuse_first(column == text, column, place, rule)


def _labels(text: str) -> None:
    found = parse_json(text, "")
    if not (
        isinstance(found, dict)
        and list(found) == sorted(found)
        and all(isinstance(v, str) for v in found.values())
        and _RESERVED_LABELS.isdisjoint(found)
    ):
        raise ValueError


def _text(value: str, place: str, field: str) -> None:
    rule = f"must have at most {_MAX_TEXT} code points and no control character"
    raise InputError(place, field, rule, describe(value))


def _counts(value: list[Any], place: str, field: str) -> None:
    for k, entry in enumerate(value):
        integer(entry, place, f"{field}[{k}]")
