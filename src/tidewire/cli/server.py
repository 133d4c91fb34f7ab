"""`tidewire serve`, `init` and `ca`.

The server's modules are imported when it runs, so that help, completion and `ca` stay fast.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import click

from tidewire.cli.output import examples
from tidewire.clock import SystemClock
from tidewire.config import Settings, load_settings
from tidewire.telemetry import configure_logging

_CLICK_TYPES = {"str": str, "int": int, "float": float}


def _setting_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add a flag for each setting, without a default, so that file and environment apply."""
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


@click.command(epilog=examples("tidewire serve --dev --data ./data/server"))
@_setting_options
def serve(**flags: Any) -> None:
    """Run the server until SIGTERM or Ctrl-C.

    Prints one JSON line on standard output when all listeners are open.
    """
    settings = load_settings(flags)
    import uvloop

    from tidewire.server.run import serve as run_server

    configure_logging(settings.log_level, form=settings.log_format)
    sys.exit(uvloop.run(run_server(settings)))


@click.command(epilog=examples("tidewire init --data ./data/server --username ada@example.org"))
@click.option("--data", default=None, help="the data directory to create")
@click.option("--store", default=None, help="sqlite or postgresql://..., as `serve` takes it")
@click.option(
    "--username", default="admin@example.org", show_default=True, help="the administrator's username"
)
def init(data: str | None, store: str | None, username: str) -> None:
    """Create a data directory with an org and an administrator, and print the password once."""
    settings = load_settings({"data": data, "store": store, "dev": False})
    if settings.store == "sqlite" and (Path(settings.data) / "org.db").exists():
        raise click.ClickException(f"{settings.data} already contains an org")
    from tidewire.access.passwords import draw_password
    from tidewire.server.bootstrap import NewOrg
    from tidewire.server.core import open_core

    password = draw_password()

    async def create() -> None:
        core = await open_core(settings, SystemClock(), new=NewOrg(username, password))
        await core.close()

    asyncio.run(create())
    click.echo(f"username: {username}\npassword: {password}\nThis password is not shown again.")


@click.command(
    epilog=examples(
        "tidewire ca --data ./data/server",
        'curl --cacert "$(tidewire ca)" https://localhost:8443/services/data',
    )
)
@click.option("--data", default=None, help="the server's data directory")
def ca(data: str | None) -> None:
    """Print the path of the CA certificate that clients must trust for HTTPS and gRPC over TLS."""
    settings = load_settings({"data": data})
    path = Path(settings.data) / "tls" / "ca.pem"
    if not path.exists():
        raise click.ClickException(f"{path} does not exist yet; start the server once to create it")
    click.echo(path.resolve())
