"""`preempt workload describe` reads well for few requests and many, large numbers, any terminal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from preempt.commands.workload import workload_group
from preempt.main import cli
from replay.strict import MAX_SAFE_INTEGER
from replay.workload import Request, Workload
from replay.workload_file import write_workload

ROOT = Path(__file__).parent.parent
BARS = "▁▂▃▄▅▆▇█"


def describe(tmp_path: Path, *requests: Request) -> str:
    """What is said of a workload of these."""
    path = tmp_path / "w.jsonl"
    write_workload(Workload(requests), path, ".jsonl")
    return (
        CliRunner().invoke(workload_group, ["describe", str(path)], catch_exceptions=False).stdout
    )


def test_one_request_has_no_rate(tmp_path: Path) -> None:
    """One request, one block; nothing about windows, gaps or ties."""
    text = describe(tmp_path, Request("a", 0, 5, 7))
    assert "requests         1 request\n" in text
    assert "largest request  1 block of 16 tokens:" in text
    assert "peak 1 block, 1 request at once," in text
    assert not [
        word for word in ("rate", "window", "gap", "0 s", "tied", "1 requests") if word in text
    ]


def test_requests_of_one_moment_are_said_to_be_at_once(tmp_path: Path) -> None:
    """There is no time to count them in."""
    text = describe(tmp_path, Request("a", 3, 5, 7), Request("b", 3, 5, 7))
    assert "requests         2 requests at once\n" in text
    assert "rate" not in text


def test_the_columns_of_the_largest_numbers_stay_apart(tmp_path: Path) -> None:
    """Up to 2^53 - 1 in every cell, and each cell under its heading."""
    most = MAX_SAFE_INTEGER
    text = describe(tmp_path, Request("a", 0, most, 7), Request("b", most, most, most))
    rows = text.split("\n\n")[1].splitlines()
    assert [7, 7, 7, 7] == [len(row.split()) for row in rows]
    assert 1 == len({len(row) for row in rows})
    assert f"{most:,}" == rows[1].split()[1]


def test_odd_rows_and_priorities_are_wrapped(tmp_path: Path) -> None:
    """However many kinds there are, no line is wider than 80 columns."""
    requests = (Request(f"{k:02}", 10**10 * k, 2_000_000, 1, priority=10**9 * k) for k in range(12))
    lines = describe(tmp_path, *requests).splitlines()
    assert 80 >= max(map(len, lines))
    assert any(line.startswith("odd rows         12 one output token,") for line in lines)


@pytest.mark.parametrize(
    ("variables", "drawn"),
    [
        ({"LC_ALL": "C"}, False),
        ({"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "latin-1"}, False),
        ({"LC_ALL": "C.UTF-8"}, True),
    ],
    ids=str,
)
def test_the_rate_is_drawn_in_characters_that_the_terminal_has(
    tmp_path: Path, variables: dict[str, str], drawn: bool
) -> None:
    """In ASCII where the locale or the stream has no others, though Python would write UTF-8."""
    path = tmp_path / "w.jsonl"
    requests = (Request("a", 0, 5, 7), Request("b", 0, 5, 7), Request("c", 60, 5, 7))
    write_workload(Workload(requests), path, ".jsonl")
    inherited = {k: v for k, v in os.environ.items() if k not in ("PYTHONUTF8", "PYTHONIOENCODING")}
    out = subprocess.check_output(
        [sys.executable, "-m", "preempt", "workload", "describe", str(path)],
        cwd=ROOT,
        env=inherited | variables,
    )
    assert drawn == any(bar.encode() in out for bar in BARS)
    assert out.isascii() == (not drawn)
    assert drawn or b"rate             +" in out


def test_the_list_of_tools_is_whole_at_80_columns() -> None:
    """No summary ends in dots."""
    result = CliRunner().invoke(cli, ["workload", "--help"], env={"COLUMNS": "80"})
    listed = result.stdout.split("Commands:\n")[1].splitlines()
    assert [] == [line for line in listed if line.endswith("...") or len(line) > 80]
    assert 5 == len(listed)
