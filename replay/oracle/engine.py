"""The state of the vllm-v1 walk, and how an event is read off it (SPEC §7)."""

from typing import Any

from replay.config import Config
from replay.events import Event, Kind
from replay.oracle.blocks import CachingPool, Pool
from replay.oracle.clock import clock_of
from replay.oracle.fairness import Accounts
from replay.oracle.host import Host
from replay.oracle.requests import FirstCome, MostImportant, Progress, Waiting
from replay.rules import rule_of
from replay.workload import Workload

Expected = tuple[Event, str]  # with the equation that breaks if it is missing
_NO_CAP = 2**62


class Engine:
    """One engine: its requests, its queue, its blocks, and what the current step has done."""

    def __init__(self, workload: Workload, config: Config) -> None:
        self.config, self.options, self.rule = config, config.engine, rule_of(config)
        self.all = [Progress(k, r) for k, r in enumerate(workload.requests)]
        priority = self.options.scheduling_policy == "priority"
        self.waiting: Waiting = MostImportant() if priority else FirstCome()
        self.running: list[Progress] = []
        self.pool = self._pool(workload)
        self.host, self.accounts = Host(config.policy), Accounts(config.fairness)
        # Tokens in flight of a request that decodes in every step.
        self.ahead = 1 if self.options.async_scheduling else 0
        self.clock = clock_of(
            self.options.tick_us, config.timing, config.calibration, ahead=self.ahead
        )
        self.events = 0
        self.out: list[Expected] = []
        self.start_step()

    def _pool(self, workload: Workload) -> Pool:
        capacity, size = self.options.capacity_blocks, self.options.block_size
        if not self.options.enable_prefix_caching:
            return Pool(capacity, size)
        nameless_first = self.rule.nameless_blocks_first
        return CachingPool(workload, capacity, size, nameless_first=nameless_first)

    def start_step(self) -> None:
        """Begin a step: nothing is scheduled and the whole budget is there."""
        self.budget = self.options.max_num_batched_tokens or 0
        self.longest_ask = self._longest_ask()
        self.batch: dict[Progress, int] = {}  # tokens scheduled, in batch order
        self.preempted: list[Progress] = []

    def _longest_ask(self) -> int:
        alone = len(self.running) + len(self.waiting) == 1
        if alone and self.rule.threshold_spares_lone_request:
            return _NO_CAP
        return self.options.long_prefill_token_threshold or _NO_CAP

    def emit(self, kind: Kind, who: Progress, equation: str, **own: Any) -> None:
        """Note an event; columns not given are as the state is now."""
        occupied = self.pool.occupied
        event = Event(
            seq=self.events,
            tick=self.clock.tick,
            time_us=self.clock.now_us(),
            kind=kind,
            request_id=who.index,
            requester_id=None,
            priority=who.request.priority,
            arrival_tick=who.arrival_tick,
            age_ticks=self.clock.tick - who.arrival_tick,
            queue_ticks=self.accounts.queue_ticks(who),
            preemptions=who.preemptions,
            prompt_tokens=who.prompt,
            generated_tokens=who.generated,
            remaining_tokens=who.last - who.known,
            context_tokens=who.known,
            active_requests=len(self.running),
            queue_depth=len(self.waiting),
            queue_position=None,
            capacity_blocks=self.options.capacity_blocks,
            occupied_blocks_before=occupied,
            occupied_blocks_after=occupied,
            allocated_blocks=None,
            freed_blocks=None,
            recovery=None,
            recovery_reason=None,
            recompute_tokens=None,
            swap_out_bytes=None,
            swap_in_bytes=None,
            estimate_recompute_ticks=None,
            estimate_swap_ticks=None,
            host_bytes_after=self.host.held_bytes,
            work_left_tokens=None,
            work_left_bytes=None,
        )
        self.out.append((event._replace(**own) if own else event, equation))
        self.events += 1
