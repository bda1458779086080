"""A damaged result file is read or refused, and whatever it is costs bounded memory."""

import gzip
import io
import os
import subprocess
import sys
from codecs import BOM_UTF8
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from results_files import FILES

from collectors.results import FORMATS
from collectors.results.stream import MAX_TEXT_BYTES, Bounded, Cursor
from replay.errors import InputError

SMALL = {
    name: min(
        (p for p in paths if p.stem not in {"summary", "sampled"}), key=lambda p: p.stat().st_size
    )
    for name, paths in FILES.items()
}


@pytest.mark.parametrize("name", FORMATS)
@settings(
    deadline=None,
    max_examples=60,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_flipped_and_cut_files_give_a_result_or_an_input_error(
    tmp_path: Path, name: str, data: st.DataObject
) -> None:
    """Nothing else comes out, whatever bytes are changed."""
    whole = SMALL[name].read_bytes()
    found = bytearray(whole)
    for at, byte in data.draw(
        st.lists(st.tuples(st.integers(0, len(whole) - 1), st.integers(0, 255)), max_size=4)
    ):
        found[at] = byte
    if data.draw(st.booleans()):
        found = found[: data.draw(st.integers(0, len(whole)))]
    path = tmp_path / "damaged"
    path.write_bytes(found)
    with suppress(InputError):
        for measured in FORMATS[name].read(path):
            measured.workload("damaged", 1000)


WORDS = st.sampled_from(
    [
        '"a"',
        '"\\\\"',
        '"\\""',
        '"NaN -Infinity"',
        "NaN",
        "-Infinity",
        "Infinity",
        "-1.5",
        "12",
        "\\",
    ]
)


@settings(deadline=None, max_examples=200)
@given(words=st.lists(WORDS, max_size=30), size=st.integers(1, 40))
def test_words_for_nan_are_told_from_texts_wherever_the_file_is_cut(
    words: list[str], size: int
) -> None:
    """However few bytes are read at a time: what stands in a text stays, a bare word is quoted."""

    class Slow(io.BytesIO):
        def read(self, _: int | None = -1, /) -> bytes:
            return super().read(size)

    text = ",".join(word for word in words if word != "\\")
    bounded, parts = Bounded(Slow(text.encode()), "p"), []
    while part := bounded.read():
        parts.append(part)
    bare = ("NaN", "-Infinity", "Infinity")
    wanted = ",".join(f'"{word}"' if word in bare else word for word in words if word != "\\")
    assert wanted.encode() == b"".join(parts)


@pytest.mark.parametrize(
    ("begin", "endless", "message"),
    [
        (b'["', b"a" * 2**16, "must hold no text of more than"),
        (b"[", b"1" * 2**16, "must hold no number of 1000 digits"),
        (b'["' + b"9" * 3000 + b'", ', b"9" * 1001, "must hold no number of 1000 digits"),
        (b"[0.", b"3" * 2**16, "must hold no number of 1000 digits"),
    ],
)
def test_one_value_larger_than_memory_is_refused_before_it_is_there(
    begin: bytes, endless: bytes, message: str
) -> None:
    """A text, an integer, a fraction without an end; digits inside a text are a text."""

    class Endless(io.RawIOBase):
        given = 0

        def read(self, _: int = -1) -> bytes:
            self.given += len(endless)
            assert self.given < MAX_TEXT_BYTES * 2
            return begin if self.given == len(endless) else endless

    cursor = Cursor(Bounded(Endless(), "p"), "p")  # type: ignore[arg-type]
    with pytest.raises(InputError, match=message):
        for _ in cursor.scalars(""):
            pass


def test_a_fault_of_the_file_frees_no_half_done_parser(tmp_path: Path) -> None:
    """Pure Python's parser says on standard error what it had read when an exception ends it."""
    path = tmp_path / "r.json"
    path.write_bytes(gzip.compress(b'{"model_id": "sk-' + b"SECRET" * 2**15)[:-8])
    code = (
        "import sys, pathlib; from collectors.results import FORMATS\n"
        "try: FORMATS['vllm-bench'].read(pathlib.Path(sys.argv[1]))\n"
        "except ValueError as exc: print(exc)"
    )
    for backend in ("python", ""):
        env = {**os.environ, **({"IJSON_BACKEND": backend} if backend else {})}
        ran = subprocess.run(
            [sys.executable, "-c", code, path], capture_output=True, text=True, env=env, check=True
        )
        assert (f"{path}: must be a whole gzip file and nothing after it\n", "") == (
            ran.stdout,
            ran.stderr,
        )


@pytest.mark.parametrize("name", ["vllm-bench", "guidellm", "inference-perf"])
def test_a_byte_order_mark_is_refused_by_its_name(tmp_path: Path, name: str) -> None:
    """As in every other text file."""
    path = tmp_path / "r.json"
    path.write_bytes(BOM_UTF8 + SMALL[name].read_bytes())
    with pytest.raises(InputError, match=r"r\.json: must be UTF-8 without a byte-order mark, got"):
        FORMATS[name].read(path)


def test_deep_nesting_is_stepped_over() -> None:
    """No recursion: a million lists in a key that nobody reads."""
    deep = b'{"a": ' + b"[" * 10**6 + b"]" * 10**6 + b', "b": 1}'
    assert {"b": 1} == Cursor(Bounded(io.BytesIO(deep), "p"), "p").pick({"b": None}, "")
