"""What vLLM's `schedule()` does in one step: the running pass and the waiting pass."""

from replay.vllm_v1.pool import cached_prefix, hold_hits, name_blocks, not_held, take_blocks
from replay.vllm_v1.queue import head, pop_head
from replay.vllm_v1.rows import (
    ADMIT,
    ALLOCATED_BLOCKS,
    RESUME,
    WORK_LEFT_BYTES,
    WORK_LEFT_TOKENS,
    queue_depth,
    write_row,
)
from replay.vllm_v1.state import (
    ACTIVE,
    ADMITTED,
    ASYNC,
    BATCH_0,
    BLOCK_SIZE,
    BLOCKS,
    BUDGET,
    BYTES_PER_TOKEN,
    CACHING,
    CHUNKED,
    COMPUTED,
    FREE,
    FULL_SEQUENCE,
    GENERATED,
    HIGH_MARK,
    HOST_TOKENS,
    IN_FLIGHT,
    MAX_SEQS,
    MOVES_INDEX,
    NOBODY,
    OUTGOING_BYTES,
    OUTPUT,
    PREEMPTIONS,
    PROMPT,
    QUEUED,
    RECORD,
    REPLAYED,
    RESTORE_BYTES,
    RESTORING,
    RUNNING,
    SLOT,
    SPARES_LONE,
    STATUS,
    TARGET,
    THRESHOLD,
    TICK,
    VICTIMS,
    WAITED,
    WATERMARK,
    Ints,
    State,
)
from replay.vllm_v1.victim import choose_victim, preempt


def ask_threshold(config: Ints, now: Ints) -> int:
    """`long_prefill_token_threshold` of this step; 0 when it does not apply."""
    threshold: int = config[THRESHOLD]
    if config[SPARES_LONE] and now[ACTIVE] + queue_depth(config, now) <= 1:
        return 0
    return threshold


def running_pass(s: State, batch: int, threshold: int) -> int:
    """Schedule the running requests, preempting for those that grow; gives the budget left."""
    config, now, requests, running = s.config, s.now, s.requests, s.running
    block_size = config[BLOCK_SIZE]
    count = now[BATCH_0 + batch] = 0
    budget = config[BUDGET]
    index = 0
    while index < now[ACTIVE] and budget > 0:
        r = running[index]
        ask = min(_asks(config, requests, r, threshold), budget)
        if ask == 0:
            index += 1
            continue
        computed = requests[r, COMPUTED]
        lacks = computed + ask - requests[r, BLOCKS] * block_size
        lacks = -(-lacks // block_size) if lacks > 0 else 0
        evicted = NOBODY
        while lacks > now[FREE] and evicted != r:
            at = choose_victim(s)
            evicted = running[at]
            refund = _take_out(s, at, batch)
            if at < index and (refund > 0 or config[MOVES_INDEX]):
                index -= 1
            budget += refund
            preempt(s, evicted, r)
        if evicted == r:
            break
        if lacks > 0:
            grow(s, r, lacks)
        if config[CACHING]:
            full = min(computed + ask, requests[r, PROMPT] + requests[r, GENERATED])
            name_blocks(config, s.pool, s.buckets, s.chunks, requests[r], s.tables, full)
        count = now[BATCH_0 + batch]
        s.batches[batch, count, 0] = r
        s.batches[batch, count, 1] = ask
        now[BATCH_0 + batch] = count + 1
        budget -= ask
        index += 1
    return int(budget)


def _asks(config: Ints, requests: Ints, r: int, threshold: int) -> int:
    """Tokens that a running request wants computed."""
    if requests[r, RESTORE_BYTES] > 0:
        return 0
    computed, in_flight = requests[r, COMPUTED], requests[r, IN_FLIGHT]
    last = requests[r, PROMPT] + requests[r, OUTPUT]
    if config[ASYNC] and in_flight > 0 and computed + 2 - in_flight >= last:
        return 0  # its last token is in flight
    ask = requests[r, PROMPT] + requests[r, GENERATED] + in_flight - computed
    return int(threshold if 0 < threshold < ask else ask)


def _take_out(s: State, at: int, batch: int) -> int:
    """Take a victim off the running list and out of this step's batch; gives its tokens there."""
    now, running, scheduled = s.now, s.running, s.batches[batch]
    victim = running[at]
    now[ACTIVE] -= 1
    for k in range(at, now[ACTIVE]):
        running[k] = running[k + 1]
    place = now[BATCH_0 + batch] - 1
    while place >= 0 and scheduled[place, 0] != victim:
        place -= 1
    if place < 0:
        return 0
    tokens = scheduled[place, 1]
    now[BATCH_0 + batch] -= 1
    for k in range(place, now[BATCH_0 + batch]):
        scheduled[k, 0] = scheduled[k + 1, 0]
        scheduled[k, 1] = scheduled[k + 1, 1]
    return int(tokens)


def grow(s: State, r: int, blocks: int) -> None:
    """Give a request more blocks."""
    if s.config[CACHING]:
        take_blocks(s.pool, s.buckets, s.requests[r], s.tables, blocks)
    else:
        s.requests[r, BLOCKS] += blocks
    s.now[FREE] -= blocks


def waiting_pass(s: State, batch: int, threshold: int, budget: int) -> bool:
    """Admit from the head of the queue while it fits; gives whether anybody was admitted."""
    config, now, requests = s.config, s.now, s.requests
    admitted = False
    while now[VICTIMS] == 0 and budget > 0 and now[ACTIVE] < config[MAX_SEQS]:
        r = head(config, now, requests, s.waiting)
        if r == NOBODY:
            break
        if requests[r, HOST_TOKENS] > 0:
            if not _admit_restore(s, r):
                break
            admitted = True
            continue
        taken = _admit(s, r, batch, threshold, budget)
        if taken == 0:
            break
        budget -= taken
        admitted = True
    return admitted


def _admit(s: State, r: int, batch: int, threshold: int, budget: int) -> int:
    """Admit the head of the queue; gives the tokens scheduled, 0 if it does not fit."""
    config, now, requests = s.config, s.now, s.requests
    block_size = config[BLOCK_SIZE]
    known = requests[r, PROMPT] + requests[r, GENERATED]
    hits = taken_from_free = 0
    if config[CACHING]:
        hits = cached_prefix(
            config, s.pool, s.buckets, s.chunks, requests[r], known - 1, s.hits
        )  # fmt: skip
        taken_from_free = not_held(s.pool, s.hits, hits)
    computed = hits * block_size
    ask = known - computed
    if 0 < threshold < ask:
        ask = threshold
    if not config[CHUNKED] and ask > budget:
        return 0
    ask = min(ask, budget)
    kept = config[WATERMARK] if now[ACTIVE] > 0 else 0
    lacks = -(-(computed + ask) // block_size) - hits
    checked = -(-known // block_size) - hits if config[FULL_SEQUENCE] else lacks
    if checked + taken_from_free + kept > now[FREE]:
        return 0
    free_before = now[FREE]
    kind = _enter(s, r)
    if config[CACHING]:
        hold_hits(s.pool, requests[r], s.tables, s.hits, hits)
        now[FREE] -= taken_from_free
    grow(s, r, lacks)
    if config[CACHING]:
        name_blocks(
            config, s.pool, s.buckets, s.chunks, requests[r], s.tables, computed + ask
        )  # fmt: skip
    requests[r, COMPUTED] = computed
    requests[r, TARGET] = known
    requests[r, REPLAYED] = -1
    if requests[r, PREEMPTIONS] > 0:
        requests[r, REPLAYED] = max(requests[r, HIGH_MARK] - computed, 0)
    count = now[BATCH_0 + batch]
    s.batches[batch, count, 0] = r
    s.batches[batch, count, 1] = ask
    now[BATCH_0 + batch] = count + 1
    if config[RECORD]:
        k = write_row(config, now, requests, s.rows, kind, r, free_before)
        s.rows[k, ALLOCATED_BLOCKS] = free_before - now[FREE]
        s.rows[k, WORK_LEFT_TOKENS] = known - computed
    return int(ask)


def _admit_restore(s: State, r: int) -> bool:
    """Admit a swapped request, if its copy is whole and its blocks fit."""
    config, now, requests = s.config, s.now, s.requests
    blocks = -(-(requests[r, PROMPT] + requests[r, GENERATED]) // config[BLOCK_SIZE])
    kept = config[WATERMARK] if now[ACTIVE] > 0 else 0
    if requests[r, OUTGOING_BYTES] > 0 or blocks + kept > now[FREE]:
        return False
    free_before = now[FREE]
    kind = _enter(s, r)
    grow(s, r, blocks)
    requests[r, COMPUTED] = requests[r, HOST_TOKENS]
    requests[r, TARGET] = 0
    requests[r, REPLAYED] = -1
    requests[r, RESTORE_BYTES] = requests[r, HOST_TOKENS] * config[BYTES_PER_TOKEN]
    now[RESTORING] += 1
    if config[RECORD]:
        k = write_row(config, now, requests, s.rows, kind, r, free_before)
        s.rows[k, ALLOCATED_BLOCKS] = blocks
        s.rows[k, WORK_LEFT_BYTES] = requests[r, RESTORE_BYTES]
    return True


def _enter(s: State, r: int) -> int:
    """Move the head of the queue to the end of the running list; gives the kind of event."""
    now, requests = s.now, s.requests
    pop_head(s.config, now, s.waiting)
    requests[r, WAITED] += now[TICK] - requests[r, QUEUED]
    requests[r, STATUS] = RUNNING
    s.running[now[ACTIVE]] = r
    now[ACTIVE] += 1
    if s.config[CACHING]:
        requests[r, SLOT] = s.slots[s.slots[0]]
        s.slots[0] -= 1
    if requests[r, ADMITTED] < 0:
        requests[r, ADMITTED] = now[TICK]
        return ADMIT
    return RESUME
