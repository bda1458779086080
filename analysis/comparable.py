"""Manifest fields that make two runs alike, by their dotted names; joins and gates share them."""

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
WITHOUT_DRIVER = ("cpu",)  # device kinds that have none, so that null is no unknown
