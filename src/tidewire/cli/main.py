"""The entry point: the list of commands, and how errors are printed.

A command's module is imported when the command is called, so a client command does not wait for the server's imports.
The help therefore takes the summaries from the list here.
"""

from __future__ import annotations

import os
import sys
from difflib import get_close_matches
from importlib import import_module

import click
from click.shell_completion import CompletionItem

from tidewire import __version__
from tidewire.errors import (
    AccessDenied,
    AuthHeaderInvalid,
    ChannelForbidden,
    ChannelUnknown,
    ConfigInvalid,
    DiskFull,
    LimitExceeded,
    LoginFailed,
    PlatformError,
    ReplayIdExpired,
    ReplayIdInvalid,
    RequestRefused,
    ServerUnreachable,
    SessionInvalid,
    StoreClosed,
    StoreLocked,
    TopicUnknown,
)

# By section of the help: each command, its module and its summary.
SECTIONS: dict[str, tuple[tuple[str, str, str], ...]] = {
    "Getting started": (
        ("demo", "demo.command", "Run the server, console, sample data and pipeline together."),
        ("serve", "server", "Run the server."),
        ("doctor", "doctor.command", "Diagnose server and pipeline, and suggest fixes."),
        ("login", "login", "Sign in and save the login as a profile."),
        ("logout", "login", "End a profile's session and delete the profile."),
        ("profiles", "login", "List saved profiles."),
        ("completion", "completion", "Print a shell completion script."),
    ),
    "Records": (
        ("query", "query", "Run a SOQL query and print all its records."),
        ("get", "records", "Print one record."),
        ("create", "records", "Create a record and print its id."),
        ("update", "records", "Update fields of a record."),
        ("upsert", "records", "Create or update a record by external id."),
        ("delete", "records", "Move records to the recycle bin."),
        ("describe", "records", "List objects, or the fields of an object."),
    ),
    "Events": (
        ("subscribe", "subscribe", "Print events of channels as they arrive."),
        ("publish", "publish", "Publish platform events or generic messages."),
        ("channels", "channels", "List the channels and what each one selects."),
        ("topics", "topics", "List, create and delete push topics."),
        ("status", "status", "Show open subscriptions, their lag and log retention."),
        ("pipeline", "pipeline", "Archive changes to a data lake with Spark."),
    ),
    "Administration": (
        ("apply", "apply", "Apply a YAML definition to an org."),
        ("user", "access", "Manage users."),
        ("permset", "access", "Manage permission sets."),
        ("session", "access", "List and revoke login sessions."),
        ("app", "access", "Manage connected apps."),
        ("archive", "database", "Archive old activities."),
        ("database", "database", "Change records below the API; subscribers get gap events."),
    ),
    "Operations": (
        ("init", "server", "Create a data directory with an org and an administrator."),
        ("ca", "server", "Print the path of the server's CA certificate."),
        ("org", "org", "Create, list and remove orgs."),
        ("backup", "backup", "Back up an org to one file, while the server runs."),
        ("restore", "backup", "Restore an org from a backup."),
        ("upgrade", "backup", "Upgrade the orgs of a stopped server to this release."),
        ("bench", "bench", "Run a benchmark of this checkout."),
    ),
}
_MODULES = {name: module for commands in SECTIONS.values() for name, module, _ in commands}

_START = (
    "is the server running? Start one with `tidewire serve --dev`, name another with --url, "
    "or run `tidewire doctor`"
)
_SIGN_IN = "sign in again with `tidewire login`, or pass --username and --password"
_NO_CHANNEL = "run `tidewire channels` to list the channels"
_TRUST = "pass the server's CA certificate with --ca FILE (`tidewire ca` prints its path), or run `tidewire doctor`"
_REPLAY = "use `--replay -2` for all retained events, or `--replay -1` for new ones"
_NO_RIGHTS = "ask an administrator for the permissions, or sign in as another user"
_HINTS: dict[type[PlatformError], str] = {
    LoginFailed: "check --username and --password (append the security token if the user has one); see "
    "`tidewire login --help`",
    SessionInvalid: _SIGN_IN,
    AuthHeaderInvalid: _SIGN_IN,
    ServerUnreachable: _START,
    StoreClosed: _START,
    StoreLocked: "stop the other server, or use another directory with --data",
    DiskFull: "free space on the disk of the data directory",
    ChannelUnknown: _NO_CHANNEL,
    TopicUnknown: _NO_CHANNEL,
    ChannelForbidden: _NO_RIGHTS,
    AccessDenied: _NO_RIGHTS,
    ReplayIdExpired: _REPLAY,
    ReplayIdInvalid: _REPLAY,
    LimitExceeded: "run `tidewire status` to see what is in use",
}
_REST_HINTS = {
    "INVALID_TYPE": "run `tidewire describe` to list the objects",
    "NOT_FOUND": "check the name and the id; `tidewire describe` lists the objects",
    "INVALID_FIELD": "run `tidewire describe OBJECT` to list the fields",
    "INVALID_FIELD_FOR_INSERT_UPDATE": "run `tidewire describe OBJECT` to see which fields can be set",
    "REQUIRED_FIELD_MISSING": "pass the missing fields as NAME=VALUE; `tidewire describe OBJECT` lists them",
    "INSUFFICIENT_ACCESS": "sign in as a user with the permission, with `tidewire login`",
    "API_DISABLED_FOR_ORG": "the user needs the permission API Enabled",
}


class _Commands(click.Group):
    """All commands by name, imported on first use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return every name."""
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import and return a command, or None for an unknown name."""
        module = _MODULES.get(cmd_name)
        if module is None:
            return None
        command: click.Command = getattr(import_module(f"tidewire.cli.{module}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Resolve the command of the arguments. Raises click.UsageError with similar names for an unknown one."""
        name = args[0]
        if name not in _MODULES and not name.startswith("-") and not ctx.resilient_parsing:
            near = get_close_matches(name, _MODULES, n=3)
            meant = f" Did you mean {' or '.join(near)}?" if near else ""
            raise click.UsageError(f"No such command '{name}'.{meant}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands by section."""
        for title, commands in SECTIONS.items():
            with formatter.section(title):
                formatter.write_dl([(name, summary) for name, _, summary in commands])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete command names and the group's own flags."""
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
    """Tidewire: a self-hosted event streaming server for Salesforce clients."""


def find_hint(error: PlatformError) -> str:
    """Return one line on how to fix an error, empty if its message already says so."""
    if isinstance(error, ServerUnreachable) and "CERTIFICATE_VERIFY_FAILED" in error.message:
        return _TRUST
    if error.details.keys() & {"lake", "query"}:
        return ""  # errors of the pipeline name the fix themselves
    if isinstance(error, ConfigInvalid) and "cannot listen" in error.message:
        flag = "--" + str(error.details.get("setting", "http")).replace("_", "-")
        return f"run `tidewire doctor` to see which process uses the port, or choose another with {flag} HOST:PORT"
    if isinstance(error, RequestRefused):
        return _REST_HINTS.get(str(error.details.get("error_code", "")), "")
    return _HINTS.get(type(error), "")


def main() -> None:
    """Run a command; print an error of ours as one line with a hint, without a stack trace."""
    # None lets click decide by whether the output is a terminal.
    colour = False if os.environ.get("NO_COLOR") else None
    try:
        cli(prog_name="tidewire", color=colour)
    except PlatformError as error:
        message, hint = f"{error.message} [{error.code}]", find_hint(error)
    except OSError as error:
        # Refused by the machine, such as a directory without write permission or a missing file.
        message = f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
        hint = "run `tidewire doctor` to find the cause"
    else:
        return
    click.echo(click.style("error:", fg="red") + f" {message}", err=True, color=colour)
    if hint:
        click.echo(f"hint: {hint}", err=True)
    sys.exit(2)
