"""Reports: modelled and measured apart, nothing lost, hostile names harmless."""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from stored import engine_config, sealed, stepped_ledger

from analysis import store
from analysis.markdown import escape, table
from analysis.report import markdown_report
from analysis.report_data import ReportData, report_data
from collectors.run import read_run
from preempt.demo import busiest_window, run_demo
from preempt.recorded import BASELINE, CANDIDATE, GATE, recorded
from replay.canonical import canonical_json
from replay.limitations import LIMITATIONS
from replay.workload_file import read_workload

RUNS = Path(__file__).parent.parent / "fixtures" / "runs"
RUN_FILES = ("manifest.json", "offered.jsonl")
EMPTY = ReportData((), (), (), (), (), (), (), (), ())


def copied_run(name: str, to: Path) -> Path:
    """A run that may be edited."""
    for path in (RUNS / name).rglob("*"):
        if path.is_file():
            target = to / path.relative_to(RUNS / name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    return to


def edit_manifest(run: Path, **values: Any) -> None:
    """Set fields of a run's manifest, named with double underscores for dots."""
    manifest = json.loads((run / "manifest.json").read_text())
    for name, value in values.items():
        *path, last = name.split("__")
        place = manifest
        for part in path:
            place = place[part]
        place[last] = value
    (run / "manifest.json").write_text(json.dumps(manifest))


def demo(out: Path, baseline: Path) -> str:
    """The demo's report with another baseline."""
    run_demo(
        out,
        baseline,
        recorded("runs", CANDIDATE),
        recorded("configs", "demo.toml"),
        recorded("gates", GATE),
    )
    return (out / "report.md").read_text()


def column_headings(report: str) -> list[tuple[str, list[str]]]:
    """(section heading, column headings) of every table."""
    found, section = [], ""
    for line, following in pairwise(report.splitlines()):
        if line.startswith("#"):
            section = line
        if following.startswith(("| --- ", "| ---: ")):
            found.append((section, [c.strip() for c in line.strip("|").split(" | ")]))
    return found


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The demo's own report."""
    return demo(tmp_path_factory.mktemp("demo") / "out", recorded("runs", BASELINE))


def test_every_number_says_whether_it_is_modelled_or_measured(report: str) -> None:
    """A table is of one kind by its heading, or each of its number columns says which it is."""
    names = {"run", "request", "flags", "join", "of run", "recovery", "offered", "field", "ledgers"}
    names |= {"ledger", "rule", "blocks"}
    tables = column_headings(report)
    assert len(tables) >= 8
    for section, headings in tables:
        kinds = {k for k in ("measured", "modelled") if k in section.lower()}
        if len(kinds) == 1 or section.startswith("## Gate"):
            continue
        for heading in set(headings) - names:
            assert heading.startswith(("modelled", "measured")), (section, heading)


def test_engine_capacity_rules_and_limitations_are_named(report: str) -> None:
    """A reader learns which engine, device, pool and rules, and what is not modelled."""
    for text in ("vllm 0.32.0", "x86-64", "47", "79", "lab-1", "equal estimates: recompute"):
        assert text in report
    for sentence in LIMITATIONS:
        assert sentence in report


def test_every_status_is_counted_even_if_it_did_not_occur(report: str) -> None:
    """Censored and failed requests have their column, with zero where nobody was."""
    assert "| run | offered | ok | aborted | error | censored | unsent | rejected |" in report
    assert "| base-1 | 240 | 240 | 0 | 0 | 0 | 0 | 0 |" in report


def test_flagged_requests_carry_their_marks(report: str) -> None:
    """Waited too long and displaced too often are signs, not colours."""
    marks = [line.split("|")[1].strip() for line in report.splitlines() if "| what-if |" in line]
    assert {"▲", "✕", "▲✕"} & set(marks)
    assert "▲✕" in marks or {"▲", "✕"} <= set(marks)


def test_editing_one_request_changes_ledgers_joined_rows_and_report(tmp_path: Path) -> None:
    """The demo works on the recorded run, not on an answer kept beside it."""
    run = copied_run(BASELINE, tmp_path / "edited run")
    start, count = busiest_window(read_run(run), 64)
    offered = read_workload(run / "offered.jsonl")
    victim = offered.requests[start + count // 2]
    lines = (run / "offered.jsonl").read_bytes().splitlines(keepends=True)
    at = next(k for k, line in enumerate(lines) if f'"{victim.request_id}"'.encode() in line)
    record = json.loads(lines[at]) | {"prompt_tokens": victim.prompt_tokens + 100}
    lines[at] = canonical_json(record) + b"\n"
    (run / "offered.jsonl").write_bytes(b"".join(lines))
    requests = run / "requests" / "part-00000.parquet"
    row = pl.col("request_id") == victim.request_id
    pl.read_parquet(requests).with_columns(
        prompt_tokens=pl.when(row).then(record["prompt_tokens"]).otherwise("prompt_tokens"),
        ttft_us=pl.when(row).then(77_777_000).otherwise("ttft_us"),
    ).write_parquet(requests, metadata={"schema": "preemption-run/1"})
    sha = read_workload(run / "offered.jsonl").sha256
    edit_manifest(run, workload__workload_sha256=sha)

    seen = {}
    for name, baseline in (("as recorded", recorded("runs", BASELINE)), ("edited", run)):
        out = tmp_path / name
        text = demo(out, baseline)
        with store.connect(out / "preempt.duckdb", read_only=True) as db:
            joined = db.execute(
                "SELECT modelled_prompt_tokens, measured_ttft_us FROM joined_requests"
                " WHERE request_id = ? AND join_side = 'both'",
                [victim.request_id],
            ).fetchall()
            hashes = db.execute(
                "SELECT recovery, event_sha256 FROM modelled_ledgers ORDER BY recovery"
            ).fetchall()
        seen[name] = (text, joined, hashes)
    before, after = seen["as recorded"], seen["edited"]
    assert [(record["prompt_tokens"], 77_777_000)] * 3 == after[1]
    assert before[1] != after[1]
    assert all(a != b for a, b in zip(before[2], after[2], strict=True))
    assert before[0] != after[0]


@pytest.fixture(scope="module")
def engines() -> str:
    """The report of a run, its replay from its own steps, and what-ifs of that."""
    with store.connect(None) as db:
        store.load_run(db, read_run(RUNS / "base-1"))
        for policy in ((), ("swap",), (None, "least-computed")):
            store.load_ledger(db, stepped_ledger(*policy))
        older = engine_config(tick_us=1, rule="vllm-0.31.0")
        store.load_ledger(db, sealed(stepped_ledger().workload, older))
        return markdown_report(report_data(db)).replace("\\", "")


POLICIES = (
    ("recompute", "33.1%", ()),
    ("swap (what-if)", "0.0%", ("What-if: recovery swap; no current vLLM release",)),
    (
        "recompute, victim least-computed (what-if)",
        "29.8%",
        ("What-if: victim rule least-computed instead of the engine's own.",),
    ),
    (
        "recompute (assumed rule)",
        "33.1%",
        ("Rule vllm-0.31.0 was not checked; it is assumed to decide as vllm-0.32.0.",),
    ),
)


@pytest.mark.parametrize(("policy", "tax", "sentences"), POLICIES, ids=[p[0] for p in POLICIES])
def test_each_ledger_has_its_recompute_tax_and_its_what_ifs(
    policy: str, tax: str, sentences: tuple[str, ...], engines: str
) -> None:
    """In the table of policies, and again where its own requests are shown."""
    (row,) = (line for line in engines.splitlines() if f" | {policy} | vllm-0.3" in line)
    assert f" | {tax} | " in row
    own = engines.split(f"### {policy}, ledger {row.split()[1]}: ")[1].split("\n###", maxsplit=1)[0]
    assert f"Modelled recompute tax: {tax}. Requests arrive in the engine's own steps." in own
    assert len(sentences) == own.count("**What-if") + own.count("**Rule")
    for sentence in sentences:
        assert f"**{sentence}" in own
        assert f": {sentence}" in engines


def test_no_two_ledgers_have_one_name(engines: str) -> None:
    """Several of one recovery are told apart by their headings and where their hashes stand."""
    for start in ("### ", "- "):
        names = [
            line.split(": ")[0]
            for line in engines.splitlines()
            if line.startswith(start) and ", ledger " in line
        ]
        assert (4, 4) == (len(names), len(set(names)))


def test_an_engines_scheduler_is_declared(engines: str) -> None:
    """In the words of its configuration."""
    for text in ("max_num_batched_tokens 2,048", "enable_prefix_caching off", "tick (one step) 1"):
        assert text in engines


def test_a_report_in_which_nothing_differs_says_so() -> None:
    """A table without rows would look as if something were missing."""
    with store.connect(None) as db:
        store.load_run(db, read_run(RUNS / "base-1"))
        store.load_ledger(db, stepped_ledger())
        text = markdown_report(report_data(db))
    assert "Every join in this report is one: no field differs." in text
    assert "modelled value" not in text


def test_hostile_names_stay_text(tmp_path: Path) -> None:
    """A model called <script> or a table break cannot become markup."""
    run = copied_run(BASELINE, tmp_path / "hostile")
    edit_manifest(run, model__name="<script>alert(1)</script>|[x](http://e.example)")
    with store.connect(None) as db:
        store.load_run(db, read_run(run))
        text = markdown_report(report_data(db))
    assert "<script" not in text
    assert "[x](" not in text
    row = next(line for line in text.splitlines() if "alert" in line)
    assert 8 == row.replace("\\|", "").count("|")


def test_a_report_says_that_a_load_driver_fell_behind(tmp_path: Path) -> None:
    """Under its limitations, by the name of the run."""
    run = copied_run(BASELINE, tmp_path / "late")
    driver = {"behind": True, "late_requests": 31, "lateness_limit_us": 50_000}
    edit_manifest(run, driver=driver | {"max_lateness_us": 1_234_000})
    with store.connect(None) as db:
        store.load_run(db, read_run(run))
        text = markdown_report(report_data(db))
    assert (
        "- The load driver of base-1 fell behind its schedule (31 requests more than 50 ms late,"
        " the latest by 1,234 ms)" in text.split("## Limitations")[1]
    )


def test_a_report_says_whose_ttft_an_imported_run_has(tmp_path: Path) -> None:
    """A benchmark tool's clock is not the engine's: its definition stands under the limitations."""
    run = copied_run(BASELINE, tmp_path / "imported")
    definitions = {"ttft": "from the POST to the first chunk", "tpot": "x", "itl": "x", "e2e": "x"}
    imported = {"format": "vllm-bench", "tool_version": None, "definitions": definitions}
    edit_manifest(run, imported=imported)
    with store.connect(None) as db:
        store.load_run(db, read_run(run))
        text = markdown_report(report_data(db))
    assert (
        "- base-1 was imported from a file of vllm-bench. TTFT there: from the POST to the first"
        " chunk." in text.split("## Limitations")[1]
    )


def test_a_report_of_nothing_says_so() -> None:
    """No run and no ledger is a report without tables, not an error."""
    text = markdown_report(EMPTY)
    assert "0 measured run(s), 0 modelled ledger(s), 0 gate verdict(s)." in text
    assert [] == column_headings(text)


def test_missing_values_are_dashes_and_zero_is_zero() -> None:
    """What nobody measured is not shown as nothing happening."""
    lines = table(("a", "b", "c"), [(None, 0, 1.5), ("x", 12_345, None)])
    assert ["| – | 0 | 1.5 |", "| x | 12,345 | – |"] == lines[2:]
    assert "| --- | ---: | ---: |" == lines[1]


@given(st.text(max_size=40))
def test_escaped_text_is_one_line_without_html_or_links(text: str) -> None:
    """Whatever a name holds, it cannot end a line, a cell or a tag."""
    escaped = escape(text)
    assert not set("\n\r<>") & set(escaped)
    assert "|" not in escaped.replace("\\|", "")
    assert "[" not in escaped.replace("\\[", "")
