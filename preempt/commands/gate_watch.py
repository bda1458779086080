"""`preempt gate watch`: the rollback rules on the newest window of a live run."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from preempt.commands import options
from preempt.commands.options import say

if TYPE_CHECKING:
    from analysis.gate.contract import Gate
    from analysis.gate.watch import Watched


@click.command("watch", short_help="Say whether a live run has to be rolled back.")
@click.argument("gate_path", metavar="GATE.toml", type=options.PATH)
@click.option(
    "--baseline", metavar="RUN", multiple=True, required=True, help="Run beside it, or before it."
)
@click.option("--candidate", metavar="RUN", multiple=True, required=True, help="Run of the change.")
@click.option("--db", metavar="FILE", type=options.PATH, help="Store to read; RUN is a run_id.")
@click.option(
    "--every",
    metavar="DURATION",
    help="Look again and again, e.g. 30s, until a rule holds. Default: look once.",
)
@click.option(
    "--max-age",
    metavar="DURATION",
    help="How old the newest record may be, e.g. 2m. Default: rollback.window_us.",
)
@options.quiet
@options.as_json
@click.pass_context
def watch_command(
    context: click.Context,
    gate_path: Path,
    baseline: tuple[str, ...],
    candidate: tuple[str, ...],
    db: Path | None,
    every: str | None,
    max_age: str | None,
    quiet: bool,
    as_json: bool,
) -> None:
    """Evaluate GATE.toml's [rollback] rules on the newest whole window of a run being collected.

    RUN is a run directory that a collector with --spool is writing, or with --db the run_id of a
    loaded run; several runs of a side are taken together. The window ends follow_up_us before the
    newest record of a request and is rollback.window_us long. The baseline's numbers are those of
    the same window; of a baseline that had ended before, of its whole run.

    A rule that holds is a trigger and no verdict: one window, no statistics over pairs. What
    cannot be told (too few requests, nothing new recorded, sides that differ in more than the
    change) is said so, and is never taken for a rule that does not hold.

    \b
    Exit codes:  0 no rule holds, 1 a rule holds (its action is printed), 2 bad input or usage,
                 3 cannot tell. With --every only 1 and 2 end it; --json then prints a line each.
    \b
    Example:
        preempt gate watch gate.toml --baseline run-base --candidate run-canary --every 30s
    """
    from analysis.gate.gate_file import read_gate
    from collectors.durations import duration_us

    pause_us = None if every is None else duration_us(every, "--every")
    age_us = None if max_age is None else duration_us(max_age, "--max-age")
    gate = read_gate(gate_path)
    looked = False
    while True:
        found = _look(gate, db, (baseline, candidate), age_us, again=looked)
        code = 3 if found is None else found.exit_code
        if found is not None:
            looked = True
            _tell(found, quiet=quiet, as_json=as_json, lines=pause_us is not None)
        if pause_us is None or code == 1:
            context.exit(code)
        time.sleep(pause_us / 1_000_000)


def _look(
    gate: "Gate",
    db: Path | None,
    sides: tuple[tuple[str, ...], tuple[str, ...]],
    age_us: int | None,
    *,
    again: bool,
) -> "Watched | None":
    """One evaluation. What could be read once and cannot be now is said, and tried again."""
    from analysis.gate.watch import watch
    from preempt.commands.gate import evidence
    from replay.errors import ReplayError

    try:
        with evidence(db, *sides) as (store, (baseline, candidate)):
            return watch(store, gate, baseline, candidate, time.time_ns() // 1000, age_us)
    except (ReplayError, OSError) as exc:
        if not again:
            raise
        say(f"cannot tell: {exc}")
        return None


def _tell(found: "Watched", *, quiet: bool, as_json: bool, lines: bool) -> None:
    from analysis.gate.watch import watched_json

    if as_json:
        _print_json(watched_json(found), lines=lines)
    elif not quiet:
        _print(found)


def _print_json(record: dict[str, Any], *, lines: bool) -> None:
    """A line where many follow each other, so that a reader can take them one by one."""
    from replay.canonical import canonical_json

    if lines:
        click.echo(canonical_json(record).decode())
    else:
        options.print_json(record)


def _print(found: "Watched") -> None:
    from rich.text import Text

    from analysis.gate.watch import TRIGGER, moment
    from replay.strict import printable

    console = options.console()
    style = {0: "", 1: "bold red", 3: "bold yellow"}[found.exit_code]
    console.print(Text(found.sentence, style))
    window = found.window
    if window is not None:
        console.print(
            Text(
                f"{TRIGGER}; arrivals from {moment(window.from_us)} to {moment(window.until_us)},"
                f" newest record {window.age_us / 1_000_000:.0f} s old"
            )
        )
    for answer in found.answers:
        console.print(Text(f"  {answer.state}: {printable(answer.predicate)}: {answer.why}"))
    for note in found.notes:
        console.print(Text(f"  note: {note}"))
