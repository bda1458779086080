"""The lab scheduler `lab-1`: six phases a tick, small enough to check by hand (SPEC §4, §5).

`replay_lab` takes a workload that passed `replay.fit` and gives every event. It holds no clock,
file or log. Between two ticks in which something happens, all phases only count down; those
quiet ticks are taken in one stride, so the cost follows the events and not `max_ticks`.
"""

from bisect import bisect_right, insort
from collections import deque
from operator import attrgetter
from typing import Any

from replay.config import Config
from replay.events import Event, Kind, Recovery
from replay.recovery import choose
from replay.workload import Request, Workload

_RANK = attrgetter("rank")


class _Sequence:
    """One request's progress; its facts stay in `request`."""

    __slots__ = (
        "arrival_tick",
        "blocks",
        "context",
        "decode_tick",
        "flagged_repeat",
        "flagged_wait",
        "generated",
        "index",
        "preemptions",
        "queue_ticks",
        "queued_since",
        "rank",
        "recovery",
        "request",
        "running",
        "swap_out_left",
        "work_left",
    )

    def __init__(self, index: int, request: Request, tick_us: int) -> None:
        self.index, self.request = index, request
        self.arrival_tick = request.arrival_us // tick_us
        self.context = request.prompt_tokens
        self.rank = 0  # place in the total order (priority, arrival tick, id)
        self.generated = self.blocks = self.preemptions = 0
        self.queue_ticks = 0  # of completed stays in the queue
        self.queued_since: int | None = None
        self.running = self.flagged_wait = self.flagged_repeat = False
        self.recovery: Recovery | None = None  # None: its first admission is still to come
        self.work_left = 0  # tokens to prefill or replay, or bytes to restore
        self.swap_out_left = 0
        self.decode_tick = 0

    @property
    def restoring(self) -> bool:
        return self.recovery is Recovery.SWAP


def replay_lab(workload: Workload, config: Config) -> list[Event]:
    """Every event of the run, in order; what is unfinished at `max_ticks` ends `censored`."""
    lab = _Lab(workload, config)
    lab.run()
    return lab.events


class _Lab:
    def __init__(self, workload: Workload, config: Config) -> None:
        self.policy, self.fairness = config.policy, config.fairness
        self.block_size = config.engine.block_size
        self.capacity = self.free = config.engine.capacity_blocks
        self.max_num_seqs = config.engine.max_num_seqs
        self.tick_us = config.engine.tick_us or 1
        self.max_ticks = config.limits.max_ticks
        self.sequences = [
            _Sequence(k, request, self.tick_us) for k, request in enumerate(workload.requests)
        ]
        ordered = sorted(
            self.sequences,
            key=lambda s: (s.request.priority, s.arrival_tick, s.request.request_id.encode()),
        )
        for rank, sequence in enumerate(ordered):
            sequence.rank = rank
        self.arrivals = deque(self.sequences)
        self.queue: list[_Sequence] = []
        self.running: list[_Sequence] = []
        self.swapping_out: deque[_Sequence] = deque()
        self.host_bytes = 0
        self.tick = self.complete = 0
        self.accounted = 0  # 1 once this tick's queue ticks were counted
        self.events: list[Event] = []

    def run(self) -> None:
        while self.complete < len(self.sequences) and self.tick < self.max_ticks:
            self.accounted = 0
            self._arrive()
            link_bytes = self._swap_out(self.policy.transfer_bytes_per_tick)
            self._admit()
            self._serve(self.policy.prefill_tokens_per_tick, link_bytes)
            self._decode()
            self._account()
            self.tick += 1
            self._skip_quiet_ticks()
        if self.complete < len(self.sequences):
            self.tick = self.max_ticks - 1
            self.accounted = 1
            for sequence in self.sequences:
                if sequence.generated < sequence.request.output_tokens:
                    self._emit(Kind.CENSORED, sequence)

    # The six phases.

    def _arrive(self) -> None:
        while self.arrivals and self.arrivals[0].arrival_tick <= self.tick:
            sequence = self.arrivals.popleft()
            self._enqueue(sequence)
            self._emit(Kind.ARRIVE, sequence)

    def _swap_out(self, link_bytes: int) -> int:
        while self.swapping_out and link_bytes:
            sequence = self.swapping_out[0]
            moved = min(link_bytes, sequence.swap_out_left)
            sequence.swap_out_left -= moved
            link_bytes -= moved
            if not sequence.swap_out_left:
                self.swapping_out.popleft()
                self._emit(Kind.SWAPPED_OUT, sequence, swap_out_bytes=self._resident(sequence))
        return link_bytes

    def _admit(self) -> None:
        while self._head_fits():
            sequence = self.queue.pop(0)
            sequence.queue_ticks += self.tick - (sequence.queued_since or 0)
            sequence.queued_since = None
            sequence.blocks = self._blocks(sequence.context)
            self.free -= sequence.blocks
            sequence.running = True
            self.running.append(sequence)
            kind = Kind.ADMIT if sequence.recovery is None else Kind.RESUME
            restoring = sequence.restoring
            sequence.work_left = self._resident(sequence) if restoring else sequence.context
            self._emit(
                kind,
                sequence,
                before=self.capacity - self.free - sequence.blocks,
                allocated_blocks=sequence.blocks,
                **{"work_left_bytes" if restoring else "work_left_tokens": sequence.work_left},
            )

    def _serve(self, token_budget: int, link_bytes: int) -> None:
        for sequence in self.running:
            if not sequence.work_left:
                continue
            if sequence.restoring:
                done = min(link_bytes, sequence.work_left)
                link_bytes -= done
            else:
                done = min(token_budget, sequence.work_left)
                token_budget -= done
            sequence.work_left -= done
            if not sequence.work_left:
                sequence.decode_tick = self.tick + 1
                self._recovered(sequence)

    def _decode(self) -> None:
        tick, block_size = self.tick, self.block_size
        for sequence in list(self.running):
            if not sequence.running or sequence.work_left or sequence.decode_tick > tick:
                continue
            if sequence.context == sequence.blocks * block_size:
                while not self.free and sequence.running:
                    self._preempt(max(self.running, key=_RANK), sequence)
                if not sequence.running:
                    continue
                self.free -= 1
                sequence.blocks += 1
            sequence.generated += 1
            sequence.context += 1
            if sequence.generated == 1:
                self._emit(Kind.FIRST_TOKEN, sequence)
            if sequence.generated == sequence.request.output_tokens:
                self._complete(sequence)

    def _account(self) -> None:
        self.accounted = 1
        for sequence in self.sequences:
            if sequence.queued_since is None:
                continue
            if not sequence.flagged_wait and self._flag_tick(sequence) <= self.tick:
                sequence.flagged_wait = True
                self._emit(Kind.FLAG_WAIT, sequence)
            if not sequence.flagged_repeat and (
                sequence.preemptions > self.fairness.max_preemptions
            ):
                sequence.flagged_repeat = True
                self._emit(Kind.FLAG_REPEAT, sequence)

    # What the phases are made of.

    def _head_fits(self) -> bool:
        if not self.queue or len(self.running) >= self.max_num_seqs:
            return False
        head = self.queue[0]
        return not head.swap_out_left and self._blocks(head.context) <= self.free

    def _preempt(self, victim: _Sequence, requester: _Sequence) -> None:
        interrupted = victim.work_left
        choice = choose(
            self.policy,
            victim.context,
            on_host=bool(interrupted) and victim.restoring,
            incomplete=bool(interrupted) and not victim.restoring,
            host_held_bytes=self.host_bytes,
        )
        charge: dict[str, int] = {}
        if interrupted:
            charge["work_left_bytes" if victim.restoring else "work_left_tokens"] = interrupted
        resident = self._resident(victim)
        if choice.recovery is Recovery.RECOMPUTE:
            charge["recompute_tokens"] = victim.context
        else:
            charge["swap_in_bytes"] = resident
            if not interrupted:
                charge["swap_out_bytes"] = victim.swap_out_left = resident
                self.swapping_out.append(victim)
                self.host_bytes += resident
        before, freed = self.capacity - self.free, victim.blocks
        self._release(victim)
        victim.recovery, victim.work_left = choice.recovery, 0
        victim.preemptions += 1
        self._enqueue(victim)
        self._emit(
            Kind.PREEMPT,
            victim,
            before=before,
            requester_id=requester.index,
            queue_position=self.queue.index(victim),
            freed_blocks=freed,
            recovery=choice.recovery,
            recovery_reason=choice.reason,
            estimate_recompute_ticks=choice.recompute_ticks,
            estimate_swap_ticks=choice.swap_ticks,
            **charge,
        )

    def _recovered(self, sequence: _Sequence) -> None:
        if sequence.recovery is Recovery.SWAP:
            resident = self._resident(sequence)
            self.host_bytes -= resident
            self._emit(Kind.RECOVERED, sequence, recovery=Recovery.SWAP, swap_in_bytes=resident)
        elif sequence.recovery is Recovery.RECOMPUTE:
            self._emit(
                Kind.RECOVERED,
                sequence,
                recovery=Recovery.RECOMPUTE,
                recompute_tokens=sequence.context,
            )

    def _complete(self, sequence: _Sequence) -> None:
        before, freed = self.capacity - self.free, sequence.blocks
        self._release(sequence)
        self.complete += 1
        self._emit(Kind.COMPLETE, sequence, before=before, freed_blocks=freed)

    def _release(self, sequence: _Sequence) -> None:
        self.running.remove(sequence)
        sequence.running = False
        self.free += sequence.blocks
        sequence.blocks = 0

    def _enqueue(self, sequence: _Sequence) -> None:
        sequence.queued_since = self.tick
        insort(self.queue, sequence, key=_RANK)

    def _blocks(self, tokens: int) -> int:
        return -(-tokens // self.block_size)

    def _resident(self, sequence: _Sequence) -> int:
        return sequence.context * self.policy.kv_bytes_per_token

    def _flag_tick(self, sequence: _Sequence) -> int:
        """Tick whose accounting takes a queued sequence beyond the wait threshold."""
        return (sequence.queued_since or 0) + self.fairness.max_queue_ticks - sequence.queue_ticks

    def _skip_quiet_ticks(self) -> None:
        ticks = self._quiet_ticks()
        if ticks <= 0:
            return
        self.tick += ticks
        if self.swapping_out:
            self.swapping_out[0].swap_out_left -= ticks * self.policy.transfer_bytes_per_tick
        for worker, rate in self._busy_workers():
            worker.work_left -= ticks * rate
        for sequence in self.running:
            if not sequence.work_left:
                sequence.generated += ticks
                sequence.context += ticks
                blocks = self._blocks(sequence.context)
                self.free -= blocks - sequence.blocks
                sequence.blocks = blocks

    def _quiet_ticks(self) -> int:
        """How many ticks from now on only count down, without an event or a decision.

        Free blocks only fall in such ticks, so a head that does not fit stays out.
        """
        if self._head_fits():
            return 0
        bounds = [self.max_ticks - self.tick]
        if self.arrivals:
            bounds.append(self.arrivals[0].arrival_tick - self.tick)
        bounds.extend(self._flag_tick(s) - self.tick for s in self.queue if not s.flagged_wait)
        if self.swapping_out:
            left = self.swapping_out[0].swap_out_left
            bounds.append((left - 1) // self.policy.transfer_bytes_per_tick)
        bounds.extend((worker.work_left - 1) // rate for worker, rate in self._busy_workers())
        decoding = [s for s in self.running if not s.work_left]
        for sequence in decoding:
            left = sequence.request.output_tokens - sequence.generated - 1
            bounds.append(left if sequence.generated else 0)
        ticks = min(bounds)
        if ticks <= 0:
            return 0

        # Nobody grows by more than this; only where that is too much is it worth being exact.
        if len(decoding) * self._blocks(ticks) <= self.free:
            return ticks
        block_size, held = self.block_size, sum(s.blocks for s in decoding)
        contexts = [s.context + block_size - 1 for s in decoding]

        def growth(ticks: int) -> int:
            return sum([(c + ticks) // block_size for c in contexts]) - held

        return bisect_right(range(ticks + 1), self.free, key=growth) - 1

    def _busy_workers(self) -> list[tuple[_Sequence, int]]:
        """Who takes a whole budget each tick: the first to compute, and the first to restore.

        A pending swap-out takes the whole link, so nobody restores beside it.
        """
        workers = []
        for restoring, rate in (
            (False, self.policy.prefill_tokens_per_tick),
            (True, self.policy.transfer_bytes_per_tick),
        ):
            if restoring and self.swapping_out:
                continue
            first = next(
                (s for s in self.running if s.work_left and s.restoring is restoring), None
            )
            if first is not None:
                workers.append((first, rate))
        return workers

    def _emit(
        self, kind: Kind, sequence: _Sequence, *, before: int | None = None, **own: Any
    ) -> None:
        request, get = sequence.request, own.get
        occupied = self.capacity - self.free
        queue_ticks = sequence.queue_ticks
        if sequence.queued_since is not None:
            queue_ticks += self.tick - sequence.queued_since + self.accounted
        self.events.append(
            Event(  # by position, in the column order of the contract: keywords cost a third more
                len(self.events),
                self.tick,
                self.tick * self.tick_us,
                kind,
                sequence.index,
                get("requester_id"),
                request.priority,
                sequence.arrival_tick,
                self.tick - sequence.arrival_tick,
                queue_ticks,
                sequence.preemptions,
                request.prompt_tokens,
                sequence.generated,
                request.output_tokens - sequence.generated,
                sequence.context,
                len(self.running),
                len(self.queue),
                get("queue_position"),
                self.capacity,
                occupied if before is None else before,
                occupied,
                get("allocated_blocks"),
                get("freed_blocks"),
                get("recovery"),
                get("recovery_reason"),
                get("recompute_tokens"),
                get("swap_out_bytes"),
                get("swap_in_bytes"),
                get("estimate_recompute_ticks"),
                get("estimate_swap_ticks"),
                self.host_bytes,
                get("work_left_tokens"),
                get("work_left_bytes"),
            )
        )
