"""One file for each way a trace can be odd, in every format: refused by line, or read alike."""

import gzip
from pathlib import Path

import pytest

from collectors.traces import FORMATS, lines
from collectors.traces.azure import HEADER, HEADER_2025
from collectors.traces.burstgpt import HEADER as BURST
from collectors.traces.burstgpt import HEADER_2 as BURST_2
from collectors.traces.result import ImportResult
from replay.errors import InputError

# A row of each format with places for its time, prompt and output, and three times, the first
# of them not the earliest.
CSV = {
    "azure-2023": (
        HEADER,
        "{},{},{}",
        ("2023-11-16 18:17:05.5", "2023-11-16 18:17:03.9799600", "2023-11-16 18:17:04.0000000"),
    ),
    "azure-2024": (
        HEADER,
        "{},{},{}",
        (
            "2024-05-12 00:00:09+00:00",
            "2024-05-12 00:00:00.001163+00:00",
            "2024-05-12 00:00:01+00:00",
        ),
    ),
    "azure-2025": (
        HEADER_2025,
        "{},2,{},{}",
        ("2024-10-15T12:00:09Z", "2024-10-15T12:00:00.269Z", "2024-10-15T12:00:05.819Z"),
    ),
    "burstgpt-1": (BURST, "{},GPT-4,{},{},7,API log", ("118", "5", "45")),
    "burstgpt-2": (
        BURST_2,
        "{},,3,GPT-4,{},{},7,API log",
        ("19440192.0", "19440110.0", "19440161.0"),
    ),
}
JSON = {
    "mooncake": (
        '{{"timestamp": {}, "input_length": {}, "output_length": {}, "hash_ids": [7]}}',
        ("900", "3", "40"),
    ),
    "bailian": (
        '{{"chat_id": 1, "parent_chat_id": -1, "timestamp": {}, "input_length": {}, '
        '"output_length": {}, "type": "text", "turn": 1, "hash_ids": [7]}}',
        ("61.114", "0.0", "0.5"),
    ),
}
ALL = {name: (row, times) for name, (_, row, times) in CSV.items()} | JSON
HEADERS = {name: f"{header}\n" for name, (header, *_) in CSV.items()}
SECOND = {name: 3 if name in CSV else 2 for name in ALL}  # line of the second row


def trace(name: str, *rows: str | None) -> str:
    """A file of the format: its three rows, or these where they are not None."""
    row, times = ALL[name]
    texts = [row.format(time, 9, 4) for time in times]
    for index, text in enumerate(rows):
        texts[index] = texts[index] if text is None else text
    return HEADERS.get(name, "") + "\n".join(texts) + "\n"


def row_of(name: str, time: object = None, prompt: object = 9, output: object = 4) -> str:
    """The format's second row, changed."""
    row, times = ALL[name]
    return row.format(times[1] if time is None else time, prompt, output)


def read_bytes(tmp_path: Path, name: str, data: bytes) -> ImportResult:
    """Import these bytes as the format."""
    path = tmp_path / "trace"
    path.write_bytes(data)
    return FORMATS[name.partition("-")[0]].read(path)


def refusal(tmp_path: Path, name: str, data: str | bytes) -> str:
    """What the importer says, without the file's path."""
    with pytest.raises(InputError) as caught:
        read_bytes(tmp_path, name, data if isinstance(data, bytes) else data.encode())
    return str(caught.value).removeprefix(str(tmp_path / "trace"))


every_format = pytest.mark.parametrize("name", sorted(ALL))
every_csv = pytest.mark.parametrize("name", sorted(CSV))


@every_format
def test_line_ends_a_missing_last_one_and_gzip_change_nothing(tmp_path: Path, name: str) -> None:
    """CRLF, LF, no newline at the end and compression are the same trace."""
    text = trace(name)
    crlf = text.replace("\n", "\r\n")
    forms = [text, text[:-1], crlf, crlf[:-2]]
    datas = [form.encode() for form in forms] + [gzip.compress(text.encode())]
    assert 1 == len({read_bytes(tmp_path, name, data).workload.sha256 for data in datas})


@every_format
def test_times_going_backwards_are_put_in_order(tmp_path: Path, name: str) -> None:
    """The earliest row is time 0, wherever it stands; nothing is refused or left out."""
    requests = read_bytes(tmp_path, name, trace(name).encode()).workload.requests
    times = [r.arrival_us for r in requests]
    assert (3, 0) == (len(times), times[0])
    assert sorted(times) == times
    assert times[1] > 0


@every_format
def test_a_row_of_one_token_is_a_request(tmp_path: Path, name: str) -> None:
    """One prompt token and one output token are work, not a fault."""
    result = read_bytes(
        tmp_path, name, trace(name, None, row_of(name, prompt=1, output=1)).encode()
    )
    assert (1, 1) == (result.workload.requests[0].prompt_tokens, len(result.workload.requests[0:1]))
    assert result.attempts.is_empty()


@every_format
def test_a_blank_line_before_a_row_is_refused_and_at_the_end_nothing(
    tmp_path: Path, name: str
) -> None:
    """A line that holds no row is named; after the last row empty lines are no lines."""
    rule = "must hold a row (empty lines may stand at the end of the file only), got a blank line"
    line = SECOND[name]
    assert f":{line}: {rule}" == refusal(tmp_path, name, trace(name, None, ""))
    assert f":1: {rule}" == refusal(tmp_path, name, "\r\n" + trace(name))
    assert f":{line + 2}: {rule}" == refusal(tmp_path, name, trace(name) + " \n")
    wanted = read_bytes(tmp_path, name, trace(name).encode()).workload.sha256
    for end in ("\n", "\r\n", "\n\r\n\n", "\r"):
        assert wanted == read_bytes(tmp_path, name, (trace(name) + end).encode()).workload.sha256


def test_empty_lines_are_told_from_rows_wherever_a_file_is_read_in_pieces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows, their numbers and the refusal are the same for every size of a piece."""
    path = tmp_path / "lines"
    for size in range(1, 9):
        monkeypatch.setattr(lines, "_BLOCK_BYTES", size)
        path.write_bytes(b"a\r\nbc\r\n\r\n\n\r\n")
        assert [(1, "a"), (2, "bc")] == [(n, t) for n, _, t in lines.numbered_lines(path, 8)]
        path.write_bytes(b"a\n\r\n\r\nbc\n")
        with pytest.raises(InputError, match="lines:2: must hold a row"):
            list(lines.numbered_lines(path, 8))
        path.write_bytes(b"a\n" + b"\n" * 99)
        with pytest.raises(InputError, match="lines:2: must hold a row"):
            list(lines.numbered_lines(path, 8))


@every_format
def test_a_byte_order_mark_is_refused(tmp_path: Path, name: str) -> None:
    """At the beginning, and where files with one were put together."""
    data = b"\xef\xbb\xbf" + trace(name).encode()
    rule = "must be UTF-8 without a byte-order mark, got one"
    assert f":1: {rule}" == refusal(tmp_path, name, data)
    second = "\ufeff" + row_of(name)
    assert f":{SECOND[name]}: {rule}" == refusal(tmp_path, name, trace(name, None, second))
    first = "\ufeff" + row_of(name)
    assert f":{SECOND[name] - 1}: {rule}" == refusal(tmp_path, name, trace(name, first))


@every_format
@pytest.mark.parametrize("time", ["NaN", "nan", "inf", "Infinity", "-Infinity", "-5", "1e", ""])
def test_a_time_that_is_no_time_is_refused(tmp_path: Path, name: str, time: str) -> None:
    """Not a number, infinite, negative or empty: line and field are named, the text is not."""
    message = refusal(tmp_path, name, trace(name, None, row_of(name, time=time)))
    assert message.startswith(f":{SECOND[name]}: ")
    assert ("imestamp" in message) or ("TIMESTAMP" in message) or ("must be JSON" in message)


@pytest.mark.parametrize(
    ("name", "time"),
    [
        ("azure-2023", "1700158623979"),
        ("azure-2023", "2024-05-12 00:00:00.001163+00:00"),
        ("azure-2024", "2024-05-12 00:00:00.001163"),
        ("azure-2024", "2024-05-12 00:00:00.001163+02:00"),
        ("azure-2025", "2024-10-15 12:00:00.269Z"),
        ("azure-2025", "2024-10-15T12:00:00.269+00:00"),
        ("burstgpt-1", "0:00:05"),
        ("burstgpt-2", "2023-11-16 18:17:03"),
        ("mooncake", "3.5"),
        ("mooncake", '"3"'),
        ("bailian", '"0.5"'),
    ],
)
def test_a_time_in_another_unit_or_form_is_refused(tmp_path: Path, name: str, time: str) -> None:
    """No unit, zone or spelling is guessed, and none changes within a file."""
    message = refusal(tmp_path, name, trace(name, None, row_of(name, time=time)))
    assert message.startswith(f":{SECOND[name]}: ")
    assert "imestamp must be" in message or "TIMESTAMP must be" in message


def test_a_first_time_in_no_known_form_is_told_every_form_it_may_have(tmp_path: Path) -> None:
    """Two years share a header, so an unknown zone must not be told that there is none."""
    text = trace("azure-2024", row_of("azure-2024", time="2024-05-12 00:00:00+02:00"))
    form = "must be YYYY-MM-DD HH:MM:SS with at most 9 fraction digits and"
    found = "got a string of 25 code points"
    assert f":2: TIMESTAMP {form} no zone, or {form} the zone +00:00, {found}" == refusal(
        tmp_path, "azure-2024", text
    )


@every_format
@pytest.mark.parametrize("digits", [16, 25, 500])
def test_a_huge_count_is_refused(tmp_path: Path, name: str, digits: int) -> None:
    """What not every JSON reader can hold exactly is no token count."""
    for counts in ({"prompt": "9" * digits}, {"output": "9" * digits}):
        message = refusal(tmp_path, name, trace(name, None, row_of(name, **counts)))
        assert message.startswith(f":{SECOND[name]}: ")
        assert "must be within ±(2^53 - 1), got " in message


@every_format
@pytest.mark.parametrize("count", ["-1", "1.5", "1e3", "NaN", "", "true"])
def test_a_count_that_is_no_count_is_refused(tmp_path: Path, name: str, count: str) -> None:
    """Negative, fractional, missing or text."""
    for counts in ({"prompt": count}, {"output": count}):
        message = refusal(tmp_path, name, trace(name, None, row_of(name, **counts)))
        assert message.startswith(f":{SECOND[name]}: ")
        assert "must be" in message


@every_csv
def test_a_missing_column_is_refused(tmp_path: Path, name: str) -> None:
    """In the header by what it must be, in a row by the number of cells."""
    header, row, times = CSV[name]
    fewer = header.replace(",", "#", 1).partition("#")[0] + "," + header.rpartition(",")[2]
    assert refusal(tmp_path, name, f"{fewer}\n{row.format(times[0], 9, 4)}\n").startswith(
        ":1: header must be "
    )
    width = header.count(",") + 1
    short = row_of(name).rpartition(",")[0]
    expected = f":3: must have {width} columns, got {width - 1}"
    assert expected == refusal(tmp_path, name, trace(name, None, short))
    expected = f":3: must have {width} columns, got {width + 1}"
    assert expected == refusal(tmp_path, name, trace(name, None, row_of(name) + ","))


@every_csv
def test_quoted_cells_are_refused(tmp_path: Path, name: str) -> None:
    """These files have none: a quote would be part of the cell."""
    header, _, times = CSV[name]
    quoted = ",".join(f'"{one}"' for one in header.split(","))
    assert refusal(tmp_path, name, trace(name).replace(header, quoted)).startswith(
        ":1: header must"
    )
    for changed in ({"time": f'"{times[1]}"'}, {"prompt": '"9"'}, {"output": '"4"'}):
        message = refusal(tmp_path, name, trace(name, None, row_of(name, **changed)))
        assert message.startswith(":3: ")
        assert "code points" in message


@every_csv
def test_a_header_without_rows_is_refused(tmp_path: Path, name: str) -> None:
    """With and without its newline: there is no request in it."""
    for data in (HEADERS[name], HEADERS[name].strip()):
        assert ": must hold at least one request, got none" == refusal(tmp_path, name, data)


@every_format
def test_a_cut_gzip_file_is_refused(tmp_path: Path, name: str) -> None:
    """Wherever it is cut, nothing of it is imported."""
    packed = gzip.compress(trace(name).encode())
    for length in (len(packed) - 1, len(packed) - 9, len(packed) // 2, 11):
        assert refusal(tmp_path, name, packed[:length]).startswith(": must be a whole gzip file")


@every_format
def test_a_file_of_attempts_alone_is_refused(tmp_path: Path, name: str) -> None:
    """Rows without output are kept beside a workload; without one there is nothing to write."""
    zero = row_of(name, output=0)
    message = refusal(tmp_path, name, trace(name, zero, zero, zero))
    expected = ": must hold at least one request, got 3 without prompt or output tokens"
    assert expected == message
