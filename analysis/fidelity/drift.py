"""How much slower or faster a run's steps were than the durations say that a replay used.

A forecast errs by two things: the machine has become slower, and the model is wrong. The first is
measured from the run's own steps; scaling it out of a second replay leaves the second.
"""

from dataclasses import replace

from analysis.calibration.durations import step_durations
from analysis.calibration.fit import predicted_us
from collectors.run import Run
from replay.config import Config
from replay.errors import InputError
from replay.timing import RATES, Timing


def drift(run: Run, engine: int, timing: Timing) -> float | None:
    """Measured time of the run's steps over what `timing` gives them; None without steps."""
    if run.steps.is_empty():
        return None
    try:
        measured = step_durations(run, engine)
    except InputError:  # no step whose size and end are known
        return None
    predicted = predicted_us(timing, measured).sum()
    return float(measured.us.sum() / predicted) if predicted > 0 else None


def scaled(config: Config, factor: float) -> Config:
    """The same configuration with every duration this many times as long."""
    if config.timing is None:
        return config
    rates = {rate: round(getattr(config.timing, rate) * factor) for rate in RATES}
    return replace(config, timing=Timing(**rates))
