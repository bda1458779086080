"""Every name, text and number of a file or directory, by column or key, for the privacy check.

Parquet and CSV are read by columns, JSON and TOML by keys, any other text by lines. What cannot be
read is told as odd, and what is text in it looked at by lines: a file nobody can look into is not
one that holds nothing, and hides nothing of the others.
"""

import base64
import binascii
import csv
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

import polars as pl

from replay.errors import InputError
from replay.parquet import open_batches
from replay.strict import decode, open_regular, parse_json, read_text, read_toml

_UNREADABLE = "cannot be read: "
EACH = "[]"  # stands for every entry of a list
ABSOLUTE_TIMES = "absolute times"
_MOST_LINE_BYTES = 2**24
_MOST_TEXT_BYTES = 2**24  # of a file of no known form: it is text, the first of it says what kind
_MOST_FILES = 100_000
_MOST_VALUES = 100_000  # one after the other in a .json file
_LOOK_BYTES = 2**16
_CSV_ROWS = 2**14
_PACKED = (".gz", ".zst", ".xz", ".bz2", ".zip", ".tar", ".tgz", ".7z")
_TEXTS = (".json", ".toml", ".csv", ".tsv")
_BINARY = "binary, so nobody looks into it"
_JSON_SPACE = re.compile(r"[ \t\r\n]*")
_SCHEMA_COPY = "ARROW:schema"  # columns' names and types once more, in a form of its own
_RUN = re.compile(rb"[\x20-\x7e]{6,}")
_HEADER = re.compile(r"[^\W\d][\w .:/()-]{0,100}")


@dataclass(frozen=True)
class Found:
    """Texts, or the range of numbers, of one column or key; or its name; or what it is at all.

    `column` are names from the outside in; `position` counts a column from 1 where its name could
    be a value. `odd` says in our words what is wrong with it as such.
    """

    place: Path
    column: tuple[str, ...]
    texts: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    name: str | None = None
    odd: str | None = None
    position: int | None = None


def scan(path: Path) -> Iterator[Found]:
    """What a file, or everything below a directory, holds; places are relative to a directory.

    A path that is not there is an `InputError`.
    """
    if path.is_symlink():
        path = path.resolve()  # a link that was asked for is what it leads to
    if not path.is_dir():
        _check_there(path)
        yield from _scan_file(path, Path(path.name))
        return
    files, shut = 0, list[OSError]()
    for folder, names, entries in os.walk(path, onerror=shut.append):
        names.sort()
        for entry in sorted((*names, *entries)):
            files += 1
            if files > _MOST_FILES:
                yield Found(Path(), (), odd=f"more than {_MOST_FILES} files: the others not read")
                return
            full = Path(folder, entry)
            place = full.relative_to(path)
            yield Found(place, (), name=entry)
            if entry not in names or full.is_symlink():
                yield from _scan_file(full, place)
    for exc in shut:
        yield Found(Path(exc.filename).relative_to(path), (), odd=f"{_UNREADABLE}{exc.strerror}")


def _check_there(path: Path) -> os.stat_result:
    try:
        return path.lstat()
    except OSError as exc:
        raise InputError(str(path), "", f"{_UNREADABLE}{exc.strerror}") from exc


def _scan_file(path: Path, place: Path) -> Iterator[Found]:
    try:
        yield from _scan_known(path, place)
    except InputError as exc:
        yield Found(place, (), odd=_unreadable(exc))
        if path.suffix.lower() in _TEXTS:
            with suppress(InputError):  # nobody may open it, which was just told
                yield from _scan_text(path, place)


def _unreadable(exc: InputError) -> str:
    """That it cannot be read, and the rule it breaks: what a parser adds can be the file's text."""
    return _UNREADABLE + exc.rule.removeprefix(_UNREADABLE).partition(":")[0]


def _scan_known(path: Path, place: Path) -> Iterator[Found]:
    mode = _check_there(path).st_mode
    if not stat.S_ISREG(mode):
        odd = "a symbolic link" if stat.S_ISLNK(mode) else "neither a file nor a directory"
        yield Found(place, (), odd=odd)
        return
    match path.suffix.lower():
        case ".parquet":
            yield from _scan_parquet(path, place)
        case ".json":
            for value in _json_values(read_text(path), str(path)):
                yield from _scan_value(place, (), value)
        case ".jsonl":
            yield from _scan_records(path, place)
        case ".toml":
            yield from _scan_value(place, (), read_toml(path))
        case ".csv" | ".tsv" as suffix:
            yield from _scan_csv(path, place, "," if suffix == ".csv" else "\t")
        case suffix if suffix in _PACKED:
            yield Found(place, (), odd="packed, so nobody looks into it")
        case _:
            yield from _scan_text(path, place)


def _scan_parquet(path: Path, place: Path) -> Iterator[Found]:
    with open_batches(path) as (_, metadata, columns, batches):
        names = set(_names(columns))
        for key, text in metadata.items():
            column = ("metadata", key)
            yield Found(place, column, name=key)
            if key == _SCHEMA_COPY:
                yield Found(place, column, _beside_names(text, names))
            else:
                yield from _scan_metadata(place, column, text)
        for name in columns:
            yield Found(place, (name,), name=name)
        for batch in batches:
            for name in batch.columns:
                yield from _scan_column(place, (name,), batch[name])


def _names(columns: pl.Schema) -> Iterator[str]:
    """Every name within the columns' types; a list's entries have one, too."""
    todo: list[tuple[str, Any]] = list(columns.items())
    while todo:
        name, kind = todo.pop()
        yield from (name, "item", "element")
        if isinstance(kind, pl.List):
            todo.append((name, kind.inner))
        elif isinstance(kind, pl.Struct):
            todo += [(inner.name, inner.dtype) for inner in kind.fields]


def _beside_names(text: str, names: set[str]) -> tuple[str, ...]:
    """Texts in a copy of the schema that are no column's name."""
    try:
        left = base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return (text,)
    for name in sorted(names, key=len, reverse=True):
        left = left.replace(name.encode(), b"\0")
    return tuple(run.decode("ascii") for run in _RUN.findall(left))


def _scan_metadata(place: Path, column: tuple[str, ...], text: str) -> Iterator[Found]:
    try:
        value = parse_json(text, str(place))
    except InputError:
        value = text
    yield from _scan_value(place, column, value)


def _scan_column(place: Path, column: tuple[str, ...], values: pl.Series) -> Iterator[Found]:
    kind = values.dtype
    if isinstance(kind, pl.List):
        yield from _scan_column(place, (*column, EACH), values.explode())
    elif isinstance(kind, pl.Struct):
        for inner in kind.fields:
            below = (*column, inner.name)
            yield Found(place, below, name=inner.name)
            yield from _scan_column(place, below, values.struct.field(inner.name))
    elif kind == pl.String:
        yield Found(place, column, tuple(values.drop_nulls().unique(maintain_order=True)))
    elif kind.is_numeric():
        yield Found(place, column, (), _number(values.min()), _number(values.max()))
    elif kind in (pl.Date, pl.Datetime, pl.Time):
        yield Found(place, column, odd=ABSOLUTE_TIMES)
    elif kind not in (pl.Boolean, pl.Null, pl.Duration):
        yield Found(place, column, odd="values of a type that nobody looks into")


def _json_values(text: str, place: str) -> Iterator[Any]:
    """The value of a text, or those that somebody appended to one another."""
    try:
        yield parse_json(text, place)
    except InputError:
        decoder, at = json.JSONDecoder(), 0
        for _ in range(_MOST_VALUES):
            at = _end_of_space(text, at)
            if at == len(text):
                return
            try:
                end = decoder.raw_decode(text, at)[1]
            except (ValueError, RecursionError):
                end = len(text)  # and what is wrong is said by who reads it
            yield parse_json(text[at:end], place)
            at = end
        if _end_of_space(text, at) < len(text):
            raise InputError(
                place, "", f"must hold at most {_MOST_VALUES} values", "more"
            ) from None


def _end_of_space(text: str, at: int) -> int:
    space = _JSON_SPACE.match(text, at)
    return space.end() if space else at


def _scan_records(path: Path, place: Path) -> Iterator[Found]:
    with open_regular(path) as file:
        while line := file.readline(_MOST_LINE_BYTES):
            if not line.strip():
                continue
            try:
                record = parse_json(decode(line, str(path)), str(path))
            except InputError as exc:
                yield Found(place, (), odd=_unreadable(exc))
                if b"\0" in line:
                    yield Found(place, (), odd=_BINARY)
                    return
                yield Found(place, ("lines",), (line.decode(errors="replace").strip(),))
            else:
                yield from _scan_value(place, (), record)


def _scan_value(place: Path, column: tuple[str, ...], value: Any) -> Iterator[Found]:
    todo = [(column, value)]
    while todo:
        names, one = todo.pop()
        match one:
            case dict():
                for key, inner in one.items():
                    yield Found(place, (*names, key), name=key)
                    todo.append(((*names, key), inner))
            case list():
                todo += [((*names, EACH), inner) for inner in one]
            case str():
                yield Found(place, names, (one,))
            case bool() | None:
                pass
            case int() | float():
                yield Found(place, names, (), float(one), float(one))
            case datetime() | date() | time():
                yield Found(place, names, odd=ABSOLUTE_TIMES)
            case _:
                yield Found(place, names, odd="a number of too many digits")


def _scan_csv(path: Path, place: Path, delimiter: str) -> Iterator[Found]:
    with open_regular(path) as file:
        lines = iter(lambda: file.readline(_MOST_LINE_BYTES).decode(errors="replace"), "")
        try:
            rows: Iterator[list[str]] = csv.reader(lines, delimiter=delimiter)
            first = next(rows, [])
            names = [cell.strip() for cell in first]
            if not all(_HEADER.fullmatch(name) for name in names):
                names, rows = [], chain([first], rows)
            for k, name in enumerate(names, 1):
                yield Found(place, (name,), name=name, position=k)
            while part := list(islice(rows, _CSV_ROWS)):
                for k, cells in enumerate(zip_longest(*part, fillvalue=""), 1):
                    column = (names[k - 1] if k <= len(names) else "",)
                    yield from _scan_cells(place, column, k, {cell.strip() for cell in cells})
        except csv.Error as exc:
            raise InputError(
                str(path), "", "must be CSV with cells of at most 131072 bytes"
            ) from exc


def _scan_cells(
    place: Path, column: tuple[str, ...], position: int, cells: set[str]
) -> Iterator[Found]:
    texts, numbers = list[str](), list[float]()
    for cell in cells:
        try:
            numbers.append(float(cell))
        except ValueError:
            texts.append(cell)
    yield Found(place, column, tuple(texts), position=position)
    if numbers:
        yield Found(place, column, (), min(numbers), max(numbers), position=position)


def _scan_text(path: Path, place: Path) -> Iterator[Found]:
    with open_regular(path) as file:
        start = file.read(_LOOK_BYTES)
        if b"\0" in start:
            yield Found(place, (), odd=_BINARY)
            return
        data = start + file.read(_MOST_TEXT_BYTES)
    for line in data.decode(errors="replace").splitlines():
        yield Found(place, ("lines",), (line.strip(),))


def _number(value: object) -> float | None:
    """As a float; what is no number (no value at all) has none."""
    return None if value is None else float(value)  # type: ignore[arg-type]
