"""Cases from public traces: the heads in the checkout, and whole files where a folder has them."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from collectors.traces import FORMATS
from conformance.cases import Case, within

HEADS = Path(__file__).parent.parent / "fixtures" / "traces"
BASE = {
    "profile": "vllm-v1",
    "block_size": 16,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 8192,
    "max_model_len": 16384,
    "scheduling_policy": "fcfs",
    "enable_chunked_prefill": True,
    "scheduler_reserve_full_isl": True,
    "watermark": 0.0,
    "long_prefill_token_threshold": 0,
    "enable_prefix_caching": False,
    "async_scheduling": False,
}
DEFAULTS = {"async_scheduling": True, "enable_prefix_caching": True}
LOOSE = {"scheduler_reserve_full_isl": False, "max_num_batched_tokens": 2048}
PRIORITY = {"scheduling_policy": "priority"}


@dataclass(frozen=True)
class Slice:
    """The first requests of one trace under one configuration; 0 of them are all."""

    name: str
    file: str
    importer: str
    engine: dict[str, Any] = field(default_factory=dict)
    requests: int = 0


_CONV = {"tick_us": 100_000, "capacity_blocks": 640}
_CODE = {"tick_us": 1_000_000, "capacity_blocks": 500}
_MOON = {"tick_us": 100_000, "block_size": 64, "capacity_blocks": 1400, "max_model_len": 131_072}
_HEAD_FILES = (
    ("conv-head", "azure-2023-conv-head.csv", "azure", _CONV),
    ("code-head", "azure-2023-code-head.csv", "azure", _CODE),
    ("mooncake-head", "mooncake-conversation-head.jsonl", "mooncake", _MOON),
)
_VARIANTS: tuple[tuple[str, dict[str, Any]], ...] = (
    ("plain", {}),
    ("defaults", DEFAULTS),
    ("loose", LOOSE | {"enable_prefix_caching": True}),
    ("priority", PRIORITY | DEFAULTS | {"watermark": 0.02}),
    ("loose-priority", PRIORITY | LOOSE | {"async_scheduling": True}),
)
HEAD_SLICES = tuple(
    Slice(f"{trace}-{variant}", file, importer, engine | changes)
    for trace, file, importer, engine in _HEAD_FILES
    for variant, changes in _VARIANTS
)
# The first is the one whose speed the project is measured by.
WHOLE = (
    Slice(
        "azure-2023-conv",
        "AzureLLMInferenceTrace_conv.csv",
        "azure",
        {"tick_us": 25_000, "capacity_blocks": 2499},
    ),
    Slice(
        "azure-2023-code-3000",
        "AzureLLMInferenceTrace_code.csv",
        "azure",
        PRIORITY | DEFAULTS | LOOSE | {"tick_us": 100_000, "capacity_blocks": 600},
        requests=3000,
    ),
    Slice(
        "mooncake-conversation-1500",
        "mooncake_conversation_trace.jsonl.gz",
        "mooncake",
        _MOON | DEFAULTS | LOOSE | {"capacity_blocks": 2100},
        requests=1500,
    ),
)


def trace_cases(release: str, folder: Path | None, rule: str | None = None) -> Iterator[Case]:
    """Head slices, then those whole traces that `folder` has."""
    for part in HEAD_SLICES:
        yield trace_case(part, HEADS, release, rule)
    for part in WHOLE if folder is not None else ():
        if folder is not None and (folder / part.file).exists():
            yield trace_case(part, folder, release, rule)


def trace_case(part: Slice, folder: Path, release: str, rule: str | None = None) -> Case:
    """One slice as a case; under `priority` every third request is of each class."""
    workload = FORMATS[part.importer].read(folder / part.file).workload
    engine = BASE | part.engine | {"rule": rule or f"vllm-{release}"}
    classes = 3 if engine["scheduling_policy"] == "priority" else 1
    rows = [
        {
            "request_id": request.request_id,
            "arrival_us": request.arrival_us,
            "prompt_tokens": request.prompt_tokens,
            "output_tokens": request.output_tokens,
            "priority": place % classes,
            "prefix_blocks": None if request.prefix_blocks is None else [*request.prefix_blocks],
        }
        for place, request in enumerate(workload.requests[: part.requests or None])
    ]
    return {
        "name": part.name,
        "config": {"engine": within(engine, release, rule)},
        "prefix_block_tokens": workload.prefix_block_tokens,
        "requests": rows,
    }
