"""What strangers hand in is refused in one line that says where and why, and nothing is written.

The ids of the cases are the reasons. Text in workloads holds `S3CRET`, which no message may repeat.
"""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tracemalloc
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from preempt.main import main
from replay import parquet
from replay.config import read_config
from replay.errors import InputError
from replay.workload_file import read_workload

CHECKOUT = Path(__file__).resolve().parent.parent
SECRET = "S3CRET"  # noqa: S105  # stands for one
SCHEMA = "preemption-workload/1"
SAFE = 2**53 - 1
CONFIG = b'[engine]\nprofile = "lab"\ncapacity_blocks = 12\n'
DEEP = 100_000
PerFile = settings(
    max_examples=100,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)

RECORD: dict[str, Any] = {
    "request_id": "S3CRET-0",
    "arrival_us": 0,
    "prompt_tokens": 3,
    "output_tokens": 2,
    "tenant": "S3CRET-team",
}
GOOD = json.dumps(RECORD)
HEADER = json.dumps({"prefix_block_tokens": 2, "schema": SCHEMA})


def raw(**fields: str) -> str:
    """A record with other fields, given as JSON texts; its id is not the one of `GOOD`."""
    texts = {k: json.dumps(v) for k, v in RECORD.items()} | {"request_id": '"S3CRET-1"'} | fields
    return "{" + ", ".join(f'"{k}": {v}' for k, v in texts.items()) + "}"


def listing(root: Path) -> dict[str, tuple[int, bytes | str | None]]:
    """Every entry below with its kind and content, so that nothing can appear, go or change."""
    found: dict[str, tuple[int, bytes | str | None]] = {}
    for path in sorted(root.rglob("*")):
        content: bytes | str | None = None
        if path.is_symlink():
            content = str(path.readlink())
        elif path.is_file():
            content = path.read_bytes()
        found[str(path.relative_to(root))] = (path.lstat().st_mode, content)
    return found


Refused = Callable[..., str]


@pytest.fixture(name="refused")
def _refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Refused:
    """Run the command in `tmp_path` and hold everything a refusal promises; gives its line."""
    monkeypatch.chdir(tmp_path)

    def run(*arguments: str, words: Sequence[str] = ()) -> str:
        before = listing(tmp_path)
        with pytest.raises(SystemExit) as left:
            main(arguments)
        out, err = capfd.readouterr()
        check_line(left.value.code, out, err, words)
        assert before == listing(tmp_path)
        return err

    return run


def check_line(code: object, out: str, err: str, words: Sequence[str]) -> None:
    """Exit code 2 and one printable line of the form `preempt: place: …`, without any secret."""
    assert err.startswith("preempt: "), err
    assert 2 == code, err
    assert "" == out
    assert err.endswith("\n")
    assert err[:-1].isprintable(), err
    assert SECRET not in err
    assert "Traceback" not in err
    for word in words:
        assert word in err


def replay_of(name: str) -> tuple[str, ...]:
    """Arguments that replay a file of this name."""
    return ("replay", name, "--config", "c.toml", "--out", "out")


@pytest.fixture(autouse=True)
def _config(tmp_path: Path) -> None:
    """A valid configuration, for what is wrong elsewhere."""
    (tmp_path / "c.toml").write_bytes(CONFIG)


# One field of one record: field, JSON text, words of the message.

NOT_INTEGERS = {
    "true": ("true", "must be an integer, got true"),
    "false": ("false", "must be an integer, got false"),
    "1.0": ("1.0", "must be an integer, got 1.0"),
    "1e2": ("1e2", "must be an integer, got 100.0"),
    "text 3": ('"3"', "must be an integer, got a string of 1 code point"),
    "secret text": ('"S3CRET"', "must be an integer, got a string of 6 code points"),
    "2^53": (str(2**53), f"must be within ±(2^53 - 1), got {2**53}"),
    "-2^53": (str(-(2**53)), f"must be within ±(2^53 - 1), got {-(2**53)}"),
    "5000 digits": ("9" * 5000, "must be within ±(2^53 - 1), got an integer of 5000 digits"),
    "-5000 digits": ("-" + "9" * 5000, "must be within ±(2^53 - 1), got an integer of 5000 digits"),
    "NaN": ("NaN", "must be an integer, got NaN"),
    "Infinity": ("Infinity", "must be an integer, got Infinity"),
    "-Infinity": ("-Infinity", "must be an integer, got -Infinity"),
    "1e999": ("1e999", "must be an integer, got Infinity"),
    "list": ('["S3CRET"]', "must be an integer, got a list of 1"),
    "object": ('{"S3CRET": 1}', "must be an integer, got an object of 1 key"),
}
NOT_NAMES = {
    "empty": ('""', "must have 1 to 128 code points, got a string of 0 code points"),
    "129 code points": (
        f'"{"S3CRET" + "𝄞" * 123}"',
        "must have 1 to 128 code points, got a string of 129 code points",
    ),
    "lone surrogate": ('"S3CRET\\ud800"', "7 code points with a lone surrogate"),
    "lone low surrogate": ('"\\udc00S3CRET"', "7 code points with a lone surrogate"),
    "number": ("3", "must be a string, got 3"),
    "list": ('["S3CRET"]', "must be a string, got a list of 1"),
    "true": ("true", "must be a string, got true"),
} | {
    f"control character U+{ord(c):04X}": (
        f'"S3CRET\\u{ord(c):04x}"',
        "must hold no control character and no surrogate, got a string of 7 code points",
    )
    for c in "\x00\t\n\r\x1b\x1f\x7f\x80\x85\x9f\u2028\u2029"
}
FIELD_CASES = [
    *(
        (f"{field} {reason}", field, text, message)
        for field in ("arrival_us", "prompt_tokens", "output_tokens", "priority")
        for reason, (text, message) in NOT_INTEGERS.items()
    ),
    *(
        (f"{field} {text}", field, text, f"must be >= {least}, got {text}")
        for field, least, texts in (
            ("arrival_us", 0, ["-1"]),
            ("prompt_tokens", 1, ["0", "-1"]),
            ("output_tokens", 1, ["0", "-1"]),
        )
        for text in texts
    ),
    *(
        (f"{field} null", field, "null", "must be an integer, got null")
        for field in ("arrival_us", "prompt_tokens", "output_tokens")
    ),
    ("request_id null", "request_id", "null", "must be a string, got null"),
    *(
        (f"{field} {reason}", field, text, message)
        for field in ("request_id", "tenant")
        for reason, (text, message) in NOT_NAMES.items()
    ),
    ("prefix_blocks text", "prefix_blocks", '"S3CRET"', "must be a list of integers, got a string"),
    ("prefix_blocks false", "prefix_blocks", "false", "must be a list of integers, got false"),
    ("prefix_blocks object", "prefix_blocks", "{}", "must be a list of integers, got an object"),
    ("too many prefix blocks", "prefix_blocks", "[1,2,3]", "at most 2 entries"),
    ("prefix block -1", "prefix_blocks", "[1,-1]", "[1] must be >= 0, got -1"),
    ("prefix block true", "prefix_blocks", "[true]", "[0] must be an integer, got true"),
    ("prefix block null", "prefix_blocks", "[null]", "[0] must be an integer, got null"),
    ("prefix block 1.0", "prefix_blocks", "[1.0]", "[0] must be an integer, got 1.0"),
    ("prefix block 2^53", "prefix_blocks", f"[{2**53}]", "[0] must be within ±(2^53 - 1)"),
    ("prefix block text", "prefix_blocks", '["S3CRET"]', "[0] must be an integer, got a string"),
    ("prefix block list", "prefix_blocks", "[[1]]", "[0] must be an integer, got a list of 1"),
]


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
@pytest.mark.parametrize(
    ("field", "text", "message"), [pytest.param(*c, id=name) for name, *c in FIELD_CASES]
)
def test_a_wrong_field_is_refused_by_place_field_and_rule(
    tmp_path: Path, refused: Refused, suffix: str, field: str, text: str, message: str
) -> None:
    """The third line of a `.jsonl`, or the second request of a `.json`."""
    bad = raw(**{field: text})
    if suffix == ".jsonl":
        (tmp_path / "w.jsonl").write_text(f"{HEADER}\n{GOOD}\n{bad}\n", encoding="utf-8")
        place = "w.jsonl:3: "
    else:
        (tmp_path / "w.json").write_text(f'{HEADER[:-1]}, "requests": [{GOOD}, {bad}]}}')
        place = "w.json: requests[1]: "
    line = refused(*replay_of(f"w{suffix}"), words=[message])
    assert line.startswith(f"preempt: {place}{field}")


# Records, headers and whole files: name, bytes, words.

NESTED = "[" * DEEP
MISSING = {
    f"no {name}": (
        "{" + ", ".join(f'"{k}": {json.dumps(v)}' for k, v in RECORD.items() if k != name) + "}",
        f"{name} is required, got nothing",
    )
    for name in ("request_id", "arrival_us", "prompt_tokens", "output_tokens")
}
LINES: dict[str, tuple[str, str]] = MISSING | {
    "unknown key": (raw(S3CRET_key="1"), "unknown key of 10 code points; known: request_id"),
    "misspelled key": (raw(prioritty="1"), "unknown key of 9 code points; did you mean priority?"),
    "repeated key": (
        GOOD[:-1] + ', "tenant": "S3CRET-x"}',
        "must not repeat a key, got tenant twice",
    ),
    "repeated key inside": (
        raw(tenant='{"S3CRET": 1, "S3CRET": 1}'),
        "a key of 6 code points twice",
    ),
    "duplicate id": (GOOD, "request_id must be unique, already at w.jsonl:2"),
    "duplicate id in another spelling": (
        raw(request_id='"\\u00533CRET-0"'),
        "request_id must be unique, already at w.jsonl:2",
    ),
    "number": ("3", "must be an object, got 3"),
    "text": ('"S3CRET"', "must be an object, got a string of 6 code points"),
    "null": ("null", "must be an object, got null"),
    "list": (f"[{GOOD}]", "must be an object, got a list of 1"),
    "two headers": (HEADER, "unknown key"),
    "empty object": ("{}", "request_id is required"),
    "cut": (GOOD[:40], "must be JSON"),
    "two on a line": (GOOD + raw(), "must be JSON: Extra data"),
    "trailing comma": (GOOD + ",", "must be JSON: Extra data"),
    "comment": ("# S3CRET", "must be JSON"),
    "unquoted": (raw(tenant="S3CRET"), "must be JSON"),
    "control character in text": (raw(tenant='"S3CRET\x07"'), "must be JSON: Invalid control"),
    "bad escape": (raw(tenant='"S3CRET\\x41"'), "must be JSON: Invalid \\escape"),
    "deep nesting": (NESTED, "must be JSON, got nesting too deep to parse"),
    "deep nesting in a field": (raw(tenant=NESTED), "must be JSON, got nesting too deep to parse"),
    "deep objects": ('{"a":' * DEEP, "must be JSON, got nesting too deep to parse"),
}


@pytest.mark.parametrize(
    ("text", "message"), [pytest.param(*c, id=name) for name, c in LINES.items()]
)
def test_a_wrong_line_is_refused_by_its_number(
    tmp_path: Path, refused: Refused, text: str, message: str
) -> None:
    """A good header and request before it change nothing."""
    (tmp_path / "w.jsonl").write_text(f"{HEADER}\n{GOOD}\n{text}\n", encoding="utf-8")
    line = refused(*replay_of("w.jsonl"), words=[message])
    assert line.startswith("preempt: w.jsonl:3: ")


HEADERS = {
    "other version": (f'{{"schema": "{SCHEMA[:-1]}2"}}', f"must be {SCHEMA}, got {SCHEMA[:-1]}2"),
    "other name": ('{"schema": "S3CRET"}', f"must be {SCHEMA}, got a string of 6 code points"),
    "number": ('{"schema": 1}', f"schema must be {SCHEMA}, got 1"),
    "no schema": ('{"prefix_block_tokens": 2}', f"schema must be {SCHEMA}, got null"),
    "unknown key": (f'{{"schema": "{SCHEMA}", "S3CRET": 1}}', "unknown key of 6 code points"),
    "repeated key": (f'{{"schema": "{SCHEMA}", "schema": "{SCHEMA}"}}', "must not repeat a key"),
    "chunk 0": (HEADER.replace("2", "0"), "prefix_block_tokens must be >= 1, got 0"),
    "chunk true": (HEADER.replace("2", "true"), "prefix_block_tokens must be an integer, got true"),
    "chunk 1.0": (HEADER.replace("2", "1.0"), "prefix_block_tokens must be an integer, got 1.0"),
    "chunk 2^53": (HEADER.replace("2", str(2**53)), "prefix_block_tokens must be within ±"),
    "chunk text": (HEADER.replace("2", '"S3CRET"'), "prefix_block_tokens must be an integer"),
}


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
@pytest.mark.parametrize(
    ("header", "message"), [pytest.param(*c, id=name) for name, c in HEADERS.items()]
)
def test_a_wrong_header_is_refused(
    tmp_path: Path, refused: Refused, suffix: str, header: str, message: str
) -> None:
    """The header's rules are the same wherever it stands."""
    text = f"{header}\n{GOOD}\n" if suffix == ".jsonl" else f'{header[:-1]}, "requests": [{GOOD}]}}'
    (tmp_path / f"w{suffix}").write_text(text)
    refused(*replay_of(f"w{suffix}"), words=[f"w{suffix}", message])


def test_prefix_blocks_need_the_size_of_a_chunk(tmp_path: Path, refused: Refused) -> None:
    """Without it they would stand for nothing."""
    (tmp_path / "w.jsonl").write_text(raw(prefix_blocks="[7]"))
    message = "w.jsonl:1: prefix_blocks needs prefix_block_tokens in the header, got a list of 1"
    refused(*replay_of("w.jsonl"), words=[message])


WHOLE = f'"schema": "{SCHEMA}"'
OBJECTS = {
    "array": (f"[{GOOD}]", "w.json: must be an object, got a list of 1"),
    "no requests": (f"{{{WHOLE}}}", "w.json: requests must be a list, got null"),
    "requests object": (f'{{{WHOLE}, "requests": {{}}}}', "w.json: requests must be a list"),
    "no request at all": (f'{{{WHOLE}, "requests": []}}', "w.json: must hold at least one request"),
    "name number": (f'{{{WHOLE}, "name": 1, "requests": [{GOOD}]}}', "w.json: name must be"),
    "name lone surrogate": (
        f'{{{WHOLE}, "name": "S3CRET\\ud800", "requests": [{GOOD}]}}',
        "w.json: name must",
    ),
    "json lines": (f"{HEADER}\n{GOOD}\n", "w.json: must be JSON: Extra data at line 2 column 1"),
    "cut": (f'{{{WHOLE}, "requests": [{GOOD}', "w.json: must be JSON"),
    "provenance text": (
        f'{{{WHOLE}, "provenance": "S3CRET", "requests": [{GOOD}]}}',
        "w.json: provenance must be an object",
    ),
} | {
    f"provenance {reason}": (
        f'{{{WHOLE}, "provenance": {{"S3CRET": [{text}]}}, "requests": [{GOOD}]}}',
        "w.json: provenance",
    )
    for reason, text in {
        "NaN": "NaN",
        "Infinity": "1e999",
        "2^53": str(2**53),
        "5000 digits": "9" * 5000,
        "lone surrogate": '"S3CRET\\ud800"',
        "key with a lone surrogate": '{"S3CRET\\ud800": 1}',
        "nesting": "[" * 900 + "]" * 900,
    }.items()
}


@pytest.mark.parametrize(
    ("text", "message"), [pytest.param(*c, id=name) for name, c in OBJECTS.items()]
)
def test_a_wrong_json_workload_is_refused(
    tmp_path: Path, refused: Refused, text: str, message: str
) -> None:
    """Name and provenance travel into other files, so they are checked on the way in."""
    (tmp_path / "w.json").write_text(text)
    refused(*replay_of("w.json"), words=[message])


BYTES = {
    "nothing": (b"", "must not be empty"),
    "white space only": (b" \n\r\n\t\n", "must not be empty"),
    "byte-order mark": (b"\xef\xbb\xbf" + GOOD.encode(), "must be UTF-8 without a byte-order mark"),
    "UTF-16": (GOOD.encode("utf-16"), "must be UTF-8 text, got a bad byte at offset 0"),
    "UTF-16 without a mark": (GOOD.encode("utf-16-le"), "must be JSON"),
    "UTF-32": (GOOD.encode("utf-32"), "must be UTF-8 text, got a bad byte at offset 0"),
    "Latin-1": (b'{"request_id": "S3CRET\xe9"}', "must be UTF-8 text, got a bad byte at offset 22"),
    "overlong": (b'{"request_id": "\xc0\x80"}', "must be UTF-8 text"),
    "encoded surrogate": (b'{"request_id": "\xed\xa0\x80"}', "must be UTF-8 text"),
    "gzip": (b"\x1f\x8b\x08\x00S3CRET", "must be UTF-8 text"),
    "image": (b"\x89PNG\r\n\x1a\nS3CRET", "must be UTF-8 text"),
    "Parquet magic": (b"PAR1S3CRETPAR1", "must be JSON"),
    "zeros": (b"\0" * 4096, "must be JSON"),
}


@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
@pytest.mark.parametrize(
    ("data", "message"), [pytest.param(*c, id=name) for name, c in BYTES.items()]
)
def test_bytes_that_are_no_json_text_are_refused(
    tmp_path: Path, refused: Refused, suffix: str, data: bytes, message: str
) -> None:
    """Whatever they are."""
    (tmp_path / f"w{suffix}").write_bytes(data)
    refused(*replay_of(f"w{suffix}"), words=[f"w{suffix}", message])


@pytest.mark.parametrize("data", [data for data, _ in BYTES.values()], ids=list(BYTES))
def test_bytes_that_are_no_parquet_are_refused(
    tmp_path: Path, refused: Refused, data: bytes
) -> None:
    """A name is not enough."""
    (tmp_path / "w.parquet").write_bytes(data)
    refused(*replay_of("w.parquet"), words=["w.parquet: must be a readable Parquet file"])


def test_a_file_of_a_header_only_is_refused(tmp_path: Path, refused: Refused) -> None:
    """A workload has at least one request."""
    (tmp_path / "w.jsonl").write_text(HEADER + "\n")
    refused(*replay_of("w.jsonl"), words=["w.jsonl: must hold at least one request, got none"])


def test_a_line_longer_than_the_limit_is_refused(tmp_path: Path, refused: Refused) -> None:
    """Memory is bounded by the line, not by the file."""
    with (tmp_path / "w.jsonl").open("wb") as file:
        file.write(GOOD.encode() + b"\n")
        file.truncate(17 * 2**20)
    refused(*replay_of("w.jsonl"), words=["w.jsonl:2: must be at most 16777216 bytes a line"])


def test_a_file_larger_than_the_limit_is_refused(tmp_path: Path) -> None:
    """A sparse terabyte costs neither a terabyte nor a minute."""
    for name, read in (("w.json", read_workload), ("c.toml", read_config)):
        with (tmp_path / name).open("wb") as file:
            file.truncate(2**40)
        with pytest.raises(InputError, match=f"{name}: must be at most [0-9]+ bytes, got more"):
            read(tmp_path / name)


def test_a_very_long_key_costs_little_memory(tmp_path: Path) -> None:
    """Suggesting a near key must not index megabytes."""
    path = tmp_path / "w.jsonl"
    path.write_text('{"' + "abcdefgh" * 2**14 + '": 1}')
    tracemalloc.start()
    try:
        with pytest.raises(InputError, match="unknown key of 131072 code points"):
            read_workload(path)
        assert 8 * path.stat().st_size > tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


# Parquet

COLUMNS: dict[str, Any] = {k: [v] for k, v in RECORD.items()}
META = {"schema": SCHEMA}
Change = dict[str, Any]
FRAMES: dict[str, tuple[Change, dict[str, str] | None, str]] = {
    "float column": ({"prompt_tokens": [3.0]}, META, "prompt_tokens must be a column of type int"),
    "text column": ({"prompt_tokens": ["3"]}, META, "prompt_tokens must be a column of type integ"),
    "boolean column": ({"output_tokens": [True]}, META, "output_tokens must be a column of type"),
    "binary id": ({"request_id": [b"S3CRET"]}, META, "request_id must be a column of type string"),
    "integer id": ({"request_id": [3]}, META, "request_id must be a column of type string"),
    "enumeration that names its values": (
        {"arrival_us": pl.Series(["S3CRET"], dtype=pl.Enum(["S3CRET", "S3CRET-2"]))},
        META,
        "arrival_us must be a column of type integer",
    ),
    "structure that names its fields": (
        {"request_id": [{"S3CRET": 1}]},
        META,
        "request_id must be a column of type string",
    ),
    "times": (
        {"arrival_us": pl.Series([0]).cast(pl.Datetime("us"))},
        META,
        "arrival_us must be a column of type integer",
    ),
    "list of floats": ({"prefix_blocks": [[1.0]]}, META, "prefix_blocks must be a column of type"),
    "list of lists": ({"prefix_blocks": [[[1]]]}, META, "prefix_blocks must be a column of type"),
    "missing column": ({"output_tokens": None}, META, "output_tokens is required"),
    "extra column": ({"S3CRET_note": ["S3CRET"]}, META, "unknown key of 11 code points"),
    "null id": ({"request_id": [None]}, META, "request_id must be a"),
    "null in a required column": (
        {"arrival_us": pl.Series([None], dtype=pl.Int64)},
        META,
        "row 0: arrival_us must be an integer, got null",
    ),
    "control character": (
        {"request_id": ["S3CRET\u2028"]},
        META,
        "row 0: request_id must hold no control character",
    ),
    "129 code points": ({"tenant": ["𝄞" * 129]}, META, "row 0: tenant must have 1 to 128 code poi"),
    "2^53": (
        {"arrival_us": [2**53]},
        META,
        f"row 0: arrival_us must be within ±(2^53 - 1), got {2**53}",
    ),
    "-1": ({"arrival_us": [-1]}, META, "row 0: arrival_us must be >= 0, got -1"),
    "2^64 - 1": (
        {"arrival_us": pl.Series([2**64 - 1], dtype=pl.UInt64)},
        META,
        "row 0: arrival_us must be within ±(2^53 - 1)",
    ),
    "null in a list": (
        {"prefix_blocks": [[1, None]]},
        META | {"prefix_block_tokens": "2"},
        "row 0: prefix_blocks[1] must be an integer, got null",
    ),
    "prefix blocks without their size": (
        {"prefix_blocks": [[1]]},
        META,
        "row 0: prefix_blocks needs",
    ),
    "other version": ({}, {"schema": f"{SCHEMA[:-1]}2"}, f"must be {SCHEMA}, got {SCHEMA[:-1]}2"),
    "other schema": ({}, {"schema": "S3CRET"}, f"must be {SCHEMA}, got a string of 6 code points"),
    "no schema": ({}, None, f"schema must be {SCHEMA}, got null"),
    "chunk true": (
        {},
        META | {"prefix_block_tokens": "true"},
        "prefix_block_tokens must be an int",
    ),
    "chunk no JSON": ({}, META | {"prefix_block_tokens": "S3CRET"}, "must be JSON"),
    "provenance no JSON": ({}, META | {"provenance": "S3CRET"}, "must be JSON"),
    "provenance deep": ({}, META | {"provenance": NESTED}, "nesting too deep to parse"),
    "provenance list": ({}, META | {"provenance": "[]"}, "provenance must be an object"),
    "provenance NaN": ({}, META | {"provenance": '{"S3CRET": NaN}'}, "provenance"),
    "no row": (
        {k: pl.Series([], dtype=pl.Series(v).dtype) for k, v in COLUMNS.items()},
        META,
        "must hold at least one request, got none",
    ),
    "duplicate id": (
        {k: v * 2 for k, v in COLUMNS.items()},
        META,
        "row 1: request_id must be unique, already at w.parquet: row 0",
    ),
}


@pytest.mark.parametrize(
    ("change", "metadata", "message"), [pytest.param(*c, id=name) for name, c in FRAMES.items()]
)
def test_a_parquet_file_of_other_content_is_refused(
    tmp_path: Path, refused: Refused, change: Change, metadata: dict[str, str] | None, message: str
) -> None:
    """Types, columns and metadata are held to the same rules as text."""
    columns = {k: v for k, v in (COLUMNS | change).items() if v is not None}
    pl.DataFrame(columns).write_parquet(tmp_path / "w.parquet", metadata=metadata)
    refused(*replay_of("w.parquet"), words=["w.parquet: ", message])


@pytest.mark.parametrize("kept", [0, 3, 4, 40, 0.5, -1, -8])
def test_a_cut_parquet_file_is_refused(tmp_path: Path, refused: Refused, kept: float) -> None:
    """Wherever it was cut."""
    path = tmp_path / "w.parquet"
    pl.DataFrame(COLUMNS).write_parquet(path, metadata=META)
    data = path.read_bytes()
    path.write_bytes(data[: int(kept * len(data)) if kept == 0.5 else int(kept)])
    refused(*replay_of("w.parquet"), words=["w.parquet: must be a readable Parquet file"])


def test_a_list_that_unpacks_beyond_the_memory_limit_is_refused(
    tmp_path: Path, refused: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A few kilobytes claim one prompt of ten million chunks."""
    small = duckdb.connect(config=parquet._DECODER | {"memory_limit": "32MB"})
    monkeypatch.setattr(parquet, "bounded_decoder", lambda: small)
    blocks = pl.Series([pl.zeros(10_000_000, dtype=pl.Int64, eager=True)])
    pl.DataFrame(COLUMNS | {"prefix_blocks": blocks}).write_parquet(
        tmp_path / "w.parquet", metadata=META | {"prefix_block_tokens": "1"}, compression="zstd"
    )
    assert 2**20 > (tmp_path / "w.parquet").stat().st_size
    refused(*replay_of("w.parquet"), words=["w.parquet: must "])


DAMAGE = """
import contextlib, sys
from pathlib import Path
from replay.errors import InputError
from replay.workload_file import read_workload
path, copy = Path(sys.argv[1]), Path(sys.argv[2])
data = path.read_bytes()
for text in sys.argv[3].split():
    offset, value = map(int, text.split(":"))
    copy.write_bytes(data[:offset] + bytes([value]) + data[offset + 1 :])
    with contextlib.suppress(InputError):
        read_workload(copy, 64)
"""


def test_one_damaged_byte_of_a_parquet_file_gives_a_workload_or_one_input_error(
    tmp_path: Path,
) -> None:
    """No abort, no panic text on standard error, no other exception.

    In a process of its own, because a reader that aborts takes its process along.
    """
    path = tmp_path / "w.parquet"
    pl.DataFrame(COLUMNS).write_parquet(path, metadata=META)
    size, seeded = path.stat().st_size, random.Random(1)  # noqa: S311  # no secret
    changes = [f"{place}:3" for place in range(36, 76)]
    changes += [f"{seeded.randrange(size // 2, size)}:255" for _ in range(20)]
    found = subprocess.run(
        [
            sys.executable,
            "-c",
            DAMAGE,
            str(path),
            str(tmp_path / "damaged.parquet"),
            " ".join(changes),
        ],
        cwd=CHECKOUT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (0, "") == (found.returncode, found.stderr[:2000])


# Configuration

ENGINE = CONFIG.decode()
CONFIGS: dict[str, tuple[bytes, str]] = {
    name: (data, message)
    for name, (data, message) in BYTES.items()
    if message.startswith(("must not be empty", "must be UTF-8"))
} | {
    name: (text.encode(), message)
    for name, (text, message) in {
        "UTF-16 without a mark": (ENGINE.encode("utf-16-le").decode(), "must be TOML"),
        "JSON": ("{}", "must be TOML"),
        "unknown key": (ENGINE + "capacity_block = 1", "engine: unknown key capacity_block; did"),
        "unknown key with an escape": (ENGINE + '"\\u001b[31m" = 1', "unknown key \\x1b[31m"),
        "unknown table": ("[engines]\n", "unknown key engines; did you mean engine?"),
        "key of the other profile": (
            ENGINE + "max_model_len = 4096",
            "engine.max_model_len belongs to profile vllm-v1, not lab",
        ),
        "repeated key": (ENGINE + "capacity_blocks = 13", "must be TOML"),
        "repeated table": (ENGINE + "[engine]", "must be TOML"),
        "max_ticks 20001": (
            ENGINE + "[limits]\nmax_ticks = 20001",
            "limits.max_ticks must be <= 20000 in this profile, got 20001",
        ),
        "max_requests 65": (
            ENGINE + "[limits]\nmax_requests = 65",
            "limits.max_requests must be <= 64 in this profile, got 65",
        ),
        "true": (ENGINE + "block_size = true", "engine.block_size must be an integer, got true"),
        "1.0": (ENGINE + "block_size = 1.0", "engine.block_size must be an integer, got 1.0"),
        "text": (ENGINE + 'block_size = "3"', "engine.block_size must be an integer, got a string"),
        "date": (ENGINE + "block_size = 1979-05-27", "engine.block_size must be an integer, got a"),
        "0": (ENGINE + "block_size = 0", "engine.block_size must be >= 1, got 0"),
        "-1": (ENGINE + "[policy]\nhost_capacity_bytes = -1", "policy.host_capacity_bytes must be"),
        "2^53": (ENGINE + f"block_size = {2**53}", "engine.block_size must be within ±(2^53 - 1)"),
        "nan": (ENGINE + "block_size = nan", "engine.block_size must be an integer, got NaN"),
        "inf": (
            ENGINE + "block_size = -inf",
            "engine.block_size must be an integer, got -Infinity",
        ),
        "5000 digits": (ENGINE + "block_size = " + "9" * 5000, "an integer of thousands of digits"),
        "5000 hexadecimal digits": (
            ENGINE + "block_size = 0x" + "f" * 5000,
            "engine.block_size must be within ±(2^53 - 1), got an integer of",
        ),
        "20000 binary digits": (
            ENGINE + "block_size = 0b" + "1" * 20000,
            "engine.block_size must be within ±(2^53 - 1), got an integer of",
        ),
        "deep nesting": ("a = " + NESTED, "must be TOML, got nesting too deep to parse"),
        "deep inline tables": ("a = " + "{a = " * 40_000, "must be TOML, got nesting too deep"),
        "key of 20000 parts": ("a." * 20000 + "a = 1", "must be TOML"),
        "table of 20000 parts": ("[" + "a." * 20000 + "a]", "must be TOML"),
        "quoted key of 20000 parts": ('"=".' + "a." * 20000 + "a = 1", "must be TOML"),
        "cut": ('[engine]\nprofile = "la', "must be TOML"),
        "control character": (ENGINE + "# \x07", "must be TOML"),
        "unpaired surrogate escape": (ENGINE + 'rule = "\\ud800"', "must be TOML"),
        "other rule": (ENGINE + 'rule = "lab-2"', "engine.rule must be of the form lab-1"),
        "array of tables": ("[[engine]]\n", "engine must be a table, got a list of 1"),
        "pool too large": (
            '[engine]\nprofile = "lab"\ncapacity_blocks = 9007199254740991',
            "capacity_blocks x block_size x kv_bytes_per_token must be within 2^53 - 1",
        ),
    }.items()
}


@pytest.mark.parametrize(
    ("data", "message"), [pytest.param(*c, id=name) for name, c in CONFIGS.items()]
)
def test_a_wrong_configuration_is_refused(
    tmp_path: Path, refused: Refused, data: bytes, message: str
) -> None:
    """Before the workload is read: there is none."""
    (tmp_path / "c.toml").write_bytes(data)
    refused(*replay_of("w.jsonl"), words=["preempt: c.toml:", message])


# Paths


@pytest.mark.parametrize("name", ["w.jsonl", "w.json", "w.parquet", "c.toml"])
@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "symbolic link to itself"])
def test_a_path_that_is_no_file_is_refused_and_never_waited_for(
    tmp_path: Path, refused: Refused, name: str, kind: str
) -> None:
    """A fifo nobody writes to would hang a plain open."""
    path = tmp_path / name
    path.unlink(missing_ok=True)
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind.startswith("symbolic"):
        path.symlink_to(path)
    message = {
        "missing": "cannot be read: No such file or directory",
        "directory": "must be a file, got a directory",
        "fifo": "must be a file, got not a regular file",
        "symbolic link to itself": "cannot be read: Too many levels of symbolic links",
    }[kind]
    workload = "w.jsonl" if name == "c.toml" else name
    if (kind, workload) == ("directory", name):
        message = "manifest.json is required, got nothing"  # a directory can only be a run
    line = refused(*replay_of(workload), words=[message])
    assert line.startswith(f"preempt: {name}: ")


@pytest.mark.parametrize("name", ["w.csv", "w", "w.JSONL", "w.jsonl.gz", ".jsonl", "w.parquet "])
def test_an_unreadable_suffix_is_refused_with_the_known_ones(
    tmp_path: Path, refused: Refused, name: str
) -> None:
    """The content does not decide."""
    (tmp_path / name).write_text(GOOD)
    refused(*replay_of(name), words=[f"{name}: must end in one of .parquet, .jsonl, .json"])


@pytest.mark.parametrize("name", ["S\x1b[31m.jsonl", "S\nT.jsonl", "S\udcff.jsonl", "S\u2028.json"])
def test_a_file_name_cannot_write_to_the_terminal(refused: Refused, name: str) -> None:
    """Escape sequences and line ends are shown escaped; the line stays one line."""
    refused(*replay_of(name), words=["preempt: S", "cannot be read: No such file"])


# Limits


def many(count: int, **fields: int) -> list[dict[str, Any]]:
    """Records that differ in their ids."""
    return [RECORD | {"request_id": f"S3CRET-{k}"} | fields for k in range(count)]


def write_records(path: Path, records: list[dict[str, Any]]) -> None:
    """Write records in the form the name asks for."""
    if path.suffix == ".parquet":
        pl.DataFrame(records).write_parquet(path, metadata=META)
    elif path.suffix == ".json":
        path.write_text(json.dumps({"schema": SCHEMA, "requests": records}))
    else:
        path.write_text("".join(json.dumps(r) + "\n" for r in records))


@pytest.mark.parametrize("name", ["w.jsonl", "w.json", "w.parquet"])
def test_65_requests_are_refused(tmp_path: Path, refused: Refused, name: str) -> None:
    """The lab takes 64."""
    write_records(tmp_path / name, many(65))
    refused(*replay_of(name), words=[f"{name}: must hold at most 64 r", "65"])


PLACES = {"w.jsonl": "w.jsonl:2: ", "w.json": "w.json: requests[1]: ", "w.parquet": "row 1: "}


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize(("tick_us", "arrival_us"), [(1, 20000), (1000, 20_000_000)])
def test_an_arrival_at_tick_20000_is_refused_by_its_line(
    tmp_path: Path, refused: Refused, name: str, tick_us: int, arrival_us: int
) -> None:
    """The last tick is 19,999."""
    (tmp_path / "c.toml").write_bytes(CONFIG + f"tick_us = {tick_us}\n".encode())
    late = RECORD | {"request_id": "S3CRET-late", "arrival_us": arrival_us}
    write_records(tmp_path / name, [RECORD, late, RECORD | {"request_id": "S3CRET-next"}])
    words = ["arrival_us must ", "before tick 20000", f"got {arrival_us} (tick 20000)"]
    refused(*replay_of(name), words=[*words, PLACES[name]])


@pytest.mark.parametrize("name", PLACES)
def test_a_request_larger_than_the_pool_is_refused_by_its_line(
    tmp_path: Path, refused: Refused, name: str
) -> None:
    """12 blocks of 8 tokens hold 96; the file's order, not the arrival's, names the line."""
    large = RECORD | {"request_id": "S3CRET-1", "prompt_tokens": 95, "arrival_us": 0}
    write_records(tmp_path / name, [RECORD | {"arrival_us": 9}, large])
    message = "must fit 12 blocks of 8 tokens"
    refused(*replay_of(name), words=["prompt_tokens + output_tokens", message, "97", PLACES[name]])


def test_only_requests_that_cannot_fit_are_no_workload(tmp_path: Path, refused: Refused) -> None:
    """Dropping the last one leaves nothing to replay."""
    write_records(tmp_path / "w.jsonl", many(2, prompt_tokens=1000))
    refused(*replay_of("w.jsonl"), "--on-oversize", "drop", words=["w.jsonl: ", "2 that cannot"])


VLLM = (
    '[engine]\nprofile = "vllm-v1"\nrule = "vllm-0.32.0"\ncapacity_blocks = 12\n'
    "max_num_batched_tokens = 64\nmax_model_len = 200\n"
)


@pytest.mark.parametrize(
    ("prompt", "model_len", "message"),
    [
        (96, 97, "must be at most engine.max_model_len, 97 (--on-oversize drop"),
        (96, 98, "must fit 12 blocks of 8 tokens, engine.capacity_blocks, without the last token"),
        (97, 98, "must be at most engine.max_model_len, 98"),
    ],
)
def test_a_request_vllm_could_never_run_is_refused_by_what_it_exceeds(
    tmp_path: Path, refused: Refused, prompt: int, model_len: int, message: str
) -> None:
    """The last token needs no KV: 12 blocks of 8 hold a prompt of 95 and 2 more tokens."""
    (tmp_path / "c.toml").write_text(VLLM.replace("200", str(model_len)))
    large = RECORD | {"request_id": "S3CRET-1", "prompt_tokens": prompt}
    write_records(tmp_path / "w.jsonl", [RECORD, large])
    found = f"got {prompt + 2}"
    refused(*replay_of("w.jsonl"), words=["w.jsonl:2: prompt_tokens + ", message, found])


def test_the_largest_request_that_fits_vllm_s_pool_is_replayed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """One token more than the pool holds; a larger one can be left out."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text(VLLM)
    fits = RECORD | {"prompt_tokens": 95}
    large = RECORD | {"request_id": "S3CRET-1", "prompt_tokens": 96}
    write_records(tmp_path / "w.jsonl", [large, fits])
    with pytest.raises(SystemExit) as left:
        main([*replay_of("w.jsonl"), "--on-oversize", "drop"])
    err = capfd.readouterr().err
    assert 0 == left.value.code, err
    assert "left out as oversize: 1 (S3CRET-1)" in err
    assert 1 == len(read_workload(tmp_path / "out" / "workload.parquet"))


def test_a_bad_timing_is_refused_before_the_workload_is_read(
    tmp_path: Path, refused: Refused
) -> None:
    """In the configuration or in a file of its own; nothing of it is accepted and ignored."""
    (tmp_path / "c.toml").write_text(VLLM + "[timing]\nstep_ns = 0\n")
    refused(*replay_of("w.jsonl"), words=["c.toml: timing must not be all zero"])
    (tmp_path / "c.toml").write_text(VLLM)
    for text, words in (
        ("[timing]\nstep_ns = 0\n", "t.toml: timing must not be all zero"),
        ("[engine]\ntick_us = 1\n", "t.toml: unknown key engine"),
        ("[calibration]\n", "t.toml: timing is required"),
    ):
        (tmp_path / "t.toml").write_text(text)
        refused(*replay_of("w.jsonl"), "--timing", "t.toml", words=[words])


@pytest.mark.parametrize("oversize", ["refuse", "drop"])
def test_the_other_profile_is_no_internal_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    oversize: str,
) -> None:
    """Whether or not this release replays it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_text(VLLM)
    write_records(tmp_path / "w.jsonl", [RECORD])
    with pytest.raises(SystemExit) as left:
        main([*replay_of("w.jsonl"), "--on-oversize", oversize])
    assert left.value.code in {0, 2}, capfd.readouterr().err


def test_totals_beyond_safe_integers_are_refused(tmp_path: Path, refused: Refused) -> None:
    """Two prompts of 2^52 tokens each are safe, their sum is not."""
    half = 2**52
    (tmp_path / "c.toml").write_text(
        f'[engine]\nprofile = "lab"\ncapacity_blocks = {2**50 - 1}\n[policy]\n'
        f"kv_bytes_per_token = 1\nprefill_tokens_per_tick = {half}\n"
    )
    write_records(tmp_path / "w.jsonl", many(2, prompt_tokens=half))
    refused(*replay_of("w.jsonl"), words=["w.jsonl: ", "must be within ±(2^53 - 1)"])


# Outputs


def ledger_like(path: Path, *names: str) -> Path:
    """A directory of files with these names."""
    path.mkdir()
    for name in names:
        (path / name).write_text(f"content of {name}")
    return path


@pytest.mark.parametrize(
    ("options", "names", "message"),
    [
        pytest.param([], ["receipt.json"], "out: exists; choose another", id="without --force"),
        pytest.param([], ["notes.txt"], "out: exists; choose another", id="foreign, no --force"),
        pytest.param(["--force"], ["notes.txt"], "out: holds entries", id="foreign file"),
        pytest.param(
            ["--force"],
            ["receipt.json", "events.parquet", "notes.txt", ".git"],
            "out: holds entries",
            id="foreign files among its own",
        ),
    ],
)
def test_an_existing_output_is_refused_and_nothing_lost(
    tmp_path: Path, refused: Refused, options: list[str], names: list[str], message: str
) -> None:
    """--force replaces a ledger and nothing else."""
    write_records(tmp_path / "w.jsonl", [RECORD])
    ledger_like(tmp_path / "out", *names)
    refused(*replay_of("w.jsonl"), *options, words=[message])


@pytest.mark.parametrize("options", [[], ["--force"]], ids=["plain", "forced"])
@pytest.mark.parametrize("kind", ["file", "symbolic link", "dangling link", "fifo"])
def test_an_output_that_is_no_directory_is_refused(
    tmp_path: Path, refused: Refused, options: list[str], kind: str
) -> None:
    """A link is not followed: what it leads to may be anyone's."""
    write_records(tmp_path / "w.jsonl", [RECORD])
    out = tmp_path / "out"
    if kind == "file":
        out.write_text("mine")
    elif kind == "fifo":
        os.mkfifo(out)
    else:
        out.symlink_to(ledger_like(tmp_path / "mine") if kind == "symbolic link" else "nowhere")
    refused(*replay_of("w.jsonl"), *options, words=["out: exists and is not a directory"])


@pytest.mark.parametrize("taken", ["directory", "file", "file above"])
def test_an_output_that_is_taken_is_refused_before_the_work(
    tmp_path: Path, refused: Refused, taken: str
) -> None:
    """There is no workload to read, and that is not what the message says."""
    if taken == "directory":
        ledger_like(tmp_path / "out")
    else:
        (tmp_path / "out").write_text("mine")
    out, message = ("out/o", "cannot be created") if taken == "file above" else ("out", "exists")
    arguments = ["replay", "missing.jsonl", "--config", "c.toml", "--out", out]
    line = refused(*arguments, words=[message])
    assert line.startswith("preempt: out: ")


@pytest.mark.parametrize("out", ["file/out", "file/deeper/out"])
def test_an_output_inside_a_file_is_refused(tmp_path: Path, refused: Refused, out: str) -> None:
    """Its directory cannot be made."""
    write_records(tmp_path / "w.jsonl", [RECORD])
    (tmp_path / "file").write_text("mine")
    refused("replay", "w.jsonl", "--config", "c.toml", "--out", out, words=["cannot be created"])


def test_unfinished_requests_end_with_1_and_write_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A run that did not finish has failed; it is no bad input."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.toml").write_bytes(CONFIG + b"[limits]\nmax_ticks = 2\n")
    write_records(tmp_path / "w.jsonl", many(3))
    before = listing(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(replay_of("w.jsonl"))
    assert 1 == left.value.code
    expected = "preempt: w.jsonl: 3 of 3 requests were unfinished at tick 2 (limits.max_ticks)"
    assert capfd.readouterr().err.startswith(expected)
    assert before == listing(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--recovery", "other"], "'--recovery'"),
        (["--victim", "other"], "options: policy.victim must be one of rule"),
        (["--victim", ""], "options: policy.victim must be one of rule"),
        (["--on-oversize", "keep"], "'--on-oversize'"),
        (["--bogus"], "--bogus"),
        (["more"], "unexpected extra argument"),
    ],
    ids=["recovery", "victim", "empty victim", "on-oversize", "unknown option", "extra argument"],
)
def test_a_wrong_option_is_refused(
    tmp_path: Path, refused: Refused, options: list[str], message: str
) -> None:
    """In one line, like everything else."""
    write_records(tmp_path / "w.jsonl", [RECORD])
    refused(*replay_of("w.jsonl"), *options, words=[message])


# Ledgers


@pytest.fixture(name="ledger", scope="session")
def _ledger(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A good ledger, to be copied."""
    root = tmp_path_factory.mktemp("ledger")
    (root / "c.toml").write_bytes(CONFIG)
    write_records(root / "w.jsonl", many(3, prompt_tokens=40, output_tokens=40))
    arguments = ["replay", str(root / "w.jsonl"), "--config", str(root / "c.toml"), "--quiet"]
    with pytest.raises(SystemExit) as left:
        main([*arguments, "--out", str(root / "out")])
    assert 0 == left.value.code
    return root / "out"


RECEIPTS = {
    "NaN": "NaN",
    "Infinity": "1e999",
    "2^53": str(2**53),
    "5000 digits": "9" * 5000,
    "lone surrogate": '"S3CRET\\ud800"',
    "key with a lone surrogate": '{"S3CRET\\ud800": 1}',
    "nesting": "[" * 900 + "]" * 900,
    "text": '"S3CRET"',
}


@pytest.mark.parametrize("text", list(RECEIPTS.values()), ids=list(RECEIPTS))
@pytest.mark.parametrize("key", ["totals", "S3CRET"])
def test_a_receipt_that_says_something_else_is_a_violation_whatever_it_says(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    ledger: Path,
    key: str,
    text: str,
) -> None:
    """Also what canonical JSON has no form for, and what it says is not repeated."""
    monkeypatch.chdir(tmp_path)
    path = shutil.copytree(ledger, tmp_path / "out") / "receipt.json"
    receipt = json.loads(path.read_text()) | {key: "@"}
    path.write_text(json.dumps(receipt).replace('"@"', text))
    before = listing(tmp_path)
    with pytest.raises(SystemExit) as left:
        main(["verify", "out"])
    out, err = capfd.readouterr()
    assert (1, "") == (left.value.code, out), err
    assert "receipt" in err
    assert SECRET not in err
    assert before == listing(tmp_path)


@pytest.mark.parametrize(
    "name",
    ["workload.parquet", "config.toml", "events.parquet", "requests.parquet", "receipt.json"],
)
@pytest.mark.parametrize("damage", ["missing", "empty", "directory", "fifo", "cut"])
def test_a_ledger_without_a_readable_part_is_refused_by_its_name(
    tmp_path: Path, refused: Refused, ledger: Path, name: str, damage: str
) -> None:
    """A part that is not what it claims to be is bad input, not a violated equation."""
    path = shutil.copytree(ledger, tmp_path / "out") / name
    data = path.read_bytes()
    path.unlink()
    if damage == "directory":
        path.mkdir()
    elif damage == "fifo":
        os.mkfifo(path)
    elif damage != "missing":
        path.write_bytes(data[: len(data) // 2] if damage == "cut" else b"")
    refused("verify", "out", words=[f"out/{name}: "])


CELLS = [
    *((name, v) for name in ("tick", "freed_blocks") for v in (2**63 - 1, -(2**63), None)),
    *((name, "S3CRET\x1b") for name in ("kind", "request_id", "requester_id")),
    *((name, v) for name in ("recovery", "recovery_reason") for v in ("S3CRET\x1b", "")),
]


@pytest.mark.parametrize(("name", "value"), CELLS, ids=ascii)
def test_an_impossible_event_is_named_and_never_an_internal_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    ledger: Path,
    name: str,
    value: int | str | None,
) -> None:
    """A violated equation or a broken file, and what it holds is not repeated."""
    monkeypatch.chdir(tmp_path)
    path = shutil.copytree(ledger, tmp_path / "out") / "events.parquet"
    frame, metadata = pl.read_parquet(path), pl.read_parquet_metadata(path)
    metadata.pop("ARROW:schema", None)
    cells = frame[name].to_list()
    cells[next((k for k, cell in enumerate(cells) if cell is not None), 0)] = value
    changed = frame.with_columns(pl.Series(name, cells, dtype=frame.schema[name]))
    changed.write_parquet(path, metadata=metadata)
    with pytest.raises(SystemExit) as left:
        main(["verify", "out"])
    out, err = capfd.readouterr()
    assert left.value.code in {1, 2}, err
    assert "" == out
    assert SECRET not in err


@pytest.mark.parametrize("name", ["missing", "c.toml"])
def test_what_is_no_directory_is_no_ledger(refused: Refused, name: str) -> None:
    """A path that does not exist, or a file."""
    refused("verify", name, words=[f"{name}: must be a ledger directory"])


# The real process


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        pytest.param("w.jsonl", b"{", "w.jsonl:1: must be JSON", id="cut line"),
        pytest.param("w.jsonl", NESTED.encode(), "w.jsonl:1: must be JSON", id="deep nesting"),
        pytest.param("w.parquet", b"PAR1", "w.parquet: must be a readable", id="cut Parquet"),
        pytest.param("w.jsonl", raw(arrival_us="20000").encode(), "before tick 20000", id="late"),
        pytest.param("c.toml", b"[engine", "c.toml: must be TOML", id="cut configuration"),
        pytest.param("c.toml", b"\xff\xfe", "c.toml: must be UTF-8", id="UTF-16 configuration"),
        pytest.param("w.jsonl", None, "w.jsonl: must be a file", id="fifo"),
    ],
)
def test_the_process_itself_ends_with_2_and_one_line(
    tmp_path: Path, name: str, data: bytes | None, message: str
) -> None:
    """As a shell sees it, from another directory."""
    if data is None:
        os.mkfifo(tmp_path / name)
    else:
        (tmp_path / name).write_bytes(data)
    before = listing(tmp_path)
    workload = "w.jsonl" if name == "c.toml" else name
    found = subprocess.run(
        [sys.executable, "-m", "preempt", *replay_of(workload)],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(CHECKOUT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    check_line(found.returncode, found.stdout, found.stderr, [message])
    assert before == listing(tmp_path)


# Anything at all

JSON_TOKENS = [
    *'{}[]:,"\\ \n\r\0\x0b\x0c\u2028\ufeff',
    *(json.dumps(key) for key in RECORD),
    *("null", "true", "0", "3", "-1", "1.0", "1e999", "NaN", "Infinity", "9" * 5000),
    *('"schema"', f'"{SCHEMA}"', '"requests":[', '"prefix_block_tokens"', '"prefix_blocks":['),
    *('"name"', '"provenance"', '"\\ud800"', '"\\u0000"', GOOD, HEADER, raw()),
]
TOML_TOKENS = [
    *"[]{}=,.#'\"\\ \n\r\0\x1b\u2028\ufeff",
    *("[engine]\n", "[policy]\n", "[limits]\n", "[timing]\n", "[[engine]]\n", ENGINE),
    *("profile=", "capacity_blocks=", "block_size=", "rule=", "watermark=", "max_ticks="),
    *('"lab"', '"vllm-v1"', "12", "-1", "1.0", "nan", "inf", "true", "9" * 5000, "0x" + "f" * 5000),
    *("1979-05-27", "1979-13-40", "07:32:00", '"""', "'''", "\\ud800", "\\U00110000", "_", "+"),
]


def _texts(tokens: list[str]) -> st.SearchStrategy[bytes]:
    joined = st.lists(st.sampled_from(tokens), max_size=14).map("".join)
    return st.binary(max_size=64) | joined.map(lambda text: text.encode("utf-8"))


@PerFile
@given(data=_texts(JSON_TOKENS))
@pytest.mark.parametrize("suffix", [".jsonl", ".json"])
def test_any_bytes_give_a_workload_or_an_input_error(
    tmp_path: Path, suffix: str, data: bytes
) -> None:
    """No other exception, whatever the text."""
    path = tmp_path / f"w{suffix}"
    path.write_bytes(data)
    with contextlib.suppress(InputError):
        assert 1 <= len(read_workload(path, 64))


@settings(PerFile, max_examples=30)
@given(data=st.binary(max_size=64), inner=st.booleans())
def test_any_bytes_named_parquet_give_an_input_error(
    tmp_path: Path, data: bytes, inner: bool
) -> None:
    """Also between the marks of a Parquet file."""
    path = tmp_path / "w.parquet"
    path.write_bytes(b"PAR1" + data + b"PAR1" if inner else data)
    with pytest.raises(InputError):
        read_workload(path, 64)


@PerFile
@given(data=_texts(TOML_TOKENS))
def test_any_bytes_give_a_configuration_or_an_input_error(tmp_path: Path, data: bytes) -> None:
    """No other exception, whatever the text."""
    path = tmp_path / "c.toml"
    path.write_bytes(data)
    with contextlib.suppress(InputError):
        assert 1 <= read_config(path).engine.capacity_blocks
