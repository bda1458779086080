"""Fits step durations: non-negative least squares with a robust loss, then brought to the mean.

The robust loss finds what a step costs by its size although some steps stall for reasons of the
machine. But a replay whose steps all lack those stalls is faster than the engine, and queueing
multiplies that: so all four rates are scaled by one factor, with which the fitted durations of the
run's own steps sum to the measured ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from analysis.calibration.durations import Durations, Floats
from replay.timing import QUANTILES, RATES, Timing

_HUBER = 1.345  # times the spread: 95 % as efficient as plain least squares where noise is normal
_MAD_TO_SPREAD = 1.4826
_STALL = 100  # a step this many times as long as fitted is none: the process stood still
_BLOCKS, _RESAMPLES, _SEED = 50, 1_000, 20_260_101
_DIGITS = 4
_ROUNDS, _STILL = 500, 1e-7  # of reweighting; some 20 are enough for a recorded run
_PREFERENCE = 1e-10 * np.arange(4)  # too little to change a digit of what sizes do tell
# Integer units of `Timing` per microsecond.
_UNITS = np.array([1e3, 1e6, 1e6, 1e6])


@dataclass(frozen=True)
class Fit:
    """Fitted rates with what one has to know of them; `used` and `stalled` count steps.

    `slowdown` is the factor by which the robust rates were scaled. `interval_95` and `residual_us`
    are as in `replay.timing.Calibration`.
    """

    timing: Timing
    used: int
    stalled: int
    slowdown: float
    greatest: tuple[int, int, int]
    interval_95: Mapping[str, tuple[int, int]]
    residual_us: Mapping[str, int]


def fit_steps(durations: Durations) -> Fit:
    """Fit the four rates; needs at least two steps."""
    design = np.column_stack([np.ones(len(durations)), durations.sizes])
    robust, weights = _robust(design, durations.us)
    kept = durations.us <= _STALL * np.maximum(design @ robust, 1.0)
    design, us = design[kept], durations.us[kept]
    slowdown = float(us.sum() / (design @ robust).sum())
    rates = robust * slowdown
    return Fit(
        timing=_timing(rates),
        used=len(us),
        stalled=int((~kept).sum()),
        slowdown=slowdown,
        greatest=tuple(int(n) for n in durations.sizes[kept].max(axis=0)),  # type: ignore[arg-type]
        interval_95=_intervals(design, us, weights[kept]),
        residual_us=_quantiles(us - design @ rates),
    )


def predicted_us(timing: Timing, durations: Durations) -> Floats:
    """What the steps of a run would take by `timing`, in microseconds."""
    rates = np.array([getattr(timing, rate) for rate in RATES]) / _UNITS
    predicted: Floats = np.column_stack([np.ones(len(durations)), durations.sizes]) @ rates
    return predicted


def _robust(design: Floats, us: Floats) -> tuple[Floats, Floats]:
    """Rates in microseconds by Huber's loss, and the weight that each step has in it.

    Reweighted from the median on: started at a mean, one process that stood still for an hour
    would decide which rates are 0.
    """
    middle = float(np.median(us))
    cut = _HUBER * max(_MAD_TO_SPREAD * float(np.median(np.abs(us - middle))), 1.0)
    rates = np.array([middle, 0.0, 0.0, 0.0])
    for _ in range(_ROUNDS):
        weights = np.minimum(1.0, cut / np.maximum(np.abs(us - design @ rates), 1e-9))
        before, rates = rates, _solved((design.T * weights) @ design, (design.T * weights) @ us)
        size = np.abs(design).max(axis=0)
        if (np.abs(rates - before) * size).max() <= _STILL * (rates * size).max():
            break
    return np.where(rates * _UNITS < 1, 0.0, rates), weights  # below the unit it is written in


def _solved(squares: Floats, products: Floats) -> Floats:
    """Non-negative least squares from sums of squares and products.

    What steps of a run's sizes cannot tell apart is a step's, then a prefill token's, and so on.
    """
    scale = np.sqrt(np.maximum(squares.diagonal(), 1.0))  # columns alike, for the solver
    lower = np.linalg.cholesky(squares / np.outer(scale, scale) + np.diag(_PREFERENCE))
    rates, _ = nnls(lower.T, np.linalg.solve(lower, products / scale))
    found: Floats = rates / scale
    return found


def _intervals(design: Floats, us: Floats, weights: Floats) -> dict[str, tuple[int, int]]:
    """95 % intervals from resampled blocks of consecutive steps, whose noise is alike.

    Within a resample the weights of the robust loss stay those of the fit.
    """
    blocks = np.array_split(np.arange(len(us)), min(_BLOCKS, len(us)))
    squares = np.array([(design[b].T * weights[b]) @ design[b] for b in blocks])
    products = np.array([(design[b].T * weights[b]) @ us[b] for b in blocks])
    times = np.array([us[b].sum() for b in blocks])
    totals = np.array([design[b].sum(axis=0) for b in blocks])
    random = np.random.default_rng(_SEED)
    found = []
    for _ in range(_RESAMPLES):
        drawn = random.integers(len(blocks), size=len(blocks))
        rates = _solved(squares[drawn].sum(axis=0), products[drawn].sum(axis=0))
        explained = float(totals[drawn].sum(axis=0) @ rates)
        if explained > 0:
            found.append(rates * float(times[drawn].sum()) / explained)
    low, high = np.quantile(np.array(found), [0.025, 0.975], axis=0)
    ends = zip(_integers(low), _integers(high), strict=True)
    return dict(zip(RATES, ends, strict=True))


def _quantiles(values: Floats) -> dict[str, int]:
    return {name: round(float(np.quantile(values, q))) for name, q in QUANTILES.items()}


def _timing(rates: Floats) -> Timing:
    return Timing(*_integers(rates))


def _integers(rates: Floats) -> list[int]:
    """Whole units, to four digits: more would differ from machine to machine."""
    return [round(float(f"{value:.{_DIGITS - 1}e}")) for value in rates * _UNITS]
