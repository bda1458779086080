"""What joins and gates both ask of runs: the manifest fields that make two alike, and requests."""

ENGINE_FIELDS = (
    "engine.name",
    "engine.version",
    "model.name",
    "device.kind",
    "device.name",
    "device.count",
    "device.driver",
    "parallel.tensor",
    "parallel.pipeline",
    "parallel.data",
)
SCHEDULER_FIELDS = (
    "scheduler.scheduling_policy",
    "scheduler.max_num_seqs",
    "scheduler.max_num_batched_tokens",
    "scheduler.max_model_len",
    "scheduler.enable_chunked_prefill",
    "scheduler.scheduler_reserve_full_isl",
    "scheduler.watermark",
    "scheduler.long_prefill_token_threshold",
    "scheduler.async_scheduling",
)
# What the duration of a step depends on; a fit says nothing of an engine that differs in one.
DURATION_FIELDS = (
    *ENGINE_FIELDS,
    "cache.block_size",
    "cache.dtype",
    "cache.enable_prefix_caching",
    "scheduler.async_scheduling",
)
WITHOUT_DRIVER = ("cpu",)  # device kinds that have none, so that null is no unknown
# What a run of metrics alone lacks, for whoever needs requests: said in one line, with the way out.
METRICS_ONLY = (
    "metrics name no request; record with the recorder inside the engine (preempt collect pack), or"
    " offer the load with preempt collect drive"
)
