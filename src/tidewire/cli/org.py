"""`tidewire org`: manage the orgs of a data directory. Its server may be running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from tidewire.cli.output import examples, json_option, show, show_fields, show_table
from tidewire.clock import SystemClock
from tidewire.config import Settings, load_settings

_COLUMNS = ("org_id", "name", "is_first", "users", "apps", "layout", "place")
_HEADINGS = {"is_first": "first", "place": "location"}


def _location_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--store", default=None, help="sqlite or postgresql://..., as `serve` takes it")(
        command
    )
    return click.option("--data", default=None, help="the server's data directory")(command)


def _settings(data: str | None, store: str | None) -> Settings:
    return load_settings({"data": data, "store": store, "dev": False})


@click.group(epilog=examples("tidewire org list", "tidewire org COMMAND --help"))
def org() -> None:
    """Create, list and remove orgs. Each org has its own users, records and events."""


@org.command("create", epilog=examples("tidewire org create --name Acme --username admin@acme.example"))
@click.option("--name", required=True, help="the org's name")
@click.option("--username", required=True, help="the administrator's username, unique on this server")
@_location_options
@json_option
def create(name: str, username: str, data: str | None, store: str | None, as_json: bool) -> None:
    """Create an org with an administrator, and print the password once."""
    # Imported here and below so that help stays fast.
    from tidewire.server.org_admin import create_additional_org

    org_id, password = asyncio.run(
        create_additional_org(_settings(data, store), SystemClock(), name, username)
    )
    created = {"org_id": org_id, "username": username, "password": password}
    text = f"org: {org_id}\nusername: {username}\npassword: {password}\nThis password is not shown again."
    show(created, as_json=as_json, text=text)


@org.command("list", epilog=examples("tidewire org list --data ./data/server"))
@_location_options
@json_option
def list_all(data: str | None, store: str | None, as_json: bool) -> None:
    """List the orgs, starting with the server's first."""
    from tidewire.server.org_admin import list_orgs

    rows = [asdict(found) for found in list_orgs(_settings(data, store))]
    show_table(rows, _COLUMNS, as_json=as_json, headings=_HEADINGS)


@org.command("show", epilog=examples("tidewire org show 00DTW000008M0kX2AS"))
@click.argument("org_id")
@_location_options
@json_option
def show_one(org_id: str, data: str | None, store: str | None, as_json: bool) -> None:
    """Show one org."""
    from tidewire.server.org_admin import show_org

    found = asdict(show_org(_settings(data, store), org_id))
    show_fields({name: found[name] for name in _COLUMNS}, as_json=as_json, headings=_HEADINGS)


@org.command("remove", epilog=examples("tidewire org remove 00DTW000008M0kX2AS --yes"))
@click.argument("org_id")
@click.option("--yes", is_flag=True, help="confirm: permanently delete the org's records, events and users")
@_location_options
def remove(org_id: str, yes: bool, data: str | None, store: str | None) -> None:
    """Permanently delete an org. Back it up first."""
    from tidewire.server.org_admin import remove_org, show_org

    settings = _settings(data, store)
    if not yes:
        found = show_org(settings, org_id)
        raise click.ClickException(
            f"org {found.org_id} ({found.name}) has {found.users} users; pass --yes to delete it permanently"
        )
    remove_org(settings, org_id)
    click.echo(f"org {org_id} removed")
