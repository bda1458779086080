"""Whether a page is of the engine whose run is being written, or of another configuration."""

from collectors.scrape.facts import Identity
from collectors.scrape.observe import page_identity
from collectors.scrape.reading import Reading
from collectors.scrape.run import ScrapeRun

_ALTERNATION = 10  # scrapes within which a configuration that comes back was never gone
_START_TOLERANCE_S = 1.0


class Belonging:
    """Remembers the configuration before this one, to tell a change from taking turns."""

    def __init__(self) -> None:
        self._before: Identity | None = None
        self._alternating = False

    def left(self, run: ScrapeRun) -> None:
        """Remember the engine of a run that has ended."""
        self._before = run.observer.identity

    def is_another(self, run: ScrapeRun, reading: Reading, version: str | None) -> bool:
        """Whether the page needs a run of its own; if not, what it tells is the run's, too.

        `version` is the release that the engine names beside its page.
        """
        if run.spool is not None and run.spool.replaced:
            return True
        found = reading.canonical
        if found is None or self._alternating:
            return False
        page = page_identity(found)
        seen = Identity(version, page.models, page.cache)
        if not run.observer.identity.differs(seen):
            run.observer.identity = run.observer.identity.joined(seen)
            return False
        back = self._before is not None and not self._before.differs(seen)
        if back and not _restarted(run, found.process_start_s):
            self._alternating = True
            run.observer.watch.note(
                "engines of several configurations answer at this address, and they alternate:"
                " give each an address, or this run is none of them"
            )
            return False
        return True


def _restarted(run: ScrapeRun, start_s: float | None) -> bool:
    if start_s is None or run.last_process_start_s is None:
        return run.observer.outcomes["ok"] >= _ALTERNATION
    return start_s > run.last_process_start_s + _START_TOLERANCE_S
