"""`vllm-v1`: a workload through vLLM V1's own scheduling decisions, as rows of the event ledger."""

from collections.abc import Callable, Iterator
from enum import Enum, auto

import numpy as np

from replay.config import RECOVERIES, Config
from replay.errors import InputError
from replay.events import COLUMNS, Rows
from replay.rules import rule_of
from replay.strict import MAX_SAFE_INTEGER
from replay.timed_steps import Greatest, TimedSteps
from replay.timing import Timing
from replay.vllm_v1 import step
from replay.vllm_v1.columns import Columns
from replay.vllm_v1.compiled import Advance, can_be_kept, compiled, is_kept
from replay.vllm_v1.state import (
    ACTIVE,
    ADMITTED,
    AFTER,
    ARRIVAL,
    ARRIVED,
    ARRIVES_NS,
    BARREN,
    BEFORE,
    BUDGET,
    BY_RANK,
    CHUNK,
    COMPLETED,
    COVERED,
    FINISHED,
    FIRST_TOKEN,
    FLAG_DUE,
    FREE,
    MOST_DECODES,
    MOST_KV,
    MOST_PREFILL,
    NAME,
    NAMELESS,
    NEVER,
    NOBODY,
    NOW_VALUES,
    OUTGOING,
    OUTPUT,
    OUTSIDE,
    OUTSIDE_DECODES,
    OUTSIDE_KV,
    OUTSIDE_PREFILL,
    OUTSIDE_SINCE,
    OWN_NAMES,
    POOL_COLUMNS,
    PRIORITY,
    PROMPT,
    RANK,
    REPLAYED,
    REQUEST_COLUMNS,
    ROWS,
    SEQ,
    STEPS,
    TIMED,
    VICTIM_LEAST_COMPUTED,
    VICTIM_MOST_FREED,
    VICTIM_RULE,
    Ints,
    State,
)

_VICTIMS = {
    "rule": VICTIM_RULE,
    "least-computed": VICTIM_LEAST_COMPUTED,
    "most-freed-per-lost-token": VICTIM_MOST_FREED,
}
# Machine code takes most of a second to load, and some twenty to compile: the first time, or every
# time where it can be kept nowhere. The estimate knows no swap links that drain for long, steps do.
_LOADING_US, _COMPILING_US = 1_500_000, 25_000_000
_INTERPRETED_MOST_STEPS = 100_000
_MOST_TABLE_ENTRIES = 2**28
_MOST_BLOCKS = 2**26
_MOST_BLOCK_SIZE = 2**20
_STEPS_AT_ONCE = {True: 200_000, False: 2_000}
Progress = Callable[[int, int], None]
Notice = Callable[[str], None]


class Outcome(Enum):
    """How a replay ended."""

    COMPLETE = auto()
    OUT_OF_TICKS = auto()
    NO_PROGRESS = auto()


class Simulation:
    """One replay under way: an iterator of row arrays, then what became of every request.

    `rows` is how many rows each array holds at most (more only where one step needs it); without
    `record` nothing is written and only the marks remain. `interpreted` decides whether to run
    without machine code, None: as the work's size suggests, and machine code after all where that
    was wrong. `notice` hears when that has to be compiled first, which takes long.
    """

    def __init__(
        self,
        columns: Columns,
        config: Config,
        *,
        record: bool = True,
        rows: int = 65_536,
        interpreted: bool | None = None,
        notice: Notice | None = None,
    ) -> None:
        self._may_switch = interpreted is None
        if interpreted is None:
            estimate_us = _interpreted_us(columns, config)
            interpreted = estimate_us <= _LOADING_US or (
                estimate_us <= _COMPILING_US and not can_be_kept()
            )
        self._notice = notice
        self._record = record
        self._victim = config.policy.victim
        self._state = _state(columns, config, record=record, rows=rows)
        self._advance: Advance = step.advance
        self._steps = _STEPS_AT_ONCE[False]
        self._interpreted_left = _INTERPRETED_MOST_STEPS
        if not interpreted:
            self._compile()
        self.outcome: Outcome | None = None

    def run(self, progress: Progress | None = None) -> Iterator[Rows]:
        """Replay to the end; each array is the caller's to keep."""
        while True:
            stopped = self._advance(self._state, self._steps)
            if progress is not None:
                progress(self.finished, len(self._state.requests))
            if stopped == step.STEPS_DONE:
                self._interpreted_left -= self._steps
                if self._may_switch and self._interpreted_left <= 0:
                    self._compile()
                continue
            yield self._take()
            if stopped == step.ALL_DONE:
                self.outcome = Outcome.COMPLETE
                return
            if stopped == step.NO_ROOM:
                self._make_room()
            else:
                gone = stopped == step.NO_PROGRESS
                self.outcome = Outcome.NO_PROGRESS if gone else Outcome.OUT_OF_TICKS
                return

    def censor(self) -> Iterator[Rows]:
        """Rows that end what is unfinished, after `run`; none if not all of it has arrived."""
        if self.outcome is not Outcome.OUT_OF_TICKS or not self._record or self._coming():
            return
        whole = False
        while not whole:
            whole = step.censor(self._state)
            yield self._take()

    @property
    def finished(self) -> int:
        """How many requests are complete."""
        return int(self._state.now[FINISHED])

    def why_unfinished(self) -> str | None:
        """What keeps the unfinished requests from ending, where more ticks would not help."""
        s = self._state
        if self.outcome is Outcome.NO_PROGRESS:
            return (
                f"{s.now[BARREN]} preemptions since the last token lead back to the same state:"
                f" requests evict each other in turn (policy.victim {self._victim})"
            )
        reasons = []
        waits = s.now[ARRIVED] > s.now[FINISHED]
        if self.outcome is Outcome.OUT_OF_TICKS and waits and not s.now[ACTIVE] + s.now[OUTGOING]:
            reasons.append(
                "nothing runs and the next request asks for more tokens than"
                f" engine.max_num_batched_tokens ({s.config[BUDGET]}) with"
                " engine.enable_chunked_prefill off"
            )
        if self._coming():
            reasons.append(f"{self._coming()} of them had not arrived by then")
        return "; ".join(reasons) or None

    def _coming(self) -> int:
        """How many requests have not arrived, as only a timed replay can end."""
        return len(self._state.requests) - int(self._state.now[ARRIVED])

    def marks(self) -> dict[str, Ints]:
        """Ticks per request in workload order, -1 where never reached."""
        requests = self._state.requests
        return {
            "first_admit_tick": requests[:, ADMITTED],
            "first_token_tick": requests[:, FIRST_TOKEN],
            "completion_tick": requests[:, COMPLETED],
        }

    def timed_steps(self) -> TimedSteps | None:
        """What the steps came to so far; None where ticks are constant."""
        s = self._state
        if not s.config[TIMED]:
            return None
        now = [int(value) for value in s.now]
        return TimedSteps(
            now[STEPS],
            Greatest(now[MOST_PREFILL], now[MOST_DECODES], now[MOST_KV]),
            now[OUTSIDE],
            Greatest(now[OUTSIDE_PREFILL], now[OUTSIDE_DECODES], now[OUTSIDE_KV]),
            now[OUTSIDE_SINCE] if now[OUTSIDE] else None,
        )

    def _compile(self) -> None:
        """Go on with machine code, where there is any: the state is the same for both."""
        self._may_switch = False
        if self._notice is not None and not is_kept():
            self._notice("compiling the scheduler, once (some 20 s)")
        if fast := compiled(self._state):
            self._advance, self._steps = fast, _STEPS_AT_ONCE[True]

    def _take(self) -> Rows:
        now = self._state.now
        rows = self._state.rows[: now[ROWS]].copy()
        now[SEQ] += now[ROWS]
        now[ROWS] = 0
        return rows

    def _make_room(self) -> None:
        needed = int(step.most_rows(self._state))
        if needed > len(self._state.rows):
            self._state = self._state._replace(rows=np.empty((needed, len(COLUMNS)), np.int64))


def _check_room(config: Config, slots: int, width: int) -> None:
    """Refuse what would take gigabytes before the first step."""
    engine = config.engine
    caching = bool(engine.enable_prefix_caching)
    for key, value, most, what in (
        ("block_size", engine.block_size, _MOST_BLOCK_SIZE, ""),
        ("capacity_blocks", engine.capacity_blocks * caching, _MOST_BLOCKS, " with prefix caching"),
        (
            "max_num_seqs",
            slots * width,
            _MOST_TABLE_ENTRIES,
            " times the blocks of the longest request, with prefix caching",
        ),
    ):
        if value > most:
            rule = f"must be at most {most}{what}, to fit in memory"
            raise InputError("configuration", f"engine.{key}", rule, str(value))


def _interpreted_us(columns: Columns, config: Config) -> int:
    """About how long interpreted code takes: it steps over quiet stretches where it can."""
    engine = config.engine
    per_token = 20 if engine.enable_prefix_caching else 5 if engine.async_scheduling else 2
    budget = min(
        engine.max_num_batched_tokens or 1,
        engine.long_prefill_token_threshold or MAX_SAFE_INTEGER,
    )
    prefill_steps = -(-columns.prompt_tokens // budget)
    return per_token * int(columns.output_tokens.sum() + prefill_steps.sum())


def _state(columns: Columns, config: Config, *, record: bool, rows: int) -> State:
    engine = config.engine
    most = min(engine.max_num_seqs, len(columns))
    requests = _requests(columns, config)
    caching = bool(engine.enable_prefix_caching)
    longest = int((columns.prompt_tokens + columns.output_tokens).max())
    width = min(-(-longest // engine.block_size), engine.capacity_blocks) if caching else 1
    slots = most if caching else 1
    _check_room(config, slots, width)
    now = np.zeros(NOW_VALUES, np.int64)
    now[FREE] = engine.capacity_blocks
    now[FLAG_DUE] = NEVER
    waits = len(columns) if engine.scheduling_policy == "priority" else most
    return State(
        config=_config(columns, config, record=record),
        now=now,
        requests=requests,
        running=np.zeros(most + 1, np.int64),
        waiting=np.zeros(waits + 1, np.int64),
        batches=np.zeros((2, most + 1, 3), np.int64),
        victims=np.zeros(most + 1, np.int64),
        finishing=np.zeros(most + 1, np.int64),
        outgoing=np.zeros(waits + most + 1, np.int64),
        flags=np.zeros(len(columns) + 2 * most + 1, np.int64),
        growth=np.zeros(engine.block_size, np.int64),
        pool=_pool(engine.capacity_blocks if caching else 0),
        buckets=np.full(2 * engine.capacity_blocks + 1 if caching else 1, NOBODY, np.int64),
        tables=np.zeros((slots, width), np.int64),
        slots=np.append(slots, np.arange(slots, dtype=np.int64)),
        hits=np.zeros(width + 1, np.int64),
        chunks=columns.chunks,
        rows=np.empty((rows if record else 0, len(COLUMNS)), np.int64),
    )


def _requests(columns: Columns, config: Config) -> Ints:
    engine = config.engine
    requests = np.zeros((len(columns), REQUEST_COLUMNS), np.int64)
    requests[:, PROMPT] = columns.prompt_tokens
    requests[:, OUTPUT] = columns.output_tokens
    if engine.tick_us is None:
        requests[:, ARRIVES_NS] = columns.arrival_us * 1000
    else:
        requests[:, ARRIVAL] = columns.arrival_us // engine.tick_us
    requests[:, PRIORITY] = columns.priority
    requests[:, [REPLAYED, ADMITTED, FIRST_TOKEN, COMPLETED]] = -1
    if engine.scheduling_policy == "priority":
        by_rank = _by_rank(columns)
        requests[:, BY_RANK] = by_rank
        requests[by_rank, RANK] = np.arange(len(columns))
    if engine.enable_prefix_caching:
        if len(columns.chunks):
            requests[:, CHUNK] = columns.chunk_start[:-1]
            covered = np.diff(columns.chunk_start) * columns.chunk_tokens
            requests[:, COVERED] = np.minimum(covered, columns.prompt_tokens)
        blocks = -(-(columns.prompt_tokens + columns.output_tokens) // engine.block_size)
        shared = (int(columns.chunks.max(initial=-1)) + 1) * _chunk_names(columns, config)
        requests[:, OWN_NAMES] = shared + np.cumsum(blocks) - blocks
    return requests


def _by_rank(columns: Columns) -> Ints:
    """Requests by (priority, arrival time, order); without that time the order is the arrivals'."""
    if columns.engine_arrival_us is None:
        return np.argsort(columns.priority, kind="stable")
    return np.lexsort((columns.engine_arrival_us, columns.priority))  # stable, last key first


def _chunk_names(columns: Columns, config: Config) -> int:
    longest = min(columns.chunk_tokens, int(columns.prompt_tokens.max()))
    return longest // config.engine.block_size + 2


def _pool(blocks: int) -> Ints:
    """Every block free, in order; the last row closes the ring."""
    pool = np.zeros((blocks + 1, POOL_COLUMNS), np.int64)
    pool[:, BEFORE] = np.arange(-1, blocks)
    pool[:, AFTER] = np.arange(1, blocks + 2)
    pool[0, BEFORE] = blocks
    pool[blocks, AFTER] = 0
    pool[:, NAME] = NAMELESS
    return pool


def _config(columns: Columns, config: Config, *, record: bool) -> Ints:
    """`State.config`, in the order of its indexes."""
    engine, policy, fairness = config.engine, config.policy, config.fairness
    timing, fitted = config.timing or Timing(), config.calibration
    rule = rule_of(config)
    values = (
        engine.capacity_blocks,
        engine.block_size,
        engine.max_num_seqs,
        engine.max_num_batched_tokens,
        engine.scheduling_policy == "priority",
        engine.enable_chunked_prefill,
        engine.scheduler_reserve_full_isl,
        int((engine.watermark or 0.0) * (engine.capacity_blocks + 1)),
        engine.long_prefill_token_threshold,
        engine.enable_prefix_caching,
        engine.async_scheduling,
        rule.threshold_spares_lone_request,
        rule.nameless_blocks_first,
        rule.victim_before_moves_index,
        _VICTIMS[policy.victim],
        RECOVERIES.index(policy.recovery),
        policy.kv_bytes_per_token,
        policy.prefill_tokens_per_tick,
        policy.transfer_bytes_per_tick,
        policy.host_capacity_bytes,
        fairness.max_queue_ticks,
        fairness.max_preemptions,
        config.limits.max_ticks,
        engine.tick_us or 0,
        record,
        columns.chunk_tokens,
        _chunk_names(columns, config),
        config.timing is not None,
        timing.step_ns,
        timing.prefill_token_ps,
        timing.decode_request_ps,
        timing.kv_token_ps,
        NEVER if fitted is None else fitted.prefill_tokens,
        NEVER if fitted is None else fitted.decode_requests,
        NEVER if fitted is None else fitted.kv_tokens,
    )
    return np.array(values, np.int64)
