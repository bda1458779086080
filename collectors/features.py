"""What an engine does that a replay does not model, in sentences for people.

A replay follows one pool of equal blocks, full attention, one sequence a request and one batch at a
time. Whatever else an engine was seen to use is named here, and where anything is named, a replay
of its run is not called exact. That nothing was seen proves little: a page shows less than the
recorder's header, and an older release less than a newer one.

Pure. All inputs come from elsewhere: of their texts only known words are repeated, and names of
options, which are letters, digits and underscores.
"""

import json
import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from collectors.engine_options import of_options, of_unknown_options

PIPELINE = "pipeline parallelism keeps several batches in flight, a replay does not"
_OTHER_SCHEDULER = "a scheduler class of its own decides, which a replay does not know"
_SPECULATIVE = "speculative decoding schedules and drops draft tokens, a replay does not"
_LORA = "LoRA adapters share a limited number of places in a batch, a replay knows no adapters"
_CONNECTOR = "a KV connector or offloading brings blocks back that a replay recomputes"
_MULTIMODAL = "multimodal inputs have an encoder's budget and cache, a replay has neither"
_SEVERAL = "n > 1 makes several sequences of one request, a replay has one"
_SLEEP = "sleep mode empties the cache between requests, a replay never does"
_STRUCTURED = "structured output makes requests wait for their grammar, a replay does not"
_ATTENTION_FREE = "an attention-free model keeps no KV blocks that grow with a request"
_SLIDING = "sliding window attention frees blocks of running requests, a replay does not"
_MAMBA = "Mamba layers keep their state in blocks of their own, a replay has no such group"
_DEFERRED = "requests waited for something else than room (an adapter, blocks, a grammar)"
_ENCODER = "an encoder's output has blocks of its own, a replay has none"
_POOLING = "pooling requests generate nothing, a replay knows only those that do"
_STREAMING = "streaming input makes a prompt grow while it is served, a replay knows it whole"
_CONTEXT = "context parallelism spreads a request's blocks over several devices, a replay does not"
# What a replay has, and what is said of others; unknown names of groups are not repeated.
_FULL = frozenset({"FullAttentionSpec", "MLAAttentionSpec"})
_GROUPS = {
    "ChunkedLocalAttentionSpec": "chunked local attention frees blocks that it has left behind",
    "CrossAttentionSpec": _ENCODER,
    "EncoderOnlyAttentionSpec": "encoder-only attention keeps no blocks",
    "MambaSpec": _MAMBA,
    "SlidingWindowMLASpec": _SLIDING,
    "SlidingWindowSpec": _SLIDING,
}
# On a page only where the feature is switched on.
_BEGINNINGS = {
    "spec_decode_": _SPECULATIVE,
    "hf3fs_": _CONNECTOR,
    "hisparse_": _CONNECTOR,
    "kv_offload_": _CONNECTOR,
    "lmcache": _CONNECTOR,
    "mooncake_store_": _CONNECTOR,
    "nixl_": _CONNECTOR,
    "simple_kv_offload_": _CONNECTOR,
}
# On every page, but above zero only where the feature was used.
_MOVING = {
    "external_prefix_cache_queries": _CONNECTOR,
    "external_prefix_cache_hits": _CONNECTOR,
    "mm_cache_queries": _MULTIMODAL,
}
_SLEEPING, _WAITING = "engine_sleep_state", "num_requests_waiting_by_reason"
_N_SUM, _N_COUNT = "request_params_n_sum", "request_params_n_count"
_SPEAKING = frozenset({*_MOVING, _SLEEPING, _WAITING, _N_SUM, _N_COUNT})
# The recorder's words in the header's `features`, and in those of a request.
FEATURES: Mapping[str, str] = {
    "speculative": _SPECULATIVE,
    "lora": _LORA,
    "kv_connector": _CONNECTOR,
    "ec_connector": _MULTIMODAL,
    "multimodal": _MULTIMODAL,
    "encoder_decoder": _ENCODER,
    "pooling": _POOLING,
    "sleep_mode": _SLEEP,
    "pipeline_parallel": PIPELINE,
    "custom_scheduler": _OTHER_SCHEDULER,
    "attention_free": _ATTENTION_FREE,
    "structured": _STRUCTURED,
    "n_greater_than_1": _SEVERAL,
    "streaming_input": _STREAMING,
}


class Sample(Protocol):
    """One canonical sample (`exposition.samples.MetricSample` is one)."""

    @property
    def name(self) -> str:
        """Canonical name."""

    @property
    def labels(self) -> str:
        """Other labels, a JSON object."""

    @property
    def value(self) -> float | None:
        """None where the page said NaN."""


Info = Mapping[str, Sequence[Mapping[str, str]]]


@dataclass(frozen=True)
class _Page:
    info: Info
    names: frozenset[str]
    samples: Sequence[Sample]  # only those of `_SPEAKING`

    def total(self, name: str) -> float:
        """Sum over engines, models and labels; what is absent or NaN adds nothing."""
        values = (sample.value for sample in self.samples if sample.name == name)
        return sum(value for value in values if value is not None and math.isfinite(value))

    def labels(self, info: str, label: str) -> Iterator[str]:
        """What the engines say for one label, where they say something."""
        for labels in self.info.get(info, ()):
            if (text := labels.get(label, "None")) not in {"", "None", "False", "none"}:
                yield text


def not_modelled(
    header: Mapping[str, Any] | None,
    info: Info,
    names: Collection[str] = (),
    samples: Iterable[Sample] = (),
) -> list[str]:
    """Sentences on what this engine does and a replay does not; empty: none was seen.

    `header` is the first line of a recorder's spool; `info`, `names` (canonical ones or a page's)
    and `samples` are of a page. Whatever is unknown says nothing.
    """
    every = list(samples)
    found = {*names, *info, *(sample.name for sample in every)}
    speaking = [sample for sample in every if sample.name in _SPEAKING]
    page = _Page(info, frozenset(map(_bare, found)), speaking)
    told = [sentence for tell in _TELLERS for sentence in tell(header or {}, page)]
    return list(dict.fromkeys(told))


def _bare(name: str) -> str:
    for prefix in ("ray_vllm_", "ray_vllm:", "vllm:", "vllm_"):
        name = name.removeprefix(prefix)
    return name


def _of_features(header: Mapping[str, Any], _: _Page) -> Iterator[str]:
    told = _table(header.get("features"))
    yield from (sentence for name, sentence in FEATURES.items() if _on(told.get(name)))


def _of_groups(header: Mapping[str, Any], _: _Page) -> Iterator[str]:
    groups = header.get("cache_groups")
    groups = groups if isinstance(groups, list) else []
    kinds = [_table(group).get("kind") for group in groups]
    if len(kinds) > 1:
        yield f"{len(kinds)} groups of KV blocks share the pool, a replay has one"
    for kind in kinds:
        if isinstance(kind, str) and kind not in _FULL:
            yield _GROUPS.get(kind, "KV blocks are of a kind that a replay does not know")


def _of_parallel(header: Mapping[str, Any], _: _Page) -> Iterator[str]:
    told = _table(header.get("parallel"))
    if _above_one(told.get("pipeline")):
        yield PIPELINE
    if any(_above_one(told.get(name)) for name in ("decode_context", "prefill_context")):
        yield _CONTEXT


def _of_options(header: Mapping[str, Any], _: _Page) -> Iterator[str]:
    yield from of_options(_table(header.get("scheduler")))
    yield from of_unknown_options(_table(header.get("options_set")))


def _of_cache_labels(_: Mapping[str, Any], page: _Page) -> Iterator[str]:
    for label, sentence in (
        ("sliding_window", _SLIDING),
        ("is_attention_free", _ATTENTION_FREE),
        ("mamba_block_size", _MAMBA),
        ("kv_offloading_size", _CONNECTOR),
    ):
        if any(page.labels("cache_config_info", label)):
            yield sentence


def _of_adapters(_: Mapping[str, Any], page: _Page) -> Iterator[str]:
    for label in ("running_lora_adapters", "waiting_lora_adapters"):
        if any(page.labels("lora_requests_info", label)):
            yield _LORA


def _of_names(_: Mapping[str, Any], page: _Page) -> Iterator[str]:
    for beginning, sentence in _BEGINNINGS.items():
        if any(name.startswith(beginning) for name in page.names):
            yield sentence


def _of_values(_: Mapping[str, Any], page: _Page) -> Iterator[str]:
    yield from (sentence for name, sentence in _MOVING.items() if page.total(name) > 0)
    if page.total(_N_SUM) > page.total(_N_COUNT):
        yield _SEVERAL
    for sample in page.samples:
        if sample.value is None or not sample.value > 0:
            continue
        if sample.name == _SLEEPING:
            yield from () if _label(sample, "sleep_state") in {None, "awake"} else (_SLEEP,)
        if sample.name == _WAITING:
            yield from (_DEFERRED,) if _label(sample, "reason") == "deferred" else ()


_TELLERS: tuple[Callable[[Mapping[str, Any], _Page], Iterator[str]], ...] = (
    _of_groups,
    _of_features,
    _of_parallel,
    _of_options,
    _of_cache_labels,
    _of_adapters,
    _of_names,
    _of_values,
)


def _table(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _on(value: object) -> bool:
    """Whether a feature is on: true, a number above zero, or the name of what is used."""
    return bool(value) and value not in ("None", "none")


def _above_one(value: object) -> bool:
    return type(value) is int and value > 1


def _label(sample: Sample, name: str) -> str | None:
    try:
        found = json.loads(sample.labels).get(name)
    except (ValueError, AttributeError):
        return None
    return found if isinstance(found, str) else None
