"""The `waiting` queue: under fcfs those preempted before those never admitted, else a heap.

Under fcfs a victim goes to the front, so everyone preempted stands before every newcomer, and
newcomers stand in the workload's order: a stack and a range of indexes are the whole queue.
"""

from replay.vllm_v1.state import (
    ARRIVED,
    BY_PRIORITY,
    BY_RANK,
    FRESH,
    NOBODY,
    QUEUE,
    RANK,
    Ints,
)


def head(config: Ints, now: Ints, requests: Ints, waiting: Ints) -> int:
    """Who is next, or NOBODY."""
    size = now[QUEUE]
    r: int = NOBODY
    if config[BY_PRIORITY]:
        if size > 0:
            r = requests[waiting[0], BY_RANK]
    elif size > 0:
        r = waiting[size - 1]
    elif now[FRESH] < now[ARRIVED]:
        r = now[FRESH]
    return r


def pop_head(config: Ints, now: Ints, waiting: Ints) -> None:
    """Take out who is next."""
    if config[BY_PRIORITY]:
        _remove_at(waiting, now, 0)
    elif now[QUEUE] > 0:
        now[QUEUE] -= 1
    else:
        now[FRESH] += 1


def put_back(config: Ints, now: Ints, requests: Ints, waiting: Ints, r: int) -> int:
    """Queue a victim again; gives its place, 0 being next."""
    if not config[BY_PRIORITY]:
        waiting[now[QUEUE]] = r
        now[QUEUE] += 1
        return 0
    ahead = 0
    for k in range(now[QUEUE]):
        if waiting[k] < requests[r, RANK]:
            ahead += 1
    push(now, requests, waiting, r)
    return ahead


def push(now: Ints, requests: Ints, waiting: Ints, r: int) -> None:
    """Queue a request by rank."""
    k = now[QUEUE]
    waiting[k] = requests[r, RANK]
    now[QUEUE] += 1
    _rise(waiting, k)


def remove(config: Ints, now: Ints, requests: Ints, waiting: Ints, r: int) -> None:
    """Take out a preempted request, wherever it stands."""
    wanted = requests[r, RANK] if config[BY_PRIORITY] else r
    k = 0
    while waiting[k] != wanted:
        k += 1
    if config[BY_PRIORITY]:
        _remove_at(waiting, now, k)
        return
    now[QUEUE] -= 1
    for later in range(k, now[QUEUE]):
        waiting[later] = waiting[later + 1]


def _remove_at(waiting: Ints, now: Ints, k: int) -> None:
    now[QUEUE] -= 1
    size = now[QUEUE]
    if k == size:
        return
    waiting[k] = waiting[size]
    _rise(waiting, k)
    child = 2 * k + 1
    while child < size:
        if child + 1 < size and waiting[child + 1] < waiting[child]:
            child += 1
        if waiting[k] <= waiting[child]:
            return
        waiting[k], waiting[child] = waiting[child], waiting[k]
        k = child
        child = 2 * k + 1


def _rise(waiting: Ints, k: int) -> None:
    while k > 0:
        parent = (k - 1) // 2
        if waiting[parent] <= waiting[k]:
            return
        waiting[k], waiting[parent] = waiting[parent], waiting[k]
        k = parent
