"""Append-only frames: whatever is cut off, what was whole before it is read."""

import gzip
import io
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.frames import append_frame, cut_torn_tail, read_frames
from replay.errors import InputError

FRAMES = ([b'{"scrape":0}'], [b"a", b"b" * 5000], [b"last"])


def write(path: Path) -> list[int]:
    """Write FRAMES; returns the file's size after each."""
    with path.open("ab") as file:
        ends = []
        for lines in FRAMES:
            append_frame(file, lines)
            ends.append(file.tell())
    return ends


def test_frames_are_one_gzip_file_of_lines(tmp_path: Path) -> None:
    """What `zcat` prints is every line of every frame."""
    path = tmp_path / "x.jsonl.gz"
    ends = write(path)
    lines = b"".join(line + b"\n" for frame in FRAMES for line in frame)
    assert lines == gzip.decompress(path.read_bytes())
    assert ends == [end for end, _ in read_frames(path)]
    assert [b"last\n"] == [text for _, text in read_frames(path, start=ends[1])]


@given(cut=st.integers(min_value=0))
def test_a_file_cut_anywhere_keeps_every_frame_that_was_whole(cut: int) -> None:
    """A torn tail is left out, and cutting it off makes the file ready for the next frame."""
    import tempfile

    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory) / "x.jsonl.gz"
        ends = write(path)
        cut %= ends[-1] + 1
        path.write_bytes(path.read_bytes()[:cut])
        whole = [end for end in ends if end <= cut]
        assert whole == [end for end, _ in read_frames(path)]
        assert cut - (whole[-1] if whole else 0) == cut_torn_tail(path)
        with path.open("ab") as file:
            append_frame(file, [b"next"])
        assert b"next\n" == list(read_frames(path))[-1][1]


def test_zeros_after_a_power_failure_are_a_torn_tail(tmp_path: Path) -> None:
    """A tail that was never written reads as zeros and is cut off."""
    path = tmp_path / "x.jsonl.gz"
    ends = write(path)
    path.write_bytes(path.read_bytes() + bytes(5000))
    assert ends == [end for end, _ in read_frames(path)]
    assert 5000 == cut_torn_tail(path)


def test_damage_before_other_frames_is_named_with_its_place(tmp_path: Path) -> None:
    """A changed byte in the middle is an error, not an end."""
    path = tmp_path / "x.jsonl.gz"
    ends = write(path)
    data = bytearray(path.read_bytes())
    data[ends[1] - 6] ^= 1  # the second frame's checksum
    path.write_bytes(data)
    with pytest.raises(InputError, match=f"must hold whole frames, got damage at byte {ends[0]}"):
        list(read_frames(path))


def test_a_bomb_is_refused_without_being_unpacked(tmp_path: Path) -> None:
    """A frame is decompressed no further than it may be long."""
    path = tmp_path / "x.jsonl.gz"
    path.write_bytes(gzip.compress(bytes(10**7)))
    with pytest.raises(InputError, match="frames must hold at most 1000 bytes, got more at byte 0"):
        list(read_frames(path, most_frame_bytes=1000))


def test_a_frame_that_the_disk_refuses_leaves_no_garbage(tmp_path: Path) -> None:
    """What was written of it is cut off before the error is raised."""

    class Full(io.FileIO):
        def write(self, data: bytes) -> int:
            if len(data) < 30:
                raise OSError(28, "No space left on device")
            return super().write(data[:20])

    path = tmp_path / "x.jsonl.gz"
    ends = write(path)
    with Full(path, "ab") as file, pytest.raises(OSError, match="No space"):
        append_frame(file, [b"0123456789" * 3])
    assert ends[-1] == path.stat().st_size
