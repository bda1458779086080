"""Fidelity over many runs: the spread of repeats, each run by its own fit, and forecasts.

What `benchmarks/fidelity.py judge` prints. A forecast is judged by what remains once the drift of
the step cost is scaled out, and by the larger of a fixed share and the spread of the repeats.
"""

import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from analysis.calibration.calibrate import Calibrated, calibrate
from analysis.fidelity.compare import Fidelity, Replay, compare
from analysis.fidelity.scores import Score
from analysis.store import connect, load_ledger, load_run
from collectors.run import Run, read_run, run_workload
from collectors.run_config import run_config_tables
from replay.config import Config, parse_config

METRICS = ("preemptions", "ttft_us_p50", "ttft_us_p95", "tpot_us_p50", "tpot_us_p95")
OWN_SHARE, FORECAST_SHARE = 0.10, 0.15


@dataclass(frozen=True)
class Judged:
    """One run under one calibration; errors by metric, and whether each is small enough."""

    run: str
    level: str
    drift: float | None
    errors: Mapping[str, float | None]
    allowed: Mapping[str, float]

    def holds(self, metric: str) -> bool:
        """Whether this metric's error is within what is allowed."""
        error = self.errors.get(metric)
        return error is not None and abs(error) <= self.allowed[metric]


@dataclass(frozen=True)
class Study:
    """The spread (twice the standard deviation over the mean) of each metric, and every run."""

    repeats: int
    spread: Mapping[str, float]
    stepped: Mapping[str, tuple[int, int]]
    own: Sequence[Judged]
    forecasts: Sequence[Judged]

    def record(self) -> dict[str, Any]:
        """Return it as JSON has it."""
        return asdict(self)

    def markdown(self) -> str:
        """Tables for a person; what misses is FAILED."""
        matched = sum(found for found, _ in self.stepped.values())
        events = sum(total for _, total in self.stepped.values())
        lines = [
            f"stepped: {matched} of {events} preempt events of {len(self.stepped)} runs"
            " in their step, with their victim",
            "",
            f"spread of {self.repeats} repeats (twice the standard deviation): "
            + ", ".join(f"{m} {self.spread[m]:.1%}" for m in METRICS),
            "",
        ]
        for title, rows in (
            ("timed, calibrated on the same run", self.own),
            ("timed, calibrated on another run, drift scaled out", self.forecasts),
        ):
            lines += [title, "", "| run | drift | " + " | ".join(METRICS) + " |"]
            lines += ["|---" * (len(METRICS) + 2) + "|"]
            lines += [_row(one) for one in rows]
            lines.append("")
        return "\n".join(lines)


def study(folder: Path, repeated: str, replay: Replay) -> Study:
    """Judge every run in `folder`; those whose name begins with `repeated` are one configuration.

    The first of them is what forecasts are calibrated on.
    """
    runs = [read_run(path.parent) for path in sorted(folder.glob("*/manifest.json"))]
    names = [run.path.name for run in runs]
    fits = {name: calibrate(run, 0) for name, run in zip(names, runs, strict=True)}
    first = next(name for name in names if name.startswith(repeated))
    own = [_compared(run, fits[name], replay) for name, run in zip(names, runs, strict=True)]
    repeats = [f for f, name in zip(own, names, strict=True) if name.startswith(repeated)]
    spread = {metric: _spread(_measured(repeats, metric)) for metric in METRICS}
    within = {metric: max(FORECAST_SHARE, spread[metric]) for metric in METRICS}
    return Study(
        repeats=len(repeats),
        spread=spread,
        stepped={name: _stepped(run, replay) for name, run in zip(names, runs, strict=True)},
        own=[
            _judged(name, found, found.scores, dict.fromkeys(METRICS, OWN_SHARE))
            for name, found in zip(names, own, strict=True)
        ],
        forecasts=[
            _judged(name, found, found.remainder, within)
            for name, found in _forecasts(names, runs, fits[first], first, replay)
        ],
    )


def _forecasts(
    names: Sequence[str], runs: Sequence[Run], fit: Calibrated, first: str, replay: Replay
) -> Iterator[tuple[str, Fidelity]]:
    for name, run in zip(names, runs, strict=True):
        if name != first:
            yield name, _compared(run, fit, replay)


def _compared(run: Run, fit: Calibrated, replay: Replay) -> Fidelity:
    config = replace(_config(run), timing=fit.fit.timing, calibration=fit.calibration)
    config = replace(config, engine=replace(config.engine, tick_us=None))
    with connect(None) as db:
        load_run(db, run)
        ledger = replay(run_workload(run), config)
        load_ledger(db, ledger)
        return compare(db, ledger, run, replay)


def _stepped(run: Run, replay: Replay) -> tuple[int, int]:
    """Preempt events that a replay of the run's own arrival steps has, and how many there were."""
    with connect(None) as db:
        load_run(db, run)
        ledger = replay(run_workload(run, arrivals="steps"), _config(run))
        load_ledger(db, ledger)
        found = {score.metric: score for score in compare(db, ledger, run, replay).scores}
    events = found.get("preempt_events")
    if events is None:
        return 0, 0
    return round(events.modelled_value or 0), round(events.measured_value or 0)


def _config(run: Run) -> Config:
    return parse_config(run_config_tables(run), str(run.path))


def _measured(found: Sequence[Fidelity], metric: str) -> list[float]:
    values = [s.measured_value for f in found for s in f.scores if s.metric == metric]
    return [value for value in values if value is not None]


def _spread(values: Sequence[float]) -> float:
    if len(values) < 2:  # noqa: PLR2004
        return 0.0
    return 2 * statistics.stdev(values) / statistics.fmean(values)


def _judged(
    name: str, found: Fidelity, scores: Sequence[Score], allowed: Mapping[str, float]
) -> Judged:
    errors = {s.metric: s.error_frac for s in scores if s.metric in METRICS}
    return Judged(name, str(found.level), found.record.get("drift"), errors, allowed)


def _row(one: Judged) -> str:
    cells = []
    for metric in METRICS:
        error = one.errors.get(metric)
        shown = "unknown" if error is None else f"{error:+.1%}"
        cells.append(shown if one.holds(metric) else f"{shown} FAILED")
    drift = "unknown" if one.drift is None else f"{one.drift:.3f}"
    return f"| {one.run} | {drift} | " + " | ".join(cells) + " |"
