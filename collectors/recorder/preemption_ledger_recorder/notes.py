"""What is noted of a scheduler, and when: tuples of integers, handed to whoever takes them.

Called from the scheduler's own methods, in the engine's thread, so everything here is arithmetic on
what vLLM already knows. Work that grows with the batch is left to C (`sum`, `map`) or done only for
requests that are in prefill or without a token. Nothing here reads a token, a file or a lock.

Step numbers count calls of `schedule`, from 0, that scheduled at least one token, or none because
all that could be scheduled waits for tokens in flight (asynchronous scheduling). Times are
monotonic nanoseconds: of the beginning of `schedule` for what it did, of the beginning of
`update_from_output` for tokens and for what ended with them.
"""

from collections import deque
from collections.abc import Callable, Mapping
from operator import attrgetter
from typing import Any

from preemption_ledger_recorder.ids import is_child

# Waiting requests live in more than one queue in some releases.
QUEUES = ("waiting", "kv_holding_waiting", "skipped_waiting")
_BATCHES = 4  # answers that an engine may have in flight between a token and its request's end
_REASONS = {
    "FINISHED_STOPPED": ("ok", "stop"),
    "FINISHED_LENGTH_CAPPED": ("ok", "length"),
    "FINISHED_REPETITION": ("ok", "repetition"),
    "FINISHED_ABORTED": ("aborted", "abort"),
    "FINISHED_IGNORED": ("error", "length"),
    "FINISHED_ERROR": ("error", "error"),
}
_computed = attrgetter("num_computed_tokens")

Take = Callable[[tuple[Any, ...]], None]


class Seen:
    """What is kept of a request between its events."""

    __slots__ = (
        "admitted",
        "first_ns",
        "generated",
        "last_ns",
        "n",
        "queue_ns",
        "requeue_ns",
        "running",
        "since_ns",
    )

    def __init__(self, n: int, since_ns: int) -> None:
        self.n, self.since_ns = n, since_ns
        self.admitted = self.running = False
        self.queue_ns: int | None = None
        self.requeue_ns = 0
        self.first_ns: int | None = None
        self.last_ns: int | None = None
        self.generated = 0  # tokens when it was last admitted


class Notes:
    """Everything that is noted of one scheduler; `take` gets each record."""

    def __init__(self, scheduler: Any, take: Take, clock: Callable[[], int]) -> None:
        self._take, self._clock = take, clock
        self._free = scheduler.kv_cache_manager.block_pool.get_num_free_blocks
        self._queues = tuple(name for name in QUEUES if hasattr(scheduler, name))
        self._caching = caches_prefixes(scheduler)
        self._hash_tokens = hash_tokens(scheduler)
        self.seen: dict[str, Seen] = {}
        self.step = self._requests = self._seq = 0
        self._running = 0  # requests whose last event put them among the running
        self._pending = 0  # steps whose answer is not in yet
        self._prefilling: dict[str, Any] = {}
        self._tokenless: dict[str, tuple[Seen, Any]] = {}
        self._batches: deque[tuple[Mapping[str, int], int]] = deque(maxlen=_BATCHES)
        self._schedule_ns: int | None = None
        self._update_ns: int | None = None

    def arrived(self, request: Any, known: bool) -> None:
        """After `add_request`; `known` says whether it only continued a request."""
        request_id = request.request_id
        if known or request_id in self.seen:
            return  # more input for a request that is here already
        now = self._clock()
        n, self._requests = self._requests, self._requests + 1
        hashes = None
        if self._caching:
            whole = request.num_prompt_tokens // self._hash_tokens
            hashes = list(request.block_hashes[:whole])
        self._take(
            (
                "R",
                n,
                request_id,
                unix_ns(request.arrival_time),
                request.num_prompt_tokens,
                request.max_tokens,
                request.priority,
                hashes,
                features_of(request),
            )
        )
        seen = self.seen[request_id] = Seen(n, now)
        self._take(("A", self._number(), self.step, now, seen.n))

    def schedule_begins(self) -> None:
        """Before `schedule`."""
        self._update_ns = None
        self._schedule_ns = self._clock()

    def scheduled(self, scheduler: Any, output: Any) -> None:
        """After `schedule`: who came in, and the step's totals."""
        now, self._schedule_ns = self._schedule_ns or self._clock(), None
        batch = output.num_scheduled_tokens
        running = scheduler.running
        if len(running) != self._running:
            self._admissions(scheduler, batch, now)
        if not batch:
            # Nobody can be scheduled until tokens in flight are back: a step all the same.
            self.step += self._pending > 0
            return
        prefill, in_prefill = self._prefill(batch) if self._prefilling else (0, 0)
        self._take(
            (
                "S",
                self.step,
                now,
                output.total_num_scheduled_tokens,
                prefill,
                len(batch) - in_prefill,
                sum(map(_computed, running)),
                self._free(),
                len(running),
                self.waiting(scheduler),
            )
        )
        self.step += 1
        self._pending += 1

    def waiting(self, scheduler: Any) -> int:
        """Requests in all waiting queues."""
        return sum([len(getattr(scheduler, name)) for name in self._queues])

    def before_preemption(self, request: Any) -> tuple[int, int, int, int]:
        """What the act will change: context, computed, generated, free blocks."""
        return (
            request.num_tokens,
            request.num_computed_tokens,
            request.num_output_tokens,
            self._free(),
        )

    def preempted(self, scheduler: Any, request: Any, before: tuple[int, int, int, int]) -> None:
        """After a request lost its blocks."""
        context, computed, generated, free = before
        seen = self.seen[request.request_id]
        now = self._schedule_ns or self._clock()
        seen.last_ns = self._last_token(request.request_id, seen, generated)
        self._stops_running(request.request_id, seen)
        seen.since_ns = now
        event = ("P", self._number(), self.step, now, seen.n, context, computed, generated)
        state = (self._free() - free, free, len(scheduler.running), self.waiting(scheduler))
        self._take((*event, *state, request.num_preemptions))

    def update_begins(self, output: Any) -> None:
        """Before `update_from_output`: the answer to a batch is here."""
        now = self._update_ns = self._clock()
        if output.num_scheduled_tokens:
            self._batches.append((output.num_scheduled_tokens, now))
            self._pending -= 1

    def updated(self) -> None:
        """After `update_from_output`."""
        now, self._update_ns = self._update_ns, None
        if not self._tokenless:
            return
        for request_id, (seen, request) in list(self._tokenless.items()):
            if request.num_output_tokens:
                seen.first_ns = now
                del self._tokenless[request_id]

    def finished(self, request: Any) -> None:
        """After a request was freed, whatever ended it."""
        request_id = request.request_id
        seen = self.seen.pop(request_id)
        now = self._update_ns or self._clock()
        status, reason = ending(request.status.name)
        generated = request.num_output_tokens
        if status == "ok" and self._update_ns is not None:
            last = now if generated else None
        else:
            last = self._last_token(request_id, seen, generated)
        first = seen.first_ns
        if first is None and generated:
            first = last
        if seen.admitted and not seen.running:
            seen.requeue_ns += now - seen.since_ns
        self._stops_running(request_id, seen)
        self._tokenless.pop(request_id, None)
        inside = self._update_ns is not None or self._pending > 0
        step = max(self.step - 1, 0) if inside else self.step
        event = ("F", self._number(), step, now, seen.n, generated, request.num_preemptions)
        self._take((*event, status, reason, first, last, seen.queue_ns, seen.requeue_ns))

    def _number(self) -> int:
        seq, self._seq = self._seq, self._seq + 1
        return seq

    def _stops_running(self, request_id: str, seen: Seen) -> None:
        self._running -= seen.running
        seen.running = False
        self._prefilling.pop(request_id, None)

    def _admissions(self, scheduler: Any, batch: Mapping[str, int], now: int) -> None:
        """The newly admitted stand at the end of `running`, in the order they came in."""
        running = scheduler.running
        newcomers = running[self._running :] if len(running) > self._running else []
        found = [self.seen.get(request.request_id) for request in newcomers]
        if not newcomers or any(seen is None or seen.running for seen in found):
            newcomers = self._compared(scheduler)
        for request in newcomers:
            self._admitted(request, batch, now)

    def _compared(self, scheduler: Any) -> list[Any]:
        """Newly running requests, by looking at all: a scheduler of another kind, or a session."""
        present = {request.request_id for request in scheduler.running}
        for request_id, seen in list(self.seen.items()):
            if request_id not in scheduler.requests:
                self._stops_running(request_id, seen)
                self._tokenless.pop(request_id, None)
                del self.seen[request_id]
            elif seen.running and request_id not in present:
                self._stops_running(request_id, seen)
        known = ((request, self.seen.get(request.request_id)) for request in scheduler.running)
        newcomers = [request for request, seen in known if seen is not None and not seen.running]
        # Those nobody saw arrive are counted as running, so that they do not bring us here again.
        self._running = len(scheduler.running) - len(newcomers)
        return newcomers

    def _admitted(self, request: Any, batch: Mapping[str, int], now: int) -> None:
        request_id = request.request_id
        seen = self.seen[request_id]
        cached = max(request.num_computed_tokens - batch.get(request_id, 0), 0)
        self._take(("U" if seen.admitted else "D", self._number(), self.step, now, seen.n, cached))
        if seen.admitted:
            seen.requeue_ns += now - seen.since_ns
        else:
            seen.queue_ns = now - seen.since_ns
        seen.admitted = seen.running = True
        seen.generated = request.num_output_tokens
        self._running += 1
        self._prefilling[request_id] = request
        if not seen.generated:
            self._tokenless[request_id] = (seen, request)

    def _prefill(self, batch: Mapping[str, int]) -> tuple[int, int]:
        """Scheduled tokens that (re)compute known text, and of how many requests."""
        tokens = requests = 0
        for request_id, request in list(self._prefilling.items()):
            scheduled = batch.get(request_id)
            if scheduled:
                tokens, requests = tokens + scheduled, requests + 1
                if request.num_computed_tokens >= request.num_tokens:
                    del self._prefilling[request_id]
        return tokens, requests

    def _last_token(self, request_id: str, seen: Seen, generated: int) -> int | None:
        """When a request that ends or is preempted outside an answer got its last token."""
        if generated == seen.generated:
            return seen.last_ns
        for batch, at in reversed(self._batches):
            if request_id in batch and request_id not in self._prefilling:
                return at
        return None


def ending(status: str) -> tuple[str, str]:
    """Status of the row and reason for a finished status, in vLLM's and OpenAI's words."""
    if status in _REASONS:
        return _REASONS[status]
    return "ok", status.removeprefix("FINISHED_").lower()


def features_of(request: Any) -> list[str] | None:
    """What a request uses that a replay of its lengths does not model; None: nothing."""
    found = []
    if is_child(request.request_id):
        found.append("n_greater_than_1")
    if getattr(request, "structured_output_request", None) is not None:
        found.append("structured")
    if getattr(request, "lora_request", None) is not None:
        found.append("lora")
    if getattr(request, "mm_features", None):
        found.append("multimodal")
    if getattr(request, "prompt_embeds", None) is not None:
        found.append("prompt_embeds")
    if getattr(request, "pooling_params", None) is not None:
        found.append("pooling")
    if getattr(request, "resumable", False):
        found.append("streaming_input")
    return found or None


def unix_ns(seconds: float | None) -> int | None:
    """Nanoseconds of a wall-clock time; seconds and fraction apart, because floats are short."""
    if seconds is None or not 0 <= seconds < 2**33:
        return None
    whole = int(seconds)
    return whole * 10**9 + round((seconds - whole) * 1e9)


def caches_prefixes(scheduler: Any) -> bool:
    """Whether prefix caching is on."""
    return bool(getattr(scheduler.cache_config, "enable_prefix_caching", False))


def hash_tokens(scheduler: Any) -> int:
    """Tokens that one block hash stands for."""
    found = getattr(scheduler, "hash_block_size", None) or scheduler.block_size
    return int(found)
