"""How uncertain one run's statistic is by itself: the circular block bootstrap.

Requests that are alive together meet the same queue, so what is drawn again are blocks of them, in
order of arrival. Everything is made of integers and of one generator whose raw numbers are the same
everywhere, so that the same requests give the same band on every machine.
"""

from functools import cache
from math import ceil, log10, sqrt
from typing import TYPE_CHECKING

from analysis.gate.statistics import rounded

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Series = NDArray[np.int64]

DRAWS = 2000
SEED = 20_260_101
MOST_BLOCKS = 500  # of one draw; more requests make longer blocks, which are as good
LEAST_BLOCKS = 5
QUANTILES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}


def automatic_length(values: "Series") -> int:
    """Block length of a circular bootstrap of the mean, by Politis and White (2004, 2009).

    From the autocovariances up to twice the last lag that is correlated, weighted by a flat-top
    kernel; at most min(3 sqrt(n), n / 3).
    """
    import numpy as np

    number = len(values)
    centred = values - values.mean()

    @cache
    def covariance(lag: int) -> float:
        # Not by a dot product, which is shared among cores and summed as they come.
        return float(np.einsum("i,i", centred[lag:], centred[: number - lag])) / number

    if covariance(0) <= 0:
        return 1
    insignificant = max(5, ceil(sqrt(log10(number))))
    most = min(ceil(sqrt(number)) + insignificant, number - 1)
    bound = 2 * sqrt(log10(number) / number) * covariance(0)
    last = run = 0  # the last lag that is correlated, and how many after it are not
    while run < insignificant and last + run < most:
        if abs(covariance(last + run + 1)) < bound:
            run += 1
        else:
            last, run = last + run + 1, 0
    reach = min(2 * max(last, 1), most)
    weights = [min(1.0, 2 * (1 - k / reach)) for k in range(reach + 1)]
    slope = 2 * sum(w * k * covariance(k) for k, w in enumerate(weights))
    level = 2 * sum(w * covariance(k) for k, w in enumerate(weights)) - covariance(0)
    if level == 0:
        return 1
    length = (1.5 * (slope / level) ** 2 * number) ** (1 / 3)
    return max(1, ceil(rounded(min(length, 3 * sqrt(number), number / 3))))


def block_length(values: "Series", statistic: str, alive: int | None) -> int:
    """The longer of the automatic choice and the requests alive at a time."""
    marks = _marks(values, statistic)
    least = ceil(len(values) / MOST_BLOCKS)
    return max(automatic_length(marks), alive or 1, least)


def band(values: "Series", statistic: str, length: int, tail: float) -> tuple[float, float] | None:
    """Bounds that leave `tail` of the draws on either side; None for fewer than five blocks.

    A mean is drawn as it is. Of a quantile its share is drawn, of requests at or below it, and the
    bounds are the values at those shares: the same to first order, for a part of the work.
    """
    import numpy as np

    number, marks = len(values), _marks(values, statistic)
    blocks = ceil(number / length)
    if blocks < LEAST_BLOCKS:
        return None
    sums = np.concatenate([[0], np.cumsum(np.concatenate([marks, marks[:length]]))])
    of_block = sums[length : length + number] - sums[:number]
    starts = np.random.PCG64(SEED).random_raw(DRAWS * blocks) % np.uint64(number)
    drawn = np.sort(of_block[starts.astype(np.int64)].reshape(DRAWS, blocks).sum(axis=1))
    cut = int(DRAWS * tail)
    low, high = (int(drawn[k]) / (blocks * length) for k in (cut, DRAWS - 1 - cut))
    if statistic not in QUANTILES:
        return rounded(low), rounded(high)
    middle = QUANTILES[statistic] + int(marks.sum()) / number
    at = [min(1.0, max(0.0, middle - share)) for share in (high, low)]
    return tuple(rounded(float(v)) for v in np.quantile(values, at))  # type: ignore[return-value]


def _marks(values: "Series", statistic: str) -> "Series":
    """What is averaged: the values, or of a quantile who lies at or below it."""
    import numpy as np

    if statistic not in QUANTILES:
        return values
    found: Series = (values <= np.quantile(values, QUANTILES[statistic])).astype(np.int64)
    return found
