"""A packing that is refused, fails or is killed: the run is as it was, and the next one does it."""

import os
import shutil
import stat
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from spools import UNIX_NS, append, header, header_of, write_part, write_spool
from test_pack import BASE_1, Killed, driven, observed, recorded, some, story_of

from collectors.pack.batch import pack_spool
from collectors.pack.packer import STATE, Packer
from collectors.run import Run, read_run
from collectors.writer import LOCK, RunWriter
from replay.errors import InputError, OutputExists, ReplayError

Made = Callable[[Path, Path], None]


def tree(path: Path) -> dict[str, tuple[int, bytes | None]]:
    """Every file and folder, with its mode and its bytes."""
    return {
        str(found.relative_to(path)): (
            stat.S_IMODE(found.stat().st_mode),
            found.read_bytes() if found.is_file() else None,
        )
        for found in path.rglob("*")
    }


def short_drive(path: Path, *names: str, **changes: Any) -> Path:
    """A driven run that offered requests of these names, ten microseconds apart."""
    run = recorded(BASE_1)
    rows = run.requests[: len(names)].with_columns(
        request_id=pl.Series(names),
        arrival_us=pl.Series(range(10, 10 * len(names) + 1, 10)),
        e2e_us=pl.lit(1000, pl.Int64),
    )
    manifest = {**run.manifest, "drain_end_us": 100_000} | changes
    return driven(path, replace(run, requests=rows, offered=None, manifest=manifest))


def another_blocks(spool: Path, _: Path) -> None:
    """An engine with other blocks than the run's."""
    cache = {"block_size": 32, "num_gpu_blocks": 7, "enable_prefix_caching": False}
    write_spool(spool, header(cache=cache), story_of("a", "b"))


def another_time(spool: Path, _: Path) -> None:
    """An engine that came after the run."""
    write_spool(spool, header_of(recorded(BASE_1)) | {"unix_ns": UNIX_NS + 10**12}, [])


def two_servers(spool: Path, _: Path) -> None:
    """Two engines of one number at the same time."""
    told = header_of(recorded(BASE_1))
    for pid in (7, 8):
        write_spool(spool, told | {"pid": pid, "unix_ns": UNIX_NS + pid}, story_of("a", "b"))


def nothing(spool: Path, _: Path) -> None:
    """A directory without a spool."""
    spool.mkdir()


def no_directory(spool: Path, _: Path) -> None:
    """A file where the directory should be."""
    spool.write_text("x")


def all_damaged(spool: Path, _: Path) -> None:
    """A part of which nothing can be read."""
    write_part(spool, header(), []).write_bytes(b"\x1f\x8b\x08 no" + 3 * b"\x1f\x8b\x08 no")


def good(spool: Path) -> None:
    """A spool that fits the drive."""
    write_spool(spool, header_of(recorded(BASE_1)), story_of("a", "b", "c"), [(6, True)])


def packed_before(spool: Path, run: Path) -> None:
    """A run that has it already."""
    good(spool)
    pack_spool(spool, run)


def foreign_state(spool: Path, run: Path) -> None:
    """A state that no packer wrote."""
    good(spool)
    (run / STATE).write_text('{"schema": "preemption-pack/1", "sessions": [[]]}')


def damaged_requests(spool: Path, run: Path) -> None:
    """A late part of the driver's own rows that cannot be read."""
    good(spool)
    part = max((run / "requests").iterdir())
    part.write_bytes(part.read_bytes()[:-20])


def no_requests(spool: Path, run: Path) -> None:
    """A drive that was killed and not finished."""
    good(spool)
    shutil.rmtree(run / "requests")


def events_of_others(spool: Path, run: Path) -> None:
    """A run that has events from elsewhere."""
    good(spool)
    with RunWriter.resume(run) as writer:
        writer.write_part("measured_events", recorded(BASE_1).events.drop("run_id")[:2])


@pytest.mark.parametrize(
    ("made", "error"),
    [
        (another_blocks, InputError),
        (another_time, InputError),
        (two_servers, InputError),
        (nothing, InputError),
        (no_directory, InputError),
        (all_damaged, InputError),
        (packed_before, OutputExists),
        (foreign_state, InputError),
        (damaged_requests, InputError),
        (no_requests, InputError),
        (events_of_others, OutputExists),
    ],
    ids=lambda one: one.__name__,
)
@pytest.mark.parametrize("locked", [True, False])
def test_a_refused_packing_leaves_the_run_as_it_was(
    tmp_path: Path, made: Made, error: type[ReplayError], *, locked: bool
) -> None:
    """Byte for byte, whatever it is refused for."""
    run, spool = short_drive(tmp_path / "run", "a", "b", "c"), tmp_path / "spool"
    made(spool, run)
    if not locked:
        (run / LOCK).unlink()
    before = tree(tmp_path)
    with pytest.raises(error):
        pack_spool(spool, run)
    assert before == tree(tmp_path)


def test_a_run_that_somebody_writes_is_left_alone(tmp_path: Path) -> None:
    """Its writer has it locked."""
    run, spool = short_drive(tmp_path / "run", "a"), tmp_path / "spool"
    good(spool)
    with RunWriter.resume(run):
        before = tree(tmp_path)
        with pytest.raises(OutputExists, match="another process writes this run"):
            pack_spool(spool, run)
        assert before == tree(tmp_path)


@pytest.mark.parametrize("commit", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["driven", "observed", "new"])
def test_a_packing_that_fails_halfway_leaves_everything_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, commit: int, kind: str
) -> None:
    """A disk that is full at any commit: no part, no state, no directory is left."""
    run, spool = tmp_path / "deep" / "run", tmp_path / "spool"
    if kind == "driven":
        short_drive(run, "a", "b", "c")
    elif kind == "observed":
        observed(run)
    write_spool(spool, header_of(recorded(BASE_1)), story_of("a", "b", "c"), [(6, True)])
    before = tree(tmp_path)
    left = commit
    whole = Packer._save

    def full(self: Packer, *arguments: Any) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise OutputExists("the disk is full")
        whole(self, *arguments)

    monkeypatch.setattr(Packer, "_save", full)
    with pytest.raises(OutputExists, match="the disk is full"):
        pack_spool(spool, run)
    assert before == tree(tmp_path)


def test_what_was_refused_can_be_packed_once_its_reason_is_gone(tmp_path: Path) -> None:
    """The same command again."""
    run, spool = short_drive(tmp_path / "run", "a", "b", "c"), tmp_path / "spool"
    good(spool)
    stranger = header_of(recorded(BASE_1)) | {"pid": 8, "unix_ns": UNIX_NS + 1}
    part = write_part(spool, stranger, [some(0, "x", 0, 30)])
    with pytest.raises(InputError, match="one server"):
        pack_spool(spool, run)
    part.unlink()
    (found,) = pack_spool(spool, run)
    assert (0, 9) == (found.never_offered, found.rows["measured_events"])


# -- killed ----------------------------------------------------------------------------------------


def whole(run: Run) -> list[Any]:
    """What packing adds to a run, and to its manifest."""
    frames = (run.requests, run.events, run.steps)
    told = {k: run.manifest[k] for k in ("recorder", "preemptions", "not_modelled")}
    return [told, *(frame.drop("run_id").rows() for frame in frames)]


@pytest.mark.parametrize("call", ["replace", "link", "rename", "unlink"])
@pytest.mark.parametrize("kind", ["driven", "observed", "new"])
def test_a_packing_that_is_killed_is_done_by_the_next_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, kind: str
) -> None:
    """At every system call in turn: at any time the run can be read, and in the end it is whole."""
    spool, records = tmp_path / "spool", story_of(*(f"r{k}" for k in range(6)))
    write_spool(spool, header_of(recorded(BASE_1)), records, [(12, True)])

    def begun(path: Path) -> Path:
        if kind == "driven":
            return short_drive(path, "r0", "r1", "r2", "r3", "r4", "r5")
        return observed(path) if kind == "observed" else path

    pack_spool(spool, begun(tmp_path / "uncut" / "run"))
    expected = whole(read_run(tmp_path / "uncut" / "run"))
    system: Callable[..., Any] = getattr(os, call)
    calls, done = 0, False
    out = begun(tmp_path / "out" / "run")
    while not done:
        calls += 1
        left = calls

        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal left
            left -= 1
            if left <= 0:  # a process that is killed does nothing more
                raise Killed
            return system(*arguments, **options)

        with monkeypatch.context() as patch:
            patch.setattr(os, call, counted)
            try:
                pack_spool(spool, out)
            except Killed:
                pass
            except OutputExists:  # the kill came behind all that counts
                done = True
            else:
                done = True
        if out.exists():
            read_run(out)
    assert expected == whole(read_run(out))
    assert [] == [p.name for p in out.rglob(".pack*") if p.name != STATE]


def test_several_new_runs_appear_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is refused in the second leaves nothing of the first."""
    spool = tmp_path / "spool"
    write_spool(spool, header(), some(0, "a", 0, 10))
    cache = {"block_size": 32, "num_gpu_blocks": 80, "enable_prefix_caching": False}
    write_spool(spool, header(pid=8, unix_ns=UNIX_NS + 10**9, cache=cache), some(0, "b", 0, 20))
    finish, left = Packer.finish, 2

    def refused(self: Packer) -> None:
        nonlocal left
        left -= 1
        if not left:
            raise InputError("spool", "", "must be good")
        finish(self)

    with monkeypatch.context() as patch:
        patch.setattr(Packer, "finish", refused)
        with pytest.raises(InputError, match="must be good"):
            pack_spool(spool, tmp_path / "new" / "run")
    assert ["spool"] == [path.name for path in tmp_path.iterdir()]
    names = [one.path.name for one in pack_spool(spool, tmp_path / "new" / "run")]
    assert ["run", "run-2"] == names


def test_a_packing_that_a_collector_began_goes_on_with_its_numbers(tmp_path: Path) -> None:
    """Ids that are in the run stay taken, and its parts stay as they are."""
    run, spool = observed(tmp_path / "run"), tmp_path / "spool"
    part = write_part(spool, header(), [story_of("a", "b")])
    with RunWriter.resume(run) as writer:
        Packer(writer, spool).pack()
    before = tree(run / "events")
    second = story_of("z", "z", "a")[10:]
    append(part, [second])
    pack_spool(spool, run)
    assert before.items() <= tree(run / "events").items()
    assert ["a", "b", "a~2"] == read_run(run).requests["request_id"].to_list()
    assert list(range(9)) == read_run(run).events["seq"].to_list()
