"""The demo, as a newcomer runs it: from any directory, twice, with any verdict."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from replay.ledger import read_ledger
from replay.oracle.verify import verify_ledger

ROOT = Path(__file__).parent.parent


def preempt(*arguments: str, cwd: Path, columns: int = 80) -> subprocess.CompletedProcess[str]:
    """Run the command in its own process."""
    environment = os.environ | {
        "PYTHONPATH": str(ROOT),
        "COLUMNS": str(columns),
        "NO_COLOR": "1",
        "PYTHONHASHSEED": str(columns),
    }
    return subprocess.run(
        [sys.executable, "-m", "preempt", *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


def digests(directory: Path) -> dict[str, str]:
    """SHA-256 of every file except the database, whose pages DuckDB lays out as it likes."""
    return {
        str(p.relative_to(directory)): hashlib.sha256(p.read_bytes()).hexdigest()
        for p in sorted(directory.rglob("*"))
        if p.is_file() and p.suffix != ".duckdb"
    }


def test_the_demo_prints_a_table_a_verdict_and_three_commands(tmp_path: Path) -> None:
    """One command shows the three policies, the gate's reason and what to try next."""
    done = preempt("demo", cwd=tmp_path)
    assert (0, True) == (done.returncode, "Traceback" not in done.stderr)
    for text in ("recompute", "swap", "adaptive", "Gate (measured): inconclusive:", "report.md"):
        assert text in done.stdout
    commands = [line.strip() for line in done.stdout.splitlines() if line.startswith("  preempt")]
    assert 3 == len(commands)
    for command in commands:
        tried = preempt(*command.split()[1:], cwd=tmp_path)
        assert (0, True) == (tried.returncode, "Traceback" not in tried.stderr)
    written = {p.name for p in (tmp_path / "demo-out").iterdir()}
    assert {"gate.toml", "lab.toml", "ledgers", "preempt.duckdb", "report.md"} == written
    for name in ("recompute", "swap", "adaptive"):
        assert [] == verify_ledger(read_ledger(tmp_path / "demo-out" / "ledgers" / name))


@pytest.mark.parametrize("columns", [80, 200])
def test_no_line_is_wider_than_the_terminal(tmp_path: Path, columns: int) -> None:
    """At 80 and at 200 columns the table fits; only paths and commands may run over."""
    done = preempt("demo", cwd=tmp_path, columns=columns)
    long = [line for line in done.stdout.splitlines() if len(line) > columns]
    assert [] == [line for line in long if not line.startswith(("  preempt", "Read"))]


def test_a_second_run_is_refused_or_gives_the_same_bytes(tmp_path: Path) -> None:
    """Without --force nothing is lost; with it, everything comes out the same again."""
    assert 0 == preempt("demo", "--quiet", cwd=tmp_path).returncode
    before = digests(tmp_path / "demo-out")
    refused = preempt("demo", cwd=tmp_path)
    assert (2, before) == (refused.returncode, digests(tmp_path / "demo-out"))
    assert "--force" in refused.stderr.splitlines()[-1]
    assert 0 == preempt("demo", "--force", "--quiet", cwd=tmp_path, columns=200).returncode
    assert before == digests(tmp_path / "demo-out")


def test_json_holds_the_receipts_and_the_verdict(tmp_path: Path) -> None:
    """A script reads one input hash and three event hashes from standard output."""
    done = preempt("demo", "--json", cwd=tmp_path)
    found = json.loads(done.stdout)
    receipts = found["receipts"].values()
    assert 1 == len({r["input_sha256"] for r in receipts})
    assert 3 == len({r["event_sha256"] for r in receipts})
    assert "inconclusive" == found["gate"]["verdict"]
