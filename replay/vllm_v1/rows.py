"""Writing ledger rows from inside the `vllm-v1` scheduler: one row is one event (SPEC §7)."""

from replay.events import COLUMNS, NULL, Kind
from replay.vllm_v1.state import (
    ACTIVE,
    ARRIVAL,
    ARRIVED,
    BY_PRIORITY,
    CAPACITY,
    CLOCK_NS,
    FREE,
    FRESH,
    GENERATED,
    HOST_BYTES,
    OUTPUT,
    PREEMPTIONS,
    PRIORITY,
    PROMPT,
    QUEUE,
    QUEUED,
    ROWS,
    SEQ,
    STATUS,
    TICK,
    TICK_US,
    TIMED,
    WAITED,
    WAITING,
    Ints,
)

(
    _SEQ,
    _TICK,
    TIME_US,
    _KIND,
    _REQUEST_ID,
    REQUESTER_ID,
    _PRIORITY,
    _ARRIVAL_TICK,
    _AGE_TICKS,
    _QUEUE_TICKS,
    _PREEMPTIONS,
    _PROMPT_TOKENS,
    _GENERATED_TOKENS,
    _REMAINING_TOKENS,
    _CONTEXT_TOKENS,
    _ACTIVE_REQUESTS,
    _QUEUE_DEPTH,
    QUEUE_POSITION,
    _CAPACITY_BLOCKS,
    _OCCUPIED_BLOCKS_BEFORE,
    _OCCUPIED_BLOCKS_AFTER,
    ALLOCATED_BLOCKS,
    FREED_BLOCKS,
    RECOVERY,
    RECOVERY_REASON,
    RECOMPUTE_TOKENS,
    SWAP_OUT_BYTES,
    SWAP_IN_BYTES,
    ESTIMATE_RECOMPUTE_TICKS,
    ESTIMATE_SWAP_TICKS,
    _HOST_BYTES_AFTER,
    WORK_LEFT_TOKENS,
    WORK_LEFT_BYTES,
) = range(len(COLUMNS))

# Plain integers: a compiler takes them as constants.
ARRIVE = int(Kind.ARRIVE)
ADMIT = int(Kind.ADMIT)
RESUME = int(Kind.RESUME)
PREEMPT = int(Kind.PREEMPT)
SWAPPED_OUT = int(Kind.SWAPPED_OUT)
RECOVERED = int(Kind.RECOVERED)
FIRST = int(Kind.FIRST_TOKEN)
COMPLETE = int(Kind.COMPLETE)
FLAG_WAIT = int(Kind.FLAG_WAIT)
FLAG_REPEAT = int(Kind.FLAG_REPEAT)
CENSOR = int(Kind.CENSORED)
NOTHING = NULL


def queue_depth(config: Ints, now: Ints) -> int:
    """How many requests wait."""
    depth: int = now[QUEUE]
    return depth if config[BY_PRIORITY] else depth + now[ARRIVED] - now[FRESH]


def queue_ticks(requests: Ints, r: int, tick: int) -> int:
    """Accountings before `tick` that found this request waiting."""
    waited: int = requests[r, WAITED]
    return waited + tick - requests[r, QUEUED] if requests[r, STATUS] == WAITING else waited


def write_row(
    config: Ints, now: Ints, requests: Ints, rows: Ints, kind: int, r: int, free_before: int
) -> int:
    """Write what every event says; gives the row's index for what only this kind says."""
    k: int = now[ROWS]
    tick = now[TICK]
    rows[k, :] = NOTHING
    rows[k, _SEQ] = now[SEQ] + k
    rows[k, _TICK] = tick
    rows[k, TIME_US] = now[CLOCK_NS] // 1000 if config[TIMED] else tick * config[TICK_US]
    rows[k, _KIND] = kind
    rows[k, _REQUEST_ID] = r
    rows[k, _PRIORITY] = requests[r, PRIORITY]
    rows[k, _ARRIVAL_TICK] = requests[r, ARRIVAL]
    rows[k, _AGE_TICKS] = tick - requests[r, ARRIVAL]
    rows[k, _QUEUE_TICKS] = queue_ticks(requests, r, tick)
    rows[k, _PREEMPTIONS] = requests[r, PREEMPTIONS]
    rows[k, _PROMPT_TOKENS] = requests[r, PROMPT]
    rows[k, _GENERATED_TOKENS] = requests[r, GENERATED]
    rows[k, _REMAINING_TOKENS] = requests[r, OUTPUT] - requests[r, GENERATED]
    rows[k, _CONTEXT_TOKENS] = requests[r, PROMPT] + requests[r, GENERATED]
    rows[k, _ACTIVE_REQUESTS] = now[ACTIVE]
    rows[k, _QUEUE_DEPTH] = queue_depth(config, now)
    rows[k, _CAPACITY_BLOCKS] = config[CAPACITY]
    rows[k, _OCCUPIED_BLOCKS_BEFORE] = config[CAPACITY] - free_before
    rows[k, _OCCUPIED_BLOCKS_AFTER] = config[CAPACITY] - now[FREE]
    rows[k, _HOST_BYTES_AFTER] = now[HOST_BYTES]
    now[ROWS] = k + 1
    return k


def count_accounting(rows: Ints, k: int, ticks: int) -> None:
    """Let a row written after the accounting of its tick count it."""
    rows[k, _QUEUE_TICKS] += ticks
