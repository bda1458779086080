"""The recorder's writer: bounds, refusals of the disk, parts, and the small rules beside it."""

import errno
import json
import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from collectors.spool import Dropped, End, Header, Step, list_parts, read_header, read_part

sys.path.insert(0, str(Path(__file__).parents[1] / "collectors" / "recorder"))

from preemption_ledger_recorder import facts, files, notes, spool
from preemption_ledger_recorder.ids import client_id
from preemption_ledger_recorder.prefixes import PrefixNumbers

STEM = "0-1-2"


def header(part: int) -> bytes:
    """What every part begins with."""
    names = {"engine": 0, "part": part, "unix_ns": 2, "monotonic_ns": 1}
    return json.dumps({"schema": "preemption-spool/1", **names, "columns": facts.COLUMNS}).encode()


def parts_in(directory: Path, most_bytes: int = 2**30) -> files.Parts:
    """Parts of a session whose clock looks at the directory each time."""
    ticks = count(step=10.0)
    return files.Parts(directory, STEM, header, most_bytes=most_bytes, clock=lambda: next(ticks))


@pytest.fixture
def writer(tmp_path: Path) -> Iterator[Callable[..., spool.Spool]]:
    """Makes writers whose thread is not started: a test calls what the thread would."""
    ticks = count()

    def make(most_bytes: int = 2**30, most_hashes: int = 9) -> spool.Spool:
        return spool.Spool(
            parts_in(tmp_path / "spool", most_bytes),
            PrefixNumbers(most_hashes),
            pair=lambda: (next(ticks), 10**12),
            pause=lambda _: None,
        )

    return make


def read(directory: Path) -> tuple[list[Header | None], list[Any]]:
    """Headers of all parts, and all records."""
    ((_, parts),) = list_parts(directory).items()
    records = [r for part in parts for frame in read_part(part) for r in frame.records]
    return [read_header(part) for part in parts], records


def step(number: int) -> tuple[Any, ...]:
    """The record of a step."""
    return ("S", number, 5, 1, 0, 1, 1, 1, 1, 0)


def refuse(monkeypatch: pytest.MonkeyPatch, after: int) -> None:
    """Let the disk be full after so many bytes of a frame."""
    real = os.write

    def write(file: int, data: bytes) -> int:
        if len(data) <= after:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(file, data[: len(data) - after])

    monkeypatch.setattr(os, "write", write)


def test_a_full_buffer_drops_the_newest_and_counts_them(
    tmp_path: Path, writer: Callable[..., spool.Spool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was there first is written; the loss is told in a record."""
    monkeypatch.setattr(spool, "MOST_RECORDS", 3)
    one = writer()
    for number in range(5):
        one.buffer.put(step(number))
    one.flush()
    _, records = read(tmp_path / "spool")
    assert [0, 1, 2] == [r.step for r in records if isinstance(r, Step)]
    assert [2] == [r.dropped for r in records if isinstance(r, Dropped)]


def test_hashes_in_the_buffer_are_bounded(
    writer: Callable[..., spool.Spool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long prompts cannot fill memory while the disk is away, and room comes back."""
    monkeypatch.setattr(spool, "MOST_HASHES", 5)
    buffer = writer().buffer
    request = ("R", 0, "a", None, 99, 1, 0, [b"x"] * 6, None)
    buffer.put(request)
    buffer.put(request)
    assert (1, 1) == (buffer.waiting(), buffer.refused)
    assert request == buffer.get()
    buffer.put(request)
    assert (1, 1) == (buffer.waiting(), buffer.refused)


def test_a_full_disk_loses_no_frame_that_it_takes_later(
    tmp_path: Path, writer: Callable[..., spool.Spool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half a frame is cut off again, and the same frame is written when there is room."""
    one = writer()
    one.buffer.put(step(0))
    assert one.flush()
    (part,) = (tmp_path / "spool").iterdir()
    size = part.stat().st_size
    with monkeypatch.context() as full:
        refuse(full, after=20)
        one.buffer.put(step(1))
        assert not one.flush()
        assert not one.flush()
        assert size == part.stat().st_size
    one.buffer.put(step(2))
    assert one.flush()
    assert one.flush()
    _, records = read(tmp_path / "spool")
    assert [0, 1, 2] == [r.step for r in records if isinstance(r, Step)]
    assert [] == [r for r in records if isinstance(r, Dropped)]


def test_the_cap_holds_for_the_whole_directory_and_the_end_is_told(
    tmp_path: Path, writer: Callable[..., spool.Spool]
) -> None:
    """Parts of others count; once a reader deleted them, writing goes on."""
    (tmp_path / "spool").mkdir(mode=0o700)
    other = tmp_path / "spool" / f"1-1-1-00000{files.SUFFIX}"
    other.write_bytes(bytes(5000))
    one = writer(most_bytes=5100)
    one.buffer.put(step(0))
    assert not one.flush()
    other.unlink()
    assert one.flush()
    one.close()
    one.finish()
    _, records = read(tmp_path / "spool")
    assert [0] == [r.step for r in records if isinstance(r, Step)]
    assert isinstance(records[-1], End)


def test_a_part_that_is_full_or_gone_is_followed_by_the_next(
    tmp_path: Path, writer: Callable[..., spool.Spool], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each part has the header; a reader that deletes the part in hand loses only that."""
    monkeypatch.setattr(files, "PART_BYTES", 1)
    one = writer()
    for number in range(3):
        one.buffer.put(step(number))
        assert one.flush()
    headers, records = read(tmp_path / "spool")
    assert [0, 1, 2] == [h.part for h in headers if h]
    assert [0, 1, 2] == [r.step for r in records if isinstance(r, Step)]
    monkeypatch.setattr(files, "PART_BYTES", 2**24)
    for part in (tmp_path / "spool").iterdir():
        part.unlink()
    one.buffer.put(step(3))
    assert one.flush()
    assert [f"{STEM}-00003{files.SUFFIX}"] == [p.name for p in (tmp_path / "spool").iterdir()]


def test_a_record_that_cannot_be_told_is_counted(
    tmp_path: Path, writer: Callable[..., spool.Spool]
) -> None:
    """One of a kind nobody foresaw costs itself."""
    one = writer()
    one.buffer.put(("S", object()))
    one.buffer.put(step(0))
    one.flush()
    _, records = read(tmp_path / "spool")
    assert [1] == [r.dropped for r in records if isinstance(r, Dropped)]


@pytest.mark.parametrize(
    ("engine", "client"),
    [
        ("cmpl-az0001-0-be0ee837", "az0001"),
        ("cmpl-a-1-2-0-be0ee837", "a-1-2"),
        ("cmpl-a-1-deadbeef-0-be0ee837", "a-1-deadbeef"),
        ("cmpl-a-0", "a"),
        ("cmpl-a-2-be0ee837", "a#p2"),
        ("3_cmpl-a-0-be0ee837", "a#3"),
        ("3_cmpl-a-1-be0ee837", "a#p1#3"),
        ("chatcmpl-a-be0ee837", "a"),
        ("0_chatcmpl-a-b-be0ee837", "a-b#0"),
        ("chatcmpl-a", "a"),
        ("17-be0ee837", "17-be0ee837"),
        ("embd-a-0", "embd-a-0"),
        ("cmpl--0-be0ee837", "cmpl--0-be0ee837"),
        ("", ""),
    ],
)
def test_the_engine_s_id_becomes_the_client_s(engine: str, client: str) -> None:
    """By one rule; samples and prompts of one call stay apart, all else is kept."""
    assert client == client_id(engine)


def test_prefix_numbers_are_dense_and_bounded() -> None:
    """What was seen longest ago is forgotten, counted, and new when it comes back."""
    numbers = PrefixNumbers(2)
    assert [0, 1, 0] == numbers.of([b"a", b"b", b"a"])
    assert [2] == numbers.of([b"c"])
    assert 1 == numbers.forgotten
    assert [0, 3] == numbers.of([b"a", b"b"])


def test_arrival_times_keep_what_a_float_holds() -> None:
    """Two floats that differ give two numbers; what is no time gives none."""
    now = 1_796_021_612.834889
    later = now + 2**-22
    assert 0 < notes.unix_ns(later) - notes.unix_ns(now) < 500  # type: ignore[operator]
    assert [None, None, None] == [notes.unix_ns(v) for v in (None, -1.0, float("nan"))]


@pytest.mark.parametrize(
    ("status", "told"),
    [
        ("FINISHED_STOPPED", ("ok", "stop")),
        ("FINISHED_ABORTED", ("aborted", "abort")),
        ("FINISHED_ERROR", ("error", "error")),
        ("FINISHED_OTHERWISE", ("ok", "otherwise")),
    ],
)
def test_endings_are_told_in_known_words(status: str, told: tuple[str, str]) -> None:
    """A status no release had yet is an end all the same."""
    assert told == notes.ending(status)
