"""`tidewire channels`: list the channels of all families and what each one selects."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from tidewire.cli.client_options import Connection, connection_options, version_option
from tidewire.cli.output import examples, json_option, printable, show_table
from tidewire.cli.topics import list_topics
from tidewire.client.rest import RestClient
from tidewire.errors import PlatformError

FAMILIES = ("push", "generic", "platform", "change")
_ALL_CHANGES = "ChangeEvents"
_CHANGE_SUFFIX = "ChangeEvent"
_EVENT_SUFFIXES = ("__e", "EventStream")

Row = dict[str, Any]


@click.command(
    epilog=examples(
        "tidewire channels",
        "tidewire channels --family change",
        "tidewire channels --json",
    )
)
@click.option("--family", type=click.Choice(FAMILIES), default=None, help="only channels of this family")
@json_option
@version_option
@connection_options
def channels(family: str | None, as_json: bool, api_version: str, connection: Connection) -> None:
    """List the channels and what each one selects.

    Includes push topics, generic channels, platform events, change events and custom channels.
    """
    client = connection.rest(api_version)
    rows: list[Row] = []
    for listing in (_push_topics, _generic, _platform_events, _with_members):
        rows += _try_list(listing, client)
    chosen = [row for row in rows if family in (None, row["family"])]
    show_table(
        sorted(chosen, key=lambda row: row["channel"]), ("channel", "family", "selects"), as_json=as_json
    )


def _try_list(listing: Callable[[RestClient], list[Row]], client: RestClient) -> list[Row]:
    """List one family. A user without access to it still gets the others."""
    try:
        return listing(client)
    except PlatformError as error:
        if error.retryable:
            raise
        click.echo(f"not listed: {printable(error.message)}", err=True)
        return []


def _push_topics(client: RestClient) -> list[Row]:
    return [
        {
            "channel": topic["channel"],
            "family": "push",
            "selects": topic["query"] if topic["is_active"] else f"(inactive) {topic['query']}",
            "tells_of": topic["tells_of"],
            "if_changed": topic["if_changed"],
        }
        for topic in list_topics(client)
    ]


def _generic(client: RestClient) -> list[Row]:
    found = client.query("SELECT Name FROM StreamingChannel ORDER BY Name")
    return [{"channel": row["Name"], "family": "generic", "selects": "messages sent to it"} for row in found]


def _platform_events(client: RestClient) -> list[Row]:
    events = [each for each in client.describe()["sobjects"] if each["name"].endswith(_EVENT_SUFFIXES)]
    return [
        {"channel": f"/event/{each['name']}", "family": "platform", "selects": f"{each['label']} events"}
        for each in events
    ]


def _with_members(client: RestClient) -> list[Row]:
    """List the standard change channel, each of its entities, and the custom channels with their members."""
    by_key: dict[str, list[Row]] = {}
    soql = "SELECT EventChannel, SelectedEntity, FilterExpression FROM PlatformEventChannelMember"
    for member in _tooling(client, soql):
        by_key.setdefault(str(member["EventChannel"]), []).append(member)
    rows = [_member_channel(f"/data/{_ALL_CHANGES}", "change", by_key.get(_ALL_CHANGES, []))]
    for member in by_key.get(_ALL_CHANGES, []):
        name = str(member["SelectedEntity"])
        entity = name.removesuffix(_CHANGE_SUFFIX).removesuffix("__") + ("__c" if "__" in name else "")
        rows.append({"channel": f"/data/{name}", "family": "change", "selects": f"changes of {entity}"})
    for channel in _tooling(client, "SELECT Id, DeveloperName, ChannelType FROM PlatformEventChannel"):
        name = str(channel["DeveloperName"]).removesuffix("__chn") + "__chn"
        is_data = str(channel["ChannelType"]).lower() == "data"
        # A member names its channel by id or by name, depending on the server.
        keys = (str(channel["Id"]), str(channel["Id"])[:15], name, str(channel["DeveloperName"]))
        members = [member for key in dict.fromkeys(keys) for member in by_key.get(key, [])]
        family = "change" if is_data else "platform"
        rows.append(_member_channel(f"/{'data' if is_data else 'event'}/{name}", family, members))
    return rows


def _member_channel(channel: str, family: str, members: list[Row]) -> Row:
    selected = []
    for member in members:
        condition = f" where {member['FilterExpression']}" if member.get("FilterExpression") else ""
        selected.append(f"{member['SelectedEntity']}{condition}")
    return {
        "channel": channel,
        "family": family,
        "selects": ", ".join(selected) or "nothing yet",
        "members": selected,
    }


def _tooling(client: RestClient, soql: str) -> list[Row]:
    return [row for page in client.iter_pages(soql, resource="tooling/query") for row in page.records]
