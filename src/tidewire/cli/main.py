"""The command line."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import uvloop
import yaml

from tidewire import __version__
from tidewire.client.login import Credentials
from tidewire.client.login import login as sign_in
from tidewire.client.rest import RestClient
from tidewire.clock import SystemClock
from tidewire.config import (
    DEV_CLIENT_ID,
    DEV_CLIENT_SECRET,
    DEV_PASSWORD,
    DEV_USERNAME,
    Settings,
    load_settings,
)
from tidewire.errors import PlatformError
from tidewire.server.bootstrap import draw_password
from tidewire.server.core import open_core
from tidewire.server.run import serve as run_server
from tidewire.telemetry import configure_logging

_CLICK_TYPES = {"str": str, "int": int, "float": float, "bool": bool}


def _setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """One flag for each setting, all without a default so that file and environment can speak."""
    for f in reversed(fields(Settings)):
        flag = "--" + f.name.replace("_", "-")
        help_text = f"{f.metadata['help']} (default {f.default!r})"
        if f.type == "bool":
            command = click.option(flag, is_flag=True, default=None, help=help_text)(command)
        else:
            command = click.option(flag, type=_CLICK_TYPES[str(f.type)], default=None, help=help_text)(
                command
            )
    return command


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="tidewire")
def cli() -> None:
    """Tidewire: an event streaming server for Salesforce clients, on your own machine."""


@cli.command()
@_setting_options
def serve(**flags: Any) -> None:
    """Run the server until it is told to stop.

    Prints one JSON line on standard output when every listener is open.

    Example: tidewire serve --dev --data ./data/server
    """
    settings = load_settings(flags)
    configure_logging(settings.log_level)
    sys.exit(uvloop.run(run_server(settings)))


@cli.command()
@click.option("--data", default=None, help="the data directory to make")
@click.option(
    "--username", default="admin@example.org", show_default=True, help="the administrator's user name"
)
def init(data: str | None, username: str) -> None:
    """Make an org in a new data directory, with an administrator whose password is printed once."""
    settings = load_settings({"data": data, "dev": False})
    password = draw_password()

    async def make() -> None:
        core = await open_core(settings, SystemClock(), admin=(username, password))
        await core.close()

    if (Path(settings.data) / "org.db").exists():
        raise click.ClickException(f"{settings.data} holds an org already")
    asyncio.run(make())
    click.echo(f"username: {username}\npassword: {password}\nThis password is not shown again.")


@cli.command()
@click.option("--data", default=None, help="the server's data directory")
def ca(data: str | None) -> None:
    """Print the path of the certificate that clients must trust for HTTPS and gRPC over TLS."""
    settings = load_settings({"data": data})
    path = Path(settings.data) / "tls" / "ca.pem"
    if not path.exists():
        raise click.ClickException(f"{path} does not exist yet; start the server once")
    click.echo(path.resolve())


def _client_options(command: Callable[..., Any]) -> Callable[..., Any]:
    for name, default, help_text in reversed(
        (
            ("url", "http://localhost:8080", "where the server answers HTTP"),
            ("username", DEV_USERNAME, "who to sign in as"),
            ("password", DEV_PASSWORD, "the user's password"),
            ("client-id", DEV_CLIENT_ID, "connected app"),
            ("client-secret", DEV_CLIENT_SECRET, "its secret"),
        )
    ):
        variable = "TIDEWIRE_" + name.upper().replace("-", "_")
        command = click.option("--" + name, default=default, envvar=variable, help=help_text)(command)
    return command


@cli.command()
@click.option(
    "-f", "--file", "path", required=True, type=click.Path(exists=True, dir_okay=False), help="YAML or JSON"
)
@click.option("--dry-run", is_flag=True, help="show the plan only")
@_client_options
def apply(
    path: str, dry_run: bool, url: str, username: str, password: str, client_id: str, client_secret: str
) -> None:
    """Bring an org to what a definition file says: objects, events, users, permission sets, push topics.

    Example: tidewire apply -f examples/invoices.yaml
    """
    try:
        document = yaml.safe_load(Path(path).read_text("utf-8"))
    except yaml.YAMLError as error:
        raise click.ClickException(f"{path} is not YAML: {error}") from error
    session = sign_in(Credentials(url, username, password, client_id, client_secret))
    suffix = "?dryRun=true" if dry_run else ""
    answer = RestClient(session).call("POST", "/services/tidewire/v1/apply" + suffix, document)
    for line in answer["plan"]:
        click.echo(line)
    if not answer["plan"]:
        click.echo("nothing to do")
    elif dry_run:
        click.echo("not applied (dry run)")


@cli.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, arguments: tuple[str, ...]) -> None:
    """Measure this checkout beside a peer in the same run, for example: tidewire bench path --json"""
    script = Path(__file__).resolve().parents[2] / "benchmarks" / f"{name}.py"
    if not script.exists():
        known = sorted(p.stem for p in script.parent.glob("[a-z]*.py")) if script.parent.exists() else []
        raise click.ClickException(f"there is no benchmark {name}; known: {', '.join(known) or 'none'}")
    import subprocess

    sys.exit(subprocess.run([sys.executable, str(script), *arguments], check=False).returncode)


def main() -> None:
    """Entry point: errors of ours become one line and a status, never a stack."""
    try:
        cli(standalone_mode=True)
    except PlatformError as error:
        click.echo(json.dumps({"event": "error", "code": error.code, "message": error.message}), err=True)
        sys.exit(2)


if __name__ == "__main__":
    main()
