"""A secret planted anywhere in an input reaches nothing that the sanitizer writes or says."""

import json
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sanitize_tools import (
    KEY,
    SECRETS,
    attempts,
    done,
    event_row,
    leaks,
    manifest,
    planted,
    preempt,
    raw_run,
    request_row,
    said,
    sample_row,
    sanitized,
    text_fields,
    workload,
    write,
)

from collectors.sanitize.options import Blur
from collectors.sanitize.provenance import shareable_provenance
from collectors.sanitize.pseudonyms import Pseudonyms
from collectors.sanitize.steps import workload_chain
from replay.workload import FIELDS, Request, Workload
from replay.workload_frame import frame_of

FIELDS_WITH_TEXT = [tuple(path) for path in text_fields()]
ALL = list(SECRETS.values())
Secret = pytest.mark.parametrize("secret", ALL, ids=list(SECRETS))


def small_run(path: Path, found: dict[str, Any]) -> Path:
    """A raw run of one request."""
    rows = [request_row("r-1", 5)]
    return raw_run(path, found, requests=rows, samples=[sample_row("num_preemptions")])


def test_there_are_some_forty_places_for_text_in_a_manifest() -> None:
    """The walk over the schema finds the places; without it the next test would test nothing."""
    assert {("model", "name"), ("gaps", 0, "reason"), ("metric_names", "{}")} <= set(
        FIELDS_WITH_TEXT
    )
    assert len(FIELDS_WITH_TEXT) > 40


REFUSED = {  # fields of fixed values or forms, and the name that all rows repeat
    *("schema", "run_id", "kind", "privacy", "start", "scheduler.scheduling_policy"),
    *("workload.workload_sha256", "comparison.side", "configuration_sha256"),
}


@pytest.mark.parametrize("path", FIELDS_WITH_TEXT, ids=lambda path: ".".join(map(str, path)))
def test_no_text_of_a_manifest_comes_through(tmp_path: Path, path: tuple[str | int, ...]) -> None:
    """Whatever field of a manifest holds a secret, nothing says it, also when it is refused."""
    field = ".".join(map(str, path))
    for k, secret in enumerate((SECRETS["word"], ALL[FIELDS_WITH_TEXT.index(path) % len(ALL)])):
        run = small_run(tmp_path / f"raw-{k}", manifest())
        found = planted(manifest(), path, secret)
        (run / "manifest.json").write_text(json.dumps(found))
        result = sanitized(run, tmp_path / f"shared-{k}")
        assert [] == leaks(result, [secret])
        assert (2 if field in REFUSED else 0) == result.ended.code, result.ended.err
        assert (field not in REFUSED) == result.run.exists() == result.workload.exists()


@Secret
def test_no_text_of_a_runs_tables_comes_through(tmp_path: Path, secret: str) -> None:
    """Ids, tenants, reasons, models, metric names and labels of every table stay behind."""
    found = manifest(secret)
    found["model"]["name"] = secret
    offered = Workload(
        (Request(secret, 0, 100, 10, tenant=secret), Request("other", 9, 100, 10, tenant="t")),
    )
    found["workload"]["workload_sha256"] = offered.sha256
    run = raw_run(
        tmp_path / "raw",
        found,
        offered=offered,
        requests=[
            request_row(secret, 0, tenant=secret, finish_reason=secret, status="error"),
            request_row("other", 9, tenant="t"),
        ],
        events=[event_row(secret, 0), event_row("other", 1)],
        samples=[
            sample_row("num_preemptions", model=secret),
            sample_row(secret),
            sample_row("num_preemptions", labels=json.dumps({"pod": secret})),
            sample_row("num_preemptions", labels=json.dumps({secret: "x"})),
            sample_row("request_success", labels='{"finished_reason":"stop"}', scrape=1),
        ],
    )
    result = done(sanitized(run, tmp_path / "shared"))
    assert [] == leaks(result, [secret])
    made = result.read_run()
    assert (2, 2, 2) == (made.requests.height, made.events.height, made.samples.height)
    assert 2 == len(result.read_workload())


@Secret
def test_files_beside_a_runs_tables_are_not_copied(tmp_path: Path, secret: str) -> None:
    """Journals, pages, a driver's files and strangers' ones stay behind, with their names."""
    run = small_run(tmp_path / "raw", manifest())
    name = secret.replace("/", "_")
    for place in ("journal/drive.jsonl.gz", "pages/000.txt", f"{name}.txt", f"{name}/{name}"):
        (run / place).parent.mkdir(exist_ok=True)
        (run / place).write_text(secret)
    pl.DataFrame({"text": [secret]}).write_parquet(run / "client.parquet")
    result = done(sanitized(run, tmp_path / "shared"))
    assert [] == leaks(result, [secret, name])
    assert {"manifest.json", "requests", "samples"} == {p.name for p in result.run.iterdir()}


@Secret
def test_a_parts_own_metadata_and_statistics_stay_behind(tmp_path: Path, secret: str) -> None:
    """Key-value metadata of a part, keys and values, is not copied, nor are its column's bounds."""
    run = small_run(tmp_path / "raw", manifest())
    part = run / "requests" / "part-00000.parquet"
    frame = pl.read_parquet(part).with_columns(tenant=pl.lit(secret))
    told = {"schema": "preemption-run/1", "note": secret, secret: "x"}
    frame.write_parquet(part, metadata=told, statistics="full")
    assert secret in said(run)
    result = done(sanitized(run, tmp_path / "shared"))
    assert [] == leaks(result, [secret])


@Secret
def test_a_column_that_a_contract_does_not_have_is_refused_without_its_name(
    tmp_path: Path, secret: str
) -> None:
    """Neither the name of the column nor its values are in the error; nothing is written."""
    run = small_run(tmp_path / "raw", manifest())
    part = run / "requests" / "part-00000.parquet"
    frame = pl.read_parquet(part).with_columns(pl.lit(secret).alias(secret))
    frame.write_parquet(part, metadata={"schema": "preemption-run/1"})
    result = sanitized(run, tmp_path / "shared")
    assert (2, "") == (result.ended.code, said(result.folder))
    assert [] == leaks(result, [secret])


@Secret
@pytest.mark.parametrize("suffix", [".parquet", ".jsonl", ".json"])
def test_no_text_of_a_workload_comes_through(tmp_path: Path, secret: str, suffix: str) -> None:
    """Ids, tenants, name, provenance, metadata and the attempts' reasons stay behind."""
    requests = (Request(secret, 0, 9, 9, tenant=secret), Request("b", 1, 9, 9, tenant="t"))
    nested = {
        "source": secret,
        "format": secret,
        "notes": [secret],
        "attempts": {secret: 1},
        "window": {secret: 1, "start": secret},
        "shaped": [{"tool": secret, "of": [{"source": secret, secret: [{secret: secret}]}]}],
        secret: {"deep": [secret, {secret: 1}]},
    }
    found = workload(requests=requests, name=secret, provenance=nested)
    path = write(found, tmp_path / "raw" / f"w{suffix}")
    if suffix != ".jsonl":  # which could not say that they are its own
        attempts(path, [(1, secret, 0, 1, 0)], **{secret: secret, "note": secret})
    if suffix == ".parquet":
        frame = pl.read_parquet(path)
        told = {"schema": "preemption-workload/1", "name": secret, secret: secret}
        told["provenance"] = json.dumps(nested)
        frame.write_parquet(path, metadata=told, statistics="full")
    assert any(way in said(path.parent) for way in (secret, json.dumps(secret)[1:-1]))
    result = done(sanitized(path, tmp_path / "shared"))
    assert [] == leaks(result, [secret])
    assert 2 == len(result.read_workload())
    if suffix != ".jsonl":
        beside = result.folder / "w.attempts.parquet"
        assert ["other"] == pl.read_parquet(beside)["reason"].to_list()


@Secret
@pytest.mark.parametrize("field", FIELDS)
def test_a_refused_workload_is_refused_without_its_texts(
    tmp_path: Path, secret: str, field: str
) -> None:
    """A secret where a number belongs, or under a key of no contract, is not in the error."""
    records: dict[str, dict[str, Any]] = {
        "value": {field: [secret] if field in ("request_id", "tenant") else secret},
        "key": {secret: 1},
    }
    for name, record in records.items():
        path = tmp_path / name / "w.jsonl"
        path.parent.mkdir()
        whole: dict[str, Any] = {"request_id": secret, "arrival_us": 0}
        whole |= {"prompt_tokens": 1, "output_tokens": 1}
        path.write_text(json.dumps(whole | record) + "\n")
        result = sanitized(path, tmp_path / f"shared-{name}")
        assert (2, "") == (result.ended.code, said(result.folder))
        assert [] == leaks(result, [secret])


@Secret
def test_the_name_of_the_input_reaches_no_output(tmp_path: Path, secret: str) -> None:
    """A file or directory of a telling name leaves it behind when it can be read."""
    name = secret.replace("/", "_")
    path = write(workload(), tmp_path / f"{name}.jsonl")
    run = small_run(tmp_path / name, manifest())
    for k, source in enumerate((path, run)):
        result = done(sanitized(source, tmp_path / f"shared-{k}"))
        assert [] == leaks(result, [name])


def test_the_key_is_in_no_output(tmp_path: Path) -> None:
    """Nothing that is written or said holds the key, in digits or in bytes."""
    run = small_run(tmp_path / "raw", manifest())
    result = sanitized(run, tmp_path / "shared", "--json")
    assert 0 == result.ended.code
    assert [] == leaks(result, [KEY, KEY[:16]])


def test_a_column_of_another_release_is_dropped_by_the_chain() -> None:
    """The allow-list is last: what a step let pass and no contract knows is gone, and counted."""
    chain = workload_chain(Pseudonyms(b"k" * 32), Blur(), 3, {}, 5_000_000)
    batch = frame_of(workload()).with_columns(
        order=pl.int_range(3), prompt_text=pl.lit("tell nobody")
    )
    made = chain(batch)
    assert list(FIELDS) == made.columns
    assert 3 == chain.report.changed["columns off the allow-list dropped"]


def secrets_in_json() -> st.SearchStrategy[Any]:
    """JSON with secrets for keys and values, under names that a provenance has."""
    names = ["source", "format", "notes", "attempts", "dropped", "window", "shaped", "of", "tool"]
    names += ["time", "start", "requests", "rows_read", "failed", "sanitized", "license"]
    keys = st.sampled_from([*names, *ALL])
    leaves = st.sampled_from([*ALL, 1, 2.5, None, True, -3, "slice"])
    return st.recursive(
        leaves,
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(keys, inner, max_size=4),
        max_leaves=20,
    )


@given(st.dictionaries(st.sampled_from(["shaped", "source", *ALL]), secrets_in_json(), max_size=4))
def test_no_text_of_a_provenance_comes_through(found: dict[str, Any]) -> None:
    """However a provenance is built, no text of it and none of its keys is in what is shared."""
    told = json.dumps(shareable_provenance(found, Blur()), ensure_ascii=False)
    assert [] == [secret for secret in ALL if secret in told]


@Secret
def test_the_check_says_no_secret(tmp_path: Path, secret: str) -> None:
    """What the check finds in a raw run it names by column or place, never by what is there."""
    run = small_run(tmp_path / "raw", manifest(secret))
    (run / "v.csv").write_text(f"a,b\n{secret},1\n")
    (run / "x.json").write_text(json.dumps({secret: {"a": [secret]}}))
    (run / "y.toml").write_text(f"a = {json.dumps(secret)}\n")
    (run / "z.txt").write_text(secret)
    frame = pl.DataFrame({secret: [1], "b": [secret], "c": [{secret: [secret]}]})
    frame.write_parquet(run / "t.parquet", metadata={secret: secret})
    ended = preempt("sanitize", "--check", run, "--json")
    assert 1 == ended.code
    told = ended.out + ended.err
    assert [] == [way for way in (secret, json.dumps(secret)[1:-1]) if way in told]
    assert {"v.csv", "x.json", "y.toml", "z.txt", "t.parquet", "manifest.json"} <= {
        finding["place"].rpartition("/")[2] for finding in json.loads(ended.out)["findings"]
    }


@pytest.mark.parametrize("name", ["key", "mail", "foreign"])
def test_the_check_describes_a_telling_file_name(tmp_path: Path, name: str) -> None:
    """A file is named so that it can be found, unless its name is what should not be shared."""
    (tmp_path / "in" / SECRETS[name]).mkdir(parents=True)
    (tmp_path / "in" / f"{SECRETS[name]}.csv").write_text("request_id\n")
    (tmp_path / "in" / "acme.csv").write_text("wish\n")
    ended = preempt("sanitize", "--check", tmp_path / "in")
    assert 1 == ended.code
    assert SECRETS[name] not in ended.err
    assert "acme.csv: column 1: a name that no contract uses" in ended.err
    assert f"<name of {len(SECRETS[name])} code points>" in ended.err


@pytest.mark.parametrize("table", ["requests", "events", "samples"])
def test_a_run_whose_times_are_moments_is_refused(tmp_path: Path, table: str) -> None:
    """A raw run counts from its start; one that counts from 1970 would say when it was."""
    moment = 1_764_493_200_000_000
    rows: dict[str, list[dict[str, Any]]] = {
        "requests": [request_row("r", moment)],
        "events": [event_row("r", 0, time_us=moment)],
        "samples": [sample_row("num_preemptions", time_us=moment)],
    }
    run = raw_run(tmp_path / "raw", manifest(), **{table: rows[table]})
    result = sanitized(run, tmp_path / "shared")
    assert (2, "") == (result.ended.code, said(result.folder))
    assert "must be microseconds after the run's start" in result.ended.err
    assert [] == leaks(result, [str(moment)])


def test_a_window_by_moments_is_not_repeated(tmp_path: Path) -> None:
    """What a slice says of a workload that counted from 1970 would say when it was."""
    moment = 1_764_493_200_000_000
    told = {"shaped": [{"tool": "slice", "from_us": moment, "until_us": 5}]}
    path = write(workload(provenance=told), tmp_path / "w.json")
    result = done(sanitized(path, tmp_path / "shared"))
    assert [] == leaks(result, [str(moment)])
    provenance = result.read_workload().provenance
    assert provenance is not None
    assert [{"tool": "slice", "until_us": 5}] == provenance["shaped"]
