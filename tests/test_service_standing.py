"""What becomes of an engine is told when it changes, and never once a scrape."""

from collections import Counter
from pathlib import Path

from collectors.service.standing import DOWN_AFTER, Standing

S = 1_000_000_000
RUN = Path("/out/chat/run")


class Engine:
    """An engine's standing, fed one scrape a second."""

    def __init__(self) -> None:
        self.standing, self.outcomes, self.now_ns = Standing(0), Counter[str](), 0
        self.problems: dict[str, int] = {}
        self.run: Path | None = RUN

    def scrapes(self, count: int, outcome: str = "ok", **problems: int) -> list[str]:
        """Lines told in so many scrapes; problems rise by so much with each."""
        lines = []
        for _ in range(count):
            self.now_ns += S
            self.outcomes[outcome] += 1
            for kind, more in problems.items():
                self.problems[kind] = self.problems.get(kind, 0) + more
            lines += self.standing.see(self.outcomes, self.problems, self.run, self.now_ns)
        return lines


def test_the_first_samples_are_told_and_no_later_ones() -> None:
    """With where they go."""
    assert ["first samples; its run is /out/chat/run"] == Engine().scrapes(1000)


def test_down_and_back_are_a_line_each() -> None:
    """The reason is the outcome of the scrape that made it three; others are in /healthz."""
    engine = Engine()
    engine.scrapes(10)
    assert [] == engine.scrapes(DOWN_AFTER - 1, "timeout")
    assert ["down: refused"] == engine.scrapes(1, "refused")
    assert [] == engine.scrapes(100, "http_500")
    assert ("http_500", 11 * S) == (engine.standing.last_error, engine.standing.failing_since_ns)
    assert ["answers again, after 103s, 103 scrapes without samples"] == engine.scrapes(1)
    assert [] == engine.scrapes(10)
    assert engine.standing.failing_since_ns is None


def test_an_engine_that_was_never_there_is_told_too() -> None:
    """And its first samples say that it is."""
    engine = Engine()
    engine.run = None
    assert ["down: refused"] == engine.scrapes(10, "refused")
    engine.run = RUN
    assert ["answers again, after 10s, 10 scrapes without samples"] == engine.scrapes(1)


def test_a_scrape_that_fails_now_and_then_is_not_down() -> None:
    """Two in a row are in the counts."""
    engine = Engine()
    engine.scrapes(1)
    for _ in range(100):
        assert [] == engine.scrapes(2, "timeout") + engine.scrapes(1)


def test_up_and_down_is_told_once_a_minute() -> None:
    """With how often it was so in between."""
    engine = Engine()
    engine.scrapes(1)
    lines = [line for _ in range(60) for line in engine.scrapes(5, "refused") + engine.scrapes(5)]
    downs = [line for line in lines if line.startswith("down")]
    assert 10 == len(downs)
    assert "down: refused (and so 5 times since that was last told)" == downs[-1]
    assert 20 == len(lines)


def test_another_run_is_told() -> None:
    """Its path, which is ours."""
    engine = Engine()
    engine.scrapes(1)
    engine.run = Path("/out/chat/run-2")
    assert ["a new run: /out/chat/run-2"] == engine.scrapes(5)


def test_a_full_disk_is_told_once_and_again_after_ten_minutes_and_when_it_is_over() -> None:
    """And stands among the reasons as long as it lasts."""
    engine = Engine()
    engine.scrapes(1)
    said = "disk_full: the disk is full; scrapes wait in memory, up to 16 MiB"
    assert [said] == engine.scrapes(600, disk_full=1)
    assert [said] == engine.standing.troubles()
    assert [f"still {said} (601 times by now)"] == engine.scrapes(1, disk_full=1)
    assert [] == engine.scrapes(59)
    assert ["over since 1m: disk_full"] == engine.scrapes(100)
    assert [] == engine.standing.troubles()
    assert [said] == engine.scrapes(1, disk_full=1)


def test_lost_scrapes_and_failed_rotations_are_told_by_kind() -> None:
    """Each once."""
    lines = Engine().scrapes(30, settle_failed=1, not_written=2)
    assert ["first", "settle_failed:", "not_written:"] == [line.split(" ")[0] for line in lines]
