"""A lake holds what a database holds: the same checks, rows and answers, and no path from data."""

import fcntl
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import duckdb
import polars as pl
import pytest
from click.testing import CliRunner
from stored import RUNS, lab_ledger, metrics_only, recorded, stepped_ledger, with_counter

from analysis import store
from analysis.errors import ContentConflict, QueryError, StoreError
from analysis.lake.layout import GROUPS, LEDGER_TABLES, RUN_TABLES
from analysis.lake.loading import load_path
from analysis.lake.views import make_views
from analysis.named import named_query
from analysis.query import open_query
from analysis.sqlfiles import TABLES, VIEWS, literal, names
from collectors.writer import RunWriter, new_manifest
from preempt.commands.store import load_command, sql_command
from preempt.main import main
from replay.canonical import canonical_json, sha256
from replay.errors import InputError
from replay.ledger import Ledger, write_ledger
from replay.limitations import LIMITATIONS

ROOT = Path(__file__).parent.parent
Both: TypeAlias = tuple[duckdb.DuckDBPyConnection, duckdb.DuckDBPyConnection]
START = datetime(2026, 11, 30, tzinfo=UTC)
HIVE_SCHEMA = {"engine_version": pl.String, "run_id": pl.String}
# Ids that would lead elsewhere, mean something else to a reader, or are merely unusual.
IDS = (
    "..",
    ".",
    "/",
    "../../etc/passwd",
    " ",
    "  x  ",
    "\u00a0",
    "\u200b",
    "x" * 128,
    "😀" * 60,
    "日本",
    "é",
    "e\u0301",
    "null",
    "NULL",
    "__HIVE_DEFAULT_PARTITION_",
    "007",
    "1.50",
    "2026-11-30",
    "true",
    "nan",
    "%2F",
    "%",
    "100%25",
    "a+b c",
    "run_id=a",
    "a\\b",
    "*",
    "[a]?{b}",
    "'; DROP TABLE x; --",
    '"#:^',
    "~user$HOME`id`|&<>()!,;@",
    ".hidden",
    "_ignored",
)


def collected(
    path: Path, run_id: str, values: tuple[float, ...] = (2, 9, 9), version: str | None = "0.32.0"
) -> Path:
    """A run of metrics alone, as its collector leaves it while it goes on."""
    manifest = new_manifest(run_id, "observed", start=START)
    manifest["engine"]["version"] = version
    samples = with_counter(metrics_only(run_id), {0: values}, others=True).samples
    with RunWriter.create(path, manifest) as writer:
        writer.write_part("metric_samples", samples.sort("scrape", maintain_order=True))
    return path


def gate_report(path: Path) -> Path:
    """A gate's report with the right hash."""
    gate = {"name": "seqs-64", "sha256": "a" * 64}
    report = {"schema": "preemption-gate-report/1", "gate": gate, "verdict": "pass"}
    path.write_text(json.dumps(report | {"report_sha256": sha256(canonical_json(report))}))
    return path


def stray_ledger() -> Ledger:
    """The lab's replay, as if its workload came from nowhere."""
    ledger = lab_ledger()
    return replace(ledger, workload=replace(ledger.workload, provenance=None))


@pytest.fixture(scope="module")
def evidence(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Runs with and without a known engine, ledgers with and without a run, a gate's report."""
    above = tmp_path_factory.mktemp("evidence")
    ledgers = {"stepped": stepped_ledger(), "lab": lab_ledger(), "swap": lab_ledger("swap")}
    for name, ledger in (ledgers | {"stray": stray_ledger()}).items():
        write_ledger(ledger, above / "ledgers" / name)
    collected(above / "scraped", "scraped")
    collected(above / "unknown", "unknown", version=None)
    return [RUNS, above / "ledgers", above / "scraped", above / "unknown", gate_report(above / "g")]


@pytest.fixture(scope="module")
def lake(evidence: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A lake of all of it."""
    root = tmp_path_factory.mktemp("lake") / "lake"
    for path in evidence:
        load_path(root, path)
    return root


@pytest.fixture(scope="module")
def both(
    evidence: list[Path], lake: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Both]:
    """A database of all of it, and the views on the lake."""
    views = tmp_path_factory.mktemp("views") / "views.duckdb"
    make_views(lake, views)
    with store.connect(None) as db, duckdb.connect(views, read_only=True) as on_lake:
        for path in evidence:
            store.load_path(db, path)
        yield db, on_lake


def answer(db: duckdb.DuckDBPyConnection, query: str) -> tuple[Any, list[tuple[Any, ...]]]:
    """Columns with their types, and all rows, sorted."""
    found = db.execute(query)
    columns = [(name, str(kind)) for name, kind, *_ in found.description or ()]
    return columns, sorted(found.fetchall(), key=repr)


def rows(root: Path, query: str) -> list[tuple[Any, ...]]:
    """All rows of a stranger's query of a lake."""
    with open_query(root, query, lake=True) as result:
        return [row for rows in result.chunks() for row in rows]


def content(root: Path) -> dict[str, tuple[str, int]]:
    """Every file of a lake, by path: its hash, and which file it is."""
    return {
        str(p.relative_to(root)): (hashlib.sha256(p.read_bytes()).hexdigest(), p.stat().st_ino)
        for p in root.rglob("*")
        if p.is_file()
    }


def copied(lake: Path, tmp_path: Path) -> Path:
    """A lake of the test's own to damage."""
    return Path(shutil.copytree(lake, tmp_path / "copy"))


# The same answers.


@pytest.mark.parametrize("name", names("queries"))
def test_a_named_query_gives_the_same_from_both(name: str, both: Both) -> None:
    """Columns, types and rows of every named query are the same from a lake and a database."""
    database, lake = (answer(db, named_query(name).text) for db in both)
    assert database == lake


@pytest.mark.parametrize("name", [*TABLES, *VIEWS])
def test_a_table_or_view_is_the_same_in_both(name: str, both: Both) -> None:
    """Every table and view has the same columns, types and rows in a lake and a database."""
    database, lake = (answer(db, f"FROM {name}") for db in both)
    assert database == lake


def test_the_evidence_has_something_to_say(both: Both) -> None:
    """Most named queries have rows here, so that comparing them compares something."""
    answered = {n for n in names("queries") if answer(both[0], named_query(n).text)[1]}
    assert {"joined", "preemption_counter", "status_counts", "worst_requests"} <= answered
    assert len(names("queries")) * 3 // 4 < len(answered)


def test_a_lake_says_what_its_columns_mean(both: Both) -> None:
    """The comments of a database are there in a lake, too."""
    query = "SELECT table_name, column_name, comment FROM duckdb_columns() WHERE NOT internal"
    database, lake = ({r for r in answer(db, query)[1] if r[0] in TABLES} for db in both)
    assert database == lake
    assert all(comment for _, _, comment in lake)


def test_every_table_has_its_place_in_a_lake() -> None:
    """No table of the store is left out, and none is in two groups."""
    assert sorted(set(TABLES) - {"store_info"}) == sorted(t for group in GROUPS for t in group)


# The files.


def test_a_file_says_what_it_is_and_stands_alone(lake: Path) -> None:
    """Schema, table and limitations in its metadata, zstd, and the partition in its own columns."""
    files = list(lake.rglob("*.parquet"))
    assert files
    for file in files:
        table = file.relative_to(lake).parts[0]
        said = pl.read_parquet_metadata(file)
        assert (store.SCHEMA, table) == (said["schema"], said["table"])
        assert list(LIMITATIONS) == json.loads(said["limitations"])
        query = "SELECT DISTINCT compression FROM parquet_metadata(?)"
        assert {("ZSTD",)} >= set(duckdb.execute(query, [str(file)]).fetchall())
        own = pl.read_parquet(file, hive_partitioning=False)
        hive = dict(part.split("=") for part in file.relative_to(lake).parts[1:-1])
        for key in own.columns:
            if key in hive and own.height:
                value = None if hive[key].startswith("__HIVE") else hive[key]
                assert [value] == own[key].unique().to_list()


def test_a_ledger_carries_its_what_ifs(lake: Path) -> None:
    """A replay of an engine's rule says in every file where it leaves what the engine does."""
    (ledger_id,) = rows(lake, "SELECT ledger_id FROM modelled_ledgers WHERE profile = 'vllm-v1'")[0]
    files = list(lake.rglob(f"{ledger_id}.parquet"))
    assert len(LEDGER_TABLES) == len(files)
    assert {"[]"} == {pl.read_parquet_metadata(file)["what_ifs"] for file in files}


def test_a_file_is_sorted_by_what_is_asked_for(lake: Path) -> None:
    """Series by name and requests by arrival, so that a reader skips row groups."""
    for table, keys in (
        ("metric_samples", ["name", "engine", "scrape"]),
        ("measured_requests", ["arrival_us", "engine"]),
        ("measured_events", ["engine", "seq"]),
        ("modelled_events", ["seq"]),
    ):
        for file in (lake / table).rglob("*.parquet"):
            frame = pl.read_parquet(file, hive_partitioning=False)
            assert frame.select(keys).rows() == sorted(frame.select(keys).rows())


def test_a_partition_is_the_engine_and_the_run(lake: Path) -> None:
    """A ledger is under the release it replayed; an unknown engine and the lab are Hive's null."""
    found = {str(p.parent.relative_to(lake)) for p in lake.rglob("*.parquet")}
    null = "__HIVE_DEFAULT_PARTITION__"
    expected = {f"{table}/engine_version=0.32.0/run_id=base-1" for table in RUN_TABLES}
    expected |= {f"{table}/engine_version={null}/run_id=unknown" for table in RUN_TABLES}
    expected |= {f"{table}/engine_version=0.32.0/run_id=base-1" for table in LEDGER_TABLES}
    expected |= {f"{table}/engine_version={null}/run_id=base-1" for table in LEDGER_TABLES}
    assert expected | {"gate_results"} <= found
    assert [(None,)] == rows(
        lake, "SELECT engine_version FROM measured_runs WHERE run_id='unknown'"
    )


def test_a_ledger_without_a_run_is_under_no_run(lake: Path) -> None:
    """The same replay of a run's workload and of one from nowhere is two rows, as in a database."""
    ledger_id = lab_ledger().receipt["receipt_sha256"]
    found = rows(lake, "SELECT ledger_id, run_id FROM modelled_ledgers")
    assert {(ledger_id, "base-1"), (ledger_id, None)} <= set(found)
    scan = pl.scan_parquet(
        lake / "modelled_ledgers", hive_partitioning=True, hive_schema=HIVE_SCHEMA
    )
    alone = scan.filter(ledger_id=ledger_id).select("run_id", "engine_version").collect()
    assert {("base-1", None), (None, None)} == set(alone.rows())


def test_only_the_partitions_asked_for_are_read(lake: Path) -> None:
    """A condition on run_id or on the record's engine_version leaves the other files unopened."""
    total = len(list((lake / "metric_samples").rglob("*.parquet")))
    for table, where in (
        ("metric_samples", "run_id = 'scraped'"),
        ("measured_runs", "engine_version IS NULL"),
    ):
        ((_, plan),) = rows(lake, f"EXPLAIN SELECT * FROM {table} WHERE {where}")  # noqa: S608
        assert f"Scanning Files: 1/{total}" in plan


def test_a_lake_is_private(lake: Path) -> None:
    """A raw run is, so what is made of it is its owner's only."""
    assert {0o600} == {p.stat().st_mode & 0o777 for p in lake.rglob("*") if p.is_file()}
    assert {0o700} == {p.stat().st_mode & 0o777 for p in (lake, *lake.rglob("*")) if p.is_dir()}


# Other readers.


def test_polars_reads_a_lake(lake: Path) -> None:
    """Partitions, types and rows are as they were recorded."""
    scan = pl.scan_parquet(
        lake / "measured_requests", hive_partitioning=True, hive_schema=HIVE_SCHEMA
    )
    recorded_requests = recorded("cand-80").requests
    found = scan.filter(run_id="cand-80").collect()
    assert {"0.32.0"} == set(found["engine_version"])
    found = found.select(recorded_requests.columns)
    assert recorded_requests.schema == found.schema
    assert sorted(recorded_requests.rows()) == sorted(found.rows())


def test_the_examples_of_the_documentation_run(
    lake: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """DuckDB and polars alone, as docs/lake.md has it, say the same number of requests."""
    monkeypatch.chdir(lake.parent)
    text = (ROOT / "docs" / "lake.md").read_text()
    for example in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
        exec(example, {})  # noqa: S102 - our own documentation
    shown = capsys.readouterr().out
    queries = re.findall(r"```sql\n(.*?)```", text, re.DOTALL)
    found = [duckdb.execute(query).fetchall() for query in queries]
    assert [[("base-1", 240), ("cand-80", 240)]] == [[row[:2] for row in one] for one in found]
    assert "240\n" == shown


# Names from strangers.


def test_an_id_is_a_name_and_never_a_path(tmp_path: Path) -> None:
    """Whatever a run is called, it comes back as it was, from DuckDB, polars and our own views."""
    for k, run_id in enumerate(IDS):
        collected(tmp_path / "runs" / str(k), run_id, version=run_id)
    root = tmp_path / "a" / "b" / "lake"
    load_path(root, tmp_path / "runs")
    expected = sorted((i, i, i) for i in IDS)
    query = "SELECT run_id, engine_version, manifest ->> 'run_id' FROM measured_runs ORDER BY ALL"
    assert expected == sorted(rows(root, query))
    pattern = str(root / "measured_runs" / "*" / "*" / "*.parquet")
    hive = "hive_partitioning = true, hive_types = {run_id: VARCHAR, engine_version: VARCHAR}"
    alone = f"SELECT run_id, engine_version, run_id FROM read_parquet(?, {hive})"  # noqa: S608
    assert expected == sorted(duckdb.execute(alone, [pattern]).fetchall())
    scan = pl.scan_parquet(
        root / "measured_runs", hive_partitioning=True, hive_schema=HIVE_SCHEMA
    ).select("run_id", "engine_version", pl.col("run_id").alias("again"))
    assert expected == sorted(scan.collect().rows())
    assert {4} == {len(p.relative_to(root).parts) for p in tmp_path.rglob("run.parquet")}
    outside = {p for p in tmp_path.rglob("*") if not p.is_relative_to(root)}
    assert {tmp_path / "a", root.parent} == {
        p for p in outside if not p.is_relative_to(tmp_path / "runs")
    }
    for run_id in ("..", "NULL", "'; DROP TABLE x; --", "😀" * 60):
        own = f"SELECT DISTINCT run_id FROM metric_samples WHERE run_id = {literal(run_id)}"  # noqa: S608
        assert [(run_id,)] == rows(root, own)


@pytest.mark.parametrize(
    ("run_id", "fault"),
    [
        ("__HIVE_DEFAULT_PARTITION__", "run_id must not be __HIVE_DEFAULT_PARTITION__ in a lake"),
        ("日" * 128, "run_id must fit into a directory name of 255 bytes in a lake; use --db"),
        ("%" * 128, "run_id must fit into a directory name of 255 bytes in a lake; use --db"),
    ],
)
def test_an_id_that_no_directory_can_be_named_is_refused(
    run_id: str, fault: str, tmp_path: Path
) -> None:
    """It is said, and nothing of its PATH is there: a shortened name would be another's."""
    collected(tmp_path / "runs" / "a", "a")
    collected(tmp_path / "runs" / "b", run_id)
    with pytest.raises(InputError, match=re.escape(fault)):
        load_path(tmp_path / "lake", tmp_path / "runs")
    assert not (tmp_path / "lake").exists()


# Loading.


def test_loading_again_adds_nothing(evidence: list[Path], lake: Path, tmp_path: Path) -> None:
    """What is there is said to be, and no file is another one afterwards."""
    root = copied(lake, tmp_path)
    before = content(root)
    found = [item for path in evidence for item in load_path(root, path)]
    assert {store.THERE} == {item.state for item in found}
    assert before == content(root)


def test_another_content_under_an_id_is_refused_until_it_is_asked_for(tmp_path: Path) -> None:
    """As in a database: nothing is mixed, and --refresh replaces all of it."""
    root = tmp_path / "lake"
    load_path(root, collected(tmp_path / "one", "a"))
    before = content(root)
    other = collected(tmp_path / "other", "a", (1, 2))
    with pytest.raises(ContentConflict, match="preempt load --refresh replaces it by this"):
        load_path(root, other)
    assert before == content(root)
    assert [store.REFRESHED] == [item.state for item in load_path(root, other, refresh=True)]
    query = "SELECT value FROM metric_samples WHERE name = 'num_preemptions' ORDER BY scrape"
    assert [(1.0,), (2.0,)] == rows(root, query)
    assert before.keys() == content(root).keys()


def test_a_run_that_has_grown_is_brought_up_to_date(tmp_path: Path) -> None:
    """Without being asked, and what became known of its engine moves it to another partition."""
    root = tmp_path / "lake"
    load_path(root, collected(tmp_path / "one", "a", (2, 9), version=None))
    (found,) = load_path(root, collected(tmp_path / "later", "a", (2, 9, 9, 12)))
    assert store.REFRESHED == found.state
    assert [("0.32.0",)] == rows(root, "SELECT engine_version FROM measured_runs")
    query = "SELECT value FROM metric_samples WHERE name = 'num_preemptions' ORDER BY scrape"
    assert [(2.0,), (9.0,), (9.0,), (12.0,)] == rows(root, query)
    assert {"engine_version=0.32.0"} == {p.parent.parent.name for p in root.rglob("run.parquet")}
    assert [] == list(root.glob("*/engine_version=__HIVE*"))


def test_a_known_ledger_with_other_requests_is_refused(lake: Path, tmp_path: Path) -> None:
    """requests.parquet is in no hash, so a second load compares it."""
    root = copied(lake, tmp_path)
    ledger = lab_ledger()
    write_ledger(ledger, tmp_path / "ledger")
    file = tmp_path / "ledger" / "requests.parquet"
    frame, said = pl.read_parquet(file), pl.read_parquet_metadata(file)
    said.pop("ARROW:schema", None)
    frame.with_columns(pl.col("queue_ticks") + 1).write_parquet(file, metadata=said)
    before = content(root)
    with pytest.raises(ContentConflict, match=r"another requests\.parquet"):
        load_path(root, tmp_path / "ledger")
    assert before == content(root)


def test_a_run_that_changes_its_name_while_it_is_read_is_refused(tmp_path: Path) -> None:
    """Nobody looked whether the lake has it under the name it now gives itself."""
    manifest = new_manifest("a", "observed", start=START)
    RunWriter.create(tmp_path / "run", manifest).close()
    file = tmp_path / "run" / "manifest.json"

    def renamed(_: Path) -> None:
        file.write_text(file.read_text().replace('"a"', '"b"'))

    with pytest.raises(ContentConflict, match="changed while it was read; load it again"):
        load_path(tmp_path / "lake", tmp_path / "run", renamed)
    assert not (tmp_path / "lake").exists()


def test_a_path_with_one_bad_entry_loads_nothing(tmp_path: Path) -> None:
    """Also what came before it, and a lake that was made for it is gone."""
    collected(tmp_path / "runs" / "a", "a")
    bad = collected(tmp_path / "runs" / "b", "b") / "manifest.json"
    bad.write_text(bad.read_text().replace('"observed"', '"else"'))
    with pytest.raises(InputError):
        load_path(tmp_path / "lake", tmp_path / "runs")
    assert not (tmp_path / "lake").exists()


KILLED = """
import os, signal, sys
from pathlib import Path
sys.path.insert(0, sys.argv[3])
from analysis.lake import loading
replace, calls = Path.replace, []
def die_instead(self, target):
    if len(calls) == int(sys.argv[4]):
        os.kill(os.getpid(), signal.SIGKILL)
    calls.append(target)
    return replace(self, target)
os.umask(0o077)
publish = loading._publish
def publish_and_die(*arguments):
    Path.replace = die_instead
    publish(*arguments)
loading._publish = publish_and_die
loading.load_path(Path(sys.argv[1]), Path(sys.argv[2]), refresh=True)
"""


def killed(root: Path, path: Path, renamed: int) -> None:
    """A load that dies after it has renamed so many files into place."""
    command = [sys.executable, "-c", KILLED, str(root), str(path), str(ROOT), str(renamed)]
    assert -9 == subprocess.run(command, check=False).returncode


@pytest.mark.parametrize("renamed", [0, 3])
def test_a_killed_load_leaves_nothing_half_and_a_second_completes_it(
    renamed: int, tmp_path: Path
) -> None:
    """Without its record nothing of a run is seen; what was written beside it is swept away."""
    root = tmp_path / "lake"
    load_path(root, collected(tmp_path / "one", "one"))
    killed(root, RUNS / "base-1", renamed)
    assert renamed == len(list(root.rglob("run_id=base-1/run.parquet")))
    assert 1 == len(list(root.glob(".loading-*")))
    for table in RUN_TABLES:
        assert [] == rows(root, f"FROM {table} WHERE run_id = 'base-1'")
    assert [("one",)] == rows(root, "SELECT run_id FROM measured_runs")
    assert [store.ADDED] == [item.state for item in load_path(root, RUNS / "base-1")]
    assert [(240,)] == rows(root, "SELECT count(*) FROM measured_requests")
    assert [] == list(root.glob(".*"))


def test_a_killed_refresh_shows_neither_of_the_two(tmp_path: Path) -> None:
    """While a run is replaced it has no record, so that its tables are never read mixed."""
    root = tmp_path / "lake"
    for name in ("one", "two"):
        load_path(root, collected(tmp_path / name, name))
    other = collected(tmp_path / "other", "one", (1, 2))
    killed(root, other, len(RUN_TABLES) - 1)
    assert [("two",)] == rows(root, "SELECT run_id FROM measured_runs")
    assert [("two",)] == rows(root, "SELECT DISTINCT run_id FROM metric_samples")
    assert [store.ADDED] == [item.state for item in load_path(root, other)]
    query = "SELECT max(value) FROM metric_samples WHERE run_id = 'one'"
    assert [(2.0,)] == rows(root, query)


def test_two_loads_at_once_load_once(tmp_path: Path) -> None:
    """Two processes that start together both succeed, and the run is there once."""
    root = tmp_path / "lake"
    command = [sys.executable, "-m", "preempt", "load", str(RUNS / "base-1"), "--lake", str(root)]
    both = [
        subprocess.Popen([*command, "--json"], cwd=ROOT, stdout=subprocess.PIPE) for _ in range(2)
    ]
    found = [json.loads(process.communicate()[0]) for process in both]
    assert [0, 1] == sorted(one["added"] for one in found)
    assert {str(root)} == {one["lake"] for one in found}
    assert [(240,)] == rows(root, "SELECT count(*) FROM measured_requests")


def test_a_lake_that_is_being_loaded_is_waited_for(tmp_path: Path) -> None:
    """For so long, then one line says so and nothing was done."""
    root = tmp_path / "lake"
    run = collected(tmp_path / "one", "one")
    root.mkdir()
    descriptor = os.open(root, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        with pytest.raises(StoreError, match="another process loads into it; nothing was done"):
            load_path(root, run, wait_seconds=0.1)
        assert [] == list(root.iterdir())
    finally:
        os.close(descriptor)
    assert [store.ADDED] == [item.state for item in load_path(root, run)]


# What is no lake.


def test_a_directory_of_something_else_is_not_written_to(tmp_path: Path) -> None:
    """A home directory, for instance, stays as it is; a file and nothing are no lake, either."""
    run = collected(tmp_path / "one", "one")
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(StoreError, match=r"notes\.txt: is no table of a lake"):
        load_path(tmp_path, run)
    with pytest.raises(StoreError, match=r"cannot be loaded into; .*File exists"):
        load_path(tmp_path / "notes.txt", run)
    for root, fault in (
        (tmp_path, "is no table of a lake"),
        (tmp_path / "notes.txt", "not a directory; preempt load --lake makes the lake"),
        (tmp_path / "nowhere", "no such directory; preempt load --lake makes the lake"),
        (tmp_path / "a=b", r"must hold none of \* \? \[ =; choose another directory"),
    ):
        with pytest.raises(StoreError, match=fault):
            rows(root, "SELECT 1")
    (tmp_path / "empty").mkdir()
    with pytest.raises(StoreError, match="holds nothing that preempt load --lake made"):
        rows(tmp_path / "empty", "SELECT 1")
    assert {"one", "notes.txt", "empty"} == {p.name for p in tmp_path.iterdir()}


def _linked_file(root: Path) -> Path:
    file = root / "measured_steps" / "engine_version=0.32.0" / "run_id=base-1" / "run.parquet"
    file.rename(root.parent / "elsewhere.parquet")
    file.symlink_to(root.parent / "elsewhere.parquet")
    return file


def _linked_partition(root: Path) -> Path:
    directory = root / "measured_events" / "engine_version=0.32.0"
    directory.rename(root.parent / "elsewhere")
    directory.symlink_to(root.parent / "elsewhere")
    return directory


def _linked_table(root: Path) -> Path:
    (root / "measured_runs").rename(root.parent / "elsewhere")
    (root / "measured_runs").symlink_to(root.parent / "elsewhere")
    return root / "measured_runs"


@pytest.mark.parametrize("link", [_linked_file, _linked_partition, _linked_table])
def test_a_symbolic_link_is_not_followed(link: Any, lake: Path, tmp_path: Path) -> None:
    """Neither to read nor to load, wherever in a lake it is."""
    root = copied(lake, tmp_path)
    link(root)
    for use in (lambda: rows(root, "SELECT 1"), lambda: load_path(root, RUNS / "base-1")):
        with pytest.raises(StoreError, match=r"symbolic link|is no directory|is no file"):
            use()


def test_what_a_lake_does_not_name_so_is_refused(lake: Path, tmp_path: Path) -> None:
    """A directory that another tool made, or an escape that ours does not write, is pointed at."""
    for k, name in enumerate(("region=eu", "engine_version=a*", "engine_version=%41", "x")):
        root = copied(lake, tmp_path / str(k))
        (root / "measured_runs" / name).mkdir()
        with pytest.raises(StoreError, match=r"is no directory engine_version=…; move it away"):
            rows(root, "SELECT 1")
    (root / "measured_runs" / "x").rename(root / "measured_runs" / "_x")
    (root / "measured_runs" / ".x").mkdir()
    assert [(1,)] == rows(root, "SELECT 1")


def test_a_missing_file_is_not_taken_for_no_rows(lake: Path, tmp_path: Path) -> None:
    """What has a record has all its tables; loading again brings back what is gone."""
    root = copied(lake, tmp_path)
    gone = next((root / "measured_events").rglob("run_id=base-1/run.parquet"))
    gone.unlink()
    with pytest.raises(StoreError, match=r"run\.parquet: is missing; .* preempt load --lake adds"):
        rows(root, "SELECT 1")
    assert [store.ADDED] == [item.state for item in load_path(root, RUNS / "base-1")]
    assert content(lake).keys() == content(root).keys()


def test_a_run_under_two_versions_is_refused(lake: Path, tmp_path: Path) -> None:
    """Its rows would count twice."""
    root = copied(lake, tmp_path)
    for table in RUN_TABLES:
        versions = root / table
        shutil.copytree(
            versions / "engine_version=0.32.0" / "run_id=base-1",
            versions / "engine_version=0.33.0" / "run_id=base-1",
        )
    with pytest.raises(StoreError, match="is there under another engine_version, too"):
        rows(root, "SELECT 1")


def rewritten(file: Path, select: str, schema: str = store.SCHEMA) -> None:
    """The file as another program would have written it."""
    new = file.with_suffix(".new")
    duckdb.execute(
        f"COPY (SELECT {select} FROM read_parquet('{file}', hive_partitioning = false))"  # noqa: S608
        f" TO '{new}' (FORMAT parquet, KV_METADATA {{schema: '{schema}'}})"
    )
    new.replace(file)


@pytest.mark.parametrize(
    ("table", "change", "fault"),
    [
        ("measured_runs", {"schema": "preemption-store/1"}, "got preemption-store/1; delete it"),
        ("measured_runs", {"schema": "x" * 500}, "got a string of 500 code points; delete it"),
        ("measured_steps", {"select": "* REPLACE (0.5 AS step)"}, "step must be a column of type"),
        ("measured_steps", {"select": "* EXCLUDE (step)"}, "cannot be read; Binder Error"),
        ("measured_steps", None, "cannot be read; Invalid Input Error"),
    ],
)
def test_a_file_that_is_no_table_is_refused(
    table: str, change: dict[str, str] | None, fault: str, lake: Path, tmp_path: Path
) -> None:
    """Another version, other columns, other types or no Parquet: one line each."""
    root = copied(lake, tmp_path)
    for file in (root / table).rglob("*.parquet"):
        if change is None:
            file.write_bytes(b"PAR1" + b"\xff" * 100)
        else:
            rewritten(file, **{"select": "*", **change})
    with pytest.raises(StoreError) as caught:
        rows(root, "SELECT 1")
    assert fault in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())


# Asking.

HOSTILE = {
    "COPY (SELECT 1) TO '{file}' (FORMAT parquet)": "must only read",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{file}' (USE_TMP_FILE false)": "must only read",
    "EXPLAIN (ANALYZE) COPY (SELECT 1) TO '{file}' (USE_TMP_FILE false)": "must only read",
    "EXPLAIN (ANALYZE, FORMAT json) COPY measured_runs TO '{file}'": "must only read",
    "EXPLAIN /* ) */ ANALYZE /* SELECT 1 */ COPY (SELECT 1) TO '{file}'": "must only read",
    "EXPLAIN ANALYZE COPY (SELECT 1) TO '{new}'": "must only read",
    "EXPLAIN ANALYZE CREATE TABLE t AS SELECT 1": "must only read",
    "EXPLAIN COPY (SELECT 1) TO '{file}'": "must only read",
    "EXPLAIN ANALYZE COPY measured_runs(run_id) FROM '{file}'": "must only read",
    "EXPLAIN ANALYZE INSERT INTO measured_runs(run_id) SELECT 1": "must only read",
    "CREATE TABLE t AS SELECT 1": "must only read",
    "CREATE OR REPLACE VIEW limitations AS SELECT 1": "must only read",
    "ATTACH '{new}' AS other": "must only read",
    "SET allowed_directories = ['/']": "must only read",
    "FROM enable_logging(storage = 'file', storage_path = '{file}')": "",
    "FROM read_text('{root}/.hidden')": "disabled by configuration",
    "FROM read_parquet('{root}/../other.parquet')": "disabled by configuration",
    "FROM read_parquet('{root}/**/*.parquet')": "disabled by configuration",
    "FROM glob('{root}/*')": "disabled by configuration",
    "FROM read_text('/etc/passwd')": "disabled by configuration",
    "FROM '/etc/hosts.csv'": "disabled by configuration",
    "FROM read_parquet('https://example.com/x.parquet')": "",
    "INSTALL httpfs": "must only read",
    "SELECT 1; SELECT 2": "must be one statement, got 2",
}


@pytest.mark.parametrize("query", HOSTILE)
def test_a_statement_that_does_more_than_read_the_lake_is_refused(
    query: str, lake: Path, tmp_path: Path
) -> None:
    """One line says why, every byte of the lake stays, and no file but the lake's is reached."""
    root = copied(lake, tmp_path)
    (root / ".hidden").write_text("secret")
    shutil.copyfile(next(lake.rglob("run.parquet")), tmp_path / "other.parquet")
    before = content(root)
    text = query
    for name, path in (
        ("{file}", next((root / "measured_runs").rglob("run.parquet"))),
        ("{new}", root / "new.parquet"),
        ("{root}", root),
    ):
        text = text.replace(name, str(path))
    with pytest.raises(QueryError) as caught:
        rows(root, text)
    assert HOSTILE[query] in str(caught.value)
    assert 1 == len(str(caught.value).splitlines())
    assert before == content(root)


@pytest.mark.parametrize(
    "query",
    [
        "EXPLAIN SELECT 1",
        "EXPLAIN ANALYZE FROM measured_runs",
        "EXPLAIN (ANALYZE, FORMAT json) SELECT ')' FROM measured_runs;",
        "EXPLAIN (SELECT 1) UNION SELECT 2",
        "-- é\nEXPLAIN ANALYZE /* x */ (WITH a AS (SELECT 1) FROM a)",
        "DESCRIBE measured_runs",
        "SUMMARIZE measured_steps",
        "SHOW TABLES",
    ],
)
def test_a_statement_that_reads_runs(query: str, lake: Path) -> None:
    """An EXPLAIN of what reads is a statement that reads."""
    assert rows(lake, query)


def test_settings_do_not_open_what_is_closed(lake: Path) -> None:
    """The configuration is locked, and says so itself."""
    query = "SELECT name, value FROM duckdb_settings() WHERE name IN ('lock_configuration',"
    query += " 'enable_external_access', 'autoload_known_extensions') ORDER BY name"
    expected = {"autoload_known_extensions": "false", "enable_external_access": "false"}
    assert expected | {"lock_configuration": "true"} == dict(rows(lake, query))


# The commands.


def test_the_commands_load_and_ask_a_lake(tmp_path: Path) -> None:
    """The same summary as for a database; every format comes out of a lake, none goes into it."""
    root = tmp_path / "lake"
    arguments = [str(RUNS), "--lake", str(root)]
    first = CliRunner().invoke(load_command, arguments, catch_exceptions=False)
    assert f"{root}: 2 added, 0 already there" == first.stderr.splitlines()[-1]
    again = CliRunner().invoke(load_command, [*arguments, "--json", "-q"], catch_exceptions=False)
    assert {"lake": str(root), "added": 0, "already_there": 2}.items() <= json.loads(
        again.stdout
    ).items()
    ask = ["SELECT count(*) AS n FROM measured_requests", "--lake", str(root), "--format"]
    for form in ("json", "csv", "table"):
        shown = CliRunner().invoke(sql_command, [*ask, form], catch_exceptions=False)
        assert "480" in shown.stdout
    out = tmp_path / "n.parquet"
    CliRunner().invoke(sql_command, [*ask, "parquet", "--out", str(out)], catch_exceptions=False)
    assert [480] == pl.read_parquet(out)["n"].to_list()
    before = content(root)
    inside = str(root / "measured_runs" / "n.csv")
    with pytest.raises(InputError, match="is in the lake; choose another path"):
        CliRunner().invoke(sql_command, [*ask, "csv", "--out", inside], catch_exceptions=False)
    assert before == content(root)


@pytest.mark.parametrize("command", ["load", "sql"])
@pytest.mark.parametrize("both", [True, False])
def test_a_database_or_a_lake_is_named(
    command: str, both: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Both at once is a usage error, and so is neither."""
    what = str(RUNS) if command == "load" else "SELECT 1"
    targets = ["--db", str(tmp_path / "a"), "--lake", str(tmp_path / "b")] if both else []
    with pytest.raises(SystemExit) as caught:
        main([command, what, *targets])
    assert 2 == caught.value.code
    assert "--lake" in capsys.readouterr().err
    assert [] == list(tmp_path.iterdir())
