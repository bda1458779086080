"""The two passes of a vllm-v1 step: who gets tokens and blocks, who is preempted or admitted.

docs/vllm-v1.md, "One step", 3 and 4.
"""

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from typing import NamedTuple

from replay.events import Kind, Reason, Recovery
from replay.oracle.blocks import Block, Pool
from replay.oracle.engine import Engine
from replay.oracle.names import ADMISSION, VICTIM
from replay.oracle.requests import Progress


def running_pass(engine: Engine) -> None:
    """Give running requests their tokens in order, preempting for the blocks they lack."""
    position = 0
    while position < len(engine.running) and engine.budget > 0:
        who = engine.running[position]
        asked = _ask(engine, who)
        tokens = who.computed + asked
        if asked:
            if tokens > who.held * engine.pool.block_size:
                position = _make_room(engine, who, tokens, position)
                if not who.running:
                    return
                engine.pool.take(who, tokens)
            _schedule(engine, who, asked)
        position += 1


def waiting_pass(engine: Engine) -> None:
    """Admit from the head of the queue as long as it fits."""
    while (entry := admissible(engine)) is not None:
        _admit(engine, entry)


def _ask(engine: Engine, who: Progress) -> int:
    all_is_in_flight = who.in_flight and who.computed + 1 >= who.last
    if all_is_in_flight or who.in_left:
        return 0
    left = who.known + who.in_flight - who.computed
    return left if left == 1 else min(left, engine.longest_ask, engine.budget)


def _schedule(engine: Engine, who: Progress, asked: int) -> None:
    engine.batch[who] = asked
    engine.budget -= asked
    # What is in flight is unknown, and so is the content of its block.
    engine.pool.name(who, min(who.computed + asked, who.known))


def _make_room(engine: Engine, who: Progress, tokens: int, position: int) -> int:
    """Preempt until blocks for so many tokens are free, or their requester is the victim.

    Gives the requester's position in the running list.
    """
    choose = _VICTIMS[engine.config.policy.victim, engine.options.scheduling_policy or "fcfs"]
    while who.running and engine.pool.lacks(who, tokens) > engine.pool.free:
        victim = choose(engine.running, engine.pool)
        place = engine.running.index(victim)
        del engine.running[place]
        refund = engine.batch.pop(victim, 0)
        engine.budget += refund
        if place < position and (refund or engine.rule.victim_before_moves_index):
            position -= 1
        _preempt(engine, victim, who)
    return position


# Victims. Of equals a what-if takes the last; the engine's own rules know no equals.

_Choice = Callable[[Sequence[Progress], Pool], Progress]


def _last(running: Sequence[Progress], _: Pool) -> Progress:
    return running[-1]


def _least_important(running: Sequence[Progress], _: Pool) -> Progress:
    return max(running, key=lambda who: who.key)


def _least_computed(running: Sequence[Progress], _: Pool) -> Progress:
    return max(reversed(running), key=lambda who: -who.computed)


def _most_freed_per_lost_token(running: Sequence[Progress], pool: Pool) -> Progress:
    return max(reversed(running), key=lambda who: Fraction(pool.would_free(who), who.computed))


_VICTIMS: Mapping[tuple[str, str], _Choice] = {
    ("rule", "fcfs"): _last,
    ("rule", "priority"): _least_important,
} | {
    (name, policy): choice
    for policy in ("fcfs", "priority")
    for name, choice in (
        ("least-computed", _least_computed),
        ("most-freed-per-lost-token", _most_freed_per_lost_token),
    )
}


def _preempt(engine: Engine, victim: Progress, requester: Progress) -> None:
    host, lost = engine.host, victim.computed
    recovery, reason, recompute_ticks, swap_ticks = host.decide(victim)
    swap, on_host = recovery is Recovery.SWAP, reason is Reason.ON_HOST
    tokens_left, bytes_left = victim.work_left, victim.in_left
    before, freed = engine.pool.occupied, engine.pool.release(victim)
    if swap and not on_host:
        host.copy_out(victim)
    if not swap:
        victim.furthest_lost = max(victim.furthest_lost, lost)
    if not victim.in_flight:
        victim.replayed = None  # no token will end it
    victim.comes_back_by = "restore" if swap else "replay"
    victim.running = False
    victim.computed = victim.in_flight = victim.prefill_to = victim.in_left = 0
    victim.preemptions += 1
    engine.preempted.append(victim)
    engine.accounts.joins(victim)
    position = engine.waiting.rejoin(victim)
    engine.emit(
        Kind.PREEMPT,
        victim,
        VICTIM,
        requester_id=requester.index,
        queue_position=position,
        occupied_blocks_before=before,
        freed_blocks=freed,
        recovery=recovery,
        recovery_reason=reason,
        recompute_tokens=None if swap else lost,
        swap_out_bytes=host.bytes(lost) if swap and not on_host else None,
        swap_in_bytes=host.bytes(lost) if swap else None,
        estimate_recompute_ticks=recompute_ticks,
        estimate_swap_ticks=swap_ticks,
        work_left_tokens=tokens_left or None,
        work_left_bytes=bytes_left or None,
    )


class _Entry(NamedTuple):
    """What the head of the queue gets if it is admitted now."""

    who: Progress
    hits: list[Block]
    asked: int
    tokens: int  # its blocks are for so many


def admissible(engine: Engine) -> _Entry | None:
    """Whether the head of the queue can be admitted now, and how."""
    options = engine.options
    full = len(engine.running) >= options.max_num_seqs
    if not len(engine.waiting) or engine.budget <= 0 or full:
        return None
    who = engine.waiting.head()
    restore = who.comes_back_by == "restore"
    if who.out_left:
        return None
    hits = [] if restore else engine.pool.find(who)
    cached = len(hits) * options.block_size
    asked = 0 if restore else min(who.known - cached, engine.longest_ask)
    if not options.enable_chunked_prefill and asked > engine.budget:
        return None
    asked = min(asked, engine.budget)
    entry = _Entry(who, hits, asked, who.known if restore else cached + asked)
    whole = engine.rule.full_isl and options.scheduler_reserve_full_isl
    needed = engine.pool.lacks(who, who.known if whole else entry.tokens, hits)
    return entry if needed + _headroom(engine) <= engine.pool.free else None


def _headroom(engine: Engine) -> int:
    """Blocks that an admission must leave free."""
    watermark = engine.options.watermark or 0.0
    if not engine.running or not engine.rule.watermark:
        return 0
    return int(watermark * (engine.options.capacity_blocks + 1))


def _admit(engine: Engine, entry: _Entry) -> None:
    who, cached = entry.who, len(entry.hits) * engine.options.block_size
    back_by = who.comes_back_by
    restore = back_by == "restore"
    engine.waiting.leave(who)
    engine.accounts.leaves(who)
    before = engine.pool.occupied
    taken = engine.pool.take(who, entry.tokens, entry.hits)
    who.running = True
    engine.running.append(who)
    if restore:
        who.computed, who.prefill_to = who.on_host_tokens, 0
        who.in_left = engine.host.bytes(who.on_host_tokens)
    else:
        who.computed, who.prefill_to = cached, who.known
        who.replayed = max(who.furthest_lost - cached, 0) if back_by == "replay" else None
        _schedule(engine, who, entry.asked)
    engine.emit(
        Kind.ADMIT if back_by == "prefill" else Kind.RESUME,
        who,
        ADMISSION,
        occupied_blocks_before=before,
        allocated_blocks=taken,
        work_left_tokens=None if restore else who.known - cached,
        work_left_bytes=who.in_left if restore else None,
    )
