"""BurstGPT, Bailian, Mooncake and the later Azure traces: each field becomes what it means."""

import json
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.traces import FORMATS, known_sources
from collectors.traces.burstgpt import HEADER, HEADER_2
from collectors.traces.dense import Dense
from collectors.traces.result import ImportResult
from collectors.traces.seconds import Seconds
from preempt.commands.importing import import_command
from replay.errors import InputError
from replay.workload_file import read_workload

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures" / "traces"
BAILIAN = FIXTURES / "bailian-thinking-row.jsonl"
SYNTHETIC = FIXTURES / "mooncake-synthetic-head.jsonl"

PerTestFile = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow]
)


def read_text(tmp_path: Path, trace_format: str, text: str, **options: int) -> ImportResult:
    """Write the text to a file and import that."""
    path = tmp_path / "trace"
    path.write_bytes(text.encode())
    return FORMATS[trace_format].read(path, **options)


def arrivals(result: ImportResult) -> list[int]:
    """Arrivals in workload order, microseconds."""
    return [r.arrival_us for r in result.workload.requests]


def burst(*rows: str) -> str:
    """A file of the first release with these rows."""
    return "\n".join([HEADER, *rows]) + "\n"


def chat(timestamp: str = "0.0", tokens: int = 32, **changes: Any) -> str:
    """A Bailian row, its time as text."""
    row = {
        "chat_id": 7,
        "parent_chat_id": -1,
        "timestamp": 0,
        "input_length": tokens,
        "output_length": 5,
        "type": "text",
        "turn": 1,
        "hash_ids": list(range(-(-tokens // 16))),
    }
    return json.dumps(row | changes).replace('"timestamp": 0', f'"timestamp": {timestamp}') + "\n"


@pytest.mark.parametrize(
    ("name", "rows", "prompt", "output", "last_us"),
    [
        ("azure-2024-code-rows.csv", 10, 24_016, 180, 604_799_919_571),
        ("azure-2024-conv-rows.csv", 10, 12_767, 856, 604_799_994_297),
        ("azure-2025-multimodal-rows.csv", 10, 12_859, 1_395, 604_799_695_000),
        ("burstgpt-1-rows.csv", 3, 1_976, 524, 113_000_000),
        ("burstgpt-3-rows.csv", 4, 3_656, 776, 144_000_000),
        ("mooncake-synthetic-head.jsonl", 34, 443_443, 7_545, 8_844_000),
        ("bailian-thinking-row.jsonl", 1, 502, 1_494, 0),
    ],
)
def test_published_rows_keep_their_tokens_and_times(
    name: str, rows: int, prompt: int, output: int, last_us: int
) -> None:
    """Rows, token sums and the last arrival are those of the fixture."""
    result = FORMATS[next(f for f in FORMATS if name.startswith(f))].read(FIXTURES / name)
    requests = result.workload.requests
    assert (rows, prompt, output, 0, last_us) == (
        len(requests),
        sum(r.prompt_tokens for r in requests),
        sum(r.output_tokens for r in requests),
        requests[0].arrival_us,
        requests[-1].arrival_us,
    )
    assert result.attempts.is_empty()


def test_every_trace_is_told_by_its_own_name() -> None:
    """Years and releases are told apart, and each has its licence and what was done to its rows."""
    titles = {
        "azure-2023-code-head.csv": "Azure LLM inference trace 2023",
        "azure-2024-code-rows.csv": "Azure LLM inference trace 2024",
        "azure-2025-multimodal-rows.csv": "Azure LMM inference trace 2025",
        "burstgpt-1-rows.csv": "BurstGPT trace v1",
        "burstgpt-3-rows.csv": "BurstGPT trace v2",
        "mooncake-synthetic-head.jsonl": "Mooncake trace",
        "bailian-thinking-row.jsonl": "Qwen-Bailian trace",
        "timed-trace-head.jsonl": "timed trace for vllm bench serve",
    }
    sources = known_sources()
    assert set(titles.values()) == set(sources)
    for name, title in titles.items():
        workload = (
            FORMATS[next(f for f in FORMATS if name.startswith(f))].read(FIXTURES / name).workload
        )
        told = workload.provenance or {}
        assert title == told["source"]
        source = sources[title]
        assert (source.license, list(source.notes)) == (told["license"], told["notes"])


# BurstGPT


def test_a_burstgpt_response_of_no_tokens_is_a_failed_attempt(tmp_path: Path) -> None:
    """Its output is null, and its prompt too where the file has 0; it still anchors the time."""
    rows = (
        "5,GPT-4,906,0,906,API log",
        "6,GPT-4,0,0,0,API log",
        "7,GPT-4,0,4,4,API log",
        "9,ChatGPT,3,4,7,Conversation log",
    )
    result = read_text(tmp_path, "burstgpt", burst(*rows))
    assert [
        (2, "failed", 0, 906, None),
        (3, "failed", 1_000_000, None, None),
        (4, "no_prompt", 2_000_000, 0, 4),
    ] == [*result.attempts.iter_rows()]
    assert [(4_000_000, 3, 4)] == [
        (r.arrival_us, r.prompt_tokens, r.output_tokens) for r in result.workload.requests
    ]
    assert {"failed": 2, "no_prompt": 1} == (result.workload.provenance or {})["attempts"]


def test_burstgpt_rows_of_one_second_keep_file_order(tmp_path: Path) -> None:
    """Whole seconds make ties; an integer and a float spelling of a second are the same time."""
    rows = ("8,GPT-4,1,1,2,API log", "7.0,GPT-4,2,1,3,API log", "8.0,GPT-4,3,1,4,API log")
    requests = read_text(tmp_path, "burstgpt", burst(*rows)).workload.requests
    assert [(0, 2), (1_000_000, 1), (1_000_000, 3)] == [
        (r.arrival_us, r.prompt_tokens) for r in requests
    ]


def test_the_second_burstgpt_has_its_columns_in_the_middle(tmp_path: Path) -> None:
    """Session and elapsed time are passed over, whatever they hold, and reach nothing."""
    secret = "s3cret-session"  # noqa: S105  # stands for one
    rows = (
        f"19440110.0,{secret},43,GPT-4,906,446,1352,Conversation log",
        "19440110.0,,1,GPT-4,5,6,11,API log",
    )
    result = read_text(tmp_path, "burstgpt", "\n".join([HEADER_2, *rows]))
    assert [(0, 906, 446), (0, 5, 6)] == [
        (r.arrival_us, r.prompt_tokens, r.output_tokens) for r in result.workload.requests
    ]
    assert [None, None] == [r.tenant for r in result.workload.requests]
    assert secret not in repr(result.workload)
    assert "Session ID" in json.dumps((result.workload.provenance or {})["notes"])


# Bailian


def test_bailian_seconds_are_read_from_their_text(tmp_path: Path) -> None:
    """No binary float comes between: what lies a nanosecond below a microsecond stays below."""
    times = ("0.0", "61.114", "9007199254.000001", "9007199254.000000999", "5e-05", "7")
    text = "".join(chat(t) for t in times)
    expected = [0, 50, 7_000_000, 61_114_000, 9_007_199_254_000_000, 9_007_199_254_000_001]
    assert expected == arrivals(read_text(tmp_path, "bailian", text))


@PerTestFile
@given(digits=st.lists(st.decimals(0, 10**6, places=3), min_size=1, max_size=5))
def test_bailian_milliseconds_are_exact(tmp_path: Path, digits: list[Decimal]) -> None:
    """Every time of three decimals becomes its own microsecond after the earliest."""
    text = "".join(chat(f"{d:f}") for d in digits)
    expected = sorted(int((d - min(digits)) * 10**6) for d in digits)
    assert expected == arrivals(read_text(tmp_path, "bailian", text))


@given(
    whole=st.integers(0, 10**12),
    digits=st.text("0123456789", min_size=1, max_size=20),
    exponent=st.none() | st.integers(-9, 3),
)
def test_seconds_are_exact_down_to_the_nanosecond(
    whole: int, digits: str, exponent: int | None
) -> None:
    """The reading equals exact arithmetic on the text, rounded down."""
    text = f"{whole}.{digits}" + ("" if exponent is None else f"e{exponent}")
    assert int(Fraction(text) * 10**9) == Seconds("t").ns(text, "here")


def test_bailian_keeps_chunks_and_drops_the_rest(tmp_path: Path) -> None:
    """Hash ids of 16 tokens stay equal where they were; chat, type and turn reach nothing."""
    text = chat("0.5", hash_ids=[900, 4], type="s3cret") + chat("0.5", 40, hash_ids=[900, 4, 8])
    workload = read_text(tmp_path, "bailian", text).workload
    assert 16 == workload.prefix_block_tokens
    assert [(0, 1), (0, 1, 2)] == [r.prefix_blocks for r in workload.requests]
    assert "s3cret" not in repr(workload)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"timestamp": "NaN"}, "timestamp must be seconds >= 0 as a decimal number of at most 64"),
        ({"timestamp": "Infinity"}, "at most 64 digits, got Infinity"),
        ({"timestamp": "-1.5"}, "at most 64 digits, got -1.5"),
        ({"timestamp": "-1"}, "timestamp must be >= 0, got -1"),
        ({"timestamp": "1e999"}, "timestamp must be at most 2^53 - 1 seconds, got Infinity"),
        ({"timestamp": "1e9999"}, "timestamp must be seconds >= 0"),
        (
            {"timestamp": '"1.5"'},
            "decimal number of at most 64 digits, got a string of 3 code points",
        ),
        (
            {"timestamp": "null"},
            "decimal number of at most 64 digits, got null",
        ),
        ({"chat_id": "x"}, "chat_id must be an integer, got a string of 1"),
        ({"parent_chat_id": -2}, "parent_chat_id must be >= -1, got -2"),
        ({"turn": 0}, "turn must be >= 1, got 0"),
        ({"type": None}, "type must be a string, got null"),
        ({"input_length": 33}, "hash_ids must have 3 entries (input_length / 16, rounded up), got"),
        ({"hash_ids": ["9f"] * 2}, "hash_ids[0] must be an integer, got a string of 2"),
        ({"prompt": "x"}, "unknown key of 6 code points; known: chat_id,"),
    ],
)
def test_a_bad_bailian_row_is_refused(
    tmp_path: Path, changes: dict[str, Any], message: str
) -> None:
    """The error names line, field, rule and what was found."""
    changes = dict(changes)
    timestamp = changes.pop("timestamp", "0.0")
    with pytest.raises(InputError) as caught:
        read_text(tmp_path, "bailian", chat() + chat(timestamp, **changes))
    assert f"{tmp_path}/trace:2: " in str(caught.value)
    assert message in str(caught.value)


def test_a_bailian_row_needs_every_key(tmp_path: Path) -> None:
    """A row without its turn is not of the format."""
    row = json.loads(chat())
    del row["turn"]
    with pytest.raises(InputError, match=":1: turn is required, got nothing"):
        read_text(tmp_path, "bailian", json.dumps(row))


# The wrong format


def test_mooncake_and_bailian_refuse_each_other_by_name(tmp_path: Path) -> None:
    """They share four keys and not the unit: a mix-up would be a thousand times too fast."""
    with pytest.raises(InputError, match=r":1: looks like a Bailian trace.*import bailian$"):
        FORMATS["mooncake"].read(BAILIAN)
    with pytest.raises(InputError, match=r":1: looks like a Mooncake trace.*import mooncake$"):
        FORMATS["bailian"].read(SYNTHETIC)
    with pytest.raises(InputError, match=r"2: looks like a Bailian trace"):
        read_text(tmp_path, "mooncake", SYNTHETIC.read_text().splitlines()[0] + "\n" + chat())


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("azure-2024-code-rows.csv", "burstgpt"),
        ("burstgpt-1-rows.csv", "azure"),
        ("mooncake-synthetic-head.jsonl", "azure"),
    ],
)
def test_a_csv_of_another_format_is_refused_at_its_header(name: str, other: str) -> None:
    """No column is ever taken for another by its position."""
    with pytest.raises(InputError, match=r":1: (header must be |must be at most)"):
        FORMATS[other].read(FIXTURES / name)


# The size of a chunk


def test_hash_ids_of_another_size_name_the_size_that_fits(tmp_path: Path) -> None:
    """With --block-tokens the same rows import, and the workload says which size they have."""
    text = json.dumps(
        {"timestamp": 0, "input_length": 502, "output_length": 1, "hash_ids": [*range(32)]}
    )
    with pytest.raises(InputError) as caught:
        read_text(tmp_path, "mooncake", text)
    assert str(caught.value).endswith(
        ":1: hash_ids must have 1 entries (input_length / 512, rounded up), got a list of 32;"
        " --block-tokens 16 would fit this row"
    )
    workload = read_text(tmp_path, "mooncake", text, block_tokens=16).workload
    assert (16, 32) == (workload.prefix_block_tokens, len(workload.requests[0].prefix_blocks or ()))


def test_block_tokens_is_an_option_of_the_formats_that_have_hash_ids(tmp_path: Path) -> None:
    """The command hands it on, and refuses it for a CSV."""
    out, trace = tmp_path / "w.jsonl", tmp_path / "t.jsonl"
    trace.write_text(chat(tokens=64, hash_ids=[1]))
    args = ["bailian", str(trace), "-o", str(out), "--block-tokens", "64"]
    assert 0 == CliRunner().invoke(import_command, args).exit_code
    assert 64 == read_workload(out).prefix_block_tokens
    args = ["azure", str(trace), "-o", str(out), "--block-tokens", "64"]
    done = CliRunner().invoke(import_command, args)
    assert 2 == done.exit_code
    assert "No such option '--block-tokens'" in done.stderr


@given(st.lists(st.integers(0, 40) | st.integers(0, 2**53 - 1), max_size=60))
def test_ids_small_and_large_are_renumbered_alike(ids: list[int]) -> None:
    """Numbers are dense by first appearance, whatever the size of an id."""
    expected: dict[int, int] = {}
    assert tuple(expected.setdefault(i, len(expected)) for i in ids) == Dense().numbers(ids)


def test_spread_ids_take_no_more_memory_than_there_are_ids() -> None:
    """An id of 2^53 - 1 among small ones makes no table of that size."""
    dense = Dense()
    assert (0, 1, 2, 0, 1) == dense.numbers([2**53 - 1, 65_535, 2**40, 2**53 - 1, 65_535])
    assert len(dense._small) < 2**18
