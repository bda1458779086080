"""A query's result as CSV, JSON or a table for people.

CSV and JSON come as UTF-8 chunks, in the memory of one chunk. NULL and NaN are an empty CSV field
(an empty string is "") and a JSON null, an infinity is the word Infinity (a string in JSON),
integers keep every digit, lists and structs are JSON. The table shows nothing of the data that a
terminal could act on, and cuts only what is longer than a screen.
"""

import json
import math
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Literal

from analysis.query import Column, Result, check_unique
from replay.strict import printable

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

MAX_CELL_CHARACTERS = 1000
_FEWEST_COLUMN_CHARACTERS = 20  # a wider column may be folded to this, no further
_NARROW_HEADING = 12  # a heading is not broken before this
_NUMBER = re.compile(r"U?(TINY|SMALL|BIG|HUGE)?INT(EGER)?|DOUBLE|FLOAT|DECIMAL\(.*\)|BIGNUM")


def csv_chunks(result: Result) -> Iterator[bytes]:
    """CSV with a header line and newline ends."""
    yield _csv_line([_csv_field(c.name) for c in result.columns])
    for rows in result.chunks():
        yield b"".join(_csv_line([_csv_cell(v) for v in row]) for row in rows)


def json_chunks(result: Result) -> Iterator[bytes]:
    """A JSON array of objects, one to a line; JSON columns are embedded."""
    names = [c.name for c in result.columns]
    check_unique(names, "JSON")
    keys = [json.dumps(name, ensure_ascii=False) for name in names]
    embedded = [c.type == "JSON" for c in result.columns]
    start = "[\n"
    for rows in result.chunks():
        lines = []
        for row in rows:
            cells = zip(keys, row, embedded, strict=True)
            members = (f"{k}:{_embedded(v) if e else json_text(v)}" for k, v, e in cells)
            lines.append(start + "{" + ",".join(members) + "}")
            start = ",\n"
        yield "".join(lines).encode()
    yield b"[]\n" if start == "[\n" else b"\n]\n"


def json_text(value: Any) -> str:
    """One value as JSON: exact integers and decimals, ISO dates and times, bytes as hex."""
    match value:
        case None:
            return "null"
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float() if math.isnan(value):
            return "null"
        case float() if math.isinf(value):
            return f'"{_plain(value)}"'
        case float():
            return repr(value)
        case Decimal():
            return format(value, "f")
        case list() | tuple():
            return "[" + ",".join(json_text(v) for v in value) + "]"
        case dict():
            members = (
                f"{json.dumps(_plain(k), ensure_ascii=False)}:{json_text(v)}"
                for k, v in value.items()
            )
            return "{" + ",".join(members) + "}"
    return json.dumps(_plain(value), ensure_ascii=False)


def print_table(result: Result, console: "Console", max_rows: int) -> tuple[int, bool]:
    """Show up to `max_rows` rows; how many, and whether there are more.

    Columns that do not fit the console side by side stand below each other, row by row.
    """
    from rich.text import Text

    rows: list[tuple[Any, ...]] = []
    for chunk in result.chunks():
        rows += chunk
        if len(rows) > max_rows:
            break
    shown = rows[:max_rows]
    if result.is_plan:
        for line in "\n".join(str(row[-1]) for row in shown).splitlines():
            console.print(Text(printable(line, MAX_CELL_CHARACTERS)), soft_wrap=True)
    else:
        print_rows(result.columns, shown, console)
    return len(shown), len(rows) > max_rows


def print_rows(
    columns: Sequence[Column], rows: Sequence[tuple[Any, ...]], console: "Console"
) -> None:
    """Show rows side by side if they fit the console, with broken headings if they must."""
    cells = [_widest(_cell(row[k]).plain for row in rows) for k in range(len(columns))]
    whole = [printable(c.name, MAX_CELL_CHARACTERS) for c in columns]
    broken = [_broken(name, cell) for name, cell in zip(whole, cells, strict=True)]
    for headings in (whole, broken):
        widths = (
            max(_widest(heading.split("\n")), min(cell, _FEWEST_COLUMN_CHARACTERS)) + 3
            for heading, cell in zip(headings, cells, strict=True)
        )
        if 1 + sum(widths) <= console.width:
            _side_by_side(headings, columns, rows, console)
            return
    _below_each_other(whole, rows, console)


def _plain(value: Any) -> str:
    match value:
        case str():
            return value
        case bytes():
            return value.hex()
        case datetime() | date() | time():
            return value.isoformat()
        case float() if math.isinf(value):
            return "Infinity" if value > 0 else "-Infinity"
        case None | bool() | int() | float() | Decimal() | list() | tuple() | dict():
            return json_text(value)
    return str(value)


def _embedded(value: Any) -> str:
    """A JSON column's own text, which a hand-made database could have made anything."""
    if not isinstance(value, str):
        return json_text(value)
    try:
        json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return json.dumps(value, ensure_ascii=False)
    return value.replace("\n", " ")


def _refuse(constant: str) -> None:
    raise ValueError(constant)


def _csv_cell(value: Any) -> str:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return ""
    return _csv_field(_plain(value))


def _csv_field(text: str) -> str:
    if text and not any(c in text for c in ',"\r\n'):
        return text
    return '"' + text.replace('"', '""') + '"'


def _csv_line(fields: list[str]) -> bytes:
    return (",".join(fields) + "\n").encode()


def _broken(name: str, widest_cell: int) -> str:
    """A heading broken after underscores where it is wider than what is under it."""
    lines, width = [""], max(widest_cell, _NARROW_HEADING)
    for piece in re.findall("[^_]*_|[^_]+", name):
        if lines[-1] and len(lines[-1]) + len(piece) > width:
            lines.append("")
        lines[-1] += piece
    return "\n".join(lines)


def _widest(texts: Iterable[str]) -> int:
    from rich.cells import cell_len

    return max(map(cell_len, texts), default=0)


def _side_by_side(
    headings: Sequence[str],
    columns: Sequence[Column],
    rows: Sequence[tuple[Any, ...]],
    console: "Console",
) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table()
    for heading, column in zip(headings, columns, strict=True):
        justify: Literal["right", "left"] = "right" if _NUMBER.fullmatch(column.type) else "left"
        table.add_column(Text(heading), overflow="fold", justify=justify)
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    console.print(table)


def _below_each_other(
    headings: Sequence[str], rows: Sequence[tuple[Any, ...]], console: "Console"
) -> None:
    from rich.rule import Rule
    from rich.table import Table
    from rich.text import Text

    for number, row in enumerate(rows, 1):
        console.print(Rule(f"row {number}", align="left"))
        table = Table(box=None, show_header=False, pad_edge=False)
        table.add_column(overflow="fold", max_width=max(20, console.width // 2))
        table.add_column(overflow="fold")
        for heading, value in zip(headings, row, strict=True):
            table.add_row(Text(heading), _cell(value))
        console.print(table)


def _cell(value: Any) -> "Text":
    """A value as text without markup; what is missing is dim, so it is no word of the data."""
    from rich.text import Text

    if value is None or (isinstance(value, float) and math.isnan(value)):
        return Text("null", style="dim")
    text = value if isinstance(value, str) else _plain(value)
    return Text(printable(text, MAX_CELL_CHARACTERS))
