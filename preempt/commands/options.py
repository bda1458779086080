"""Options that several subcommands share, spelled once."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

# A path argument: click checks nothing, so that every fault is worded by the readers.
PATH = click.Path(path_type=Path)

force = click.option("--force", is_flag=True, help="Replace an output of this command.")
quiet = click.option("-q", "--quiet", is_flag=True, help="Print errors only.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON on standard output.")


def say(message: str, *, quiet: bool = False) -> None:
    """Tell a person something, on standard error."""
    if not quiet:
        click.echo(message, err=True)


def print_json(value: Mapping[str, Any]) -> None:
    """Print a JSON object on standard output."""
    json.dump(value, sys.stdout, indent=1, ensure_ascii=False, sort_keys=True)
    sys.stdout.write("\n")
