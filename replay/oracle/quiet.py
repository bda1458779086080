"""How many steps of the vllm-v1 walk can be passed over, because they only count down.

In such a step every running request decodes one token, which is neither its first nor its last and
ends no replay; free blocks cover what grows; nobody arrives, is admitted, moves over the link or
becomes due for a flag. When in doubt the answer is 0 and the step is walked.
"""

from collections.abc import Sequence

from replay.oracle.blocks import CachingPool, Pool
from replay.oracle.requests import Progress


def quiet_decodes(
    running: Sequence[Progress], pool: Pool, *, ahead: int, most: int, anybody_waits: bool
) -> int:
    """How many steps, at most `most`, in which everybody running decodes without an event.

    `ahead`: tokens in flight of a request that decodes in every step (1 if asynchronous).
    """
    for who in running:
        decodes = who.known + ahead - who.computed == 1 and who.in_flight == ahead
        if not decodes or who.in_left or who.replayed is not None or who.known == who.prompt:
            return 0
        most = min(most, who.last - who.known - 1)
    if isinstance(pool, CachingPool) and anybody_waits:
        # What the head would hit stays as it is while no block is taken and none of a prompt named.
        if any(who.named < who.prompt // pool.block_size for who in running):
            return 0
        most = min((most, *(_room(who, pool) for who in running)))
    while most > 0 and _growth(running, pool, most) > pool.free:
        most //= 2
    return max(most, 0)


def pass_over(running: Sequence[Progress], pool: Pool, *, ahead: int, steps: int) -> None:
    """Let everybody running decode for so many quiet steps."""
    growths: list[tuple[int, int]] = []  # (step, place): who takes a block when
    for place, who in enumerate(running):
        room = _room(who, pool)
        if room < steps:
            growths += ((step, place) for step in range(room + 1, steps + 1, pool.block_size))
        who.known += steps
        who.computed += steps
    for _, place in sorted(growths):
        who = running[place]
        pool.take(who, who.held * pool.block_size + 1)
    for who in running:
        pool.name(who, who.computed - ahead)


def _room(who: Progress, pool: Pool) -> int:
    """Tokens that the blocks of a request have room for."""
    return who.held * pool.block_size - who.computed


def _growth(running: Sequence[Progress], pool: Pool, steps: int) -> int:
    return sum(max(pool.blocks(who.computed + steps) - who.held, 0) for who in running)
