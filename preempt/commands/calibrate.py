"""`preempt calibrate`: how long an engine's steps take, fitted to a run, for timed replays."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preempt.commands import options
from preempt.commands.options import say
from preempt.commands.progress import progress_shown

if TYPE_CHECKING:
    from analysis.calibration.calibrate import Calibrated

_RATES = {
    "step_ns": ("a step", 1_000),
    "prefill_token_ps": ("a prefill token", 1_000_000),
    "decode_request_ps": ("a decoding request", 1_000_000),
    "kv_token_ps": ("a KV token", 1_000_000),
}


@click.command("calibrate")
@click.argument("run", type=options.PATH)
@click.option("-o", "--output", "out", type=options.PATH, required=True, help="TOML file to write.")
@options.engine
@options.force
@options.quiet
@options.as_json
def calibrate_command(
    run: Path, out: Path, engine: int | None, force: bool, quiet: bool, as_json: bool
) -> None:
    """Fit the duration of a scheduler step to the RUN directory and write it to -o.

    The run's recorded steps say how long each took and what it computed; the fit gives what a step
    costs by itself, by prefill token, by decoding request and by KV token, with 95 % intervals. A
    run without steps is fitted from its requests and iteration_tokens_total, and marked as weaker.

    The file holds the conditions, too: engine, model, device, cache, and the greatest batch seen.
    A replay with --timing says where it goes beyond them.

    \b
    Examples:
      preempt calibrate runs/base-1 -o timing.toml
      preempt replay runs/base-2 --timing timing.toml --out forecast
    """
    from analysis.calibration.calibrate import calibrate
    from collectors.run import engine_of, read_run
    from replay.output import new_file

    with new_file(out, force=force) as file, progress_shown(quiet=quiet) as progress:
        progress.phase(f"reading {run}")
        measured = read_run(run)
        progress.phase("fitting")
        found = calibrate(measured, engine_of(measured, engine))
        file.write_text(found.toml(), encoding="utf-8")
    for line in _lines(found):
        say(line, quiet=quiet or as_json)
    say(f"timing in {out}; replay with: preempt replay … --timing {out}", quiet=quiet or as_json)
    if as_json:
        options.print_json(_record(found))


def _lines(found: "Calibrated") -> list[str]:
    fit, calibration = found.fit, found.calibration
    what = calibration.source
    lines = [f"fitted to {fit.used} {what} of run {calibration.run_id}; {found.left_out} left out"]
    if what == "requests":
        lines.append("weaker: the run has no step records (the recorder in the engine makes them)")
    for name, (label, unit) in _RATES.items():
        low, high = (end / unit for end in fit.interval_95[name])
        value = getattr(fit.timing, name) / unit
        lines.append(f"{label:<20}{value:>10,.3f} us   (95 %: {low:,.3f} to {high:,.3f})")
    residual = "  ".join(f"{name} {value:,} us" for name, value in fit.residual_us.items())
    lines.append(f"measured minus fitted: {residual}")
    lines.append(
        f"stalls that no size explains make steps {fit.slowdown:.2f} times as long as a robust"
        " fit; the rates hold them"
    )
    if fit.stalled:
        lines.append(f"left out as standstills: {fit.stalled} steps over 100 times as long")
    lines.append(
        f"valid up to {calibration.prefill_tokens} prefill tokens, {calibration.decode_requests}"
        f" decoding requests and {calibration.kv_tokens} KV tokens in a step"
    )
    return lines


def _record(found: "Calibrated") -> dict[str, Any]:
    from dataclasses import asdict

    return {
        "timing": asdict(found.fit.timing),
        "calibration": asdict(found.calibration),
        "left_out": found.left_out,
        "stalled": found.fit.stalled,
    }
