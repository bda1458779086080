"""What a row of scrapes shows: gaps, resets, several workers, clock steps, stale gauges."""

from collections.abc import Sequence

import pytest

from collectors.scrape.facts import Identity, cache_facts
from collectors.scrape.watch import MOST_LISTED, Counts, Moment, Series, Watch

SECOND_US = 1_000_000
TOKENS = Series("prompt_tokens", 0, "tiny", "{}")
PREEMPTIONS = Series("num_preemptions", 0, "tiny", "{}")


def moment(scrape: int, at_s: float | None = None, outcome: str = "ok", **more: int) -> Moment:
    """Scrape `scrape`, a second after the one before unless it says when."""
    time_us = int((scrape if at_s is None else at_s) * SECOND_US)
    clocks = {"unix_ns": time_us * 1000, "monotonic_ns": time_us * 1000, "session": 0} | more
    return Moment(scrape, time_us, duration_us=1000, outcome=outcome, **clocks)


def watched(
    values: Sequence[float | None],
    created: Sequence[float] | None = None,
    started: Sequence[float] | None = None,
) -> Watch:
    """A watch that saw one counter with these values; None is a scrape that failed."""
    watch = Watch(SECOND_US)
    for k, value in enumerate(values):
        if value is None:
            watch.see(moment(k, outcome="refused"), None)
            continue
        made = {} if created is None else {TOKENS: created[k]}
        watch.see(moment(k), Counts({TOKENS: value}, made, started and started[k]))
    return watch


def falls(watch: Watch) -> list[tuple[int, float, float]]:
    """Scrape, value before and after of each reset."""
    return [(r["scrape"], r["before"], r["after"]) for r in watch.resets]


def test_a_gap_lies_between_the_scrapes_around_it_and_has_its_reason() -> None:
    """Failures are counted by outcome, one gap for a row of them."""
    watch = watched([1, 2, None, None, 3, 4])
    expected = {
        "start_us": 1 * SECOND_US,
        "end_us": 4 * SECOND_US,
        "scrapes_missed": 2,
        "reason": "refused: 2",
    }
    assert [expected] == watch.gaps
    assert None is watch.open_gap()


def test_a_gap_that_has_not_ended_is_shown_as_far_as_it_goes() -> None:
    """A collection that ends while nobody answers says so."""
    watch = watched([1, None, None])
    assert [] == watch.gaps
    found = watch.open_gap()
    assert found is not None
    assert (0, 2 * SECOND_US, 2) == (found["start_us"], found["end_us"], found["scrapes_missed"])


def test_scrapes_left_out_are_a_gap_without_failures() -> None:
    """A scrape that took three intervals leaves out two."""
    watch = Watch(SECOND_US)
    for scrape, at_s in enumerate((0, 1, 4, 5)):
        watch.see(moment(scrape, at_s), Counts({}))
    assert [("late, an earlier scrape took too long: 2", 2)] == [
        (g["reason"], g["scrapes_missed"]) for g in watch.gaps
    ]


@pytest.mark.parametrize(("told", "reasons"), [(False, ["not_kept: 2"]), (True, [])])
def test_scrapes_that_nothing_is_left_of_were_not_late(told: bool, reasons: list[str]) -> None:
    """They are a gap of their own, unless another one names them already."""
    watch = Watch(SECOND_US)
    watch.see(moment(0), Counts({}))
    watch.missed(2, told=told)
    watch.see(moment(3), Counts({}))
    watch.see(moment(4), Counts({}))
    assert reasons == [gap["reason"] for gap in watch.gaps]


def test_a_time_without_a_collector_is_told_from_a_slow_one() -> None:
    """The next start has another session."""
    watch = Watch(SECOND_US)
    watch.see(moment(0), Counts({}))
    watch.see(moment(1, 10, session=1), Counts({}))
    assert ["collector not running: 9"] == [g["reason"] for g in watch.gaps]


def test_a_counter_that_fell_was_reset() -> None:
    """Nothing but the value is needed."""
    assert [(2, 9, 3)] == falls(watched([5, 9, 3, 4]))


def test_a_reset_that_overtook_the_old_value_is_seen_by_its_birth() -> None:
    """`_created`, where there is one, moves although the value did not fall."""
    assert [(2, 9, 20)] == falls(watched([5, 9, 20, 21], created=[1.0, 1.0, 50.0, 50.0]))


def test_a_process_that_began_later_reset_what_it_counts() -> None:
    """The process's start is as good as a fall."""
    assert [(2, 9, 20)] == falls(watched([5, 9, 20, 21], started=[10.0, 10.0, 99.0, 99.0]))


def test_a_restart_after_silence_is_one_reset() -> None:
    """However long nobody answered."""
    watch = watched([50, None, None, 2, 3], started=[10.0, 0.0, 0.0, 70.0, 70.0])
    assert [(3, 50, 2)] == falls(watch)
    assert None is watch.workers.since


def test_counters_above_zero_at_the_start_are_no_reset() -> None:
    """A directory of multiprocess files that is used again begins where it ended."""
    assert [] == watched([500, 501]).resets


@pytest.mark.parametrize("workers", [2, 3])
def test_workers_that_take_turns_are_no_resets(workers: int) -> None:
    """Values alone: each worker's own counter rises, the page's saws."""
    counts = [100.0, 40.0, 70.0][:workers]
    values = []
    for k in range(24):
        counts[k % workers] += 1
        values.append(counts[k % workers])
    watch = watched(values)
    assert watch.workers.since is not None
    assert [] == watch.resets
    assert ["several workers answer"] == [note[:22] for note in watch.notes]


def test_a_process_that_comes_back_was_never_gone() -> None:
    """With the process's start, the second turn is enough, even where counters stand at zero."""
    watch = watched([0, 5, 0, 5], started=[10.0, 20.0, 10.0, 20.0])
    assert watch.workers.since is not None
    assert [] == watch.resets


def test_a_restart_on_a_clock_that_was_set_back_is_one_worker() -> None:
    """Its process begins before the one it follows, and that one never comes back."""
    watch = watched([7, 9, 2, 3, 4], started=[50.0, 50.0, 20.0, 20.0, 20.0])
    assert None is watch.workers.since
    assert [(2, 9, 2)] == falls(watch)
    later = watched([7, 9, 2, 10, 4], started=[50.0, 50.0, 20.0, 50.0, 20.0])
    assert later.workers.since is not None
    assert [] == later.resets


def test_births_of_counters_tell_workers_apart_too() -> None:
    """Where a page has no process start."""
    watch = watched([7, 5, 8, 6], created=[10.0, 20.0, 10.0, 20.0])
    assert watch.workers.since is not None
    assert [] == watch.resets


def test_restart_after_restart_is_no_saw_tooth() -> None:
    """A crash loop: the values fall, and no earlier sequence comes back."""
    values = [50, 60, 3, 8, 1, 9, 0, 7, 0, 6, 0, 5]
    starts = [10.0, 10.0, 20.0, 20.0, 30.0, 30.0, 40.0, 40.0, 50.0, 50.0, 60.0, 60.0]
    watch = watched([float(v) for v in values], started=starts)
    assert None is watch.workers.since
    assert [2, 4, 6, 8, 10] == [scrape for scrape, *_ in falls(watch)]
    assert None is watched([50.0, 60.0, 0.0, 8.0, 0.0, 9.0, 0.0, 7.0]).workers.since


def test_the_wall_clock_may_step_and_times_do_not() -> None:
    """A step is a note; a clock that is slewed is none."""
    watch = Watch(SECOND_US)
    for scrape in range(4):
        offset = 3_600 * 1_000_000_000 if scrape >= 2 else 400_000 * scrape
        unix_ns = scrape * 1_000_000_000 + offset
        watch.see(moment(scrape, unix_ns=unix_ns), Counts({}))
    assert 1 == len(watch.notes)
    assert watch.notes[0].startswith("the wall clock stepped by 3599999 ms before scrape 2")


@pytest.mark.parametrize(("running", "notes"), [(106.0, 1), (0.0, 0), (None, 0)])
def test_gauges_without_moving_tokens_are_stale_not_load(running: float | None, notes: int) -> None:
    """Running requests of which no token comes for a minute."""
    watch = Watch(SECOND_US)
    for scrape in range(90):
        watch.see(moment(scrape), Counts({TOKENS: 7}, tokens=7.0, running=running))
    assert notes == len(watch.notes)


def test_moving_tokens_are_load() -> None:
    """Slow is not stale."""
    watch = Watch(SECOND_US)
    for scrape in range(200):
        tokens = float(scrape // 50)
        watch.see(moment(scrape), Counts({TOKENS: tokens}, tokens=tokens, running=3.0))
    assert [] == watch.notes


def test_lists_have_an_end() -> None:
    """A server that fails every other time for a week fills no memory and no manifest."""
    watch = watched([None if k % 2 else 1.0 for k in range(3 * MOST_LISTED)])
    assert MOST_LISTED == len(watch.gaps)
    assert {"gaps": MOST_LISTED // 2 - 1} == dict(watch.unlisted)


def facts(**labels: str) -> dict[str, object]:
    """Cache facts of one engine with these labels."""
    return dict(cache_facts([labels])[0])


def test_labels_that_say_none_are_unknown() -> None:
    """The text "None" is no value, and a label that a release lacks is none either."""
    found = facts(block_size="16", num_gpu_blocks="None", kv_cache_memory_bytes="None")
    assert (16, None, None) == (
        found["block_size"],
        found["num_gpu_blocks"],
        found["kv_cache_memory_bytes"],
    )
    assert None is found["num_gpu_blocks_overridden"]


def test_bytes_per_token_need_blocks_that_were_measured() -> None:
    """Memory over tokens, unless somebody chose the number of blocks."""
    labels = {
        "block_size": "16",
        "num_gpu_blocks": "100",
        "kv_cache_memory_bytes": "3276800",
        "num_gpu_blocks_override": "None",
    }
    assert 2048 == facts(**labels)["kv_bytes_per_token"]
    assert 99 == facts(**labels)["capacity_blocks"]
    assert None is facts(**labels | {"num_gpu_blocks_override": "100"})["kv_bytes_per_token"]


def test_tokens_are_believed_where_the_block_size_disagrees() -> None:
    """A label can be the block size of another cache group."""
    labels = {"block_size": "4", "num_gpu_blocks": "100", "kv_cache_size_tokens": "25600"}
    found, notes = cache_facts([labels])
    assert 256 == found["block_size"]
    assert 1 == len(notes)
    found, notes = cache_facts([labels | {"kv_cache_size_tokens": "25601"}])
    assert None is found["block_size"]
    assert 1 == len(notes)


@pytest.mark.parametrize(
    ("blocks", "tokens", "expected"),
    [("64", "1024", 32), ("32", "1024", 32), ("64", "None", None), ("48", "1024", None)],
    ids=["the sum of both", "its own", "nothing tells", "neither"],
)
def test_blocks_of_two_engines_are_those_of_one(
    blocks: str, tokens: str, expected: int | None
) -> None:
    """Behind one API server vLLM shows each engine the sum of all; the tokens are one's."""
    labels = {"block_size": "32", "num_gpu_blocks": blocks, "kv_cache_size_tokens": tokens}
    found, _ = cache_facts([labels, labels])
    assert (expected, 32) == (found["num_gpu_blocks"], found["block_size"])


def test_engines_that_differ_share_no_fact() -> None:
    """One page, two engines, two numbers of blocks: neither is the run's."""
    infos = [
        {"block_size": "16", "num_gpu_blocks": str(n), "kv_cache_size_tokens": str(16 * n)}
        for n in (10, 20)
    ]
    found, notes = cache_facts(infos)
    assert None is found["num_gpu_blocks"]
    assert "engines on this page differ in cache.num_gpu_blocks" in notes


def test_a_configuration_differs_only_in_what_is_known_of_both() -> None:
    """An engine that does not say its release is no other engine."""
    one = Identity("0.32.0", frozenset({"m"}), {"0": frozenset({("a", "1")})})
    assert not one.differs(Identity(None, frozenset(), {}))
    assert not one.differs(Identity("0.32.0", frozenset({"m", "adapter"}), {}))
    assert one.differs(Identity("0.32.1", frozenset({"m"}), {}))
    assert one.differs(Identity(None, frozenset({"other"}), {}))
    assert one.differs(Identity(None, frozenset(), {"0": frozenset({("a", "2")})}))
