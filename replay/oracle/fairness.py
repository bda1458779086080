"""Queue ticks and fairness flags of the vllm-v1 walk, without touching every waiting request.

A request gains one queue tick per accounting that finds it waiting, so its count follows from when
it joined, and when it becomes due for `flag_wait` is known then.
"""

from collections.abc import Iterable, Iterator
from heapq import heappop, heappush

from replay.config import Fairness
from replay.events import Kind
from replay.oracle.requests import Progress


class Accounts:
    """How many accountings there were, and who is due for a flag at which one."""

    def __init__(self, fairness: Fairness) -> None:
        self.fairness = fairness
        self.done = 0
        self._due: list[tuple[int, int, Progress]] = []

    def queue_ticks(self, who: Progress) -> int:
        """Accountings that found this request waiting."""
        waits_now = 0 if who.waits_since is None else self.done - who.waits_since
        return who.waited + waits_now

    def joins(self, who: Progress) -> None:
        """Note that a request waits from now on."""
        who.waits_since = self.done
        if Kind.FLAG_WAIT not in who.flagged:
            due = self.done + self.fairness.max_queue_ticks - who.waited + 1
            heappush(self._due, (due, who.index, who))

    def leaves(self, who: Progress) -> None:
        """Note that a request waits no longer."""
        who.waited = self.queue_ticks(who)
        who.waits_since = None

    def account(self, preempted: Iterable[Progress]) -> Iterator[tuple[Kind, Progress]]:
        """Count one more queue tick; gives the flags that this raises, in workload order."""
        self.done += 1
        found = [(who.index, Kind.FLAG_WAIT, who) for who in self._overdue()]
        found += [
            (who.index, Kind.FLAG_REPEAT, who)
            for who in preempted
            if who.preemptions > self.fairness.max_preemptions
        ]
        for _, kind, who in sorted(found, key=lambda flag: flag[:2]):
            if kind not in who.flagged:
                who.flagged.add(kind)
                yield kind, who

    def quiet_accountings(self) -> int | None:
        """Return how many accountings raise no flag; None if none is in sight."""
        while self._due and not self._is_due(self._due[0][2], self._due[0][0]):
            heappop(self._due)
        return self._due[0][0] - self.done - 1 if self._due else None

    def _overdue(self) -> Iterator[Progress]:
        while self._due and self._due[0][0] <= self.done:
            when, _, who = heappop(self._due)
            if self._is_due(who, when):
                yield who

    def _is_due(self, who: Progress, when: int) -> bool:
        """Whether it has waited since this was noted."""
        since = who.waits_since
        return since is not None and when == since + self.fairness.max_queue_ticks - who.waited + 1
