"""Options of an engine that change what a step schedules, and those that may: nobody knows them.

Pure. What the recorder told comes in as it is; of its texts only names of options are repeated,
which are letters, digits and underscores.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

# Options that change what a step schedules, and the value that leaves it as it is.
_OPTIONS: Mapping[str, tuple[Any, str]] = {
    "prefill_schedule_interval": (1, "prefill_schedule_interval lets prefills wait for their turn"),
    "max_num_active_seqs": (None, "max_num_active_seqs limits what is running, a replay does not"),
    "max_num_partial_prefills": (1, "max_num_partial_prefills limits prefills, a replay does not"),
    "long_prefill_token_threshold_adaptive": (
        False,
        "long_prefill_token_threshold_adaptive changes the threshold as load does",
    ),
}
_LIMIT = "max_num_scheduled_tokens is not max_num_batched_tokens, in a replay they are one"
# Options that may have any value: a replay has them (or the header's other sections tell what they
# do), or they change no step. Any other one that is set may.
_HARMLESS: Mapping[str, frozenset[str]] = {
    "scheduler": frozenset(
        {
            *("max_num_seqs", "max_num_batched_tokens", "max_num_scheduled_tokens", "policy"),
            *("enable_chunked_prefill", "scheduler_reserve_full_isl", "watermark"),
            *("long_prefill_token_threshold", "async_scheduling", *_OPTIONS),
            *("runner_type", "is_multimodal_model", "scheduler_cls", "disable_chunked_mm_input"),
            *("disable_hybrid_kv_cache_manager", "max_long_partial_prefills"),
            *("max_num_queued_reqs", "max_num_queued_tokens", "stream_interval"),
            # Fields of earlier releases.
            *("max_model_len", "is_encoder_decoder", "num_lookahead_slots", "send_delta_data"),
            *("max_num_encoder_input_tokens", "encoder_cache_size"),
        }
    ),
    "cache": frozenset(
        {
            *("block_size", "num_gpu_blocks", "num_gpu_blocks_override", "num_cpu_blocks"),
            *("cache_dtype", "calculate_kv_scales", "kv_cache_dtype_skip_layers"),
            *("gpu_memory_utilization", "kv_cache_memory_bytes", "cpu_kvcache_space_bytes"),
            *("swap_space", "cpu_offload_gb", "kv_offloading_size", "kv_offloading_backend"),
            *("enable_prefix_caching", "prefix_caching_hash_algo", "prefix_match_unit"),
            *("sliding_window", "swa_bounded_replay", "is_attention_free"),
            *("mamba_block_size", "mamba_cache_dtype", "mamba_ssm_cache_dtype"),
            *("mamba_cache_mode", "mamba_page_size_padded", "skip_page_size_padded"),
            *("enable_mamba_shared_prefix_checkpoint", "prefix_cache_retention_interval"),
            *("replayssm_buffer_len", "use_replayssm", "kv_sharing_fast_prefill"),
        }
    ),
    "engine": frozenset(
        {
            *("model_config", "quant_config", "lora_config", "speculative_config"),
            *("kv_transfer_config", "ec_transfer_config", "kv_events_config"),
            *("reasoning_config", "watermark_config", "engram_config"),
            # Parts that were optional in earlier releases and always there.
            *("cache_config", "parallel_config", "scheduler_config", "device_config"),
            *("load_config", "observability_config", "decoding_config", "compilation_config"),
        }
    ),
}
_OPTION_NAME = re.compile(r"[a-z][a-z0-9_]{0,63}")
_MOST_NAMES = 8


def of_options(told: Mapping[str, Any]) -> Iterator[str]:
    """A sentence for each option of the scheduler, in the header's words, that a replay lacks."""
    for name, (usual, sentence) in _OPTIONS.items():
        if (value := told.get(name)) is not None and value != usual:
            yield sentence
    limit = told.get("max_num_scheduled_tokens")
    if limit is not None and limit != told.get("max_num_batched_tokens"):
        yield _LIMIT


def of_unknown_options(told: Mapping[str, Any]) -> Iterator[str]:
    """A sentence on options that are set, named by section, and of which nobody knows anything."""
    found = [
        f"{section}.{name}"
        for section, harmless in _HARMLESS.items()
        for name in _texts(told.get(section))
        if name not in harmless
    ]
    if found:
        names, more = ", ".join(found[:_MOST_NAMES]), len(found) - _MOST_NAMES
        names += f" and {more} more" if more > 0 else ""
        yield f"options that a replay does not know are not at their defaults: {names}"


def _texts(value: object) -> list[str]:
    """Names in a list; one that is no option's is told as such."""
    listed = value if isinstance(value, list) else []
    texts = [text for text in listed if isinstance(text, str)]
    return [text if _OPTION_NAME.fullmatch(text) else "an odd name" for text in texts]
