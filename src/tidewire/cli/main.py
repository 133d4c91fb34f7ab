"""The entry point, and where each command is found.

A command's module is imported when the command is called: a client that prints one record should not wait for the
server's imports. So the help takes their summaries from the list here.
"""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from tidewire import __version__
from tidewire.cli.hints import find_hint
from tidewire.errors import PlatformError

# By section of the help: each command, its module and its summary.
SECTIONS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Begin": (
        (
            "demo",
            "demo.command",
            "Run everything together: server, console, a company at work, the pipeline.",
        ),
        ("serve", "server", "Run the server until it is told to stop."),
        (
            "doctor",
            "doctor.command",
            "Look for what keeps server or pipeline from working, and say what to do.",
        ),
        ("login", "login", "Sign in and keep how in a profile, for the commands that follow."),
        ("logout", "login", "End a profile's session and forget the profile."),
        ("profiles", "login", "List the profiles of `tidewire login`, without their secrets."),
        ("completion", "completion", "Print a script that lets a shell complete commands and flags."),
    ),
    "Records": (
        ("query", "query", "Run a SOQL query and print what it finds, over all its pages."),
        ("get", "records", "Print one record."),
        ("create", "records", "Make a record and print its id."),
        ("update", "records", "Change fields of a record."),
        ("upsert", "records", "Make or change the record that an external id names."),
        ("delete", "records", "Put records into the recycle bin."),
        ("describe", "records", "List the objects, or the fields of one."),
    ),
    "Events": (
        ("subscribe", "subscribe", "Print the events of channels as they come, until Ctrl-C."),
        ("publish", "publish", "Publish platform events, or messages to a generic channel."),
        ("channels", "channels", "List what can be subscribed to, and what each channel selects."),
        ("topics", "topics", "Push topics: list, make and remove them."),
        ("status", "status", "Show who reads the streams of an org, how far they are, and what is kept."),
        ("pipeline", "pipeline", "Keep a lake of every change: archive, history and replicas, on Spark."),
    ),
    "Administration": (
        ("apply", "apply", "Bring an org to what a YAML file says."),
        ("user", "access", "Users: made, listed, given passwords, switched off and on."),
        ("permset", "access", "Permission sets: made, listed, assigned and taken away."),
        ("session", "access", "Login sessions: listed and ended."),
        ("app", "access", "Connected apps: the programs that may ask for tokens."),
        ("archive", "database", "Archive old activities."),
        ("database", "database", "Change records as a job in the database would, past the API."),
    ),
    "Operation": (
        ("init", "server", "Make an org in a new data directory, with an administrator."),
        ("ca", "server", "Print the path of the certificate that clients must trust."),
        ("org", "org", "Orgs: made, listed and removed. Each has its own users, records and events."),
        ("backup", "backup", "Copy an org into one file. The server may be running."),
        ("restore", "backup", "Make an org again from a backup."),
        ("upgrade", "backup", "Bring a stopped server's orgs to what this release expects."),
        ("bench", "bench", "Measure this checkout beside a peer in the same run."),
    ),
}
_PLACES = {name: module for commands in SECTIONS.values() for name, module, _ in commands}


class _Commands(click.Group):
    """All commands by name, imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Every name."""
        return sorted(_PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """One command, or None if there is none of the name."""
        module = _PLACES.get(cmd_name)
        if module is None:
            return None
        command: click.Command = getattr(import_module(f"tidewire.cli.{module}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """The command that the arguments name. Raises click.UsageError with names that may have been meant."""
        name = args[0]
        if name not in _PLACES and not name.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(name, _PLACES, n=3)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"No such command '{name}'.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands by section."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, summary) for name, _, summary in commands])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """The names that begin so, and the group's own flags."""
        known = sorted((name, summary) for commands in SECTIONS.values() for name, _, summary in commands)
        found = [CompletionItem(name, help=summary) for name, summary in known if name.startswith(incomplete)]
        return found + click.Command.shell_complete(self, ctx, incomplete)


@click.group(
    cls=_Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="\b\nExamples:\n  tidewire demo\n  tidewire query 'SELECT Id, Name FROM Account'\n"
    "  tidewire subscribe /data/ChangeEvents\n  tidewire COMMAND --help",
)
@click.version_option(__version__, prog_name="tidewire")
def cli() -> None:
    """Tidewire: an event streaming server for Salesforce clients, on your own machine."""


def main() -> None:
    """Entry point: errors of ours become a line, what to do about it, and a status, never a stack."""
    # Left to themselves, colours depend on whether a terminal reads.
    colour = False if os.environ.get("NO_COLOR") else None
    try:
        cli(prog_name="tidewire", color=colour)
    except PlatformError as error:
        click.echo(
            click.style("error:", fg="red") + f" {error.message} [{error.code}]", err=True, color=colour
        )
        hint = find_hint(error)
        if hint:
            click.echo(f"hint: {hint}", err=True)
        sys.exit(2)
    except OSError as error:
        # What the machine refuses: a directory that cannot be written to, a file that is gone.
        what = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        click.echo(click.style("error:", fg="red") + f" {what}", err=True, color=colour)
        click.echo("hint: `tidewire doctor` tells what is in the way of a server here", err=True)
        sys.exit(2)
