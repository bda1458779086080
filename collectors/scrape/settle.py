"""A full journal becomes samples and compressed pages, whatever interrupts it.

Each step leaves a file that is whole, and what is there already is not made again: done twice, or
after a kill between any two steps, the result is the same. The journal goes last.
"""

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from collectors.columns import DIRECTORIES
from collectors.exposition.samples import MetricSample, samples_frame
from collectors.scrape.entry import Entry
from collectors.scrape.journal import journal_entries, journal_numbers, journal_path, repair
from collectors.scrape.pages import part_path, write_pages
from collectors.scrape.reading import read_entry
from collectors.writer import RunWriter
from replay.errors import InputError
from replay.output import new_file

if TYPE_CHECKING:
    import polars as pl

TABLE = "metric_samples"
_PIECE_ROWS = 20_000


def settle(writer: RunWriter, number: int) -> None:
    """Make the samples and the compressed pages of one journal; the journal stays.

    `drop_journal` takes it away once the manifest counts what is in it.
    """
    journal = journal_path(writer.path, number)
    if not samples_path(writer.path, number).exists():
        if writer.next_part(TABLE) != number:
            rule = f"samples must go on with part {number}; preempt collect reparse makes them anew"
            raise InputError(str(journal), "", rule, str(writer.next_part(TABLE)))
        entries = journal_entries(journal)
        writer.write_part(TABLE, frame_of(writer.manifest["run_id"], samples_of(entries)))
    pages = part_path(writer.path, number)
    if not pages.exists():
        with new_file(pages, force=False, mode=0o600) as temporary:
            write_pages(journal_entries(journal), temporary)


def drop_journal(run: Path, number: int) -> None:
    """Take away a journal that is settled and counted."""
    journal_path(run, number).unlink(missing_ok=True)


def frame_of(run_id: str, scrapes: Iterable[tuple[int, int, list[MetricSample]]]) -> "pl.DataFrame":
    """Samples as one frame, made piece by piece: a frame takes far less room than its rows do."""
    import polars as pl

    frames = [samples_frame(run_id, ())]
    frames += [samples_frame(run_id, piece) for piece in _pieces(scrapes)]
    return pl.concat(frames)


def _pieces(
    scrapes: Iterable[tuple[int, int, list[MetricSample]]],
) -> Iterator[list[tuple[int, int, list[MetricSample]]]]:
    """Scrapes in rows of them that hold `_PIECE_ROWS` samples, or one scrape more than that."""
    piece, rows = [], 0
    for scrape in scrapes:
        piece.append(scrape)
        rows += len(scrape[2])
        if rows >= _PIECE_ROWS:
            yield piece
            piece, rows = [], 0
    if piece:
        yield piece


def samples_of(entries: Iterable[Entry]) -> Iterator[tuple[int, int, list[MetricSample]]]:
    """(scrape, time_us, samples) of every entry whose page is vLLM's."""
    for entry in entries:
        found = read_entry(entry).canonical
        if found is not None:
            yield entry.scrape, entry.time_us, found.samples


def samples_path(run: Path, number: int) -> Path:
    """Where the samples of a part lie."""
    return run / DIRECTORIES[TABLE] / f"part-{number:05d}.parquet"


def repair_journals(run: Path) -> list[int]:
    """Cut what a kill left half written; returns the parts that have a journal."""
    numbers = journal_numbers(run)
    for number in numbers:
        repair(journal_path(run, number))
    for left in (run / "pages").glob(".part-*"):
        left.unlink(missing_ok=True)
    return numbers
