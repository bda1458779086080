"""Reading a recorder's spool: strict in what it takes, and never more than a frame in memory."""

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from spools import header, write_part

from collectors import spool
from collectors.spool import Key, Part, list_parts, read_header, read_part
from replay.errors import InputError

ARRIVE = ["A", 0, 0, 6_000_000_000, 0]
REQUEST = ["R", 0, "a", None, 64, 8, 0, None]


def the_part(directory: Path) -> Part:
    """The only part of a directory."""
    (parts,) = list_parts(directory).values()
    (part,) = parts
    return part


def test_parts_of_one_process_are_one_session_in_order(tmp_path: Path) -> None:
    """Engines, restarts and parts are told apart by name; strangers' files are left alone."""
    for engine, pid, unix_ns, number in [(0, 7, 5, 1), (0, 7, 5, 0), (1, 8, 5, 0), (0, 7, 9, 0)]:
        told = header(engine=engine, pid=pid, unix_ns=unix_ns, part=number)
        write_part(tmp_path, told, [])
    (tmp_path / "notes.txt").write_text("x")
    found = {key: [part.number for part in parts] for key, parts in list_parts(tmp_path).items()}
    assert {Key(5, 0, 7): [0, 1], Key(5, 1, 8): [0], Key(9, 0, 7): [0]} == found
    assert sorted(found) == list(found)


def test_records_come_back_as_they_were_written(tmp_path: Path) -> None:
    """Every kind, by frame, and only the first frame brings the header."""
    records = [
        REQUEST,
        ARRIVE,
        ["D", 1, 0, 6_000_000_000, 0, 32],
        ["P", 2, 1, 6_000_000_000, 0, 65, 65, 1, 3, 0, 4, 1, 1],
        ["U", 3, 2, 6_000_000_000, 0, None],
        ["F", 4, 3, 6_000_000_000, 0, 8, 1, "ok", "length", 1, 2, None, 3],
        ["S", 3, 6_000_000_000, 1, 0, 1, 65, 44, 1, 0],
        ["C", 2**61, 3],
        ["X", 1],
        ["E", 4],
    ]
    write_part(tmp_path, header(), [records[:4], records[4:]])
    empty, first, second = read_part(the_part(tmp_path))
    assert empty.header is not None
    assert [] == empty.records
    assert first.header is None
    found = [list(r) for r in first.records + second.records]
    assert [r[1:] for r in records] == [
        f[: len(r) - 1] for r, f in zip(records, found, strict=True)
    ]
    assert [second] == list(read_part(the_part(tmp_path), first.end))


def test_a_torn_tail_is_normal(tmp_path: Path) -> None:
    """What a killed engine was writing is not there; nothing whole yet is no header yet."""
    path = write_part(tmp_path, header(), [[REQUEST], [ARRIVE]])
    whole = path.read_bytes()
    path.write_bytes(whole[:-3])
    assert [0, 1] == [len(frame.records) for frame in read_part(the_part(tmp_path))]
    path.write_bytes(whole[:3])
    assert read_header(the_part(tmp_path)) is None
    assert [] == list(read_part(the_part(tmp_path)))


def test_kinds_of_a_newer_recorder_are_counted(tmp_path: Path) -> None:
    """And so are fields it added behind those known, if its header names them."""
    told = header(columns={"A": ["seq", "step", "t_ns", "n", "colour"]})
    write_part(tmp_path, told, [[["Q", 1], [*ARRIVE, "red"]]])
    *_, frame = read_part(the_part(tmp_path))
    assert 1 == frame.unknown["records"]
    assert [ARRIVE[1:]] == [list(record) for record in frame.records]


def test_fields_that_came_later_are_read_where_they_are(tmp_path: Path) -> None:
    """What a request uses, and what the recorder lost besides records."""
    columns = {"R": ["of a request"] * 8, "X": ["of a loss"] * 4}
    records = [[*REQUEST, ["lora"]], ["X", 1, 2, 3, "writer"]]
    write_part(tmp_path, header(columns=columns), [records])
    *_, frame = read_part(the_part(tmp_path))
    assert [record[1:] for record in records] == [list(record) for record in frame.records]
    write_part(tmp_path, header(columns=columns), [[[*REQUEST, "lora"]]])
    with pytest.raises(InputError, match=r"R.features must be null or a short list of names"):
        list(read_part(the_part(tmp_path)))


@pytest.mark.parametrize(
    ("record", "message"),
    [
        ({"kind": "A"}, "must be an array that names its kind, got an object of 1 key"),
        ([], "must be an array that names its kind, got a list of 0"),
        ([1, 2], "must be an array that names its kind"),
        (["A", 0, 0, 0], "A must have 4 fields, got 3"),
        (["A", 0, 0, 0, 0, 0], "A must have 4 fields, got 5"),
        (["A", True, 0, 0, 0], "A.seq must be an integer >= 0, got true"),
        (["A", 0, -1, 0, 0], "A.step must be an integer >= 0, got -1"),
        (["A", 0, 0, 1.0, 0], "A.t_ns must be nanoseconds"),
        (["A", 0, 0, 2**63, 0], "A.t_ns must be nanoseconds"),
        (["A", 2**53, 0, 0, 0], "A.seq must be an integer >= 0"),
        (["R", 0, 5, None, 1, None, None, None], "R.request_id must be a string, got 5"),
        (["R", 0, "a", None, 0, None, None, None], "R.prompt_tokens must be an integer >= 1"),
        (["R", 0, "a", None, 1, None, None, [1, -1]], "R.prefix_ids must be null or a list"),
        (["S", 0, 0, 0, *[None] * 6], "S.scheduled must be an integer >= 1, got 0"),
        (["F", 0, 0, 0, 0, 1, 0, "unsent", None, *[None] * 4], "F.status must be one of"),
        (["F", 0, 0, 0, 0, 1, 0, "ok", "a\nb", *[None] * 4], "F.finish_reason must be null or"),
    ],
)
def test_what_breaks_the_format_is_named(tmp_path: Path, record: Any, message: str) -> None:
    """Part, frame, line, field and rule; never the text of a value."""
    write_part(tmp_path, header(), [[REQUEST, record]])
    with pytest.raises(InputError, match="line 2: ") as caught:
        list(read_part(the_part(tmp_path)))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"schema": "preemption-spool/2"}, "schema must be preemption-spool/1"),
        ({"monotonic_ns": "now"}, "monotonic_ns must be nanoseconds"),
        ({"unix_ns": 1, "pid": 2, "engine": True}, "engine must be an integer"),
    ],
)
def test_another_schema_is_refused(tmp_path: Path, changes: dict[str, Any], message: str) -> None:
    """Nothing is guessed about records of a format nobody described."""
    path = write_part(tmp_path, header(), [])
    path.write_bytes(gzip.compress(json.dumps(header(**changes)).encode() + b"\n"))
    with pytest.raises(InputError, match=message):
        list(read_part(the_part(tmp_path)))


def test_a_header_belongs_to_its_file_name(tmp_path: Path) -> None:
    """A part that was renamed would be packed as another engine's."""
    path = write_part(tmp_path, header(), [])
    path.rename(path.with_name(path.name.replace("0-7", "3-7", 1)))
    with pytest.raises(InputError, match="engine must be the file name's 3, got 0"):
        read_header(the_part(tmp_path))


def test_nothing_large_is_taken_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A frame, a line and a directory are bounded before they are held."""
    monkeypatch.setattr(spool, "MOST_FRAME_BYTES", 4000)
    monkeypatch.setattr(spool, "MOST_LINE_BYTES", 2000)
    long = ["R", 0, "a" * 2000, None, 1, None, None, None]
    path = write_part(tmp_path, header(), [[long]])
    with pytest.raises(InputError, match="line 1: must have at most 2000 bytes"):
        list(read_part(the_part(tmp_path)))
    path.unlink()
    write_part(tmp_path, header(), [[ARRIVE] * 500])
    with pytest.raises(InputError, match="frames must hold at most 4000 bytes"):
        list(read_part(the_part(tmp_path)))
    monkeypatch.setattr(spool, "MOST_PARTS", 0)
    with pytest.raises(InputError, match="must hold at most 0 files"):
        list_parts(tmp_path)


def test_lines_cannot_hide_in_each_other(tmp_path: Path) -> None:
    """Many lines are parsed at once, and still each of them has to be JSON."""
    path = write_part(tmp_path, header(), [])
    with path.open("ab") as file:
        file.write(gzip.compress(b'["A",0,0,0\n0]\n["X",1],["X",2]\n'))
    with pytest.raises(InputError, match="line 1: must be JSON"):
        list(read_part(the_part(tmp_path)))


@given(st.binary(max_size=300))
def test_garbage_never_does_more_than_raise_an_input_error(
    tmp_path_factory: pytest.TempPathFactory, garbage: bytes
) -> None:
    """Whatever bytes stand behind a good header."""
    directory = tmp_path_factory.mktemp("spool")
    path = write_part(directory, header(), [])
    with path.open("ab") as file:
        file.write(gzip.compress(garbage))
        file.write(garbage)
    try:
        frames = list(read_part(the_part(directory)))
    except InputError:
        return
    assert frames[0].header is not None
