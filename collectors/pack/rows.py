"""One session's records become rows: requests when they end, events and steps as they come.

Rows are plain tuples in the order of the columns below, without `run_id`. Everything that has to
outlive a killed packer is in `state`, and the same records give the same rows however they were
cut into frames, parts and sittings.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from collectors.pack.clock import Clock
from collectors.pack.ids import SeenIds, row_id
from collectors.pack.kept import Ending, Known, Open, Place, Window
from collectors.pack.tables import ROWS
from collectors.spool import (
    MOST_PREFIX_IDS,
    Admit,
    Arrive,
    Clocks,
    Dropped,
    End,
    Finish,
    Frame,
    Header,
    Preempt,
    Record,
    Request,
    Resume,
    Step,
)
from collectors.tpot import tpot_us
from replay.errors import InputError
from replay.strict import MAX_SAFE_INTEGER

MOST_ENGINES = 2**11
MOST_SESSIONS = 2**10  # of one engine in one run: more ids of prefix blocks are not safe integers
# What single requests use that a replay of their lengths does not model, as recorders name it.
FEATURES = (
    *("n_greater_than_1", "structured", "lora", "multimodal", "prompt_embeds", "pooling"),
    "streaming_input",
)
_NO_DETAIL = (None,) * 8


class SessionRows:
    """Turns a session's records into rows, in order; `rows` are those nobody took yet."""

    def __init__(
        self, engine: int, clock: Clock, window: Window, seen: SeenIds, place: Place
    ) -> None:
        self.engine, self.clock, self.window, self.place = engine, clock, window, place
        self.known = Known()
        self.open: dict[int, Open] = {}
        self.rows: dict[str, list[tuple[Any, ...]]] = {table: [] for table in ROWS}
        self.block_tokens: int | None = None  # of one prefix id
        self.in_order = False  # whether requests are admitted as they arrived
        self._seen = seen
        self._kept_open = 0

    def describe(self, header: Header) -> None:
        """Take a part's header."""
        self.clock.pair(header.unix_ns, header.monotonic_ns)
        self.block_tokens = prefix_block_tokens(header)
        scheduler = header.facts.get("scheduler")
        policy = scheduler.get("scheduling_policy") if isinstance(scheduler, dict) else None
        self.in_order = policy == "fcfs"

    def take(self, frame: Frame) -> None:
        """Take the records of one frame: all of them, or none where one breaks a rule."""
        self._check(frame)
        if frame.header is not None:
            self.describe(frame.header)
        self.known.counts.update(frame.unknown)
        for record in frame.records:
            self._take(record)

    def censor(self) -> None:
        """The session is over: what has not ended was cut off."""
        for n in sorted(self.open):
            one = self.open[n]
            if one.kept is None:
                self._begin(n, one, max(self.known.last_us, 0))
            if one.kept:
                self.known.counts["censored"] += 1
                self.known.counts["cut_victims"] += one.num_preemptions > 0
                self._row(one, Ending("censored", num_preemptions=one.num_preemptions))
            elif (one.arrival_us or 0) < 0 <= self.known.last_us:
                self.known.counts["in_flight_at_start"] += 1
        self.open.clear()
        self._kept_open = 0

    def state(self) -> dict[str, Any]:
        """What `restore` takes, as JSON holds it."""
        return {
            "clock": self.clock.state(),
            "known": asdict(self.known) | {"counts": dict(self.known.counts)},
            "open": {str(n): asdict(one) for n, one in self.open.items()},
            "place": asdict(self.place),
            "block_tokens": self.block_tokens,
            "in_order": self.in_order,
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on from a state; ids of open requests become taken."""
        self.clock = Clock.restored(state["clock"])
        known = dict(state["known"])
        self.known = Known(**known | {"counts": Counter(known["counts"])})
        self.open = {int(n): Open(**one) for n, one in state["open"].items()}
        self.place = Place(**state["place"])
        self.block_tokens, self.in_order = state["block_tokens"], state["in_order"]
        self._kept_open = sum(bool(one.kept) for one in self.open.values())
        for one in self.open.values():
            if one.request_id is not None:
                self._seen.add(one.request_id)

    def _check(self, frame: Frame) -> None:
        place = f"{frame.part.path}: frame before byte {frame.end}"
        block = self.block_tokens if frame.header is None else prefix_block_tokens(frame.header)
        seq, step = self.known.seen_seq, self.known.seen_step
        began, ended = set[int](), set[int]()
        for record in frame.records:
            match record:
                case Step():
                    step = _risen(record.step, step, self.place.step, place, "S.step")
                case Request():
                    if record.n in began or (record.n in self.open and record.n not in ended):
                        raise InputError(place, "R.n", "must be a new number", str(record.n))
                    began.add(record.n)
                    _check_prefix(record, block, place)
                case Arrive() | Admit() | Preempt() | Resume() | Finish():
                    seq = _risen(record.seq, seq, self.place.seq, place, "seq")
                    _risen(record.step, -1, self.place.step, place, "step")
                    if type(record) is Finish:
                        began.discard(record.n)
                        ended.add(record.n)

    def _take(self, record: Record) -> None:
        match record:
            case Step():
                self._step(record)
            case Request():
                self._request(record)
            case Clocks():
                self.clock.pair(*record)
                self._mark(record.monotonic_ns)
            case Dropped():
                self._dropped(record)
            case End():
                self._mark(record.t_ns)
                self.known.ended = True
            case _:
                self._event(record)

    def _dropped(self, record: Dropped) -> None:
        known = self.known
        known.dropped = max(known.dropped, record.dropped)
        for name in ("forgotten_prefixes", "internal_errors"):
            known.counts[name] = max(known.counts[name], getattr(record, name))
        known.counts["gave_up"] |= record.off is not None

    def _step(self, record: Step) -> None:
        self.known.seen_step = record.step
        self.known.next_step = max(self.known.next_step, record.step + 1)
        at = self._mark(record.t_ns)
        within = self.window.end_us is None or at <= self.window.end_us or self._kept_open
        if at + self.window.shift_us < 0 or not within:
            self.known.counts["steps_outside"] += 1
            return
        numbers = (self.engine, record.step + self.place.step, self.window.moved(at))
        self.rows["measured_steps"].append((*numbers, *record[2:]))

    def _request(self, record: Request) -> None:
        ids, seen = record.prefix_ids or [], 0
        if ids:
            known = self.known.next_prefix_id
            seen = next((k for k, v in enumerate(ids) if v >= known), len(ids))
            self.known.next_prefix_id = max(known, *(v + 1 for v in ids))
        for name in record.features or ():
            self.known.counts[f"feature:{name if name in FEATURES else 'other'}"] += 1
        arrival = record.arrival_unix_ns
        self.open[record.n] = Open(
            client_id=record.request_id,
            prompt_tokens=record.prompt_tokens,
            max_tokens=record.max_tokens,
            priority=record.priority,
            prefix_blocks=[v + self._first_prefix_id() for v in ids] or None,
            engine_arrival_us=None if arrival is None else self.clock.wall_us(arrival),
            seen_blocks=seen,
        )

    def _first_prefix_id(self) -> int:
        """Other engines, and other lives of this one, count from 0 too: no id of theirs is ours."""
        return (self.place.session * MOST_ENGINES + self.engine) * MOST_PREFIX_IDS

    def _event(self, record: Arrive | Admit | Preempt | Resume | Finish) -> None:
        self.known.seen_seq = record.seq
        self.known.next_step = max(self.known.next_step, record.step)
        at, one = self._mark(record.t_ns), self.open.get(record.n)
        if one is None:
            self.known.counts["events_of_unknown_requests"] += 1
            return
        if one.kept is None:
            self._begin(record.n, one, at)
        kind, detail = self._noted(record, one, at)
        if one.kept:
            numbers = (record.seq + self.place.seq, record.step + self.place.step)
            row = (self.engine, *numbers, self.window.moved(at), kind, one.request_id, *detail)
            self.rows["measured_events"].append(row)
        elif isinstance(record, Finish):
            self.known.counts["in_flight_at_start"] += (one.arrival_us or 0) < 0 <= at
        if isinstance(record, Finish):
            self._finish(record, one)
            del self.open[record.n]

    def _begin(self, n: int, one: Open, at: int) -> None:
        """Decide at its first event whether a request is the run's, and what its rows call it."""
        early = at if one.engine_arrival_us is None else min(at, one.engine_arrival_us)
        one.arrival_us = at if one.engine_arrival_us is None else one.engine_arrival_us
        one.kept = self.window.holds(early, one.client_id)
        if one.kept:
            session = self.place.session
            mark = f"{session}.{n}" if session else str(n)
            free = self.window.owns(early, one.client_id) is not False
            one.request_id = row_id(one.client_id, mark, self._seen, free=free)
            self.known.counts["renamed"] += one.request_id != one.client_id
            self._kept_open += 1
        else:
            before = early + self.window.shift_us < 0
            self.known.counts["requests_before" if before else "requests_after"] += 1

    def _noted(
        self, record: Arrive | Admit | Preempt | Resume | Finish, one: Open, at: int
    ) -> tuple[str, tuple[int | None, ...]]:
        """Kind of an event and what fills its columns; what the request's row needs is kept."""
        match record:
            case Arrive():
                return "arrive", _NO_DETAIL
            case Admit():
                one.admit_us, one.cached_tokens = at, record.cached_tokens
                beyond = (record.cached_tokens or 0) > one.seen_blocks * (self.block_tokens or 0)
                counted = bool(one.prefix_blocks) and self.in_order and bool(one.kept)
                self.known.counts["hits_on_generated_text"] += beyond and counted
                return "admit", _NO_DETAIL
            case Resume():
                return "resume", _NO_DETAIL
            case Preempt():
                one.num_preemptions += 1
                if one.kept:
                    self._preempted(self.window.moved(at))
                return "preempt", tuple(record[4:])
        return "finish", (None, None, record.generated, *[None] * 4, record.num_preemptions)

    def _preempted(self, at: int) -> None:
        known = self.known
        known.counts["preemptions"] += 1
        if known.first_preempt_us is None:
            known.first_preempt_us = at
        known.last_preempt_us = max(at, known.last_preempt_us or 0)

    def _finish(self, record: Finish, one: Open) -> None:
        if not one.kept:
            return
        self._kept_open -= 1
        marks = (record.first_token_ns, record.last_token_ns)
        first, last = (None if ns is None else self.clock.us(ns) for ns in marks)
        waited = (record.queue_ns, record.requeue_ns)
        queue, requeue = (None if ns is None else ns // 1000 for ns in waited)
        self.known.counts["cut_short"] += record.status != "ok"
        self.known.counts["cut_victims"] += record.status != "ok" and one.num_preemptions > 0
        told = (record.status, record.finish_reason, record.generated, record.num_preemptions)
        self._row(one, Ending(*told, first, last, queue, requeue))

    def _row(self, one: Open, ending: "Ending") -> None:
        arrival, first, last = one.arrival_us, ending.first_us, ending.last_us
        tokens = ending.generated
        decode = self._since(first, last)
        tpot = None if decode is None else tpot_us(first, last, tokens)
        moved = None if one.engine_arrival_us is None else self.window.moved(one.engine_arrival_us)
        self.rows["measured_requests"].append(
            (
                self.engine,
                one.request_id,
                self.window.moved(arrival or 0),
                moved,
                one.prompt_tokens,
                tokens,
                one.max_tokens,
                one.cached_tokens,
                one.priority,
                one.prefix_blocks,
                ending.status,
                ending.reason,
                ending.queue_us,
                ending.requeue_us,
                self._since(one.admit_us, first),
                decode,
                self._since(arrival, first),
                tpot,
                self._since(arrival, last),
                ending.num_preemptions,
            )
        )

    def _since(self, start: int | None, end: int | None) -> int | None:
        """Time between two marks; two clocks that disagree about their order give none."""
        if start is None or end is None:
            return None
        if end < start:
            self.known.counts["negative_durations"] += 1
            return None
        return end - start

    def _mark(self, monotonic_ns: int) -> int:
        at = self.clock.us(monotonic_ns)
        self.known.last_us = max(self.known.last_us, at)
        return at


def prefix_block_tokens(header: Header) -> int | None:
    """Tokens of one prefix id: what the header says, or else a block's."""
    cache = header.facts.get("cache")
    block = cache.get("block_size") if isinstance(cache, dict) else None
    for size in (header.facts.get("prefix_block_tokens"), block):
        if type(size) is int and 0 < size <= MAX_SAFE_INTEGER:
            return size
    return None


def _check_prefix(record: Request, block_tokens: int | None, place: str) -> None:
    ids = len(record.prefix_ids or ())
    if ids and ids > (most := -(-record.prompt_tokens // block_tokens) if block_tokens else 0):
        rule = f"must have at most {most} entries, one for each block of the prompt"
        raise InputError(place, "R.prefix_ids", rule, str(ids))


def _risen(found: int, last: int, before: int, place: str, name: str) -> int:
    """The number found; in the run it stands behind `before` others, and must be safe there."""
    if found <= last:
        raise InputError(place, name, f"must rise, after {last}", str(found))
    if found > MAX_SAFE_INTEGER - before:
        raise InputError(place, name, f"must be at most {MAX_SAFE_INTEGER - before}", str(found))
    return found
