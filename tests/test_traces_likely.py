"""A file given to the wrong reader is told from a bad one: the error says who takes it."""

import gzip
from pathlib import Path

import pytest
from results_files import FILES

from collectors.results import FORMATS as RESULTS
from collectors.traces import FORMATS as TRACES
from replay.errors import InputError

FIXTURES = Path(__file__).parent.parent / "fixtures"
TRACE_FILES = {
    name: sorted((FIXTURES / "traces").glob(f"{name}-*"))
    for name in ("azure", "bailian", "burstgpt", "mooncake")
}
READERS = {name: one.read for name, one in (TRACES | RESULTS).items()}
OURS = b'{"prefix_block_tokens":null,"schema":"preemption-workload/1"}\n{"arrival_us":0}\n'


def refusal(name: str, path: Path) -> str:
    """What the reader says, without the path."""
    with pytest.raises(InputError) as caught:
        READERS[name](path)
    return str(caught.value).replace(str(path), "")


@pytest.mark.parametrize("own", TRACE_FILES | FILES)
def test_another_formats_file_is_refused_with_the_command_for_it(own: str, tmp_path: Path) -> None:
    """Every recorded file in every reader but its own, plain and gzip."""
    for path in (TRACE_FILES | FILES)[own]:
        packed = tmp_path / f"{path.name}.gz"
        packed.write_bytes(gzip.compress(path.read_bytes()))
        for name in READERS:
            if name == own or {name, own} == {"mooncake", "timed-trace"}:
                continue
            for file in (path, packed):
                assert f"use preempt import {own}" in refusal(name, file)


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (OURS, "a workload of this project already: replay, sanitize and workload take it as it"),
        (b"PAR1" + bytes(9) + b"preemption-workload/1" + b"PAR1", "a workload of this project"),
        (b"PAR1" + bytes(99) + b"PAR1", "a Parquet file"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer"),
        (b"\n<!DOCTYPE html>\n<html>", "a web page"),
        ("TIMESTAMP".encode("utf-16"), "UTF-16"),
        (gzip.compress(gzip.compress(b"TIMESTAMP")), "gzip inside gzip"),
        (b"\x28\xb5\x2f\xfd" + bytes(9), "an archive other than gzip"),
    ],
    # Not by the data: gzip holds the second, and two workers would name two tests.
    ids=["ours", "ours-parquet", "parquet", "lfs", "page", "utf-16", "gzip-twice", "archive"],
)
@pytest.mark.parametrize("name", READERS)
def test_what_no_reader_takes_is_called_by_its_name(
    tmp_path: Path, name: str, data: bytes, words: str
) -> None:
    """A workload, a download that went wrong, another packing."""
    path = tmp_path / "file"
    path.write_bytes(data)
    assert f"the file looks like {words}" in refusal(name, path)


def test_a_timed_trace_given_as_mooncakes_is_told_apart_by_its_seconds() -> None:
    """The keys are the same; a fraction is no whole millisecond."""
    (path,) = (FIXTURES / "traces").glob("timed-trace-*")
    assert (
        ":1: timestamp must be an integer, in milliseconds (of seconds: preempt import"
        " timed-trace), got 0.0" == refusal("mooncake", path)
    )


@pytest.mark.parametrize("name", READERS)
def test_a_fault_of_a_file_of_its_own_says_nothing_of_others(tmp_path: Path, name: str) -> None:
    """Nor does a file that looks like none, or that is not there."""
    own = (TRACE_FILES | FILES | {"timed-trace": TRACE_FILES["mooncake"]})[name][0]
    path = tmp_path / "file"
    for data in (own.read_bytes() + b"\n\0\0\n", b"sk-SECRET", b""):
        path.write_bytes(data)
        assert "looks like" not in refusal(name, path)
    path.unlink()
    assert "looks like" not in refusal(name, path)
