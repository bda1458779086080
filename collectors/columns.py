"""The columns of measured tables: what a collector writes and every reader may rely on (SPEC §9).

Plain data without a heavy import, because the recorder inside the engine shares it. Integers are
64 bit; a kind that ends in `?` may be null, and a column that may be null may be left out of a
file: absent is unknown, never zero.
"""

from collections.abc import Mapping

SCHEMA = "preemption-run/1"

RUN_KINDS = ("driven", "observed")
STATUSES = ("ok", "aborted", "error", "censored", "unsent", "rejected")
EVENT_KINDS = ("arrive", "admit", "preempt", "resume", "finish")

KINDS: Mapping[str, str] = {
    "id": "a string by the rule of request_id",
    "text": "a string of at most 4096 code points without control characters",
    "status": "one of STATUSES",
    "event": "one of EVENT_KINDS",
    "labels": "a sorted JSON object of strings without engine, model_name and le",
    "count": "an integer >= 0: tokens, blocks, requests, microseconds",
    "positive": "an integer >= 1",
    "integer": "an integer of either sign",
    "counts": "a list of integers >= 0, empty meaning null",
    "number": "a float; NaN and the infinities become null",
    "bound": "a float or +Infinity (the last bucket's upper bound); NaN and -Infinity become null",
}

MEASURED_REQUESTS: Mapping[str, str] = {
    "run_id": "id",
    "engine": "count?",  # an unsent or rejected request reached none
    "request_id": "id",
    "arrival_us": "count",
    "engine_arrival_us": "count?",
    "prompt_tokens": "positive",
    "generated_tokens": "count?",
    "max_tokens": "count?",
    "cached_tokens": "count?",
    "priority": "integer?",
    "tenant": "id?",
    "prefix_blocks": "counts?",
    "status": "status",
    "finish_reason": "text?",
    "queue_time_us": "count?",
    "requeue_time_us": "count?",
    "prefill_time_us": "count?",
    "decode_time_us": "count?",
    "ttft_us": "count?",
    "tpot_us": "count?",
    "largest_gap_us": "count?",  # between chunks with tokens, as a load driver saw them
    "e2e_us": "count?",
    "num_preemptions": "count?",
}

MEASURED_EVENTS: Mapping[str, str] = {
    "run_id": "id",
    "engine": "count",
    "seq": "count",
    "step": "count",
    "time_us": "count",
    "kind": "event",
    "request_id": "id",
    "context_tokens": "count?",
    "computed_tokens": "count?",
    "generated_tokens": "count?",
    "freed_blocks": "count?",
    "free_blocks_before": "count?",
    "running": "count?",
    "waiting": "count?",
    "num_preemptions": "count?",
}

MEASURED_STEPS: Mapping[str, str] = {
    "run_id": "id",
    "engine": "count",
    "step": "count",
    "time_us": "count",
    "scheduled_tokens": "positive?",  # a step is one that scheduled at least one token
    "prefill_tokens": "count?",
    "decode_requests": "count?",
    "kv_tokens": "count?",
    "free_blocks": "count?",
    "running": "count?",
    "waiting": "count?",
}

METRIC_SAMPLES: Mapping[str, str] = {
    "run_id": "id",
    "scrape": "count",
    "time_us": "count",
    "engine": "count?",
    "model": "text?",
    "name": "id",
    "labels": "labels",
    "le": "bound?",
    "value": "number?",
}

TABLES: Mapping[str, Mapping[str, str]] = {
    "measured_requests": MEASURED_REQUESTS,
    "measured_events": MEASURED_EVENTS,
    "measured_steps": MEASURED_STEPS,
    "metric_samples": METRIC_SAMPLES,
}

# Where the parts of each table lie inside a run.
DIRECTORIES: Mapping[str, str] = {
    "measured_requests": "requests",
    "measured_events": "events",
    "measured_steps": "steps",
    "metric_samples": "samples",
}

# Columns that may be null elsewhere but never on these kinds of event.
FILLED_ON_EVENT: Mapping[str, tuple[str, ...]] = {
    "preempt": (
        "context_tokens",
        "computed_tokens",
        "generated_tokens",
        "freed_blocks",
        "free_blocks_before",
        "running",
        "waiting",
        "num_preemptions",
    ),
    "finish": ("generated_tokens", "num_preemptions"),
}

# Within one engine these only ever rise, in file order.
RISING: Mapping[str, str] = {"measured_events": "seq", "measured_steps": "step"}


def nullable(kind: str) -> bool:
    """Whether a column of this kind may hold null (and may be left out of a file)."""
    return kind.endswith("?")
