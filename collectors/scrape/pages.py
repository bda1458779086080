"""All pages of a run, in whichever form they are kept: journals, compressed parts, recorded.

Compressed parts are `part-00000.jsonl.xz` (this collector's) or `.jsonl.gz`; a run that was
recorded elsewhere has `recorded.jsonl.gz`. Lines and files are bounded, whoever wrote them.
"""

import gzip
import lzma
import re
import zlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import IO

from collectors.parts import inside
from collectors.scrape.entry import Entry, entry_of, recorded_entry
from collectors.scrape.journal import PAGES, journal_entries, journal_numbers, journal_path
from replay.errors import InputError
from replay.strict import open_regular

RECORDED = "recorded.jsonl.gz"
MOST_LINE_BYTES = 64 * 2**20
_PART = re.compile(r"part-([0-9]{5})\.jsonl\.(xz|gz)")
# A small dictionary: it spans twenty pages, which repeat each other, and costs little memory.
_FILTERS = [{"id": lzma.FILTER_LZMA2, "preset": 1, "dict_size": 2**20}]
_MOST_DECODER_BYTES = 64 * 2**20


@dataclass(frozen=True)
class PagePart:
    """Pages of one part; `number` None is the recorded file, which is all parts."""

    path: Path
    number: int | None

    @property
    def is_journal(self) -> bool:
        """Whether it is a journal, not yet settled."""
        return self.path.name.startswith("journal-")


def page_parts(run: Path) -> list[PagePart]:
    """Everything of a run that has pages, in order; a settled part's journal is passed over."""
    folder = inside(run, PAGES)
    names = sorted(entry.name for entry in folder.iterdir()) if folder.is_dir() else []
    parts = {int(m[1]): name for name in names if (m := _PART.fullmatch(name))}
    for number in journal_numbers(run):
        parts.setdefault(number, journal_path(run, number).name)
    found = [PagePart(inside(run, PAGES, name), number) for number, name in sorted(parts.items())]
    if RECORDED in names:
        if found:
            rule = f"must hold parts or {RECORDED}, not both"
            raise InputError(str(folder), "", rule)
        return [PagePart(inside(run, PAGES, RECORDED), None)]
    return found


def part_path(run: Path, number: int) -> Path:
    """Where the pages of a settled part lie."""
    return run / PAGES / f"part-{number:05d}.jsonl.xz"


def write_pages(entries: Iterable[Entry], path: Path) -> None:
    """Write entries as compressed JSON Lines."""
    with lzma.open(path, "wb", format=lzma.FORMAT_XZ, filters=_FILTERS) as file:
        for entry in entries:
            file.write(entry.line() + b"\n")


def read_pages(part: PagePart) -> Iterator[Entry]:
    """Entries of one part; what is damaged raises `InputError`."""
    if part.is_journal:
        yield from journal_entries(part.path)
        return
    start_unix_ns: int | None = None
    for number, line in enumerate(_lines(part.path)):
        place = f"{part.path}: line {number}"
        if part.number is not None:
            yield entry_of(line, place)
            continue
        if start_unix_ns is None:
            start_unix_ns = recorded_entry(line, place, 0).unix_ns
        yield recorded_entry(line, place, start_unix_ns)


def _lines(path: Path) -> Iterator[bytes]:
    with open_regular(path) as raw, _decompressed(raw, path) as file:
        try:
            for _ in count():
                line = file.readline(MOST_LINE_BYTES + 1)
                if not line:
                    return
                if len(line) > MOST_LINE_BYTES:
                    rule = f"lines must have at most {MOST_LINE_BYTES} bytes"
                    raise InputError(str(path), "", rule, "more")
                yield line.rstrip(b"\n")
        except (lzma.LZMAError, EOFError, gzip.BadGzipFile, zlib.error) as exc:
            raise InputError(str(path), "", "must be whole and compressed as named") from exc


def _decompressed(raw: IO[bytes], path: Path) -> gzip.GzipFile | lzma.LZMAFile:
    if path.suffix == ".gz":
        return gzip.GzipFile(fileobj=raw, mode="rb")
    return lzma.LZMAFile(raw)
