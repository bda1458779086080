"""Silence of a server is told once, ends a drive in time, and is not seen where nobody asked."""

from types import SimpleNamespace
from typing import Any, cast

import pytest

from collectors.drive.client import unanswered
from collectors.drive.loop import Counters, Driver
from collectors.drive.pulse import WARN_US, Pulse
from collectors.drive.seen import Seen
from preempt.commands.collect_drive import Status
from preempt.commands.options import say

S = 1_000_000
NOTHING = (None, None)


def test_silence_on_open_requests_is_told_once_and_then_given_up() -> None:
    """The line comes after a quarter of a minute, the end after what was asked for."""
    pulse = Pulse(120 * S)
    pulse.sent(0)
    assert NOTHING == pulse.look(WARN_US - 1, 8)
    said = "no token from the server for 15 s, open requests: 8"
    assert (f"{said}; given up after 2m", None) == pulse.look(WARN_US, 8)
    assert NOTHING == pulse.look(119 * S, 9)
    gone = "the server is gone, no token from the server for 120 s, open requests: 9"
    assert (None, gone) == pulse.look(120 * S, 9)


def test_a_byte_of_any_request_ends_the_silence() -> None:
    """How long it was is told, if it was told that it was."""
    pulse = Pulse(120 * S)
    pulse.sent(0)
    pulse.alive(10 * S)
    assert NOTHING == pulse.look(24 * S, 3)
    assert pulse.look(25 * S, 3)[0] is not None
    pulse.alive(30 * S)
    assert ("the server answers again, after 20 s", None) == pulse.look(31 * S, 3)
    assert NOTHING == pulse.look(32 * S, 3)


def test_failures_without_an_answer_are_silence_too() -> None:
    """Refused connections count from the first send without an answer to the last failure."""
    pulse = Pulse(120 * S)
    for at in range(0, 120 * S, 10 * S):
        pulse.sent(at)
        pulse.ended(at, 0, "refused")
        assert pulse.look(at + 9 * S, 0)[1] is None
    pulse.sent(120 * S)
    pulse.ended(120 * S, 0, "refused")
    gone = "no token from the server for 120 s, open requests: 0, failed: 13 (refused)"
    assert (None, f"the server is gone, {gone}") == pulse.look(120 * S, 0)


def test_one_failure_long_ago_is_no_reason_to_give_up() -> None:
    """Between two requests nobody knows whether the server is there."""
    pulse = Pulse(120 * S)
    pulse.sent(0)
    pulse.ended(0, 0, "refused")
    assert NOTHING == pulse.look(1000 * S, 0)
    pulse.sent(1000 * S)
    pulse.alive(1000 * S)
    assert NOTHING == pulse.look(1001 * S, 1)


def test_where_nothing_is_awaited_time_does_not_count() -> None:
    """An hour without a request is no silence."""
    pulse = Pulse(120 * S)
    pulse.sent(0)
    pulse.alive(1 * S)
    pulse.ended(2 * S, 0, None)
    assert NOTHING == pulse.look(3600 * S, 0)
    pulse.sent(3600 * S)
    assert NOTHING == pulse.look(3601 * S, 1)


def test_whoever_never_gives_up_is_told_all_the_same() -> None:
    """The line names no limit."""
    pulse = Pulse(None)
    pulse.sent(0)
    assert ("no token from the server for 9999 s, open requests: 1", None) == pulse.look(
        9999 * S, 1
    )
    assert NOTHING == pulse.look(10**9 * S, 1)


@pytest.mark.parametrize(
    ("seen", "problem"),
    [
        ({"problem": "timeout"}, "timeout"),
        ({"http_status": 200, "problem": "timeout", "status": "aborted"}, "timeout"),
        ({"http_status": 200, "problem": "cut_off", "status": "error", "chunks": 1}, None),
        ({"http_status": 200, "status": "ok"}, None),
        ({"http_status": 404, "problem": "http_404"}, None),
        ({"http_status": 429, "problem": "http_429"}, None),
        ({"http_status": 503, "problem": "http_503"}, None),
        ({"http_status": 502, "problem": "http_502"}, "http_502"),
        ({}, "cancelled"),
    ],
)
def test_only_silence_and_failures_of_the_server_itself_are_no_answer(
    seen: dict[str, Any], problem: str | None
) -> None:
    """A refusal is an answer, and so is being busy; headers without a token are none."""
    assert problem == unanswered(Seen(0, 0, 0, **seen))


def driver(now_us: int, sent: int) -> Driver:
    """As much of a driver as is shown."""
    counters = Counters(sent=sent, late=2)
    counters.statuses.update({"ok": 7, "error": 3})
    return cast("Driver", SimpleNamespace(counters=counters, in_flight=4, now_us=lambda: now_us))


def test_without_a_terminal_there_is_a_line_every_half_minute(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """It says what was sent, what came of it, and how long it still takes."""
    status = Status(1000, 300 * S)
    for second in range(0, 91, 1):
        status(driver(second * S, 14))
    lines = capsys.readouterr().err.splitlines()
    assert 3 == len(lines)
    said = "14 of 1000 sent, 4 open, 10 finished (3 failed), 2 late, last in 270 s"
    assert f"30 s: {said}" == lines[0]
    assert 80 > max(map(len, lines))


def test_a_schedule_that_is_over_is_not_a_time_to_go(capsys: pytest.CaptureFixture[str]) -> None:
    """A closed loop can be behind it, and in the end everything is sent."""
    for sent, said in ((14, "last due 100 s ago"), (1000, "all sent")):
        Status(1000, 300 * S)(driver(400 * S, sent))
        assert capsys.readouterr().err.endswith(f"2 late, {said}\n")


def test_a_terminal_gets_one_line_that_fits(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is overwritten, and taken off before a line that stays."""
    monkeypatch.setenv("COLUMNS", "60")
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    status: Any = Status(1000, 300 * S)
    status(driver(1 * S, 14))
    status.before(say)("the server answers again")
    shown, after = capsys.readouterr().err.split("\r\x1b[K")[1:]
    assert (59, "the server answers again\n") == (len(shown), after)
