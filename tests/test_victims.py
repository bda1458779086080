"""Named queries about victims: what they lost, how long they waited, and when pressure was."""

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import duckdb
import numpy as np
import polars as pl
import pytest
from paged import MINUTE
from questioned import (
    QUANTILES,
    Row,
    asked,
    faulty,
    fill,
    ledger_events,
    renamed,
    summary,
    timed_ledger,
)
from stored import lab_ledger, metrics_only, recorded, with_counter

from analysis import store
from collectors.exposition.samples import MetricSample, samples_frame
from collectors.run import Run


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    """A store that has rows for every question."""
    with store.connect(None) as connection:
        fill(connection)
        yield connection


# Victims.


def waits(events: Sequence[Row], clock: str) -> list[tuple[Row, int | None]]:
    """Each preemption, and how long until its victim's next resume."""
    found: list[tuple[Row, int | None]] = []
    open_by: dict[str, int] = {}
    for event in events:
        if event["kind"] == "preempt":
            open_by[event["request_id"]] = len(found)
            found.append((event, None))
        elif event["kind"] == "resume" and event["request_id"] in open_by:
            k = open_by.pop(event["request_id"])
            found[k] = (found[k][0], event[clock] - found[k][0][clock])
    return found


def test_victims_waited_from_their_preemption_to_their_next_resume() -> None:
    """First and later preemptions apart; who was never resumed counts, without a wait."""
    events = faulty().events.to_dicts()
    last = max(k for k, e in enumerate(events) if e["kind"] == "resume")
    run = renamed(
        faulty(), "cut", events=pl.DataFrame(events[:last], schema=faulty().events.schema)
    )
    by_nth = defaultdict(list)
    for event, wait in waits(events[:last], "time_us"):
        by_nth[event["num_preemptions"]].append(wait)
    with store.connect(None) as own:
        store.load_run(own, run)
        rows = asked(own, "victim_waits")
    for row in rows:
        all_waits = by_nth.pop(row["measured_nth_preemption"])
        known = [wait for wait in all_waits if wait is not None]
        shown = [row["measured_resumed"], *(row[f"measured_wait_p{q}_us"] for q in QUANTILES)]
        assert (len(all_waits), max(known)) == (
            row["measured_preempt_events"],
            row["measured_wait_max_us"],
        )
        assert pytest.approx(summary(known)) == shown
    assert {} == by_nth
    assert sum(r["measured_preempt_events"] - r["measured_resumed"] for r in rows) >= 1


@pytest.mark.parametrize("made", [lab_ledger, timed_ledger])
def test_modelled_waits_are_ticks_and_only_a_timed_replay_has_microseconds(
    made: Any, db: duckdb.DuckDBPyConnection
) -> None:
    """A tick's declared length makes no latency of it."""
    ledger = made()
    events = ledger_events(db, ledger)
    ticks: dict[int, list[int | None]] = defaultdict(list)
    us: dict[int, list[int | None]] = defaultdict(list)
    for clock, by_nth in (("tick", ticks), ("time_us", us)):
        for event, wait in waits(events, clock):
            by_nth[event["preemptions"]].append(wait)
    rows = asked(db, "modelled_victim_waits", ledger_id=ledger.receipt["receipt_sha256"])
    assert sorted(ticks) == [row["modelled_nth_preemption"] for row in rows]
    for row in rows:
        nth = row["modelled_nth_preemption"]
        shown = [row["modelled_resumed"], *(row[f"modelled_wait_p{q}_ticks"] for q in QUANTILES)]
        assert pytest.approx(summary([w for w in ticks[nth] if w is not None])) == shown
        expected = summary([w for w in us[nth] if w is not None])[1:]
        timed = [row[f"modelled_wait_p{q}_us"] for q in QUANTILES]
        assert pytest.approx(expected if made is timed_ledger else [None] * 4) == timed


def test_the_request_that_lost_most_comes_first_with_what_waiting_did_to_its_tpot(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """Lost tokens and waits by the recorder's events, TPOT of the request, and the median TPOT."""
    requests = {row["request_id"]: row for row in recorded().requests.to_dicts()}
    lost, waited = Counter[str](), Counter[str]()
    for event, wait in waits(recorded().events.to_dicts(), "time_us"):
        lost[event["request_id"]] += event["computed_tokens"]
        waited[event["request_id"]] += wait or 0
    calm = [r["tpot_us"] for r in requests.values() if r["num_preemptions"] == 0]
    rows = asked(db, "measured_worst_requests", run_id="base-1")
    assert sorted(lost, key=lambda name: (-lost[name], name)) == [r["request_id"] for r in rows]
    for row in rows:
        name = row["request_id"]
        request = requests[name]
        per_token = waited[name] / (request["generated_tokens"] - 1)
        assert (lost[name], waited[name], 0, request["tpot_us"]) == (
            row["measured_lost_tokens"],
            row["measured_wait_us"],
            row["measured_wait_before_first_token_us"],
            row["measured_tpot_us"],
        )
        assert pytest.approx(per_token) == row["measured_tpot_wait_us"]
        assert pytest.approx(np.median(calm)) == row["measured_tpot_never_preempted_p50_us"]


def with_early_victims() -> Run:
    """base-1, had every other victim been preempted for the first time before its first token."""
    early = (
        pl.col("kind").eq("preempt") & pl.col("num_preemptions").eq(1) & (pl.col("seq") % 2 == 0)
    )
    tokens = pl.when(early).then(0).otherwise("generated_tokens").alias("generated_tokens")
    return renamed(recorded(), "early", events=recorded().events.with_columns(tokens))


def test_requeue_is_in_a_ttft_only_as_far_as_it_came_before_the_first_token() -> None:
    """Of the slowest twentieth and half: TTFT, queue, requeue and rest, summed over them."""
    run = with_early_victims()
    before = Counter[str]()
    for event, wait in waits(run.events.to_dicts(), "time_us"):
        before[event["request_id"]] += (wait or 0) * (event["generated_tokens"] == 0)
    with store.connect(None) as own:
        store.load_run(own, run)
        rows = asked(own, "ttft_tail")
    assert [0.5, 0.95] == [row["measured_quantile"] for row in rows]
    assert any(row["measured_tail_requeue_us"] > 0 for row in rows)
    for row in rows:
        limit = run.requests["ttft_us"].quantile(row["measured_quantile"], "linear")
        tail = run.requests.filter(pl.col("ttft_us") >= limit)
        ttft, queue = tail["ttft_us"].sum(), tail["queue_time_us"].sum()
        requeue = sum(before[name] for name in tail["request_id"])
        expected = (tail.height, ttft, queue, requeue, ttft - queue - requeue)
        columns = ("requests", "ttft_us", "queue_us", "requeue_us", "rest_us")
        assert expected == tuple(row[f"measured_tail_{c}"] for c in columns)
        assert pytest.approx(requeue / ttft) == row["measured_requeue_frac"]


def test_without_a_recorder_nobody_knows_how_much_of_a_ttft_is_requeue() -> None:
    """Unknown, not zero; with a recorder that saw no victim it is zero."""
    silent = renamed(recorded(), "silent", events=recorded().events.clear())
    calm = renamed(recorded(), "calm", events=recorded().events.filter(pl.col("kind") != "preempt"))
    with store.connect(None) as own:
        for run in (silent, calm):
            store.load_run(own, run)
        found = {(r["run_id"], r["measured_requeue_frac"]) for r in asked(own, "ttft_tail")}
        lost = {(r["run_id"], r["measured_lost_tokens"]) for r in asked(own, "failed_tokens")}
    assert {("silent", None), ("calm", 0.0)} == found
    assert {("silent", None), ("calm", 0)} == lost


def test_a_wait_whose_preemption_nobody_recorded_is_unknown() -> None:
    """A recording that begins in the middle, or lost an event, makes no shorter or longer wait."""
    victims = [e["request_id"] for e in recorded().events.to_dicts() if e["kind"] == "preempt"]
    once = next(name for name in victims if victims.count(name) == 1)
    twice = next(name for name in victims if victims.count(name) == 2)
    of_once = pl.col("request_id").eq(once) & pl.col("kind").eq("resume")
    of_twice = pl.col("request_id").eq(twice) & pl.col("num_preemptions").eq(1)
    events = recorded().events.filter(
        ~of_once & ~(of_twice & pl.col("kind").eq("preempt")).fill_null(value=False)
    )
    with store.connect(None) as own:
        store.load_run(own, renamed(recorded(), "holes", events=events))
        rows = {r["request_id"]: r for r in asked(own, "measured_worst_requests")}
    assert (0, None) == (rows[once]["measured_wait_us"], rows[twice]["measured_wait_us"])
    assert all(r["measured_wait_us"] is not None for n, r in rows.items() if n != twice)


def test_failed_requests_cost_what_was_generated_for_nobody(db: duckdb.DuckDBPyConnection) -> None:
    """Tokens by status, how many requests they are known of, and what preemption made of them."""
    status = dict(faulty().requests.select("request_id", "status").iter_rows())
    lost = Counter[str]()
    for event in faulty().events.filter(kind="preempt").to_dicts():
        lost[status[event["request_id"]]] += event["computed_tokens"]
    whole = faulty().requests["generated_tokens"].sum()
    rows = {r["measured_status"]: r for r in asked(db, "failed_tokens", run_id="faulty")}
    assert {"ok", "aborted", "error", "censored", "unsent", "rejected"} == set(rows)
    for (name,), part in faulty().requests.group_by("status"):
        row = rows[name]
        known = part["generated_tokens"].drop_nulls()
        expected = (part.height, part["prompt_tokens"].sum(), len(known), lost[name])
        columns = ("requests", "prompt_tokens", "generated_known", "lost_tokens")
        assert expected == tuple(row[f"measured_{c}"] for c in columns)
        assert (known.sum() or None) == row["measured_generated_tokens"]
        if len(known):
            assert pytest.approx(known.sum() / whole) == row["measured_generated_frac"]
    assert None is rows["unsent"]["measured_generated_frac"]


# Pressure.


@pytest.mark.parametrize("run", [recorded(), recorded("cand-80")], ids=lambda run: run.run_id)
def test_an_episode_ends_where_nobody_was_preempted_for_five_seconds(
    run: Run, db: duckdb.DuckDBPyConnection
) -> None:
    """By the recorder its start and end are instants."""
    times = run.events.filter(kind="preempt").sort("seq")["time_us"].to_list()
    episodes = [[times[0]]]
    for before, after in pairwise(times):
        if after - before > 5_000_000:
            episodes.append([])
        episodes[-1].append(after)
    expected = [(k + 1, e[0], e[0], e[-1], len(e)) for k, e in enumerate(episodes)]
    columns = ("episode", "start_from_us", "start_to_us", "end_us", "preemptions")
    rows = asked(db, "pressure_episodes", run_id=run.run_id)
    assert expected == [tuple(row[f"measured_{c}"] for c in columns) for row in rows]
    assert len(episodes) > 1


@pytest.mark.parametrize("made", [lab_ledger, timed_ledger])
def test_a_replays_episodes_are_ticks_and_only_a_timed_one_has_times(
    made: Any, db: duckdb.DuckDBPyConnection
) -> None:
    """By modelled time; a tick counts with its declared length and is not shown as time."""
    ledger = made()
    events = [e for e in ledger_events(db, ledger) if e["kind"] == "preempt"]
    episodes = [events[:1]]
    for before, after in pairwise(events):
        if after["time_us"] - before["time_us"] > 5_000_000:
            episodes.append([])
        episodes[-1].append(after)
    timed = made is timed_ledger
    expected = [
        (
            e[0]["tick"],
            e[-1]["tick"],
            e[0]["time_us"] if timed else None,
            e[-1]["time_us"] if timed else None,
            len(e),
            sum(event["freed_blocks"] for event in e),
        )
        for e in episodes
    ]
    columns = ("start_tick", "end_tick", "start_us", "end_us", "preemptions", "freed_blocks")
    own = ledger.receipt["receipt_sha256"]
    rows = asked(db, "modelled_pressure_episodes", ledger_id=own)
    assert expected == [tuple(row[f"modelled_{c}"] for c in columns) for row in rows]


def test_by_the_counter_an_episode_begins_within_a_window() -> None:
    """Scrapes a second apart; windows without an increase for longer than 5 s part two episodes."""
    counts = [0, 0, 2, 2, *[3] * 6, *[4] * 7, 9]
    with store.connect(None) as own:
        store.load_run(own, with_counter(metrics_only(), {0: counts}))
        rows = asked(own, "pressure_episodes")
        windows = asked(own, "pressure_windows")
    second = 1_000_000
    columns = ("source", "start_from_us", "start_to_us", "end_us", "preemptions")
    assert [
        ("counter", 1 * second, 2 * second, 10 * second, 4),
        ("counter", 16 * second, 17 * second, 17 * second, 5),
    ] == [tuple(row[f"measured_{c}"] for c in columns) for row in rows]
    assert [(2, 2), (4, 1), (10, 1), (17, 5)] == [
        (w["measured_to_us"] // second, w["measured_preemptions"]) for w in windows
    ]
    assert {None} == {w["measured_kv_cache_usage_before_frac"] for w in windows}


def test_a_window_with_preemptions_shows_how_full_the_cache_was_before() -> None:
    """Usage, running and waiting of the scrape that begins it and of the one that ends it."""

    def scrape(k: int, count: float, usage: float, running: float, waiting: float) -> Any:
        names = ("num_preemptions", "kv_cache_usage_frac")
        names += ("num_requests_running", "num_requests_waiting")
        values = (count, usage, running, waiting)
        named = zip(names, values, strict=True)
        return k, k * MINUTE, [MetricSample(1, "m", n, "{}", None, v) for n, v in named]

    scrapes = [scrape(0, 4, 0.5, 3, 0), scrape(1, 4, 0.97, 8, 2), scrape(2, 11, 0.4, 2, 1)]
    run = replace(metrics_only(), samples=samples_frame("metrics-1", scrapes))
    with store.connect(None) as own:
        store.load_run(own, run)
        (row,) = asked(own, "pressure_windows")
    columns = ("preemptions", "from_us", "to_us", "kv_cache_usage_before_frac")
    columns += ("kv_cache_usage_frac", "running_before", "running", "waiting_before", "waiting")
    expected = (7, MINUTE, 2 * MINUTE, 0.97, 0.4, 8, 2, 2, 1)
    assert expected == tuple(row[f"measured_{c}"] for c in columns)


def test_each_second_shows_the_fullest_cache_and_the_longest_queue(
    db: duckdb.DuckDBPyConnection,
) -> None:
    """Steps and preempt events by second of the run."""
    second = (pl.col("time_us") // 1_000_000).alias("second")
    preempts = recorded().events.filter(kind="preempt").group_by(second).len("preempts")
    expected = (
        recorded()
        .steps.group_by(second)
        .agg(
            pl.len().alias("steps"),
            1 - pl.col("free_blocks").min() / 47,
            pl.col("running").max(),
            pl.col("waiting").max(),
        )
        .join(preempts, on="second", how="left")
        .with_columns(pl.col("preempts").fill_null(0))
        .sort("second")
    )
    rows = asked(db, "pressure_seconds", run_id="base-1")
    columns = ("second", "steps", "most_kv_cache_usage_frac", "most_running", "most_waiting")
    found = [tuple(row[f"measured_{c}"] for c in (*columns, "preemptions")) for row in rows]
    for one, other in zip(expected.rows(), found, strict=True):
        assert pytest.approx(one) == other
    assert 230 == sum(row["measured_preemptions"] for row in rows)
