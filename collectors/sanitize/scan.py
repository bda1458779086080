"""Every name, text and number of a file or directory, by column or key, for the privacy check.

Parquet and CSV are read by columns, JSON and TOML by keys, any other text by lines. What cannot be
read is told as odd, and what is text in it looked at by lines: a file nobody can look into is not
one that holds nothing, and hides nothing of the others.
"""

import csv
import json
import os
import re
import stat
from collections.abc import Iterator
from contextlib import suppress
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

from collectors.sanitize.found import UNREADABLE, Found, scan_value
from collectors.sanitize.parquet import scan_parquet
from replay.errors import InputError
from replay.strict import decode, open_regular, parse_json, read_text, read_toml

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
_HEADER = re.compile(r"[^\W\d][\w .:/()-]{0,100}")


def scan(path: Path) -> Iterator[Found]:
    """What a file, or everything below a directory, holds; places are relative to a directory.

    A path that is not there is an `InputError`.
    """
    if path.is_symlink():
        path = path.resolve()  # a link that was asked for is what it leads to
    if not path.is_dir():
        _check_there(path)
        place = Path(path.name)
        yield Found(place, (), name=path.name)
        yield from _scan_file(path, place)
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
        yield Found(Path(exc.filename).relative_to(path), (), odd=f"{UNREADABLE}{exc.strerror}")


def _check_there(path: Path) -> os.stat_result:
    try:
        return path.lstat()
    except OSError as exc:
        raise InputError(str(path), "", f"{UNREADABLE}{exc.strerror}") from exc


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
    return UNREADABLE + exc.rule.removeprefix(UNREADABLE).partition(":")[0]


def _scan_known(path: Path, place: Path) -> Iterator[Found]:
    mode = _check_there(path).st_mode
    if not stat.S_ISREG(mode):
        odd = "a symbolic link" if stat.S_ISLNK(mode) else "neither a file nor a directory"
        yield Found(place, (), odd=odd)
        return
    match path.suffix.lower():
        case ".parquet":
            yield from scan_parquet(path, place)
        case ".json":
            for value in _json_values(read_text(path), str(path)):
                yield from scan_value(place, (), value)
        case ".jsonl":
            yield from _scan_records(path, place)
        case ".toml":
            yield from scan_value(place, (), read_toml(path))
            yield Found(place, ("lines",), beside=tuple(read_text(path).splitlines()))
        case ".csv" | ".tsv" as suffix:
            yield from _scan_csv(path, place, "," if suffix == ".csv" else "\t")
        case suffix if suffix in _PACKED:
            yield Found(place, (), odd="packed, so nobody looks into it")
        case _:
            yield from _scan_text(path, place)


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
                yield from scan_value(place, (), record)


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
                    column = (names[k - 1],) if k <= len(names) else ()
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
        if file.read(1):
            yield Found(place, (), odd=f"longer than {len(data)} bytes: the others not read")
    lines = {line.strip() for line in data.decode(errors="replace").splitlines()}
    yield Found(place, ("lines",), tuple(lines))
