"""One step of the `vllm-v1` scheduler after another, and the stretches in which nothing happens."""

from replay.events import Recovery
from replay.vllm_v1.clock import arrival_tick, next_arrival_ns, run_clock
from replay.vllm_v1.jump import decode, look_ahead, stand_still
from replay.vllm_v1.passes import ask_threshold, running_pass, waiting_pass
from replay.vllm_v1.pool import name_blocks
from replay.vllm_v1.progress import goes_in_circles
from replay.vllm_v1.queue import push, remove
from replay.vllm_v1.rows import (
    ARRIVE,
    CENSOR,
    COMPLETE,
    FIRST,
    FLAG_REPEAT,
    FLAG_WAIT,
    FREED_BLOCKS,
    RECOMPUTE_TOKENS,
    RECOVERED,
    SWAP_IN_BYTES,
    SWAP_OUT_BYTES,
    SWAPPED_OUT,
    TIME_US,
    count_accounting,
    queue_depth,
    write_row,
)
from replay.vllm_v1.rows import RECOVERY as RECOVERY_COLUMN
from replay.vllm_v1.state import (
    ACTIVE,
    ARRIVAL,
    ARRIVED,
    ARRIVES_NS,
    ASYNC,
    BARREN,
    BATCH_0,
    BUDGET,
    BY_PRIORITY,
    BY_RANK,
    BYTES_PER_TOKEN,
    CACHING,
    CENSORED,
    CLOCK_NS,
    COMPLETED,
    COMPUTED,
    DELIVER,
    DONE,
    FINISHED,
    FINISHING,
    FIRST_TOKEN,
    FLAG_DUE,
    FLAG_FRESH,
    FLAGGED,
    FREE,
    GENERATED,
    HOST_BYTES,
    HOST_TOKENS,
    IN_FLIGHT,
    LINK_RATE,
    MAX_PREEMPTIONS,
    MAX_QUEUE,
    MAX_SEQS,
    MAX_TICKS,
    NEVER,
    OUTGOING,
    OUTGOING_BYTES,
    OUTPUT,
    OWED,
    PREEMPTIONS,
    PROMPT,
    QUEUE,
    QUEUED,
    RECORD,
    REPLAYED,
    RESTORE_BYTES,
    RESTORING,
    ROWS,
    RUNNING,
    STATUS,
    TICK,
    TIMED,
    VICTIMS,
    WAITED,
    WAITING,
    WHOLE,
    Ints,
    State,
)
from replay.vllm_v1.victim import give_blocks

ALL_DONE, OUT_OF_TICKS, NO_ROOM, STEPS_DONE, NO_PROGRESS = range(5)
_SWAP = int(Recovery.SWAP)
_RECOMPUTE = int(Recovery.RECOMPUTE)


def advance(s: State, steps: int) -> int:
    """Go on for at most `steps` steps; gives why it stopped.

    NO_ROOM: the next step may write more rows than there is room for; take those written and
    call again. NO_PROGRESS: requests evict each other in turn, and will for ever.
    """
    config, now = s.config, s.now
    total = len(s.requests)
    for _ in range(steps):
        if now[FINISHED] == total:
            return ALL_DONE
        if now[FINISHED] == now[ARRIVED]:
            if config[TIMED]:
                now[CLOCK_NS] = max(now[CLOCK_NS], next_arrival_ns(s))
            else:
                now[TICK] = max(now[TICK], s.requests[now[ARRIVED], ARRIVAL])
        if now[TICK] >= config[MAX_TICKS]:
            decode(s, now[OWED])
            return OUT_OF_TICKS
        if config[RECORD] and now[ROWS] + most_rows(s) > len(s.rows):
            return NO_ROOM
        moved = one_step(s)
        if goes_in_circles(s):
            return NO_PROGRESS
        now[TICK] += 1
        if not moved and now[FINISHED] < now[ARRIVED]:
            now[TICK] += stand_still(s)
        else:
            look_ahead(s)
    return STEPS_DONE


def most_rows(s: State) -> int:
    """No step writes more rows than this."""
    config, now, requests = s.config, s.now, s.requests
    tick = now[TICK]
    arriving = now[ARRIVED]
    while arriving < len(requests) and arrival_tick(config, now, requests, arriving) <= tick:
        arriving += 1
    flagged = now[FLAG_FRESH]
    while (
        flagged < arriving
        and arrival_tick(config, now, requests, flagged) + config[MAX_QUEUE] <= tick
    ):
        flagged += 1
    arrived = arriving - now[ARRIVED]
    waits = queue_depth(config, now) + arrived
    enter = min(waits, max(config[MAX_SEQS] - now[ACTIVE], 0))
    due = now[QUEUE] if now[FLAG_DUE] <= tick else 0
    most = arrived + flagged - now[FLAG_FRESH] + due + 8 * (now[ACTIVE] + enter)
    return int(most + now[OUTGOING] + now[BATCH_0] + now[BATCH_0 + 1])


def one_step(s: State) -> bool:
    """One step, rule by rule; gives whether anything but bytes on the link moved."""
    config, now = s.config, s.now
    now[VICTIMS] = 0
    arrive(s)
    swapping = now[OUTGOING] + now[RESTORING]
    link = drain(s, config[LINK_RATE]) if now[OUTGOING] > 0 else config[LINK_RATE]
    batch = 1 - now[DELIVER] if config[ASYNC] else 0
    threshold = ask_threshold(config, now)
    moved = now[ACTIVE] > now[RESTORING]
    if now[WHOLE]:
        now[WHOLE] = 0
        now[BATCH_0 + batch] = 0
        decodes = now[ACTIVE]
        budget = config[BUDGET] - decodes
        decode(s, now[OWED] + 1)
    else:
        if now[OWED] > 0:
            decode(s, now[OWED])
        decodes = 0
        budget = running_pass(s, batch, threshold)
    admitted = waiting_pass(s, batch, threshold, budget)
    if config[TIMED]:
        run_clock(s, batch, decodes)
    if now[RESTORING] > 0:
        restore(s, link)
    run_batch(s, batch)
    delivered = now[DELIVER] if config[ASYNC] else 0
    moved = moved or admitted or now[BATCH_0 + delivered] > 0
    moved = moved or swapping != now[OUTGOING] + now[RESTORING]
    deliver(s, delivered)
    if config[ASYNC]:
        now[BATCH_0 + delivered] = 0
        now[DELIVER] = batch
    account(s)
    return bool(moved)


def arrive(s: State) -> None:
    """Queue this tick's arrivals."""
    config, now, requests = s.config, s.now, s.requests
    while now[ARRIVED] < len(requests):
        r = now[ARRIVED]
        if arrival_tick(config, now, requests, r) > now[TICK]:
            break
        if config[TIMED]:
            requests[r, ARRIVAL] = now[TICK]
        now[ARRIVED] += 1
        requests[r, STATUS] = WAITING
        requests[r, QUEUED] = now[TICK]
        if config[BY_PRIORITY]:
            push(now, requests, s.waiting, r)
        if config[RECORD]:
            k = write_row(config, now, requests, s.rows, ARRIVE, r, now[FREE])
            if config[TIMED]:
                s.rows[k, TIME_US] = requests[r, ARRIVES_NS] // 1000


def drain(s: State, link: int) -> int:
    """Send swapped-out bytes, oldest eviction first; gives what is left of the link."""
    now, requests = s.now, s.requests
    k = 0
    while k < now[OUTGOING]:
        r = s.outgoing[k]
        sent = min(link, requests[r, OUTGOING_BYTES])
        requests[r, OUTGOING_BYTES] -= sent
        link -= sent
        if requests[r, OUTGOING_BYTES] > 0:
            k += 1
            continue
        stop_sending(now, s.outgoing, r)
        if s.config[RECORD]:
            at = write_row(s.config, now, requests, s.rows, SWAPPED_OUT, r, now[FREE])
            s.rows[at, SWAP_OUT_BYTES] = requests[r, HOST_TOKENS] * s.config[BYTES_PER_TOKEN]
    return link


def stop_sending(now: Ints, outgoing: Ints, r: int) -> None:
    """Take a request off the list of swap-outs, if it is there."""
    kept = 0
    for k in range(now[OUTGOING]):
        if outgoing[k] != r:
            outgoing[kept] = outgoing[k]
            kept += 1
    now[OUTGOING] = kept


def restore(s: State, link: int) -> None:
    """Bring swapped KV back in running order."""
    now, requests = s.now, s.requests
    for k in range(now[ACTIVE]):
        r = s.running[k]
        if requests[r, RESTORE_BYTES] == 0:
            continue
        back = min(link, requests[r, RESTORE_BYTES])
        link -= back
        requests[r, RESTORE_BYTES] -= back
        if requests[r, RESTORE_BYTES] > 0:
            continue
        size = drop_copy(s, r)
        now[RESTORING] -= 1
        if s.config[RECORD]:
            at = write_row(s.config, now, requests, s.rows, RECOVERED, r, now[FREE])
            s.rows[at, RECOVERY_COLUMN] = _SWAP
            s.rows[at, SWAP_IN_BYTES] = size


def drop_copy(s: State, r: int) -> int:
    """Let go of a request's copy on the host; gives its bytes."""
    size: int = s.requests[r, HOST_TOKENS] * s.config[BYTES_PER_TOKEN]
    s.now[HOST_BYTES] -= size
    s.requests[r, HOST_TOKENS] = 0
    return size


def run_batch(s: State, batch: int) -> None:
    """Compute what was scheduled; who has nothing left to compute samples a token."""
    requests = s.requests
    for k in range(s.now[BATCH_0 + batch]):
        r = s.batches[batch, k, 0]
        requests[r, COMPUTED] += s.batches[batch, k, 1]
        known = requests[r, PROMPT] + requests[r, GENERATED] + requests[r, IN_FLIGHT]
        samples = requests[r, COMPUTED] >= known
        s.batches[batch, k, 2] = samples
        if samples and s.config[ASYNC]:
            requests[r, IN_FLIGHT] += 1


def deliver(s: State, batch: int) -> None:
    """Hand out the tokens of a batch, in its order."""
    now, requests = s.now, s.requests
    before = now[ACTIVE]
    for k in range(now[FINISHING]):
        complete(s, s.finishing[k])
    now[FINISHING] = 0
    for k in range(now[BATCH_0 + batch]):
        if s.batches[batch, k, 2]:
            deliver_token(s, s.batches[batch, k, 0])
    if now[ACTIVE] == before:
        return
    kept = 0
    for k in range(before):
        r = s.running[k]
        if requests[r, STATUS] == RUNNING:
            s.running[kept] = r
            kept += 1


def deliver_token(s: State, r: int) -> None:
    """One token of a request, which may have been preempted while it was in flight."""
    config, now, requests, rows = s.config, s.now, s.requests, s.rows
    now[BARREN] = 0
    requests[r, GENERATED] += 1
    if config[ASYNC] and requests[r, STATUS] == RUNNING:
        requests[r, IN_FLIGHT] -= 1
        if config[CACHING]:
            full = requests[r, COMPUTED] - requests[r, IN_FLIGHT]
            name_blocks(config, s.pool, s.buckets, s.chunks, requests[r], s.tables, full)
    if requests[r, REPLAYED] >= 0:
        if config[RECORD]:
            at = write_row(config, now, requests, rows, RECOVERED, r, now[FREE])
            rows[at, RECOVERY_COLUMN] = _RECOMPUTE
            rows[at, RECOMPUTE_TOKENS] = requests[r, REPLAYED]
        requests[r, REPLAYED] = -1
    if requests[r, GENERATED] == 1:
        requests[r, FIRST_TOKEN] = now[TICK]
        if config[RECORD]:
            write_row(config, now, requests, rows, FIRST, r, now[FREE])
    if requests[r, GENERATED] == requests[r, OUTPUT]:
        complete(s, r)


def complete(s: State, r: int) -> None:
    """End a request, running or, with its last token in flight, waiting."""
    config, now, requests = s.config, s.now, s.requests
    free_before = now[FREE]
    freed = 0
    if requests[r, STATUS] == RUNNING:
        freed = give_blocks(s, r)
        now[ACTIVE] -= 1
    else:
        remove(config, now, requests, s.waiting, r)
        requests[r, WAITED] += now[TICK] - requests[r, QUEUED]
        if requests[r, HOST_TOKENS] > 0:
            drop_copy(s, r)
            stop_sending(now, s.outgoing, r)
    requests[r, STATUS] = DONE
    requests[r, COMPLETED] = now[TICK]
    now[FINISHED] += 1
    if config[RECORD]:
        k = write_row(config, now, requests, s.rows, COMPLETE, r, free_before)
        s.rows[k, FREED_BLOCKS] = freed


def account(s: State) -> None:
    """Flag whoever crossed a fairness limit in this tick, in workload order."""
    config, now, requests, flags = s.config, s.now, s.requests, s.flags
    count = newcomers_due(s)
    if now[FLAG_DUE] <= now[TICK]:
        count = preempted_due(s, count)
    for k in range(now[VICTIMS]):
        if requests[s.victims[k], PREEMPTIONS] == config[MAX_PREEMPTIONS] + 1:
            flags[count] = 2 * s.victims[k] + 1
            count += 1
    sort_few(flags, count)
    for k in range(count):
        r = flags[k] // 2
        repeat = flags[k] % 2
        if not repeat:
            requests[r, FLAGGED] = 1
        if config[RECORD]:
            kind = FLAG_REPEAT if repeat else FLAG_WAIT
            at = write_row(config, now, requests, s.rows, kind, r, now[FREE])
            if requests[r, STATUS] == WAITING:
                count_accounting(s.rows, at, 1)


def newcomers_due(s: State) -> int:
    """List those never preempted who have waited too long now; gives how many."""
    config, now, requests = s.config, s.now, s.requests
    count = 0
    while (
        now[FLAG_FRESH] < now[ARRIVED]
        and requests[now[FLAG_FRESH], ARRIVAL] + config[MAX_QUEUE] <= now[TICK]
    ):
        r = now[FLAG_FRESH]
        now[FLAG_FRESH] += 1
        if requests[r, STATUS] == WAITING and requests[r, PREEMPTIONS] == 0:
            s.flags[count] = 2 * r
            count += 1
    return count


def preempted_due(s: State, count: int) -> int:
    """List those preempted who have waited too long now, behind `count` others."""
    config, now, requests = s.config, s.now, s.requests
    now[FLAG_DUE] = NEVER
    for k in range(now[QUEUE]):
        r = s.waiting[k]
        if config[BY_PRIORITY]:
            r = requests[r, BY_RANK]
        if requests[r, PREEMPTIONS] == 0 or requests[r, FLAGGED]:
            continue
        due = requests[r, QUEUED] + config[MAX_QUEUE] - requests[r, WAITED]
        if due <= now[TICK]:
            s.flags[count] = 2 * r
            count += 1
        else:
            now[FLAG_DUE] = min(now[FLAG_DUE], due)
    return count


def sort_few(values: Ints, count: int) -> None:
    """Sort the first values, which are nearly sorted already."""
    for k in range(1, count):
        value = values[k]
        at = k
        while at > 0 and values[at - 1] > value:
            values[at] = values[at - 1]
            at -= 1
        values[at] = value


def censor(s: State) -> bool:
    """End what is unfinished at the last tick; gives whether all rows found room."""
    now, requests = s.now, s.requests
    now[TICK] = s.config[MAX_TICKS] - 1
    while now[CENSORED] < len(requests):
        r = now[CENSORED]
        if requests[r, STATUS] != DONE:
            if now[ROWS] == len(s.rows):
                return False
            k = write_row(s.config, now, requests, s.rows, CENSOR, r, now[FREE])
            if requests[r, STATUS] == WAITING:
                count_accounting(s.rows, k, 1)
        now[CENSORED] += 1
    return True
