"""Fits step durations: non-negative least squares with a robust loss, then brought to the mean.

The robust loss finds what a step costs by its size although some steps stall for reasons of the
machine. But a replay whose steps all lack those stalls is faster than the engine, and queueing
multiplies that: so all four rates are scaled by one factor, with which the fitted durations of the
run's own steps sum to the measured ones.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from scipy.optimize import least_squares, nnls

from analysis.calibration.durations import SIZES, Durations, Floats
from replay.timing import QUANTILES, RATES, Timing

_HUBER = 1.345  # times the spread: 95 % as efficient as plain least squares where noise is normal
_MAD_TO_SPREAD = 1.4826
_STALL = 100  # a step this many times as long as fitted is none: the process stood still
_BLOCKS, _RESAMPLES, _SEED = 50, 1_000, 20_260_101
_DIGITS = 4
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
    robust = _robust(design, durations.us)
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
        interval_95=_intervals(design, us, robust),
        residual_us=_quantiles(us - design @ rates),
    )


def predicted_us(timing: Timing, durations: Durations) -> Floats:
    """What the steps of a run would take by `timing`, in microseconds."""
    rates = np.array([getattr(timing, rate) for rate in RATES]) / _UNITS
    predicted: Floats = np.column_stack([np.ones(len(durations)), durations.sizes]) @ rates
    return predicted


def _robust(design: Floats, us: Floats) -> Floats:
    """Rates in microseconds, by Huber's loss."""
    scale = np.maximum(np.abs(design).max(axis=0), 1.0)  # columns alike, for the solver
    scaled: Floats = design / scale
    start, _ = nnls(scaled, us)
    spread = _MAD_TO_SPREAD * float(np.median(np.abs(us - np.median(us))))

    def residuals(rates: Floats) -> Floats:
        left: Floats = scaled @ rates - us
        return left

    def slopes(_rates: Floats) -> Floats:
        return scaled

    found = least_squares(
        residuals,
        np.maximum(start, 1e-9),
        jac=slopes,
        bounds=(0, np.inf),
        loss="huber",
        f_scale=_HUBER * max(spread, 1.0),
        x_scale=np.maximum(start, 1.0),
    )
    rates: Floats = found.x / scale
    rates[rates * _UNITS < 1] = 0.0  # below the unit it is written in
    return rates


def _intervals(design: Floats, us: Floats, robust: Floats) -> dict[str, tuple[int, int]]:
    """95 % intervals from resampled blocks of consecutive steps, whose noise is alike.

    Within a resample the weights of the robust loss stay those of the fit.
    """
    residual = np.abs(us - design @ robust)
    cut = _HUBER * max(_MAD_TO_SPREAD * float(np.median(residual)), 1.0)
    weights = np.minimum(1.0, cut / np.maximum(residual, 1e-9))
    blocks = np.array_split(np.arange(len(us)), min(_BLOCKS, len(us)))
    squares = np.array([(design[b].T * weights[b]) @ design[b] for b in blocks])
    products = np.array([(design[b].T * weights[b]) @ us[b] for b in blocks])
    times = np.array([us[b].sum() for b in blocks])
    totals = np.array([design[b].sum(axis=0) for b in blocks])
    random = np.random.default_rng(_SEED)
    found = []
    for _ in range(_RESAMPLES):
        drawn = random.integers(len(blocks), size=len(blocks))
        rates, _ = nnls(squares[drawn].sum(axis=0), products[drawn].sum(axis=0))
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


__all__ = ["SIZES", "Fit", "fit_steps", "predicted_us"]
