"""The entry point, and where each command is found.

A command's module is imported when the command is called: a client that prints one record should not wait for the
server's imports.
"""

from __future__ import annotations

import sys
from importlib import import_module

import click

from tidewire import __version__
from tidewire.errors import PlatformError

_MODULES = {
    "access": ("app", "permset", "session", "user"),
    "apply": ("apply",),
    "backup": ("backup", "restore", "upgrade"),
    "bench": ("bench",),
    "database": ("archive", "database"),
    "demo": ("demo",),
    "org": ("org",),
    "pipeline": ("pipeline",),
    "server": ("ca", "init", "serve"),
    "status": ("status",),
    "subscribe": ("subscribe",),
}
_PLACES = {command: module for module, commands in _MODULES.items() for command in commands}


class _Commands(click.Group):
    """All commands by name, imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name, for the help."""
        return sorted(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One command, or None if there is none of the name."""
        module = _PLACES.get(cmd_name)
        if module is None:
            return None
        command: click.Command = getattr(import_module(f"tidewire.cli.{module}"), cmd_name)
        return command


@click.group(cls=_Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidewire")
def cli() -> None:
    """Tidewire: an event streaming server for Salesforce clients, on your own machine."""


def main() -> None:
    """Entry point: errors of ours become one line and a status, never a stack."""
    try:
        cli()
    except PlatformError as error:
        click.echo(f"error: {error.message} [{error.code}]", err=True)
        sys.exit(2)
