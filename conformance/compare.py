"""Our replay of a case beside vLLM's own result: equal row by row, or where they part first.

There is no tolerance. What is compared is what a result holds (`engine.ROWS`): every preemption
with its victim, requester, blocks and tokens, every admission with its cache hits and blocks,
first-token and completion ticks, who was left unfinished and how often each was preempted.
"""

from collections import Counter
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from conformance.cases import Case
from conformance.engine import ROWS
from replay.config import Config, parse_config
from replay.errors import Unfinished
from replay.events import Kind, to_events
from replay.run import replay
from replay.workload import Workload, parse_requests

Result = dict[str, Any]
Row = list[Any]
Event = dict[str, Any]


@dataclass(frozen=True)
class Difference:
    """The first place where the two sides part; a row that one side lacks is None.

    `table` is a key of `engine.ROWS`, or `unfinished`, `preemption_counts`, `error` or `stopped`
    for what no tick can tell.
    """

    case: Case
    table: str
    tick: int | None
    vllm: Any
    ours: Any


def inputs(case: Case) -> tuple[Workload, Config]:
    """What our replay reads of a case."""
    place, chunk = f"case {case['name']}", case["prefix_block_tokens"]
    config = parse_config(case["config"], place)
    records = [(f"{place}: request {k}", row) for k, row in enumerate(case["requests"])]
    rows = parse_requests(records, chunk, place, config.limits.max_requests)
    return Workload(rows, prefix_block_tokens=chunk), config


def our_events(workload: Workload, config: Config) -> list[Event]:
    """Our ledger as dictionaries with request ids; the one place that knows the replay's form."""
    ledger = replay(workload, config, "case", keep_censored=True)
    ids = ledger.request_ids
    events = [event._asdict() for event in to_events(ledger.events)]
    for event in events:
        event["request_id"] = ids[event["request_id"]]
        if event["requester_id"] is not None:
            event["requester_id"] = ids[event["requester_id"]]
    return events


def as_result(events: list[Event]) -> Result:
    """A ledger in the form of vLLM's result."""
    done = {e["request_id"] for e in events if e["kind"] == Kind.COMPLETE}
    preemptions = [_preemption(e) for e in events if e["kind"] == Kind.PREEMPT]
    return {
        "preemptions": preemptions,
        "admissions": [_admission(e) for e in events if e["kind"] in {Kind.ADMIT, Kind.RESUME}],
        "first_tokens": [
            [e["tick"], e["request_id"]] for e in events if e["kind"] == Kind.FIRST_TOKEN
        ],
        "completions": [
            [e["tick"], e["request_id"], e["freed_blocks"], _free(e)]
            for e in events
            if e["kind"] == Kind.COMPLETE
        ],
        "unfinished": [
            e["request_id"]
            for e in events
            if e["kind"] == Kind.ARRIVE and e["request_id"] not in done
        ],
        "preemption_counts": dict(Counter(row[1] for row in preemptions)),
    }


def _free(event: Event) -> int:
    return int(event["capacity_blocks"] - event["occupied_blocks_after"])


def _preemption(event: Event) -> Row:
    row = [event["tick"], event["request_id"], event["requester_id"], event["freed_blocks"]]
    row += [event["recompute_tokens"], event["context_tokens"], event["generated_tokens"]]
    return [*row, _free(event), event["active_requests"], event["queue_depth"]]


def _admission(event: Event) -> Row:
    hits = event["context_tokens"] - event["work_left_tokens"]
    resumed = int(event["kind"] == Kind.RESUME)
    row = [event["tick"], event["request_id"], resumed, hits, event["allocated_blocks"]]
    return [*row, _free(event), event["active_requests"], event["queue_depth"]]


def compare(case: Case, vllm: Result) -> Difference | None:
    """Replay a case and compare it with vLLM's result; None if they are equal."""
    if "error" in vllm:
        return Difference(case, "error", None, vllm["error"], None)
    try:
        return first_difference(case, vllm, as_result(our_events(*inputs(case))))
    except Unfinished as stopped:
        if not vllm["unfinished"]:
            return Difference(case, "stopped", None, None, str(stopped))
        return compare(*shortened(case, vllm))


def shortened(case: Case, vllm: Result) -> tuple[Case, Result]:
    """Half the ticks of a case that never ends.

    Requests that evict each other in circles occupy vLLM for ever, while our replay stops with a
    diagnosis after a while and hands out no ledger: up to there both have to do the same.
    """
    ticks = case["config"]["limits"]["max_ticks"] // 2
    requests = [r for r in case["requests"] if _arrival_tick(case, r) < ticks]
    limits = case["config"]["limits"] | {"max_ticks": ticks}
    short = case | {"config": case["config"] | {"limits": limits}, "requests": requests}
    cut = vllm | {name: [row for row in vllm[name] if row[0] < ticks] for name in ROWS}
    done = {row[1] for row in cut["completions"]}
    in_order = sorted(requests, key=lambda r: int(r["arrival_us"]))
    cut["unfinished"] = [r["request_id"] for r in in_order if r["request_id"] not in done]
    cut["preemption_counts"] = dict(Counter(row[1] for row in cut["preemptions"]))
    return short, cut


def _arrival_tick(case: Case, request: dict[str, Any]) -> int:
    return int(request["arrival_us"] // case["config"]["engine"]["tick_us"])


def first_difference(case: Case, vllm: Result, ours: Result) -> Difference | None:
    """Where the results part first, by tick; None if they are equal."""
    found: list[Difference] = []
    for name in ROWS:
        for theirs, own in zip_longest(vllm[name], ours[name]):
            if theirs != own:
                tick = min(row[0] for row in (theirs, own) if row is not None)
                found.append(Difference(case, name, tick, theirs, own))
                break
    if found:
        return min(found, key=lambda difference: difference.tick or 0)
    for name in ("unfinished", "preemption_counts"):
        if vllm[name] != ours[name]:
            return Difference(case, name, None, vllm[name], ours[name])
    return None
