"""`tidewire org`: the orgs of a data directory. A server may be running on it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import click

from tidewire.cli.output import examples, json_option, show, show_table
from tidewire.clock import SystemClock
from tidewire.config import Settings, load_settings

_COLUMNS = ("org_id", "name", "is_first", "users", "apps", "layout", "place")


def _place_options(command: Callable[..., Any]) -> Callable[..., Any]:
    command = click.option("--store", default=None, help="sqlite or postgresql://..., as `serve` takes it")(
        command
    )
    return click.option("--data", default=None, help="the server's data directory")(command)


def _settings(data: str | None, store: str | None) -> Settings:
    return load_settings({"data": data, "store": store, "dev": False})


@click.group(epilog=examples("tidewire org list", "tidewire org COMMAND --help"))
def org() -> None:
    """Orgs: made, listed and removed. Each has users, records and events of its own."""


@org.command("create", epilog=examples("tidewire org create --name Acme --username admin@acme.example"))
@click.option("--name", required=True, help="the org's name")
@click.option(
    "--username", required=True, help="its administrator; no other org of the server may have the name"
)
@_place_options
@json_option
def create(name: str, username: str, data: str | None, store: str | None, as_json: bool) -> None:
    """Make another org, with an administrator whose password is printed once."""
    from tidewire.server.org_admin import (
        create_additional_org,  # here as below: help does not wait for the server
    )

    org_id, password = asyncio.run(
        create_additional_org(_settings(data, store), SystemClock(), name, username)
    )
    made = {"org_id": org_id, "username": username, "password": password}
    text = f"org: {org_id}\nusername: {username}\npassword: {password}\nThis password is not shown again."
    show(made, as_json=as_json, text=text)


@org.command("list", epilog=examples("tidewire org list --data ./data/server"))
@_place_options
@json_option
def list_all(data: str | None, store: str | None, as_json: bool) -> None:
    """List the orgs, the first one first."""
    from tidewire.server.org_admin import list_orgs

    rows = [asdict(found) for found in list_orgs(_settings(data, store))]
    show_table(rows, _COLUMNS, as_json=as_json)


@org.command("show", epilog=examples("tidewire org show 00DTW000008M0kX2AS"))
@click.argument("org_id")
@_place_options
@json_option
def show_one(org_id: str, data: str | None, store: str | None, as_json: bool) -> None:
    """Show one org."""
    from tidewire.server.org_admin import show_org

    found = asdict(show_org(_settings(data, store), org_id))
    if as_json:
        show(found, as_json=True, text="")
    else:
        show_table(
            [{"what": name, "value": found[name]} for name in _COLUMNS], ("what", "value"), as_json=False
        )


@org.command("remove", epilog=examples("tidewire org remove 00DTW000008M0kX2AS --yes"))
@click.argument("org_id")
@click.option("--yes", is_flag=True, help="do it: records, events and users of the org are gone for good")
@_place_options
def remove(org_id: str, yes: bool, data: str | None, store: str | None) -> None:
    """Remove an org for good. Back it up first: nothing brings it back."""
    from tidewire.server.org_admin import remove_org, show_org

    settings = _settings(data, store)
    if not yes:
        found = show_org(settings, org_id)
        raise click.ClickException(
            f"org {found.org_id} ({found.name}) has {found.users} users; say --yes to remove it for good"
        )
    remove_org(settings, org_id)
    click.echo(f"org {org_id} is removed")
