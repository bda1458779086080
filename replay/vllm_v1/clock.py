"""How long steps take when `[timing]` says so (SPEC §6); constant ticks pass through none of this.

A batch takes `step_ns` and what its prefill tokens, decoding requests and KV tokens cost. A step
lasts as long as its batch; asynchronous, as long as the batch whose tokens it delivers, because
that one runs meanwhile: the first step after idling delivers none and takes no time.
"""

from replay.vllm_v1.state import (
    ACTIVE,
    ARRIVAL,
    ARRIVED,
    ARRIVES_NS,
    ASYNC,
    BATCH_0,
    BATCH_NS_0,
    CLOCK_NS,
    COMPUTED,
    DECODE_PS,
    DELIVER,
    FITTED_DECODES,
    FITTED_KV,
    FITTED_PREFILL,
    KV_PS,
    KV_TOKENS,
    MOST_DECODES,
    MOST_KV,
    MOST_PREFILL,
    NEVER,
    NEVER_NS,
    OUTSIDE,
    OUTSIDE_DECODES,
    OUTSIDE_KV,
    OUTSIDE_PREFILL,
    OUTSIDE_SINCE,
    PREFILL_PS,
    STEP_NS,
    STEPS,
    TARGET,
    TICK,
    TIMED,
    Ints,
    State,
)


def arrival_tick(config: Ints, now: Ints, requests: Ints, r: int) -> int:
    """Tick of an arrival; of a timed one that is still to come, this one or some later tick."""
    tick: int = requests[r, ARRIVAL]
    if config[TIMED] and r >= now[ARRIVED]:
        return int(now[TICK] if requests[r, ARRIVES_NS] <= now[CLOCK_NS] else NEVER)
    return tick


def run_clock(s: State, batch: int, decodes: int) -> None:
    """Let the step's time pass; `decodes` requests of it decode and are in no batch's list."""
    config, now, requests = s.config, s.now, s.requests
    prefill = 0
    kv = now[KV_TOKENS] if decodes > 0 else 0
    for k in range(now[BATCH_0 + batch]):
        r = s.batches[batch, k, 0]
        tokens = s.batches[batch, k, 1]
        if requests[r, COMPUTED] < requests[r, TARGET]:
            prefill += tokens
        else:
            decodes += 1
        kv += requests[r, COMPUTED] + tokens
    takes = config[STEP_NS]
    if prefill + decodes > 0:
        takes = take_note(config, now, prefill, decodes, kv, now[TICK])
    if config[ASYNC]:
        now[BATCH_NS_0 + batch] = takes
        delivered = now[DELIVER]
        if now[BATCH_0 + delivered] > 0:
            takes = now[BATCH_NS_0 + delivered]
        elif prefill + decodes > 0:
            takes = 0
    now[CLOCK_NS] += takes


def skip_quiet(s: State, steps: int) -> int:
    """Pass the time of the next steps, all of them decoding; gives how many.

    At most `steps`, and only those that begin before the next arrival.
    """
    config, now = s.config, s.now
    arrives = next_arrival_ns(s)
    kv = now[KV_TOKENS]
    active = now[ACTIVE]
    in_flight = BATCH_NS_0 + now[DELIVER]
    skipped = 0
    while skipped < steps and now[CLOCK_NS] < arrives:
        kv += active
        takes = take_note(config, now, 0, active, kv, now[TICK] + skipped)
        if config[ASYNC]:
            earlier = now[in_flight]
            now[in_flight] = takes
            takes = earlier
        now[CLOCK_NS] += takes
        skipped += 1
    return skipped


def skip_empty(s: State, steps: int) -> int:
    """Pass the time of the next steps, none of which schedules anything; gives how many."""
    now, takes = s.now, s.config[STEP_NS]
    left_ns = next_arrival_ns(s) - now[CLOCK_NS]
    if left_ns <= 0:
        return 0
    if takes > 0:
        steps = min(steps, -(-left_ns // takes))
    now[CLOCK_NS] += steps * takes
    return int(steps)


def next_arrival_ns(s: State) -> int:
    """When the next request arrives."""
    arrived = s.now[ARRIVED]
    return int(s.requests[arrived, ARRIVES_NS] if arrived < len(s.requests) else NEVER_NS)


def take_note(config: Ints, now: Ints, prefill: int, decodes: int, kv: int, tick: int) -> int:
    """Nanoseconds that a batch takes; counts it, and whether it goes beyond what was fitted."""
    now[STEPS] += 1
    now[MOST_PREFILL] = max(now[MOST_PREFILL], prefill)
    now[MOST_DECODES] = max(now[MOST_DECODES], decodes)
    now[MOST_KV] = max(now[MOST_KV], kv)
    more_prefill = prefill > config[FITTED_PREFILL]
    more_decodes = decodes > config[FITTED_DECODES]
    more_kv = kv > config[FITTED_KV]
    if more_prefill or more_decodes or more_kv:
        if now[OUTSIDE] == 0:
            now[OUTSIDE_SINCE] = tick
        now[OUTSIDE] += 1
        now[OUTSIDE_PREFILL] += more_prefill
        now[OUTSIDE_DECODES] += more_decodes
        now[OUTSIDE_KV] += more_kv
    tokens_ps = prefill * config[PREFILL_PS] + decodes * config[DECODE_PS] + kv * config[KV_PS]
    return int(config[STEP_NS] + tokens_ps // 1000)
