"""A collector over hours that pass at once: restarts, other configurations, disks, clocks."""

import asyncio
import errno
import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fault_server import page
from scrape_tools import SECOND, SMALL, START_NS, FakeClock, Now, collect, ok
from spools import MONOTONIC_NS, append, header, ns, write_spool

from collectors.manifest import read_manifest
from collectors.run import Run, read_run
from collectors.scrape import loop
from collectors.scrape.journal import Journal
from collectors.scrape.loop import Collector, Settings
from collectors.scrape.outcome import Fetched, Outcome
from collectors.scrape.probe import Probed
from collectors.scrape.retention import Retention
from collectors.scrape.run import Rotation, ScrapeRun
from collectors.writer import RunWriter
from replay.errors import OutputExists

REFUSED = Fetched(Outcome.REFUSED)


def values(run: Run, name: str = "prompt_tokens") -> list[float]:
    """A counter over the scrapes of a run."""
    return run.samples.filter(run.samples["name"] == name)["value"].to_list()


def test_a_run_has_samples_pages_and_a_manifest(tmp_path: Path) -> None:
    """Parts are cut where a journal is full, and nothing of a journal is left at the end."""
    collect(tmp_path / "run", [ok(k) for k in range(1, 6)], rotation=SMALL)
    run = read_run(tmp_path / "run")
    assert [1, 2, 3, 4, 5] == values(run)
    assert [0, 1, 2, 3, 4] == run.samples["scrape"].unique().sort().to_list()
    assert [k * 1_000_000 for k in range(5)] == run.samples["time_us"].unique().sort().to_list()
    names = sorted(p.name for p in (tmp_path / "run" / "pages").iterdir())
    assert [f"part-{k:05d}.jsonl.xz" for k in range(3)] == names
    manifest = run.manifest
    assert ("0.32.0", "tiny") == (manifest["engine"]["version"], manifest["model"]["name"])
    assert (16, 64, 63) == tuple(
        manifest["cache"][k] for k in ("block_size", "num_gpu_blocks", "capacity_blocks")
    )
    assert (1_000_000, 5, [], []) == tuple(
        manifest[k] for k in ("scrape_interval_us", "scrapes", "gaps", "counter_resets")
    )
    assert {"ok": 5} == manifest["collection"]["outcomes"]
    assert "num_preemptions" in manifest["metric_names"]
    assert 960 == manifest["scheduler"]["max_model_len"]
    assert manifest["configuration_sha256"]


def test_what_a_page_shows_that_no_replay_models_is_in_the_manifest(tmp_path: Path) -> None:
    """Without a recorder, too: an empty list says that somebody looked."""
    lora = b'vllm:lora_requests_info{max_lora="2",running_lora_adapters="a"} 1\n'
    with_adapter = Fetched(Outcome.OK, 200, "text/plain", page(2) + lora)
    collect(tmp_path / "plain", [ok(1)])
    collect(tmp_path / "lora", [ok(1), with_adapter])
    assert [] == read_run(tmp_path / "plain").manifest["not_modelled"]
    (found,) = read_run(tmp_path / "lora").manifest["not_modelled"]
    assert "LoRA" in found


def test_the_manifest_of_a_run_to_go_on_with_is_read_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is checked is what is gone on with."""
    collect(tmp_path / "run", [ok(1)])
    read: list[Path] = []

    def counted(path: Path) -> dict[str, object]:
        read.append(path)
        return read_manifest(path)

    monkeypatch.setattr("collectors.writer.read_manifest", counted)
    collect(tmp_path / "run", [ok(2)])
    assert [tmp_path / "run" / "manifest.json"] == read
    assert [1, 2] == values(read_run(tmp_path / "run"))


def test_a_device_of_the_collectors_host_is_marked_as_such(tmp_path: Path) -> None:
    """Behind a tunnel the engine has another; where nobody told, it is null and nothing is said."""
    known = {"kind": "cuda", "name": "Fake 9000", "count": 1, "driver": "1.2.3"}
    unknown = dict.fromkeys(known)
    collect(tmp_path / "here", [ok(1)], facts={"device": known})
    collect(tmp_path / "else", [ok(1)], facts={"device": unknown})
    here, elsewhere = (read_run(tmp_path / name).manifest for name in ("here", "else"))
    assert (known, unknown) == (here["device"], elsewhere["device"])
    (note,) = here["collection"]["notes"]
    assert "collector's host" in note
    assert [] == elsewhere["collection"]["notes"]


def test_faults_on_a_page_are_all_counted(tmp_path: Path) -> None:
    """However many there are, each by its kind."""
    body = page(1) + b"?\n" * 150
    collect(tmp_path / "run", [Fetched(Outcome.OK, 200, "text/plain", body)])
    found = read_run(tmp_path / "run").manifest["collection"]["problems"]
    assert {"no series": 150} == found


def test_everything_a_run_holds_is_private(tmp_path: Path) -> None:
    """Directories are the owner's, and so are files."""
    collect(tmp_path / "run", [ok(1), ok(2), ok(3)], rotation=SMALL)
    for path in [tmp_path / "run", *(tmp_path / "run").rglob("*")]:
        assert (0o700 if path.is_dir() else 0o600) == path.stat().st_mode & 0o777, path


@pytest.mark.parametrize(
    ("body", "outcome"),
    [
        (b"python_info 1\n", "not_vllm"),
        (b"<html>no</html>", "unparsable"),
        (bytes(range(256)) * 8, "unparsable"),
        (page(1)[:-20], "truncated"),
    ],
)
def test_what_a_page_is_not_is_an_outcome_too(tmp_path: Path, body: bytes, outcome: str) -> None:
    """None of them is a sample, least of all a zero; collection goes on."""
    odd = Fetched(Outcome.OK, 200, "text/plain", body)
    collect(tmp_path / "run", [ok(1), odd, ok(2)])
    run = read_run(tmp_path / "run")
    assert [1, 2] == values(run)
    assert {"ok": 2, outcome: 1} == run.manifest["collection"]["outcomes"]
    assert [f"{outcome}: 1"] == [g["reason"] for g in run.manifest["gaps"]]


def test_a_family_without_series_may_end_a_page(tmp_path: Path) -> None:
    """So the page of a vLLM ends that nobody has sent a request yet."""
    body = page(1) + b"# HELP http_seconds By handler.\n# TYPE http_seconds histogram\n"
    collect(tmp_path / "run", [Fetched(Outcome.OK, 200, "text/plain", body)])
    assert [1] == values(read_run(tmp_path / "run"))


def test_an_engine_that_never_answers_makes_a_run_that_says_so(tmp_path: Path) -> None:
    """No samples, no release, three refusals."""
    collector = collect(tmp_path / "run", [REFUSED, REFUSED, REFUSED])
    run = read_run(tmp_path / "run")
    assert 0 == run.samples.height
    assert {"refused": 3} == run.manifest["collection"]["outcomes"]
    assert None is run.manifest["engine"]["version"]
    assert None is run.manifest["collection"]["several_workers"]
    assert 3 == collector.counters.failures


def test_a_restart_goes_on_with_the_run(tmp_path: Path) -> None:
    """Scrapes are numbered on, and the time between is a gap of its own kind."""
    clock = FakeClock()
    collect(tmp_path / "run", [ok(1), ok(2)], clock)
    clock.passed_ns += 60_000_000_000
    collect(tmp_path / "run", [ok(7), ok(8)], clock)
    run = read_run(tmp_path / "run")
    assert [1, 2, 7, 8] == values(run)
    assert [0, 1, 2, 3] == run.samples["scrape"].unique().sort().to_list()
    assert ["collector not running: 59"] == [g["reason"] for g in run.manifest["gaps"]]
    assert {"ok": 4} == run.manifest["collection"]["outcomes"]
    assert [tmp_path / "run"] == list(tmp_path.iterdir())


def test_a_gap_that_spans_a_restart_is_one_gap(tmp_path: Path) -> None:
    """Silence before the end and after the start is the same silence."""
    clock = FakeClock()
    collect(tmp_path / "run", [ok(1), REFUSED, REFUSED], clock)
    collect(tmp_path / "run", [REFUSED, ok(2)], clock)
    (gap,) = read_run(tmp_path / "run").manifest["gaps"]
    assert 3 == gap["scrapes_missed"]
    assert "refused: 3" == gap["reason"]


def test_the_same_configuration_restarted_is_the_same_run(tmp_path: Path) -> None:
    """Its counters were reset."""
    answers = [ok(5), ok(9), REFUSED, ok(1, started=2000.0), ok(2, started=2000.0)]
    collect(tmp_path / "run", answers)
    run = read_run(tmp_path / "run")
    assert [5, 9, 1, 2] == values(run)
    assert {("num_preemptions", 3, 9.0, 1.0), ("prompt_tokens", 3, 9.0, 1.0)} == {
        (r["name"], r["scrape"], r["before"], r["after"]) for r in run.manifest["counter_resets"]
    }
    assert not run.manifest["collection"]["several_workers"]


def test_other_flags_begin_a_run_beside_it(tmp_path: Path) -> None:
    """Live, and when the collector was away meanwhile; the first run is left as it was."""
    clock = FakeClock()
    answers = [ok(5), ok(9), REFUSED, *(ok(k, blocks=80, started=2000.0) for k in (1, 2))]
    collect(tmp_path / "run", answers, clock)
    before = (tmp_path / "run" / "manifest.json").read_bytes()
    collect(tmp_path / "run", [ok(3, blocks=80, started=2000.0)], clock)
    collect(tmp_path / "run", [ok(1, blocks=96, started=3000.0)], clock)
    runs = [read_run(tmp_path / name) for name in ("run", "run-2", "run-3")]
    assert [[5, 9], [1, 2, 3], [1]] == [values(run) for run in runs]
    assert [64, 80, 96] == [run.manifest["cache"]["num_gpu_blocks"] for run in runs]
    assert 3 == len({run.run_id for run in runs})
    assert 3 == len({run.manifest["configuration_sha256"] for run in runs})
    assert before == (tmp_path / "run" / "manifest.json").read_bytes()
    assert [] == runs[1].manifest["counter_resets"]


def test_configurations_that_take_turns_make_no_run_each(tmp_path: Path) -> None:
    """Two engines behind one address: said once, not split a thousand times."""
    answers = [ok(k, blocks=64 + 16 * (k % 2), started=1000.0 + k % 2) for k in range(20)]
    collect(tmp_path / "run", answers)
    assert ["run", "run-2"] == sorted(p.name for p in tmp_path.iterdir())
    notes = read_run(tmp_path / "run-2").manifest["collection"]["notes"]
    assert any("engines of several configurations answer" in note for note in notes)


def test_an_unknown_release_is_collected_all_the_same(tmp_path: Path) -> None:
    """Names that no map has are kept in the pages and named in the manifest."""
    body = page(1) + b'vllm:quantum_tokens_total{engine="0",model_name="tiny"} 7\n'
    collect(tmp_path / "run", [Fetched(Outcome.OK, 200, "text/plain", body)])
    run = read_run(tmp_path / "run")
    assert [1] == values(run)


def test_two_collectors_do_not_share_a_run(tmp_path: Path) -> None:
    """The second is refused before it scrapes."""

    def second() -> Fetched:
        with ThreadPoolExecutor(1) as elsewhere:
            error = elsewhere.submit(collect, tmp_path / "run", [ok(1)]).exception()
        assert isinstance(error, OutputExists)
        assert "another process writes this run" in str(error)
        return ok(3)

    collect(tmp_path / "run", [ok(1), ok(2), second])
    assert [1, 2, 3] == values(read_run(tmp_path / "run"))


@pytest.mark.parametrize(
    ("where", "name"),
    [(loop, "read_entry"), (Journal, "append"), (RunWriter, "create"), (ScrapeRun, "rotate")],
)
def test_nothing_slow_runs_on_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: object, name: str
) -> None:
    """A huge page or a slow disk of one target is no other target's delay."""
    slow: Callable[..., object] = getattr(where, name)
    threads = set()

    def elsewhere(*args: object) -> object:
        threads.add(threading.get_ident())
        return slow(*args)

    monkeypatch.setattr(where, name, elsewhere)
    collect(tmp_path / "run", [ok(1), ok(2), ok(3)], rotation=SMALL)
    assert [1, 2, 3] == values(read_run(tmp_path / "run"))
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.parametrize("seconds", [0.0, 0.3, 3600.0])
def test_an_engine_that_does_not_say_who_it_is_delays_no_scrape(
    tmp_path: Path, seconds: float
) -> None:
    """Its answer counts when it comes; until then, and where it never does, it is unknown."""
    clock, answers = FakeClock(), [ok(k) for k in range(5)]
    told: list[asyncio.Future[None]] = []

    async def once() -> None:
        stop = asyncio.Event()

        async def fetch() -> Fetched:
            if len(answers) == 1:
                stop.set()
                if seconds < 1:
                    async with asyncio.timeout(10):
                        await asyncio.gather(*told)
            return answers.pop(0)

        async def ask() -> Probed:
            told.append(asyncio.ensure_future(asyncio.sleep(seconds)))
            await told[-1]
            return Probed("0.32.0")

        settings = Settings(out=tmp_path / "run")
        async with asyncio.timeout(30):
            await Collector(settings, fetch, ask, clock, Now()).run(stop)

    asyncio.run(once())
    run = read_run(tmp_path / "run")
    assert list(range(5)) == values(run)
    assert [] == run.manifest["gaps"]
    assert ("0.32.0" if seconds < 1 else None) == run.manifest["engine"]["version"]
    assert 1 == len(told)


def test_scrapes_that_no_run_could_be_made_for_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those without room as they go, the others at the end; a later run tells of the first."""
    create, refused = RunWriter.create, [True]

    def created(path: Path, manifest: dict[str, object]) -> RunWriter:
        if refused[0]:
            raise OSError(errno.ENOSPC, "no space")
        return create(path, manifest)

    def allowed() -> Fetched:
        refused[0] = False
        return ok(99)

    monkeypatch.setattr(RunWriter, "create", created)
    monkeypatch.setattr("collectors.scrape.backlog.MOST_BYTES", 2**16)
    never = collect(tmp_path / "never", [ok(k) for k in range(99)])
    assert 99 == never.counters.tally.not_written
    late = collect(tmp_path / "late", [*(ok(k) for k in range(99)), allowed])
    run = read_run(tmp_path / "late")
    lost = late.counters.tally.not_written
    assert 0 < lost == 100 - len(values(run))
    assert lost == run.manifest["collection"]["problems"]["not_written"]


def test_a_run_of_as_many_parts_as_it_can_hold_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Long before a number has no room in a part's name; a later start goes on with the last."""
    monkeypatch.setattr("collectors.scrape.loop._MOST_PARTS", 3)
    clock = FakeClock()
    collect(tmp_path / "run", [ok(k) for k in range(8)], clock, rotation=SMALL)
    collect(tmp_path / "run", [ok(8)], clock, rotation=SMALL)
    first, second = read_run(tmp_path / "run"), read_run(tmp_path / "run-2")
    assert list(range(9)) == [*values(first), *values(second)]
    assert 3 == len(list((tmp_path / "run" / "samples").iterdir()))
    assert any("no more parts" in note for note in first.manifest["collection"]["notes"])


def test_pages_are_counted_in_bytes(tmp_path: Path) -> None:
    """A character of another script is more than one."""
    body = page(1) + "# Zähler\n".encode()
    collector = collect(tmp_path / "run", [Fetched(Outcome.OK, 200, "text/plain", body)])
    assert len(body) == collector.counters.page_bytes
    assert len(body) == read_run(tmp_path / "run").manifest["collection"]["page_bytes"]


def test_a_full_disk_ends_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scrapes wait for room, and are written when there is some; the trouble is counted."""
    append, full = Journal.append, [False]

    def appended(journal: Journal, entry: object) -> int:
        if full[0]:
            raise OSError(errno.ENOSPC, "no space")
        return append(journal, entry)  # type: ignore[arg-type]

    def switched(count: int, *, to: bool) -> Fetched:
        full[0] = to
        return ok(count)

    monkeypatch.setattr(Journal, "append", appended)
    answers = [ok(1), lambda: switched(2, to=True), ok(3), lambda: switched(4, to=False), ok(5)]
    collect(tmp_path / "run", answers)
    run = read_run(tmp_path / "run")
    assert [1, 2, 3, 4, 5] == values(run)
    assert {"disk_full": 2} == run.manifest["collection"]["problems"]


def test_a_disk_that_stays_full_costs_a_gap_and_no_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What found no room in the backlog is counted and named as a gap."""
    append, calls = Journal.append, [0]

    def appended(journal: Journal, entry: object) -> int:
        calls[0] += 1
        if 2 < calls[0] < 900:
            raise OSError(errno.ENOSPC, "no space")
        return append(journal, entry)  # type: ignore[arg-type]

    monkeypatch.setattr(Journal, "append", appended)
    monkeypatch.setattr("collectors.scrape.backlog.MOST_BYTES", 2**20)
    collector = collect(tmp_path / "run", [ok(k) for k in range(1000)])
    run = read_run(tmp_path / "run")
    lost = collector.counters.tally.not_written
    assert lost > 0
    assert 1000 - lost == len(values(run))
    assert lost == run.manifest["collection"]["problems"]["not_written"]
    assert lost in {gap["scrapes_missed"] for gap in run.manifest["gaps"]}


def test_a_run_that_vanishes_is_followed_by_another(tmp_path: Path) -> None:
    """Nothing is made anew in its place; what was not written yet goes to the next run."""

    def vanish() -> Fetched:
        (tmp_path / "run").rename(tmp_path / "moved")
        return ok(3)

    collector = collect(tmp_path / "run", [ok(1), ok(2), vanish, ok(4), ok(5)])
    assert not (tmp_path / "run").exists()
    assert [3, 4, 5] == values(read_run(tmp_path / "run-2"))
    assert 1 == collector.counters.tally.problems["run_vanished"]
    notes = read_run(tmp_path / "run-2").manifest["collection"]["notes"]
    assert any("vanished" in note for note in notes)
    read_run(tmp_path / "moved")


def test_a_wall_clock_that_steps_moves_no_sample(tmp_path: Path) -> None:
    """Times follow the monotonic clock, and the step is noted."""
    clock = FakeClock()

    def step() -> Fetched:
        clock.step_ns = -3_600_000_000_000
        return ok(2)

    collect(tmp_path / "run", [ok(1), step, ok(3)], clock)
    collect(tmp_path / "run", [ok(4)], clock)
    run = read_run(tmp_path / "run")
    times = run.samples["time_us"].unique(maintain_order=True).to_list()
    assert times == sorted(times)
    assert [0, 1_000_000, 2_000_000] == times[:3]
    notes = run.manifest["collection"]["notes"]
    assert any("the wall clock stepped by -3600000 ms" in note for note in notes)
    assert any("the wall clock was behind when the collector started" in n for n in notes)


def test_old_pages_go_and_samples_stay(tmp_path: Path) -> None:
    """Retention by size keeps the newest pages, however small the limit."""
    answers = [ok(k) for k in range(12)]
    collect(tmp_path / "run", answers, rotation=SMALL, retention=Retention(size_bytes=1))
    pages = sorted(p.name for p in (tmp_path / "run" / "pages").iterdir())
    assert "part-00000.jsonl.xz" not in pages
    assert "part-00005.jsonl.xz" in pages
    assert list(range(12)) == values(read_run(tmp_path / "run"))
    collect(tmp_path / "run", [ok(12)])
    assert list(range(13)) == values(read_run(tmp_path / "run"))


def test_samples_go_with_their_pages_where_that_was_asked_for(tmp_path: Path) -> None:
    """The manifest says which part is the first now."""
    retention = Retention(age_us=3_000_000, samples=True)
    clock = FakeClock()
    clock.step_ns = time.time_ns() - START_NS + 86_400 * SECOND  # files are made today
    collect(
        tmp_path / "run", [ok(k) for k in range(12)], clock, rotation=SMALL, retention=retention
    )
    run = read_run(tmp_path / "run")
    first = run.manifest["collection"]["first_parts"]["samples"]
    assert 0 < first <= 5
    assert list(range(2 * first, 12)) == values(run)


def test_the_age_of_a_journal_rotates_it_too(tmp_path: Path) -> None:
    """A slow page becomes samples before the day is over."""
    collect(tmp_path / "run", [ok(k) for k in range(9)], rotation=Rotation(age_us=3_000_000))
    assert 2 <= len(list((tmp_path / "run" / "samples").iterdir()))


def test_a_spool_is_packed_into_the_run(tmp_path: Path) -> None:
    """What the engine recorded stands beside what its page says; a restart goes on with it."""
    clock = FakeClock()
    cache = {"block_size": 16, "num_gpu_blocks": 64, "enable_prefix_caching": False}
    told = header(unix_ns=clock.unix_ns(), monotonic_ns=MONOTONIC_NS, model="tiny", cache=cache)
    records = [
        ["R", 0, "a", clock.unix_ns() + 500_000, 40, 2, 0, None],
        ["A", 0, 0, ns(500), 0],
        ["D", 1, 0, ns(500), 0, 0],
        ["S", 0, ns(600), 40, 40, 0, 40, 45, 1, 0],
        ["F", 2, 0, ns(700), 0, 2, 0, "ok", "length", ns(600), ns(700), 7000, 0],
    ]
    write_spool(tmp_path / "spool", told, records)
    collect(tmp_path / "run", [ok(1), ok(2)], clock, spool=tmp_path / "spool")
    collect(tmp_path / "run", [ok(3)], clock, spool=tmp_path / "spool")
    run = read_run(tmp_path / "run")
    assert [1, 2, 3] == values(run)
    assert ["arrive", "admit", "finish"] == run.events["kind"].to_list()
    assert ["a"] == run.requests["request_id"].to_list()
    assert {"ok": 3} == run.manifest["collection"]["outcomes"]
    assert [0] == run.manifest["recorder"]["engines"]
    assert "fcfs" == run.manifest["scheduler"]["scheduling_policy"]


def test_a_request_that_is_open_when_collecting_ends_is_packed_by_the_next_start(
    tmp_path: Path,
) -> None:
    """Nothing is censored because somebody stopped looking; what is packed is deleted."""
    clock, spool = FakeClock(), tmp_path / "spool"
    cache = {"block_size": 16, "num_gpu_blocks": 64, "enable_prefix_caching": False}
    told = header(unix_ns=clock.unix_ns(), monotonic_ns=MONOTONIC_NS, model="tiny", cache=cache)
    records = [
        ["R", 0, "a", clock.unix_ns() + 500_000, 40, 2, 2**60, None],
        ["A", 0, 0, ns(500), 0],
        ["D", 1, 0, ns(500), 0, 0],
        ["S", 0, ns(600), 40, 40, 0, 40, 45, 1, 0],
    ]
    write_spool(spool, told, records, [(2, True)])
    collect(tmp_path / "run", [ok(1), ok(2)], clock, spool=spool)
    assert 0 == read_run(tmp_path / "run").requests.height
    (last,) = spool.iterdir()
    assert last.name.endswith("-00001.spool.jsonl.gz")
    ended = ["F", 2, 0, ns(700), 0, 2, 0, "ok", "length", ns(600), ns(700), 7000, 0]
    append(last, [[ended, ["E", ns(800)]]])
    collect(tmp_path / "run", [ok(3)], clock, spool=spool)
    run = read_run(tmp_path / "run")
    assert [("a", "ok", None)] == run.requests.select("request_id", "status", "priority").rows()
    assert ["arrive", "admit", "finish"] == run.events["kind"].to_list()
    assert [] == list(spool.iterdir())
    assert run.manifest["recorder"]["complete"]


def test_an_engine_with_other_flags_is_another_run_though_its_page_is_the_same(
    tmp_path: Path,
) -> None:
    """Only the recorder knows; the old run says that it ends there."""
    clock, spool = FakeClock(), tmp_path / "spool"
    cache = {"block_size": 16, "num_gpu_blocks": 64, "enable_prefix_caching": False}
    first = header(unix_ns=clock.unix_ns(), monotonic_ns=MONOTONIC_NS, model="tiny", cache=cache)
    write_spool(spool, first, [["E", ns(100)]])
    collect(tmp_path / "run", [ok(1), ok(2)], clock, spool=spool)
    other = first | {
        "pid": 8,
        "unix_ns": clock.unix_ns(),
        "scheduler": {"scheduling_policy": "priority"},
    }
    write_spool(spool, other, [["S", 0, ns(600), 40, 40, 0, 40, 45, 1, 0]])
    collect(tmp_path / "run", [ok(3), ok(4), ok(5)], clock, rotation=SMALL, spool=spool)
    policies = [
        read_run(tmp_path / name).manifest["scheduler"]["scheduling_policy"]
        for name in ("run", "run-2")
    ]
    assert ["fcfs", "priority"] == policies


def test_a_spool_that_cannot_be_read_ends_nothing(tmp_path: Path) -> None:
    """It is counted, and the pages are collected."""
    (tmp_path / "spool").write_text("no directory")
    collect(tmp_path / "run", [ok(1)], spool=tmp_path / "spool")
    run = read_run(tmp_path / "run")
    assert [1] == values(run)
    assert run.manifest["collection"]["problems"]["spool_failed"]


def test_a_manifest_is_json_that_anybody_reads(tmp_path: Path) -> None:
    """Its times are those of the run."""
    collect(tmp_path / "run", [ok(1), ok(2)])
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert 1_000_000 == manifest["drain_end_us"]
    assert manifest["start"].startswith("2026-")
