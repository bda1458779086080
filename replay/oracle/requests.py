"""What the vllm-v1 walk knows of each request, and the two queues that requests wait in."""

from bisect import bisect_left, insort
from collections import deque
from dataclasses import dataclass, field
from typing import Protocol

from replay.events import Kind
from replay.oracle.blocks import Block
from replay.workload import Request

Key = tuple[int, int, int]


@dataclass(eq=False)
class Progress:
    """One request: its workload row and how far it has come.

    Tokens and blocks as docs/vllm-v1.md names them; `in_flight` is 1 while a token is sampled but
    not delivered (asynchronous scheduling).
    """

    index: int
    request: Request
    arrival_tick: int = field(init=False)  # once it has arrived
    prompt: int = field(init=False)
    known: int = field(init=False)
    last: int = field(init=False)  # `known` when it is complete
    key: Key = field(init=False)  # (priority, arrival time, place): without times, place decides
    computed: int = 0
    in_flight: int = 0
    held: int = 0  # blocks
    blocks: list[Block] = field(default_factory=list)  # the same, with prefix caching
    named: int = 0  # how many of them have a name
    running: bool = False
    done: bool = False
    comes_back_by: str = "prefill"  # or replay, restore
    prefill_to: int = 0  # `known` at admission; 0 in a stay that began with a restore
    replayed: int | None = None  # what the replay under way computes again
    furthest_lost: int = 0
    on_host_tokens: int = 0
    out_left: int = 0  # bytes of its swap-out that have not drained
    in_left: int = 0  # bytes its restore has not brought back
    preemptions: int = 0
    waited: int = 0  # accountings before it joined the queue for the last time
    waits_since: int | None = None  # accounting at which it did so, None outside the queue
    flagged: set[Kind] = field(default_factory=set)

    def __post_init__(self) -> None:
        row = self.request
        self.prompt = self.known = row.prompt_tokens
        self.last = row.prompt_tokens + row.output_tokens
        self.key = (row.priority, row.engine_arrival_us or 0, self.index)

    @property
    def generated(self) -> int:
        """Tokens delivered."""
        return self.known - self.prompt

    @property
    def work_left(self) -> int:
        """Tokens that this stay's prefill or replay has not scheduled yet."""
        return max(self.prefill_to - self.computed, 0)


class Waiting(Protocol):
    """The requests that are not running, the next to be admitted first."""

    def __len__(self) -> int: ...

    def head(self) -> Progress:
        """Return the next to be admitted."""

    def join(self, who: Progress) -> None:
        """Take in an arrival."""

    def rejoin(self, who: Progress) -> int:
        """Take in a victim; gives its place, 0 = next."""

    def leave(self, who: Progress) -> None:
        """Let go of one, wherever it stands."""


class FirstCome:
    """`fcfs`: arrivals to the back, victims to the front."""

    def __init__(self) -> None:
        self._line: deque[Progress] = deque()

    def __len__(self) -> int:
        return len(self._line)

    def head(self) -> Progress:
        """Return the next to be admitted."""
        return self._line[0]

    def join(self, who: Progress) -> None:
        """Take in an arrival."""
        self._line.append(who)

    def rejoin(self, who: Progress) -> int:
        """Take in a victim; gives its place, 0 = next."""
        self._line.appendleft(who)
        return 0

    def leave(self, who: Progress) -> None:
        """Let go of one, wherever it stands."""
        self._line.remove(who)


class MostImportant:
    """`priority`: by (priority, arrival time), victims too."""

    def __init__(self) -> None:
        self._line: list[Progress] = []

    def __len__(self) -> int:
        return len(self._line)

    def head(self) -> Progress:
        """Return the next to be admitted."""
        return self._line[0]

    def join(self, who: Progress) -> None:
        """Take in an arrival."""
        insort(self._line, who, key=_key)

    def rejoin(self, who: Progress) -> int:
        """Take in a victim; gives its place, 0 = next."""
        self.join(who)
        return bisect_left(self._line, who.key, key=_key)

    def leave(self, who: Progress) -> None:
        """Let go of one, wherever it stands."""
        del self._line[bisect_left(self._line, who.key, key=_key)]


def _key(who: Progress) -> Key:
    return who.key
