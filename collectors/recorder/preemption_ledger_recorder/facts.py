"""What an engine is, for the header of every spool part: versions, sizes, options, features.

Read once from the configuration objects that vLLM built. Each value stands alone: one that a
release does not have is null and costs no other. No path, prompt, key or token is among them.
"""

import os
from collections.abc import Callable, Mapping
from typing import Any

from preemption_ledger_recorder.device import device_of
from preemption_ledger_recorder.notes import caches_prefixes, hash_tokens
from preemption_ledger_recorder.options import options_set

# Fields of each kind of record, behind the kind.
_EVENT = ["seq", "step", "t_ns", "n"]
COLUMNS: Mapping[str, list[str]] = {
    "R": [
        *("n", "request_id", "engine_arrival_unix_ns", "prompt_tokens", "max_tokens", "priority"),
        *("prefix_ids", "features"),
    ],
    "A": _EVENT,
    "D": [*_EVENT, "cached_tokens"],
    "P": [
        *(*_EVENT, "context_tokens", "computed_tokens", "generated_tokens", "freed_blocks"),
        *("free_blocks_before", "running", "waiting", "num_preemptions"),
    ],
    "U": [*_EVENT, "cached_tokens"],
    "F": [
        *(*_EVENT, "generated_tokens", "num_preemptions", "status", "finish_reason"),
        *("first_token_ns", "last_token_ns", "queue_ns", "requeue_ns"),
    ],
    "S": [
        *("step", "t_ns", "scheduled_tokens", "prefill_tokens", "decode_requests", "kv_tokens"),
        *("free_blocks", "running", "waiting"),
    ],
    "C": ["unix_ns", "monotonic_ns"],
    "X": ["dropped_records", "forgotten_prefixes", "internal_errors", "off"],
    "E": ["t_ns"],
}
# How each column of the measured tables was taken.
SOURCES: Mapping[str, str] = {
    "arrival_us": "engine_arrival_us, or add_request of the scheduler where that is null",
    "engine_arrival_us": "Request.arrival_time, wall clock of the API server when it took it",
    "cached_tokens": "computed tokens at the first schedule that this step did not schedule",
    "prefix_blocks": "Request.block_hashes of the prompt's full blocks, numbered by appearance",
    "queue_time_us": "first schedule minus add_request, both of the engine core",
    "requeue_time_us": "from each preemption to the schedule that resumed the request, summed",
    "ttft_us": "update_from_output with the first token, monotonic, minus arrival_us, wall clock",
    "e2e_us": "update_from_output with the last token, monotonic, minus arrival_us, wall clock",
    "generated_tokens": "tokens the scheduler holds for the request when it ends",
    "num_preemptions": "Request.num_preemptions of the scheduler, also for aborted requests",
    "prefill_tokens": "tokens scheduled to compute known text, a resumed request's included",
    "kv_tokens": "computed tokens of the running requests after the step was scheduled",
    "free_blocks": "the block pool after the step was scheduled",
    "tenant": "absent: the scheduler does not know the API's user",
}
_ATTENTION = {"FullAttentionSpec", "MLAAttentionSpec", "UniformTypeKVCacheSpecs"}
_SCHEDULER = (
    "max_num_seqs",
    "max_num_batched_tokens",
    "async_scheduling",
    "enable_chunked_prefill",
    "scheduler_reserve_full_isl",
    "watermark",
    "long_prefill_token_threshold",
)
# Options of some releases only, that change what a step schedules.
_MORE_OPTIONS = (
    "long_prefill_token_threshold_adaptive",
    "max_num_active_seqs",
    "max_num_partial_prefills",
    "max_num_scheduled_tokens",
    "prefill_schedule_interval",
)
# vLLM has others, for other kinds of models.
_SCHEDULERS = {
    "vllm.v1.core.sched.scheduler.Scheduler",
    "vllm.v1.core.sched.async_scheduler.AsyncScheduler",
}


def engine_index(scheduler: Any) -> int:
    """Data-parallel index; engines that are independent keep it beside a rank of 0."""
    parallel = scheduler.vllm_config.parallel_config
    for name in ("data_parallel_index", "data_parallel_rank"):
        index = getattr(parallel, name, None)
        if isinstance(index, int) and not isinstance(index, bool):
            return max(index, 0)
    return 0


def facts_of(
    scheduler: Any, release: Callable[[], str | None], platform: Callable[[], Any]
) -> dict[str, Any]:
    """The header's facts, in the manifest's words; `platform` gives vLLM's `current_platform`."""
    config, pool = scheduler.vllm_config, scheduler.kv_cache_config
    parallel = config.parallel_config
    caching = caches_prefixes(scheduler)
    return {
        "vllm_version": _try(release),
        "model": _try(lambda: _served_name(config.model_config)),
        "device": device_of(config, platform),
        "parallel": {
            "tensor": _try(lambda: int(parallel.tensor_parallel_size)),
            "pipeline": _try(lambda: int(parallel.pipeline_parallel_size)),
            "data": _try(lambda: _data_parallel(parallel)),
            "decode_context": _try(lambda: int(parallel.decode_context_parallel_size)),
            "prefill_context": _try(lambda: int(parallel.prefill_context_parallel_size)),
        },
        "cache": _cache(config, pool, caching),
        "scheduler": _scheduler(config),
        "cache_groups": _try(lambda: [_group(group) for group in pool.kv_cache_groups]),
        "prefix_block_tokens": hash_tokens(scheduler) if caching else None,
        "features": {
            **_features(config, parallel),
            "custom_scheduler": _class_name(scheduler) not in _SCHEDULERS,
            "attention_free": _try(lambda: not pool.kv_cache_groups),
        },
        "options_set": _try(lambda: options_set(config)),
    }


def _class_name(scheduler: Any) -> str:
    """The class that an engine would have without the recorder."""
    ours = __name__.partition(".")[0]
    kinds = (k for k in type(scheduler).__mro__ if k.__module__.partition(".")[0] != ours)
    kind = next(kinds)
    return f"{kind.__module__}.{kind.__qualname__}"


def _data_parallel(parallel: Any) -> int | None:
    """Engines of the service; unknown where vLLM made each of several believe it is alone."""
    size = int(parallel.data_parallel_size)
    # Engine 0 of several has such a port, too; one that is alone has 0 there.
    names = ("data_parallel_index", "data_parallel_master_port")
    several = any(getattr(parallel, name, 0) for name in names)
    return None if size == 1 and several else size


def _cache(config: Any, pool: Any, caching: bool) -> dict[str, Any]:
    cache = config.cache_config
    blocks = _try(lambda: int(pool.num_blocks))
    return {
        "block_size": _try(lambda: int(cache.block_size)),
        "num_gpu_blocks": blocks,
        "capacity_blocks": None if blocks is None else blocks - 1,  # one is vLLM's null block
        "dtype": _try(lambda: str(cache.cache_dtype)),
        "enable_prefix_caching": caching,
        "num_gpu_blocks_overridden": _try(lambda: cache.num_gpu_blocks_override is not None),
        "kv_cache_memory_bytes": _try(lambda: _memory(cache, pool)),
        "kv_bytes_per_token": _try(lambda: _bytes_per_token(config, pool)),
    }


def _memory(cache: Any, pool: Any) -> int | None:
    """What was given by option, or else what the tensors of one worker take."""
    for name in ("kv_cache_memory_bytes", "cpu_kvcache_space_bytes"):
        if given := getattr(cache, name, None):
            return int(given)
    return sum(int(tensor.size) for tensor in pool.kv_cache_tensors) or None


def _bytes_per_token(config: Any, pool: Any) -> int | None:
    """Bytes over all layers and tensor-parallel workers; null for caches that do not grow so."""
    parallel, total = config.parallel_config, 0
    for group in pool.kv_cache_groups:
        spec = group.kv_cache_spec
        if type(spec).__name__ not in _ATTENTION:
            return None
        whole = type(spec).__name__ == "UniformTypeKVCacheSpecs"  # its page is all its layers'
        layers = 1 if whole else len(group.layer_names)
        if parallel.pipeline_parallel_size > 1:  # this worker's layers are not the model's
            layers = config.model_config.hf_text_config.num_hidden_layers
        total += layers * int(spec.page_size_bytes) // int(spec.block_size)
    return total * int(parallel.tensor_parallel_size) or None


def _scheduler(config: Any) -> dict[str, Any]:
    scheduler = config.scheduler_config
    found = {name: getattr(scheduler, name, None) for name in _SCHEDULER}
    found |= {name: getattr(scheduler, name) for name in _MORE_OPTIONS if hasattr(scheduler, name)}
    if found["async_scheduling"] is not None:
        found["async_scheduling"] = bool(found["async_scheduling"])
    return {
        "scheduling_policy": _try(lambda: str(scheduler.policy)),
        "max_model_len": _try(lambda: int(config.model_config.max_model_len)),
        **found,
    }


def _group(group: Any) -> dict[str, Any]:
    spec = group.kv_cache_spec
    found = {
        "kind": type(spec).__name__,
        "block_size": _try(lambda: int(spec.block_size)),
        "layers": _try(lambda: len(group.layer_names)),
    }
    window = getattr(spec, "sliding_window", None)
    return found if window is None else {**found, "sliding_window": int(window)}


def _features(config: Any, parallel: Any) -> dict[str, Any]:
    """What is on; what only a request can tell is null until one does."""
    model = config.model_config
    return {
        "speculative": _has(config, "speculative_config"),
        "lora": _has(config, "lora_config"),
        "kv_connector": _has(config, "kv_transfer_config"),
        "ec_connector": _has(config, "ec_transfer_config"),
        "multimodal": _try(lambda: bool(model.is_multimodal_model)),
        "encoder_decoder": _try(lambda: bool(model.is_encoder_decoder)),
        "pooling": _try(lambda: str(model.runner_type) == "pooling"),
        "sleep_mode": _try(lambda: bool(model.enable_sleep_mode)),
        "pipeline_parallel": _try(lambda: int(parallel.pipeline_parallel_size) > 1),
        "structured": None,
        "n_greater_than_1": None,
        "prompt_embeds": None,
        "streaming_input": None,
    }


def _has(config: Any, name: str) -> bool | None:
    return getattr(config, name) is not None if hasattr(config, name) else None


def _served_name(model: Any) -> str | None:
    """The name clients use; null where that is a path of this host."""
    name = model.served_model_name
    if isinstance(name, (list, tuple)):
        name = name[0] if name else None
    if not isinstance(name, str) or not name:
        return None
    if name != getattr(model, "model", None):
        return name if "\n" not in name else None  # given as a name, whatever it looks like
    path = name.startswith(("/", ".", "~")) or os.path.exists(name)  # noqa: PTH110 (it may be any text)
    return None if path else name


def _try(read: Callable[[], Any]) -> Any:
    """A value, or null where this release has none."""
    try:
        return read()
    except Exception:  # noqa: BLE001 (whatever a release does, a fact less is no harm)
        return None
