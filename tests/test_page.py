"""The HTML report without a browser: escaping, structure, numbers of SQL, and what is absent."""

import base64
import hashlib
import json
import re
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pages import ATTACKS, ROOT, Structure, demo, hostile, judged, renamed
from stored import metrics_only, recorded

from analysis.gate.gate_file import read_gate
from analysis.gate.verdict import PredicateResult
from analysis.page import panels
from analysis.page.build import page_of
from analysis.page.bundle import charts_script
from analysis.page.data import columnar
from analysis.page.escape import json_script, text
from analysis.page.figures.effects import MEAN, effect_rows
from analysis.page.figures.theme import Spec
from analysis.store import connect, load_run
from collectors.run import Run
from preempt.main import main

STATUSES = ("ok", "error", "aborted", "censored", "unsent", "rejected")
DEMO = ROOT / "fixtures" / "gates" / "blocks-48-to-80.toml"


@pytest.fixture(autouse=True)
def _quick_charts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Bundling takes seconds and is tried once, where the command writes a page."""
    monkeypatch.setattr("analysis.page.build.charts_script", lambda: "window.vegaEmbed = null;")


def page(found: Any) -> str:
    """The document of an answer."""
    return page_of(found.data, found.report, found.sha256)


@cache
def numbers() -> dict[tuple[int, str], dict[str, Any]]:
    """Rows of the demo's numbers by slice and scope."""
    return {(r["slice"], r["scope"]): r for r in demo().data["numbers"]}


@given(st.text(max_size=300))
def test_any_text_is_only_text(value: str):
    """Whatever a name holds, an element and an attribute made of it have that text and no tag."""
    shown = text(value)
    found = Structure(f'<p title="{shown}">{shown}</p>')
    assert ["p"] == [tag for tag, _ in found.tags]
    assert found.tags[0][1]["title"] == "".join(found.visible)
    assert 10 * 128 + 1 >= len("".join(found.visible))  # an escape is ten characters


@given(st.recursive(st.text() | st.none() | st.integers(), lambda c: st.lists(c, max_size=4)))
def test_any_value_in_a_script_is_the_value(value: Any):
    """Data in a script element parses to itself and holds nothing that ends the element."""
    shown = json_script(value)
    assert set() == set(shown) & set("<>&\u2028\u2029")
    found = Structure(f'<script id="d">{shown}</script><p>')
    assert ["script", "p"] == [tag for tag, _ in found.tags]
    surrogates = json.dumps(value).replace("\\\\", "")
    if not re.search(r"\\ud[89a-f]", surrogates):
        assert value == json.loads(found.script("d"))


def test_hostile_names_are_text_everywhere():
    """Requests, runs, a model, a gate, a slice and a check with markup for names change no tag."""
    document = page(hostile())
    found = Structure(document)
    assert 4 == len(found.named("script"))
    assert {"id", "type"} >= {name for a in found.named("script") for name in a}
    assert not any(name.startswith("on") for _, a in found.tags for name in a)
    assert "alert(1)</script>" not in document
    assert "<script>alert(1)</script>" in "".join(found.visible)
    assert "\u202e" not in document
    assert "x" * 200 not in document
    # A slice cannot be called so, but the template must not take a name for its own word.
    names = json.loads(found.script("page-data"))["requests"]["request_id"]
    assert {a[:60] for a in ATTACKS if a.isprintable()} <= {n[:60] for n in names}


def test_the_page_asks_nothing_of_a_network():
    """No address to load from; the policy allows only what the page was written with."""
    found = Structure(page(demo()))
    (policy,) = (
        a["content"]
        for a in found.named("meta")
        if a.get("http-equiv") == "Content-Security-Policy"
    )
    assert "default-src 'none'" in (policy or "")
    assert "unsafe" not in (policy or "")
    for attributes, content in found.raw:
        if attributes.get("type") != "application/json":
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            assert f"'sha256-{digest}'" in (policy or "")
    assert ["data:,"] == [a["href"] for a in found.named("link")]
    assert [] == [a for _, a in found.tags if "src" in a or "style" in a]
    assert all((a["href"] or "").startswith("#") for a in found.named("a"))


def test_every_address_on_the_page_leads_somewhere():
    """Links, labels and descriptions name an element that is there once."""
    found = Structure(page(demo()))
    ids = [a["id"] for _, a in found.tags if "id" in a]
    assert len(ids) == len(set(ids))
    for name in ("for", "aria-labelledby", "aria-controls"):
        assert {a[name] for _, a in found.tags if name in a} <= set(ids)
    assert {(a["href"] or "")[1:] for a in found.named("a")} <= set(ids)


def test_tables_and_controls_can_be_used_without_eyes_or_mouse():
    """Each table has a caption, each heading a scope, each select a label, each chart a text."""
    found = Structure(page(demo()))
    assert len(found.named("table")) == len(found.named("caption"))
    assert {"col", "row"} == {a.get("scope") for a in found.named("th")}
    labels = {a["for"] for a in found.named("label")}
    assert {a["id"] for a in found.named("select")} == labels
    charts = [a for a in found.named("div") if a.get("class") == "chart"]
    pictures = [a for a in found.named("div") if a.get("role") == "img"]
    assert [f"summary-{(a['id'] or '')[6:]}" for a in charts] == [
        a["aria-labelledby"] for a in pictures
    ]
    assert charts
    assert [{"lang": "en"}] == found.named("html")
    assert "skip" == found.named("a")[0]["class"]
    headings = [tag for tag, _ in found.tags if re.fullmatch("h[1-6]", tag)]
    assert "h1" == headings[0]
    assert 1 == headings.count("h1")


def test_the_verdict_comes_first():
    """A reader sees verdict and reason before anything else."""
    visible = [t.strip() for t in Structure(page(demo())).visible if t.strip()]
    at = visible.index("? inconclusive: blocks-48-to-80")
    assert visible[at + 1].startswith("no-erased-progress got 1 ledger")
    assert visible.index("What changed, what was equal") > at


def test_the_same_answer_is_the_same_page():
    """Two stores with the same runs give the same bytes."""
    runs = [recorded("base-1"), recorded("cand-80")]
    gate = read_gate(DEMO)
    assert page(judged(gate, runs)) == page(judged(gate, runs))


@pytest.mark.parametrize("place", [0, 1])
def test_numbers_of_all_requests_are_those_of_the_table(place: int):
    """Counts, preemptions and capped quantiles of a run are what plain SQL says."""
    found = numbers()[0, str(place)]
    run_id = ("base-1", "cand-80")[place]
    row = (
        demo()
        .db.execute(
            """
        SELECT count(*), count(*) FILTER (num_preemptions > 0), sum(num_preemptions),
            count(*) FILTER (num_preemptions > 2),
            quantile_cont(least(ttft_us, 10000000), 0.95) FILTER (
                arrival_us >= 5000000 AND arrival_us <= drain_end_us - 10000000
            )
        FROM measured_requests JOIN measured_runs USING (run_id) WHERE run_id = $run_id
        """,
            {"run_id": run_id},
        )
        .fetchone()
    )
    assert row is not None
    names = ("requests", "preempted", "preemptions", "preempted_too_often", "ttft_p95_us")
    assert list(row) == pytest.approx([found[name] for name in names])
    statuses = demo().db.execute(
        "SELECT status, count(*) FROM measured_requests WHERE run_id = $run_id GROUP BY 1",
        {"run_id": run_id},
    )
    assert dict(statuses.fetchall()) == {s: found[s] for s in STATUSES if found[s]}


def test_a_side_is_the_sum_of_its_runs_and_a_slice_a_part():
    """Scopes and slices hold the requests that they say, eligible ones as the gate counts them."""
    for status in ("requests", "eligible", "ok", "preemptions"):
        assert numbers()[0, "baseline"][status] == numbers()[0, "0"][status]
        assert numbers()[1, "0"][status] < numbers()[0, "0"][status]
    (part,) = demo().report.slices
    assert list(part.eligible) == [numbers()[1, str(k)]["eligible"] for k in (0, 1)]
    assert [r.eligible for r in demo().report.runs] == [
        numbers()[0, str(k)]["eligible"] for k in (0, 1)
    ]


def test_curves_are_the_distribution_that_sql_counts():
    """Each point's share is the share of eligible requests at or below its value."""
    points = [
        r for r in demo().data["curves"]
        if (r["slice"], r["scope"], r["metric"], r["preemptions"]) == (0, "0", "ttft", 1)
    ]  # fmt: skip
    assert 10 < len(points) <= 102
    for point in points[::7]:
        row = (
            demo()
            .db.execute(
                """
            SELECT count(*) FILTER (least(ttft_us, 10000000) <= $value_us) / count(*)
            FROM measured_requests JOIN measured_runs USING (run_id)
            WHERE run_id = 'base-1' AND num_preemptions = 1
                AND arrival_us >= 5000000 AND arrival_us <= drain_end_us - 10000000
            """,
                {"value_us": point["value_us"]},
            )
            .fetchone()
        )
        assert row is not None
        assert pytest.approx(row[0], abs=1e-5) == point["share"]
    assert 1 == points[-1]["share"]


def test_the_timeline_adds_up_to_the_recorded_preemptions():
    """Every preempt event is in one point of its run's timeline."""
    counted = (
        demo()
        .db.execute(
            "SELECT run_id, count(*) FROM measured_events WHERE kind = 'preempt'"
            " GROUP BY 1 ORDER BY 1"
        )
        .fetchall()
    )
    drawn = [
        sum(r["preemptions"] for r in demo().data["pressure"] if r["place"] == place)
        for place in (0, 1)
    ]
    assert [n for _, n in counted] == drawn


def test_modelled_pressure_is_in_ticks_and_apart():
    """A ledger's timeline has its preemptions, and no row of it is among the measured ones."""
    found = demo().data["modelled_pressure"]
    row = demo().db.execute("SELECT sum(modelled_preemptions) FROM modelled_ledgers").fetchone()
    assert row == (sum(r["preemptions"] for r in found),)
    assert row != (0,)
    assert {"tick"} == {k for k in found[0] if k in ("tick", "second")}
    specs = panels.specs(demo().report)
    for name, spec in specs.items():
        if name.startswith(("occupancy", "queue", "preemptions")):
            words = json.dumps(spec)
            assert ("modelled" in words, "measured" in words) == (
                (True, False) if name.endswith("-modelled") else (False, True)
            )


def test_a_preemption_keeps_its_tokens_and_names_its_work():
    """Prompt and generated tokens are the context; the costliest preemption comes first."""
    found = demo().data["measured_preemptions"]
    (first,) = (
        demo()
        .db.execute(
            """
        SELECT context_tokens, computed_tokens, freed_blocks FROM measured_events
        WHERE kind = 'preempt' ORDER BY computed_tokens DESC, run_id, engine, seq LIMIT 1
        """
        )
        .fetchall()
    )
    shown = found[0]
    assert first == (
        shown["prompt_tokens"] + shown["generated_tokens"],
        shown["computed_tokens"],
        shown["freed_blocks"],
    )
    assert 60 == len(found)
    assert 237 == shown["total"]


def test_the_worst_requests_got_slowest():
    """Ten rows, the greatest capped increase first, as a join of both runs has it."""
    expected = (
        demo()
        .db.execute(
            """
        SELECT c.request_id, least(c.e2e_us, 10000000) - least(b.e2e_us, 10000000) AS increase
        FROM measured_requests AS b JOIN measured_requests AS c USING (request_id)
        JOIN measured_runs AS m ON m.run_id = b.run_id
        JOIN measured_runs AS n ON n.run_id = c.run_id
        WHERE b.run_id = 'base-1' AND c.run_id = 'cand-80'
            AND b.arrival_us BETWEEN 5000000 AND m.drain_end_us - 10000000
            AND c.arrival_us BETWEEN 5000000 AND n.drain_end_us - 10000000
        ORDER BY increase DESC, 1 LIMIT 10
        """
        )
        .fetchall()
    )
    assert expected == [(r["request_id"], r["increase_us"]) for r in demo().data["worst"]]


def test_requests_are_thinned_by_a_rule_and_it_is_said(monkeypatch: pytest.MonkeyPatch):
    """Marked requests stay, the page says how many of how many it shows."""
    monkeypatch.setattr("analysis.page.data.MOST_REQUESTS", 50)
    found = demo().data
    assert 50 == len(found["requests"])
    assert 18 == sum(r["waited"] or r["repeated"] for r in found["requests"])
    shown = page_of(found, demo().report, demo().sha256)
    assert "Shown are 50 of 480 requests" in shown


def test_what_is_absent_says_why():
    """Runs without requests are refused, and each figure says in a line why it is not there."""
    gate = read_gate(DEMO)
    found = judged(gate, [metrics_only("m-1"), metrics_only("m-2")])
    assert "refused" == found.report.verdict
    shown = Structure(page(found))
    assert [] == [a for a in shown.named("div") if a.get("class") == "chart"]
    assert 9 <= sum(a.get("class") == "absent" for a in shown.named("p"))
    assert "⊘ refused: blocks-48-to-80" in "".join(shown.visible)


def test_unknown_is_neither_zero_nor_drawn():
    """Without steps, waits, counts and an end of observation, each figure is a line and a dash."""

    def bare(name: str, run_id: str) -> Run:
        run = renamed(recorded(name), run_id, {}, drain_end_us=None)
        unknown = ("queue_time_us", "requeue_time_us", "num_preemptions")
        return replace(
            run,
            steps=run.steps.clear(),
            events=run.events.clear(),
            requests=run.requests.with_columns(pl.lit(None, pl.Int64).alias(n) for n in unknown),
        )

    found = judged(read_gate(DEMO), [bare("base-1", "b"), bare("cand-80", "c")])
    row = found.data["numbers"][0]
    names = ("preempted", "preemptions", "waited_too_long", "preempted_too_often", "ttft_p95_us")
    assert [None] * 5 == [row[name] for name in names]
    assert 240 == row["requests"]
    shown = page(found)
    for reason in (
        "No measured timeline",
        "No distribution",
        "No request has a recorded waiting time",
        "No preemption was recorded",
        "No modelled timeline",
        "No replay of these runs",
    ):
        assert reason in shown
    assert "▲ waited too long</th><td>–</td><td>–</td>" in shown


def test_a_run_given_twice_has_a_page_too():
    """A refusal before any run has a place is a page of words."""
    gate, run = read_gate(DEMO), recorded("base-1")
    found = judged(gate, [run, run])
    assert () == found.report.runs
    assert "given more than once" in page(found)


def test_columns_are_the_rows_again():
    """What the page's script reads is what SQL gave."""
    packed = columnar({"a": [{"x": 1, "y": "b"}, {"x": None, "y": "c"}], "n": [], "s": ["t"]})
    assert {"a": {"x": [1, None], "y": ["b", "c"]}, "n": [], "s": ["t"]} == packed


def walk(value: Any) -> list[Spec]:
    """Every object within a specification."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [*([value] if isinstance(value, dict) else []), *(o for v in inner for o in walk(v))]


def test_pair_effects_are_the_dots_where_a_check_has_them():
    """A dot per pair, then their mean with both bounds; without effects, the runs' own values."""
    one = PredicateResult("q", "regression", "fail", "w", limit=0.1, effects=(0.2, 0.3))
    whole = replace(one, estimate=0.25, low=0.19, high=0.31)
    assert [0.2, 0.3] == [r["value"] for r in effect_rows(one)]
    assert {"pair": MEAN, "side": MEAN, "value": 0.25, "limit": 0.1, "low": 0.19, "high": 0.31} == (
        effect_rows(whole)[-1]
    )
    counts = PredicateResult("r", "repeated_preemption", "pass", "w", limit=2, baseline=(4,))
    assert [] == effect_rows(counts)
    assert [("baseline", 4), ("candidate", 1)] == [
        (r["side"], r["value"]) for r in effect_rows(replace(counts, candidate=(1,)))
    ]
    assert [] == effect_rows(replace(whole, limit=None))


def test_no_chart_says_anything_by_colour_alone():
    """Where colour tells groups apart, a shape, a dash, an offset or the axis does, too."""
    for name, spec in panels.specs(demo().report).items():
        encodings = {
            channel: value
            for inner in walk(spec)
            for channel, value in inner.get("encoding", {}).items()
            if isinstance(value, dict)
        }
        if "color" in encodings:
            field = encodings["color"]["field"]
            others = {k for k, v in encodings.items() if v.get("field") == field} - {"color"}
            assert others or field == "fate", name


@pytest.mark.usefixtures("capfd")
def test_the_command_writes_the_page_beside_the_report(tmp_path: Path, monkeypatch: Any):
    """`gate run --out` leaves three files of one answer; the page has its charts within 5 MB."""
    monkeypatch.setattr("analysis.page.build.charts_script", charts_script)
    runs = ROOT / "fixtures" / "runs"
    arguments = ["gate", "run", str(DEMO), "--baseline", str(runs / "base-1")]
    with pytest.raises(SystemExit) as left:
        main([*arguments, "--candidate", str(runs / "cand-80"), "--out", str(tmp_path / "o"), "-q"])
    assert 3 == left.value.code
    assert {"junit.xml", "report.html", "report.json", "report.md"} == {
        f.name for f in (tmp_path / "o").iterdir()
    }
    shown = (tmp_path / "o" / "report.html").read_bytes()
    record = json.loads((tmp_path / "o" / "report.json").read_text())
    assert record["report_sha256"].encode() in shown
    assert 500_000 < len(shown) < 5_000_000
    assert b"vegaEmbed" in shown


@pytest.mark.usefixtures("capfd")
def test_a_store_that_may_only_be_read_has_a_page_too(tmp_path: Path):
    """`gate run --db` writes the page of a file's runs, and never into the file."""
    path = tmp_path / "s.duckdb"
    with connect(path) as db:
        for name in ("base-1", "cand-80"):
            load_run(db, recorded(name))
    before = path.read_bytes()
    arguments = ["gate", "run", str(DEMO), "--db", str(path), "--baseline", "base-1"]
    with pytest.raises(SystemExit) as left:
        main([*arguments, "--candidate", "cand-80", "--out", str(tmp_path / "o"), "-q"])
    assert 3 == left.value.code
    shown = Structure((tmp_path / "o" / "report.html").read_text(encoding="utf-8"))
    assert json.loads(shown.script("page-data"))["numbers"]["requests"][0] == 240
    assert before == path.read_bytes()


def test_nothing_is_bundled_until_a_page_is_written():
    """The modules of a page are imported without the charting library."""
    code = "import sys, analysis.page.build; sys.exit('vl_convert' in sys.modules)"
    assert 0 == subprocess.run([sys.executable, "-c", code], check=False, cwd=ROOT).returncode


def test_a_report_of_many_runs_is_bounded(monkeypatch: pytest.MonkeyPatch):
    """Beyond a number of runs only the first can be chosen, which is said; sides hold them all."""
    monkeypatch.setattr("analysis.page.data.MOST_RUNS", 1)
    data = demo().data
    assert ["base-1"] == [r["name"] for r in data["runs"]]
    assert {"baseline", "candidate", "0"} == {r["scope"] for r in data["numbers"]}
    assert {0} == {r["place"] for r in data["pressure"]}
    shown = page_of(data, demo().report, demo().sha256)
    assert "Only the first 1 runs can be chosen" in shown
