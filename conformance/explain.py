"""A difference in words: the first diverging tick, both sides' rows and both sides' state."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from conformance.cases import Case
from conformance.compare import Difference, Event, Result, inputs, our_events
from conformance.engine import ROWS
from replay.errors import Unfinished
from replay.events import Kind

_SHOWN = 12  # requests of a queue


def explain(difference: Difference, answer: Callable[[Case], Result]) -> str:
    """The text a person starts from; asks vLLM once more for its state around the tick."""
    case, tick = difference.case, difference.tick
    lines = [f"case {case['name']}: {difference.table} differ" + _at(tick)]
    lines += [f"  vLLM: {_row(difference.table, difference.vllm)}"]
    lines += [f"  ours: {_row(difference.table, difference.ours)}"]
    if tick is None:
        return "\n".join(lines)
    states = answer(case | {"trace_ticks": [tick, tick]})["states"]
    lines += [f"vLLM's state at tick {tick}:", *(_vllm_state(state) for state in states)]
    try:
        events = our_events(*inputs(case))
    except Unfinished:
        return "\n".join([*lines, "ours: stopped without a ledger"])
    priority = case["config"]["engine"]["scheduling_policy"] == "priority"
    lines += [f"our state at tick {tick}:"]
    for when, last in (("arrived", tick - 1), ("end", tick)):
        until = [e for e in events if e["tick"] <= last or _arrives(e, tick)]
        lines.append(_line(when, *our_state(until, arrivals_of(case), priority=priority)))
    return "\n".join(lines)


def arrivals_of(case: Case) -> dict[str, int]:
    """Engine arrivals by request, where the case has them."""
    rows = (row for row in case["requests"] if "engine_arrival_us" in row)
    return {row["request_id"]: row["engine_arrival_us"] for row in rows}


def our_state(
    events: Iterable[Event], arrivals: Mapping[str, int], *, priority: bool
) -> tuple[int, list[str], list[str]]:
    """Free blocks after the last of these events, and both queues in order as `id(generated)`.

    `arrivals`: what priority compares, by request; where there is nothing, the order of events.
    """
    running: list[str] = []
    waiting: list[str] = []
    ranks: dict[str, tuple[int, int]] = {}
    generated: dict[str, int] = {}
    free = 0
    for event in events:
        who = event["request_id"]
        generated[who] = event["generated_tokens"]
        free = event["capacity_blocks"] - event["occupied_blocks_after"]
        match event["kind"]:
            case Kind.ARRIVE:
                ranks[who] = (event["priority"], arrivals.get(who, len(ranks)))
                waiting.append(who)
            case Kind.ADMIT | Kind.RESUME:
                waiting.remove(who)
                running.append(who)
            case Kind.PREEMPT:
                running.remove(who)
                waiting.insert(0, who)
            case Kind.COMPLETE:
                (running if who in running else waiting).remove(who)
    if priority:
        waiting.sort(key=ranks.__getitem__)
    shown = [[f"{who}({generated[who]} generated)" for who in q] for q in (running, waiting)]
    return free, shown[0], shown[1]


def _on(key: str) -> Callable[[Case], bool]:
    return lambda case: bool(case["config"]["engine"].get(key))


# What a case may have. The place to look first is what all diverging cases have.
SWITCHES: dict[str, Callable[[Case], bool]] = {
    "async_scheduling": _on("async_scheduling"),
    "enable_chunked_prefill": _on("enable_chunked_prefill"),
    "enable_prefix_caching": _on("enable_prefix_caching"),
    "long_prefill_token_threshold": _on("long_prefill_token_threshold"),
    "scheduler_reserve_full_isl": _on("scheduler_reserve_full_isl"),
    "watermark": _on("watermark"),
    "scheduling_policy = priority": lambda case: (
        case["config"]["engine"]["scheduling_policy"] == "priority"
    ),
    "prefix_blocks": lambda case: any(row.get("prefix_blocks") for row in case["requests"]),
    "engine_arrival_us": lambda case: bool(arrivals_of(case)),
    "tick_us > 1": lambda case: case["config"]["engine"]["tick_us"] > 1,
}


def by_option(diverging: Sequence[Case], cases: Sequence[Case]) -> list[str]:
    """For each option, how many cases differ with it and without it: where to look first."""
    lines = []
    for name, holds in SWITCHES.items():
        rows = [(holds(case), case in diverging) for case in cases]
        on, off = ([differs for held, differs in rows if held is side] for side in (True, False))
        if on and off:
            lines.append(f"{name:<32} {_share(on)} with it, {_share(off)} without")
    return lines


def _share(differs: Sequence[bool]) -> str:
    return f"{sum(differs):,} of {len(differs):,}"


def _arrives(event: Event, tick: int) -> bool:
    return bool(event["tick"] == tick and event["kind"] == Kind.ARRIVE)


def _at(tick: int | None) -> str:
    return "" if tick is None else f" first at tick {tick}"


def _row(table: str, row: Any) -> str:
    if table not in ROWS or row is None:
        return "nothing" if row is None else str(row)
    return ", ".join(f"{name} {value}" for name, value in zip(ROWS[table], row, strict=True))


def _vllm_state(state: dict[str, Any]) -> str:
    running = [
        f"{r['request_id']}({r['computed']} computed, {r['generated']} generated)"
        for r in state["running"]
    ]
    waiting = [f"{r['request_id']}({r['generated']} generated)" for r in state["waiting"]]
    return _line(state["when"], state["free"], running, waiting)


def _line(when: str, free: int, running: Sequence[str], waiting: Sequence[str]) -> str:
    queues = f"running {_queue(running)}; waiting {_queue(waiting)}"
    return f"  {'before it' if when == 'arrived' else 'after it'}: {free} blocks free; {queues}"


def _queue(names: Sequence[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (" ".join(names[:_SHOWN]) or "nobody") + more
