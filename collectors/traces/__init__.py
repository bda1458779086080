"""Readers of public request traces: a file of theirs in, a workload and its attempts out.

A new format is one module with a `read` and one line in `FORMATS`. Whatever a format cannot hold
exactly raises `InputError` with file, line, field and rule; no row is skipped in silence.
"""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, cast

if TYPE_CHECKING:
    from collectors.traces.result import ImportResult, Source

__all__ = ["FORMATS", "Importer", "known_sources"]


def known_sources() -> "dict[str, Source]":
    """What the importers themselves say of the public traces they read, by its title."""
    modules = (import_module(f"collectors.traces.{one.module}") for one in FORMATS.values())
    return {source.title: source for module in modules for source in module.SOURCES}


@dataclass(frozen=True)
class Importer:
    """One line on what it reads; its module waits until something is read.

    `origin` marks a format of which no whole real file was at hand; `block_tokens` says that its
    `read` takes the tokens of a hash id's chunk.
    """

    module: str
    description: str
    origin: str = ""
    block_tokens: bool = False

    @property
    def line(self) -> str:
        """What it reads, and the mark."""
        return f"{self.description} {self.origin}".rstrip()

    @property
    def read(self) -> "Callable[..., ImportResult]":
        """`read(path, max_requests)` of the format, and perhaps `block_tokens`."""
        read = import_module(f"collectors.traces.{self.module}").read
        return cast("Callable[..., ImportResult]", read)


PUBLISHED_ROWS = "(from published rows)"
FORMATS = {
    "azure": Importer(
        "azure",
        "Azure inference traces of 2023, 2024 and 2025 (CSV)",
        "(2024, 2025: from published rows)",
    ),
    "burstgpt": Importer("burstgpt", "BurstGPT traces, v1 and v2 (CSV)", PUBLISHED_ROWS),
    "mooncake": Importer("mooncake", "Mooncake traces (JSON Lines)", block_tokens=True),
    "bailian": Importer(
        "bailian",
        "Alibaba's Qwen-Bailian traces (JSON Lines)",
        PUBLISHED_ROWS,
        block_tokens=True,
    ),
    "timed-trace": Importer(
        "timed_trace", "vllm bench serve's timed_trace input (JSON Lines)", block_tokens=True
    ),
}
