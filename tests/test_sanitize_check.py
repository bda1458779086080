"""The privacy check names what should not be shared, and is quiet on what may be."""

import gzip
import json
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from leftovers import findings
from sanitize_tools import (
    BASE,
    CHECKOUT,
    done,
    found,
    kinds,
    manifest,
    preempt,
    raw_run,
    request_row,
    sample_row,
    sanitized,
    workload,
    write,
)

from collectors.run import read_run, run_workload
from collectors.traces import FORMATS

FIXTURES = CHECKOUT / "fixtures"
TRACES = {
    "azure": [*sorted((FIXTURES / "traces").glob("azure*.csv"))],
    "burstgpt": [*sorted((FIXTURES / "traces").glob("burstgpt*.csv"))],
    "mooncake": [*sorted((FIXTURES / "traces").glob("mooncake*.jsonl"))],
    "timed-trace": [*sorted((FIXTURES / "traces").glob("timed-trace*.jsonl"))],
    "bailian": [*sorted((FIXTURES / "traces").glob("bailian*.jsonl"))],
}


# ------------------------------------------------------------------ quiet


def test_every_format_of_a_trace_has_a_fixture_here() -> None:
    """A format that comes later has to be quiet, too."""
    assert sorted(FORMATS) == sorted(TRACES)
    assert all(TRACES.values())


@pytest.mark.parametrize(
    ("name", "path"),
    [(name, path) for name, paths in TRACES.items() for path in paths],
    ids=lambda value: value.name if isinstance(value, Path) else value,
)
def test_imported_traces_may_be_shared(tmp_path: Path, name: str, path: Path) -> None:
    """What an importer makes of a public trace holds nothing to find, in every form."""
    for suffix in (".parquet", ".jsonl", ".json"):
        out = tmp_path / "out" / f"w{suffix}"
        assert 0 == preempt("import", name, path, "-o", out, "--force").code
    assert [] == found(tmp_path / "out")


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("vllm-bench", "vllm-0.32.0/timed-trace.json"),
        ("guidellm", "guidellm-0.8.1/errored.json"),
        ("aiperf", "aiperf-0.13.0/ok.profile_export.jsonl"),
        (
            "inference-perf",
            "inference-perf-0.7.0/default-fields.per_request_lifecycle_metrics.json",
        ),
        ("otel", "otel/vllm-0.32.0.jsonl"),
    ],
)
def test_imported_benchmarks_are_raw_until_they_are_sanitized(
    tmp_path: Path, name: str, file: str
) -> None:
    """A result file's workload may be shared at once; its run tells when and of which model."""
    source, run = FIXTURES / "results" / file, tmp_path / "run"
    out = tmp_path / "imported" / "w.parquet"
    assert 0 == preempt("import", name, source, "-o", out, "--run", run).code
    assert [] == found(out.parent)
    assert {"run_id", "privacy"} <= {column for _, column, _ in found(run)}
    made = done(sanitized(run, tmp_path / "shared")).read_run().manifest
    raw = read_run(run).manifest
    assert made["imported"] == {k: v for k, v in raw["imported"].items() if v is not None}
    assert raw["clocks"] == made["clocks"]


@pytest.mark.parametrize(
    "path",
    [
        FIXTURES / "ledgers" / "base-1-window" / "config.toml",
        FIXTURES / "configs",
    ],
    ids=lambda path: path.name,
)
def test_configurations_may_be_shared(path: Path) -> None:
    """Fixtures that hold only the project's own words and numbers have nothing to find."""
    assert [] == found(path)


@pytest.mark.parametrize("victim", ["rule", "least-computed"])
def test_ledgers_of_shared_workloads_may_be_shared(tmp_path: Path, victim: str) -> None:
    """Events, requests, receipt, configuration and workload of a replay say nothing new."""
    shared = done(sanitized(BASE, tmp_path / "shared"))
    ledger = tmp_path / "ledger"
    options = ["--victim", victim, "--recovery", "swap" if victim == "rule" else "recompute"]
    assert 0 == preempt("replay", shared.run, "--out", ledger, "--jsonl", *options, "-q").code
    assert [] == found(ledger)


@pytest.mark.parametrize("recovery", ["recompute", "swap", "adaptive"])
def test_ledgers_of_the_lab_may_be_shared(tmp_path: Path, recovery: str) -> None:
    """The lab's ledger of a part of a sanitized workload has nothing to find, its lines neither."""
    part = run_workload(read_run(BASE), 0, 48)
    shared = done(sanitized(write(part, tmp_path / "w.json"), tmp_path / "shared"))
    config, ledger = FIXTURES / "configs" / "demo.toml", tmp_path / "ledger"
    options = ("--config", config, "--recovery", recovery, "--out", ledger, "-q")
    assert 0 == preempt("replay", shared.workload, *options).code
    assert (ledger / "events.jsonl").exists()
    assert [] == found(ledger)


def test_what_workload_tools_make_of_shared_workloads_may_be_shared(tmp_path: Path) -> None:
    """Slices, scaled, merged and tiled workloads tell in numbers what was done."""
    one = done(sanitized(write(workload(), tmp_path / "w.json"), tmp_path / "shared")).workload
    out = tmp_path / "out"
    for tool in (
        ("slice", one, "--from", "100ms"),
        ("scale", one, "--time", "3/2"),
        ("tile", one, "--times", "3"),
        ("merge", one, out / "tile.parquet", "--renumber"),
    ):
        ended = preempt("workload", *tool, "-o", out / f"{tool[0]}.parquet")
        assert 0 == ended.code, ended.err
    assert [] == found(out)
    again = done(sanitized(out / "merge.parquet", tmp_path / "again"))
    assert [] == found(again.folder)


def test_late_offsets_are_no_absolute_times(tmp_path: Path) -> None:
    """A workload of weeks has offsets as large as seconds since 1970, in microseconds."""
    path = tmp_path / "w.jsonl"
    record = {"request_id": "00000007-" + "a" * 32, "prompt_tokens": 1, "output_tokens": 1}
    path.write_text(json.dumps(record | {"arrival_us": 1_700_000_000}) + "\n")
    assert [] == found(path)
    path.write_text(json.dumps(record | {"arrival_us": 1_700_000_000_000_000}) + "\n")
    assert [("w.jsonl", "arrival_us", "absolute times")] == found(path)


# ------------------------------------------------------------------ finds


TEXTS = {
    "e-mail addresses": "jane.roe@example.org",
    "keys or tokens": "sk-proj-4f9Q7hT2xW",
    "network addresses": "10.20.30.40",
    "paths": "/home/jane/models/x",
    "absolute times": "2026-11-30T09:00:00Z",
    "hashes": "d41d8cd98f00b204e9800998ecf8427e",
    "text": "tell nobody",
}


@pytest.mark.parametrize(("kind", "text"), TEXTS.items())
def test_each_kind_of_text_is_found_in_each_form(tmp_path: Path, kind: str, text: str) -> None:
    """JSON, JSON Lines, TOML, CSV, Parquet and its metadata: the kind is named, the text is not."""
    (tmp_path / "a.json").write_text(json.dumps({"notes": {"note": [text]}}))
    (tmp_path / "b.jsonl").write_text(json.dumps({"note": text}) + "\n")
    (tmp_path / "c.toml").write_text(f"note = {json.dumps(text)}\n")
    (tmp_path / "d.csv").write_text(f"note\n{text}\n")
    pl.DataFrame({"note": [text]}).write_parquet(tmp_path / "e.parquet")
    pl.DataFrame({"priority": [1]}).write_parquet(
        tmp_path / "f.parquet", metadata={"note": json.dumps({"note": text})}
    )
    pl.DataFrame({"note": [[{"note": text}]]}).write_parquet(tmp_path / "g.parquet")
    (tmp_path / "h.md").write_text(f"{text}\n")
    assert [
        ("a.json", "notes.note[]", kind),
        ("b.jsonl", "note", kind),
        ("c.toml", "note", kind),
        ("d.csv", "note", kind),
        ("e.parquet", "note", kind),
        ("f.parquet", "metadata.note.note", kind),
        ("g.parquet", "note[].note", kind),
        ("h.md", "lines", kind),
    ] == found(tmp_path)


@pytest.mark.parametrize(
    "text",
    [
        *("hf_abcdef", "ghp_16C7e42F292c69", "AKIAIOSFODNN7EXAMPLE", "Bearer abc", "password: x"),
        *("eyJhbGciOiJIUzI1NiJ9.e30", "-----BEGIN RSA PRIVATE KEY-----", "api_key=abc"),
    ],
)
def test_keys_of_many_makers_are_found(tmp_path: Path, text: str) -> None:
    """Tokens by their beginnings, and what calls itself a password."""
    (tmp_path / "a.json").write_text(json.dumps({"note": text}))
    assert {"keys or tokens"} == kinds(tmp_path / "a.json")


@pytest.mark.parametrize(
    "request_id",
    ["cmpl-1", "00000001", "00000001-xyz", "0000001-" + "a" * 32, "tenant-" + "A" * 32, "a" * 32],
)
def test_ids_that_are_no_pseudonyms_are_found(tmp_path: Path, request_id: str) -> None:
    """Only the order and a pseudonym, or the number an importer gave, passes for an id."""
    path = write(workload(requests=(workload().requests[0],)), tmp_path / "w.json")
    record = json.loads(path.read_text())
    record["requests"][0] |= {"request_id": request_id, "tenant": None}
    path.write_text(json.dumps(record | {"name": None}))
    assert ("w.json", "requests[].request_id", "ids that are no pseudonyms") in found(path)


def test_a_raw_run_is_found_out_everywhere(tmp_path: Path) -> None:
    """Start, names, ids, tenants, models, labels and journals of a raw run are all named."""
    told = manifest(model={"name": "/srv/llama"})
    run = raw_run(
        tmp_path / "run",
        told,
        requests=[request_row("r-1", 0, tenant="jane", finish_reason="odd")],
        samples=[sample_row("num_preemptions", labels='{"pod":"x"}'), sample_row("mine")],
    )
    (run / "journal").mkdir()
    (run / "journal" / "drive.jsonl.gz").write_bytes(gzip.compress(b"{}"))
    places = {(place, column) for place, column, _ in found(run)}
    assert places >= {
        ("manifest.json", "start"),
        ("manifest.json", "privacy"),
        ("manifest.json", "run_id"),
        ("manifest.json", "model.name"),
        ("requests/part-00000.parquet", "request_id"),
        ("requests/part-00000.parquet", "tenant"),
        ("requests/part-00000.parquet", "finish_reason"),
        ("requests/part-00000.parquet", "run_id"),
        ("samples/part-00000.parquet", "model"),
        ("samples/part-00000.parquet", "labels"),
        ("samples/part-00000.parquet", "name"),
        ("journal/drive.jsonl.gz", ""),
    }


def test_a_raw_runs_manifest_is_called_one(tmp_path: Path) -> None:
    """What the privacy of a manifest says is explained, not just called a text."""
    run = raw_run(tmp_path / "run", manifest(), requests=[request_row("r", 0)])
    assert [("manifest.json", "privacy", "a raw run")] == [
        one for one in found(run) if one[1] == "privacy"
    ]


@pytest.mark.parametrize(
    "name", sorted(p.name for p in (FIXTURES / "runs").iterdir() if p.is_dir())
)
def test_recorded_runs_are_raw(name: str) -> None:
    """The recorded runs are found out: client ids, notes and a model's name."""
    assert {"ids that are no pseudonyms", "text"} <= kinds(FIXTURES / "runs" / name)


@pytest.mark.parametrize("name", ["user_id", "hunter2", "prompt_token_ids", "Prompt", ""])
def test_a_column_of_no_contract_is_found_whatever_it_holds(tmp_path: Path, name: str) -> None:
    """Numbers under an unknown name may be token ids, users or times; the name itself a value."""
    pl.DataFrame({name: [[1, 2]]}).write_parquet(tmp_path / "w.parquet")
    assert {"a name that no contract uses"} == kinds(tmp_path / "w.parquet")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("time_us", 1_764_493_200_000_000),
        ("started_ms", 1_764_493_200_000),
        ("created", 1_764_493_200),
        ("x", 1_764_493_200.25),
        ("epoch_ns", 1_764_493_200_000_000_000),
        ("day", date(2026, 11, 30)),
        ("day", datetime(2026, 11, 30, tzinfo=UTC)),
    ],
)
def test_absolute_times_are_found_in_every_unit(tmp_path: Path, name: str, value: Any) -> None:
    """By the unit the name says, or by what a number of these years would be."""
    pl.DataFrame({name: [value]}).write_parquet(tmp_path / "w.parquet")
    assert ("w.parquet", name, "absolute times") in found(tmp_path / "w.parquet")


def test_large_counts_are_no_times(tmp_path: Path) -> None:
    """Bytes and tokens of known columns are what they are."""
    told = {"kv_cache_memory_bytes": 1_764_493_200, "generated_tokens": 1_764_493_200}
    (tmp_path / "a.json").write_text(json.dumps(told))
    assert [] == found(tmp_path / "a.json")


def test_a_secret_after_a_million_texts_is_found(tmp_path: Path) -> None:
    """Not the first texts of a column are looked at, but all."""
    ids = pl.Series("request_id", range(300_000)).cast(pl.String).str.zfill(8) + ("-" + "a" * 32)
    frame = pl.DataFrame({"request_id": ids})
    frame.write_parquet(tmp_path / "a.parquet")
    assert [] == found(tmp_path / "a.parquet")
    frame.vstack(pl.DataFrame({"request_id": ["jane"]})).write_parquet(tmp_path / "a.parquet")
    assert [("a.parquet", "request_id", "ids that are no pseudonyms")] == found(
        tmp_path / "a.parquet"
    )


def test_text_in_a_copy_of_the_schema_is_found(tmp_path: Path) -> None:
    """Arrow keeps its schema in a Parquet file's metadata, and notes can hide in it."""
    frame = pl.DataFrame({"priority": [1], "prefix_blocks": [[1]]})
    frame.write_parquet(tmp_path / "a.parquet")
    assert [] == found(tmp_path / "a.parquet")
    frame.write_parquet(tmp_path / "a.parquet", metadata={"ARROW:schema": "bm90ZSBvZiBqYW5l"})
    assert ("a.parquet", "metadata.ARROW:schema", "text") in found(tmp_path / "a.parquet")


@pytest.mark.parametrize("field", ["tenant", "request_id"])
@pytest.mark.parametrize("suffix", [".csv", ".json", ".parquet"])
def test_a_number_for_an_id_is_no_pseudonym(tmp_path: Path, field: str, suffix: str) -> None:
    """A telephone number is somebody's, in a column of texts or of numbers."""
    path = tmp_path / f"a{suffix}"
    match suffix:
        case ".csv":
            path.write_text(f"{field}\n4915112345678\n")
        case ".json":
            path.write_text(json.dumps({field: 4915112345678}))
        case _:
            pl.DataFrame({field: [4915112345678]}).write_parquet(path)
    assert [(path.name, field, "ids that are no pseudonyms")] == found(path)


def test_a_long_number_is_not_one_that_an_importer_gave(tmp_path: Path) -> None:
    """No importer counts to the length of a telephone number."""
    path = tmp_path / "a.json"
    path.write_text(json.dumps({"request_id": "4915112345678-azure"}))
    assert {"ids that are no pseudonyms"} == kinds(path)
    path.write_text(json.dumps({"request_id": "00000678-azure"}))
    assert [] == found(path)


def test_numbers_that_nothing_names_are_found(tmp_path: Path) -> None:
    """What no header and no key names could be anybody's number."""
    (tmp_path / "a.csv").write_text("4915112345678,5\n4915112345679,6\n")
    (tmp_path / "b.csv").write_text("prompt_tokens\n5,4915112345678\n")
    (tmp_path / "c.json").write_text("[4915112345678]")
    assert [
        ("a.csv", "column 1", "numbers without a name"),
        ("a.csv", "column 2", "numbers without a name"),
        ("b.csv", "column 2", "numbers without a name"),
        ("c.json", "[]", "numbers without a name"),
    ] == found(tmp_path)


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("arrival_us", [0, 1_764_493_200_000_000]),
        ("arrival_us", [-1_764_493_200_000_000, 5]),
        ("tick", [1_764_493_200_000_000_000]),
        ("start", [1_764_493_200]),
        ("timestamp", [1_764_493_200.5]),
    ],
)
def test_absolute_times_of_known_names_are_found(
    tmp_path: Path, name: str, values: list[float]
) -> None:
    """Also among offsets, and under a name that otherwise counts."""
    pl.DataFrame({name: values}).write_parquet(tmp_path / "w.parquet")
    assert [("w.parquet", name, "absolute times")] == found(tmp_path / "w.parquet")


@pytest.mark.parametrize("target", ["mooncake", "vllm-bench"])
def test_exports_of_shared_workloads_may_be_shared(tmp_path: Path, target: str) -> None:
    """What another replayer reads has its field names, and offsets for times."""
    raw = write(workload(), tmp_path / "w.json")
    made = done(sanitized(raw, tmp_path / "shared"))
    out = tmp_path / "out" / "trace.jsonl"
    ended = preempt("export", target, made.workload, "-o", out)
    assert 0 == ended.code, ended.err
    assert [] == found(out)


@pytest.mark.planted
def test_what_a_test_leaves_that_may_be_shared_is_checked(tmp_path: Path) -> None:
    """A sanitized workload that a test spoils is found out when the test ends."""
    made = done(sanitized(write(workload(), tmp_path / "w.json"), tmp_path / "shared")).workload
    assert [] == findings(tmp_path)
    told = pl.read_parquet_metadata(made)
    frame = pl.read_parquet(made).with_columns(tenant=pl.lit("jane"))
    frame.write_parquet(made, metadata={k: v for k, v in told.items() if k != "ARROW:schema"})
    assert {made} == {path for path, _ in findings(tmp_path)}
