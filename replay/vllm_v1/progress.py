"""Noticing that a run goes in circles: the same state again with nothing arrived and no token.

The scheduler is deterministic, so a state that comes back comes back for ever. Only preemptions can
lead back to one, and only when many in a row brought no token is it worth looking.
"""

from replay.vllm_v1.state import (
    ACTIVE,
    AFTER,
    ARRIVED,
    BARREN,
    CACHING,
    COMPUTED,
    FRESH,
    GENERATED,
    HOLDERS,
    IN_FLIGHT,
    LAP,
    LAP_ENDS,
    NAME,
    OUTGOING,
    OUTGOING_BYTES,
    QUEUE,
    RESTORE_BYTES,
    SEEN_HIGH,
    SEEN_LOW,
    VICTIMS,
    State,
)

MANY_BARREN = 1_000
_FACTOR = 1_000_003
_PRIMES = (2_147_483_647, 2_147_483_629)  # products with _FACTOR stay within 64 bits


def goes_in_circles(s: State) -> bool:
    """Whether the state after this step has been there before (Brent's cycle detection)."""
    now = s.now
    if now[BARREN] <= MANY_BARREN or now[VICTIMS] == 0:
        return False
    high, low = _fingerprint(s, _PRIMES[0]), _fingerprint(s, _PRIMES[1])
    if high == now[SEEN_HIGH] and low == now[SEEN_LOW]:
        return True
    now[LAP] += 1
    if now[LAP] > now[LAP_ENDS]:
        now[SEEN_HIGH] = high
        now[SEEN_LOW] = low
        now[LAP] = 0
        now[LAP_ENDS] = 2 * now[LAP_ENDS] + 1
    return False


def _fingerprint(s: State, prime: int) -> int:
    """A number for everything that decides what happens next."""
    now, requests = s.now, s.requests
    number = (now[ARRIVED] * _FACTOR + now[FRESH]) % prime
    for k in range(now[ACTIVE]):
        r = s.running[k]
        number = (number * _FACTOR + r) % prime
        number = (number * _FACTOR + requests[r, COMPUTED]) % prime
        number = (number * _FACTOR + requests[r, GENERATED]) % prime
        number = (number * _FACTOR + requests[r, IN_FLIGHT]) % prime
        number = (number * _FACTOR + requests[r, RESTORE_BYTES]) % prime
    for k in range(now[QUEUE]):
        number = (number * _FACTOR + s.waiting[k]) % prime
    for k in range(now[OUTGOING]):
        r = s.outgoing[k]
        number = (number * _FACTOR + requests[r, OUTGOING_BYTES]) % prime
    if s.config[CACHING]:
        for block in range(len(s.pool)):
            number = (number * _FACTOR + s.pool[block, AFTER]) % prime
            number = (number * _FACTOR + s.pool[block, HOLDERS]) % prime
            number = (number * _FACTOR + s.pool[block, NAME]) % prime
    return int(number)
