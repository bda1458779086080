"""A workload as one frame of columns, for what goes over all its requests at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import polars as pl

from replay.workload import MAX_REQUESTS, Workload
from replay.workload_frame import Batches, Head, Sums, read_workload_batches, workload_of


@dataclass(frozen=True, eq=False)
class WorkloadColumns:
    """What a `Workload` is, without an object per request: one row each in `frame`, in order."""

    head: Head
    frame: pl.DataFrame
    sha256: str

    def __len__(self) -> int:
        return self.frame.height

    def column(self, name: str) -> pl.Series:
        """One field of every request, in order."""
        return self.frame[name]

    def whole(self, place: str) -> Workload:
        """The same as objects."""
        frame = self.frame
        return workload_of(Batches(self.head, frame.height, lambda: iter([frame])), place)

    @property
    def name(self) -> str | None:
        """Where it says it came from; in no hash."""
        return self.head.name

    @property
    def provenance(self) -> Mapping[str, Any] | None:
        """What made it of what; in no hash."""
        return self.head.provenance


AnyWorkload: TypeAlias = Workload | WorkloadColumns


def read_columns(path: Path, max_requests: int = MAX_REQUESTS) -> WorkloadColumns:
    """Workload of a file, every rule checked."""
    batches = read_workload_batches(path, max_requests)
    sums = Sums(batches.head)
    frame = pl.concat(list(sums.through(batches)))
    return WorkloadColumns(batches.head, frame, sums.sha256)
