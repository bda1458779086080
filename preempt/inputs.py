"""What a replay reads: a workload with its configuration, or a collected run that brings both."""

import os
from dataclasses import dataclass, replace
from pathlib import Path

from analysis.comparable import METRICS_ONLY
from collectors.run import Run, engine_of, has_arrive_events, read_run, run_workload
from collectors.run_config import manifest_place, not_replayed, run_config_tables, run_rule
from replay.config import Config, parse_config, read_config, with_timing
from replay.errors import InputError
from replay.fit import drop_oversize, request_check
from replay.rules import lacking
from replay.workload import Workload
from replay.workload_file import read_workload


@dataclass(frozen=True)
class Choices:
    """What the caller chooses; None leaves it to the configuration, or to the run."""

    recovery: str | None = None
    victim: str | None = None
    assume_rule: bool = False
    drop_oversize: bool = False
    arrivals: str | None = None
    engine: int | None = None
    timing: Path | None = None


@dataclass(frozen=True)
class Inputs:
    """What is replayed, the requests left out as oversize, and what has to be known of a run."""

    workload: Workload
    config: Config
    oversize: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()


def replay_inputs(path: Path, config_path: Path | None, choices: Choices) -> Inputs:
    """Inputs from a workload file, `-`, or the directory of a run; raises `InputError`."""
    if os.path.isdir(path):  # noqa: PTH112 - is_dir raises on a name that is too long
        inputs = _from_run(path, config_path, choices)
    elif config_path is None:
        raise InputError(str(path), "--config", "is required for what is no run directory")
    elif choices.arrivals is not None or choices.engine is not None:
        rule = "must be a run directory for --arrivals and --engine"
        raise InputError(str(path), "", rule, "something else")
    else:
        inputs = _from_file(path, config_path, choices)
    if not choices.drop_oversize:
        return inputs
    workload, oversize = drop_oversize(inputs.workload, inputs.config, str(path))
    return replace(inputs, workload=workload, oversize=tuple(oversize))


def _from_file(path: Path, config_path: Path, choices: Choices) -> Inputs:
    config = read_config(config_path, assume=choices.assume_rule, timing=choices.timing)
    config = config.with_policy(choices.recovery, choices.victim)
    check = request_check(config, keep_oversize=choices.drop_oversize)
    return Inputs(read_workload(path, config.limits.max_requests, check), config)


def _from_run(path: Path, config_path: Path | None, choices: Choices) -> Inputs:
    """One engine of a run, as its manifest describes it where no configuration is given.

    Arrivals are its own steps if it recorded them and the profile has steps, else the clock's.
    """
    run = read_run(path)
    if run.offered is None and run.requests.is_empty():
        raise InputError(str(path), "", f"must hold requests to replay; {METRICS_ONLY}", "none")
    engine = engine_of(run, choices.engine)
    config = _run_config(run, config_path, choices)
    config = config.with_policy(choices.recovery, choices.victim)
    arrivals = choices.arrivals
    if arrivals is None:
        # Only an engine's profile has its steps, and only constant ticks count them.
        counted = config.engine.profile != "lab" and config.timing is None
        arrivals = "steps" if counted and has_arrive_events(run, engine) else "time"
    if arrivals == "steps" and config.timing is not None:
        rule = "go with constant ticks: durations say when a step comes (leave one of them out)"
        raise InputError(str(choices.timing or config_path), "--arrivals steps", rule)
    if arrivals == "steps" and config.engine.tick_us != 1:
        rule = "must be 1 where arrivals are steps (--arrivals time takes them from the clock)"
        raise InputError(str(config_path), "engine.tick_us", rule, str(config.engine.tick_us))
    if arrivals == "time" and config_path is None and config.timing is None:
        rule = "is in no manifest: without --config or --timing, arrivals have to be steps"
        raise InputError(str(path), "engine.tick_us", rule)
    workload = run_workload(run, arrivals=arrivals, engine=engine)
    notes = (*_notes(run, arrivals, config), *_left_out(workload))
    return Inputs(workload, config, notes=notes)


def _run_config(run: Run, config_path: Path | None, choices: Choices) -> Config:
    assume, timing = choices.assume_rule, choices.timing
    if config_path is not None:
        return read_config(config_path, assume=assume, timing=timing)
    tables = run_config_tables(run, lacking(run_rule(run)))
    if timing is not None:
        tables = with_timing(tables, timing, manifest_place(run))
    return parse_config(tables, manifest_place(run), assume=assume)


def _notes(run: Run, arrivals: str, config: Config) -> tuple[str, ...]:
    if arrivals == "time":
        return ("arrivals by the clock, not in the engine's own steps",)
    lost = [] if config.engine.profile == "lab" else not_replayed(run)
    return (
        "arrivals in the engine's own steps, from the run's arrive events",
        *(f"not exact: {what}" for what in lost),
    )


def _left_out(workload: Workload) -> tuple[str, ...]:
    """A line on the requests that a run holds and its replay does not, by reason."""
    dropped = {k: n for k, n in (workload.provenance or {}).get("dropped", {}).items() if n}
    if not dropped:
        return ()
    reasons = ", ".join(f"{n} {reason}" for reason, n in dropped.items())
    return (f"not exact: requests left out: {reasons}",)
