"""What the columns of a vllm-v1 ledger show on their own, without walking its schedule.

A replay can afford this on every ledger it makes: arithmetic over whole columns. It knows what
each event says and did, not what should have happened instead; that is the walk's part
(`replay.oracle.vllm_v1`). `coverage` says how far each equation is checked here.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np

from replay.config import Config
from replay.events import NULL, Kind, Reason, Recovery, Rows, columns_of
from replay.oracle import names
from replay.oracle.columns import ENTRIES, Columns, Ints, Own
from replay.oracle.walk import Violation

if TYPE_CHECKING:
    from replay.workload_columns import AnyWorkload

_FLAGS = (Kind.FLAG_WAIT, Kind.FLAG_REPEAT)
# The order of a step. A replay's `recovered` comes with the token that ends it.
_PHASES = {
    Kind.ARRIVE: 0,
    Kind.SWAPPED_OUT: 1,
    Kind.PREEMPT: 2,
    Kind.ADMIT: 3,
    Kind.RESUME: 3,
    Kind.RECOVERED: 4,
    Kind.FIRST_TOKEN: 5,
    Kind.COMPLETE: 5,
    Kind.FLAG_WAIT: 6,
    Kind.FLAG_REPEAT: 6,
    Kind.CENSORED: 7,
}


def coverage(config: Config) -> Mapping[str, str]:
    """Equation -> `complete` or `partial`, for those that `check_rows` checks."""
    computed = "partial" if config.engine.async_scheduling else "complete"
    place = "partial" if config.engine.scheduling_policy == "priority" else "complete"
    whole = (
        *("seq", "priority", "age_ticks", "queue_ticks", "preemptions"),
        *("remaining_tokens", "context_tokens", "active_requests", "queue_depth"),
        *("capacity_blocks", "allocated_blocks", "freed_blocks", "recovery"),
        *("estimate_recompute_ticks", "host_bytes_after"),
    )
    times = names.COLUMNS["time_us"] if config.timing is None else names.TIMES
    return {
        names.COLUMNS["seq"]: "complete",
        times: "complete" if config.timing is None else "partial",
        **{names.COLUMNS[column]: "complete" for column in whole},
        names.FLAGS: "complete",
        names.COMPLETE: "complete",
        names.CHARGE: computed,
        names.BYTES_OUT: computed,
        names.BYTES_IN: computed,
        names.COLUMNS["queue_position"]: place,
        names.COLUMNS["requester_id"]: "partial",
        names.ORDER: "partial",
        names.GENERATED: "partial",
        names.VICTIM: "partial",
        names.ADMISSION: "partial",
        names.OCCUPIED: "partial",
        names.WORK_LEFT: "partial",
    }


def check_rows(workload: "AnyWorkload", config: Config, rows: Rows) -> list[Violation]:
    """Violations that the columns show, in order of `seq`; those of no event come first.

    Every row must name a known kind and a request of the workload, and hold what is never null.
    """
    found: list[Violation] = []
    ledger = Columns(columns_of(rows), found)
    own = Own(ledger, len(workload))
    _sequence(ledger, config)
    _blocks(ledger, config)
    _facts(own, workload, config)
    _life(own, config)
    _counters(own)
    _queues(ledger, own)
    _nulls(own, config)
    _charges(own, config)
    _choices(ledger, own, config)
    _flags(own, config)
    return sorted(found, key=lambda violation: -1 if violation.seq is None else violation.seq)


def _sequence(ledger: Columns, config: Config) -> None:
    ledger.equal("seq", ledger.index)
    if config.engine.tick_us is not None:
        ledger.equal("time_us", ledger["tick"] * config.engine.tick_us)
    replays = ledger.kind(Kind.RECOVERED) & (ledger["recovery"] == Recovery.RECOMPUTE)
    phases = np.array([_PHASES[kind] for kind in Kind])[ledger["kind"]] + replays
    in_workload_order = ledger.kind(Kind.ARRIVE, *_FLAGS, Kind.CENSORED)
    second = ledger.kind(Kind.FLAG_REPEAT)
    within = np.where(in_workload_order, ledger["request_id"] * 2 + second, 0)
    earlier = np.ones(len(phases), bool)
    for key in (within, phases, ledger["tick"]):  # the last one decides
        step = np.diff(key)
        earlier[1:] = (step > 0) | ((step == 0) & earlier[1:])
    ledger.hold(names.ORDER, earlier, "comes before what stands before it")
    if config.timing is not None:
        _timed(ledger, phases)
    preempted_in = np.unique(ledger["tick"][ledger.kind(Kind.PREEMPT)])
    refused = ledger.kind(*ENTRIES)
    refused[refused] = np.isin(ledger["tick"][refused], preempted_in)
    ledger.hold(names.ADMISSION, ~refused, "a step that preempted admits nobody")


def _timed(ledger: Columns, phases: Ints) -> None:
    """A step begins and ends once, and not before the one before it; arrivals precede its begin."""
    arrive, tick = ledger.kind(Kind.ARRIVE), ledger["tick"]
    ends = phases > _PHASES[Kind.ADMIT]
    rest = np.flatnonzero(~arrive)
    time = ledger["time_us"][rest]
    same = (np.diff(tick[rest]) == 0) & (np.diff(ends[rest].astype(np.int64)) == 0)
    later = np.diff(time)
    holds = np.ones(len(tick), bool)
    holds[rest[1:]] = np.where(same, later == 0, later >= 0)
    # What follows an arrival is of its step, which begins at or after it, or of a later one.
    following = np.minimum(np.searchsorted(rest, np.flatnonzero(arrive)), max(len(rest) - 1, 0))
    if len(rest):
        holds[arrive] = ledger["time_us"][arrive] <= time[following]
    ledger.hold(names.TIMES, holds, "times of steps follow each other")


def _blocks(ledger: Columns, config: Config) -> None:
    capacity = config.engine.capacity_blocks
    before, after = ledger["occupied_blocks_before"], ledger["occupied_blocks_after"]
    ledger.equal("capacity_blocks", capacity)
    for occupied in (before, after):
        within = (occupied >= 0) & (occupied <= capacity)
        ledger.hold(names.OCCUPIED, within, f"occupied must be within 0 and {capacity}")
    grown = before >= np.concatenate(([0], after[:-1]))[: len(after)]
    ledger.hold(names.OCCUPIED, grown, "no block is freed between events")
    entries, exits = ledger.kind(*ENTRIES), ledger.kind(Kind.PREEMPT, Kind.COMPLETE)
    ledger.equal("allocated_blocks", after - before, entries)
    ledger.equal("freed_blocks", before - after, exits)
    ledger.equal("occupied_blocks_after", before, ~(entries | exits))


def _facts(own: Own, workload: "AnyWorkload", config: Config) -> None:
    facts = ("priority", "arrival_us", "prompt_tokens", "output_tokens")
    values = [workload.column(fact).to_numpy() for fact in facts]
    priority, arrival_us, prompt, output = (value[own["request_id"]] for value in values)
    own.equal("priority", priority)
    if config.engine.tick_us is not None:
        own.equal("arrival_tick", arrival_us // config.engine.tick_us)
    else:
        own.equal("arrival_tick", own["tick"][own.begin])
        arrives = own.kind(Kind.ARRIVE)
        own.hold(
            names.TIMES,
            ~arrives | (own["time_us"] == arrival_us),
            "an arrival has its own time",
        )
    own.equal("prompt_tokens", prompt)
    own.equal("context_tokens", prompt + own["generated_tokens"])
    own.equal("remaining_tokens", output - own["generated_tokens"])
    own.equal("age_ticks", own["tick"] - own["arrival_tick"])


def _life(own: Own, config: Config) -> None:
    """Arrive, enter, be preempted, enter again, complete: in this order, and to the end."""
    arrive, entry = own.kind(Kind.ARRIVE), own.kind(*ENTRIES)
    exits, done = own.kind(Kind.PREEMPT), own.kind(Kind.COMPLETE)
    own.hold(names.ORDER, arrive == (own.index == own.begin), "a request arrives once, first")
    own.hold(names.ADMISSION, ~entry | own.was_waiting, "only who waits is admitted")
    again = own.kind(Kind.RESUME) == (own.entry >= 0)
    own.hold(names.ADMISSION, ~entry | again, "the first admission is admit, later ones resume")
    own.hold(names.VICTIM, ~exits | own.was_running, "only who runs is preempted")
    alive = own.before(done) < 0
    own.hold(names.COMPLETE, alive | own.kind(Kind.FLAG_REPEAT), "nothing follows completion")
    ended, censored = done | own.kind(Kind.CENSORED), own.kind(Kind.CENSORED)
    own.hold(names.COMPLETE, ~ended | (done == (own["remaining_tokens"] == 0)), "is not complete")
    last_tick = config.limits.max_ticks - 1
    own.hold(names.COMPLETE, ~censored | (own["tick"] == last_tick), f"is at tick {last_tick}")
    ends = own.so_far(ended.astype(np.int64))[own.ends] == 1
    one_end = np.ones(len(own.index), bool)
    one_end[own.ends] = ends
    own.hold(names.COMPLETE, one_end, "a request ends once")
    for request in np.flatnonzero(~own.has_events).tolist():
        detail = f"request {request} has no events"
        own.found.append(Violation(names.COMPLETE, None, detail))


def _counters(own: Own) -> None:
    own.equal("preemptions", own.so_far(own.kind(Kind.PREEMPT).astype(np.int64)))
    tokens, first = own["generated_tokens"], own.kind(Kind.FIRST_TOKEN)
    earlier = own.index > own.begin
    fallen = np.zeros(len(tokens), bool)
    fallen[1:] = earlier[1:] & (np.diff(tokens) < 0)
    own.hold(names.GENERATED, ~fallen, "generated tokens never fall")
    own.equal("generated_tokens", 1, first)
    own.equal("generated_tokens", 0, own.kind(Kind.ARRIVE, Kind.ADMIT))
    firsts = own.so_far(first.astype(np.int64))
    # `recovered` counts the token whose `first_token` comes right after it.
    counted = own.kind(Kind.RECOVERED) & (firsts == 0) & (tokens == 1)
    begun = (tokens > 0) == (firsts > 0)
    own.hold(names.GENERATED, begun | counted, "the first token has one event")
    own.hold(names.GENERATED, firsts <= 1, "the first token has one event")


def _queues(ledger: Columns, own: Own) -> None:
    entry, exits = own.kind(*ENTRIES), own.kind(Kind.PREEMPT)
    done, joins = own.kind(Kind.COMPLETE), own.kind(Kind.ARRIVE, Kind.PREEMPT)
    waits = joins | (own.was_waiting & ~entry & ~done)
    since = np.where(joins, own["tick"], own.at(own.move, "tick"))
    waited = np.where(own.was_waiting & ~joins, own["tick"] - since, 0)
    base = own.so_far(np.where(entry | done, waited, 0))
    # Flags and censored come after their tick's accounting.
    after = own.kind(*_FLAGS, Kind.CENSORED)
    own.equal("queue_ticks", base + np.where(waits, own["tick"] - since + after, 0))
    ran, waiting = done & own.was_running, done & own.was_waiting
    running = entry.astype(np.int64) - exits - ran
    queued = joins.astype(np.int64) - entry - waiting
    ledger.equal("active_requests", np.cumsum(own.in_ledger_order(running)))
    ledger.equal("queue_depth", np.cumsum(own.in_ledger_order(queued)))
    held = np.where(exits & own.given("swap_out_bytes"), own["swap_out_bytes"], 0)
    swapped = own.kind(Kind.RECOVERED) & own.given("swap_in_bytes")
    held -= np.where(swapped, own["swap_in_bytes"], 0)
    copy = own.at(own.eviction, "swap_in_bytes")
    held -= np.where(waiting & (copy != NULL), copy, 0)
    ledger.equal("host_bytes_after", np.cumsum(own.in_ledger_order(held)))


def _nulls(own: Own, config: Config) -> None:
    """Which columns an event of a kind holds (SPEC §7)."""
    exits, entry, back = own.kind(Kind.PREEMPT), own.kind(*ENTRIES), own.kind(Kind.RECOVERED)
    swap = own["recovery"] == Recovery.SWAP
    on_host = own["recovery_reason"] == Reason.ON_HOST
    restore = own.at(own.eviction, "recovery") == Recovery.SWAP
    given = {
        "requester_id": exits,
        "queue_position": exits,
        "freed_blocks": exits | own.kind(Kind.COMPLETE),
        "allocated_blocks": entry,
        "recovery": exits | back,
        "estimate_recompute_ticks": exits,
        "estimate_swap_ticks": exits,
        "recompute_tokens": (exits | back) & ~swap,
        "swap_in_bytes": (exits | back) & swap,
        "swap_out_bytes": (exits & swap & ~on_host) | own.kind(Kind.SWAPPED_OUT),
        "work_left_tokens": (entry & ~restore) | (exits & own.given("work_left_tokens")),
        "work_left_bytes": (entry & restore) | (exits & own.given("work_left_bytes")),
        "recovery_reason": exits & own.given("recovery_reason"),
    }
    for column, wanted in given.items():
        detail = f"{column} is null where it should not be, or the reverse"
        own.hold(names.COLUMNS[column], own.given(column) == wanted, detail)
    place, depth = own["queue_position"], own["queue_depth"]
    if config.engine.scheduling_policy == "priority":
        behind = ~exits | ((place >= 0) & (place < depth))
        own.hold(names.COLUMNS["queue_position"], behind, "the place is within the queue")
    else:
        own.equal("queue_position", 0, exits)


def _lost(own: Own, config: Config) -> Ints:
    """Computed tokens that each preemption says the victim loses."""
    size = config.policy.kv_bytes_per_token
    swap = own["recovery"] == Recovery.SWAP
    return np.where(swap, own["swap_in_bytes"] // size, own["recompute_tokens"])


def _charges(own: Own, config: Config) -> None:
    size, lost = config.policy.kv_bytes_per_token, _lost(own, config)
    exits, entry, back = own.kind(Kind.PREEMPT), own.kind(*ENTRIES), own.kind(Kind.RECOVERED)
    swap = own["recovery"] == Recovery.SWAP
    known, left = own["context_tokens"], own["work_left_tokens"]
    # What the admission of this stay said.
    opened, to_do = own.at(own.entry, "context_tokens"), own.at(own.entry, "work_left_tokens")
    restored = own.at(own.entry, "work_left_bytes")
    # A preempted stay: partial work is what it was admitted for but for what is left, a restore
    # keeps its copy, and a decoding victim has computed all it knows but its last token.
    partial, copied = own.given("work_left_tokens"), own.given("work_left_bytes")
    right = np.where(partial, opened - left, np.where(copied, restored // size, known - 1))
    in_flight = ~partial & ~copied if config.engine.async_scheduling else np.zeros_like(partial)
    fits = (lost == right) | (in_flight & (lost == known))
    whole = fits & (~swap | (own["swap_in_bytes"] == lost * size))
    for recovery, equation in ((swap, names.BYTES_IN), (~swap, names.CHARGE)):
        own.hold(equation, ~(exits & recovery) | whole, "what is charged is what was computed")
    out = exits & own.given("swap_out_bytes")
    own.equal("swap_out_bytes", own["swap_in_bytes"], out)
    own.equal("swap_out_bytes", own.at(own.eviction, "swap_out_bytes"), own.kind(Kind.SWAPPED_OUT))
    # What comes back.
    charged = np.where(exits & ~swap, own["recompute_tokens"], 0)
    furthest = np.where(own.entry < 0, 0, own.greatest_so_far(np.maximum(charged, 0))[own.entry])
    hits = opened - to_do
    own.equal("recompute_tokens", np.maximum(furthest - hits, 0), back & ~swap)
    own.equal("swap_in_bytes", restored, back & swap)
    # A replay that was ended says so: before completion, and before a decoding victim goes again
    # (whose last token may be in flight, and the end of the replay with it).
    replayed = (own.at(own.entry, "kind") == Kind.RESUME) & (to_do != NULL)
    after = own.kind(Kind.COMPLETE)
    if not config.engine.async_scheduling:
        after |= exits & ~partial & ~copied
    said = own.before(back) > own.entry
    own.hold(names.CHARGE, ~(after & replayed) | said, "the end of a replay has its event")
    # What an admission has to compute or to bring back.
    own.equal("work_left_bytes", own.at(own.eviction, "swap_in_bytes"), entry & copied)
    cached = known - left
    found = (left >= 1) & (cached >= 0) & (cached % config.engine.block_size == 0)
    if not config.engine.enable_prefix_caching:
        found &= cached == 0
    own.hold(names.WORK_LEFT, ~(entry & partial) | found, "what is not cached is left to do")
    less = (left >= 1) & (left < to_do)
    own.hold(names.WORK_LEFT, ~(exits & partial) | less, "some of the work was done")


def _choices(ledger: Columns, own: Own, config: Config) -> None:
    """Both estimates, and the recovery that follows from them (SPEC §5)."""
    policy, exits = config.policy, own.kind(Kind.PREEMPT)
    lost = _lost(own, config)
    size = lost * policy.kv_bytes_per_token
    recompute = -(-lost // policy.prefill_tokens_per_tick)
    swap = 2 * -(-size // policy.transfer_bytes_per_tick)
    own.equal("estimate_recompute_ticks", recompute, exits)
    own.equal("estimate_swap_ticks", swap, exits)
    adaptive = policy.recovery == "adaptive"
    wanted = swap < recompute if adaptive else np.full(len(lost), policy.recovery == "swap")
    held = np.concatenate(([0], ledger["host_bytes_after"][:-1]))[own.places]
    capacity = policy.host_capacity_bytes
    full = wanted & (held + size > capacity) if capacity else np.zeros_like(wanted)
    tie = np.where(swap == recompute, Reason.TIE, Reason.CHEAPER)
    cases = [own.given("work_left_bytes"), own.given("work_left_tokens"), full]
    reasons = [Reason.ON_HOST, Reason.INCOMPLETE, Reason.HOST_FULL]
    right = np.select(cases, reasons, tie if adaptive else NULL)
    own.equal("recovery_reason", right, exits)
    right = np.select(
        cases,
        [Recovery.SWAP, Recovery.RECOMPUTE, Recovery.RECOMPUTE],
        np.where(wanted, Recovery.SWAP, Recovery.RECOMPUTE),
    )
    own.equal("recovery", right, exits)
    restored = own.at(own.entry, "work_left_bytes") != NULL
    back = np.where(restored, Recovery.SWAP, Recovery.RECOMPUTE)
    own.equal("recovery", back, own.kind(Kind.RECOVERED))


def _flags(own: Own, config: Config) -> None:
    """Each flag once, in the tick that made its predicate true, and none left out."""
    fairness = config.fairness
    evicted = own.at(own.eviction, "tick")
    for kind, column, most in (
        (Kind.FLAG_WAIT, "queue_ticks", fairness.max_queue_ticks),
        (Kind.FLAG_REPEAT, "preemptions", fairness.max_preemptions),
    ):
        flag = own.kind(kind)
        due = own[column] == most + 1
        if kind is Kind.FLAG_REPEAT:
            due &= own["tick"] == evicted
        own.hold(names.FLAGS, ~flag | due, f"{column} has just passed {most}")
        count = own.so_far(flag.astype(np.int64))
        own.hold(names.FLAGS, count <= 1, "a flag is raised once")
        flagged = np.ones(len(flag), bool)
        flagged[own.ends] = (count[own.ends] > 0) == (own[column][own.ends] > most)
        own.hold(names.FLAGS, flagged, f"flagged when {column} > {most}, and only then")
