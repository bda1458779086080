"""What replays are scored by, in the order people read it: counts, then times by quantile."""

COUNTS = ("preempt_events", "preemptions")
TIMES = ("ttft_us", "tpot_us", "e2e_us", "queue_us", "requeue_us")


def place(metric: str) -> tuple[int, str]:
    """Where a metric of `fidelity_scores` (a count, or a time with its quantile) is read."""
    name = metric.removesuffix("_p50").removesuffix("_p95")
    return (*COUNTS, *TIMES).index(name), metric
