"""Derives every vllm-v1 event again from the rules, to walk along a ledger (SPEC §6, §8).

It was written from docs/vllm-v1.md and vLLM's own source and shares no code with the scheduler:
plain objects, one step after another, except that steps in which everything only counts down are
passed over (`quiet`).
"""

from collections.abc import Iterator

from replay.config import Config
from replay.events import Event, Kind, Recovery
from replay.oracle.engine import Engine, Expected
from replay.oracle.names import (
    BYTES_IN,
    BYTES_OUT,
    CHARGE,
    COMPLETE,
    EQUATIONS,
    FLAGS,
    GENERATED,
    ORDER,
    TIMED_EQUATIONS,
)
from replay.oracle.quiet import pass_over, quiet_decodes
from replay.oracle.requests import Progress
from replay.oracle.schedule import admissible, running_pass, waiting_pass
from replay.oracle.walk import Comparison, Diverged, EventProgress, Events, Violation
from replay.timed_steps import TimedSteps
from replay.workload import Workload


def walk(
    workload: Workload, config: Config, events: Events, progress: EventProgress | None = None
) -> tuple[list[Violation], TimedSteps | None]:
    """Every violation in a vllm-v1 ledger's events, in order of `seq`.

    Besides, what the steps of a timed replay come to, None of another, and where the walk did not
    reach the end. `progress` hears now and then how many events are compared, and of how many.
    """
    engine = Engine(workload, config)
    equations = EQUATIONS if config.timing is None else TIMED_EQUATIONS
    comparison = Comparison(events, equations, progress)
    try:
        for right, equation in _Run(engine).events():
            comparison.expect(right, equation)
        comparison.finish()
    except Diverged as diverged:
        comparison.violations.append(diverged.violation)
        return comparison.violations, None
    return comparison.violations, engine.clock.timed_steps


def derive(workload: Workload, config: Config) -> Iterator[Event]:
    """The events that the rules call for, one after another."""
    return (event for event, _ in _Run(Engine(workload, config)).events())


class _Run:
    """One engine from its first arrival to the end, step by step (docs/vllm-v1.md, "One step")."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.coming = iter(engine.all)
        self.next: Progress | None = next(self.coming)
        self.unfinished = len(engine.all)
        self.in_flight: list[Progress] = []  # whose tokens are sampled, not delivered

    def events(self) -> Iterator[Expected]:
        """Every event in order."""
        engine, clock = self.engine, self.engine.clock
        end = engine.config.limits.max_ticks
        while self.unfinished and clock.tick < end:
            self.pass_over_idle_steps()
            self.pass_over_quiet_steps()
            if clock.tick < end:
                self.step()
                clock.tick += 1
            yield from engine.out
            engine.out.clear()
        if self.next is not None:
            detail = "limits.max_ticks steps end before every request has arrived"
            raise Diverged(Violation(COMPLETE, None, detail))
        clock.tick = end - 1
        for who in engine.all:
            if not who.done:
                engine.emit(Kind.CENSORED, who, COMPLETE)
        yield from engine.out

    def pass_over_idle_steps(self) -> None:
        engine, clock = self.engine, self.engine.clock
        if self.next is None or engine.running or len(engine.waiting):
            return
        tick = clock.tick
        clock.idle(self.next.request)
        engine.accounts.done += clock.tick - tick

    def pass_over_quiet_steps(self) -> None:
        engine, clock = self.engine, self.engine.clock
        coming = None if self.next is None else self.next.request
        if coming is not None and clock.is_due(coming):
            return
        most = engine.config.limits.max_ticks - clock.tick
        flagless = engine.accounts.quiet_accountings()
        most = most if flagless is None else min(most, flagless)
        engine.start_step()
        engine.budget -= len(engine.running)
        if most <= 0 or engine.budget < 0 or engine.host.going_out:
            return
        most = quiet_decodes(
            engine.running,
            engine.pool,
            ahead=engine.ahead,
            most=most,
            anybody_waits=len(engine.waiting) > 0,
        )
        if not most or admissible(engine) is not None:
            return
        steps = clock.run_quiet(engine.running, most, coming)
        if steps:
            pass_over(engine.running, engine.pool, ahead=engine.ahead, steps=steps)
            self.in_flight = list(engine.running) if engine.ahead else []
            engine.accounts.done += steps

    def step(self) -> None:
        engine = self.engine
        self.arrive()
        engine.start_step()
        for who in engine.host.drain():
            size = engine.host.bytes(who.on_host_tokens)
            engine.emit(Kind.SWAPPED_OUT, who, BYTES_OUT, swap_out_bytes=size)
        running_pass(engine)
        if not engine.preempted:
            waiting_pass(engine)
        engine.clock.run(engine.batch)
        for who, size in engine.host.restore(engine.running):
            back: dict[str, int] = {"recovery": Recovery.SWAP, "swap_in_bytes": size}
            engine.emit(Kind.RECOVERED, who, BYTES_IN, **back)
        sampled = self.execute()
        if engine.ahead:
            sampled, self.in_flight = self.in_flight, sampled
        for who in sampled:
            self.deliver(who)
        for kind, who in engine.accounts.account(engine.preempted):
            engine.emit(kind, who, FLAGS)

    def arrive(self) -> None:
        engine = self.engine
        while self.next is not None and engine.clock.is_due(self.next.request):
            self.next.arrival_tick = engine.clock.tick
            engine.accounts.joins(self.next)
            engine.waiting.join(self.next)
            time_us = engine.clock.shown_us(self.next.request)
            engine.emit(Kind.ARRIVE, self.next, ORDER, time_us=time_us)
            self.next = next(self.coming, None)

    def execute(self) -> list[Progress]:
        """Run the batch; gives who samples a token, in batch order."""
        sampled = []
        for who, tokens in self.engine.batch.items():
            who.computed += tokens
            if who.computed == who.known + who.in_flight:
                who.in_flight += self.engine.ahead
                sampled.append(who)
        return sampled

    def deliver(self, who: Progress) -> None:
        engine = self.engine
        who.known += 1
        if who.running and engine.ahead:
            who.in_flight -= 1
            engine.pool.name(who, who.computed - who.in_flight)
        if who.replayed is not None:
            done: dict[str, int] = {
                "recovery": Recovery.RECOMPUTE,
                "recompute_tokens": who.replayed,
            }
            who.replayed = None
            engine.emit(Kind.RECOVERED, who, CHARGE, **done)
        if who.generated == 1:
            engine.emit(Kind.FIRST_TOKEN, who, GENERATED)
        if who.known == who.last:
            self.complete(who)

    def complete(self, who: Progress) -> None:
        engine, before = self.engine, self.engine.pool.occupied
        freed = engine.pool.release(who)
        who.done = True
        self.unfinished -= 1
        if who.running:
            who.running = False
            engine.running.remove(who)
        else:
            engine.waiting.leave(who)
            engine.accounts.leaves(who)
            if who.on_host_tokens:
                engine.host.drop(who)
        engine.emit(
            Kind.COMPLETE, who, GENERATED, occupied_blocks_before=before, freed_blocks=freed
        )
