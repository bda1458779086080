"""Groups of subcommands that are imported only when they run, so that `--help` waits for nobody."""

from collections.abc import Mapping
from importlib import import_module
from typing import Any

import click

Commands = Mapping[str, tuple[str, str]]  # name -> where it lives, and its line in the help


class LazyGroup(click.Group):
    """Lists every subcommand, in the order given, without importing any."""

    def __init__(self, *args: Any, commands: Commands, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._lazy = commands

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names in the order given."""
        return list(self._lazy)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one subcommand; None if there is none of that name."""
        if cmd_name not in self._lazy:
            return None
        module, attribute = self._lazy[cmd_name][0].split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write every subcommand's line from the table."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, line) for name, (_, line) in self._lazy.items()])


def lazy_group(name: str, commands: Commands, **settings: Any) -> click.Group:
    """A group of `commands`; `settings` are click's."""
    return LazyGroup(name, commands=commands, **settings)
