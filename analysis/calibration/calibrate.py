"""A run's `[timing]` and `[calibration]`: fitted to its steps, else to its requests."""

from dataclasses import dataclass
from typing import Any

import polars as pl

from analysis.calibration.durations import step_durations
from analysis.calibration.fit import Fit, fit_steps
from analysis.calibration.per_request import request_durations
from analysis.comparable import DURATION_FIELDS
from collectors.run import Run, value_at
from replay.errors import InputError
from replay.timing import RATES, Calibration, calibration_toml

_FEWEST = 100


@dataclass(frozen=True)
class Calibrated:
    """A fit with its calibration; `left_out` counts steps or requests that could not be used."""

    fit: Fit
    calibration: Calibration
    left_out: int

    def toml(self) -> str:
        """The file that `preempt replay --timing` reads."""
        rates = "".join(f"{name} = {getattr(self.fit.timing, name)}\n" for name in RATES)
        return f"[timing]\n{rates}\n{calibration_toml(self.calibration)}"


def calibrate(run: Run, engine: int) -> Calibrated:
    """Fit one engine of a run; raises `InputError` where it holds too little."""
    source = "requests" if run.steps.is_empty() else "steps"
    measured = (request_durations if source == "requests" else step_durations)(run, engine)
    if len(measured) < _FEWEST:
        rule = f"must hold at least {_FEWEST} {source} whose durations are known"
        raise InputError(str(run.path), source, rule, str(len(measured)))
    fit = fit_steps(measured)
    prefill, decodes, kv = fit.greatest
    if source == "requests":
        decodes, kv = _scraped(run, engine, "num_requests_running"), _kv_tokens(run)
    calibration = Calibration(
        run_id=run.run_id,
        source=source,
        steps=fit.used,
        prefill_tokens=prefill,
        decode_requests=decodes,
        kv_tokens=kv,
        slowdown_permille=round(fit.slowdown * 1000),
        interval_95=fit.interval_95,
        residual_us=fit.residual_us,
        conditions={
            name: value for name in DURATION_FIELDS if (value := _known(run, name)) is not None
        },
    )
    return Calibrated(fit, calibration, measured.left_out)


def _known(run: Run, name: str) -> Any:
    value = value_at(run.manifest, name)
    return value if isinstance(value, str | int | float) else None


def _scraped(run: Run, engine: int, name: str) -> int:
    """Greatest sample of a gauge, 0 where nobody scraped it: then every step extrapolates."""
    its = (pl.col("name") == name) & (pl.col("engine").fill_null(engine) == engine)
    values = run.samples.filter(its)["value"].drop_nulls()
    return int(values.max() or 0)  # type: ignore[arg-type]


def _kv_tokens(run: Run) -> int:
    blocks, size = (value_at(run.manifest, f"cache.{k}") for k in ("capacity_blocks", "block_size"))
    return blocks * size if blocks and size else 0
