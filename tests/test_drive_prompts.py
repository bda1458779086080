"""Prompts and schedules: the same on every machine, shared exactly where the workload says."""

from collections.abc import Sequence
from fractions import Fraction
from itertools import takewhile

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.drive.prompts import Prompts, TokenIds, token_ids
from collectors.drive.schedule import Plan, due_times, most_within, scheduled, speed_of
from replay.errors import InputError
from replay.workload import Request, Workload


def prompts_of(workload: Workload, seed: int = 0, ids: TokenIds | None = None) -> list[list[int]]:
    """Every prompt of a workload."""
    made = Prompts(workload, seed, ids or TokenIds())
    return [made.tokens(place, request) for place, request in enumerate(workload.requests)]


def shared(first: Sequence[int], second: Sequence[int]) -> int:
    """How many items two sequences begin with alike."""
    pairs = zip(first, second, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def request(name: str, tokens: int, *chunks: int) -> Request:
    """A request of so many prompt tokens."""
    return Request(name, 0, tokens, 1, prefix_blocks=chunks or None)


@st.composite
def workloads(draw: st.DrawFn) -> Workload:
    """A few requests that share chunks now and then."""
    chunk = draw(st.integers(4, 8))
    requests = []
    for k in range(draw(st.integers(1, 8))):
        chunks = draw(st.lists(st.integers(0, 3), max_size=4))
        least = max(1, chunk * (len(chunks) - 1) + 1)
        requests.append(request(f"r{k}", draw(st.integers(least, least + 20)), *chunks))
    return Workload(tuple(requests), chunk)


@given(workloads(), st.integers(0, 5), st.sampled_from([TokenIds(), TokenIds(3, 7)]))
def test_two_prompts_share_what_their_prefix_blocks_share_and_no_more(
    workload: Workload, seed: int, ids: TokenIds
) -> None:
    """The common prefix is the common chunks, plus less tokens than number all parts."""
    made = prompts_of(workload, seed, ids)
    parts = len(workload) + len({c for r in workload.requests for c in r.prefix_blocks or ()})
    digits = next(d for d in range(1, 9) if ids.count**d >= parts)
    assert workload.prefix_block_tokens is not None
    for a, first in enumerate(workload.requests):
        for b, second in enumerate(workload.requests[:a]):
            shortest = min(first.prompt_tokens, second.prompt_tokens)
            chunks = shared(first.prefix_blocks or (), second.prefix_blocks or ())
            said = min(chunks * workload.prefix_block_tokens, shortest)
            assert said <= shared(made[a], made[b]) < max(said + digits, said + 1)


@given(workloads(), st.integers(0, 2**53 - 1))
def test_prompts_have_exact_lengths_and_ids_in_the_range(workload: Workload, seed: int) -> None:
    """Each prompt has its request's tokens, all from LOW up to and without HIGH."""
    ids = TokenIds(50, 60)
    made = prompts_of(workload, seed, ids)
    assert [r.prompt_tokens for r in workload.requests] == [len(p) for p in made]
    assert set(range(50, 60)) >= {token for p in made for token in p}


def test_prompts_are_these_on_every_machine() -> None:
    """The tokens of a small workload, written down."""
    workload = Workload((request("a", 6, 7), request("b", 6, 7), request("c", 3)), 4)
    assert [
        [818, 858, 394, 479, 819, 491],
        [818, 858, 394, 479, 820, 502],
        [821, 462, 115],
    ] == prompts_of(workload, 1)


def test_another_seed_makes_other_prompts_from_the_first_token_on() -> None:
    """A cache that kept one run's prompts has no block of the next run's."""
    workload = Workload((request("a", 40),))
    first, second = (prompts_of(workload, seed)[0] for seed in (0, 1))
    assert first[0] != second[0]


def test_large_vocabularies_are_used_whole() -> None:
    """Ids beyond 65,536 come up, too."""
    (made,) = prompts_of(Workload((request("a", 1000),)), 0, TokenIds(0, 200_000))
    assert max(made) > 150_000


@pytest.mark.parametrize("text", ["", "1", "5:6", "9:3", "a:b", "-1:9", "1:99999999999"])
def test_a_range_that_is_none_is_refused(text: str) -> None:
    """LOW:HIGH has at least two ids."""
    with pytest.raises(InputError, match="--token-ids must be LOW:HIGH"):
        token_ids(text)


def test_a_gap_is_cut_before_the_speed_divides_it() -> None:
    """Ten times as fast with pauses of at most 1 s: 60 s of pause become 0.1 s."""
    arrivals = [0, 500_000, 60_500_000, 60_600_000]
    assert [0, 50_000, 150_000, 160_000] == due_times(arrivals, Fraction(10), 1_000_000)


@given(st.lists(st.integers(0, 10**12)).map(sorted), st.integers(1, 40), st.integers(1, 40))
def test_speed_divides_every_arrival_and_rounding_never_adds_up(
    arrivals: list[int], over: int, under: int
) -> None:
    """A due time is the arrival over the speed, less than a microsecond early."""
    speed = Fraction(over, under)
    due = due_times(arrivals, speed, None)
    assert all(0 <= a / speed - d < 1 for a, d in zip(map(Fraction, arrivals), due, strict=True))


@pytest.mark.parametrize("text", ["0", "-1", "x", "1/3", "nan", "1e9", ""])
def test_a_speed_that_is_none_is_refused(text: str) -> None:
    """From a thousandth to a million."""
    with pytest.raises(InputError, match="--speed must be a factor"):
        speed_of(text)


def test_speeds_are_exact() -> None:
    """2.2 is eleven fifths."""
    assert Fraction(11, 5) == speed_of("2.2")


def test_a_plan_says_how_many_requests_overlap() -> None:
    """Most requests that are due within a second, and within ten."""
    workload = Workload(tuple(Request(f"r{k}", k * 500_000, 3, 2) for k in range(6)))
    plan = Plan(workload).summary()
    assert {"1000000": 2, "10000000": 6} == plan["in_flight_if_each_took_us"]
    assert (6, 18, 12, 2_500_000) == tuple(
        plan[name] for name in ("requests", "prompt_tokens", "output_tokens", "duration_us")
    )
    assert 1 == most_within([0, 5], 5)


def test_a_workload_that_is_offered_again_is_received_anew() -> None:
    """When another engine received its requests says nothing of this one."""
    requests = tuple(Request(f"r{k}", 10 * k, 3, 1, engine_arrival_us=9 - k) for k in range(2))
    offered = scheduled(Workload(requests), Fraction(2), None).requests
    assert [(0, None), (5, None)] == [(r.arrival_us, r.engine_arrival_us) for r in offered]
