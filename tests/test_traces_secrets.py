"""A secret planted anywhere in a public trace reaches no workload, no metadata and no message."""

import json
from pathlib import Path

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from collectors.traces import FORMATS
from collectors.traces.result import write_attempts
from replay.errors import InputError
from replay.workload_frame import write_workload_batches

FIXTURES = Path(__file__).parent.parent / "fixtures" / "traces"
SECRETS = ("sk-SECRET4711", "hunter2", "eva@example.org", "/home/eva/models", "geheim-äöü")
FILES = {
    "azure-2023-conv-head.csv": "azure",
    "azure-2024-conv-rows.csv": "azure",
    "azure-2025-multimodal-rows.csv": "azure",
    "burstgpt-1-rows.csv": "burstgpt",
    "burstgpt-3-rows.csv": "burstgpt",
    "mooncake-conversation-head.jsonl": "mooncake",
    "bailian-thinking-row.jsonl": "bailian",
    "timed-trace-head.jsonl": "timed-trace",
}
Planted = settings(
    max_examples=40,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    deadline=None,
)


def planted_csv(text: str, secret: str, row: int, cell: int) -> str:
    """A cell of a row, the header's counted, is the secret."""
    lines = text.splitlines()
    cells = lines[row % len(lines)].split(",")
    cells[cell % len(cells)] = secret
    lines[row % len(lines)] = ",".join(cells)
    return "\n".join(lines) + "\n"


def planted_json(text: str, secret: str, row: int, cell: int) -> str:
    """A value, a key, a new key or a hash id of a row is the secret."""
    lines = text.splitlines()
    record = json.loads(lines[row % len(lines)])
    key = list(record)[cell % len(record)]
    match cell % 5:
        case 0:
            record[secret] = record.pop(key)
        case 1:
            record[secret] = {secret: [secret]}
        case 2:
            record[key] = {"a": secret}
        case 3:
            record["hash_ids"] = [secret, *record["hash_ids"][1:]]
        case _:
            record[key] = secret
    lines[row % len(lines)] = json.dumps(record, ensure_ascii=False)
    return "\n".join(lines) + "\n"


def everything_in(path: Path) -> str:
    """Values, columns, key-value metadata and statistics of a Parquet file."""
    queries = (
        "SELECT * FROM read_parquet(?)",
        "SELECT decode(key), decode(value) FROM parquet_kv_metadata(?)",
        "SELECT * FROM parquet_metadata(?)",
    )
    name = str(path)
    found = "".join(str(duckdb.execute(q, [name]).fetchall()).replace(name, "") for q in queries)
    return found + path.read_bytes().decode("latin-1")


@pytest.mark.parametrize("name", FILES)
@Planted
@given(secret=st.sampled_from(SECRETS), row=st.integers(0, 300), cell=st.integers(0, 40))
def test_a_planted_secret_reaches_nothing(
    name: str, secret: str, row: int, cell: int, tmp_path: Path
) -> None:
    """It is refused without being repeated, or dropped; the file's own name is one, too."""
    plant = planted_csv if name.endswith(".csv") else planted_json
    text = plant((FIXTURES / name).read_text(encoding="utf-8"), secret, row, cell)
    path = tmp_path / "trace"
    path.write_text(text, encoding="utf-8")
    result, message = None, ""
    try:
        result = FORMATS[FILES[name]].read(path)
    except InputError as refused:
        message = str(refused)
    assert secret not in message
    if result is None:
        return
    out, attempts = tmp_path / "w.parquet", tmp_path / "w.attempts.parquet"
    write_workload_batches(result.batches, out, ".parquet")
    write_attempts(result, attempts)
    for written in (out, attempts):
        assert secret not in everything_in(written)


def test_the_name_of_the_file_reaches_nothing(tmp_path: Path) -> None:
    """A workload that is shared does not say what it was made of on this host."""
    path = tmp_path / "customer-hunter2.csv"
    path.write_bytes((FIXTURES / "azure-2023-conv-head.csv").read_bytes())
    out = tmp_path / "w.parquet"
    write_workload_batches(FORMATS["azure"].read(path).batches, out, ".parquet")
    assert "hunter2" not in everything_in(out)
