"""What can go wrong when stored evidence is loaded, joined or queried.

AnalysisError              root; exit 2
├── StoreError             the database cannot be used as it is: locked, foreign, another version
├── ContentConflict        an id is already loaded with other content; nothing was mixed
├── QueryError             a query was refused, failed or took too long
└── NotComparable          like is not compared with like: exit 4
"""

from collections.abc import Iterable

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
    """Like is compared with like only; `fields` names everything that differs or is not known.

    `differ` and `not_known` say it for people, a text each: what stood against what, and what one
    side does not know.
    """

    exit_code = 4

    def __init__(
        self,
        what: str,
        fields: Iterable[str],
        differ: Iterable[str],
        not_known: Iterable[str] = (),
    ) -> None:
        self.what, self.fields = what, tuple(fields)
        self.differ, self.not_known = tuple(differ), tuple(not_known)
        parts = [f"differing in {', '.join(self.differ)}"] if self.differ else []
        parts += [f"not known on one side: {', '.join(self.not_known)}"] if self.not_known else []
        super().__init__(f"{what}: not comparable, {'; '.join(parts)}")
