"""Events as rows, as Parquet and as JSON lines: one content in every form, with its labels."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from stored import engine_config, lab_ledger, sealed, window
from workloads import contracts, lab_inputs

from analysis import store
from analysis.report import markdown_report
from analysis.report_data import report_data
from replay.canonical import canonical_json, sha256
from replay.errors import InputError
from replay.events import (
    CODES,
    COLUMN,
    COLUMNS,
    NULL,
    UNKNOWN,
    Event,
    Kind,
    Rows,
    binary_form,
    event_sha256,
    from_frame,
    json_lines,
    ledger_header,
    named,
    to_events,
    to_frame,
    to_rows,
)
from replay.lab import replay_lab
from replay.ledger import Ledger, read_ledger, write_ledger
from replay.limitations import LIMITATIONS, what_ifs
from replay.oracle.verify import LABEL, verify_ledger

RECOVERY = "What-if: recovery swap; no current vLLM release swaps at preemption."
VICTIM = "What-if: victim rule least-computed instead of the engine's own."


def what_if_ledger() -> Ledger:
    """A vllm-v1 ledger under a recovery that no vLLM has."""
    return sealed(window(), engine_config().with_policy("swap", None))


def many_rows() -> Rows:
    """More rows than are hashed or written at once."""
    once = lab_ledger().events
    return np.tile(once, (10_000 // len(once) + 1, 1))


@settings(max_examples=100)
@given(lab_inputs())
def test_events_rows_and_frames_hold_the_same(
    inputs: tuple[list[dict[str, Any]], dict[str, Any]],
) -> None:
    """What is turned into rows, or into names and nulls, comes back as it was."""
    workload, config = contracts(*inputs)
    ids = [r.request_id for r in workload.requests]
    events = replay_lab(workload, config)
    rows = to_rows(events)
    assert events == to_events(rows)
    assert [named(e, ids) for e in events] == to_frame(rows, ids).to_dicts()
    assert rows.tolist() == from_frame(to_frame(rows, ids), ids).tolist()


def test_the_memory_of_the_rows_is_the_binary_form() -> None:
    """The header's line, then the array's own bytes, however many rows there are."""
    rows, config = many_rows(), lab_ledger().config
    expected = canonical_json(ledger_header(config)) + b"\n" + rows.tobytes()
    assert expected == b"".join(binary_form(rows, config))
    assert sha256(expected) == event_sha256(rows, config)
    assert (np.dtype("<i8"), len(COLUMNS), True) == (
        rows.dtype,
        rows.shape[1],
        rows.flags.c_contiguous,
    )


def test_no_events_are_no_rows() -> None:
    """An empty ledger has every column and no row, in every form."""
    rows = to_rows([])
    assert (0, len(COLUMNS)) == rows.shape
    assert [] == to_events(rows)
    assert rows.shape == to_frame(rows, ["a"]).shape
    assert rows.shape == from_frame(to_frame(rows, ["a"]), ["a"]).shape


def test_a_value_beyond_64_bits_is_no_event() -> None:
    """Nothing wraps around on its way into rows."""
    first = to_events(lab_ledger().events[:1])[0]
    assert 2**63 - 1 == to_rows([first._replace(tick=2**63 - 1)])[0, COLUMN["tick"]]
    with pytest.raises(OverflowError, match="64-bit"):
        to_rows([first._replace(tick=2**63)])


@pytest.mark.parametrize("column", [*CODES, "request_id", "requester_id"])
def test_a_name_nobody_knows_and_no_name_are_told_apart(column: str) -> None:
    """One becomes UNKNOWN, the other NULL."""
    ids = lab_ledger().request_ids
    frame = to_frame(lab_ledger().events, ids)
    found = frame.with_columns(pl.lit("?").alias(column))
    assert {UNKNOWN} == set(from_frame(found, ids)[:, COLUMN[column]].tolist())
    absent = frame.with_columns(pl.lit(None, pl.String).alias(column))
    assert {NULL} == set(from_frame(absent, ids)[:, COLUMN[column]].tolist())


def test_every_event_is_a_json_line_in_its_order() -> None:
    """The export is not cut where the rows are taken in parts."""
    rows, ledger = many_rows(), lab_ledger()
    lines = list(json_lines(rows, ledger.config, ledger.request_ids))
    assert 1 + len(rows) == len(lines)
    found = [json.loads(line)["seq"] for line in lines[1:]]
    assert rows[:, COLUMN["seq"]].tolist() == found


@pytest.mark.parametrize(
    ("kind", "large"),
    [("events", pl.lit(-(2**63), pl.Int64)), ("requests", pl.lit(2**63, pl.UInt64))],
)
def test_integers_that_no_sum_can_hold_are_refused(
    kind: str, large: pl.Expr, tmp_path: Path
) -> None:
    """The binary form's null, and 2^63 in an unsigned column, are named and no null."""
    with pytest.raises(InputError, match=rf"{kind}\.parquet: row 0: queue_ticks must be"):
        read_with(tmp_path, kind, large.alias("queue_ticks"))


def test_events_are_64_bit_integers_as_the_contract_says(tmp_path: Path) -> None:
    """A column of another width is refused by name, even if it holds the same numbers."""
    with pytest.raises(InputError, match="tick must be a column of type int64, got Int32"):
        read_with(tmp_path, "events", pl.col("tick").cast(pl.Int32))


def read_with(tmp_path: Path, kind: str, column: pl.Expr) -> Ledger:
    """Read a ledger one of whose files has another column."""
    write_ledger(lab_ledger(), tmp_path / "ledger")
    path = tmp_path / "ledger" / f"{kind}.parquet"
    metadata = {k: v for k, v in pl.read_parquet_metadata(path).items() if "ARROW" not in k}
    pl.read_parquet(path).with_columns(column).write_parquet(path, metadata=metadata)
    return read_ledger(tmp_path / "ledger")


@pytest.mark.parametrize(
    ("jsonl", "expected"),
    [(None, {"lab": True, "vllm-v1": False}), (True, {"lab": True, "vllm-v1": True})],
)
def test_only_the_lab_writes_json_lines_unasked(
    jsonl: bool | None, expected: dict[str, bool], tmp_path: Path
) -> None:
    """The export for people is large for an engine's ledger."""
    for ledger in (lab_ledger(), what_if_ledger()):
        profile = ledger.config.engine.profile
        write_ledger(ledger, tmp_path / profile, jsonl=jsonl)
        assert expected[profile] == (tmp_path / profile / "events.jsonl").exists()


# What is not what vLLM does says so everywhere.


def test_each_way_of_leaving_what_vllm_does_is_a_sentence() -> None:
    """None for the engine's own choices, one for each other choice, none in the lab."""
    config = engine_config()
    assert () == what_ifs(config)
    assert (RECOVERY,) == what_ifs(config.with_policy("swap", None))
    assert (RECOVERY.replace("swap;", "adaptive;"),) == what_ifs(
        config.with_policy("adaptive", None)
    )
    assert (RECOVERY, VICTIM) == what_ifs(config.with_policy("swap", "least-computed"))
    assert () == what_ifs(lab_ledger("swap").config)
    assumed = "Rule vllm-0.31.0 was not checked; it is assumed to decide as vllm-0.32.0."
    assert (assumed,) == what_ifs(engine_config(rule="vllm-0.31.0"))


def test_the_what_ifs_travel_in_every_file(tmp_path: Path) -> None:
    """Parquet metadata and the JSON header of a vllm-v1 ledger hold them; the lab's have no key."""
    write_ledger(what_if_ledger(), tmp_path / "engine", jsonl=True)
    write_ledger(lab_ledger("swap"), tmp_path / "lab", jsonl=True)
    for folder, expected in (("engine", [RECOVERY]), ("lab", None)):
        directory = tmp_path / folder
        for name in ("events.parquet", "requests.parquet"):
            found = pl.read_parquet_metadata(directory / name)
            assert list(LIMITATIONS) == json.loads(found["limitations"])
            assert expected == json.loads(found.get("what_ifs", "null"))
        with (directory / "events.jsonl").open() as lines:
            assert expected == json.loads(next(lines)).get("what_ifs")
        header = read_ledger(directory).header or {}
        assert expected == header.get("what_ifs")
        assert expected == json.loads((directory / "receipt.json").read_text()).get("what_ifs")


def test_a_ledger_by_an_assumed_rule_reads_back(tmp_path: Path) -> None:
    """It was allowed when it was made, and its header still says so."""
    ledger = sealed(window(), engine_config(rule="vllm-0.31.0"))
    write_ledger(ledger, tmp_path / "ledger")
    found = read_ledger(tmp_path / "ledger")
    assert ledger.config == found.config
    assert list(what_ifs(ledger.config)) == (found.header or {})["what_ifs"]


def test_a_what_if_that_lost_its_label_is_caught(tmp_path: Path) -> None:
    """The oracle misses the sentence in the metadata."""
    write_ledger(what_if_ledger(), tmp_path / "ledger")
    path = tmp_path / "ledger" / "events.parquet"
    metadata = {k: v for k, v in pl.read_parquet_metadata(path).items() if "ARROW" not in k}
    frame = pl.read_parquet(path)
    frame.write_parquet(path, metadata=metadata | {"what_ifs": "[]"})
    found = [
        v.detail for v in verify_ledger(read_ledger(tmp_path / "ledger")) if v.equation == LABEL
    ]
    assert ["what_ifs does not fit config.toml"] == found


def test_the_store_and_the_report_say_what_is_a_what_if() -> None:
    """A view has the sentences, and the report has them below its policies."""
    ledger, plain = what_if_ledger(), sealed(window(), engine_config())
    with store.connect(None) as db:
        for one in (ledger, plain, lab_ledger("swap")):
            store.load_ledger(db, one)
        found = db.execute("SELECT ledger_id, position, what_if FROM what_ifs").fetchall()
        report = markdown_report(report_data(db)).replace("\\", "")
    assert [(ledger.receipt["receipt_sha256"], 1, RECOVERY)] == found
    assert f"- **swap: {RECOVERY}**" in report
    assert 1 == report.count("| swap (what-if) |") == report.count("| swap |")
    assert "| recompute |" in report


@pytest.mark.parametrize("what", [None, [1], "a"])
def test_a_receipt_whose_what_ifs_are_no_sentences_is_refused(what: Any) -> None:
    """The view over it could not be read."""
    ledger = sealed(window(), engine_config(), what_ifs=what)
    with (
        store.connect(None) as db,
        pytest.raises(InputError, match=r"receipt\.what_ifs must be a list of sentences"),
    ):
        store.load_ledger(db, ledger)


def test_kinds_of_rows_are_those_of_the_events() -> None:
    """A column is found by its name."""
    ledger = lab_ledger()
    expected = [Kind(e.kind) for e in to_events(ledger.events)]
    assert expected == [Kind(k) for k in ledger.events[:, COLUMN["kind"]].tolist()]
    assert Event._fields == COLUMNS == tuple(COLUMN)
