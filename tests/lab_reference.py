"""The lab scheduler `lab-1` a second time, as simply as SPEC.md can be written down.

It exists to be compared with the real implementation byte for byte, so it was written from
SPEC.md (sections 1 to 7) alone and shares no code with it. It is a plain loop over every tick,
with plain lists, that recounts its totals each time it needs them. Read it beside SPEC.md:
each `§` in a comment names the section that the lines below it repeat. Input is assumed valid.
"""

from __future__ import annotations

import hashlib
import json
import struct
from dataclasses import dataclass
from typing import Any

Row = dict[str, Any]

# §7, "events.parquet, one row per event".
COLUMNS = (  # noqa: SIM905 - as in the SPEC, to be compared by eye
    "seq tick time_us kind request_id requester_id priority arrival_tick age_ticks queue_ticks "
    "preemptions prompt_tokens generated_tokens remaining_tokens context_tokens active_requests "
    "queue_depth queue_position capacity_blocks occupied_blocks_before occupied_blocks_after "
    "allocated_blocks freed_blocks recovery recovery_reason recompute_tokens swap_out_bytes "
    "swap_in_bytes estimate_recompute_ticks estimate_swap_ticks host_bytes_after "
    "work_left_tokens work_left_bytes"
).split()

# §7, the codes: the position in the list.
KINDS = (  # noqa: SIM905 - as COLUMNS
    "arrive admit resume preempt swapped_out recovered first_token complete "
    "flag_wait flag_repeat censored"
).split()
RECOVERIES = ["recompute", "swap"]
REASONS = ["on_host", "incomplete", "host_full", "tie", "cheaper"]

NULL = -(2**63)  # §7, "Binary form"

# §3, the keys the lab reads; `capacity_blocks` is required and has no default.
DEFAULTS: dict[str, Row] = {
    "engine": {"rule": "lab-1", "tick_us": 1, "block_size": 8, "max_num_seqs": 256},
    "policy": {
        "recovery": "recompute",
        "victim": "rule",
        "kv_bytes_per_token": 512,
        "prefill_tokens_per_tick": 16,
        "transfer_bytes_per_tick": 8192,
        "host_capacity_bytes": 0,
    },
    "fairness": {"max_queue_ticks": 200, "max_preemptions": 2},
    "limits": {"max_requests": 64, "max_ticks": 20000},
}


@dataclass(eq=False)
class Request:
    """One request: its workload row (§2) and how far it has come."""

    request_id: str
    arrival_tick: int
    prompt_tokens: int
    output_tokens: int
    priority: int
    tenant: str | None
    generated_tokens: int = 0
    queue_ticks: int = 0
    preemptions: int = 0
    blocks: int = 0
    was_admitted: bool = False
    work: str = "prefill"  # or `replay`, `restore`: what its (next) admission brings (§4 phase 4)
    work_left: int = 0  # tokens, or bytes for a restore; set at admission
    work_done: int = 0
    host_bytes: int = 0  # §5, "held from eviction until the restore completes"
    swap_out_left: int = 0  # bytes that the link still has to copy out
    flagged_wait: bool = False
    flagged_repeat: bool = False

    @property
    def context(self) -> int:
        """Prompt tokens + generated tokens (§1)."""
        return self.prompt_tokens + self.generated_tokens

    @property
    def order(self) -> tuple[int, int, bytes]:
        """The queue's order, and the victim's: ids as UTF-8 bytes (§4, phases 3 and 5)."""
        return (self.priority, self.arrival_tick, self.request_id.encode("utf-8"))


class Lab:
    """One run: the state between events, and the events so far."""

    def __init__(self, requests: list[Row], config: Row) -> None:
        tables = with_defaults(config)
        self.engine = tables["engine"]
        self.policy = tables["policy"]
        self.fairness = tables["fairness"]
        self.limits = tables["limits"]
        self.workload = [
            Request(
                request_id=row["request_id"],
                arrival_tick=row["arrival_us"] // self.engine["tick_us"],
                prompt_tokens=row["prompt_tokens"],
                output_tokens=row["output_tokens"],
                priority=row["priority"],
                tenant=row["tenant"],
            )
            for row in workload_rows(requests)
        ]
        self.queue: list[Request] = []
        self.running: list[Request] = []
        self.swap_outs: list[Request] = []  # pending, oldest eviction first
        self.events: list[Row] = []
        self.tick = 0
        self.link_budget = 0

    # ---- §4: the tick ----

    def run(self) -> None:
        """Go through ticks 0 to max_ticks - 1; end early when all are complete."""
        for tick in range(self.limits["max_ticks"]):
            self.tick = tick
            could_decode = [request for request in self.running if request.work_left == 0]
            self.arrive()
            self.swap_out()
            self.admit()
            self.serve()
            self.decode(could_decode)
            self.account()
            if not self.unfinished():
                return
        for request in self.unfinished():
            self.event("censored", request)

    def arrive(self) -> None:
        """Phase 1: requests with this arrival tick join the queue."""
        for request in self.workload:
            if request.arrival_tick == self.tick:
                self.join_queue(request)
                self.event("arrive", request)

    def swap_out(self) -> None:
        """Phase 2: the link first drains pending swap-outs, oldest eviction first."""
        self.link_budget = self.policy["transfer_bytes_per_tick"]
        for victim in list(self.swap_outs):
            moved = min(victim.swap_out_left, self.link_budget)
            victim.swap_out_left -= moved
            self.link_budget -= moved
            if victim.swap_out_left == 0:
                self.swap_outs.remove(victim)
                self.event("swapped_out", victim, swap_out_bytes=victim.host_bytes)

    def admit(self) -> None:
        """Phase 3: from the head of the queue, stopping at the first that does not fit."""
        while self.queue and self.fits(self.queue[0]):
            request = self.queue.pop(0)
            before = self.occupied()
            kind = "resume" if request.was_admitted else "admit"
            request.was_admitted = True
            request.blocks = self.blocks_for(request.context)
            # Prefill: the prompt, which is the whole context then. Replay: the whole context.
            request.work_left = request.host_bytes if request.work == "restore" else request.context
            request.work_done = 0
            self.running.append(request)
            work = work_left_columns(request)
            self.event(kind, request, before, allocated_blocks=request.blocks, **work)

    def fits(self, head: Request) -> bool:
        """Tell whether the head of the queue can be admitted now (phase 3)."""
        return (
            self.blocks_for(head.context) <= self.free()
            and len(self.running) < self.engine["max_num_seqs"]
            and head.swap_out_left == 0
        )

    def serve(self) -> None:
        """Phase 4: in running order, work takes from the two budgets of the tick."""
        prefill_budget = self.policy["prefill_tokens_per_tick"]
        for request in self.running:
            if request.work_left == 0:
                continue
            if request.work == "restore":
                done = min(request.work_left, self.link_budget)
                self.link_budget -= done
            else:
                done = min(request.work_left, prefill_budget)
                prefill_budget -= done
            request.work_left -= done
            request.work_done += done
            if request.work_left == 0:
                self.finish_work(request)

    def finish_work(self, request: Request) -> None:
        """End a prefill, replay or restore; the latter two have an event (§7, `recovered`)."""
        if request.work == "replay":
            done = request.work_done
            self.event("recovered", request, recovery="recompute", recompute_tokens=done)
        if request.work == "restore":
            request.host_bytes = 0
            self.event("recovered", request, recovery="swap", swap_in_bytes=request.work_done)

    def decode(self, could_decode: list[Request]) -> None:
        """Phase 5: in running order as it stands now, one token for each that could decode."""
        for request in list(self.running):
            still_running = request in self.running
            if still_running and request in could_decode and self.grow(request):
                self.emit_token(request)

    def grow(self, requester: Request) -> bool:
        """Take the block that the next token needs, if any; False if that cost the requester."""
        if self.blocks_for(requester.context + 1) <= requester.blocks:
            return True
        while self.free() == 0:
            victim = max(self.running, key=lambda request: request.order)
            self.preempt(victim, requester)
            if victim is requester:
                return False
        requester.blocks += 1
        return True

    def emit_token(self, request: Request) -> None:
        """Emit one token; the last one completes the request at once (phase 5)."""
        request.generated_tokens += 1
        if request.generated_tokens == 1:
            self.event("first_token", request)
        if request.generated_tokens == request.output_tokens:
            before = self.occupied()
            freed = self.stop_running(request)
            self.event("complete", request, before, freed_blocks=freed)

    def account(self) -> None:
        """Phase 6: queue ticks, then each predicate that became true, once."""
        for request in self.queue:
            request.queue_ticks += 1
        for request in self.workload:
            waited = request.queue_ticks > self.fairness["max_queue_ticks"]
            if waited and not request.flagged_wait:
                request.flagged_wait = True
                self.event("flag_wait", request)
            repeated = request.preemptions > self.fairness["max_preemptions"]
            if repeated and not request.flagged_repeat:
                request.flagged_repeat = True
                self.event("flag_repeat", request)

    # ---- §5: recovery ----

    def preempt(self, victim: Request, requester: Request) -> None:
        """Move a running request back to the queue and charge its recovery (§5)."""
        context = victim.context
        resident_bytes = context * self.policy["kv_bytes_per_token"]
        recompute_ticks = ceil_div(context, self.policy["prefill_tokens_per_tick"])
        swap_ticks = 2 * ceil_div(resident_bytes, self.policy["transfer_bytes_per_tick"])
        recovery, reason = self.choose(victim, resident_bytes, recompute_ticks, swap_ticks)

        charge: Row = {}
        if recovery == "recompute":
            charge["recompute_tokens"] = context
        else:
            charge["swap_in_bytes"] = resident_bytes
            if reason != "on_host":
                charge["swap_out_bytes"] = resident_bytes
                victim.host_bytes = resident_bytes
                victim.swap_out_left = resident_bytes
                self.swap_outs.append(victim)

        earlier_work = work_left_columns(victim) if victim.work_left > 0 else {}
        victim.work = "replay" if recovery == "recompute" else "restore"
        victim.work_left = 0
        victim.preemptions += 1
        before = self.occupied()
        freed = self.stop_running(victim)
        self.join_queue(victim)
        self.event(
            "preempt",
            victim,
            before,
            requester_id=requester.request_id,
            queue_position=self.queue.index(victim),
            freed_blocks=freed,
            recovery=recovery,
            recovery_reason=reason,
            estimate_recompute_ticks=recompute_ticks,
            estimate_swap_ticks=swap_ticks,
            **charge,
            **earlier_work,
        )

    def choose(
        self, victim: Request, resident_bytes: int, recompute_ticks: int, swap_ticks: int
    ) -> tuple[str, str | None]:
        """Return the victim's recovery and its reason, the first that holds (§5, §7)."""
        if victim.work_left > 0 and victim.work == "restore":
            return "swap", "on_host"
        if victim.work_left > 0:
            return "recompute", "incomplete"
        recovery, reason = self.policy["recovery"], None
        if recovery == "adaptive":
            recovery = "swap" if swap_ticks < recompute_ticks else "recompute"
            reason = "tie" if swap_ticks == recompute_ticks else "cheaper"
        room = self.policy["host_capacity_bytes"]  # 0: unlimited
        if recovery == "swap" and room > 0 and self.host_bytes() + resident_bytes > room:
            return "recompute", "host_full"
        return recovery, reason

    # ---- the lists, the blocks, the host ----

    def join_queue(self, request: Request) -> None:
        """Put a request into the queue, which stays in its order (phase 3)."""
        self.queue.append(request)
        self.queue.sort(key=lambda queued: queued.order)

    def stop_running(self, request: Request) -> int:
        """Take a request off the running list; return the blocks that this freed."""
        self.running.remove(request)
        freed, request.blocks = request.blocks, 0
        return freed

    def unfinished(self) -> list[Request]:
        """Return the requests that are not complete, in workload order."""
        return [r for r in self.workload if r.generated_tokens < r.output_tokens]

    def blocks_for(self, tokens: int) -> int:
        """Return the blocks that so many tokens of KV occupy (§1)."""
        return ceil_div(tokens, self.engine["block_size"])

    def occupied(self) -> int:
        """Return the blocks that the running requests hold."""
        return sum(request.blocks for request in self.running)

    def free(self) -> int:
        """Return the blocks that nobody holds."""
        return int(self.engine["capacity_blocks"]) - self.occupied()

    def host_bytes(self) -> int:
        """Return the bytes held on the host (§5)."""
        return sum(request.host_bytes for request in self.workload)

    # ---- §7: the event ----

    def event(
        self, kind: str, request: Request, occupied_before: int | None = None, **further: Any
    ) -> None:
        """Append an event that shows the state as it is now, after it (§7, "Never null")."""
        occupied = self.occupied()
        row: Row = dict.fromkeys(COLUMNS)
        row.update(
            seq=len(self.events),
            tick=self.tick,
            time_us=self.tick * self.engine["tick_us"],
            kind=kind,
            request_id=request.request_id,
            priority=request.priority,
            arrival_tick=request.arrival_tick,
            age_ticks=self.tick - request.arrival_tick,
            queue_ticks=request.queue_ticks,
            preemptions=request.preemptions,
            prompt_tokens=request.prompt_tokens,
            generated_tokens=request.generated_tokens,
            remaining_tokens=request.output_tokens - request.generated_tokens,
            context_tokens=request.context,
            active_requests=len(self.running),
            queue_depth=len(self.queue),
            capacity_blocks=self.engine["capacity_blocks"],
            occupied_blocks_before=occupied if occupied_before is None else occupied_before,
            occupied_blocks_after=occupied,
            host_bytes_after=self.host_bytes(),
            **further,
        )
        self.events.append(row)


def reference_events(requests: list[Row], config: Row) -> list[Row]:
    """Return all events of the run, each with the 33 columns of §7 in order; absent is None."""
    return run_lab(requests, config).events


def reference_binary(requests: list[Row], config: Row) -> bytes:
    """Return the binary form of the ledger, what `event_sha256` covers (§7, "Binary form")."""
    lab = run_lab(requests, config)
    header = {
        "columns": COLUMNS,
        "policy": {"recovery": lab.policy["recovery"], "victim": lab.policy["victim"]},
        "profile": lab.engine["profile"],
        "rule": lab.engine["rule"],
        "schema": "preemption-ledger/1",
    }
    ids = [request.request_id for request in lab.workload]
    codes = {"request_id": ids, "requester_id": ids, "kind": KINDS}
    codes |= {"recovery": RECOVERIES, "recovery_reason": REASONS}
    binary = bytearray(canonical_json(header) + b"\n")
    for row in lab.events:
        for column in COLUMNS:
            value = row[column]
            if value is None:
                value = NULL
            elif column in codes:
                value = codes[column].index(value)
            binary += struct.pack("<q", value)
    return bytes(binary)


def reference_requests(requests: list[Row], config: Row) -> list[Row]:
    """Return the rows of requests.parquet, without the columns of `[timing]` (§7)."""
    lab = run_lab(requests, config)
    return [request_row(request, lab.events) for request in lab.workload]


def request_row(request: Request, events: list[Row]) -> Row:
    """Sum up one request from its events (§7, "requests.parquet")."""
    own = [row for row in events if row["request_id"] == request.request_id]
    tick_of = {row["kind"]: row["tick"] for row in own}  # read only for kinds that happen once
    preempts = [row for row in own if row["kind"] == "preempt"]
    first_token, completion = tick_of.get("first_token"), tick_of.get("complete")
    ttft = tpot = None
    if first_token is not None:
        ttft = first_token - request.arrival_tick
    if completion is not None and request.generated_tokens >= 2:
        tpot = (completion - first_token) / (request.generated_tokens - 1)
    return {
        "request_id": request.request_id,
        "status": "censored" if completion is None else "complete",
        "arrival_tick": request.arrival_tick,
        "first_admit_tick": tick_of.get("admit"),
        "first_token_tick": first_token,
        "completion_tick": completion,
        "prompt_tokens": request.prompt_tokens,
        "output_tokens": request.output_tokens,
        "generated_tokens": request.generated_tokens,
        "priority": request.priority,
        "tenant": request.tenant,
        "preemptions": request.preemptions,
        "queue_ticks": request.queue_ticks,
        "recompute_tokens": sum(row["recompute_tokens"] or 0 for row in preempts),
        "swap_out_bytes": sum(row["swap_out_bytes"] or 0 for row in preempts),
        "swap_in_bytes": sum(row["swap_in_bytes"] or 0 for row in preempts),
        "flagged_wait": request.flagged_wait,
        "flagged_repeat": request.flagged_repeat,
        "modelled_ttft_ticks": ttft,
        "modelled_tpot_ticks": tpot,
    }


def reference_workload_sha256(requests: list[Row], prefix_block_tokens: int | None = None) -> str:
    """Return the hash of the workload's text form (§2, "Hashes")."""
    header = {"prefix_block_tokens": prefix_block_tokens, "schema": "preemption-workload/1"}
    lines = [header, *workload_rows(requests)]
    return hashlib.sha256(b"".join(canonical_json(line) + b"\n" for line in lines)).hexdigest()


def reference_input_sha256(
    requests: list[Row], config: Row, prefix_block_tokens: int | None = None
) -> str:
    """Return the hash of the workload and of the configuration that does not choose (§2)."""
    tables = with_defaults(config)
    del tables["policy"]["recovery"], tables["policy"]["victim"]
    workload_sha256 = reference_workload_sha256(requests, prefix_block_tokens)
    whole = {"config": tables, "workload_sha256": workload_sha256}
    return hashlib.sha256(canonical_json(whole)).hexdigest()


def run_lab(requests: list[Row], config: Row) -> Lab:
    """Return a finished run."""
    lab = Lab(requests, config)
    lab.run()
    return lab


def workload_rows(requests: list[Row]) -> list[Row]:
    """Return the workload in order, every field filled in (§2: defaults, null, "Order")."""
    rows = [
        {
            "request_id": row["request_id"],
            "arrival_us": row["arrival_us"],
            "prompt_tokens": row["prompt_tokens"],
            "output_tokens": row["output_tokens"],
            "priority": row.get("priority") or 0,
            "tenant": row.get("tenant"),
            "prefix_blocks": row.get("prefix_blocks") or None,
        }
        for row in requests
    ]
    return sorted(rows, key=lambda row: int(row["arrival_us"]))


def with_defaults(config: Row) -> dict[str, Row]:
    """Return the tables that the lab reads, each key at its value or default (§3)."""
    return {table: {**keys, **config.get(table, {})} for table, keys in DEFAULTS.items()}


def work_left_columns(request: Request) -> Row:
    """Return the work left in its column: bytes for a restore, else tokens (§7)."""
    column = "work_left_bytes" if request.work == "restore" else "work_left_tokens"
    return {column: request.work_left}


def ceil_div(dividend: int, divisor: int) -> int:
    """Divide whole numbers, rounding up."""
    return -(-dividend // divisor)


def canonical_json(value: Row) -> bytes:
    """Return RFC 8785 for what occurs here: ASCII keys, integers, no control characters (§2)."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return text.encode("utf-8")
