"""Named queries: an operator's questions, whatever they ask, and those about groups of requests."""

import math
import re
import shutil
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from questioned import (
    LATENCIES,
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
from stored import RUNS, engine_ledger, lab_ledger, recorded

from analysis import sqlfiles, store
from analysis.named import named_queries, named_query
from collectors.exposition.samples import MetricSample, samples_frame
from collectors.run import SCHEMA, Run, read_run

DOCS = Path(__file__).parent.parent / "docs" / "store.md"
NAMES = sqlfiles.names("queries")
TICKS = ("ttft", "tpot", "e2e", "queue", "requeue")


@pytest.fixture(scope="module")
def db() -> Iterator[duckdb.DuckDBPyConnection]:
    """A store that has rows for every question."""
    with store.connect(None) as connection:
        fill(connection)
        yield connection


@pytest.fixture(scope="module")
def other() -> Iterator[duckdb.DuckDBPyConnection]:
    """The same, loaded in the opposite order and asked by one thread."""
    with store.connect(None) as connection:
        fill(connection, backwards=True)
        connection.execute("SET threads = 1")
        yield connection


def grain(name: str) -> list[str]:
    """The columns that make a row of a named query unique, by its first comment."""
    told = named_query(name).grain.replace("(and ", ", ").replace(")", "")
    words = re.split(r",\s*", re.sub(r"( that| with| of|:) .*$", "", re.sub(r" \(.*", "", told)))
    return [word.strip() for word in words if word.strip()]


# Every query, whatever it asks.


@pytest.mark.parametrize("name", NAMES)
def test_a_question_to_an_empty_store_has_no_rows(name: str) -> None:
    """No error, and no row of zeros either."""
    with store.connect(None) as empty:
        assert [] == asked(empty, name)


@pytest.mark.parametrize("name", NAMES)
def test_the_answer_does_not_depend_on_the_order_of_loading_or_on_threads(
    name: str, db: duckdb.DuckDBPyConnection, other: duckdb.DuckDBPyConnection
) -> None:
    """Rows come in one order, and the first comment's columns tell each from the others."""
    rows = asked(db, name)
    assert rows == asked(other, name)
    keys = [tuple(str(row[column]) for column in grain(name)) for row in rows]
    assert [] == [key for key, times in Counter(keys).items() if times > 1]


@pytest.mark.parametrize("name", NAMES)
def test_no_query_compares_every_row_with_every_other(
    name: str, db: duckdb.DuckDBPyConnection
) -> None:
    """Joins are by key and nothing is asked anew for each row, so that millions of rows pass."""
    plan = db.execute(f"EXPLAIN {named_query(name).text}").fetchall()[0][1]
    assert [] == re.findall(r"NESTED_LOOP_JOIN|BLOCKWISE_NL_JOIN|\w*DELIM_JOIN", plan)


@pytest.mark.parametrize("name", NAMES)
def test_no_answer_has_a_cell_that_is_no_number(name: str, db: duckdb.DuckDBPyConnection) -> None:
    """A share of nothing is unknown, not NaN; only a histogram's last bucket has no end."""
    for row in asked(db, name):
        row.pop("measured_upper", None)
        floats = [value for value in row.values() if isinstance(value, float)]
        assert [] == [value for value in floats if not math.isfinite(value)]


def test_the_documentation_asks_every_question_in_the_querys_own_words() -> None:
    """docs/store.md names each named query beside its question."""
    text = DOCS.read_text()
    for query in named_queries():
        question = query.question.split("?")[0] + "?"
        assert f"| `{query.name}` | {question} |" in text


def test_a_value_that_is_no_number_is_on_neither_side_of_a_limit(tmp_path: Path) -> None:
    """A NaN of a file is NULL: not above, not at most, in no maximum and in no quantile."""
    path = Path(shutil.copytree(RUNS / "cand-80", tmp_path / "cand-80"))
    names = ("g", 1.0), ("g", math.nan), ("t_bucket", 2.0)
    gauges = [
        MetricSample(0, "m", name, "{}", 1.0 if name == "t_bucket" else None, value)
        for name, value in names
    ]
    (path / "samples").mkdir()
    samples_frame("cand-80", [(0, 0, gauges)]).write_parquet(
        path / "samples" / "part-00000.parquet", metadata={"schema": SCHEMA}
    )
    with store.connect(None) as own:
        store.load_run(own, read_run(path))
        query = (
            "SELECT count(*), count(*) FILTER (value > 0.5), count(*) FILTER (value <= 0.5),"
            " max(value), quantile_cont(value, 0.99) FROM metric_samples WHERE name = 'g'"
        )
        assert (2, 1, 0, 1.0, 1.0) == own.execute(query).fetchone()


# Distributions.


def bucket(tokens: int | None) -> int | None:
    """Least number of tokens in the bucket that holds so many."""
    return None if tokens is None else 1 << tokens.bit_length() - 1 if tokens else 0


def groups_of(rows: Sequence[Row], key: str) -> dict[Any, list[Row]]:
    """Requests by the value of a column, token counts by bucket."""
    found = defaultdict(list)
    for row in rows:
        found[bucket(row[key]) if key.endswith("_tokens") else row[key]].append(row)
    return found


@pytest.mark.parametrize(
    ("name", "key", "shown"),
    [
        ("latency_by_prompt", "prompt_tokens", "measured_from"),
        ("latency_by_output", "generated_tokens", "measured_from"),
        ("latency_by_priority", "priority", "measured_priority"),
        ("latency_by_tenant", "tenant", "measured_tenant"),
        ("latency_by_preemptions", "num_preemptions", "measured_num_preemptions"),
    ],
)
@pytest.mark.parametrize("run", [recorded(), faulty()], ids=lambda run: run.run_id)
def test_latencies_of_a_group_are_of_those_that_ended_well_beside_all_that_were_offered(
    run: Run, name: str, key: str, shown: str, db: duckdb.DuckDBPyConnection
) -> None:
    """Each quantile of each latency, and no request of the run is left out of the counts."""
    expected = {}
    for group, rows in groups_of(run.requests.to_dicts(), key).items():
        well = [row for row in rows if row["status"] == "ok"]
        for latency, column in LATENCIES.items():
            values = [row[column] for row in well if row[column] is not None]
            expected[group, latency] = [len(rows), len(well), *summary(values)]
    columns = [f"measured_{c}" for c in ("requests", "ok", "values")]
    columns += [f"measured_p{q}_us" for q in QUANTILES]
    found = {
        (row[shown], row["measured_latency"]): [row[c] for c in columns]
        for row in asked(db, name, run_id=run.run_id)
    }
    assert expected.keys() == found.keys()
    for each, values in expected.items():
        assert pytest.approx(values) == found[each]
    offered = [counts[0] for (_, latency), counts in found.items() if latency == "ttft"]
    assert run.requests.height == sum(offered)


def ticks_of(row: Row) -> dict[str, float | None]:
    """What a completed request of a ledger took, in ticks."""
    first_wait = row["first_admit_tick"] - row["arrival_tick"]
    took = row["completion_tick"] - row["arrival_tick"]
    queue = row["queue_ticks"]
    ttft, tpot = row["modelled_ttft_ticks"], row["modelled_tpot_ticks"]
    return dict(zip(TICKS, (ttft, tpot, took, queue, queue - first_wait), strict=True))


@pytest.mark.parametrize(
    ("name", "key", "shown"),
    [
        ("modelled_latency_by_prompt", "prompt_tokens", "modelled_from"),
        ("modelled_latency_by_output", "output_tokens", "modelled_from"),
        ("modelled_latency_by_priority", "priority", "modelled_priority"),
        ("modelled_latency_by_tenant", "tenant", "modelled_tenant"),
        ("modelled_latency_by_preemptions", "preemptions", "modelled_preemptions"),
    ],
)
@pytest.mark.parametrize("made", [lab_ledger, timed_ledger])
def test_modelled_latencies_are_ticks_and_in_a_timed_replay_microseconds_too(
    made: Any, name: str, key: str, shown: str, db: duckdb.DuckDBPyConnection
) -> None:
    """Each in its own columns; without timing there is no microsecond."""
    ledger = made()
    ticks, us = {}, {}
    for group, rows in groups_of(ledger.requests.to_dicts(), key).items():
        done = [row for row in rows if row["status"] == "complete"]
        for latency in TICKS:
            values = [v for row in done if (v := ticks_of(row)[latency]) is not None]
            ticks[group, latency] = [len(rows), len(done), *summary(values)]
            times = [row.get(f"modelled_{latency}_us") for row in done]
            us[group, latency] = summary([v for v in times if v is not None])
    found = {
        (row[shown], row["modelled_latency"]): row
        for row in asked(db, name, ledger_id=ledger.receipt["receipt_sha256"])
    }
    assert ticks.keys() == found.keys()
    for each, row in found.items():
        counts = [row[f"modelled_{c}"] for c in ("requests", "complete", "values")]
        assert pytest.approx(ticks[each]) == counts + [
            row[f"modelled_p{q}_ticks"] for q in QUANTILES
        ]
        times = [row["modelled_us_values"], *(row[f"modelled_p{q}_us"] for q in QUANTILES)]
        assert pytest.approx(us[each]) == times
    assert (made is timed_ledger) == any(row["modelled_us_values"] for row in found.values())


def test_a_request_that_was_never_preempted_waited_in_no_requeue() -> None:
    """Queue ticks less the first wait are the re-entries: none without a preemption."""
    for ledger in (lab_ledger(), engine_ledger(), timed_ledger()):
        rows = ledger.requests.to_dicts()
        calm = {ticks_of(row)["requeue"] for row in rows if row["preemptions"] == 0}
        victims = {ticks_of(row)["requeue"] for row in rows if row["preemptions"] > 0}
        assert ({0}, True) == (calm, max(victims) > 0)


@pytest.mark.parametrize(
    ("name", "key", "shown"),
    [
        ("preemptions_by_prompt", "prompt_tokens", "measured_from"),
        ("preemptions_by_priority", "priority", "measured_priority"),
        ("preemptions_by_tenant", "tenant", "measured_tenant"),
    ],
)
@pytest.mark.parametrize("run", [recorded(), faulty()], ids=lambda run: run.run_id)
def test_preemptions_of_a_group_stand_beside_all_its_requests(
    run: Run, name: str, key: str, shown: str, db: duckdb.DuckDBPyConnection
) -> None:
    """Failed and unsent ones are requests, too."""
    expected = {}
    for group, rows in groups_of(run.requests.to_dicts(), key).items():
        counts = [row["num_preemptions"] or 0 for row in rows]
        well = sum(row["status"] == "ok" for row in rows)
        expected[group] = (len(rows), well, sum(map(bool, counts)), sum(counts))
    columns = ("requests", "ok", "preempted_requests", "preemptions")
    rows = asked(db, name, run_id=run.run_id)
    assert expected == {r[shown]: tuple(r[f"measured_{c}"] for c in columns) for r in rows}


def test_preemptions_that_nobody_counted_make_the_group_unknown() -> None:
    """Not the sum of those that somebody counted; the other groups keep theirs."""
    requests = recorded().requests.with_columns(
        num_preemptions=pl.when(pl.col("request_id") != "az0007").then("num_preemptions")
    )
    tenant = requests.filter(pl.col("request_id") == "az0007")["tenant"].item()
    with store.connect(None) as own:
        store.load_run(own, renamed(recorded(), "uncounted", requests=requests))
        rows = asked(own, "preemptions_by_tenant")
    unknown = {r["measured_tenant"] for r in rows if r["measured_preemptions"] is None}
    assert ({tenant}, 3) == (unknown, len(rows))
    assert {None} == {r["measured_preemptions_frac"] for r in rows}


def test_shares_of_tenants_add_up_to_the_run(db: duckdb.DuckDBPyConnection) -> None:
    """Of its requests, its prompt tokens and its preemptions."""
    rows = asked(db, "preemptions_by_tenant", run_id="faulty")
    assert 4 == len(rows)
    for share in ("requests", "prompt_tokens", "preemptions"):
        assert pytest.approx(1) == sum(row[f"measured_{share}_frac"] for row in rows)


def test_groups_of_a_replay_add_up_to_its_receipt(db: duckdb.DuckDBPyConnection) -> None:
    """By prompt, output, priority, tenant and preemptions alike."""
    for ledger in (lab_ledger(), engine_ledger(), timed_ledger()):
        totals = ledger.receipt["totals"]
        sums: dict[str, Counter[str]] = defaultdict(Counter)
        for row in asked(db, "modelled_groups", ledger_id=ledger.receipt["receipt_sha256"]):
            sums[row["modelled_dimension"]].update(
                requests=row["modelled_requests"],
                preemptions=row["modelled_preemptions"],
                charged_tokens=row["modelled_recompute_tokens"],
            )
        assert 6 == len(sums)
        for found in sums.values():
            assert ledger.requests.height == found["requests"]
            for name in ("preemptions", "charged_tokens"):
                assert totals[name] == found[name] > 0


def test_who_needed_the_blocks_and_who_paid_are_told_apart(db: duckdb.DuckDBPyConnection) -> None:
    """Preemptions by the tenant of the victim, and by that of the request that needed more."""
    ledger = engine_ledger()
    tenant = dict(ledger.requests.select("request_id", "tenant").iter_rows())
    events = ledger_events(db, ledger)
    paid = Counter(tenant[e["request_id"]] for e in events if e["kind"] == "preempt")
    caused = Counter(tenant[e["requester_id"]] for e in events if e["kind"] == "preempt")
    own = asked(db, "modelled_preemptions_by_tenant", ledger_id=ledger.receipt["receipt_sha256"])
    found = {
        r["modelled_tenant"]: (r["modelled_preemptions"], r["modelled_preemptions_for_it"])
        for r in own
    }
    assert {t: (paid[t], caused[t]) for t in tenant.values()} == found
    assert paid != caused
