"""`preempt collect pack`: a recorder's spool becomes a run, or completes one."""

from dataclasses import asdict
from pathlib import Path

import click

from preempt.commands import options
from preempt.commands.options import say
from preempt.commands.progress import progress_shown


@click.command("pack")
@click.argument("spool", type=options.PATH)
@click.option(
    "--out",
    type=options.PATH,
    required=True,
    help="Run directory to create, or one of collect metrics or collect drive to complete.",
)
@options.quiet
@options.as_json
def pack_command(*, spool: Path, out: Path, quiet: bool, as_json: bool) -> None:
    """Turn what the recorder inside vLLM left in SPOOL into a run.

    SPOOL is the directory that PREEMPTION_LEDGER_SPOOL named. A new --out becomes an observed run,
    a row for each request that reached the engine. Several configurations (a restart with other
    flags) become several runs: OUT, OUT-2, and so on. Where --out is a run without the engine's
    tables, what the engine did in its time is added, and the manifest learns what it did not know;
    a manifest that knows otherwise (another version, other blocks) is an error. What is refused
    leaves --out as it was. A damaged part ends its session there, with a note; others are packed.

    \b
    Examples:
      preempt collect pack /var/spool/preemption --out my-run
      preempt collect drive w.parquet --url http://127.0.0.1:8000 --out driven
      preempt collect pack /var/spool/preemption --out driven
    """
    from collectors.pack.batch import pack_spool

    with progress_shown(quiet=quiet) as progress:
        packed = pack_spool(spool, out, progress.phase)
    for run in packed:
        rows = run.rows
        offered = "" if run.never_offered is None else f" ({run.never_offered} never offered)"
        requests = f"{rows['measured_requests']} requests, " if run.never_offered is None else ""
        say(
            f"{run.path}: {requests}{rows['measured_events']} events{offered},"
            f" {rows['measured_steps']} steps, {run.preemptions} preemptions,"
            f" {len(run.engines)} engine{'s' * (len(run.engines) != 1)}"
            f" in {run.sessions} session{'s' * (run.sessions != 1)}",
            quiet=quiet,
        )
        if not run.complete:
            why = "an engine was killed or still runs, or not all of the spool could be read"
            say(f"  not complete: {why}", quiet=quiet)
        for note in run.notes:
            say(f"  {note}", quiet=quiet)
        for what in run.not_modelled or ():
            say(f"  a replay is not exact: {what}", quiet=quiet)
    if as_json:
        runs = [asdict(run) | {"path": str(run.path)} for run in packed]
        options.print_json({"runs": runs})
