"""Runs made of other tools' files, through store, report and gate: they say no more than those."""

import itertools
import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import duckdb
import jsonschema
import polars as pl
import pytest
from click.testing import CliRunner
from results_files import FILES, RECORDED
from stored import recorded, stepped_ledger

from analysis import store
from analysis.gate.gate_file import read_gate
from analysis.gate.markdown_report import report_markdown
from analysis.gate.run import evaluate
from analysis.gate.verdict import GateReport, report_json
from analysis.named import named_query
from analysis.report import markdown_report
from analysis.report_data import report_data
from collectors.run import Run, read_run
from preempt.commands.fidelity import fidelity_command
from preempt.commands.importing import import_command
from replay.canonical import canonical_json
from replay.ledger import write_ledger

ROOT = Path(__file__).parents[1]
GATE = read_gate(ROOT / "fixtures" / "gates" / "blocks-48-to-80.toml")
SCHEMA = ROOT / "analysis" / "schemas" / "gate-report.schema.json"
REFUSED = {"summary", "sampled"}
RECORDINGS = [
    (name, path) for name, paths in FILES.items() for path in paths if path.stem not in REFUSED
]
# docs/importing.md, "Failures": what a file of each tool can say of a request.
TOLD = {
    "vllm-bench": {"ok", "error"},
    "guidellm": {"ok", "error", "censored", "unsent"},
    "aiperf": {"ok", "error", "aborted"},
    "inference-perf": {"ok", "error"},
    "otel": {"ok"},
}
AIPERF = RECORDED / "aiperf-0.13.0"
WITHOUT_LENGTHS = AIPERF / "failures-cancellations.profile_export.jsonl"


def imported(place: Path, name: str, path: Path) -> list[Run]:
    """The runs of a file, as preempt import makes them."""
    arguments = [name, str(path), "--run", str(place / "run"), "--quiet"]
    result = CliRunner().invoke(import_command, arguments)
    assert 0 == result.exit_code, result.output
    return [read_run(one) for one in sorted(place.glob("run*"))]


@pytest.fixture
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    """A store in memory."""
    with store.connect(None) as found:
        yield found


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Run]:
    """One imported run of every tool."""
    place = tmp_path_factory.mktemp("tools")
    return {
        name: imported(place / name, name, next(p for n, p in RECORDINGS if n == name))[0]
        for name in FILES
    }


def judged(db: duckdb.DuckDBPyConnection, baseline: Run, candidate: Run) -> GateReport:
    """The gate's report over two runs, held to its schema."""
    for run in (baseline, candidate):
        store.load_run(db, run)
    report = evaluate(db, GATE, [baseline.run_id], [candidate.run_id])
    schema = json.loads(SCHEMA.read_text())
    jsonschema.validate(json.loads(canonical_json(report_json(report))), schema)
    return report


@pytest.mark.parametrize(
    ("name", "path"),
    RECORDINGS,
    ids=[f"{name}/{path.parent.name}/{path.stem}" for name, path in RECORDINGS],
)
def test_what_a_file_cannot_say_of_its_requests_is_no_zero(
    db: duckdb.DuckDBPyConnection, tmp_path: Path, name: str, path: Path
) -> None:
    """Rows are counted; of the other statuses only those are 0 that the file would have told."""
    for run in imported(tmp_path, name, path):
        store.load_run(db, run)
        seen = dict(run.requests["status"].value_counts().iter_rows())
        assert set(seen) <= TOLD[name]
        zeros = set() if run.manifest["imported"]["left_out"] else TOLD[name]
        query = "SELECT measured_status, measured_requests FROM run_status_counts WHERE run_id = ?"
        assert {
            status: seen.get(status, 0 if status in zeros else None)
            for status in ("ok", "aborted", "error", "censored", "unsent", "rejected")
        } == dict(db.execute(query, [run.run_id]).fetchall())


def test_requests_of_a_warm_up_leave_no_doubt_about_the_others(
    db: duckdb.DuckDBPyConnection, tools: dict[str, Run]
) -> None:
    """They are left out on purpose, and no error was: 0."""
    run = tools["aiperf"]
    manifest = run.manifest | {"imported": run.manifest["imported"] | {"left_out": {"warmup": 4}}}
    store.load_run(db, replace(run, manifest=manifest))
    query = "SELECT measured_requests FROM run_status_counts WHERE measured_status = 'error'"
    assert [(0,)] == db.execute(query).fetchall()


def test_requests_without_a_row_are_told_beside_the_counts_and_in_the_gate(
    db: duckdb.DuckDBPyConnection, tmp_path: Path
) -> None:
    """Eight failures without a prompt length are no part of 16 of 16 that went well."""
    (run,) = imported(tmp_path, "aiperf", WITHOUT_LENGTHS)
    report = judged(db, recorded(), run)
    told = (
        f"{run.run_id} lacks 8 more requests of its benchmark (8 no_prompt): no number of this run"
        " counts them."
    )
    text = markdown_report(report_data(db))
    section = text.split("## What became of the requests (measured)")[1].split("\n## ")[0]
    assert f"| {run.run_id} | – | 16 | – | – | – | – | – |" in section
    assert f"**{told}**" in section.replace("\\_", "_")
    assert told in report.limitations
    assert "| error | 0 | – |" in report_markdown(report, "0" * 64)


def test_preemptions_that_no_tool_counts_are_missing_everywhere(
    db: duckdb.DuckDBPyConnection, tools: dict[str, Run]
) -> None:
    """Null in the store, a dash in the report."""
    for run in tools.values():
        store.load_run(db, run)
    query = "SELECT count(num_preemptions) + count(requeue_time_us) FROM measured_requests"
    assert [(0,)] == db.execute(query).fetchall()
    data = report_data(db)
    assert [None] * len(tools) == [r["measured_preemptions"] for r in data.runs]
    assert {None} == {r["measured_num_preemptions"] for r in data.by_preemptions}


@pytest.mark.parametrize("uncounted", [240, 1])
def test_preemptions_that_nobody_counted_are_in_no_total(
    db: duckdb.DuckDBPyConnection, uncounted: int
) -> None:
    """One request without a number makes the run's total unknown, and what is compared with it."""
    run = recorded()
    number = pl.when(pl.int_range(pl.len()) >= uncounted).then("num_preemptions")
    store.load_run(db, replace(run, requests=run.requests.with_columns(num_preemptions=number)))
    store.load_ledger(db, stepped_ledger())
    assert [None] == [r["measured_preemptions"] for r in report_data(db).runs]
    found = db.execute(named_query("preemption_counts").text)
    names = [column[0] for column in found.description or ()]
    row = dict(zip(names, *found.fetchall(), strict=True))
    assert (240, 230) == (row["joined_requests"], row["modelled_preemptions"])
    for name in ("preemptions", "preempted_requests"):
        assert row[f"measured_{name}"] is None
    assert row["joined_requests_of_equal_preemptions"] is None


def test_fidelity_counts_no_equal_requests_where_one_was_not_counted(tmp_path: Path) -> None:
    """Like the measured total, their number is unknown."""
    place, ledger = tmp_path / "base-1", tmp_path / "ledger"
    shutil.copytree(recorded().path, place)
    (part,) = (place / "requests").glob("*.parquet")
    first = pl.int_range(pl.len()) == 0
    number = pl.when(~first).then("num_preemptions")
    told = {k: v for k, v in pl.read_parquet_metadata(part).items() if k != "ARROW:schema"}
    pl.read_parquet(part).with_columns(num_preemptions=number).write_parquet(part, metadata=told)
    write_ledger(stepped_ledger(), ledger)
    shown = CliRunner().invoke(fidelity_command, [str(ledger), str(place)])
    assert 0 == shown.exit_code, shown.stderr
    assert "measured unknown, equal for an unknown number of requests" in shown.stderr


def test_a_request_that_never_reached_the_engine_leaves_the_total_known(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """It was preempted by nobody, and its null is no gap."""
    run = recorded()
    unsent = (pl.col("num_preemptions") == 0) & (pl.int_range(pl.len()) < 9)
    requests = run.requests.with_columns(
        status=pl.when(unsent).then(pl.lit("unsent")).otherwise("status"),
        num_preemptions=pl.when(~unsent).then("num_preemptions"),
    )
    assert requests["num_preemptions"].null_count() > 0
    store.load_run(db, replace(run, requests=requests))
    assert [230] == [r["measured_preemptions"] for r in report_data(db).runs]


def test_a_report_says_beside_the_numbers_whose_ttft_each_run_has(
    db: duckdb.DuckDBPyConnection, tools: dict[str, Run]
) -> None:
    """The client's, the engine's or a tool's: one column would otherwise compare them."""
    runs = {**tools, "the client": known("c", "driven"), "the engine": known("e", "observed")}
    for run in runs.values():
        store.load_run(db, run)
    lines = markdown_report(report_data(db)).split("## What became")[0].splitlines()
    for told, run in runs.items():
        (row,) = [one for one in lines if one.startswith(f"| {run.run_id} |") and "TTFT" in one]
        assert f"| TTFT of {told}" in row


def known(run_id: str, kind: str, tool: Run | None = None) -> Run:
    """A run of which everything is known, its latencies from a tool if one is given."""
    run = recorded()
    unplaced = {"side": None, "pair": None, "order": None}
    manifest = {
        **run.manifest,
        "run_id": run_id,
        "kind": kind,
        "comparison": run.manifest["comparison"] | unplaced,
    }
    if tool is not None:
        manifest["imported"] = tool.manifest["imported"] | {"left_out": {}}
    frames = {
        name: getattr(run, name).with_columns(run_id=pl.lit(run_id))
        for name in ("requests", "events", "steps", "samples")
    }
    return replace(run, run_id=run_id, manifest=manifest, **frames)


SOURCES = (*FILES, "the engine")


@pytest.mark.parametrize(("one", "other"), [*itertools.combinations(SOURCES, 2)])
def test_ttft_of_two_sources_is_refused_by_name_however_equal_the_runs_are(
    db: duckdb.DuckDBPyConnection, tools: dict[str, Run], one: str, other: str
) -> None:
    """Two tools, or a tool and the engine: nothing else differs, and both are named."""
    runs = [known(f"r{k}", "observed", tools.get(name)) for k, name in enumerate((one, other))]
    report = judged(db, *runs)
    assert ("refused", ("not_comparable",)) == (report.verdict, report.reasons)
    assert ["latencies"] == [d.field for d in report.comparability.differing]
    for name in (one, other):
        assert f"TTFT of {name}" in report.sentence


def test_ttft_of_the_client_and_of_the_engine_is_refused_by_name(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """The engine's begins when the request has arrived there."""
    report = judged(db, known("c", "driven"), known("e", "observed"))
    assert "latencies (TTFT of the client in c; TTFT of the engine in e)" in report.sentence
    assert ["kind", "latencies"] == [d.field for d in report.comparability.differing]


def test_one_tool_under_two_definitions_is_two_sources(
    db: duckdb.DuckDBPyConnection, tools: dict[str, Run]
) -> None:
    """Another moment kept as e2e is another measurement; a definition that is lost is unknown."""
    tool = tools["guidellm"]
    for e2e, why in (("to the end of the stream", "differs"), (None, "unknown")):
        definitions = tool.manifest["imported"]["definitions"] | {"e2e": e2e}
        told = tool.manifest["imported"] | {"definitions": definitions}
        another = replace(tool, manifest=tool.manifest | {"imported": told})
        runs = (known(f"{why}-1", "observed", tool), known(f"{why}-2", "observed", another))
        differing = judged(db, *runs).comparability.differing
        assert [("latencies", why)] == [(d.field, d.why) for d in differing]


@pytest.mark.parametrize("name", SOURCES)
def test_two_runs_of_one_source_are_compared(
    db: duckdb.DuckDBPyConnection, tools: dict[str, Run], name: str
) -> None:
    """Where their manifests know all that has to be equal."""
    runs = (known(f"r{k}", "observed", tools.get(name)) for k in range(2))
    assert "refused" != judged(db, *runs).verdict


@pytest.mark.parametrize("name", FILES)
def test_an_imported_run_is_refused_in_one_line_that_says_what_its_file_lacks(
    db: duckdb.DuckDBPyConnection, tools: dict[str, Run], name: str
) -> None:
    """Not by the wall of everything that such a file does not know; whose TTFT it is, too."""
    run = tools[name]
    report = judged(db, recorded(), run)
    assert ("refused", ("imported", "not_comparable")) == (report.verdict, report.reasons)
    assert (
        "imported (a file of another tool does not say which engine, device and options it"
        f" measured): {run.run_id}" in report.sentence
    )
    assert ["latencies", "imported.format"] == [d.field for d in report.comparability.differing]
    assert f"TTFT of {name}" in report.sentence
    assert "TTFT of the client in base-1" in report.sentence
    assert "measure both sides with preempt collect drive" in (report.recommendation or "")


def test_a_report_of_a_refusal_says_what_is_wrong_with_each_field(
    db: duckdb.DuckDBPyConnection, tools: dict[str, Run]
) -> None:
    """What is the same in both runs does not differ, it is imported."""
    one, again = tools["aiperf"], known("b", "observed", tools["aiperf"])
    unknown = again.manifest | {"engine": {"name": "vllm", "version": None}}
    report = judged(db, one, replace(again, manifest=unknown))
    store.load_gate_report(db, json.loads(canonical_json(report_json(report))))
    assert (
        f"- **imported, and so of an unknown engine: imported.format (aiperf in {one.run_id},"
        " aiperf in b)**"
    ) in markdown_report(report_data(db))


def test_workloads_that_nobody_knows_are_not_one_workload(
    db: duckdb.DuckDBPyConnection, tools: dict[str, Run]
) -> None:
    """Two files of two loads replay no trace, least of all the same."""
    report = judged(db, tools["aiperf"], tools["otel"])
    assert "All pairs replay one workload" not in " ".join(report.limitations)
