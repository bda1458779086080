"""A gate as data: what `preemption-gate/1` says once it has been read and checked.

Plain frozen records without logic that could fail; `gate_file` refuses everything malformed
before one of these exists.
"""

from dataclasses import asdict, dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Any

from analysis.comparable import ENGINE_FIELDS, SCHEDULER_FIELDS
from analysis.gate.statistics import least_for_ranks
from replay.canonical import canonical_json, sha256

SCHEMA = "preemption-gate/1"
MIN_PAIRS = 5  # the exact signed-rank test cannot reach 5 % one-sided with fewer
MIN_WINDOWS = 10
WINDOWS = 20  # planned where the gate does not say: six blocks of three
MIX_DISTANCE = 0.15  # allowed where the gate does not say
BLOCK_WINDOWS = 2  # fewest neighbouring windows that count as one
BLOCKS = 6  # as many where there are enough windows, each as long as that allows
MAX_STATISTICAL = 8

# What a rollout may change (manifest's dotted names); everything else has to be equal.
CHANGEABLE = (*SCHEDULER_FIELDS, "cache.num_gpu_blocks")

# What has to be known and equal on every run, and can never be the change. `rule` is whose
# scheduler it is, derived from the engine, `latencies` whose TTFT, TPOT and e2e the rows hold; a
# CPU has no driver, so there it may be null.
HARD_FIELDS = (
    "kind",
    "latencies",
    "rule",
    *ENGINE_FIELDS,
    "cache.block_size",
    "cache.dtype",
    "cache.enable_prefix_caching",
)

# Columns a slice may use, as the workload calls them, and where a measured row has them.
SLICE_COLUMNS = {
    "priority": "priority",
    "prompt_tokens": "prompt_tokens",
    "output_tokens": "max_tokens",
    "max_tokens": "max_tokens",
    "tenant": "tenant",
    "arrival_us": "arrival_us",
}
LATENCY_FIELDS = (
    "queue_time_us",
    "requeue_time_us",
    "prefill_time_us",
    "decode_time_us",
    "ttft_us",
    "tpot_us",
    "e2e_us",
)
STATISTICS = ("mean", "p50", "p90", "p95", "p99")
ARRIVAL = "arrival"  # the rate of a boundary that runs can be driven at
KINDS = ("erased_progress", "repeated_preemption", "regression", "goodput", "failures")


@dataclass(frozen=True)
class Design:
    """How the runs were planned; times are microseconds.

    A pair of a windows design is a window; its last three fields are None in a driven one.
    """

    kind: str = "driven"
    pairs: int = 6
    looks: int = 1
    arrival_seeds: int = 1
    order: str = "ABBA"
    warmup_us: int = 0
    follow_up_us: int = 0
    confidence: float = 0.90
    window_us: int | None = None
    candidate_fraction: float | None = None
    max_mix_distance: float | None = None

    @property
    def windows(self) -> bool:
        """Whether pairs are windows of live traffic, and a verdict is observational."""
        return self.kind == "windows"

    @property
    def most_pairs(self) -> int:
        """Pairs the plan allows; more would be looking again until it pleases."""
        return self.pairs * self.looks

    @property
    def least_pairs(self) -> int:
        """Pairs below which no statistical predicate is decided."""
        ranks = least_for_ranks(self.tail)
        if self.windows:
            return max(MIN_WINDOWS, BLOCK_WINDOWS * ranks)
        return max(MIN_PAIRS, ranks)

    def block(self, pairs: int) -> int:
        """How many neighbouring pairs count as one in an interval: 1 but for windows.

        Neighbouring windows share queues and cache, so their differences are no independent
        evidence; means of blocks are nearly so once a block is longer than that memory (batch
        means). The more windows there are the longer the blocks, and not the more of them:
        whatever correlation there is then dies out within one.
        """
        if not self.windows:
            return 1
        return max(BLOCK_WINDOWS, pairs // max(BLOCKS, least_for_ranks(self.tail)))

    @cached_property
    def tail(self) -> float:
        """One-sided error of each bound; a second look shares it with the first."""
        return float((1 - Fraction(repr(self.confidence))) / 2 / self.looks)


@dataclass(frozen=True)
class Evidence:
    """Which evidence has to be there besides the runs: required, optional or off."""

    modelled: str = "optional"
    noise_profile: str = "off"


@dataclass(frozen=True)
class Condition:
    """Requests whose column lies within the bounds (inclusive) or among the named values."""

    column: str
    min: int | None = None
    max: int | None = None
    any_of: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Slice:
    """A named part of the traffic, chosen by what was asked and never by what came out."""

    name: str
    where: tuple[Condition, ...]
    min_eligible: int | None = None

    @property
    def conditions(self) -> dict[str, dict[str, Any]]:
        """What is asked of each column, bounds that are not set left out."""
        return {
            c.column: {k: v for k, v in asdict(c).items() if k != "column" and v is not None}
            for c in self.where
        }


@dataclass(frozen=True)
class Predicate:
    """One promise; which of the optional fields are set depends on `kind`."""

    id: str
    kind: str
    field: str | None = None
    statistic: str | None = None
    slice: str | None = None
    max_preemptions: int | None = None
    max_regression: float | None = None
    floor_us: int | None = None
    slo: tuple[tuple[str, int], ...] | None = None
    min_fraction: float | None = None
    max_drop: float | None = None
    max_failed_fraction: float | None = None
    max_censored_fraction: float | None = None
    max_increase: float | None = None

    @property
    def statistical(self) -> bool:
        """Whether a part of it is decided over pairs of runs."""
        return bool(self.tests)

    @property
    def tests(self) -> tuple[tuple[str, float], ...]:
        """Statistic and limit of each test that is decided over pairs of runs."""
        found = (
            (self.statistic or "", self.max_regression),
            ("good_fraction", self.min_fraction),
            ("good_drop", self.max_drop),
            ("failed_increase", self.max_increase),
        )
        return tuple((statistic, limit) for statistic, limit in found if limit is not None)


@dataclass(frozen=True)
class Boundary:
    """Modelled replays at other rates, to see whether the verdict stands on an edge."""

    rates: tuple[str, ...]
    steps: tuple[float, ...]
    measured: bool = False


@dataclass(frozen=True)
class RollbackRule:
    """When to go back: the predicate's own field, statistic and slice, with its own limits."""

    predicate: str
    action: str
    limits: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True)
class Rollback:
    """Where to go back to, and when."""

    to: str
    window_us: int
    when: tuple[RollbackRule, ...]


@dataclass(frozen=True)
class Gate:
    """Everything a gate file says, defaults filled in."""

    name: str
    change_fields: tuple[str, ...]
    design: Design
    evidence: Evidence
    slices: tuple[Slice, ...]
    predicates: tuple[Predicate, ...]
    boundary: Boundary | None = None
    rollback: Rollback | None = None
    schema: str = field(default=SCHEMA, init=False)

    @property
    def sha256(self) -> str:
        """Hash of what the gate says: comments, layout and spelled-out defaults do not count."""
        return sha256(canonical_json(asdict(self)))

    def predicate(self, name: str) -> Predicate:
        """The predicate of an id that is known to exist."""
        return next(p for p in self.predicates if p.id == name)

    def slice_of(self, predicate: Predicate) -> Slice | None:
        """The slice a predicate is about, None where it is about all requests."""
        return next((s for s in self.slices if s.name == predicate.slice), None)

    def table(self) -> dict[str, Any]:
        """The gate as plain JSON values."""
        return asdict(self)
