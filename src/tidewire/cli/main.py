"""The commands about the server itself, and the entry point."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click
import uvloop
import yaml

from tidewire import __version__
from tidewire.access.passwords import draw_password
from tidewire.cli.access import app, permset, session, user
from tidewire.cli.backup import backup, restore, upgrade
from tidewire.cli.client_options import credentials_options
from tidewire.cli.demo import run_demo
from tidewire.cli.org import org
from tidewire.cli.pipeline import pipeline
from tidewire.client.login import Credentials
from tidewire.client.login import login as sign_in
from tidewire.client.rest import RestClient
from tidewire.clock import SystemClock
from tidewire.config import Settings, load_settings
from tidewire.errors import PlatformError
from tidewire.server.core import NewOrg, open_core
from tidewire.server.run import serve as run_server
from tidewire.telemetry import configure_logging

_CLICK_TYPES = {"str": str, "int": int, "float": float}


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


cli.add_command(pipeline)
cli.add_command(backup)
cli.add_command(restore)
cli.add_command(upgrade)
for _group in (user, permset, session, app, org):
    cli.add_command(_group)


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
@click.option("--store", default=None, help="sqlite or postgresql://..., as `serve` takes it")
@click.option("--username", default="admin@example.org", show_default=True, help="the administrator")
def init(data: str | None, store: str | None, username: str) -> None:
    """Make an org in a new data directory, with an administrator whose password is printed once."""
    settings = load_settings({"data": data, "store": store, "dev": False})
    if settings.store == "sqlite" and (Path(settings.data) / "org.db").exists():
        raise click.ClickException(f"{settings.data} holds an org already")
    password = draw_password()

    async def make() -> None:
        core = await open_core(settings, SystemClock(), new=NewOrg(username, password))
        await core.close()

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


@cli.command()
@click.option("-f", "--file", "path", required=True, type=click.Path(exists=True, dir_okay=False))
@click.option("--dry-run", is_flag=True, help="show the plan only")
@credentials_options
def apply(path: str, dry_run: bool, credentials: Credentials) -> None:
    """Bring an org to what a YAML file says: objects, events, users, permission sets, push topics.

    Example: tidewire apply -f examples/invoices.yaml
    """
    try:
        document = yaml.safe_load(Path(path).read_text("utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise click.ClickException(f"{path} is not YAML: {error}") from error
    suffix = "?dryRun=true" if dry_run else ""
    client = RestClient(sign_in(credentials))
    answer = client.call("POST", "/services/tidewire/v1/apply" + suffix, document)
    for line in answer["plan"]:
        click.echo(line)
    for client_id, secret in answer["secrets"].items():
        click.echo(f"secret of {client_id}, not shown again: {secret}")
    if not answer["plan"]:
        click.echo("nothing to do")
    elif dry_run:
        click.echo("not applied (dry run)")


@cli.command()
@click.option("--data", default="data", show_default=True, help="where server and lake are kept")
@click.option("--http", default="127.0.0.1:8080", show_default=True, help="address of the page and REST")
@click.option("--https", default="127.0.0.1:8443", show_default=True, help="the same over TLS")
@click.option("--grpc", default="127.0.0.1:7011", show_default=True, help="address of the Pub/Sub API")
@click.option("--grpc-tls", default="127.0.0.1:7443", show_default=True, help="the same over TLS")
@click.option("--no-pipeline", is_flag=True, help="leave Spark out")
def demo(data: str, http: str, https: str, grpc: str, grpc_tls: str, no_pipeline: bool) -> None:
    """Run everything together: server, page, a little live activity, and the Spark pipeline.

    Ctrl-C stops it; the next run goes on where this one stopped.
    """
    addresses = {"--http": http, "--https": https, "--grpc": grpc, "--grpc-tls": grpc_tls}
    sys.exit(run_demo(Path(data), addresses, has_pipeline=not no_pipeline))


@cli.command(context_settings={"ignore_unknown_options": True})
@click.argument("name")
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def bench(name: str, arguments: tuple[str, ...]) -> None:
    """Measure this checkout beside a peer in the same run, for example: tidewire bench path --json"""
    directory = Path(__file__).resolve().parents[3] / "benchmarks"
    script = directory / f"{name}.py"
    if not script.exists():
        known = sorted(p.stem for p in directory.glob("[a-z]*.py"))
        raise click.ClickException(
            f"there is no benchmark {name!r}; known here: {', '.join(known) or 'none'}"
        )
    sys.exit(subprocess.run([sys.executable, str(script), *arguments], check=False).returncode)


def main() -> None:
    """Entry point: errors of ours become one line and a status, never a stack."""
    try:
        cli()
    except PlatformError as error:
        click.echo(f"error: {error.message} [{error.code}]", err=True)
        sys.exit(2)
