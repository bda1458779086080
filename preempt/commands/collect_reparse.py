"""`preempt collect reparse`: a run's samples again, from its raw pages."""

from pathlib import Path

import click

from preempt.commands import options
from preempt.commands.options import say


@click.command("reparse")
@click.argument("run", type=options.PATH)
@options.quiet
@options.as_json
def reparse_command(run: Path, quiet: bool, as_json: bool) -> None:
    """Read the raw pages of RUN again, and replace its samples by what they say.

    For runs collected before a metric was known, and for runs whose pages were recorded elsewhere
    (pages/recorded.jsonl.gz). The old samples stay until all new ones are made. Samples whose pages
    retention deleted stay as they are. A run that is being collected is refused.

    \b
    Example:
        preempt collect reparse my-run
    """
    import time
    from dataclasses import asdict

    from collectors.scrape.reparse import reparse

    done = reparse(run, time.time_ns())
    if as_json:
        options.print_json(asdict(done))
    kept = f"; {done.kept} older parts kept, their pages are gone" if done.kept else ""
    say(
        f"{done.pages} pages, {done.with_samples} with samples: {done.rows} rows in"
        f" {done.parts} parts{kept}",
        quiet=quiet or as_json,
    )
