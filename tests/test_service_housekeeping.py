"""Old runs go by the rules the operator set, and by no others."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from collectors.service.begin import retention_of
from collectors.service.diary import Diary
from collectors.service.discover import Instance
from collectors.service.health import reasons
from collectors.service.housekeeping import Ended, Tidied, delete, runs_of, sweep, tidy, to_go
from collectors.service.meters import State
from collectors.service.settings import Collect, Settings, Target
from collectors.service.standing import Standing
from collectors.service.supervise import Job, Supervisor, Worker
from collectors.writer import RunWriter, new_manifest
from replay.errors import InputError

SECOND = 1_000_000_000
NOW = 1_000 * SECOND
TARGET = Target("chat", url="http://127.0.0.1:1")


def made(path: Path, changed_ns: int, size: int = 0) -> Path:
    """A run that changed at a moment, with a file of that many bytes beside its manifest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    start = datetime.fromtimestamp(0, UTC)
    RunWriter.create(path, new_manifest(path.name, "observed", start=start)).close()
    (path / "pages").mkdir()
    (path / "pages" / "part-00000.jsonl.xz").write_bytes(bytes(size))
    for entry in path.rglob("*"):
        os.utime(entry, ns=(changed_ns, changed_ns))
    return path


def settings(output: Path, **more: int) -> Settings:
    """One target, kept by these rules."""
    return Settings(Collect(output, **more), (TARGET,))


def test_what_is_too_old_or_too_much_goes_oldest_first() -> None:
    """Bytes of runs being written count, and they stay."""
    found = [
        Ended(Path(name), 100, age * SECOND) for name, age in (("b", 20), ("a", 10), ("c", 30))
    ]
    names = [
        [one.path.name for one in to_go(found, 50, age_us, most, 40 * SECOND)]
        for age_us, most in (
            (None, None),
            (15_000_000, None),
            (None, 250),
            (None, 49),
            (25 * 10**6, 240),
        )
    ]
    assert [[], ["a", "b"], ["a"], ["a", "b", "c"], ["a", "b"]] == names


def test_ended_runs_go_and_written_ones_stay(tmp_path: Path) -> None:
    """A run that somebody writes stays, even unknown to the service; so does what is not ours."""
    old = made(tmp_path / "chat" / "run", 1 * SECOND)
    young = made(tmp_path / "chat" / "run-2", NOW - SECOND)
    mine = made(tmp_path / "chat" / "run-3", 1 * SECOND)
    theirs = made(tmp_path / "chat" / "10.0.0.1_8000", 1 * SECOND)
    other = made(tmp_path / "chat" / "my-notes", 1 * SECOND)
    elsewhere = made(tmp_path / "another" / "run", 1 * SECOND)
    with RunWriter.resume(theirs):
        done = tidy(settings(tmp_path, keep_age_us=10**6 * 60), {mine}, NOW)
    assert [old] == done.gone
    assert not old.exists()
    assert all(path.is_dir() for path in (young, mine, theirs, other, elsewhere))
    assert done.left_bytes == sum(
        entry.stat().st_size
        for run in (young, mine, theirs)
        for entry in run.rglob("*")
        if entry.is_file()
    )


def test_the_size_of_all_runs_is_kept(tmp_path: Path) -> None:
    """The oldest go until it fits."""
    runs = [made(tmp_path / "chat" / f"run-{k}", k * SECOND, 10_000) for k in (2, 3, 4)]
    done = tidy(settings(tmp_path, keep_bytes=30_000), set(), NOW)
    assert ([runs[0]], True) == (done.gone, 10_000 < done.freed_bytes < 20_000)
    assert 20_000 < done.left_bytes <= 30_000
    assert [False, True, True] == [run.exists() for run in runs]


def test_without_rules_nothing_goes(tmp_path: Path) -> None:
    """However old it is."""
    run = made(tmp_path / "chat" / "run", 1)
    assert [] == tidy(settings(tmp_path), set(), NOW).gone
    assert run.exists()


def test_a_link_is_no_run(tmp_path: Path) -> None:
    """What it leads to stays."""
    run = made(tmp_path / "elsewhere" / "run", 1)
    (tmp_path / "chat").mkdir()
    (tmp_path / "chat" / "run").symlink_to(run)
    assert [] == runs_of(tmp_path, ["chat"])
    assert [] == tidy(settings(tmp_path, keep_age_us=1), set(), NOW).gone
    assert run.exists()


def test_an_interrupted_deletion_is_finished(tmp_path: Path) -> None:
    """It has a name that no reader takes for a run."""
    run = made(tmp_path / "chat" / "run", 1)
    run.rename(run.with_name(".going-run"))
    assert [] == runs_of(tmp_path, ["chat"])
    sweep(tmp_path, ["chat"])
    assert [] == list((tmp_path / "chat").iterdir())
    assert not delete(run)


def test_a_run_keeps_an_even_share() -> None:
    """Of the bytes, and all of the time."""
    retention = retention_of(Collect(Path("x"), keep_age_us=7, keep_bytes=100 * 2**20), 4)
    assert (7, 25 * 2**20, True) == (retention.age_us, retention.size_bytes, retention.samples)
    assert retention_of(Collect(Path("x")), 4).size_bytes is None


def test_healthy_is_without_a_reason() -> None:
    """Each thing that is wrong is one line, in our words."""
    assert [] == reasons([], State(instances={"a": 1}), NOW)
    state = State(
        instances={"a": 0}, unknown={"b": "why"}, reload_error="bad", trouble="no space left"
    )
    job = Job(Instance("a", "run", "http://h"), TARGET, Collect(Path("x")))
    worker = Worker(job, Standing(0), failed="could not")
    expected = [
        "b: engines unknown: why",
        "a: no engine found",
        "reload refused, the old configuration goes on: bad",
        "output: no space left",
        "a/run: not collecting: could not",
    ]
    assert expected == reasons([worker], state, NOW)


def test_many_reasons_are_cut() -> None:
    """A page of health stays one."""
    state = State(unknown={f"t{k:03d}": "why" for k in range(200)})
    assert (51, "and 150 more") == (len(found := reasons([], state, NOW)), found[-1])


@pytest.mark.parametrize("error", [InputError("f", "", "is bad"), OSError(28, "full")])
def test_an_engine_that_cannot_be_begun_is_tried_again_in_time(error: Exception) -> None:
    """Not at once, and without ending the others."""

    async def check() -> None:
        now = [0]

        def make(job: Job, seen: object) -> None:
            del job, seen
            raise error

        log: list[str] = []
        supervisor = Supervisor(make, lambda: now[0], diary=Diary(log.append))  # type: ignore[arg-type]
        job = Job(Instance("a", "run", "http://h"), TARGET, Collect(Path("x")))
        supervisor.reconcile([job])
        supervisor.reconcile([job])
        assert 1 == supervisor.begun
        now[0] = job.collect.rediscover_us * 1000
        supervisor.reconcile([job])
        assert 2 == supervisor.begun
        (worker,) = supervisor.workers.values()
        assert worker.failed in {"f: is bad", "OSError"}
        assert [f"a/run: not collecting: {worker.failed}; tried again every 30s"] == log

    asyncio.run(check())


def test_what_retention_deletes_is_a_line_a_round() -> None:
    """Ended runs by name and size, and runs whose oldest parts went; nothing where nothing went."""
    log: list[str] = []
    diary, run = Diary(log.append), Path("/out/chat/run")
    diary.tidied(Tidied(5, [], 0, {run: 3}))
    diary.tidied(Tidied(5, [], 0, {run: 3}))
    assert [] == log
    diary.tidied(Tidied(5, [Path(f"/out/chat/run-{k}") for k in range(2, 7)], 3 * 2**29, {run: 5}))
    assert [
        "retention: deleted chat/run-2, chat/run-3, chat/run-4 and 2 more, 1.5 GiB",
        "retention: deleted the oldest parts of chat/run",
    ] == log


def test_where_a_written_run_begins_is_looked_up(tmp_path: Path) -> None:
    """Its first part of pages, whichever that is by now."""
    run = made(tmp_path / "chat" / "run", NOW)
    (run / "pages" / "part-00000.jsonl.xz").rename(run / "pages" / "part-00007.jsonl.xz")
    assert {run: 7} == tidy(settings(tmp_path), {run}, NOW).first_parts


def test_an_output_that_cannot_be_looked_through_is_told_once() -> None:
    """And that it can be again."""
    log: list[str] = []
    diary = Diary(log.append)
    for _ in range(3):
        diary.trouble("Permission denied")
    diary.tidied(Tidied(5, [], 0, {}))
    assert ["output: Permission denied", "output: can be read again"] == log
