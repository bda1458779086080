"""How ledgers are checked on their way into the store, and that the store says so."""

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from stored import engine_config, engine_ledger, engine_ledger_with, lab_ledger, resealed, sealed
from stored import window as some_requests

from analysis import ledgers, store
from analysis.ahead import ahead
from analysis.lake import loading
from analysis.ledgers import AUTO, COLUMNS, EVENTS
from replay.errors import InputError
from replay.events import COLUMN, Kind, event_sha256
from replay.ledger import Ledger, read_ledger, read_ledger_columns, write_ledger
from replay.oracle.verify import RECEIPT, conservation, verify_columns, verify_ledger
from replay.receipt import build_receipt
from replay.requests_table import request_table
from replay.timing import Calibration, Timing

DB = duckdb.DuckDBPyConnection


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ledgers of the tests count as large."""
    monkeypatch.setattr(ledgers, "WALKED_EVENTS", 10)


def written(ledger: Ledger, path: Path) -> Path:
    """The ledger in a directory."""
    write_ledger(ledger, path)
    return path


def verified(db: DB) -> list[tuple[str]]:
    """How the store says that each ledger was checked."""
    return db.execute("SELECT verified FROM modelled_ledgers ORDER BY ALL").fetchall()


def falsified(ledger: Ledger, change: Callable[[Any], None]) -> Ledger:
    """The ledger with changed events, and everything else made to fit them."""
    events = ledger.events.copy()
    change(events)
    checks, _ = conservation(ledger.workload, ledger.config, ledger.events)
    receipt = build_receipt(ledger.workload, ledger.config, events, checks)
    requests = request_table(ledger.workload, events)
    return Ledger(ledger.workload, ledger.config, events, requests, resealed(receipt))


def later_victims(events: Any) -> None:
    """Choose another victim's requester: no column shows it, the walk does."""
    preempts = events[:, COLUMN["kind"]] == Kind.PREEMPT
    row = preempts.nonzero()[0][0]
    who = events[row, COLUMN["request_id"]]
    running = set(events[:row, COLUMN["request_id"]].tolist()) - {who}
    events[row, COLUMN["requester_id"]] = min(running)


def wrong_queue(events: Any) -> None:
    """Count one request too many in the queue."""
    events[5, COLUMN["queue_depth"]] += 1


# What is read in columns.


@pytest.mark.parametrize(
    "made", [engine_ledger, lab_ledger, lambda: lab_ledger("swap")], ids=["engine", "lab", "swap"]
)
def test_a_ledger_in_columns_is_the_same_ledger(made: Callable[[], Ledger], tmp_path: Path) -> None:
    """Its workload, events, rows, receipt and hash; objects are made when somebody asks."""
    ledger = made()
    found = read_ledger_columns(written(ledger, tmp_path / "ledger"))
    whole = found.whole("here")
    assert (ledger.workload, ledger.receipt) == (whole.workload, whole.receipt)
    assert (ledger.workload.sha256, ledger.request_ids) == (
        found.workload.sha256,
        found.request_ids,
    )
    assert (ledger.events == found.events).all()
    assert ledger.requests.equals(found.requests)
    assert event_sha256(ledger.events, ledger.config) == found.event_sha256
    assert [] == verify_ledger(whole)


@pytest.mark.parametrize("options", [{}, {"scheduling_policy": "priority"}], ids=str)
def test_columns_find_nothing_in_a_genuine_ledger(options: dict[str, Any], tmp_path: Path) -> None:
    """Neither in one from a replay nor in one from a file."""
    ledger = engine_ledger_with(**options)
    assert [] == verify_columns(ledger)
    assert [] == verify_columns(read_ledger_columns(written(ledger, tmp_path / "ledger")))


def test_what_the_steps_of_a_timed_replay_came_to_is_taken_from_its_receipt(
    tmp_path: Path,
) -> None:
    """No event says it; every other number of the receipt is held to the events."""
    ledger = timed_ledger()
    assert [] == verify_columns(read_ledger_columns(written(ledger, tmp_path / "ledger")))
    totals = ledger.receipt["totals"] | {"preemptions": 10**6}
    receipt = resealed(ledger.receipt | {"totals": totals})
    assert [RECEIPT] == [v.equation for v in verify_columns(replace(ledger, receipt=receipt))]


def timed_ledger(calibration: Calibration | None = None) -> Ledger:
    """Of 40 requests, its steps timed."""
    timing = Timing(
        step_ns=900_000, prefill_token_ps=9_000_000, decode_request_ps=1_000_000, kv_token_ps=900
    )
    config = engine_config()
    engine = replace(config.engine, tick_us=None)
    config = replace(config, engine=engine, timing=timing, calibration=calibration)
    return sealed(some_requests(), config)


NARROW = Calibration("a-run", "steps", 9, 100, 3, 500, 1000)
WIDE = replace(NARROW, prefill_tokens=10**6, decode_requests=10**6, kv_tokens=10**9)


@pytest.mark.parametrize("calibration", [None, NARROW, WIDE], ids=["none", "narrow", "wide"])
def test_steps_of_a_timed_replay_that_no_replay_has_are_refused_by_columns(
    calibration: Calibration | None,
) -> None:
    """Other keys, no counts, more outside than there were, beyond a range that holds them."""
    ledger = timed_ledger(calibration)
    assert [] == verify_columns(ledger)
    timing = ledger.receipt["timing"]
    steps = timing["steps"]
    forged: list[Any] = [
        *(None, [1], "x", 1.5, {}, {"steps": 3}, steps | {"more": 0}),
        *(steps | {name: value} for name in steps for value in ([1], "x", -1, True, 1.0)),
        *(steps | {name: {"kv_tokens": 1}} for name in ("greatest", "beyond")),
        steps | {"outside": steps["steps"] + 1},
        steps | {"outside": sum(steps["beyond"].values()) + 1, "steps": 10**9},
        steps | {"outside_since": 3 if steps["outside_since"] is None else None},
        steps | {"beyond": dict.fromkeys(steps["beyond"], 0 if steps["outside"] else 1)},
    ]
    for told in forged:
        receipt = resealed(ledger.receipt | {"timing": timing | {"steps": told}})
        found = verify_columns(replace(ledger, receipt=receipt))
        assert (told, [RECEIPT]) == (told, [v.equation for v in found])


# What a load does with them.


@pytest.mark.usefixtures("few")
def test_a_large_ledger_is_checked_by_columns_and_the_store_says_so(tmp_path: Path) -> None:
    """In its row, and in what it does not model, which goes with every report."""
    path = written(engine_ledger(), tmp_path / "ledger")
    with store.connect(None) as db:
        (item,) = store.load_path(db, path)
        assert (store.ADDED, [(COLUMNS,)]) == (item.state, verified(db))
        *_, (last,) = db.execute("SELECT limitation FROM limitations ORDER BY position").fetchall()
    assert "whole columns" in last


@pytest.mark.parametrize("made", [engine_ledger, lab_ledger], ids=["engine", "lab"])
def test_a_small_ledger_is_walked(made: Callable[[], Ledger], tmp_path: Path) -> None:
    """And nothing is said of it besides what its receipt says."""
    ledger = made()
    with store.connect(None) as db:
        store.load_path(db, written(ledger, tmp_path / "ledger"))
        assert [(EVENTS,)] == verified(db)
        found = db.execute("SELECT limitation FROM limitations ORDER BY position").fetchall()
    assert ledger.receipt["limitations"] == [sentence for (sentence,) in found]


@pytest.mark.usefixtures("few")
def test_a_lab_ledger_is_walked_however_large(tmp_path: Path) -> None:
    """Its equations are all of the walk."""
    with store.connect(None) as db:
        store.load_path(db, written(lab_ledger(), tmp_path / "ledger"), check=COLUMNS)
        assert [(EVENTS,)] == verified(db)


@pytest.mark.parametrize("check", [AUTO, COLUMNS])
@pytest.mark.usefixtures("few")
def test_columns_refuse_a_ledger_they_show_to_be_wrong(check: str, tmp_path: Path) -> None:
    """Whatever its hashes say; nothing of it, and nothing loaded with it, stays."""
    bad = falsified(engine_ledger(), wrong_queue)
    written(lab_ledger(), tmp_path / "all" / "a")
    written(bad, tmp_path / "all" / "b")
    with store.connect(None) as db:
        with pytest.raises(InputError, match="queue depth"):
            store.load_path(db, tmp_path / "all", check=check)
        assert [] == verified(db)


@pytest.mark.usefixtures("few")
def test_what_only_the_walk_can_see_is_refused_when_it_is_asked_for(tmp_path: Path) -> None:
    """A requester that could not have been it passes as columns, and not as events."""
    path = written(falsified(engine_ledger(), later_victims), tmp_path / "ledger")
    with store.connect(None) as db:
        with pytest.raises(InputError, match="requester"):
            store.load_path(db, path, check=EVENTS)
        assert [] == verified(db)
        store.load_path(db, path)
        assert [(COLUMNS,)] == verified(db)


@pytest.mark.usefixtures("few")
def test_a_ledger_checked_by_columns_can_be_walked_later(tmp_path: Path) -> None:
    """Then it is refreshed, once, and never falls back; its rows are there once."""
    path = written(engine_ledger(), tmp_path / "ledger")
    with store.connect(None) as db:
        states = [
            store.load_path(db, path, check=check)[0].state
            for check in (AUTO, AUTO, EVENTS, EVENTS, AUTO)
        ]
        (events,) = db.execute("SELECT count(*) FROM modelled_events").fetchall()
        assert [(EVENTS,)] == verified(db)
    there = store.THERE
    assert [store.ADDED, there, store.REFRESHED, there, there] == states
    assert (len(engine_ledger().events),) == events


@pytest.mark.usefixtures("few")
def test_a_ledger_of_a_lake_can_be_walked_later_and_keeps_its_rows(tmp_path: Path) -> None:
    """Only its record is written anew."""
    path, root = written(engine_ledger(), tmp_path / "ledger"), tmp_path / "lake"
    loading.load_path(root, path)
    before = {p: p.stat().st_mtime_ns for p in root.rglob("*.parquet")}
    (item,) = loading.load_path(root, path, check=EVENTS)
    after = {p: p.stat().st_mtime_ns for p in root.rglob("*.parquet")}
    assert store.REFRESHED == item.state
    changed = {p.relative_to(root).parts[0] for p in after if after[p] != before[p]}
    assert {"modelled_ledgers"} == changed
    (record,) = (root / "modelled_ledgers").rglob("*.parquet")
    assert [EVENTS] == pl.read_parquet(record, hive_partitioning=False)["verified"].to_list()


@pytest.mark.usefixtures("few")
def test_an_events_file_that_changes_while_it_is_loaded_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What goes in is what was checked."""
    path = written(engine_ledger(), tmp_path / "ledger")
    checked = verify_columns

    def changing(ledger: Any) -> Any:
        found = checked(ledger)
        file = path / "events.parquet"
        pl.read_parquet(file).with_columns(tick=pl.col("tick") + 1).write_parquet(file)
        return found

    monkeypatch.setattr(ledgers, "verify_columns", changing)
    with store.connect(None) as db:
        with pytest.raises(InputError, match=r"events\.parquet.*load it again"):
            store.load_path(db, path)
        assert [] == verified(db)


def test_columns_of_a_file_that_no_table_has_are_left_out(tmp_path: Path) -> None:
    """Who adds a column to events.parquet adds none to the store, and no key."""
    path = written(engine_ledger(), tmp_path / "ledger")
    file = path / "events.parquet"
    metadata = pl.read_parquet_metadata(file)
    own = {k: v for k, v in metadata.items() if not k.startswith("ARROW")}
    more = pl.read_parquet(file).with_columns(ledger_id=pl.lit("x"), extra=1)
    more.write_parquet(file, metadata=own)
    with store.connect(None) as db:
        try:
            store.load_path(db, path)
        except InputError:
            return
        found = db.execute("SELECT DISTINCT ledger_id FROM modelled_events").fetchall()
        assert [(engine_ledger().receipt["receipt_sha256"],)] == found


def test_several_ledgers_of_a_directory_are_all_there_in_order(tmp_path: Path) -> None:
    """The next is read while one is added; what is said of them keeps their order."""
    for name, capacity in (("c", 47), ("a", 48), ("b", 50)):
        ledger = sealed(some_requests(), engine_config(capacity_blocks=capacity))
        written(ledger, tmp_path / "all" / name)
    told: list[str] = []
    with store.connect(None) as db:
        found = store.load_path(db, tmp_path / "all", lambda path: told.append(path.name))
        assert 3 == len(verified(db))
    assert ["a", "b", "c"] == [item.path.name for item in found] == told


def test_work_ahead_gives_results_in_order_and_its_error_in_its_place() -> None:
    """And what nobody will ask for any more is not begun."""
    done: list[int] = []

    def task(number: int) -> int:
        done.append(number)
        if number == 3:
            raise InputError("here", "", "must be less")
        return number

    results = ahead((lambda k=k: task(k)) for k in range(9))  # type: ignore[misc]
    assert [0, 1, 2] == [next(results) for _ in range(3)]
    with pytest.raises(InputError):
        next(results)
    assert set(done) <= set(range(6))  # three were used, one raised, two are ahead


def test_an_interrupted_load_of_many_leaves_what_was_there(tmp_path: Path) -> None:
    """A Ctrl-C while one is read ahead ends the load, and takes nothing in."""
    for k in range(3):
        ledger = sealed(some_requests(), engine_config(capacity_blocks=47 + k))
        written(ledger, tmp_path / "all" / str(k))

    def notice(path: Path) -> None:
        if path.name == "1":
            raise KeyboardInterrupt

    with store.connect(None) as db:
        with pytest.raises(KeyboardInterrupt):
            store.load_path(db, tmp_path / "all", notice)
        assert [] == verified(db)


def test_a_pipe_in_place_of_the_events_is_refused(tmp_path: Path) -> None:
    """Nothing waits for somebody to write into it."""
    path = written(engine_ledger(), tmp_path / "ledger")
    (path / "events.parquet").unlink()
    os.mkfifo(path / "events.parquet")
    with store.connect(None) as db, pytest.raises(InputError):
        store.load_path(db, path)


def test_reading_a_ledger_back_gives_equal_objects(tmp_path: Path) -> None:
    """`read_ledger` is the columns, made objects."""
    ledger = engine_ledger()
    again = read_ledger(written(ledger, tmp_path / "ledger"))
    assert (ledger.workload, ledger.config) == (again.workload, again.config)
    assert [] == verify_ledger(again)
