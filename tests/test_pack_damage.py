"""Damage and strangers in a spool: they cost what they hit, and nothing else."""

import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from spools import UNIX_NS, append, header, ns, write_part
from test_pack import observed, some, story_of

from collectors.pack.batch import pack_spool
from collectors.pack.packer import Packer
from collectors.run import read_run
from collectors.scrape.spool_hook import SpoolHook
from collectors.spool import Part, list_parts
from collectors.writer import RunWriter
from preempt.commands.collect_pack import pack_command
from replay.errors import InputError

END = ["E", ns(900)]


def damage(path: Path) -> None:
    """Break the last frame but one of a part: more is behind it, so it is no torn tail."""
    ends = [0, *(frame.end for frame in read_frames_of(path))]
    data = bytearray(path.read_bytes())
    for k in range(ends[-3] + 12, ends[-2] - 8):
        data[k] ^= 0xFF
    path.write_bytes(data)


def read_frames_of(path: Path) -> list[Any]:
    """Whole frames of a part."""
    from collectors.spool import read_part

    return list(read_part(_part(path)))


def _part(path: Path) -> Part:
    parts = [part for parts in list_parts(path.parent).values() for part in parts]
    return next(part for part in parts if part.path == path)


def one_each(names: str) -> list[list[Any]]:
    """A frame for each request, and one for the end."""
    records = story_of(*names)
    return [*(records[5 * k : 5 * k + 5] for k in range(len(names))), [END]]


def test_a_damaged_part_ends_its_session_there_and_no_other(tmp_path: Path) -> None:
    """The note says which file, where and what to do; the file stays as it is."""
    spool = tmp_path / "spool"
    bad = write_part(spool, header(), one_each("abc"))
    write_part(spool, header(engine=1), one_each("xyz"))
    damage(bad)
    before = bad.read_bytes()
    (found,) = pack_spool(spool, tmp_path / "run")
    run = read_run(tmp_path / "run")
    assert ["a", "b", "x", "y", "z"] == sorted(run.requests["request_id"])
    assert not found.complete
    (note,) = found.notes
    assert note.startswith(f"{bad.name}: must hold whole frames, got damage at byte ")
    assert note.endswith("look at it, then move it out of the spool")
    assert ["a part of what the engine did was lost"] == found.not_modelled
    assert before == bad.read_bytes()


def test_what_comes_behind_a_damaged_part_is_not_of_the_session(tmp_path: Path) -> None:
    """Numbers and open requests of what is lost are unknown: its later parts would be guesses."""
    spool = tmp_path / "spool"
    records = story_of("a", "b", "c", "d")
    write_part(spool, header(), [records[:5]])
    bad = write_part(spool, header(part=1), [records[5:8], records[8:10]])
    write_part(spool, header(part=2), [records[10:]])
    damage(bad)
    (found,) = pack_spool(spool, tmp_path / "run")
    assert ["a"] == read_run(tmp_path / "run").requests["request_id"].to_list()
    assert 3 == found.rows["measured_events"]


@pytest.mark.parametrize("change", [{"engine": 3}, {"schema": "preemption-spool/9"}, {"cache": 5}])
def test_a_session_of_which_nothing_can_be_read_is_named(
    tmp_path: Path, change: dict[str, Any]
) -> None:
    """A part that was renamed, of another format, or with sections that are none."""
    spool = tmp_path / "spool"
    write_part(spool, header(), one_each("ab"))
    bad = write_part(spool, header(pid=9) | change, one_each("x"))
    bad = bad.rename(bad.with_name(bad.name.replace("3-9", "0-9", 1)))
    (found,) = pack_spool(spool, tmp_path / "run")
    assert ["a", "b"] == read_run(tmp_path / "run").requests["request_id"].to_list()
    assert not found.complete
    (note,) = found.notes
    assert note.startswith(f"{bad.name}: line 1: ")
    assert note.endswith(
        "its session is not in the run. Make it readable, or move it out of the spool"
    )


def test_files_that_are_no_part_are_named_and_left_alone(tmp_path: Path) -> None:
    """Their names come from anywhere, so no character of them reaches a terminal unescaped."""
    spool = tmp_path / "spool"
    write_part(spool, header(), one_each("ab"))
    (spool / "\x1b[31mnotes").write_text("x")
    (spool / "copy.gz").mkdir()
    (spool / ".hidden").write_text("x")
    done = CliRunner().invoke(pack_command, [str(spool), "--out", str(tmp_path / "run")])
    assert 0 == done.exit_code, done.output
    assert "no part of a spool, and left alone: '\\x1b[31mnotes' and 1 more" in done.output
    assert "not complete" not in done.output
    assert read_run(tmp_path / "run").manifest["recorder"]["complete"]
    assert 4 == len(list(spool.iterdir()))


def test_the_command_says_which_part_is_damaged(tmp_path: Path) -> None:
    """And that the run is not complete, with exit 0: what could be packed is."""
    spool = tmp_path / "spool"
    bad = write_part(spool, header(), one_each("abc"))
    damage(bad)
    done = CliRunner().invoke(pack_command, [str(spool), "--out", str(tmp_path / "run")])
    assert 0 == done.exit_code, done.output
    assert f"  {bad.name}: must hold whole frames" in done.output
    assert "not complete: " in done.output


def test_more_engines_than_a_run_can_have_block_nobody(tmp_path: Path) -> None:
    """A file's name may say anything."""
    spool = tmp_path / "spool"
    write_part(spool, header(), one_each("ab"))
    write_part(spool, header(engine=9999), one_each("x"))
    (found,) = pack_spool(spool, tmp_path / "run")
    assert [0] == found.engines
    assert any("a run has at most 2048 engines" in note for note in found.notes)


@pytest.mark.parametrize("at", [4 * 10**18 + 1, 2**63 - 1])
def test_times_that_no_row_can_hold_are_damage(tmp_path: Path, at: int) -> None:
    """Found before a row is made of them."""
    spool, bad = tmp_path / "spool", some(1, "b", 3, 20, step=1)
    bad[1][3] = at
    write_part(spool, header(), [some(0, "a", 0, 10), bad])
    pack_spool(spool, tmp_path / "run")
    assert ["a"] == read_run(tmp_path / "run").requests["request_id"].to_list()


def test_numbers_that_no_row_can_hold_behind_a_restart_are_damage(tmp_path: Path) -> None:
    """Steps of a second session go on behind those of the first."""
    spool, last = tmp_path / "spool", ["S", 2**53 - 1, ns(50), 1, *[None] * 6]
    write_part(spool, header(), [some(0, "a", 0, 10), [last, END]])
    write_part(spool, header(pid=8, unix_ns=UNIX_NS + 10**9), [some(0, "b", 0, 20)])
    (found,) = pack_spool(spool, tmp_path / "run")
    assert ["a"] == read_run(tmp_path / "run").requests["request_id"].to_list()
    assert any("must be at most" in note for note in found.notes)


# -- while it grows --------------------------------------------------------------------------------


def test_damage_of_one_session_does_not_stop_the_packing_of_others(tmp_path: Path) -> None:
    """For as long as a collector runs, and after it started again; nothing damaged is deleted."""
    out, spool = observed(tmp_path / "run"), tmp_path / "spool"
    bad = write_part(spool, header(), one_each("abc")[:3])
    damage(bad)
    good = write_part(spool, header(engine=1), one_each("x")[:1])
    for k in range(3):
        with RunWriter.resume(out) as writer:
            hook = SpoolHook(writer, spool)
            append(good, [some(k + 1, f"x{k}", 3 * k + 3, 100 * k + 50, step=k + 1)])
            assert 0 == hook.pack(final=False)
            manifest = hook.fill(dict(writer.manifest))
            writer.write_manifest(manifest)
    assert ["a", "x", "x0", "x1", "x2"] == sorted(read_run(out).requests["request_id"])
    (note,) = [n for n in manifest["recorder"]["notes"] if bad.name in n]
    assert "must hold whole frames" in note
    assert manifest["recorder"]["complete"] is False
    assert {bad.name, good.name} == {path.name for path in spool.iterdir()}


def test_a_damaged_part_is_never_deleted(tmp_path: Path) -> None:
    """Not when its session is over, nor when another one took its place, nor what is behind it."""
    out, spool = observed(tmp_path / "run"), tmp_path / "spool"
    records = story_of("a", "b", "c")
    first = write_part(spool, header(), [records[:5]])
    bad = write_part(spool, header(part=1), [records[5:8], records[8:10]])
    behind = write_part(spool, header(part=2), [records[10:], [END]])
    damage(bad)
    os.utime(behind, (1, 1))
    later = write_part(spool, header(pid=8, unix_ns=UNIX_NS + 10**9), [some(0, "z", 0, 500), [END]])
    with RunWriter.resume(out) as writer:
        assert {first, later} == set(Packer(writer, spool).pack())
        assert {first, later} == set(Packer(writer, spool).pack())
    assert ["a", "z"] == read_run(out).requests["request_id"].to_list()
    assert {first, bad, behind, later} == set(spool.iterdir())


def test_a_part_that_cannot_be_read_now_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another session goes on meanwhile, and nothing is given up."""
    out, spool = observed(tmp_path / "run"), tmp_path / "spool"
    mine = write_part(spool, header(), one_each("ab")[:2])
    write_part(spool, header(engine=1), one_each("x"))
    whole = os.open

    def refused(path: Any, *arguments: Any, **options: Any) -> int:
        if Path(path) == mine:
            raise PermissionError(13, "Permission denied")
        return whole(path, *arguments, **options)

    with RunWriter.resume(out) as writer:
        hook = SpoolHook(writer, spool)
        with monkeypatch.context() as patch:
            patch.setattr(os, "open", refused)
            hook.pack(final=False)
        assert ["x"] == read_run(out).requests["request_id"].to_list()
        notes = hook.fill(dict(writer.manifest))["recorder"]["notes"]
        assert any(f"{mine.name}: cannot be read: Permission denied" in note for note in notes)
        hook.pack(final=False)
        notes = hook.fill(dict(writer.manifest))["recorder"]["notes"]
        assert not any("cannot be read" in note for note in notes)
    assert ["a", "b", "x"] == sorted(read_run(out).requests["request_id"])


def test_a_silent_session_that_cannot_be_read_keeps_nobody_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one in its place is packed, and what was not read of the other is not deleted."""
    out, spool = observed(tmp_path / "run"), tmp_path / "spool"
    mine = write_part(spool, header(), one_each("ab")[:1])
    whole = os.open

    def refused(path: Any, *arguments: Any, **options: Any) -> int:
        if Path(path) == mine:
            raise PermissionError(13, "Permission denied")
        return whole(path, *arguments, **options)

    with RunWriter.resume(out) as writer:
        packer = Packer(writer, spool)
        assert [] == packer.pack()
        append(mine, one_each("ab")[1:2])
        os.utime(mine, (1, 1))
        write_part(spool, header(pid=8, unix_ns=UNIX_NS + 10**9), [some(0, "z", 0, 500)])
        monkeypatch.setattr(os, "open", refused)
        assert [] == packer.pack()
        monkeypatch.undo()
        assert [] == packer.pack()
    assert ["a", "z"] == read_run(out).requests["request_id"].to_list()
    assert mine.exists()


def test_damage_that_a_killed_commit_saw_stays_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next packer makes the same rows, says the same, and deletes the same."""
    out, spool = observed(tmp_path / "run"), tmp_path / "spool"
    bad = write_part(spool, header(), one_each("abc")[:3])
    damage(bad)
    os.utime(bad, (1, 1))
    write_part(spool, header(pid=8, unix_ns=UNIX_NS + 10**9), [some(0, "z", 0, 500)])
    with RunWriter.resume(out) as writer:
        packer = Packer(writer, spool)

        def killed(_: Packer) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Packer, "_write", killed)
            with pytest.raises(KeyboardInterrupt):
                packer.pack()
    with RunWriter.resume(out) as writer:
        again = Packer(writer, spool)
        assert [] == again.pack()
        assert [True, False] == [bool(s.damage) for s in again.sessions.values()]
    assert ["a", "z"] == read_run(out).requests["request_id"].to_list()


# -- what the collector says of it -----------------------------------------------------------------


def test_a_spool_that_is_not_there_yet_is_no_failure(tmp_path: Path) -> None:
    """An engine makes it when it starts; the manifest says that there is none."""
    out, spool = observed(tmp_path / "run"), tmp_path / "spool"
    with RunWriter.resume(out) as writer:
        hook = SpoolHook(writer, spool)
        assert 0 == hook.pack(final=False)
        assert (True, None) == (hook.absent, hook.problem)
        manifest = hook.fill(dict(writer.manifest))
        writer.write_manifest(manifest)
        (note,) = manifest["recorder"]["notes"]
        assert note.startswith("no spool yet")
        assert None is manifest["recorder"]["complete"]
        write_part(spool, header(), one_each("a"))
        hook.pack(final=False)
        assert (False, None) == (hook.absent, hook.problem)
        assert [] == hook.fill(manifest)["recorder"]["notes"]


@pytest.mark.parametrize("late", [False, True])
def test_a_spool_that_cannot_be_packed_has_a_reason(tmp_path: Path, *, late: bool) -> None:
    """A rule of ours or the kind of error, in the recorder's notes until it is over."""
    out, spool = observed(tmp_path / "run"), tmp_path / "spool"
    spool.write_text("no directory")
    with RunWriter.resume(out) as writer:
        hook = SpoolHook(writer, spool)
        with pytest.raises(InputError):
            hook.pack(final=late)
        assert hook.problem is not None
        assert "must be a recorder's spool directory: Not a directory" in hook.problem
        manifest = hook.fill(dict(writer.manifest))
        writer.write_manifest(manifest)
        (note,) = manifest["recorder"]["notes"]
        assert note.startswith("the spool could not be packed, and is tried again: ")
        spool.unlink()
        write_part(spool, header(), one_each("a"))
        hook.pack(final=late)
        assert None is hook.problem
        assert [] == hook.fill(manifest)["recorder"]["notes"]


def test_an_error_of_the_disk_is_told_by_its_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its text may name anything."""
    out, spool = observed(tmp_path / "run"), tmp_path / "spool"
    spool.mkdir()

    def broken(*_: Any, **__: Any) -> None:
        raise BlockingIOError(11, "a secret")

    with RunWriter.resume(out) as writer:
        hook = SpoolHook(writer, spool)
        monkeypatch.setattr(Packer, "pack", broken)
        with pytest.raises(BlockingIOError):
            hook.pack(final=False)
        assert "BlockingIOError" == hook.problem


def test_a_state_that_somebody_damaged_is_a_failure_with_a_reason(tmp_path: Path) -> None:
    """The collector starts all the same."""
    out = observed(tmp_path / "run")
    (out / ".pack-state.json").write_text("{}")
    with RunWriter.resume(out) as writer:
        hook = SpoolHook(writer, tmp_path)
        with pytest.raises(InputError):
            hook.pack(final=False)
        assert "preemption-pack/1" in (hook.problem or "")
