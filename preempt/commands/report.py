"""`preempt report`: ledgers and runs as one Markdown report."""

from pathlib import Path

import click

from preempt.commands import options
from preempt.commands.options import say
from preempt.commands.progress import progress_shown
from preempt.commands.unfinished import say_unfinished

OWNED = ("report.md",)


@click.command("report")
@click.argument("paths", metavar="PATH...", type=options.PATH, nargs=-1, required=True)
@click.option("--out", type=options.PATH, required=True, help="Directory to create.")
@options.force
@options.quiet
def report_command(paths: tuple[Path, ...], out: Path, force: bool, quiet: bool) -> None:
    """Write report.md about ledger directories and measured runs to --out.

    Modelled and measured numbers stand in separate tables, or in columns that say which they are;
    a ledger whose workload came from one of the runs is joined with it per request. Flagged
    requests are marked ▲ (waited too long) and ✕ (displaced too often).

    \b
    Example:
        preempt report recompute/ swap/ runs/base-1 --out report/
    """
    from analysis import store
    from analysis.report import markdown_report
    from analysis.report_data import report_data
    from replay.output import new_directory

    with progress_shown(quiet=quiet) as progress, store.connect(None) as db:
        found = [
            item
            for path in paths
            for item in store.load_path(db, path, lambda part: progress.events(f"checking {part}"))
        ]
        progress.phase("writing the report")
        text = markdown_report(report_data(db))
    with new_directory(out, force=force, owned=OWNED) as directory:
        (directory / "report.md").write_text(text, encoding="utf-8")
    for item in found:
        if item.kind == "run":
            say_unfinished(item.path, quiet=quiet)
    say(f"report in {out / 'report.md'}", quiet=quiet)
