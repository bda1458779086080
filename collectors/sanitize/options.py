"""What of a workload may be blurred on purpose, beyond what is always done."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Blur:
    """Nothing by default: what is shared then gives every schedule the original gives.

    `arrival_us` rounds arrivals down and `tokens` rounds token counts up to a multiple.
    `tenants`: a tenant of fewer requests than this is merged with the other rare ones; `no_tenants`
    drops them all.
    """

    arrival_us: int = 1
    tokens: int = 1
    tenants: int = 1
    no_tenants: bool = False

    @property
    def changes_numbers(self) -> bool:
        """Whether times or lengths are no longer the original's."""
        return self.arrival_us > 1 or self.tokens > 1

    @property
    def merges_tenants(self) -> bool:
        """Whether there are tenants, and rare ones are merged."""
        return self.tenants > 1 and not self.no_tenants
