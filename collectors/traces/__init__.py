"""Readers of public request traces: a file of theirs in, a workload and its attempts out.

A new format is one module with a `read` and one line in `FORMATS`. Whatever a format cannot hold
exactly raises `InputError` with file, line, field and rule; no row is skipped in silence.
"""

from collections.abc import Callable
from dataclasses import dataclass

from collectors.traces import azure, mooncake
from collectors.traces.result import Attempt, ImportResult, write_attempts

__all__ = ["FORMATS", "Attempt", "ImportResult", "Importer", "write_attempts"]


@dataclass(frozen=True)
class Importer:
    """`read(path, max_requests)` and one line on what it reads."""

    read: Callable[..., ImportResult]
    description: str


FORMATS = {
    "azure": Importer(azure.read, "Azure LLM inference trace 2023 (CSV)"),
    "mooncake": Importer(mooncake.read, "Mooncake trace (JSON Lines, plain or gzip)"),
}
