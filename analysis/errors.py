"""What can go wrong when stored evidence is loaded, joined or queried.

AnalysisError              root; exit 2
├── StoreError             the database cannot be used as it is: locked, foreign, another version
├── ContentConflict        an id is already loaded with other content; nothing was mixed
├── QueryError             a query was refused, failed or took too long
└── NotComparable          like is not compared with like: exit 4
"""

from collections.abc import Iterable, Sequence

from replay.errors import ReplayError


class AnalysisError(ReplayError):
    """Root of this package's errors; `exit_code` is what a command ends with."""


class StoreError(AnalysisError):
    """The database is locked, not a store, or a store of another version."""


class ContentConflict(AnalysisError):
    """The id is already in the store with other content; nothing was loaded."""


class QueryError(AnalysisError):
    """The query may not run, did not run, or was stopped."""


class NotComparable(AnalysisError):
    """Fidelity compares like with like; `fields` names everything that differs."""

    exit_code = 4

    def __init__(self, what: str, fields: Iterable[str], values: Sequence[str] = ()) -> None:
        self.fields = tuple(fields)
        super().__init__(f"{what}: not comparable, differing in {', '.join(values or self.fields)}")
