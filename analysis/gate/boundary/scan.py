"""Replaying both sides at other rates, and where in between a statistic crosses its limit.

A step multiplies one rate and leaves the others. Where a listed step has a test on the other side
than the unchanged rate, the crossing is narrowed by bisection. Multipliers are exact fractions and
replays are pure, so the same ledgers give the same cells everywhere.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import pairwise
from typing import TYPE_CHECKING, Any, TypeAlias

from analysis.gate.boundary.modelled import Estimate, LimitTest, estimate
from analysis.gate.boundary.models import Model
from analysis.gate.contract import ARRIVAL, Boundary, Design
from replay.config import Config
from replay.errors import InputError, Unfinished
from replay.strict import printable
from replay.workload import Workload

if TYPE_CHECKING:
    import polars as pl

RESOLUTION = Fraction(1, 200)  # of a multiplier: what a bracket is narrowed to
# Requests of a workload under a configuration, arrivals so many times as fast.
Replayer: TypeAlias = Callable[[Workload, Config, Fraction], "pl.DataFrame"]
_LONGEST = 200


@dataclass(frozen=True)
class Cell:
    """One test at one rate: its point estimate and on which side of the limit that lies.

    `multiplier` is of the unchanged rate, `value` what a declared rate then is (arrivals have
    none). `estimate` is in the test's own unit, None where there is none (`why`) or where it is
    infinite; `side` is None where nothing is known. `sources` counts workloads replayed, or pairs
    of runs.
    """

    rate: str
    multiplier: float
    predicate: str
    statistic: str
    limit: float
    estimate: float | None
    side: str | None
    sources: int
    evidence: str = "modelled"
    value: int | None = None
    why: str | None = None


@dataclass(frozen=True)
class Bracket:
    """Two multipliers between which a test crosses its limit, as modelled, and where to measure.

    `measure` are the two rates of the gate around it: 1 and a step, or two steps.
    """

    rate: str
    predicate: str
    statistic: str
    low: float
    high: float
    low_side: str
    high_side: str
    measure: tuple[float, float]


@dataclass(frozen=True)
class Unread:
    """A rate that the modelled configuration does not read, so that no replay depends on it."""

    rate: str
    why: str


@dataclass(frozen=True)
class Scan:
    """Everything the replays came to; `why` says why there were none."""

    cells: tuple[Cell, ...] = ()
    brackets: tuple[Bracket, ...] = ()
    unread: tuple[Unread, ...] = ()
    model: str | None = None
    unit: str | None = None
    pairs: tuple[int, ...] = ()
    workloads: tuple[str, ...] = ()
    replays: int = 0
    why: str | None = None


def scan(
    models: Sequence[Model],
    boundary: Boundary,
    tests: Sequence[LimitTest],
    design: Design,
    replayer: Replayer | None,
) -> Scan:
    """Cells of every rate that is read, at 1 and at each step, and the brackets of what crosses."""
    if not tests:
        return Scan(why="has nothing to ask: the gate has no limit over latencies")
    if not models or replayer is None:
        rule = "needs modelled ledgers of both sides of one workload that the runs were offered"
        return Scan(why=f"{rule} (--ledger)")
    config = models[0].baseline
    unread = [Unread(rate, why) for rate in boundary.rates if (why := _unread(rate, config))]
    grid = _Grid(models, tuple(tests), design, replayer)
    rates = [r for r in boundary.rates if r not in {u.rate for u in unread}]
    steps = sorted({Fraction(1), *(Fraction(repr(step)) for step in boundary.steps)})
    cells = [cell for rate in rates for step in steps for cell in grid.cells(rate, step)]
    brackets = [
        b for rate in rates for k in range(len(tests)) for b in _across(grid, rate, steps, k)
    ]
    return Scan(
        cells=tuple(cells),
        brackets=tuple(brackets),
        unread=tuple(unread),
        model=models[0].name,
        unit="us" if config.timing is not None else "ticks",
        pairs=tuple(sorted({pair for m in models for pair in m.pairs})),
        workloads=tuple(m.workload.sha256 for m in models),
        replays=grid.replays,
    )


@dataclass
class _Grid:
    """Estimates of every test by rate and multiplier, each replayed when it is first asked."""

    models: Sequence[Model]
    tests: tuple[LimitTest, ...]
    design: Design
    replayer: Replayer
    replays: int = 0
    _known: dict[Any, tuple[Estimate, ...]] = field(default_factory=dict)

    def cells(self, rate: str, step: Fraction) -> list[Cell]:
        """One cell a test."""
        found, value = self.estimates(rate, step), self.value(rate, step)
        return [
            Cell(
                rate=rate,
                multiplier=float(step),
                predicate=test.predicate.id,
                statistic=test.statistic,
                limit=test.limit,
                estimate=one.value,
                side=one.side,
                sources=len(self.models),
                value=value,
                why=one.why,
            )
            for test, one in zip(self.tests, found, strict=True)
        ]

    def value(self, rate: str, step: Fraction) -> int | None:
        """What a declared rate is at a multiplier, to the nearest whole number, at least 1."""
        if rate == ARRIVAL:
            return None
        unchanged: int = getattr(self.models[0].baseline.policy, rate)
        return max(1, int(unchanged * step + Fraction(1, 2)))

    def estimates(self, rate: str, step: Fraction) -> tuple[Estimate, ...]:
        """Every test's estimate."""
        value = self.value(rate, step)
        if step != 1 and value is not None and value == self.value(rate, Fraction(1)):
            why = f"{rate} x {float(step):g} is {value} again, a whole number"
            return tuple(Estimate(None, None, why) for _ in self.tests)
        key = None if step == 1 else (rate, step if value is None else value)
        if key not in self._known:
            self._known[key] = self._replayed(rate, step, value)
        return self._known[key]

    def _replayed(self, rate: str, step: Fraction, value: int | None) -> tuple[Estimate, ...]:
        arrival = step if rate == ARRIVAL else Fraction(1)
        try:
            tables = [
                (
                    self._table(m.workload, m.baseline, rate, arrival, value),
                    self._table(m.workload, m.candidate, rate, arrival, value),
                )
                for m in self.models
            ]
        except (InputError, Unfinished) as exc:
            why = f"no replay: {printable(str(exc), _LONGEST)}"
            return tuple(Estimate(None, None, why) for _ in self.tests)
        config = self.models[0].baseline
        tick_us = 1 if config.timing is not None else config.engine.tick_us or 1
        workloads = [m.workload for m in self.models]
        return tuple(estimate(t, self.design, workloads, tables, tick_us) for t in self.tests)

    def _table(
        self, workload: Workload, config: Config, rate: str, arrival: Fraction, value: int | None
    ) -> "pl.DataFrame":
        if value is not None:
            changes: dict[str, Any] = {rate: value}
            config = replace(config, policy=replace(config.policy, **changes))
        self.replays += 1
        return self.replayer(workload, config, arrival)


def _across(grid: _Grid, rate: str, steps: Sequence[Fraction], test: int) -> list[Bracket]:
    """A bracket between every two neighbouring rates of the gate that lie on different sides."""
    found = []
    for low, high in pairwise(steps):
        sides = [grid.estimates(rate, step)[test].side for step in (low, high)]
        if None not in sides and sides[0] != sides[1]:
            found.append(_narrowed(grid, rate, (low, high), test))
    return found


def _narrowed(grid: _Grid, rate: str, around: tuple[Fraction, Fraction], test: int) -> Bracket:
    """Bisection, ended early where a replay in between says nothing."""
    low, high = around
    low_side = grid.estimates(rate, low)[test].side
    while high - low > RESOLUTION:
        middle = (low + high) / 2
        if grid.value(rate, middle) is not None and grid.value(rate, middle) in (
            grid.value(rate, low),
            grid.value(rate, high),
        ):
            break
        side = grid.estimates(rate, middle)[test].side
        if side is None:
            break
        low, high = (middle, high) if side == low_side else (low, middle)
    one = grid.tests[test]
    return Bracket(
        rate=rate,
        predicate=one.predicate.id,
        statistic=one.statistic,
        low=float(low),
        high=float(high),
        low_side=low_side or "",
        high_side=grid.estimates(rate, high)[test].side or "",
        measure=(float(around[0]), float(around[1])),
    )


def _unread(rate: str, config: Config) -> str | None:
    """Why no replay of this configuration depends on a rate; None where it does."""
    profile, recovery = config.engine.profile, config.policy.recovery
    reads = {
        "prefill_tokens_per_tick": profile == "lab" or recovery == "adaptive",
        "transfer_bytes_per_tick": recovery != "recompute",
    }
    if reads.get(rate, True):
        return None
    return f"{profile} with recovery {recovery} does not read it"
