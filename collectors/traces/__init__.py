"""Readers of public request traces: a file of theirs in, a workload and its attempts out.

A new format is one module with a `read` and one line in `FORMATS`. Whatever a format cannot hold
exactly raises `InputError` with file, line, field and rule; no row is skipped in silence.
"""

from typing import TYPE_CHECKING

from collectors.formats import Format, sources

if TYPE_CHECKING:
    from collectors.traces.result import ImportResult, Source

__all__ = ["FORMATS", "known_sources"]

_PUBLISHED_ROWS = "(from published rows)"
FORMATS: "dict[str, Format[ImportResult]]" = {
    "azure": Format(
        __name__,
        "azure",
        "Azure inference traces of 2023, 2024 and 2025 (CSV)",
        "AzureLLMInferenceTrace_conv.csv",
        "The years differ in how they write a time, and a file must keep to one of them.",
        "(2024, 2025: from published rows)",
    ),
    "burstgpt": Format(
        __name__,
        "burstgpt",
        "BurstGPT traces, v1 and v2 (CSV)",
        "BurstGPT_1.csv",
        "Times are whole seconds, so many requests arrive at once. A request with 0 response"
        " tokens failed: it is kept as an attempt.",
        _PUBLISHED_ROWS,
    ),
    "mooncake": Format(
        __name__,
        "mooncake",
        "Mooncake traces (JSON Lines)",
        "conversation_trace.jsonl",
        "Times are whole milliseconds. Hash ids become prefix blocks: equal ones are equal text.",
        block_tokens=512,
    ),
    "bailian": Format(
        __name__,
        "bailian",
        "Alibaba's Qwen-Bailian traces (JSON Lines)",
        "qwen_traceA_blksz_16.jsonl",
        "Times are seconds. Hash ids become prefix blocks: equal ones are equal text. The turns of"
        " a chat become independent requests.",
        _PUBLISHED_ROWS,
        block_tokens=16,
    ),
    "timed-trace": Format(
        __name__,
        "timed_trace",
        "vllm bench serve's timed_trace input (JSON Lines)",
        "timed.jsonl",
        "Times are seconds, as preempt export vllm-bench writes them: nothing in the file tells it"
        " from a Mooncake trace, whose times are milliseconds. Hash ids become prefix blocks.",
        block_tokens=16,
    ),
}


def known_sources() -> "dict[str, Source]":
    """What the importers themselves say of the public traces they read, by its title."""
    return sources(FORMATS.values())
