"""Options that several subcommands share, spelled once."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from replay.strict import printable

if TYPE_CHECKING:
    from rich.console import Console

MOST_CHARACTERS = 4000
# Azure's longest trace of 2024 has 27.3 million; what a replay takes is its configuration's limit.
MOST_REQUESTS = 30_000_000

# A path argument: click checks nothing, so that every fault is worded by the readers.
PATH = click.Path(path_type=Path)

force = click.option("--force", is_flag=True, help="Replace an output of this command.")
quiet = click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")
arrivals = click.option(
    "--arrivals",
    type=click.Choice(["steps", "time"]),
    help="Of a run: the engine's own steps, from its arrive events, or what the clock says.",
)
engine = click.option(
    "--engine",
    type=click.IntRange(min=0),
    help="Of a run of several data-parallel engines: the index of the one meant.",
)

max_requests = click.option(
    "--max-requests",
    type=click.IntRange(min=1),
    default=MOST_REQUESTS,
    show_default=True,
    help="Refuse a file with more requests.",
)


def say(message: str, *, quiet: bool = False) -> None:
    """Tell a person one line, on standard error, whatever is in the names it holds."""
    if not quiet:
        click.echo(printable(message, MOST_CHARACTERS), err=True)


def console(**settings: Any) -> "Console":
    """A rich console that leaves a closed pipe to `preempt.main`, like every other output."""
    from rich.console import Console

    class _Console(Console):
        def on_broken_pipe(self) -> None:
            raise BrokenPipeError

    return _Console(highlight=False, **settings)


def print_json(value: Mapping[str, Any]) -> None:
    """Print a JSON object on standard output."""
    json.dump(value, sys.stdout, indent=1, sort_keys=True)
    sys.stdout.write("\n")
