"""The schedule is kept, and how late it was is counted, by a clock of the test's own."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from collectors.drive.journal import End, Found, Journal, Settings, read_journal
from collectors.drive.loop import Driver, Stop
from collectors.drive.seen import Seen
from collectors.frames import read_frames
from replay.errors import InputError, OutputExists
from replay.workload import Request

SETTINGS = Settings("1", None, None, 0, 50_000, 1_000_000, None)
Sent = Callable[[Request, bytes, Seen], Awaitable[None]]


class FakeClock:
    """Time that only passes when somebody waits for it, or says so."""

    def __init__(self) -> None:
        self.ns = 0

    def unix_ns(self) -> int:
        """The same."""
        return self.ns

    def monotonic_ns(self) -> int:
        """Now."""
        return self.ns

    async def sleep_until(self, monotonic_ns: int, stop: asyncio.Event) -> None:
        """Be there at once."""
        await asyncio.sleep(0)
        if not stop.is_set():
            self.ns = max(self.ns, monotonic_ns)


def offered(
    tmp_path: Path,
    due_us: list[int],
    send: Sent,
    clock: FakeClock,
    *,
    concurrency: int | None = None,
    stop: Callable[[], Stop] = Stop,
    drain_us: int = 10_000,
    make: Callable[[int, Request], bytes] = lambda place, _: b"%d" % place,
) -> tuple[Driver, Found]:
    """Drive requests due at these times; the driver, and its journal read back."""
    requests = [Request(f"r{k}", due, 1, 1) for k, due in enumerate(due_us)]

    async def run() -> Driver:
        journal = Journal(tmp_path, SETTINGS)
        driver = Driver(
            requests,
            due_us,
            make,
            send,
            journal,
            clock,
            0,
            stop(),
            lateness_limit_us=50_000,
            concurrency=concurrency,
            drain_us=drain_us,
        )
        await driver.run()
        journal.close(End(driver.send_end_us, driver.now_us(), 0, None))
        return driver

    return asyncio.run(run()), read_journal(tmp_path, len(requests))


def test_every_request_is_sent_when_it_is_due_with_its_own_body(tmp_path: Path) -> None:
    """Whatever is made ahead, request k gets body k at its time."""
    sent = []

    async def send(request: Request, body: bytes, seen: Seen) -> None:
        sent.append((request.request_id, body, seen.sent_us))
        seen.status = "ok"

    driver, found = offered(tmp_path, [0, 10, 10, 5000], send, FakeClock())
    assert [("r0", b"0", 0), ("r1", b"1", 10), ("r2", b"2", 10), ("r3", b"3", 5000)] == sent
    assert (4, {"ok": 4}, 0) == (
        driver.counters.sent,
        driver.counters.statuses,
        driver.counters.late,
    )
    assert ["ok"] * 4 == [found.seen[k].status for k in range(4)]
    assert 5000 == driver.send_end_us


def test_a_client_that_falls_behind_counts_what_it_sent_late(tmp_path: Path) -> None:
    """A body that takes 60 ms makes the requests after it late by what is left of that."""
    clock = FakeClock()

    def make(place: int, _: Request) -> bytes:
        clock.ns += 60_000_000 if place == 1 else 0
        return b""

    async def send(_: Request, __: bytes, seen: Seen) -> None:
        seen.status = "ok"

    driver, found = offered(tmp_path, [0, 0, 5_000, 100_000], send, clock, make=make)
    assert [0, 60_000, 55_000, 0] == [found.seen[k].lateness_us for k in range(4)]
    assert 2 == driver.counters.late


def test_an_open_loop_waits_for_no_answer(tmp_path: Path) -> None:
    """All are sent although none ends; the drain ends them as censored."""

    async def send(_: Request, __: bytes, ___: Seen) -> None:
        await asyncio.Event().wait()

    def stopping() -> Stop:
        stop = Stop()
        asyncio.get_running_loop().call_later(0.05, stop.stop, "SIGINT")
        return stop

    driver, found = offered(tmp_path, [0, 1, 2], send, FakeClock(), stop=stopping)
    assert ["censored"] * 3 == [found.seen[k].status for k in range(3)]
    assert {"censored": 3} == driver.counters.statuses


def test_a_limit_holds_requests_back_and_that_is_not_lateness(tmp_path: Path) -> None:
    """With one at a time, the second is sent when the first ends."""
    clock, most, flying = FakeClock(), 0, 0

    async def send(_: Request, __: bytes, seen: Seen) -> None:
        nonlocal most, flying
        flying += 1
        most = max(most, flying)
        await asyncio.sleep(0.001)
        clock.ns += 200_000_000
        flying -= 1
        seen.status = "ok"

    driver, found = offered(tmp_path, [0, 1, 2], send, clock, concurrency=1)
    assert (1, 2, 0) == (most, driver.counters.held, driver.counters.late)
    assert [0, 0, 0] == [found.seen[k].lateness_us for k in range(3)]
    assert [0, 200_001, 400_001] == [found.seen[k].sent_us for k in range(3)]


def test_a_stop_leaves_the_rest_unsent(tmp_path: Path) -> None:
    """What was not due yet has no line in the journal."""
    stop = Stop()

    async def send(request: Request, _: bytes, seen: Seen) -> None:
        seen.status = "ok"
        if request.request_id == "r1":
            stop.stop("SIGTERM")

    _, found = offered(tmp_path, [0, 10_000, 20_000, 30_000], send, FakeClock(), stop=lambda: stop)
    assert {0, 1} == found.seen.keys()


def test_a_drive_that_cannot_work_stops_after_the_first_five(tmp_path: Path) -> None:
    """Five errors of one kind and no success, and the rest is not tried."""

    async def send(_: Request, __: bytes, seen: Seen) -> None:
        seen.status, seen.problem = "error", "http_400_BadRequestError"

    driver, found = offered(tmp_path, [k * 10_000 for k in range(50)], send, FakeClock())
    assert 5 <= len(found.seen) <= 6
    assert "the first 5 requests failed alike: http_400_BadRequestError" == driver._stop.why


def test_errors_of_two_kinds_stop_nothing(tmp_path: Path) -> None:
    """Whatever else is wrong, all are sent."""

    async def send(request: Request, _: bytes, seen: Seen) -> None:
        seen.status, seen.problem = "error", request.request_id

    _, found = offered(tmp_path, [k * 10_000 for k in range(20)], send, FakeClock())
    assert 20 == len(found.seen)


def test_a_fault_of_our_own_is_not_swallowed(tmp_path: Path) -> None:
    """It ends the drive with that error."""

    async def send(_: Request, __: bytes, ___: Seen) -> None:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        offered(tmp_path, [0, 10_000, 20_000], send, FakeClock())


def test_a_journal_cut_anywhere_gives_what_was_whole(tmp_path: Path) -> None:
    """Each prefix of the file reads as some requests, or says that it has no beginning."""
    journal = Journal(tmp_path, SETTINGS)
    for place in range(3):
        journal.sent(place, Seen(0, 0, place))
    journal.ended(1, Seen(0, 0, 1, status="ok"))
    journal.close(None)
    path = tmp_path / "drive.jsonl.gz"
    whole = path.read_bytes()
    found = read_journal(tmp_path, 3)
    assert (SETTINGS, None) == (found.settings, found.end)
    assert ["censored", "ok", "censored"] == [found.seen[k].status for k in range(3)]
    for end in range(len(whole)):
        path.write_bytes(whole[:end])
        if any(read_frames(path)):
            assert len(read_journal(tmp_path, 3).seen) <= 3
        else:
            with pytest.raises(InputError, match="journal of the workload"):
                read_journal(tmp_path, 3)


def test_a_journal_of_another_workload_is_refused(tmp_path: Path) -> None:
    """A place that the workload does not have is no request."""
    journal = Journal(tmp_path, SETTINGS)
    journal.sent(3, Seen(0, 0, 0))
    journal.close(None)
    with pytest.raises(InputError, match="journal of the workload"):
        read_journal(tmp_path, 3)


def test_a_disk_that_takes_no_line_fails_the_drive_in_words(tmp_path: Path) -> None:
    """The journal says so when it is closed."""
    journal = Journal(tmp_path, SETTINGS)
    journal.failed = OSError(28, "No space left on device")
    with pytest.raises(OutputExists, match="No space left on device"):
        journal.close(None)
