"""Ledgers kept beside their inputs: the same bytes on every machine, Python and file format."""

import json
from pathlib import Path

import pytest
from lab_reference import reference_binary

from replay.canonical import sha256
from replay.config import RECOVERIES, read_config
from replay.events import Kind, Reason, json_lines
from replay.oracle.verify import verify_ledger
from replay.run import replay
from replay.strict import read_toml
from replay.workload_file import SUFFIXES, read_workload, write_workload

FOLDERS = sorted(
    p for p in (Path(__file__).parent.parent / "fixtures/ledgers").iterdir() if p.is_dir()
)


@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_a_golden_ledger_comes_out_byte_for_byte(
    folder: Path, suffix: str, recovery: str, tmp_path: Path
) -> None:
    """Events and the three input and output hashes are what they were, from every file format."""
    path = tmp_path / f"workload{suffix}"
    write_workload(read_workload(folder / "workload.jsonl"), path, suffix)
    config = read_config(folder / "config.toml").with_policy(recovery, None)
    ledger = replay(read_workload(path), config)
    lines = b"".join(json_lines(ledger.events, config, ledger.request_ids))
    assert (folder / f"{recovery}.jsonl").read_bytes() == lines
    hashes = json.loads((folder / "hashes.json").read_text())
    found = {k: ledger.receipt[k] for k in ("workload_sha256", "input_sha256", "event_sha256")}
    assert hashes[recovery] == found
    assert [] == verify_ledger(ledger)


@pytest.mark.parametrize("recovery", RECOVERIES)
@pytest.mark.parametrize("folder", FOLDERS, ids=lambda p: p.name)
def test_the_golden_hash_is_also_the_second_implementations(folder: Path, recovery: str) -> None:
    """The bytes were not simply copied from the program they are to hold."""
    requests = [json.loads(line) for line in (folder / "workload.jsonl").read_text().splitlines()]
    tables = read_toml(folder / "config.toml")
    tables["policy"]["recovery"] = recovery
    hashes = json.loads((folder / "hashes.json").read_text())
    assert hashes[recovery]["event_sha256"] == sha256(reference_binary(requests[1:], tables))


def test_the_golden_ledgers_show_everything_that_can_happen() -> None:
    """Every kind of event but censored and every recovery reason stands in one of them."""
    events = [
        json.loads(line)
        for folder in FOLDERS
        for recovery in RECOVERIES
        for line in (folder / f"{recovery}.jsonl").read_text().splitlines()[1:]
    ]
    assert {k.name.lower() for k in Kind} - {"censored"} == {e["kind"] for e in events}
    reasons = {e["recovery_reason"] for e in events} - {None}
    assert {r.name.lower() for r in Reason} == reasons
