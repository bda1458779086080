"""What a client makes of a stream: tokens by usage, times by chunks, text nowhere."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectors.drive.seen import Seen, request_row
from collectors.drive.stream import MOST_EVENT_BYTES, BadStream, Events, Told, told, word
from collectors.tpot import tpot_us
from replay.workload import Request


def event(**fields: object) -> bytes:
    """A data line."""
    return b"data: " + json.dumps(fields).encode() + b"\n\n"


STREAM = (
    event(choices=[{"text": "one", "finish_reason": None}], usage={"completion_tokens": 1})
    + b": a comment\r\n\r\n"
    + event(choices=[{"text": "", "finish_reason": "length"}])
    + event(choices=[], usage={"prompt_tokens": 5, "completion_tokens": 4})
    + b"data: [DONE]\n\n"
)


@given(st.lists(st.integers(0, len(STREAM))))
def test_a_stream_reads_the_same_however_it_is_cut(cuts: list[int]) -> None:
    """Events are whole whatever chunks their bytes come in."""
    bounds = [0, *sorted(cuts), len(STREAM)]
    events = Events(10_000)
    found = [t for a, b in pairwise(bounds) for t in events.feed(STREAM[a:b])]
    assert [
        Told(token=True, completion_tokens=1),
        Told(finish_reason="length"),
        Told(prompt_tokens=5, completion_tokens=4),
        Told(done=True),
    ] == found


@pytest.mark.parametrize("data", [b"{", b"[1]", b"3", b"\xff", b"[" * 100_000])
def test_an_event_that_is_no_object_ends_the_stream(data: bytes) -> None:
    """Garbage is an error of its own, not an exception of a parser."""
    with pytest.raises(BadStream):
        told(data)


def test_a_line_without_end_and_a_stream_without_end_are_cut_off() -> None:
    """Neither takes more memory than its bound."""
    with pytest.raises(BadStream):
        list(Events(10**9).feed(b"data: " + b"x" * MOST_EVENT_BYTES))
    with pytest.raises(BadStream):
        list(Events(100).feed(b"\n" * 101))


@pytest.mark.parametrize("value", ["a prompt", "x" * 65, "", 3, None, "é", "1;2"])
def test_only_short_words_are_taken_from_a_server(value: object) -> None:
    """What could be content is not."""
    assert word(value) is None


@pytest.mark.parametrize("reason", ["length", "stop", "BadRequestError"])
def test_a_server_s_own_words_are_kept(reason: str) -> None:
    """Such as a finish reason."""
    assert reason == word(reason)


@pytest.mark.parametrize(
    ("first", "last", "tokens", "expected"),
    [
        (10, 20, 2, 10),
        (0, 5, 3, 3),
        (0, 7, 4, 2),
        (0, 8, 4, 3),
        (0, 0, 1, None),
        (0, 9, None, None),
    ],
)
def test_tpot_is_the_nearest_microsecond(
    first: int, last: int, tokens: int | None, expected: int | None
) -> None:
    """(last - first) / (n - 1), None where there is nothing to divide."""
    assert expected == tpot_us(first, last, tokens)


def test_the_largest_gap_is_between_chunks_with_tokens() -> None:
    """One chunk has none."""
    one, more = Seen(0, 0, 0), Seen(0, 0, 0)
    one.token(10)
    for now in (10, 30, 35, 36):
        more.token(now)
    assert [None, 20] == [one.largest_gap_us, more.largest_gap_us]
    assert (10, 36, 4) == (more.first_us, more.last_us, more.chunks)
    rows = [request_row(Request("r", 0, 8, 4), 0, seen) for seen in (one, more, None)]
    assert [None, 20, None] == [row["largest_gap_us"] for row in rows]


def test_a_request_that_was_never_sent_has_a_row_at_its_due_time() -> None:
    """Unsent, and nothing measured."""
    row = request_row(Request("a", 5, 7, 9, -1, "t", None), 42, None)
    measured = {k: v for k, v in row.items() if v is not None}
    assert {
        "request_id": "a",
        "arrival_us": 42,
        "prompt_tokens": 7,
        "max_tokens": 9,
        "priority": -1,
        "tenant": "t",
        "status": "unsent",
    } == measured


def test_an_unfinished_request_keeps_its_first_token_and_claims_no_end() -> None:
    """TTFT was measured; e2e and TPOT were not."""
    seen = Seen(0, 0, 100, first_us=150, last_us=190, completion_tokens=3)
    row = request_row(Request("a", 0, 7, 9), 0, seen)
    assert ("censored", 50, 3, None, None) == tuple(
        row[name] for name in ("status", "ttft_us", "generated_tokens", "tpot_us", "e2e_us")
    )
