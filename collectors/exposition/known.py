"""The metrics of vLLM that this project knows: canonical names, kinds, releases and old names.

Canonical names are 0.32.0's without prefix and without a counter's `_total`; what ran from 0 to 1
under the name of a percentage ends in `_frac`. Releases are those that were inspected: `since` is
the first that has a metric, `until` the last one (None: still there in 0.32.0).
"""

from collections.abc import Mapping
from dataclasses import dataclass

Release = tuple[int, int, int]
CHECKED: Release = (0, 32, 0)


@dataclass(frozen=True)
class Alias:
    """An older name of the same quantity, in the same unit, and the releases that show it."""

    name: str
    since: Release
    until: Release


@dataclass(frozen=True)
class Metric:
    """One metric. `optional`: only there when something is switched on, configured or used.

    What only V0 has is optional, too: which engine ran does not follow from the release.
    """

    kind: str  # counter, gauge or histogram
    unit: str
    meaning: str
    since: Release = (0, 6, 0)
    until: Release | None = None
    optional: bool = False
    aliases: tuple[Alias, ...] = ()


_V0, _V1 = (0, 6, 6), (0, 8, 0)
_OLD_ITL = Alias("time_per_output_token_seconds", (0, 6, 0), (0, 14, 1))
_OLD_USAGE = Alias("gpu_cache_usage_perc", (0, 6, 0), (0, 11, 2))
_NEW_USAGE = Alias("kv_cache_usage_perc", (0, 9, 2), CHECKED)

KNOWN: Mapping[str, Metric] = {
    "num_preemptions": Metric(
        "counter",
        "preemptions",
        "Counted when the victim next emits a token, not when it is preempted; never if it is"
        " aborted before.",
    ),
    "request_num_preemptions": Metric(
        "histogram", "preemptions", "Per finished request; le=1 mixes 0 and 1.", (0, 30, 0)
    ),
    "kv_cache_usage_frac": Metric(
        "gauge",
        "0 to 1",
        "Blocks in use at the end of a step; blocks kept only for prefix reuse count as free.",
        aliases=(_NEW_USAGE, _OLD_USAGE),
    ),
    "num_requests_running": Metric("gauge", "requests", "In the running batch."),
    "num_requests_waiting": Metric("gauge", "requests", "Waiting; from 0.20.0 deferred ones too."),
    "num_requests_waiting_by_reason": Metric(
        "gauge", "requests", "Waiting for capacity, or deferred.", (0, 20, 0)
    ),
    "num_requests_kv_fetch_by_stage": Metric(
        "gauge", "requests", "Only of a KV consumer.", (0, 32, 0), optional=True
    ),
    "admission_rejections": Metric(
        "counter", "requests", "Refused at the frontend, by reason.", (0, 32, 0)
    ),
    "prompt_tokens": Metric(
        "counter", "tokens", "Credited at a request's first token; recomputing is not in it."
    ),
    "generation_tokens": Metric("counter", "tokens", "Credited as they are generated."),
    "prompt_tokens_by_source": Metric(
        "counter", "tokens", "Prompt tokens computed, cached or transferred.", (0, 16, 0)
    ),
    "prompt_tokens_cached": Metric("counter", "tokens", "Prompt tokens not computed.", (0, 16, 0)),
    "prompt_tokens_cached_by_source": Metric(
        "counter", "tokens", "Cached prompt tokens by where they were.", (0, 32, 0)
    ),
    "prompt_tokens_recomputed": Metric(
        "counter",
        "tokens",
        "The last token of a fully cached prompt, done again: not work lost to preemption.",
        (0, 16, 0),
        (0, 19, 1),
    ),
    "request_success": Metric(
        "counter", "requests", "Finished, by finished_reason; aborts by the client are not in it."
    ),
    "corrupted_requests": Metric(
        "counter", "requests", "Requests with NaN logits.", (0, 11, 1), optional=True
    ),
    "prefix_cache_queries": Metric(
        "counter", "tokens", "Looked up; from 0.11.1 without resumed requests.", (0, 9, 2)
    ),
    "prefix_cache_hits": Metric("counter", "tokens", "Found; as queries.", (0, 9, 2)),
    "gpu_prefix_cache_queries": Metric(
        "counter", "blocks to 0.8.5, then tokens", "Before the new name.", (0, 7, 3), (0, 10, 2)
    ),
    "gpu_prefix_cache_hits": Metric(
        "counter", "blocks to 0.8.5, then tokens", "Before the new name.", (0, 7, 3), (0, 10, 2)
    ),
    "external_prefix_cache_queries": Metric(
        "counter", "tokens", "Asked of a KV connector.", (0, 11, 1)
    ),
    "external_prefix_cache_hits": Metric(
        "counter", "tokens", "Found by a KV connector.", (0, 11, 1)
    ),
    "mm_cache_queries": Metric("counter", "items", "Multimodal items looked up.", (0, 12, 0)),
    "mm_cache_hits": Metric("counter", "items", "Multimodal items found.", (0, 12, 0)),
    "time_to_first_token_seconds": Metric(
        "histogram", "s", "First output at the frontend - arrival; stalls before it included."
    ),
    "inter_token_latency_seconds": Metric(
        "histogram",
        "s",
        "Between outputs, one sample each, however many tokens; a stall is one long gap.",
        aliases=(_OLD_ITL,),
    ),
    "request_time_per_output_token_seconds": Metric(
        "histogram", "s", "Per request, decode time / (n - 1), and 0 for n = 1.", (0, 11, 0)
    ),
    "e2e_request_latency_seconds": Metric("histogram", "s", "Last token - arrival."),
    "request_queue_time_seconds": Metric(
        "histogram", "s", "To the first schedule; waiting after a preemption is not in it.", _V0
    ),
    "request_prefill_time_seconds": Metric(
        "histogram", "s", "First schedule to first token, preemptions included.", _V0
    ),
    "request_decode_time_seconds": Metric(
        "histogram", "s", "First to last token, preemptions included.", _V0
    ),
    "request_inference_time_seconds": Metric(
        "histogram", "s", "First schedule to last token.", _V0
    ),
    "request_prompt_tokens": Metric("histogram", "tokens", "Credited when a request finishes."),
    "request_generation_tokens": Metric("histogram", "tokens", "Credited when it finishes."),
    "request_max_num_generation_tokens": Metric(
        "histogram", "tokens", "Most of a request's n sequences.", _V0
    ),
    "request_params_n": Metric("histogram", "sequences", "The request's n."),
    "request_params_max_tokens": Metric("histogram", "tokens", "The request's max_tokens.", _V0),
    "request_prefill_kv_computed_tokens": Metric(
        "histogram", "tokens", "Prompt without what was cached; not re-prefill.", (0, 13, 0)
    ),
    "iteration_tokens_total": Metric(
        "histogram", "tokens", "Tokens of a step; from 0.16.0 without cached ones.", _V0
    ),
    "engine_sleep_state": Metric("gauge", "0 or 1", "Awake, weights offloaded, …", (0, 11, 1)),
    "estimated_flops_per_gpu": Metric("counter", "FLOP", "An estimate.", (0, 16, 0), optional=True),
    "estimated_read_bytes_per_gpu": Metric(
        "counter", "bytes", "An estimate.", (0, 16, 0), optional=True
    ),
    "estimated_write_bytes_per_gpu": Metric(
        "counter", "bytes", "An estimate.", (0, 16, 0), optional=True
    ),
    "watermark_requests": Metric("gauge", "requests", "By kind.", (0, 32, 0), optional=True),
    "kv_block_lifetime_seconds": Metric(
        "histogram", "s", "Sampled, with --kv-cache-metrics.", (0, 12, 0), optional=True
    ),
    "kv_block_idle_before_evict_seconds": Metric(
        "histogram", "s", "Sampled, with --kv-cache-metrics.", (0, 12, 0), optional=True
    ),
    "kv_block_reuse_gap_seconds": Metric(
        "histogram", "s", "Sampled, with --kv-cache-metrics.", (0, 12, 0), optional=True
    ),
    "spec_decode_num_drafts": Metric(
        "counter", "drafts", "Speculative decoding.", _V1, optional=True
    ),
    "spec_decode_num_draft_tokens": Metric(
        "counter", "tokens", "Speculative decoding.", _V1, optional=True
    ),
    "spec_decode_num_accepted_tokens": Metric(
        "counter", "tokens", "Speculative decoding.", _V1, optional=True
    ),
    "spec_decode_num_accepted_tokens_per_pos": Metric(
        "counter", "tokens", "Speculative decoding.", _V1, optional=True
    ),
    "spec_decode_num_emitted_tokens": Metric(
        "counter", "tokens", "V0.", (0, 6, 0), (0, 10, 2), optional=True
    ),
    "spec_decode_draft_acceptance_rate": Metric(
        "gauge", "0 to 1", "V0.", (0, 6, 0), (0, 10, 2), optional=True
    ),
    "spec_decode_efficiency": Metric(
        "gauge", "0 to 1", "V0.", (0, 6, 0), (0, 10, 2), optional=True
    ),
    "kv_offload_load_bytes": Metric(
        "counter", "bytes", "Offloading connector.", (0, 32, 0), optional=True
    ),
    "kv_offload_store_bytes": Metric(
        "counter", "bytes", "Offloading connector.", (0, 32, 0), optional=True
    ),
    "kv_offload_load_time": Metric(
        "counter", "s", "Offloading connector.", (0, 32, 0), optional=True
    ),
    "kv_offload_store_time": Metric(
        "counter", "s", "Offloading connector.", (0, 32, 0), optional=True
    ),
    "kv_offload_load_size": Metric(
        "histogram", "bytes", "Offloading connector.", (0, 32, 0), optional=True
    ),
    "kv_offload_store_size": Metric(
        "histogram", "bytes", "Offloading connector.", (0, 32, 0), optional=True
    ),
    "kv_offload_allocation_failure": Metric(
        "counter", "blocks", "Offloading connector.", (0, 32, 0), optional=True
    ),
    "kv_offload_total_bytes": Metric(
        "counter", "bytes", "Offloading connector; deprecated.", (0, 12, 0), optional=True
    ),
    "kv_offload_total_time": Metric(
        "counter", "s", "Offloading connector; deprecated.", (0, 12, 0), optional=True
    ),
    "kv_offload_size": Metric(
        "histogram", "bytes", "Offloading connector; deprecated.", (0, 12, 0), optional=True
    ),
    "num_requests_swapped": Metric("gauge", "requests", "V0.", (0, 6, 0), (0, 8, 0), optional=True),
    "cpu_cache_usage_perc": Metric("gauge", "0 to 1", "V0.", (0, 6, 0), (0, 8, 0), optional=True),
    "cpu_prefix_cache_hit_rate": Metric(
        "gauge", "0 to 1", "V0.", (0, 6, 0), (0, 8, 0), optional=True
    ),
    "gpu_prefix_cache_hit_rate": Metric(
        "gauge", "0 to 1", "V0.", (0, 6, 0), (0, 8, 0), optional=True
    ),
    "time_in_queue_requests": Metric("histogram", "s", "V0.", (0, 6, 0), (0, 8, 0), optional=True),
    "model_forward_time_milliseconds": Metric(
        "histogram", "ms", "V0.", (0, 6, 0), (0, 8, 0), optional=True
    ),
    "model_execute_time_milliseconds": Metric(
        "histogram", "ms", "V0.", (0, 6, 0), (0, 8, 0), optional=True
    ),
    "request_params_best_of": Metric(
        "histogram", "sequences", "V0.", (0, 6, 0), (0, 6, 2), optional=True
    ),
}
# What every V1 release exports: all that may be expected of an unknown one.
ALWAYS = frozenset(
    name
    for name, metric in KNOWN.items()
    if metric.since <= _V1 and metric.until is None and not metric.optional
)
