"""Which of an engine's sessions gave their place to a later one, by when they were written."""

import os
from pathlib import Path

from spools import header, write_part

from collectors.pack.turns import SILENT_S, over_before, replaced
from collectors.spool import Key, list_parts

NOW_S = 1_764_482_462


def session(spool: Path, unix_ns: int, written_s: float, *, engine: int = 0, part: int = 0) -> Key:
    """A session whose last part was written then."""
    path = write_part(spool, header(unix_ns=unix_ns, engine=engine, part=part), [])
    os.utime(path, (written_s, written_s))
    return Key(unix_ns, engine, 7)


def test_a_session_that_is_silent_while_a_later_one_writes_gave_its_place(tmp_path: Path) -> None:
    """More than thirty seconds: a recorder that lives writes every ten."""
    old = session(tmp_path, 1, NOW_S)
    session(tmp_path, 2, NOW_S + SILENT_S + 1)
    assert {old} == replaced(list_parts(tmp_path))


def test_a_session_that_wrote_a_moment_ago_keeps_its_place(tmp_path: Path) -> None:
    """However many began after it: two servers may share a directory."""
    session(tmp_path, 1, NOW_S)
    session(tmp_path, 2, NOW_S + SILENT_S)
    assert set() == replaced(list_parts(tmp_path))


def test_a_session_that_nobody_follows_keeps_its_place(tmp_path: Path) -> None:
    """The last one may be idle or killed, nobody can tell; an earlier one takes no place."""
    session(tmp_path, 1, NOW_S + 3600)
    session(tmp_path, 2, NOW_S)
    assert set() == replaced(list_parts(tmp_path))


def test_engines_take_no_place_from_each_other(tmp_path: Path) -> None:
    """Data-parallel engines write beside each other."""
    session(tmp_path, 1, NOW_S, engine=0)
    session(tmp_path, 2, NOW_S + 3600, engine=1)
    assert set() == replaced(list_parts(tmp_path))


def test_any_later_session_of_the_engine_can_have_taken_the_place(tmp_path: Path) -> None:
    """The one in the middle is silent, too, the last one writes."""
    first, second = session(tmp_path, 1, NOW_S), session(tmp_path, 2, NOW_S + 10)
    session(tmp_path, 3, NOW_S + 100)
    assert {first, second} == replaced(list_parts(tmp_path))


def test_the_last_part_of_a_session_tells_when_it_wrote(tmp_path: Path) -> None:
    """Its first part is old as soon as there is another."""
    session(tmp_path, 1, NOW_S)
    session(tmp_path, 1, NOW_S + 3600, part=1)
    session(tmp_path, 2, NOW_S + 3610)
    assert set() == replaced(list_parts(tmp_path))


def test_a_session_whose_file_has_gone_wrote_never(tmp_path: Path) -> None:
    """Somebody deleted it between two looks."""
    old = session(tmp_path, 1, NOW_S)
    session(tmp_path, 2, NOW_S)
    listed = list_parts(tmp_path)
    listed[old][-1].path.unlink()
    assert {old} == replaced(listed)


def test_a_session_was_over_before_a_run_that_its_follower_preceded(tmp_path: Path) -> None:
    """It wrote nothing since, and its place was taken before: the run is not about it."""
    zero_ns = NOW_S * 10**9
    over = session(tmp_path, zero_ns - 9 * 10**9, NOW_S - 8)
    session(tmp_path, zero_ns - 7 * 10**9, NOW_S + 5)
    assert {over} == over_before(list_parts(tmp_path), zero_ns)


def test_a_session_that_is_replaced_after_the_run_began_is_the_runs(tmp_path: Path) -> None:
    """So is one that wrote since, and one that nobody followed."""
    zero_ns = NOW_S * 10**9
    session(tmp_path, zero_ns - 9 * 10**9, NOW_S - 8)
    session(tmp_path, zero_ns + 1, NOW_S + 5)
    session(tmp_path, zero_ns - 9 * 10**9, NOW_S + 1, engine=1)
    session(tmp_path, zero_ns - 1 * 10**9, NOW_S + 5, engine=1)
    session(tmp_path, zero_ns - 9 * 10**9, NOW_S - 8, engine=2)
    assert set() == over_before(list_parts(tmp_path), zero_ns)
