"""`tidewire status`: what a running server streams to whom, and how far each has come."""

from __future__ import annotations

import click

from tidewire.cli.client_options import credentials_options
from tidewire.cli.output import json_option, show, show_table
from tidewire.client.login import Credentials, login
from tidewire.client.rest import RestClient

_STREAMS = ("topic", "username", "managed", "position", "pending", "lag", "client_id")
_MANAGED = ("name", "topic", "state", "is_read", "position", "lag")


@click.command()
@json_option
@credentials_options
def status(as_json: bool, credentials: Credentials) -> None:
    """Show the open Pub/Sub streams and the managed subscriptions of an org, with their lag.

    Lag is in positions of the org's log; 0 is caught up. Needs View Setup.
    """
    found = RestClient(login(credentials)).call("GET", "/services/tidewire/v1/status")
    if as_json:
        show(found, as_json=True, text="")
        return
    click.echo(f"log head: {found['head']}")
    click.echo(f"\nstreams: {len(found['streams'])}")
    show_table(found["streams"], _STREAMS, as_json=False)
    click.echo(f"\nmanaged subscriptions: {len(found['managed'])}")
    show_table(found["managed"], _MANAGED, as_json=False)
