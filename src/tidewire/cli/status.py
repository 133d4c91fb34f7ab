"""`tidewire status`: show open subscriptions, their lag and log retention."""

from __future__ import annotations

from typing import Any

import click

from tidewire.cli.client_options import ADMIN_PATH, Connection, connection_options
from tidewire.cli.output import examples, json_option, show, show_table
from tidewire.client.rest import RestClient
from tidewire.errors import RequestRefused

_STREAMS = ("topic", "username", "managed", "position", "pending", "lag", "client_id")
_MANAGED = ("name", "topic", "state", "is_read", "position", "lag")
_LOG = ("family", "events", "payload_bytes", "kept_hours")
_CLIENT_WORDS = {
    "bayeux": "Bayeux",
    "pubsub": "Pub/Sub streams",
}  # others are shown by their front end's name
_LIMITS = ("limit", "used", "of")
_STREAMING_WORDS = ("Streaming", "Event", "DailyApiRequests")


@click.command(epilog=examples("tidewire status", "tidewire status --json"))
@json_option
@connection_options
def status(as_json: bool, connection: Connection) -> None:
    """Show open subscriptions, their lag and log retention.

    Lag is counted in positions of the org's log; 0 means caught up. Needs the permission View Setup. For a server
    other than Tidewire, only its streaming limits are shown.
    """
    client = connection.rest()
    try:
        found = client.call("GET", f"{ADMIN_PATH}/status")
    except RequestRefused as error:
        if error.details.get("status") != 404:
            raise
        _show_limits(client, as_json=as_json)
        return
    if as_json:
        show(found, as_json=True, text="")
        return
    click.echo(f"log head: {found['head']}")
    if sessions := found.get("sessions"):
        counts = [f"{count} {_CLIENT_WORDS.get(name, name)}" for name, count in sessions.items()]
        click.echo(f"sessions: {', '.join(counts)}")
    if found.get("log"):
        click.echo("\nlog:")
        show_table(found["log"], _LOG, as_json=False)
    click.echo(f"\nstreams: {len(found['streams'])}")
    show_table(found["streams"], _STREAMS, as_json=False)
    click.echo(f"\nmanaged subscriptions: {len(found['managed'])}")
    show_table(found["managed"], _MANAGED, as_json=False)


def _show_limits(client: RestClient, *, as_json: bool) -> None:
    limits: dict[str, dict[str, Any]] = client.call("GET", f"{client.data_path}/limits")
    rows = [
        {"limit": name, "used": each["Max"] - each["Remaining"], "of": each["Max"]}
        for name, each in sorted(limits.items())
        if any(word in name for word in _STREAMING_WORDS)
    ]
    show_table(rows, _LIMITS, as_json=as_json)
