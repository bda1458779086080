"""Derives every lab event again from the rules, walking along a ledger (SPEC §4, §5, §8).

It shares no code with the scheduler: from the workload, the configuration and the events before
it, each event's every column is worked out and compared.
"""

from collections.abc import Sequence
from typing import Any

from replay.config import Config
from replay.events import COLUMNS, Event, Kind, Reason, Recovery
from replay.oracle.walk import Comparison, Diverged, Equations, Violation
from replay.workload import Request, Workload

# Column -> the equation a wrong value there breaks.
EQUATIONS = {
    "seq": "seq counts from 0 without gaps",
    "tick": "events are in the order the scheduler works in",
    "time_us": "time = tick x tick_us",
    "kind": "events are in the order the scheduler works in",
    "request_id": "events are in the order the scheduler works in",
    "requester_id": "the requester is the running request whose growth needed the block",
    "priority": "a request's facts are its workload row's",
    "arrival_tick": "a request's facts are its workload row's",
    "prompt_tokens": "a request's facts are its workload row's",
    "age_ticks": "age = tick - arrival tick",
    "queue_ticks": "queue ticks = ticks whose accounting found it queued",
    "preemptions": "preemptions are counted",
    "generated_tokens": "generated tokens never fall and end at output_tokens",
    "remaining_tokens": "remaining = output - generated",
    "context_tokens": "context = prompt + generated",
    "active_requests": "active requests = length of the running list",
    "queue_depth": "queue depth = length of the queue",
    "queue_position": "the queue is ordered by (priority, arrival tick, request_id)",
    "capacity_blocks": "free + occupied = capacity",
    "occupied_blocks_before": "occupied = the running requests' blocks <= capacity",
    "occupied_blocks_after": "occupied = the running requests' blocks <= capacity",
    "allocated_blocks": "allocated blocks = ceil(context / block_size)",
    "freed_blocks": "freed blocks = the victim's residency = ceil(context / block_size)",
    "recovery": "the recovery follows the policy, the estimates and the tie rule",
    "recovery_reason": "the recovery follows the policy, the estimates and the tie rule",
    "recompute_tokens": "replayed tokens = context at eviction, output included",
    "swap_out_bytes": "bytes out = context x bytes per token, except on_host",
    "swap_in_bytes": "bytes in = context x bytes per token",
    "estimate_recompute_ticks": "both estimates are recorded",
    "estimate_swap_ticks": "both estimates are recorded",
    "host_bytes_after": "host bytes are held from eviction until the restore completes",
    "work_left_tokens": "work left = work charged - work done",
    "work_left_bytes": "work left = work charged - work done",
}
VICTIM = "the victim is the rule's choice among the running"
QUEUE = "the queue is ordered by (priority, arrival tick, request_id) and nobody overtakes"
FLAGS = "flags exactly when the predicate holds"
COMPLETE = "the ledger ends when every request is complete or censored"
LAB = Equations(
    EQUATIONS,
    {
        Kind.PREEMPT: VICTIM,
        Kind.ADMIT: QUEUE,
        Kind.RESUME: QUEUE,
        Kind.SWAPPED_OUT: EQUATIONS["swap_out_bytes"],
        Kind.RECOVERED: EQUATIONS["work_left_tokens"],
        Kind.FIRST_TOKEN: EQUATIONS["generated_tokens"],
        Kind.COMPLETE: EQUATIONS["generated_tokens"],
        Kind.FLAG_WAIT: FLAGS,
        Kind.FLAG_REPEAT: FLAGS,
        Kind.CENSORED: COMPLETE,
    },
    COMPLETE,
)
ALL_EQUATIONS = LAB.all


class _Progress:
    """What the walk knows of one request."""

    def __init__(self, index: int, request: Request, tick_us: int) -> None:
        self.index, self.request = index, request
        self.arrival_tick = request.arrival_us // tick_us
        self.key = (request.priority, self.arrival_tick, request.request_id.encode())
        self.generated = 0
        self.blocks = 0
        self.preemptions = 0
        self.waited = 0
        self.work: str | None = None  # prefill, replay or restore, while some is left
        self.left = 0
        self.may_decode_at = 0
        self.comes_back_by = "prefill"
        self.bytes_to_host = 0
        self.flagged: set[Kind] = set()
        self.done = False

    @property
    def context(self) -> int:
        return self.request.prompt_tokens + self.generated


def walk(workload: Workload, config: Config, events: Sequence[Event]) -> list[Violation]:
    """Every violation in a lab ledger's events, in order of `seq`."""
    comparison = Comparison(events, LAB)
    try:
        _Walk(workload, config, comparison).all_ticks()
        comparison.finish()
    except Diverged as diverged:
        comparison.violations.append(diverged.violation)
    return comparison.violations


class _Walk:
    def __init__(self, workload: Workload, config: Config, comparison: Comparison) -> None:
        self.config, self.comparison = config, comparison
        self.tick_us = config.engine.tick_us or 1
        self.all = [_Progress(k, r, self.tick_us) for k, r in enumerate(workload.requests)]
        self.coming = list(self.all)
        self.queue: list[_Progress] = []
        self.running: list[_Progress] = []
        self.to_host: list[_Progress] = []
        self.on_host_bytes = 0
        self.tick = 0

    # Comparing.

    def expect(self, kind: Kind, who: _Progress, equation: str, **own: Any) -> None:
        """Compare the next event with what the rules give here, column by column."""
        self.comparison.expect(Event(**self.row(kind, who, own)), equation)

    def row(self, kind: Kind, who: _Progress, own: dict[str, Any]) -> dict[str, Any]:
        occupied = sum(r.blocks for r in self.running)
        facts = who.request
        return dict.fromkeys(COLUMNS) | {
            "seq": self.comparison.next,
            "tick": self.tick,
            "time_us": self.tick * self.tick_us,
            "kind": kind,
            "request_id": who.index,
            "priority": facts.priority,
            "arrival_tick": who.arrival_tick,
            "age_ticks": self.tick - who.arrival_tick,
            "queue_ticks": who.waited,
            "preemptions": who.preemptions,
            "prompt_tokens": facts.prompt_tokens,
            "generated_tokens": who.generated,
            "remaining_tokens": facts.output_tokens - who.generated,
            "context_tokens": who.context,
            "active_requests": len(self.running),
            "queue_depth": len(self.queue),
            "capacity_blocks": self.config.engine.capacity_blocks,
            "occupied_blocks_before": occupied,
            "occupied_blocks_after": occupied,
            "host_bytes_after": self.on_host_bytes,
            **own,
        }

    # Walking.

    def all_ticks(self) -> None:
        last = self.config.limits.max_ticks
        while self.tick < last and not all(r.done for r in self.all):
            upcoming = self.comparison.upcoming_tick()
            until = last if upcoming is None else min(upcoming, last)
            # The last silent tick is walked in full: a prefill may end there without an event.
            self.silent_ticks(until - self.tick - 1)
            self.one_tick()
            self.tick += 1
        if not all(r.done for r in self.all):
            self.tick = last - 1
            for who in self.all:
                if not who.done:
                    self.expect(Kind.CENSORED, who, COMPLETE)

    def one_tick(self) -> None:
        policy = self.config.policy
        while self.coming and self.coming[0].arrival_tick == self.tick:
            who = self.coming.pop(0)
            self.join_queue(who)
            self.expect(Kind.ARRIVE, who, EQUATIONS["kind"])
        link = self.drain(policy.transfer_bytes_per_tick)
        self.admit()
        self.work(policy.prefill_tokens_per_tick, link)
        self.emit_tokens()
        self.account()

    def silent_ticks(self, ticks: int) -> None:
        """Pass over ticks in which the ledger says that nothing happened."""
        if ticks <= 0:
            return
        if not self.is_quiet(ticks):
            for _ in range(ticks):  # what should have happened is named where it was due
                self.one_tick()
                self.tick += 1
            return
        if self.to_host:
            self.to_host[0].bytes_to_host -= ticks * self.config.policy.transfer_bytes_per_tick
        for who, rate in self.busy():
            who.left -= ticks * rate
        for who in self.running:
            if who.work is None:
                who.generated += ticks
                who.blocks = self.blocks(who.context)
        for who in self.queue:
            who.waited += ticks
        self.tick += ticks

    def is_quiet(self, ticks: int) -> bool:
        """Whether by the rules, too, the next ticks only count down."""
        most_waited = self.config.fairness.max_queue_ticks
        decoding = [r for r in self.running if r.work is None]
        held = sum(r.blocks for r in self.running if r.work is not None)
        grown = sum(self.blocks(r.context + ticks) for r in decoding)
        drained = ticks * self.config.policy.transfer_bytes_per_tick
        return not (
            (self.coming and self.coming[0].arrival_tick < self.tick + ticks)
            or (self.queue and self.fits(self.queue[0]))
            or (self.to_host and self.to_host[0].bytes_to_host <= drained)
            or any(who.left <= ticks * rate for who, rate in self.busy())
            or any(r.generated == 0 for r in decoding)
            or any(r.generated + ticks >= r.request.output_tokens for r in decoding)
            or held + grown > self.config.engine.capacity_blocks
            or any(
                r.waited <= most_waited < r.waited + ticks and Kind.FLAG_WAIT not in r.flagged
                for r in self.queue
            )
        )

    def busy(self) -> list[tuple[_Progress, int]]:
        """Who takes a whole budget in every tick: the first to compute, the first to restore."""
        policy = self.config.policy
        computes = next((r for r in self.running if r.work in ("prefill", "replay")), None)
        restores = next((r for r in self.running if r.work == "restore"), None)
        rates = (
            (computes, policy.prefill_tokens_per_tick),
            (None if self.to_host else restores, policy.transfer_bytes_per_tick),
        )
        return [(who, rate) for who, rate in rates if who is not None]

    # The rules.

    def blocks(self, tokens: int) -> int:
        return (tokens + self.config.engine.block_size - 1) // self.config.engine.block_size

    def resident(self, who: _Progress) -> int:
        return who.context * self.config.policy.kv_bytes_per_token

    def free(self) -> int:
        return self.config.engine.capacity_blocks - sum(r.blocks for r in self.running)

    def join_queue(self, who: _Progress) -> None:
        self.queue.append(who)
        self.queue.sort(key=_key)

    def drain(self, link: int) -> int:
        for who in list(self.to_host):
            moved = min(link, who.bytes_to_host)
            who.bytes_to_host -= moved
            link -= moved
            if who.bytes_to_host == 0:
                self.to_host.remove(who)
                self.expect(
                    Kind.SWAPPED_OUT,
                    who,
                    EQUATIONS["swap_out_bytes"],
                    swap_out_bytes=self.resident(who),
                )
        return link

    def fits(self, who: _Progress) -> bool:
        return (
            who.bytes_to_host == 0
            and len(self.running) < self.config.engine.max_num_seqs
            and self.blocks(who.context) <= self.free()
        )

    def admit(self) -> None:
        while self.queue and self.fits(self.queue[0]):
            who = self.queue.pop(0)
            before = sum(r.blocks for r in self.running)
            who.blocks = self.blocks(who.context)
            self.running.append(who)
            kind = Kind.ADMIT if who.comes_back_by == "prefill" else Kind.RESUME
            who.work = who.comes_back_by
            restore = who.work == "restore"
            who.left = self.resident(who) if restore else who.context
            self.expect(
                kind,
                who,
                QUEUE,
                occupied_blocks_before=before,
                allocated_blocks=who.blocks,
                work_left_tokens=None if restore else who.left,
                work_left_bytes=who.left if restore else None,
            )

    def work(self, tokens: int, link: int) -> None:
        for who in self.running:
            if who.work is None:
                continue
            restore = who.work == "restore"
            done = min(link if restore else tokens, who.left)
            who.left -= done
            if restore:
                link -= done
            else:
                tokens -= done
            if who.left == 0:
                self.finish_work(who)

    def finish_work(self, who: _Progress) -> None:
        finished, who.work = who.work, None
        who.may_decode_at = self.tick + 1
        if finished == "replay":
            self.expect(
                Kind.RECOVERED,
                who,
                EQUATIONS["recompute_tokens"],
                recovery=Recovery.RECOMPUTE,
                recompute_tokens=who.context,
            )
        elif finished == "restore":
            self.on_host_bytes -= self.resident(who)
            self.expect(
                Kind.RECOVERED,
                who,
                EQUATIONS["swap_in_bytes"],
                recovery=Recovery.SWAP,
                swap_in_bytes=self.resident(who),
            )

    def emit_tokens(self) -> None:
        for who in list(self.running):
            if who not in self.running or who.work or who.may_decode_at > self.tick:
                continue
            needed = self.blocks(who.context + 1)
            while needed > who.blocks and self.free() == 0 and who in self.running:
                self.preempt(max(self.running, key=_key), who)
            if who not in self.running:
                continue
            who.blocks = needed
            who.generated += 1
            if who.generated == 1:
                self.expect(Kind.FIRST_TOKEN, who, EQUATIONS["generated_tokens"])
            if who.generated == who.request.output_tokens:
                self.finish(who)

    def finish(self, who: _Progress) -> None:
        before, freed = sum(r.blocks for r in self.running), who.blocks
        self.running.remove(who)
        who.blocks, who.done = 0, True
        self.expect(
            Kind.COMPLETE,
            who,
            EQUATIONS["generated_tokens"],
            occupied_blocks_before=before,
            freed_blocks=freed,
        )

    def preempt(self, victim: _Progress, requester: _Progress) -> None:
        before, freed = sum(r.blocks for r in self.running), victim.blocks
        resident, left, work = self.resident(victim), victim.left, victim.work
        recovery, reason, estimates = self.decide(victim)
        self.running.remove(victim)
        victim.blocks = victim.left = 0
        victim.work = None
        victim.preemptions += 1
        victim.comes_back_by = "replay" if recovery is Recovery.RECOMPUTE else "restore"
        goes_out = recovery is Recovery.SWAP and reason is not Reason.ON_HOST
        if goes_out:
            victim.bytes_to_host = resident
            self.to_host.append(victim)
            self.on_host_bytes += resident
        self.join_queue(victim)
        self.expect(
            Kind.PREEMPT,
            victim,
            VICTIM,
            requester_id=requester.index,
            queue_position=self.queue.index(victim),
            occupied_blocks_before=before,
            freed_blocks=freed,
            recovery=recovery,
            recovery_reason=reason,
            recompute_tokens=victim.context if recovery is Recovery.RECOMPUTE else None,
            swap_out_bytes=resident if goes_out else None,
            swap_in_bytes=resident if recovery is Recovery.SWAP else None,
            estimate_recompute_ticks=estimates[0],
            estimate_swap_ticks=estimates[1],
            work_left_tokens=left if work in ("prefill", "replay") else None,
            work_left_bytes=left if work == "restore" else None,
        )

    def decide(self, victim: _Progress) -> tuple[Recovery, Reason | None, tuple[int, int]]:
        policy, resident = self.config.policy, self.resident(victim)
        recompute = _rounded_up(victim.context, policy.prefill_tokens_per_tick)
        swap = 2 * _rounded_up(resident, policy.transfer_bytes_per_tick)
        host = policy.host_capacity_bytes
        no_room = 0 < host < self.on_host_bytes + resident
        if victim.work == "restore":
            return Recovery.SWAP, Reason.ON_HOST, (recompute, swap)
        if victim.work is not None:
            return Recovery.RECOMPUTE, Reason.INCOMPLETE, (recompute, swap)
        wants_swap = {"recompute": False, "swap": True, "adaptive": swap < recompute}
        if wants_swap[policy.recovery] and no_room:
            return Recovery.RECOMPUTE, Reason.HOST_FULL, (recompute, swap)
        reason = None
        if policy.recovery == "adaptive":
            reason = Reason.TIE if recompute == swap else Reason.CHEAPER
        recovery = Recovery.SWAP if wants_swap[policy.recovery] else Recovery.RECOMPUTE
        return recovery, reason, (recompute, swap)

    def account(self) -> None:
        fairness = self.config.fairness
        for who in self.queue:
            who.waited += 1
        # Both counters rise only for those who are in the queue by now.
        for who in sorted(self.queue, key=lambda r: r.index):
            for kind, holds in (
                (Kind.FLAG_WAIT, who.waited > fairness.max_queue_ticks),
                (Kind.FLAG_REPEAT, who.preemptions > fairness.max_preemptions),
            ):
                if holds and kind not in who.flagged:
                    who.flagged.add(kind)
                    self.expect(kind, who, FLAGS)


def _key(who: _Progress) -> tuple[int, int, bytes]:
    return who.key


def _rounded_up(amount: int, rate: int) -> int:
    return (amount + rate - 1) // rate
