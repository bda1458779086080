"""Preemption: who is chosen, what it loses, and how it is to come back."""

from replay.events import Reason, Recovery
from replay.recovery import decide, estimates
from replay.vllm_v1.pool import held_alone, release
from replay.vllm_v1.queue import put_back
from replay.vllm_v1.rows import (
    ESTIMATE_RECOMPUTE_TICKS,
    ESTIMATE_SWAP_TICKS,
    FREED_BLOCKS,
    PREEMPT,
    QUEUE_POSITION,
    RECOMPUTE_TOKENS,
    RECOVERY_REASON,
    REQUESTER_ID,
    SWAP_IN_BYTES,
    SWAP_OUT_BYTES,
    WORK_LEFT_BYTES,
    WORK_LEFT_TOKENS,
    write_row,
)
from replay.vllm_v1.rows import RECOVERY as RECOVERY_COLUMN
from replay.vllm_v1.state import (
    ACTIVE,
    BARREN,
    BLOCKS,
    BY_PRIORITY,
    BYTES_PER_TOKEN,
    CACHING,
    COMPUTED,
    FLAG_DUE,
    FLAGGED,
    FREE,
    HIGH_MARK,
    HOST_BYTES,
    HOST_CAPACITY,
    HOST_TOKENS,
    IN_FLIGHT,
    LINK_RATE,
    MAX_QUEUE,
    NAMELESS_FIRST,
    OUTGOING,
    OUTGOING_BYTES,
    PREEMPTIONS,
    PREFILL_RATE,
    QUEUED,
    RANK,
    RECORD,
    RECOVERY,
    REPLAYED,
    RESTORE_BYTES,
    RESTORING,
    SLOT,
    STATUS,
    TARGET,
    TICK,
    VICTIM,
    VICTIM_LEAST_COMPUTED,
    VICTIM_MOST_FREED,
    VICTIMS,
    WAITED,
    WAITING,
    Ints,
    State,
)

_SWAP = int(Recovery.SWAP)
_RECOMPUTE = int(Recovery.RECOMPUTE)
_ON_HOST = int(Reason.ON_HOST)


def choose_victim(s: State) -> int:
    """Index in the running list of the request to preempt."""
    if s.config[VICTIM] == VICTIM_LEAST_COMPUTED:
        return least_computed(s.now, s.requests, s.running)
    if s.config[VICTIM] == VICTIM_MOST_FREED:
        return most_freed_per_lost_token(s)
    if s.config[BY_PRIORITY]:
        return least_important(s.now, s.requests, s.running)
    last: int = s.now[ACTIVE] - 1
    return last


def least_important(now: Ints, requests: Ints, running: Ints) -> int:
    """The engine's choice under priority: the greatest (priority, arrival time)."""
    chosen = 0
    for k in range(1, now[ACTIVE]):
        if requests[running[k], RANK] > requests[running[chosen], RANK]:
            chosen = k
    return chosen


def least_computed(now: Ints, requests: Ints, running: Ints) -> int:
    """What-if: the last of those with the least computed tokens."""
    chosen = 0
    for k in range(1, now[ACTIVE]):
        if requests[running[k], COMPUTED] <= requests[running[chosen], COMPUTED]:
            chosen = k
    return chosen


def most_freed_per_lost_token(s: State) -> int:
    """What-if: the last of those with the most blocks freed for each computed token lost."""
    chosen, freed, lost = 0, -1, 1
    for k in range(s.now[ACTIVE]):
        r = s.running[k]
        would = s.requests[r, BLOCKS]
        if s.config[CACHING]:
            would = held_alone(s.pool, s.requests[r], s.tables)
        if would * lost >= freed * s.requests[r, COMPUTED]:
            chosen, freed, lost = k, would, s.requests[r, COMPUTED]
    return chosen


def give_blocks(s: State, r: int) -> int:
    """Free a running request's blocks; gives the rise of the free count."""
    freed: int = s.requests[r, BLOCKS]
    if s.config[CACHING]:
        freed = release(s.pool, s.requests[r], s.tables, s.config[NAMELESS_FIRST])
        s.slots[0] += 1
        s.slots[s.slots[0]] = s.requests[r, SLOT]
    s.requests[r, BLOCKS] = 0
    s.now[FREE] += freed
    return freed


def preempt(s: State, r: int, requester: int) -> None:
    """Take a victim's blocks and queue it again; it has left the running list already."""
    config, now, requests = s.config, s.now, s.requests
    lost = requests[r, COMPUTED]
    restore_left = requests[r, RESTORE_BYTES]
    replay_left = max(requests[r, TARGET] - lost, 0)
    free_before = now[FREE]
    freed = give_blocks(s, r)
    size = lost * config[BYTES_PER_TOKEN]
    recompute_ticks, swap_ticks = estimates(lost, size, config[PREFILL_RATE], config[LINK_RATE])
    full = 0 < config[HOST_CAPACITY] < now[HOST_BYTES] + size
    recovery, reason = decide(
        config[RECOVERY], recompute_ticks, swap_ticks, restore_left > 0, replay_left > 0, full
    )
    if restore_left > 0:
        now[RESTORING] -= 1
        requests[r, RESTORE_BYTES] = 0
    elif recovery == _SWAP:
        requests[r, HOST_TOKENS] = lost
        requests[r, OUTGOING_BYTES] = size
        s.outgoing[now[OUTGOING]] = r
        now[OUTGOING] += 1
        now[HOST_BYTES] += size
    if replay_left > 0:
        requests[r, REPLAYED] = -1
    place = _queue_again(s, r)
    if config[RECORD]:
        rows = s.rows
        k = write_row(config, now, requests, rows, PREEMPT, r, free_before)
        rows[k, REQUESTER_ID] = requester
        rows[k, QUEUE_POSITION] = place
        rows[k, FREED_BLOCKS] = freed
        rows[k, RECOVERY_COLUMN] = recovery
        rows[k, RECOVERY_REASON] = reason
        rows[k, ESTIMATE_RECOMPUTE_TICKS] = recompute_ticks
        rows[k, ESTIMATE_SWAP_TICKS] = swap_ticks
        if recovery == _RECOMPUTE:
            rows[k, RECOMPUTE_TOKENS] = lost
        else:
            rows[k, SWAP_IN_BYTES] = size
            if reason != _ON_HOST:
                rows[k, SWAP_OUT_BYTES] = size
        if restore_left > 0:
            rows[k, WORK_LEFT_BYTES] = restore_left
        elif replay_left > 0:
            rows[k, WORK_LEFT_TOKENS] = replay_left


def _queue_again(s: State, r: int) -> int:
    """Make a running request a waiting one with nothing computed; gives its place in the queue."""
    config, now, requests = s.config, s.now, s.requests
    requests[r, HIGH_MARK] = max(requests[r, HIGH_MARK], requests[r, COMPUTED])
    requests[r, COMPUTED] = 0
    requests[r, IN_FLIGHT] = 0
    requests[r, PREEMPTIONS] += 1
    requests[r, STATUS] = WAITING
    requests[r, QUEUED] = now[TICK]
    if not requests[r, FLAGGED]:
        due = now[TICK] + config[MAX_QUEUE] - requests[r, WAITED]
        now[FLAG_DUE] = min(now[FLAG_DUE], due)
    s.victims[now[VICTIMS]] = r
    now[VICTIMS] += 1
    now[BARREN] += 1
    return put_back(config, now, requests, s.waiting, r)
