"""Passing over stretches of steps in which every decision is known in advance.

While everybody who runs decodes, nobody arrives, can be admitted or is due for a flag, and the free
blocks last, a step gives each running request one token and nothing else happens. Such steps are
counted, not taken; the one that ends the stretch gets all their tokens, and its own, at once.
"""

from replay.vllm_v1.clock import skip_empty, skip_quiet
from replay.vllm_v1.queue import head
from replay.vllm_v1.state import (
    ACTIVE,
    ARRIVAL,
    ARRIVED,
    ASYNC,
    BARREN,
    BLOCK_SIZE,
    BLOCKS,
    BUDGET,
    CACHING,
    COMPUTED,
    FINISHING,
    FLAG_DUE,
    FLAG_FRESH,
    FREE,
    FULL_SEQUENCE,
    GENERATED,
    IN_FLIGHT,
    KV_TOKENS,
    LINK_RATE,
    MAX_QUEUE,
    MAX_SEQS,
    MAX_TICKS,
    NOBODY,
    OUTGOING,
    OUTGOING_BYTES,
    OUTPUT,
    OWED,
    OWED_BLOCKS,
    PROMPT,
    REPLAYED,
    RESTORE_BYTES,
    RESTORING,
    THRESHOLD,
    TICK,
    TIMED,
    WATERMARK,
    WHOLE,
    State,
)


def stand_still(s: State) -> int:
    """After a step that scheduled nothing: how many more only send bytes over the link."""
    config, now, requests = s.config, s.now, s.requests
    ticks = _until_something(s)
    if now[OUTGOING] > 0:
        r = s.outgoing[0]
        column = OUTGOING_BYTES
    elif now[RESTORING] > 0:
        k = 0
        while requests[s.running[k], RESTORE_BYTES] == 0:
            k += 1
        r = s.running[k]
        column = RESTORE_BYTES
    else:
        return skip_empty(s, ticks) if config[TIMED] else ticks
    # The step that ends it is taken: it has an event.
    ticks = min(ticks, (requests[r, column] - 1) // config[LINK_RATE])
    if config[TIMED]:
        ticks = skip_empty(s, ticks)
    requests[r, column] -= ticks * config[LINK_RATE]
    return int(ticks)


def look_ahead(s: State) -> None:
    """After a step: put off the quiet ones that follow, and see whether the next is plain too.

    Moves TICK on, with the tokens of the skipped steps OWED (their blocks are taken from FREE
    already), and sets WHOLE if in the step at TICK every running request decodes, so that no
    request has to be looked at alone.
    """
    config, now = s.config, s.now
    active = now[ACTIVE]
    if config[CACHING] or now[OUTGOING] + now[RESTORING] > 0 or not 0 < active <= config[BUDGET]:
        return
    tokens = _until_one_finishes(s)
    if tokens <= 0:
        return
    quiet = 0 if _may_admit(s) else min(_until_something(s), tokens - 1)
    owed, blocks = _steps_that_fit(s, quiet)
    if config[TIMED] and owed > 0:
        begun = skip_quiet(s, owed)
        if begun < owed:
            quiet = begun
            owed, blocks = _steps_that_fit(s, quiet)
    next_growth = s.growth[owed % config[BLOCK_SIZE]]
    now[WHOLE] = not config[ASYNC] and owed == quiet and blocks + next_growth <= now[FREE]
    now[OWED] = owed
    now[OWED_BLOCKS] = blocks
    now[FREE] -= blocks
    now[TICK] += owed


def _steps_that_fit(s: State, steps: int) -> tuple[int, int]:
    """How many of so many quiet steps the free blocks last for, and how many blocks those take."""
    now, active = s.now, s.now[ACTIVE]
    # In `block_size` steps everyone grows once: whole rounds first, then step by step.
    block_size = s.config[BLOCK_SIZE]
    rounds = min(now[FREE] // active, steps // block_size)
    owed = rounds * block_size
    blocks = rounds * active
    step = 0
    while owed < steps and blocks + s.growth[step] <= now[FREE]:
        blocks += s.growth[step]
        owed += 1
        step += 1
        if step == block_size:
            step = 0
    return int(owed), int(blocks)


def decode(s: State, ticks: int) -> None:
    """Give every running request so many tokens, owed ones included, and list who finishes."""
    now, requests = s.now, s.requests
    block_size = s.config[BLOCK_SIZE]
    free = now[FREE] + now[OWED_BLOCKS]
    kv_tokens = 0
    for k in range(now[ACTIVE]):
        r = s.running[k]
        requests[r, COMPUTED] += ticks
        kv_tokens += requests[r, COMPUTED]
        requests[r, GENERATED] += ticks
        lacks = requests[r, COMPUTED] - requests[r, BLOCKS] * block_size
        if lacks > 0:
            blocks = -(-lacks // block_size)
            free -= blocks
            requests[r, BLOCKS] += blocks
        if requests[r, GENERATED] == requests[r, OUTPUT]:
            s.finishing[now[FINISHING]] = r
            now[FINISHING] += 1
    now[FREE] = free
    now[KV_TOKENS] = kv_tokens
    now[OWED] = 0
    now[OWED_BLOCKS] = 0
    now[BARREN] = 0


def _until_one_finishes(s: State) -> int:
    """Steps, its last one included, until a running request finishes; 0 if not all decode.

    Asynchronous: 1 + the steps before anybody's last token is in flight. Fills `State.growth`.
    """
    config, now, requests = s.config, s.now, s.requests
    block_size, asynchronous = config[BLOCK_SIZE], config[ASYNC]
    least = config[MAX_TICKS]
    s.growth[:] = 0
    kv_tokens = 0
    for k in range(now[ACTIVE]):
        r = s.running[k]
        computed = requests[r, COMPUTED]
        kv_tokens += computed
        generated = requests[r, GENERATED]
        room = requests[r, BLOCKS] * block_size - computed
        context = requests[r, PROMPT] + generated
        left = requests[r, OUTPUT] - generated
        if asynchronous:
            decodes = requests[r, IN_FLIGHT] == 1 and computed == context
            left -= 1
        else:
            decodes = computed == context - 1
        if not decodes or generated == 0 or requests[r, REPLAYED] >= 0 or room >= block_size:
            return 0
        least = min(least, left)
        s.growth[room] += 1
    now[KV_TOKENS] = kv_tokens
    return int(least)


def _until_something(s: State) -> int:
    """Ticks from TICK on before the next arrival (if ticks say when), the next flag or the end."""
    config, now, requests = s.config, s.now, s.requests
    next_tick = min(config[MAX_TICKS], now[FLAG_DUE])
    if now[ARRIVED] < len(requests) and not config[TIMED]:
        next_tick = min(next_tick, requests[now[ARRIVED], ARRIVAL])
    if now[FLAG_FRESH] < now[ARRIVED]:
        next_tick = min(next_tick, requests[now[FLAG_FRESH], ARRIVAL] + config[MAX_QUEUE])
    return int(max(next_tick - now[TICK], 0))


def _may_admit(s: State) -> bool:
    """Whether a step might admit the head of the queue; the free blocks only become fewer."""
    config, now, requests = s.config, s.now, s.requests
    if now[ACTIVE] >= config[MAX_SEQS] or now[ACTIVE] >= config[BUDGET]:
        return False
    r = head(config, now, requests, s.waiting)
    if r == NOBODY:
        return False
    tokens = requests[r, PROMPT] + requests[r, GENERATED]
    if not config[FULL_SEQUENCE]:
        tokens = min(tokens, config[BUDGET] - now[ACTIVE])
        if config[THRESHOLD] > 0:
            tokens = min(tokens, config[THRESHOLD])
    kept = config[WATERMARK] if now[ACTIVE] > 0 else 0
    return bool(-(-tokens // config[BLOCK_SIZE]) + kept <= now[FREE])
