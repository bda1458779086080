"""What is kept of a session between its records: plain data that a state file can hold."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Window:
    """Which requests belong to the run: those that arrive from 0 to `end_us` (None: no end).

    In a driven run an offered id belongs to the first request that arrives within the first and
    last microsecond that `offered` has for it, by the engine's clock; others of that id are
    strangers. Everything is moved by `shift_us`: the clocks of two hosts differ.
    """

    end_us: int | None = None
    offered: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    shift_us: int = 0

    def owns(self, at_us: int, request_id: str) -> bool | None:
        """Whether an offered id that arrived then can be the offered one; None: not offered."""
        times = self.offered.get(request_id)
        return None if times is None else times[0] <= at_us <= times[1]

    def holds(self, at_us: int, request_id: str) -> bool:
        """Whether a request that arrived then is the run's."""
        if self.owns(at_us, request_id):
            return True
        return at_us + self.shift_us >= 0 and (self.end_us is None or at_us <= self.end_us)

    def moved(self, at_us: int) -> int:
        """Time in the run's rows."""
        return max(at_us + self.shift_us, 0)


@dataclass
class Open:
    """A request that has not ended: what its row will hold."""

    client_id: str
    prompt_tokens: int
    max_tokens: int | None
    priority: int | None
    prefix_blocks: list[int] | None
    engine_arrival_us: int | None
    seen_blocks: int  # leading blocks of the prompt that an earlier prompt had
    request_id: str | None = None  # in rows; None until its first event, and for a stranger
    kept: bool | None = None
    arrival_us: int | None = None
    admit_us: int | None = None
    cached_tokens: int | None = None
    num_preemptions: int = 0


@dataclass
class Place:
    """Where in the engine's part of the run a session's numbers begin."""

    session: int = 0  # of this engine, from 0
    seq: int = 0
    step: int = 0


@dataclass
class Known:
    """What a session told so far, apart from its rows."""

    seen_seq: int = -1
    seen_step: int = -1
    next_step: int = 0  # no record named this step or a later one as done
    next_prefix_id: int = 0
    last_us: int = -1
    dropped: int = 0
    ended: bool = False
    first_preempt_us: int | None = None  # in the run's rows
    last_preempt_us: int | None = None
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Ending:
    """How a request left the engine, or did not."""

    status: str
    reason: str | None = None
    generated: int | None = None
    num_preemptions: int | None = None
    first_us: int | None = None
    last_us: int | None = None
    queue_us: int | None = None
    requeue_us: int | None = None
