"""Intervals on the mean of pair differences, and what a planned number of pairs could show.

The unit is the pair of runs, never the request: requests of one run share its luck. Two intervals
are made, Student's t and the exact signed rank's, and their union is what decides: t sees a rare
bad pair, ranks resist one, and where they disagree nothing should be concluded. `tail` is the
one-sided error of each bound. Everything here is pure; values have to be finite.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import ceil, isfinite, log2, pi, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

_EXACT_WIDTH = 64  # pairs up to which the width to expect is made from scores
MOST_PAIRS = 1000  # no advice beyond this: the effect is then too close to its limit


@dataclass(frozen=True)
class Interval:
    """Two bounds; infinite where the values cannot give one."""

    low: float
    high: float


@dataclass(frozen=True)
class Effect:
    """Mean of pair differences with both intervals; `low` and `high` are their union."""

    mean: float
    student: Interval
    ranks: Interval

    @property
    def low(self) -> float:
        """Lower bound of the union."""
        return min(self.student.low, self.ranks.low)

    @property
    def high(self) -> float:
        """Upper bound of the union."""
        return max(self.student.high, self.ranks.high)


def effect(values: Sequence[float], tail: float) -> Effect:
    """Mean and intervals of at least two values; `ValueError` for fewer, or one not finite."""
    if len(values) < 2 or not all(map(isfinite, values)):  # noqa: PLR2004 - a spread needs two
        raise ValueError("needs at least two finite values")
    mean = sum(values) / len(values)
    half = _student_factor(len(values), tail) * spread(values)
    return Effect(mean, Interval(mean - half, mean + half), _ranks(values, tail))


def rounded(value: float) -> float:
    """Nine significant digits and no negative zero, the same on every machine."""
    return float(f"{value:.9g}") + 0.0


def spread(values: Sequence[float]) -> float:
    """Standard deviation of a sample of at least two."""
    mean = sum(values) / len(values)
    return sqrt(sum((v - mean) ** 2 for v in values) / (len(values) - 1))


def least_for_ranks(tail: float) -> int:
    """Fewest pairs of which the signed rank gives finite bounds: 2 to the -n is then at most it."""
    return ceil(-log2(tail) - 1e-9)


def p_above(values: Sequence[float], limit: float) -> float:
    """One-sided p of these values if the true mean is no more than `limit`.

    The greater of Student's t's and the exact signed rank's.
    """
    from scipy.special import stdtr

    mean, deviation = sum(values) / len(values), spread(values)
    if deviation > 0:
        t = (mean - limit) / (deviation / sqrt(len(values)))
        student = float(stdtr(len(values) - 1, -t))
    else:
        student = 0.0 if mean > limit else 1.0
    above = int((_walsh(values) > limit).sum())
    tails = _rank_tails(len(values))
    return max(student, float(tails[len(tails) - 1 - above]))


def holm(found: Sequence[float]) -> tuple[float, ...]:
    """Holm's adjusted p of each, in the order given."""
    order = sorted(range(len(found)), key=lambda k: found[k])
    adjusted, least = [0.0] * len(found), 0.0
    for place, k in enumerate(order):
        least = max(least, min(1.0, (len(found) - place) * found[k]))
        adjusted[k] = least
    return tuple(adjusted)


@lru_cache(maxsize=4096)
def half_width(pairs: int, tail: float) -> float:
    """Half the union's width for pairs of normal spread 1; infinite where ranks give no bound.

    It scales with the spread. Made from normal scores, so it is the width to expect, not a bound.
    """
    import numpy as np
    from scipy.special import ndtri

    if pairs < max(2, least_for_ranks(tail)):
        return float("inf")
    if pairs > _EXACT_WIDTH:
        return sqrt(pi / 3) * _student_factor(pairs, tail)  # ranks' width over t's, many normals
    scores: list[float] = ndtri((np.arange(1, pairs + 1) - 0.375) / (pairs + 0.25)).tolist()
    unit = spread(scores)
    return effect([s / unit for s in scores], tail).high


def pairs_to_decide(distance: float, deviation: float, tail: float, least: int) -> int | None:
    """Fewest pairs, at least `least`, whose interval would end before a limit `distance` away.

    Expects the mean and the spread to stay as they are; None beyond `MOST_PAIRS`.
    """
    if distance <= 0 or least > MOST_PAIRS:
        return None

    def decides(pairs: int) -> bool:
        return half_width(pairs, tail) * deviation < distance

    few = many = least
    while not decides(many):
        if many >= MOST_PAIRS:
            return None
        few, many = many, min(2 * many, MOST_PAIRS)
    while many - few > 1:
        middle = (few + many) // 2
        few, many = (few, middle) if decides(middle) else (middle, many)
    return many


def windows_to_decide(
    distance: float, deviation: float, tail: float, blocks: int, windows: int
) -> int | None:
    """As `pairs_to_decide` of windows, of which there are `windows` in `blocks` of that deviation.

    More of them are longer blocks and not more, and an interval narrows as the square root.
    """
    width = half_width(max(blocks, least_for_ranks(tail)), tail) * deviation
    if distance <= 0 or width * sqrt(windows / MOST_PAIRS) >= distance:
        return None
    return max(windows, ceil(windows * (width / distance) ** 2))


def _student_factor(pairs: int, tail: float) -> float:
    """Half of t's width for a spread of 1."""
    from scipy.special import stdtrit

    return float(stdtrit(pairs - 1, 1 - tail)) / sqrt(pairs)


def _walsh(values: Sequence[float]) -> "NDArray[np.float64]":
    """All averages of two values, each with itself too, sorted."""
    import numpy as np

    found = np.sort(np.asarray(values, dtype=np.float64))
    one, other = _pairs_of(len(found))
    averages: NDArray[np.float64] = np.sort((found[one] + found[other]) / 2)
    return averages


@lru_cache(maxsize=16)
def _pairs_of(values: int) -> "tuple[NDArray[np.int64], NDArray[np.int64]]":
    """Places of the two of each average."""
    import numpy as np

    return np.triu_indices(values)


def _ranks(values: Sequence[float], tail: float) -> Interval:
    """Exact interval of the signed rank: Walsh averages, less those the test cannot exclude."""
    import numpy as np

    averages, tails = _walsh(values), _rank_tails(len(values))
    # Rank sums so small that no more than `tail` of all sign patterns are as small.
    rejected = int(np.searchsorted(tails, tail, side="right"))
    if rejected == 0:
        return Interval(float("-inf"), float("inf"))
    return Interval(float(averages[rejected - 1]), float(averages[-rejected]))


@lru_cache(maxsize=16)  # 4 MB each at 1,000 pairs
def _rank_tails(pairs: int) -> "NDArray[np.float64]":
    """Chance of a signed-rank sum of at most 0, 1, ... if either sign of a pair is as likely."""
    import numpy as np

    chances = np.ones(1)
    for rank in range(1, pairs + 1):
        longer = np.zeros(len(chances) + rank)
        longer[: len(chances)] += chances
        longer[rank:] += chances
        chances = longer / 2
    tails: NDArray[np.float64] = np.cumsum(chances)
    return tails
