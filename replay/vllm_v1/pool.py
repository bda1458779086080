"""KV blocks with prefix caching: which are free, in what order they are taken, what they hold.

A *name* stands for the content of one full block and all before it. Several blocks can have the
same name; the one named first is found. Without prefix caching blocks have no identity, and the
scheduler only counts them.
"""

from typing import Any

from replay.vllm_v1.state import (
    AFTER,
    BEFORE,
    BLOCK_SIZE,
    BLOCKS,
    CHUNK,
    CHUNK_NAMES,
    CHUNK_TOKENS,
    COVERED,
    HOLDERS,
    NAME,
    NAMED,
    NAMELESS,
    NOBODY,
    OWN_NAMES,
    SAME_BUCKET,
    SLOT,
    Ints,
)


def block_name(config: Ints, chunks: Ints, request: Ints, index: int) -> Any:
    """Name of a request's block: shared if chunks that others may hold too cover all of it."""
    end = (index + 1) * config[BLOCK_SIZE]
    if end > request[COVERED]:
        return request[OWN_NAMES] + index
    chunk = (end - 1) // config[CHUNK_TOKENS]
    first = chunk * config[CHUNK_TOKENS] // config[BLOCK_SIZE]  # block of the chunk's first token
    return chunks[request[CHUNK] + chunk] * config[CHUNK_NAMES] + index - first


def find(pool: Ints, buckets: Ints, name: int) -> Any:
    """The block named first among those with this name, or NOBODY."""
    block = buckets[name % len(buckets)]
    while block != NOBODY and pool[block, NAME] != name:
        block = pool[block, SAME_BUCKET]
    return block


def cached_prefix(
    config: Ints,
    pool: Ints,
    buckets: Ints,
    chunks: Ints,
    request: Ints,
    most_tokens: int,
    hits: Ints,
) -> Any:
    """Write the blocks of the longest cached prefix to `hits`; gives how many."""
    most = most_tokens // config[BLOCK_SIZE]
    for index in range(most):
        block = find(pool, buckets, block_name(config, chunks, request, index))
        if block == NOBODY:
            return index
        hits[index] = block
    return most


def not_held(pool: Ints, hits: Ints, count: int) -> Any:
    """How many of the hits nobody holds: taking those makes free blocks fewer."""
    free = 0
    for k in range(count):
        if pool[hits[k], HOLDERS] == 0:
            free += 1
    return free


def hold_hits(pool: Ints, request: Ints, tables: Ints, hits: Ints, count: int) -> None:
    """Make the hits a request's first blocks."""
    for k in range(count):
        block = hits[k]
        if pool[block, HOLDERS] == 0:
            unlink(pool, block)
        pool[block, HOLDERS] += 1
        tables[request[SLOT], k] = block
    request[BLOCKS] = count
    request[NAMED] = count


def take_blocks(pool: Ints, buckets: Ints, request: Ints, tables: Ints, count: int) -> None:
    """Take blocks from the front of the free list; what they held is found no more."""
    end = len(pool) - 1
    for _ in range(count):
        block = pool[end, AFTER]
        unlink(pool, block)
        if pool[block, NAME] != NAMELESS:
            forget(pool, buckets, block)
        pool[block, HOLDERS] = 1
        tables[request[SLOT], request[BLOCKS]] = block
        request[BLOCKS] += 1


def name_blocks(
    config: Ints, pool: Ints, buckets: Ints, chunks: Ints, request: Ints, tables: Ints, tokens: int
) -> None:
    """Let a request's blocks be found up to `tokens`."""
    while (request[NAMED] + 1) * config[BLOCK_SIZE] <= tokens:
        index = request[NAMED]
        block = tables[request[SLOT], index]
        name = block_name(config, chunks, request, index)
        pool[block, NAME] = name
        pool[block, SAME_BUCKET] = NOBODY
        bucket = name % len(buckets)
        last = buckets[bucket]
        if last == NOBODY:
            buckets[bucket] = block
        else:
            while pool[last, SAME_BUCKET] != NOBODY:
                last = pool[last, SAME_BUCKET]
            pool[last, SAME_BUCKET] = block
        request[NAMED] += 1


def release(pool: Ints, request: Ints, tables: Ints, nameless_first: int) -> Any:
    """Give up a request's blocks, last to first; gives how many became free."""
    end = len(pool) - 1
    front = end
    freed = 0
    for index in range(request[BLOCKS] - 1, -1, -1):
        block = tables[request[SLOT], index]
        pool[block, HOLDERS] -= 1
        if pool[block, HOLDERS] > 0:
            continue
        freed += 1
        if nameless_first and pool[block, NAME] == NAMELESS:
            link(pool, block, front)
            front = block
        else:
            link(pool, block, pool[end, BEFORE])
    request[BLOCKS] = 0
    request[NAMED] = 0
    return freed


def held_alone(pool: Ints, request: Ints, tables: Ints) -> Any:
    """How many blocks would become free with this request."""
    alone = 0
    for index in range(request[BLOCKS]):
        if pool[tables[request[SLOT], index], HOLDERS] == 1:
            alone += 1
    return alone


def forget(pool: Ints, buckets: Ints, block: int) -> None:
    """Take a block's name away."""
    bucket = pool[block, NAME] % len(buckets)
    if buckets[bucket] == block:
        buckets[bucket] = pool[block, SAME_BUCKET]
    else:
        before = buckets[bucket]
        while pool[before, SAME_BUCKET] != block:
            before = pool[before, SAME_BUCKET]
        pool[before, SAME_BUCKET] = pool[block, SAME_BUCKET]
    pool[block, NAME] = NAMELESS


def link(pool: Ints, block: int, before: int) -> None:
    """Put a block into the free list behind another."""
    after = pool[before, AFTER]
    pool[block, BEFORE] = before
    pool[block, AFTER] = after
    pool[before, AFTER] = block
    pool[after, BEFORE] = block


def unlink(pool: Ints, block: int) -> None:
    """Take a block out of the free list."""
    pool[pool[block, BEFORE], AFTER] = pool[block, AFTER]
    pool[pool[block, AFTER], BEFORE] = pool[block, BEFORE]
