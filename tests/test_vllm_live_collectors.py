"""A collector that is left running beside a live vLLM: while it serves, and while it dies.

One server's story. A collector scrapes it and packs the recorder's spool, a Prometheus scrapes it,
too, and requests come. Then another collector does the same while the engine core is killed in the
middle of its work and a new server takes its place.
"""

import shutil
import time
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

import click
import polars as pl
import pytest
from live_vllm import (
    NEW,
    PLAIN,
    REQUESTS,
    assert_reproduced,
    drive,
    first,
    in_the_middle_of,
    number,
    page_of,
    preempt,
    preemptions,
    recorder_below,
    server_of,
    total,
    wait_for,
    watching,
    written,
)
from test_prometheus_real import prometheus, stored

from collectors.pack.turns import SILENT_S
from collectors.run import Run, read_run

pytestmark = pytest.mark.vllm
SERVED, AFTER = 50, 40  # requests before a kill and after it
LAST_MOMENT_US = 3_000_000  # the recorder writes every 0.2 s, if it gets a core
SAMPLE = ["engine", "model", "name", "labels", "le"]


@dataclass
class Story:
    """Runs and pages, in the order they came; times are nanoseconds of the wall clock."""

    folder: Path
    pages: dict[str, str] = field(default_factory=dict)
    left: set[str] = field(default_factory=set)  # of the spool, when the first collector ended
    killed_ns: int = 0
    back_ns: int = 0

    def run(self, name: str) -> Run:
        """One of its runs, every rule checked."""
        return read_run(self.folder / name)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    """All of it."""
    folder = tmp_path_factory.mktemp("collectors")
    found, spool = Story(folder), folder / "spool"
    recorder = recorder_below(tmp_path_factory.getbasetemp())
    with server_of(PLAIN, recorder, folder) as server, prometheus(folder, server.port) as url:
        serve(server, url, found)
        with watching(server, folder / "over-a-kill", "--spool", spool):
            with in_the_middle_of(server, folder, "cut", "--token-seed", 1):
                written(spool)  # a preemption that was counted may be in the lost last moment
                server.kill()
                found.killed_ns = time.time_ns()
            shutil.copytree(spool, folder / "spool-of-the-dead")
            server.stop()
            server.start()
            found.back_ns = time.time_ns()
            drive(server, folder, "after", offered=first(AFTER), spool=False)
            found.pages["back"] = page_of(server)
            # Only then a session that was silent meanwhile is known to be over.
            wait_for(lambda: time.time_ns() - found.killed_ns > (SILENT_S + 2) * 10**9)
    return found


def serve(server: Any, url: str, story: Story) -> None:
    """The part in which nothing goes wrong, with all three collectors."""
    folder, start = story.folder, datetime.now(UTC)
    wait_for(lambda: answered(url, "up==1"))
    with watching(server, folder / "beside", "--spool", folder / "spool"):
        story.pages["before"] = page_of(server)
        drive(server, folder, "driven", offered=first(SERVED), spool=False)
        story.pages["served"] = page_of(server)
        served_s = time.time()
        wait_for(lambda: answered(url, f"timestamp(up) > {served_s}"))
    story.left = {path.name for path in (folder / "spool").iterdir()}
    when = f"{start.isoformat()}/{datetime.now(UTC).isoformat()}"
    chosen = ("--selector", '{job="vllm"}', "--query-range", when)
    preempt("collect", "prometheus", "--url", url, *chosen, "--out", folder / "backfilled")


def answered(url: str, query: str) -> bool:
    """Whether a Prometheus is there and finds something."""
    with suppress(OSError):
        return stored(url, quote(query))
    return False


# While it serves.


def test_a_running_collectors_events_rows_and_samples_are_one_number(story: Story) -> None:
    """Preempt events of the spool, the scraped counter's rise, the rows, and the page itself."""
    run = story.run("beside")
    events = preemptions(run.path)
    assert events >= SERVED // 5
    pages = [total(story.pages[name], "num_preemptions_total") for name in ("before", "served")]
    assert events == pages[1] - pages[0]
    scraped = run.samples.filter(pl.col("name") == "num_preemptions").sort("scrape")["value"]
    assert events == scraped[-1] - scraped[0]
    assert events == run.requests["num_preemptions"].sum()
    assert events == run.manifest["preemptions"]


def test_a_running_collector_has_a_row_of_every_request_sent(story: Story) -> None:
    """Under the client's own ids, served in full; no scrape failed and nothing was lost."""
    run = story.run("beside")
    sent = {r.request_id: r.output_tokens for r in first(SERVED).requests}
    assert sent == dict(run.requests.select("request_id", "generated_tokens").rows())
    assert {"ok"} == set(run.requests["status"])
    assert {"ok"} == set(run.manifest["collection"]["outcomes"])
    assert {} == run.manifest["collection"]["problems"]
    assert ([0], 0) == (
        run.manifest["recorder"]["engines"],
        run.manifest["recorder"]["dropped_records"],
    )
    assert (NEW, "tinymodel") == (run.manifest["engine"]["version"], run.manifest["model"]["name"])
    assert 1 == len(story.left)  # the part that the recorder still writes


def test_a_running_collectors_run_goes_on_as_it_is(story: Story, tmp_path: Path) -> None:
    """Replay, verify, fidelity, load, sql and report, without a step by hand."""
    run, ledger, db = story.folder / "beside", tmp_path / "ledger", tmp_path / "store.duckdb"
    assert_reproduced(run, ledger)
    preempt("load", run, ledger, "--db", db)
    query = "SELECT count(*) AS n FROM measured_events WHERE kind = 'preempt'"
    assert str(preemptions(run)) in preempt("sql", query, "--db", db).stdout.split()
    preempt("report", run, ledger, "--out", tmp_path / "report")
    assert read_run(run).run_id in (tmp_path / "report" / "report.md").read_text()


def last_values(run: Run) -> pl.DataFrame:
    """Every series with its first value and its last."""
    ordered = run.samples.sort("scrape")
    return (
        ordered.group_by(SAMPLE)
        .agg(first=pl.col("value").first(), last=pl.col("value").last())
        .sort(SAMPLE)
    )


def test_a_backfill_from_prometheus_ends_where_direct_scraping_ends(story: Story) -> None:
    """Every counter, every bucket, sum and count, every gauge: the same series, the same values."""
    direct, stored = last_values(story.run("beside")), last_values(story.run("backfilled"))
    assert direct.height == stored.height > 300
    assert direct.select(*SAMPLE, "last").equals(stored.select(*SAMPLE, "last"))
    counts = stored.filter(pl.col("name") == "e2e_request_latency_seconds_count")
    assert [SERVED] == (counts["last"] - counts["first"]).to_list()
    preempted = stored.filter(pl.col("name") == "num_preemptions")
    assert [preemptions(story.folder / "beside")] == (
        preempted["last"] - preempted["first"]
    ).to_list()


# While it dies.


def time_us(run: Run, unix_ns: int) -> int:
    """A moment of the wall clock as a time of a run."""
    start = datetime.fromisoformat(run.manifest["start"])
    return round(unix_ns / 1000 - start.timestamp() * 1e6)


def test_a_killed_engine_core_leaves_all_but_the_last_moment(
    story: Story, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its spool alone: no step and no event is missing up to there; what ran is censored."""
    preempt("collect", "pack", story.folder / "spool-of-the-dead", "--out", tmp_path / "run")
    run = read_run(tmp_path / "run")
    lost_us = time_us(run, story.killed_ns) - number(run.steps["time_us"].max())
    with capsys.disabled():
        click.echo(f"\nkilled: the last {lost_us / 1000:.0f} ms are not in the spool")
    assert lost_us <= LAST_MOMENT_US
    assert run.steps["step"].to_list() == list(range(run.steps.height))
    assert run.events["seq"].to_list() == list(range(run.events.height))
    assert {"ok", "censored"} == set(run.requests["status"])
    assert run.manifest["recorder"]["complete"] is False


def test_a_killed_engine_core_leaves_a_driven_run_that_can_be_read(story: Story) -> None:
    """Rows of every request, errors where the engine was gone, and the events up to the end."""
    run = story.run("cut")
    assert REQUESTS == run.requests.height
    statuses = set(run.requests["status"])
    assert "error" in statuses
    assert statuses <= {"ok", "error", "unsent", "censored"}
    assert preemptions(run.path)
    assert run.manifest["recorder"]["complete"] is False
    assert run.samples.height


def test_a_collector_goes_on_with_the_engine_that_took_the_killed_ones_place(story: Story) -> None:
    """By itself, in the same run: what the first left is cut off, what the second did is there."""
    run = story.run("over-a-kill")
    assert [] == list(story.folder.glob("over-a-kill-*"))
    cut = run.requests.filter(pl.col("status") == "censored")
    assert 0 < cut.height
    back_us = time_us(run, story.back_ns)
    assert number(cut["arrival_us"].max()) < time_us(run, story.killed_ns) < back_us
    later = run.requests.filter(pl.col("arrival_us") >= back_us)
    assert (AFTER, {"ok"}) == (later.height, set(later["status"]))
    events = run.events.filter((pl.col("kind") == "preempt") & (pl.col("time_us") >= back_us))
    assert total(story.pages["back"], "num_preemptions_total") == events.height > 0
    assert events.height == later["num_preemptions"].sum()


def test_a_run_over_a_kill_says_what_happened(story: Story) -> None:
    """Incomplete, two starts, a replay that is not exact, a gap of scrapes and counters reset."""
    manifest = story.run("over-a-kill").manifest
    assert manifest["recorder"]["complete"] is False
    assert any("started 2 times" in note for note in manifest["recorder"]["notes"])
    assert any("cut off by a restart" in what for what in manifest["not_modelled"])
    assert any("refused" in gap["reason"] for gap in manifest["gaps"])
    assert "num_preemptions" in {reset["name"] for reset in manifest["counter_resets"]}
    assert {} == manifest["collection"]["problems"]
