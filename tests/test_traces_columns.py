"""Reading by columns is only ever quicker: it agrees with reading line by line, or has doubts."""

import gzip
import io
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.traces import FORMATS, azure, burstgpt, csv_rows, lines
from collectors.traces.csv_rows import CsvFormat
from collectors.traces.lines import Block
from collectors.traces.result import ImportResult
from collectors.traces.rows import piece
from collectors.traces.seconds import Seconds
from collectors.traces.stamps import Stamp
from replay.errors import InputError

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "traces"
CHOSEN = {
    "azure-2023": azure._FORMATS[0],
    "azure-2024": azure._FORMATS[1],
    "azure-2025": azure._FORMATS[2],
    "burstgpt-1": burstgpt._FORMATS[0],
    "burstgpt-2": burstgpt._FORMATS[1],
}
TIMES = {
    "azure-2023": "2023-11-16 18:17:03.9799600",
    "azure-2024": "2024-05-12 00:00:00.001163+00:00",
    "azure-2025": "2024-10-15T12:00:00.269Z",
    "burstgpt-1": "45",
    "burstgpt-2": "19440110.0",
}
ODD_NUMBERS = ("", " 1", "1 ", "+1", "-1", "01", "1.0", "1e3", "1_0", '"1"', "٣", "0x10")
ODD_TEXTS = ("nan", "inf", "NaN", "Infinity", "x", "\r", "\ufeff", "1\x00")
HUGE = (str(2**53 - 1), str(2**53), "9" * 25, "9" * 500)
ODD = st.sampled_from(ODD_NUMBERS + ODD_TEXTS + HUGE)
NUMBERS = st.integers(0, 3).map(str) | st.integers(0, 2**53 - 1).map(str)
STAMPS = st.one_of(
    st.builds(
        "{:04}-{:02}-{:02}{}{:02}:{:02}:{:02}{}{}".format,
        st.integers(0, 9999) | st.just(2024),
        st.integers(0, 13),
        st.integers(0, 32),
        st.sampled_from([" ", "T", "_"]),
        st.integers(0, 25),
        st.integers(0, 61),
        st.integers(0, 61),
        st.text("0123456789", max_size=11).map(lambda d: d and f".{d}"),
        st.sampled_from(["", "+00:00", "Z", "+01:00", "Z\r"]),
    ),
    st.decimals(0, 2**54, places=3).map("{:f}".format),
    st.floats(0, 1e17).map(repr),
    st.text("0123456789.eE+-", max_size=24),
    st.sampled_from(["0", "00", "5.", ".5", "1e400", "1e9999", "9" * 17, f"1.{'0' * 70}"]),
)
PerTestFile = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def cells(name: str, **odd: str) -> str:
    """A good row of the format, with these cells put in by column number."""
    names = CHOSEN[name].header.split(",")
    row = [TIMES[name], *("3" for _ in names[1:])]
    for index, text in odd.items():
        row[int(index.removeprefix("c"))] = text
    return ",".join(row)


@st.composite
def rows(draw: st.DrawFn) -> tuple[str, list[str]]:
    """A format and rows of it, good and bad."""
    name = draw(st.sampled_from(sorted(CHOSEN)))
    width = CHOSEN[name].header.count(",") + 1
    times = st.just(TIMES[name]) | STAMPS | ODD
    anything = NUMBERS | ODD | st.text(max_size=6).filter(lambda t: "\n" not in t)
    row = st.tuples(times, *(st.one_of(NUMBERS, anything) for _ in range(width - 1))).map(",".join)
    ragged = st.lists(anything, max_size=width + 2).map(",".join)
    return name, draw(st.lists(row | ragged | row, min_size=1, max_size=4))


def by_lines(block: Block, chosen: CsvFormat, zero_ns: int) -> pl.DataFrame | None:
    """What reading line by line makes of it; None if it refuses."""
    try:
        found = list(csv_rows._rows(block, chosen, "here"))
        return piece(found, zero_ns, "here", chosen.source.time_field)
    except InputError:
        return None


@settings(max_examples=300, deadline=None)
@given(drawn=rows(), newline=st.sampled_from(["\n", "\r\n"]), last=st.booleans())
def test_columns_agree_with_lines_or_have_doubts(
    drawn: tuple[str, list[str]], newline: str, last: bool
) -> None:
    """Whatever the cells hold, the quick reading gives the exact one's rows, or none at all."""
    name, texts = drawn
    chosen = CHOSEN[name]
    data = newline.join(texts) + (newline if last else "")
    block = Block(data.encode(errors="surrogatepass"), 2)
    if not block.data:
        return
    good = Block(cells(name).encode(), 1)
    zero_ns = next(csv_rows._rows(good, chosen, "here")).time_ns
    quick = csv_rows._by_columns(block, chosen, zero_ns)
    if quick is not None:
        exact = by_lines(block, chosen, zero_ns)
        assert exact is not None
        assert exact.rows() == quick.rows()


@pytest.mark.parametrize("name", sorted(CHOSEN))
@pytest.mark.parametrize("newline", ["\n", "\r\n"])
def test_good_rows_are_read_by_columns(name: str, newline: str) -> None:
    """The quick reading does take the formats' own rows, so that speed is not lost unseen."""
    chosen = CHOSEN[name]
    data = newline.join([cells(name), cells(name), cells(name)]).encode()
    zero_ns = next(csv_rows._rows(Block(data, 2), chosen, "here")).time_ns
    quick = csv_rows._by_columns(Block(data, 2), chosen, zero_ns)
    assert quick is not None
    assert [(n, 0, 3, 3) for n in (2, 3, 4)] == [row[:4] for row in quick.rows()]


@pytest.mark.parametrize(
    ("stamp", "text"),
    [
        (Stamp("T"), "2024-05-10 00:00:01"),
        (Stamp("T", zone="+00:00"), "2024-05-10 00:00:01+00:00"),
        (Stamp("T", separator="T", zone="Z"), "2024-05-10T00:00:01Z"),
    ],
    ids=["2023", "2024", "2025"],
)
def test_a_whole_second_is_read_by_columns(stamp: Stamp, text: str) -> None:
    """A text without a fraction is no reason for doubt: traces of 2024 have many."""
    zero_ns = stamp.ns(text.replace("00:00:01", "00:00:00"), "here")
    frame = pl.DataFrame({"T": [text]})
    assert [10**9] == frame.select(stamp.column_ns(pl.col("T"), zero_ns)).to_series().to_list()


def test_failed_rows_are_read_by_columns() -> None:
    """A row that failed has null counts and is no doubt; a prompt nobody can read is one."""
    chosen = CHOSEN["burstgpt-1"]
    failed = Block(b"5,GPT-4,9,0,9,API log\n5,GPT-4,0,0,0,API log\n", 2)
    quick = csv_rows._by_columns(failed, chosen, 0)
    assert quick is not None
    assert [(9, None, "failed"), (None, None, "failed")] == quick.select(
        "prompt_tokens", "output_tokens", "reason"
    ).rows()
    assert csv_rows._by_columns(Block(b"5,GPT-4,x,0,9,API log\n", 2), chosen, 0) is None


@pytest.mark.parametrize(
    "line",
    [
        b"45,GPT-4,9,1,10,API log\n45,GPT-4,9,1,10\n",
        b"\xef\xbb\xbf45,GPT-4,9,1,10,API log\n",
        b"45," + b"m" * 1100 + b",9,1,10,API log\n",
        b"45,\xff,9,1,10,API log\n",
        b"45,GPT-4,9,1,10,API log\n\n",
        b"45,GPT-4,9,1\n45,GPT-4,9,1,10,API log,,\n",
    ],
    ids=["short row", "byte-order mark", "long line", "bad UTF-8", "blank line", "short and long"],
)
def test_what_polars_would_let_pass_is_read_line_by_line(line: bytes) -> None:
    """Each of these the exact reading refuses, so the quick one must not take it."""
    block = Block(line, 2)
    assert by_lines(block, CHOSEN["burstgpt-1"], 0) is None
    assert csv_rows._by_columns(block, CHOSEN["burstgpt-1"], 0) is None


@pytest.mark.parametrize("zero", ["0", "44.999999999", "45.000000001", "9007199254740990.5"])
def test_seconds_by_columns_are_those_of_the_text(zero: str) -> None:
    """Nanoseconds after any moment, of every number of digits; in doubt from the tenth digit on."""
    texts = ["45", "45.0", "45.5", "45.000000001", "45.123456789", "45.1234567891", "4.5e1", "1e30"]
    texts += ["9007199254740990.999999999", "045", "45.", "-1", ""]
    time, zero_ns = Seconds("Timestamp"), Seconds("Timestamp").ns(zero, "here")
    frame = pl.DataFrame({"t": texts}).select(time.column_ns(pl.col("t"), zero_ns))
    near = {"0": slice(0, 5), "9007199254740990.5": slice(8, 9)}.get(zero, slice(0, 5))
    expected: list[int | None] = [None] * len(texts)
    expected[near] = [time.ns(text, "here") - zero_ns for text in texts[near]]
    assert expected == frame["t"].to_list()


def sized(name: str, count: int) -> bytes:
    """A file of the format with so many rows, each its own, and some without an output."""
    stem = {"azure-2024": "2024-05-12 00:{:02}:{:02}.25+00:00", "burstgpt-1": "1{:02}{:02}"}[name]
    output = {"azure-2024": "c2", "burstgpt-1": "c3"}[name]
    body = (
        cells(
            name,
            c0=stem.format(k // 7 % 60, k % 7),
            c1=str(k + 1),
            **{output: str(k % 50)},
        )
        for k in range(count)
    )
    return "\n".join([CHOSEN[name].header, *body]).encode()


def read_bytes(tmp_path: Path, name: str, data: bytes) -> ImportResult:
    """Import these bytes as the format."""
    path = tmp_path / "trace"
    path.write_bytes(data)
    return FORMATS[name.partition("-")[0]].read(path)


@pytest.mark.parametrize("name", ["azure-2024", "burstgpt-1"])
@pytest.mark.parametrize("block_bytes", [1, 7, 64, 997])
@pytest.mark.parametrize("packed", [False, True])
def test_blocks_cut_anywhere_give_the_same_workload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, block_bytes: int, packed: bool
) -> None:
    """How much is read at once changes no row, no order and no attempt."""
    data = sized(name, 150)
    whole = read_bytes(tmp_path, name, data)
    monkeypatch.setattr(lines, "_BLOCK_BYTES", block_bytes)
    part = read_bytes(tmp_path, name, gzip.compress(data) if packed else data)
    assert whole.workload.requests == part.workload.requests
    assert whole.attempts.rows() == part.attempts.rows()
    assert 3 == part.attempts.height


@pytest.mark.parametrize("name", ["azure-2024", "burstgpt-1"])
@pytest.mark.parametrize("block_bytes", [400, 5000, 4 * 2**20])
def test_a_bad_row_of_a_later_block_is_named_by_its_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, block_bytes: int
) -> None:
    """The line is counted from the file's beginning, header included."""
    monkeypatch.setattr(lines, "_BLOCK_BYTES", block_bytes)
    text = sized(name, 400).split(b"\n")
    text[333] = cells(name, c2="-7").encode()
    with pytest.raises(InputError, match=r"trace:334: .* must be >= 0, got -7$"):
        read_bytes(tmp_path, name, b"\n".join(text))


def test_a_bad_row_beyond_the_first_four_mebibytes_is_named_by_its_line(tmp_path: Path) -> None:
    """With the real block size, too: the fault is in the middle of the second block."""
    row = cells("azure-2024").encode() + b"\n"
    count = 6 * 2**20 // len(row)
    text = [CHOSEN["azure-2024"].header.encode() + b"\n", *([row] * count)]
    text[count - 10] = row.replace(b",3,3", b",3,-3")
    with pytest.raises(InputError) as caught:
        read_bytes(tmp_path, "azure-2024", b"".join(text))
    expected = f"trace:{count - 9}: GeneratedTokens must be >= 0, got -3"
    assert str(caught.value).endswith(expected)


def test_a_slow_source_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard input that gives a few bytes at a time is the same file."""
    data = (FIXTURES / "burstgpt-3-rows.csv").read_bytes()

    class Slow(io.RawIOBase):
        """A pipe that never gives more than five bytes."""

        def __init__(self) -> None:
            self._left = io.BytesIO(data)

        def readable(self) -> bool:
            return True

        def readinto(self, buffer: Any) -> int:
            part = self._left.read(min(5, len(buffer)))
            buffer[: len(part)] = part
            return len(part)

    class Stdin:
        """What `sys.stdin` is to the reader."""

        buffer = Slow()

    monkeypatch.setattr("sys.stdin", Stdin())
    expected = FORMATS["burstgpt"].read(FIXTURES / "burstgpt-3-rows.csv").workload.sha256
    assert expected == FORMATS["burstgpt"].read(Path("-")).workload.sha256
