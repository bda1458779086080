"""Readers of benchmark tools' result files: measured latencies, and the workload they are of.

A new format is one module with a `read` and one line in `FORMATS`. Every format says which
definition of TTFT, TPOT and ITL its tool uses and converts to the project's own or gives null. What
a reader cannot understand exactly raises `InputError`; no request is skipped in silence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collectors.results.rows import Measured
    from collectors.traces.result import Source

__all__ = ["FORMATS", "Format", "known_sources"]


def known_sources() -> "dict[str, Source]":
    """What the readers say of the tools whose files they read, by its title, with every note."""
    modules = (import_module(f"collectors.results.{one.module}") for one in FORMATS.values())
    return {source.title: source for module in modules for source in module.SOURCES}


@dataclass(frozen=True)
class Format:
    """One line on what it reads; its module waits until something is read."""

    module: str
    description: str

    @property
    def read(self) -> "Callable[..., list[Measured]]":
        """`read(path, max_requests)` of the format: one for each benchmark in the file."""
        read = import_module(f"collectors.results.{self.module}").read
        return cast("Callable[..., list[Measured]]", read)


FORMATS = {
    "vllm-bench": Format("vllm_bench", "vllm bench serve --save-result --save-detailed (JSON)"),
    "guidellm": Format("guidellm", "GuideLLM benchmarks.json, 0.3 to 0.8 (JSON)"),
    "aiperf": Format("aiperf", "AIPerf profile_export.jsonl (JSON Lines)"),
    "inference-perf": Format(
        "inference_perf", "inference-perf per_request_lifecycle_metrics.json (JSON)"
    ),
    "otel": Format(
        "otel", "vLLM's spans by OpenTelemetry's file exporter (form from documentation)"
    ),
}
