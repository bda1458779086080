"""Everything the `vllm-v1` scheduler knows, as integer arrays (docs/vllm-v1.md has the rules).

Arrays, because the same code runs interpreted and compiled, can stop after any step and go on, and
takes the same bytes for every request. `State` is one replay; the names below are indexes into it.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]

# Columns of `State.requests`, those of every step first: they share a cache line.
(
    PROMPT,
    OUTPUT,
    COMPUTED,
    GENERATED,
    IN_FLIGHT,  # sampled, not delivered (asynchronous): vLLM's num_output_placeholders
    BLOCKS,
    STATUS,
    REPLAYED,  # positions its next token computed again; -1 outside a replay
    TARGET,  # tokens known at admission: prefill or replay is whole when they are computed
    ARRIVAL,  # tick; of a timed replay known once it has arrived
    PRIORITY,
    RANK,  # place in (priority, arrival time)
    BY_RANK,  # of row k: the request whose rank is k
    HIGH_MARK,  # most computed tokens it ever lost
    PREEMPTIONS,
    WAITED,  # queue ticks of earlier stays in the queue
    QUEUED,  # tick it joined the queue
    FLAGGED,  # for waiting
    ADMITTED,  # first admit tick; -1 until then, as the two below
    FIRST_TOKEN,
    COMPLETED,
    HOST_TOKENS,  # computed tokens whose copy the host holds
    OUTGOING_BYTES,  # of them not sent yet
    RESTORE_BYTES,  # still to come back
    SLOT,  # row of `State.tables`
    NAMED,  # how many of its blocks can be found by content
    COVERED,  # prompt tokens that prefix_blocks covers
    CHUNK,  # position of its first chunk in `State.chunks`
    OWN_NAMES,  # the name of its block j, outside shared chunks, is OWN_NAMES + j
    ARRIVES_NS,  # timed replays only
) = range(30)
REQUEST_COLUMNS = 32  # whole cache lines
COMING, WAITING, RUNNING, DONE = range(4)

# Indexes of `State.now`.
(
    TICK,
    ARRIVED,  # requests that have arrived; the next one's index
    FRESH,  # fcfs: index of the first request never admitted
    ACTIVE,  # running requests
    QUEUE,  # entries of `State.waiting`: all that wait, or under fcfs those preempted
    FREE,
    DELIVER,  # asynchronous: which of the two batches is in flight
    BATCH_0,
    BATCH_1,
    FINISHED,
    ROWS,  # events in `State.rows`
    SEQ,  # seq of its first row
    OUTGOING,  # requests in `State.outgoing`
    RESTORING,
    HOST_BYTES,
    FLAG_FRESH,  # next arrival whose flag_wait is not decided
    FLAG_DUE,  # no preempted request is due for flag_wait before this tick
    VICTIMS,  # of this step
    BARREN,  # preemptions since the last token
    CENSORED,  # next request to censor
    OWED,  # tokens of skipped steps that running requests have not got yet
    OWED_BLOCKS,  # the blocks for them, not free any more
    WHOLE,  # in the step at TICK every running request decodes
    FINISHING,  # requests in `State.finishing`
    SEEN_HIGH,  # fingerprint of an earlier state (`progress`)
    SEEN_LOW,
    LAP,  # states compared with it
    LAP_ENDS,  # when to remember a newer one
    CLOCK_NS,  # timed: begin of the step, from its batch's end on that; 0 otherwise
    BATCH_NS_0,  # timed, asynchronous: how long each of the two batches takes
    BATCH_NS_1,
    KV_TOKENS,  # computed tokens of the running requests, when last summed up
    STEPS,  # timed: batches that had something to compute
    OUTSIDE,  # of them, those beyond what the durations were fitted to, and by what
    OUTSIDE_PREFILL,
    OUTSIDE_DECODES,
    OUTSIDE_KV,
    OUTSIDE_SINCE,  # tick of the first one
    MOST_PREFILL,  # greatest batch
    MOST_DECODES,
    MOST_KV,
) = range(41)
NOW_VALUES = 41

# Indexes of `State.config`.
(
    CAPACITY,
    BLOCK_SIZE,
    MAX_SEQS,
    BUDGET,
    BY_PRIORITY,
    CHUNKED,
    FULL_SEQUENCE,
    WATERMARK,
    THRESHOLD,
    CACHING,
    ASYNC,
    SPARES_LONE,
    NAMELESS_FIRST,
    MOVES_INDEX,
    VICTIM,
    RECOVERY,  # place in replay.config.RECOVERIES
    BYTES_PER_TOKEN,
    PREFILL_RATE,
    LINK_RATE,
    HOST_CAPACITY,
    MAX_QUEUE,
    MAX_PREEMPTIONS,
    MAX_TICKS,
    TICK_US,
    RECORD,
    CHUNK_TOKENS,
    CHUNK_NAMES,  # names a chunk's blocks can take
    TIMED,
    STEP_NS,
    PREFILL_PS,  # a token of prefill or replay
    DECODE_PS,  # a request that decodes
    KV_PS,  # a KV token
    FITTED_PREFILL,  # greatest values that the durations were fitted to
    FITTED_DECODES,
    FITTED_KV,
) = range(35)
VICTIM_RULE, VICTIM_LEAST_COMPUTED, VICTIM_MOST_FREED = range(3)

# Columns of `State.pool`; its last row is the end and the beginning of the free list.
BEFORE, AFTER, HOLDERS, NAME, SAME_BUCKET = range(5)
POOL_COLUMNS = 5
NAMELESS = -1
NOBODY = -1
NEVER = 2**62
NEVER_NS = 2**63 - 1


class State(NamedTuple):
    """One replay under way; integers everywhere, so that it compiles to one piece of code."""

    config: Ints
    now: Ints
    requests: Ints  # (requests, REQUEST_COLUMNS), in workload order
    running: Ints
    waiting: Ints  # fcfs: those preempted, next one last; priority: a heap of ranks
    batches: Ints  # (2, running, 3): request, tokens, whether it samples
    victims: Ints
    finishing: Ints
    outgoing: Ints
    flags: Ints
    growth: Ints  # (block_size): how many grow in which of the next steps
    pool: Ints  # prefix caching: one row per block
    buckets: Ints  # prefix caching: first block by name
    tables: Ints  # prefix caching: (slots, blocks of one request)
    slots: Ints
    hits: Ints
    chunks: Ints  # per chunk of every prompt, a number for it and all before it
    rows: Ints  # (events, 33)
