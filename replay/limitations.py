"""What a ledger does not model; the sentences travel in every export."""

LIMITATIONS = (
    "Independent requests only: no beam groups, speculative branches or distributed cache"
    " ownership; prefix sharing only where the profile models it.",
    "Current vLLM V1 recovers a preempted request by recomputation; swap is a historical systems"
    " comparison and no flag to turn on.",
    "Modelled ticks are not latency.",
)
