"""Readers of benchmark tools' result files: measured latencies, and the workload they are of.

A new format is one module with a `read` and one line in `FORMATS`. Every format says which
definition of TTFT, TPOT and ITL its tool uses and converts to the project's own or gives null. What
a reader cannot understand exactly raises `InputError`; no request is skipped in silence.
"""

from typing import TYPE_CHECKING

from collectors.formats import Format, sources

if TYPE_CHECKING:
    from collectors.results.rows import Measured
    from collectors.traces.result import Source

__all__ = ["FORMATS", "known_sources"]

# What they read is one `Measured` for each benchmark in the file.
FORMATS: "dict[str, Format[list[Measured]]]" = {
    "vllm-bench": Format(
        __name__,
        "vllm_bench",
        "vllm bench serve --save-result --save-detailed (JSON)",
        "result.json",
        "Without --save-detailed nothing in the file says when requests were sent. Results that"
        " --append-result put into one file are several benchmarks.",
    ),
    "guidellm": Format(
        __name__,
        "guidellm",
        "GuideLLM benchmarks.json, 0.3 to 0.8 (JSON)",
        "benchmarks.json",
        "Every rate of a sweep is a benchmark. A report with a sample size holds some of the"
        " requests only, and is refused.",
    ),
    "aiperf": Format(
        __name__,
        "aiperf",
        "AIPerf profile_export.jsonl (JSON Lines)",
        "profile_export.jsonl",
        "Of --export-level records; the aggregate, profile_export_aiperf.json, has no single"
        " requests.",
    ),
    "inference-perf": Format(
        __name__,
        "inference_perf",
        "inference-perf per_request_lifecycle_metrics.json (JSON)",
        "metrics.json",
        "The tool writes it with report.request_lifecycle.per_request: true.",
    ),
    "otel": Format(
        __name__,
        "otel",
        "vLLM's spans by OpenTelemetry's file exporter (JSON Lines)",
        "spans.json",
        "Of the OpenTelemetry Collector's file exporter with format: json. vLLM makes no span of a"
        " request that did not finish; latencies are the server's, not a client's.",
        "(form from documentation)",
    ),
}


def known_sources() -> "dict[str, Source]":
    """What the readers say of the tools whose files they read, by its title, with every note."""
    return sources(FORMATS.values())
