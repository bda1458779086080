"""The equations of vllm-v1 ledgers, by the column or the event that breaks each."""

from replay.events import Kind
from replay.oracle.walk import Equations

ORDER = "events are in the order the scheduler works in"
FACTS = "a request's facts are its workload row's"
GENERATED = "generated tokens never fall and end at output_tokens"
OCCUPIED = "occupied = blocks that running requests hold, a shared block once, <= capacity"
RECOVERY = "the recovery follows the policy, the estimates and the tie rule"
CHARGE = "recompute charge = computed tokens lost; recovered = those computed again"
BYTES_OUT = "bytes out = computed tokens x bytes per token, except on_host"
BYTES_IN = "bytes in = computed tokens x bytes per token"
ESTIMATES = "both estimates are recorded, of the computed tokens"
WORK_LEFT = "work left = tokens known or bytes on the host - work done"
VICTIM = "the victim is the rule's choice among the running"
ADMISSION = "the queue is in order, its head is admitted when it fits, nobody overtakes"
FLAGS = "flags exactly when the predicate holds"
COMPLETE = "the ledger ends when every request is complete or censored"
TIMES = "time = begin or end of its step by [timing], of an arrival its own"
COLUMNS = {
    "seq": "seq counts from 0 without gaps",
    "tick": ORDER,
    "time_us": "time = tick x tick_us",
    "kind": ORDER,
    "request_id": ORDER,
    "requester_id": "the requester is the running request that needs more blocks than are free",
    "priority": FACTS,
    "arrival_tick": FACTS,
    "age_ticks": "age = tick - arrival tick",
    "queue_ticks": "queue ticks = ticks whose accounting found it queued",
    "preemptions": "preemptions are counted",
    "prompt_tokens": FACTS,
    "generated_tokens": GENERATED,
    "remaining_tokens": "remaining = output - generated",
    "context_tokens": "context = prompt + generated",
    "active_requests": "active requests = length of the running list",
    "queue_depth": "queue depth = length of the queue",
    "queue_position": "a victim goes to its place in the queue's order",
    "capacity_blocks": "free + occupied = capacity",
    "occupied_blocks_before": OCCUPIED,
    "occupied_blocks_after": OCCUPIED,
    "allocated_blocks": "allocated blocks = fall of the free count",
    "freed_blocks": "freed blocks = rise of the free count",
    "recovery": RECOVERY,
    "recovery_reason": RECOVERY,
    "recompute_tokens": CHARGE,
    "swap_out_bytes": BYTES_OUT,
    "swap_in_bytes": BYTES_IN,
    "estimate_recompute_ticks": ESTIMATES,
    "estimate_swap_ticks": ESTIMATES,
    "host_bytes_after": "host bytes are held from eviction until the restore completes",
    "work_left_tokens": WORK_LEFT,
    "work_left_bytes": WORK_LEFT,
}
_SURPLUS = {
    Kind.ARRIVE: ORDER,
    Kind.ADMIT: ADMISSION,
    Kind.RESUME: ADMISSION,
    Kind.PREEMPT: VICTIM,
    Kind.SWAPPED_OUT: BYTES_OUT,
    Kind.RECOVERED: CHARGE,
    Kind.FIRST_TOKEN: GENERATED,
    Kind.COMPLETE: GENERATED,
    Kind.FLAG_WAIT: FLAGS,
    Kind.FLAG_REPEAT: FLAGS,
    Kind.CENSORED: COMPLETE,
}
EQUATIONS = Equations(COLUMNS, _SURPLUS, COMPLETE)
TIMED_EQUATIONS = Equations(COLUMNS | {"time_us": TIMES}, _SURPLUS, COMPLETE)
