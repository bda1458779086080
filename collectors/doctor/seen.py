"""Everything that one look came to, before it is put into words. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from collectors.doctor.look import Looked
from collectors.doctor.now import PREEMPTIONS, RUNNING, USAGE, WAITING, Now
from collectors.doctor.recorder import Served, is_active
from collectors.doctor.spooled import Spooled
from collectors.exposition.names import not_found
from collectors.exposition.samples import Canonical

NEEDED = (PREEMPTIONS, RUNNING, WAITING, USAGE)


@dataclass(frozen=True)
class Asked:
    """What the person gave, as far as next steps repeat it; `checked` releases replay exactly."""

    spool: str | None = None
    options: tuple[str, ...] = ()  # credentials, by file name
    checked: Collection[str] = ()
    installed: str | None = None  # the recorder's version in this Python


@dataclass
class Seen:
    """One look in the words of the findings."""

    looked: Looked
    page: Canonical
    spool: Spooled | None
    asked: Asked
    now: Now | None
    capacity: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)  # what is odd about the capacity
    not_exact: list[str] = field(default_factory=list)

    @property
    def recognised(self) -> dict[str, str]:
        """Canonical names that mean something to us, and what the page calls them."""
        page = self.page
        return {name: own for name, own in page.names.items() if own not in page.unmatched}

    @property
    def missing(self) -> list[str]:
        """Metrics without which there is little to collect, and that are not there."""
        return [name for name in NEEDED if name not in self.page.names]

    @property
    def absent(self) -> list[str]:
        """Metrics of this release that are not there, though nothing switches them off."""
        return sorted(not_found(self.page.names, self.looked.probed.version))

    @property
    def models(self) -> list[str]:
        """Served names, adapters included."""
        found = {sample.model for sample in self.page.samples if sample.model}
        return sorted(found | ({self.looked.probed.model} if self.looked.probed.model else set()))

    @property
    def engines(self) -> list[int]:
        """Data-parallel indexes."""
        return sorted({s.engine for s in self.page.samples if s.engine is not None})

    @property
    def served(self) -> Served:
        """What a spool of this server would say, too."""
        blocks = (one["num_gpu_blocks"] for one in self.capacity)
        return Served(
            self.looked.probed.version,
            frozenset(self.models),
            frozenset(count for count in blocks if count is not None),
            frozenset(self.engines),
            self.page.process_start_s,
        )

    @property
    def header(self) -> Mapping[str, Any] | None:
        """The recorder's header, if it is this engine's."""
        active = self.spool is not None and is_active(self.spool, self.served)
        return self.spool.header if self.spool is not None and active else None
