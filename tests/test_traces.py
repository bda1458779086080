"""Public traces become workloads exactly: no digit, no row and no reason is lost."""

import contextlib
import csv
import gzip
import hashlib
import io
import json
import re
import shutil
import sys
import zlib
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction
from pathlib import Path

import polars as pl
import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.run import read_run, run_workload
from collectors.traces import FORMATS
from collectors.traces.azure import HEADER, HEADER_2025
from collectors.traces.result import ImportResult, write_attempts
from collectors.traces.stamps import Stamp
from preempt.commands.importing import import_command
from replay.errors import InputError, OutputExists
from replay.workload_file import read_workload

CHECKOUT = Path(__file__).resolve().parent.parent
FIXTURES = CHECKOUT / "fixtures" / "traces"
WHOLE = CHECKOUT.parent / "shared" / "traces"
RUN = CHECKOUT / "fixtures" / "runs" / "base-1"
CONV = FIXTURES / "azure-2023-conv-head.csv"
CODE = FIXTURES / "azure-2023-code-head.csv"
MOONCAKE = FIXTURES / "mooncake-conversation-head.jsonl"
SECRET = "sk-SECRET"  # noqa: S105  # stands for one, to see that no message repeats it
STAMP = "2023-11-16 18:17:03.9799600"

PerTestFile = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def azure_text(*rows: str, newline: str = "\r\n") -> bytes:
    """Bytes of an Azure file with these rows, the last one without a newline."""
    return newline.join([HEADER, *rows]).encode()


def chunk_row(timestamp: int, hash_ids: list[int], output_length: int = 9) -> dict[str, object]:
    """A Mooncake row whose prompt fills its chunks."""
    return {
        "timestamp": timestamp,
        "input_length": 512 * len(hash_ids),
        "output_length": output_length,
        "hash_ids": hash_ids,
    }


def mooncake_text(*rows: dict[str, object]) -> bytes:
    """Bytes of a Mooncake file with these rows."""
    return b"".join(json.dumps(row).encode() + b"\n" for row in rows)


def read_bytes(tmp_path: Path, trace_format: str, data: bytes, **limits: int) -> ImportResult:
    """Write the data to a file and import that."""
    path = tmp_path / "trace"
    path.write_bytes(data)
    return FORMATS[trace_format].read(path, **limits)


def arrivals(result: ImportResult) -> list[int]:
    """Arrivals in workload order, microseconds."""
    return [r.arrival_us for r in result.workload.requests]


def run_import(*args: object) -> Result:
    """Run the command; its own errors are raised as the top level would see them."""
    return CliRunner().invoke(
        import_command, [str(a) for a in args], catch_exceptions=False, standalone_mode=False
    )


# Azure


@pytest.mark.parametrize(
    ("path", "count", "prompt", "output", "last_us"),
    [(CONV, 200, 180_695, 47_050, 61_263_537), (CODE, 100, 227_562, 2_348, 192_162_141)],
    ids=["conv", "code"],
)
def test_azure_head_keeps_every_row_token_and_microsecond(
    path: Path, count: int, prompt: int, output: int, last_us: int
) -> None:
    """Row count, token sums and the last arrival are those of the published rows."""
    result = FORMATS["azure"].read(path)
    requests = result.workload.requests
    assert count == len(requests)
    assert (prompt, output) == (
        sum(r.prompt_tokens for r in requests),
        sum(r.output_tokens for r in requests),
    )
    assert (0, last_us) == (requests[0].arrival_us, requests[-1].arrival_us)
    assert ("00000000-azure", f"{count - 1:08}-azure") == (
        requests[0].request_id,
        requests[-1].request_id,
    )
    assert result.attempts.is_empty()
    assert result.workload.prefix_block_tokens is None


def test_azure_arrivals_agree_with_exact_fractions_on_every_row_of_the_head() -> None:
    """An independent reading with csv, datetime and fractions gives the same microseconds."""
    with CONV.open(newline="") as file:
        stamps = [row["TIMESTAMP"] for row in csv.DictReader(file)]
    seconds = [_exact_seconds(stamp) for stamp in stamps]
    expected = [int((s - min(seconds)) * 10**6) for s in seconds]
    assert expected == arrivals(FORMATS["azure"].read(CONV))


def test_line_ends_and_compression_change_nothing(tmp_path: Path) -> None:
    """LF, CRLF, a final newline and gzip all give the same workload hash."""
    data = CONV.read_bytes()
    unix = data.replace(b"\r\n", b"\n")
    forms = [data, data + b"\r\n", unix, unix + b"\n", gzip.compress(data)]
    hashes = {read_bytes(tmp_path, "azure", form).workload.sha256 for form in forms}
    assert {FORMATS["azure"].read(CONV).workload.sha256} == hashes


def test_the_earliest_row_is_time_zero_wherever_it_stands(tmp_path: Path) -> None:
    """Rows out of order are sorted by arrival, ids follow that order, ties keep file order."""
    rows = (
        "2023-11-16 00:00:02.0000000,20,1",
        "2023-11-16 00:00:01.0000000,11,1",
        "2023-11-16 00:00:02.0000000,21,1",
        "2023-11-16 00:00:00.5000000,10,1",
    )
    requests = read_bytes(tmp_path, "azure", azure_text(*rows)).workload.requests
    assert [
        ("00000000-azure", 0, 10),
        ("00000001-azure", 500_000, 11),
        ("00000002-azure", 1_500_000, 20),
        ("00000003-azure", 1_500_000, 21),
    ] == [(r.request_id, r.arrival_us, r.prompt_tokens) for r in requests]


def test_arrivals_run_on_across_midnight_and_leap_days(tmp_path: Path) -> None:
    """The date is part of the time: midnight is a microsecond step, 29 February a day."""
    rows = (
        "2024-02-28 23:59:59.999999,1,1",
        "2024-02-29 00:00:00,1,1",
        "2024-03-01 00:00:00,1,1",
    )
    assert [0, 1, 1 + 86_400_000_000] == arrivals(read_bytes(tmp_path, "azure", azure_text(*rows)))


def test_digits_below_the_microsecond_are_dropped_after_subtracting(tmp_path: Path) -> None:
    """Nanosecond differences are rounded down: .999999999 to the next second is 0 us."""
    stamps = ("00.999999999", "01.000000000", "01.000000998", "01.000000999", "01.1")
    rows = [f"2023-11-16 00:00:{s},1,1" for s in stamps]
    expected = [0, 0, 0, 1, 100_000]
    assert expected == arrivals(read_bytes(tmp_path, "azure", azure_text(*rows)))


def test_dropped_digits_decide_no_order(tmp_path: Path) -> None:
    """Rows that fall into one microsecond are a tie and keep file order."""
    rows = ("2023-11-16 00:00:00.000000900,1,1", "2023-11-16 00:00:00.000000100,2,1")
    requests = read_bytes(tmp_path, "azure", azure_text(*rows)).workload.requests
    assert [(0, 1), (0, 2)] == [(r.arrival_us, r.prompt_tokens) for r in requests]


@given(
    when=st.datetimes(),
    digits=st.text("0123456789", max_size=9),
)
def test_timestamps_are_exact_for_every_date_and_fraction(when: datetime, digits: str) -> None:
    """Digit-aware reading equals exact arithmetic on the calendar."""
    text = when.strftime("%m-%d %H:%M:%S") + ("." + digits if digits else "")
    stamp = f"{when.year:04}-{text}"
    assert _exact_seconds(stamp) * 10**9 == Stamp("TIMESTAMP").ns(stamp, "here")


def _exact_seconds(stamp: str) -> Fraction:
    whole, _, digits = stamp.partition(".")
    days_and_seconds = datetime.fromisoformat(whole) - datetime(1, 1, 1)  # noqa: DTZ001  # zoneless as the trace
    fraction = Fraction(int(digits), 10 ** len(digits)) if digits else Fraction(0)
    return days_and_seconds // timedelta(seconds=1) + fraction


# Mooncake


def test_mooncake_head_keeps_every_row_chunk_and_tie() -> None:
    """Counts, sums, chunk ids and the file order within a millisecond are the published ones."""
    source = [json.loads(line) for line in MOONCAKE.read_text().splitlines()]
    workload = FORMATS["mooncake"].read(MOONCAKE).workload
    assert 512 == workload.prefix_block_tokens
    assert (60, 743_189, 21_759) == (
        len(workload),
        sum(r.prompt_tokens for r in workload.requests),
        sum(r.output_tokens for r in workload.requests),
    )
    # The published ids are dense by first appearance already, so here renumbering changes none.
    assert [
        (f"{k:08}-mooncake", 1000 * row["timestamp"], row["input_length"], row["hash_ids"])
        for k, row in enumerate(source)
    ] == [
        (r.request_id, r.arrival_us, r.prompt_tokens, list(r.prefix_blocks or ()))
        for r in workload.requests
    ]
    assert min(r.output_tokens for r in workload.requests) == 1


def test_hash_ids_become_dense_in_order_of_first_appearance(tmp_path: Path) -> None:
    """Equal ids stay equal and nothing else of them is left, whatever their size."""
    rows = (chunk_row(7, [900, 2**53 - 1]), chunk_row(7, [900, 5, 900]), chunk_row(8, [5]))
    requests = read_bytes(tmp_path, "mooncake", mooncake_text(*rows)).workload.requests
    assert [(0, 1), (0, 2, 0), (2,)] == [r.prefix_blocks for r in requests]
    assert [0, 0, 1000] == [r.arrival_us for r in requests]


def test_an_attempt_uses_up_no_chunk_number(tmp_path: Path) -> None:
    """The workload's chunk ids have no gap where a row was set aside."""
    rows = (chunk_row(0, [7, 8], output_length=0), chunk_row(1, [8, 9]))
    result = read_bytes(tmp_path, "mooncake", mooncake_text(*rows))
    assert [(0, 1)] == [r.prefix_blocks for r in result.workload.requests]


@PerTestFile
@given(
    st.lists(
        st.tuples(
            st.integers(0, 3),
            st.lists(st.integers(0, 50), min_size=1, max_size=4),
        ),
        min_size=1,
        max_size=8,
    )
)
def test_renumbering_keeps_which_chunks_are_equal(
    tmp_path: Path, rows: list[tuple[int, list[int]]]
) -> None:
    """Two positions hold the same number after the import exactly if they did before."""
    source = [chunk_row(timestamp, ids) for timestamp, ids in rows]
    requests = read_bytes(tmp_path, "mooncake", mooncake_text(*source)).workload.requests
    ordered = sorted(rows, key=lambda row: row[0])
    before = [h for _, ids in ordered for h in ids]
    after = [h for r in requests for h in r.prefix_blocks or ()]
    assert len(before) == len(after)
    assert len(set(before)) == len(set(zip(before, after, strict=True))) == len(set(after))
    assert set(range(len(set(before)))) == set(after)


# Attempts


def test_rows_without_tokens_are_attempts_with_their_reason_row_and_time(tmp_path: Path) -> None:
    """They are counted by reason, kept in file order, and still anchor the time."""
    rows = (
        "2023-11-16 00:00:00,10,0",
        "2023-11-16 00:00:01,10,5",
        "2023-11-16 00:00:03,0,5",
        "2023-11-16 00:00:02,0,0",
    )
    result = read_bytes(tmp_path, "azure", azure_text(*rows))
    assert [
        (2, "no_output", 0, 10, 0),
        (4, "no_prompt", 3_000_000, 0, 5),
        (5, "no_prompt", 2_000_000, 0, 0),
    ] == [*result.attempts.iter_rows()]
    assert {"no_output": 1, "no_prompt": 2} == result.attempts_by_reason
    assert [1_000_000] == arrivals(result)
    provenance = result.workload.provenance
    assert provenance is not None
    assert (4, {"no_output": 1, "no_prompt": 2}) == (
        provenance["rows_read"],
        provenance["attempts"],
    )


def test_attempts_file_names_its_schema_and_types_its_columns(tmp_path: Path) -> None:
    """The Parquet file holds one row per attempt, under a schema name readers can check."""
    rows = (chunk_row(4, [1], output_length=0), chunk_row(5, [1]))
    result = read_bytes(tmp_path, "mooncake", mooncake_text(*rows))
    write_attempts(result, tmp_path / "attempts.parquet")
    frame = pl.read_parquet(tmp_path / "attempts.parquet")
    assert (
        "preemption-attempts/1" == pl.read_parquet_metadata(tmp_path / "attempts.parquet")["schema"]
    )
    assert [
        {
            "source_row": 1,
            "reason": "no_output",
            "arrival_us": 0,
            "prompt_tokens": 512,
            "output_tokens": 0,
        }
    ] == frame.to_dicts()
    assert [pl.Int64, pl.String, pl.Int64, pl.Int64, pl.Int64] == frame.dtypes


def test_provenance_tells_the_source_and_neither_path_nor_date() -> None:
    """Licence and what was done are there; the file's name and any absolute time are not."""
    for trace_format, path, licence in (
        ("azure", CONV, "CC-BY-4.0"),
        ("mooncake", MOONCAKE, "Apache-2.0"),
    ):
        provenance = FORMATS[trace_format].read(path).workload.provenance
        assert provenance is not None
        assert licence == provenance["license"]
        text = json.dumps(provenance)
        assert not re.search(r"head|fixtures|2023-11|18:1", text)


# Refusals: the test id is the reason


def _mooncake_line(**changes: object) -> bytes:
    return json.dumps(chunk_row(3, [1, 2]) | changes).encode() + b"\n"


def _azure_rows(*rows: str) -> bytes:
    return azure_text(f"{STAMP},1,1", *rows)


GOOD = _mooncake_line()
TIME_RULE = "TIMESTAMP must be YYYY-MM-DD HH:MM:SS with at most 9 fraction digits and no zone"
BAD_AZURE = {
    "empty": (b"", ": must not be empty, got no line"),
    "header only": (azure_text(), ": must hold at least one request, got none"),
    "no header": (
        f"{STAMP},1,1\r\n".encode(),
        f":1: header must be {HEADER} or {HEADER_2025}, got a string",
    ),
    "header in another case": (HEADER.lower().encode(), f":1: header must be {HEADER}"),
    "header with a blank": (b" " + HEADER.encode(), f":1: header must be {HEADER}"),
    "byte-order mark": (b"\xef\xbb\xbf" + azure_text(), ":1: must be UTF-8 without a byte-order"),
    "two columns": (_azure_rows(f"{STAMP},1"), ":3: must have 3 columns, got 2"),
    "four columns": (_azure_rows(f"{STAMP},1,1,{SECRET}"), ":3: must have 3 columns, got 4"),
    "blank line": (_azure_rows("", f"{STAMP},1,1"), ":3: must hold a row"),
    "zone": (_azure_rows(f"{STAMP}+00:00,1,1"), f":3: {TIME_RULE}, got a string of 33 code"),
    "ten fraction digits": (_azure_rows("2023-11-16 18:17:03.9799600123,1,1"), TIME_RULE),
    "point without digits": (_azure_rows("2023-11-16 18:17:03.,1,1"), TIME_RULE),
    "letter T": (_azure_rows("2023-11-16T18:17:03.9,1,1"), TIME_RULE),
    "digits of another script": (_azure_rows("\uff12\uff1023-11-16 18:17:03.9,1,1"), TIME_RULE),
    "text as time": (_azure_rows(f"{SECRET},1,1"), TIME_RULE),
    "30 February": (_azure_rows("2023-02-30 00:00:00,1,1"), ":3: TIMESTAMP must be a date that"),
    "29 February 2023": (_azure_rows("2023-02-29 00:00:00,1,1"), "must be a date that exists"),
    "month 13": (_azure_rows("2023-13-01 00:00:00,1,1"), "must be a date that exists"),
    "year 0": (_azure_rows("0000-01-01 00:00:00,1,1"), "must be a date that exists"),
    "hour 24": (_azure_rows("2023-11-16 24:00:00,1,1"), "must be a time of day up to 23:59:59"),
    "minute 60": (_azure_rows("2023-11-16 23:60:00,1,1"), "must be a time of day"),
    "second 60": (_azure_rows("2023-11-16 23:59:60,1,1"), "must be a time of day"),
    "centuries apart": (
        azure_text("0001-01-01 00:00:00,1,1", "9999-01-01 00:00:00,1,1"),
        ":3: TIMESTAMP must be within 2^53 - 1 microseconds of the earliest row, got more",
    ),
    "negative": (_azure_rows(f"{STAMP},-5,1"), ":3: ContextTokens must be >= 0, got -5"),
    "float": (_azure_rows(f"{STAMP},1.0,1"), ":3: ContextTokens must be an integer in plain"),
    "NaN": (_azure_rows(f"{STAMP},1,nan"), ":3: GeneratedTokens must be an integer in plain"),
    "exponent": (_azure_rows(f"{STAMP},1,1e3"), "GeneratedTokens must be an integer in plain"),
    "missing number": (_azure_rows(f"{STAMP},,1"), "ContextTokens must be an integer in plain"),
    "blank before number": (_azure_rows(f"{STAMP}, 1,1"), "ContextTokens must be an integer"),
    "underscore in number": (_azure_rows(f"{STAMP},1_0,1"), "ContextTokens must be an integer"),
    "leading zero": (_azure_rows(f"{STAMP},01,1"), "ContextTokens must be an integer in plain"),
    "number in another script": (_azure_rows(f"{STAMP},٣,1"), "ContextTokens must be an integer"),
    "quoted number": (_azure_rows(f'{STAMP},"1",1'), "ContextTokens must be an integer in plain"),
    "text as number": (_azure_rows(f"{STAMP},{SECRET},1"), "got a string of 9 code points"),
    "unsafe integer": (_azure_rows(f"{STAMP},{2**53},1"), "must be within ±(2^53 - 1)"),
    "500 digits": (_azure_rows(f"{STAMP},{'9' * 500},1"), "got an integer of 500 digits"),
    "long line": (_azure_rows(f"{STAMP},{'9' * 5000},1"), ":3: must be at most 1024 bytes, got"),
    "endless line": (b"x" * 100_000, ":1: must be at most 1024 bytes, got more"),
    "bad UTF-8": (_azure_rows() + b"\r\n\xff\xfe", ":3: must be UTF-8 text, got a bad byte at"),
    "binary": (bytes(range(128, 256)), ":1: must be UTF-8 text"),
    "only attempts": (azure_text(f"{STAMP},1,0"), "one request, got 1 without prompt or output"),
    "cut gzip": (gzip.compress(CONV.read_bytes())[:-20], ": must be a whole gzip file"),
    "gzip magic only": (b"\x1f\x8b", ": must be a whole gzip file"),
    "gzip with a broken check": (gzip.compress(_azure_rows())[:-8] + bytes(8), "a whole gzip"),
    "gzip with rubbish inside": (gzip.compress(b"")[:10] + b"\xff" * 30, "a whole gzip file"),
}
BAD_MOONCAKE = {
    "empty": (b"", ": must not be empty, got no line"),
    "blank line": (GOOD + b"\n" + GOOD, ":2: must hold a row"),
    "not JSON": (GOOD + SECRET.encode(), ":2: must be JSON"),
    "cut line": (GOOD + GOOD[:-4], ":2: must be JSON"),
    "list": (b"[1]", ":1: must be an object, got a list of 1"),
    "string": (f'"{SECRET}"'.encode(), ":1: must be an object, got a string of 9 code points"),
    "unknown key": (_mooncake_line(**{SECRET: 1}), ":1: unknown key of 9 code points; known:"),
    "prompt text": (_mooncake_line(input_text=SECRET), ":1: unknown key of 10 code points"),
    "repeated key": (
        b'{"timestamp": 1, "timestamp": 1}',
        ":1: must not repeat a key, got timestamp twice",
    ),
    "missing timestamp": (b'{"input_length": 1}', ":1: timestamp is required, got nothing"),
    "missing hash_ids": (
        b'{"timestamp": 1, "input_length": 1, "output_length": 1}',
        ":1: hash_ids is required, got nothing",
    ),
    "negative time": (_mooncake_line(timestamp=-1), ":1: timestamp must be >= 0, got -1"),
    "float time": (
        _mooncake_line(timestamp=1.0),
        ":1: timestamp must be an integer, in milliseconds",
    ),
    "NaN": (
        _mooncake_line(timestamp=float("nan")),
        "timestamp must be an integer, in milliseconds",
    ),
    "Infinity": (_mooncake_line(output_length=float("inf")), "an integer, got Infinity"),
    "null": (_mooncake_line(output_length=None), "output_length must be an integer, got null"),
    "boolean": (_mooncake_line(input_length=True), "input_length must be an integer, got true"),
    "string number": (_mooncake_line(input_length=SECRET), "got a string of 9 code points"),
    "negative output": (_mooncake_line(output_length=-2), "output_length must be >= 0, got -2"),
    "unsafe integer": (_mooncake_line(timestamp=2**53), "must be within ±(2^53 - 1)"),
    "5000 digits": (b'{"timestamp": ' + b"9" * 5000 + GOOD[15:], "got an integer of 5000 digits"),
    "too few hash ids": (
        _mooncake_line(hash_ids=[1]),
        ":1: hash_ids must have 2 entries (input_length / 512, rounded up), got a list of 1",
    ),
    "too many hash ids": (_mooncake_line(hash_ids=[1, 2, 3]), "2 entries (input_length / 512"),
    "one token over the chunk": (_mooncake_line(input_length=1025), "must have 3 entries"),
    "hash ids of an attempt": (_mooncake_line(input_length=0), "must have 0 entries"),
    "hash_ids not a list": (_mooncake_line(hash_ids={}), "hash_ids must be a list of integers"),
    "hash_ids null": (_mooncake_line(hash_ids=None), "must be a list of integers, got null"),
    "boolean hash id": (_mooncake_line(hash_ids=[1, False]), "hash_ids[1] must be an integer"),
    "float hash id": (_mooncake_line(hash_ids=[1.0, 2]), "hash_ids[0] must be an integer"),
    "negative hash id": (_mooncake_line(hash_ids=[1, -2]), "hash_ids[1] must be >= 0, got -2"),
    "times too far apart": (
        _mooncake_line(timestamp=0) + _mooncake_line(timestamp=2**53 - 1),
        ":2: timestamp must be within 2^53 - 1 microseconds of the earliest row",
    ),
    "deep nesting": (b"[" * 200_000, ":1: must be JSON, got nesting too deep"),
    "endless line": (b" " * (2**21 + 1), ":1: must be at most 2097152 bytes, got more"),
    "bad UTF-8": (GOOD + b"\xff\n", ":2: must be UTF-8 text, got a bad byte at offset 0"),
    "only attempts": (_mooncake_line(output_length=0), "must hold at least one request, got 1"),
    "one-line gzip bomb": (gzip.compress(bytes(2**24)), ":1: must be at most 2097152 bytes"),
}
BAD = [
    pytest.param(trace_format, data, message, id=f"{trace_format}: {reason}")
    for trace_format, cases in (("azure", BAD_AZURE), ("mooncake", BAD_MOONCAKE))
    for reason, (data, message) in cases.items()
]


@pytest.mark.parametrize(("trace_format", "data", "message"), BAD)
def test_malformed_trace_is_refused(
    tmp_path: Path, trace_format: str, data: bytes, message: str
) -> None:
    """One line names file, line, field, rule and what was found, and no text of the file."""
    with pytest.raises(InputError) as caught:
        read_bytes(tmp_path, trace_format, data)
    text = str(caught.value)
    assert message in text
    assert text.startswith(str(tmp_path / "trace"))
    assert SECRET not in text
    assert "\n" not in text


def test_directory_and_absent_file_are_refused(tmp_path: Path) -> None:
    """A path that is no file is one clear error."""
    for importer in FORMATS.values():
        with pytest.raises(InputError, match="must be a file, got a directory"):
            importer.read(tmp_path)
        with pytest.raises(InputError, match="cannot be read: No such file"):
            importer.read(tmp_path / "absent")


def test_more_rows_than_the_limit_are_refused_attempts_included(tmp_path: Path) -> None:
    """`max_requests` bounds what is held in memory, so every row counts."""
    rows = (chunk_row(1, [1], output_length=0), chunk_row(2, [1]), chunk_row(3, [1]))
    data = mooncake_text(*rows)
    assert 2 == len(read_bytes(tmp_path, "mooncake", data, max_requests=3).workload)
    with pytest.raises(InputError, match=r"at most 2 requests \(--max-requests\), got more"):
        read_bytes(tmp_path, "mooncake", data, max_requests=2)


def test_a_gzip_bomb_is_refused_at_its_first_line(tmp_path: Path) -> None:
    """What unpacks to 64 MiB without a newline is one line that is too long."""
    bomb = gzip.compress(bytes(64 * 2**20))
    with pytest.raises(InputError, match="trace:1: must be at most 2097152 bytes, got more"):
        read_bytes(tmp_path, "mooncake", bomb)


@PerTestFile
@given(data=st.data())
def test_damaged_files_give_a_workload_or_an_input_error(
    tmp_path: Path, data: st.DataObject
) -> None:
    """Nothing but `InputError` comes out of bytes changed anywhere, packed or not."""
    trace_format, source = data.draw(st.sampled_from([("azure", CODE), ("mooncake", MOONCAKE)]))
    whole = source.read_bytes()[:900]
    if data.draw(st.booleans()):
        whole = zlib.compress(whole, wbits=31)
    position = data.draw(st.integers(0, len(whole) - 1))
    insert = data.draw(st.binary(max_size=8))
    damaged = whole[:position] + insert + whole[position + data.draw(st.integers(0, 8)) :]
    with contextlib.suppress(InputError):
        result = read_bytes(tmp_path, trace_format, damaged)
        times = [*arrivals(result), *result.attempts["arrival_us"]]
        assert 0 == min(times)


# The command


@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json"])
def test_import_writes_a_workload_that_reads_back_with_the_same_hash(
    tmp_path: Path, suffix: str
) -> None:
    """All three forms hold the imported workload; JSON on standard output tells its hash."""
    out = tmp_path / f"w{suffix}"
    done = run_import("mooncake", MOONCAKE, "-o", out, "--json")
    expected = FORMATS["mooncake"].read(MOONCAKE).workload.sha256
    assert expected == read_workload(out).sha256
    assert {
        "attempts": {},
        "attempts_file": None,
        "license_left_out": suffix == ".jsonl",
        "output_tokens": 21_759,
        "prompt_tokens": 743_189,
        "requests": 60,
        "workload": str(out),
        "workload_sha256": expected,
    } == json.loads(done.stdout)
    assert (
        f"{out}: 60 requests, attempts: none, 743189 prompt tokens, 21759 output tokens, "
        f"workload_sha256 {expected}"
    ) == done.stderr.splitlines()[0]
    assert [out.name] == [p.name for p in tmp_path.iterdir()]


def test_quiet_import_prints_nothing(tmp_path: Path) -> None:
    """With --quiet and without --json both streams stay empty."""
    done = run_import("azure", CONV, "-o", tmp_path / "w.jsonl", "--quiet")
    assert ("", "") == (done.stdout, done.stderr)


def test_import_keeps_attempts_beside_the_workload(tmp_path: Path) -> None:
    """Rows that cannot be replayed are named in the summary and found in their own file."""
    trace = tmp_path / "trace.csv"
    trace.write_bytes(azure_text(f"{STAMP},1,0", f"{STAMP},0,3", f"{STAMP},1,3"))
    out = tmp_path / "w.jsonl"
    done = run_import("azure", trace, "-o", out, "--json")
    beside = tmp_path / "w.attempts.parquet"
    assert "1 requests, attempts: 1 no_output, 1 no_prompt, 1 prompt tokens" in done.stderr
    assert str(beside) == json.loads(done.stdout)["attempts_file"]
    assert [2, 3] == pl.read_parquet(beside)["source_row"].to_list()


def test_attempts_of_another_import_never_stay_beside_a_new_workload(tmp_path: Path) -> None:
    """Without --force they are refused, with it they go."""
    beside = tmp_path / "w.attempts.parquet"
    write_attempts(FORMATS["azure"].read(CONV), beside)
    out = tmp_path / "w.jsonl"
    with pytest.raises(OutputExists, match=r"w\.attempts\.parquet: exists"):
        run_import("azure", CONV, "-o", out)
    assert not out.exists()
    run_import("azure", CONV, "-o", out, "--force")
    assert [out.name] == [p.name for p in tmp_path.iterdir()]


def test_import_replaces_a_workload_only_with_force(tmp_path: Path) -> None:
    """An existing output is refused and left as it was."""
    out = tmp_path / "w.jsonl"
    out.write_bytes(b"mine")
    with pytest.raises(OutputExists, match=r"w\.jsonl: exists"):
        run_import("azure", CONV, "-o", out)
    assert b"mine" == out.read_bytes()
    run_import("azure", CONV, "-o", out, "--force")
    assert 200 == len(read_workload(out))


def test_import_never_overwrites_its_own_source(tmp_path: Path) -> None:
    """Even --force does not replace the trace by the workload made of it."""
    trace = tmp_path / "trace.jsonl"
    trace.write_bytes(MOONCAKE.read_bytes())
    with pytest.raises(OutputExists, match="is the file to be read"):
        run_import("mooncake", trace, "-o", trace, "--force")
    assert MOONCAKE.read_bytes() == trace.read_bytes()


def test_bad_trace_writes_nothing(tmp_path: Path) -> None:
    """After a refused row not even an empty directory is left."""
    trace = tmp_path / "trace.csv"
    trace.write_bytes(_azure_rows(f"{STAMP},1,x"))
    with pytest.raises(InputError, match=r"trace\.csv:3: GeneratedTokens must be an integer"):
        run_import("azure", trace, "-o", tmp_path / "new" / "w.parquet")
    assert [trace.name] == [p.name for p in tmp_path.iterdir()]


def test_a_window_of_a_trace_starts_at_zero_and_says_so(tmp_path: Path) -> None:
    """--start and --count keep requests in order, shift their times and stand in the provenance."""
    run_import("azure", CONV, "-o", tmp_path / "whole.json")
    run_import("azure", CONV, "-o", tmp_path / "part.json", "--start", 7, "--count", 5)
    whole, part = (read_workload(tmp_path / f"{n}.json") for n in ("whole", "part"))
    kept = whole.requests[7:12]
    zero = kept[0].arrival_us
    assert tuple(replace(r, arrival_us=r.arrival_us - zero) for r in kept) == part.requests
    assert {"start": 7, "count": 5} == (part.provenance or {})["window"]
    with pytest.raises(InputError, match="window must be a part of 200 requests, got 199:201"):
        run_import("azure", CONV, "-o", tmp_path / "no.json", "--start", 199, "--count", 2)


def test_import_of_a_run_cuts_the_window_asked_for(tmp_path: Path) -> None:
    """--start and --count choose requests of what the run was offered, from 0 on."""
    run = read_run(RUN)
    run_import("run", RUN, "-o", tmp_path / "whole.parquet", "--quiet")
    run_import("run", RUN, "-o", tmp_path / "part.jsonl", "--start", 10, "--count", 5, "--quiet")
    assert run_workload(run).sha256 == read_workload(tmp_path / "whole.parquet").sha256
    part = read_workload(tmp_path / "part.jsonl")
    assert run_workload(run, 10, 5).sha256 == part.sha256
    assert (5, 0) == (len(part), part.requests[0].arrival_us)
    with pytest.raises(InputError, match="must hold at most 4 requests, got 5"):
        run_import("run", RUN, "-o", tmp_path / "w.jsonl", "--count", 5, "--max-requests", 4)


def test_import_of_a_run_names_the_requests_that_generated_nothing(tmp_path: Path) -> None:
    """Without an offered workload the measured rows are used, and what they lack is counted."""
    copy = tmp_path / "run"
    shutil.copytree(RUN, copy)
    (copy / "offered.jsonl").unlink()
    (part,) = (copy / "requests").iterdir()
    frame = pl.read_parquet(part)
    first_two = pl.int_range(pl.len()) < 2
    nothing = pl.when(first_two).then(None).otherwise(pl.col("generated_tokens"))
    frame = frame.with_columns(generated_tokens=nothing)
    frame.write_parquet(part, metadata={"schema": pl.read_parquet_metadata(part)["schema"]})
    done = run_import("run", copy, "-o", tmp_path / "w.jsonl", "--json")
    summary = json.loads(done.stdout)
    assert ({"no_output": 2}, frame.height - 2) == (summary["attempts"], summary["requests"])
    assert "attempts: 2 no_output" in done.stderr


def test_output_name_is_checked_before_anything_is_read(tmp_path: Path) -> None:
    """A suffix no workload has is refused even when the trace is absent."""
    with pytest.raises(InputError, match=r"must end in one of \.parquet, \.jsonl, \.json"):
        run_import("azure", tmp_path / "absent", "-o", tmp_path / "w.csv")


def test_traces_are_read_from_standard_input_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`-` reads what is piped in and leaves the stream open."""
    stdin = io.TextIOWrapper(io.BytesIO(gzip.compress(MOONCAKE.read_bytes())))
    monkeypatch.setattr(sys, "stdin", stdin)
    result = FORMATS["mooncake"].read(Path("-"))
    assert FORMATS["mooncake"].read(MOONCAKE).workload.sha256 == result.workload.sha256
    assert not stdin.buffer.closed
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"x")))
    with pytest.raises(InputError, match=r"^standard input:1: header must be"):
        FORMATS["azure"].read(Path("-"))
    assert not list(tmp_path.iterdir())


# Fixtures and whole traces


def test_fixtures_are_the_bytes_their_readme_names() -> None:
    """Size, hash and row count of every slice are as documented."""
    rows = re.findall(
        r"\| `([^`]+)` \| (\d+) \|[^|]+\| ([\d,]+) \| `(\w{64})` \|",
        (FIXTURES / "README.md").read_text(),
    )
    assert {p.name for p in FIXTURES.iterdir()} - {"README.md"} == {name for name, *_ in rows}
    for name, count, size, digest in rows:
        data = (FIXTURES / name).read_bytes()
        assert (int(size.replace(",", "")), digest) == (
            len(data),
            hashlib.sha256(data).hexdigest(),
        )
        assert int(count) == len(data.splitlines()) - name.endswith(".csv")


def _azure_sums(path: Path) -> tuple[int, int, int]:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return (
        len(rows),
        sum(int(r["ContextTokens"]) for r in rows),
        sum(int(r["GeneratedTokens"]) for r in rows),
    )


def _mooncake_sums(path: Path) -> tuple[int, int, int]:
    frame = pl.read_ndjson(io.BytesIO(gzip.decompress(path.read_bytes())))
    return frame.height, int(frame["input_length"].sum()), int(frame["output_length"].sum())


@pytest.mark.skipif(not WHOLE.is_dir(), reason="the whole traces are not in the repository")
@pytest.mark.parametrize(
    ("trace_format", "name", "sums"),
    [
        ("azure", "AzureLLMInferenceTrace_code.csv", _azure_sums),
        ("azure", "AzureLLMInferenceTrace_conv.csv", _azure_sums),
        ("mooncake", "mooncake_conversation_trace.jsonl.gz", _mooncake_sums),
    ],
)
def test_whole_trace_agrees_with_another_reader(
    trace_format: str, name: str, sums: Callable[[Path], tuple[int, int, int]]
) -> None:
    """Rows and token sums of the published file equal those csv or polars finds in it."""
    result = FORMATS[trace_format].read(WHOLE / name)
    requests = result.workload.requests
    assert sums(WHOLE / name) == (
        len(requests) + len(result.attempts),
        sum(r.prompt_tokens for r in requests),
        sum(r.output_tokens for r in requests),
    )
