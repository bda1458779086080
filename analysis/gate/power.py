"""What a gate's planned pairs could decide, for a few spreads, before anything is run.

The spread is the standard deviation of the pairs' differences. It is not known beforehand, so a
few are shown: whoever has seen two equal runs differ by 3 % reads that line.
"""

from collections.abc import Callable
from dataclasses import dataclass
from math import expm1, isinf, log1p, sqrt

from analysis.gate.contract import Design, Gate, Predicate
from analysis.gate.predicates import goodput, regression
from analysis.gate.predicates.common import count, percent
from analysis.gate.statistics import MOST_PAIRS, half_width, pairs_to_decide, windows_to_decide
from replay.strict import printable

_RATIOS = (0.01, 0.03, 0.1, 0.3)  # of latencies, as the logarithm of a ratio
_SHARES = (0.2, 0.5, 1.0, 2.0)  # of shares, as multiples of what the limit allows


@dataclass(frozen=True)
class _Scale:
    """How a test's numbers look: their limit, the spreads to show, and the unit of both."""

    limit: float
    spreads: tuple[float, ...]
    show: Callable[[float], str]
    equal: float  # where two equal sides stand
    at_least: bool = False


def power(gate: Gate) -> list[str]:
    """Lines about each test over pairs; nothing where there is none."""
    lines: list[str] = []
    unit = "window and side" if gate.design.windows else "run"
    for predicate in gate.predicates:
        least = _least(gate, predicate)
        for statistic, limit in predicate.tests:
            need = least.get(statistic)
            requests = f", at least {need} eligible requests a {unit}" if need else ""
            lines += [
                f"  {printable(predicate.id)} ({statistic}){requests}:",
                *_table(gate.design, _scale(predicate, statistic, limit)),
            ]
    return lines


def _least(gate: Gate, predicate: Predicate) -> dict[str, int]:
    """Eligible requests a run by statistic, where it needs some."""
    part = gate.slice_of(predicate)
    if predicate.kind == "regression":
        return {predicate.statistic or "": regression.least_eligible(predicate, part)}
    if predicate.kind == "goodput":
        return goodput.least_eligible(predicate, part)
    return {}


def _table(design: Design, scale: _Scale) -> list[str]:
    """One line a spread: where an estimate has to lie, and what equal sides would need.

    Of windows as if they were independent: correlated ones have wider intervals.
    """
    block = design.block(design.pairs)
    blocks = design.pairs // block
    width = half_width(blocks, design.tail) / sqrt(block)
    noun = "window" if design.windows else "pair"
    lines = []
    for spread in scale.spreads:
        reach = width * spread
        distance = abs(scale.limit - scale.equal)
        needed = pairs_to_decide(distance, spread, design.tail, design.least_pairs)
        if design.windows:
            needed = windows_to_decide(
                distance, spread / sqrt(block), design.tail, blocks, design.pairs
            )
        if isinf(reach) or design.pairs < design.least_pairs:
            decides = "decides nothing"
        elif scale.at_least:
            best = scale.limit + reach
            passes = f"passes from {scale.show(best)}" if best <= scale.equal else "never passes"
            decides = f"{passes}, fails below {scale.show(scale.limit - reach)}"
        else:
            decides = (
                f"passes below {scale.show(scale.limit - reach)},"
                f" fails from {scale.show(scale.limit + reach)}"
            )
        equal = f"more than {MOST_PAIRS} {noun}s" if needed is None else count(needed, noun)
        what = "all good" if scale.at_least else "equal sides"
        lines.append(f"    spread {percent(spread)}: {decides}; {what}: {equal}")
    return lines


def _scale(predicate: Predicate, statistic: str, limit: float) -> _Scale:
    if predicate.kind == "regression":
        return _Scale(log1p(limit), _RATIOS, lambda v: f"{expm1(v) * 100:+.3g} %", 0.0)
    if statistic == "good_fraction":
        spreads = tuple(k * (1 - limit) for k in _SHARES)
        return _Scale(limit, spreads, percent, 1.0, at_least=True)
    return _Scale(limit, tuple(k * limit for k in _SHARES), lambda v: f"{v * 100:+.3g} %", 0.0)
