"""`tidewire topics`: manage push topics, stored queries whose matching changes are notified."""

from __future__ import annotations

from typing import Any

import click

from tidewire.cli.client_options import Connection, connection_options, version_option
from tidewire.cli.output import examples, json_option, show, show_table
from tidewire.client.rest import RestClient

OPERATIONS = ("Create", "Update", "Delete", "Undelete")
_COLUMNS = ("name", "is_active", "tells_of", "if_changed", "query")
_HEADINGS = {"is_active": "active", "tells_of": "operations", "if_changed": "fields"}


@click.group(invoke_without_command=True, epilog=examples("tidewire topics", "tidewire topics --json"))
@json_option
@version_option
@connection_options
@click.pass_context
def topics(context: click.Context, as_json: bool, api_version: str, connection: Connection) -> None:
    """List, create and delete push topics.

    Without a command, lists each topic with its operations, the fields that trigger updates, and its query.
    """
    if context.invoked_subcommand is None:
        rows = list_topics(connection.rest(api_version))
        show_table(rows, _COLUMNS, as_json=as_json, headings=_HEADINGS)


def list_topics(client: RestClient) -> list[dict[str, Any]]:
    """List the push topics visible to the user, ordered by name."""
    flags = ", ".join(f"NotifyForOperation{word}" for word in OPERATIONS)
    soql = (
        f"SELECT Id, Name, Query, IsActive, ApiVersion, NotifyForFields, {flags} FROM PushTopic ORDER BY Name"  # noqa: S608  # SOQL, no input
    )
    return [
        {
            "name": row["Name"],
            "channel": f"/topic/{row['Name']}",
            "is_active": row["IsActive"],
            "tells_of": [word.lower() for word in OPERATIONS if row[f"NotifyForOperation{word}"]],
            "if_changed": row["NotifyForFields"],
            "query": row["Query"],
            "api_version": row["ApiVersion"],
            "id": row["Id"],
        }
        for row in client.query(soql)
    ]


@topics.command(
    "create",
    epilog=examples(
        'tidewire topics create BigAccounts "SELECT Id, Name FROM Account WHERE NumberOfEmployees > 100"',
        'tidewire topics create NewCases "SELECT Id, Subject FROM Case" --on create --fields All',
    ),
)
@click.argument("name")
@click.argument("query")
@click.option(
    "--on",
    "operations",
    multiple=True,
    type=click.Choice([word.lower() for word in OPERATIONS]),
    help="an operation to notify, repeatable (default: all)",
)
@click.option(
    "--fields",
    type=click.Choice(["All", "Referenced", "Select", "Where"]),
    default="Referenced",
    show_default=True,
    help="which fields must change for an update to be notified",
)
@click.option("--description", default="", help="a description")
@json_option
@version_option
@connection_options
def create(
    name: str,
    query: str,
    operations: tuple[str, ...],
    fields: str,
    description: str,
    as_json: bool,
    api_version: str,
    connection: Connection,
) -> None:
    """Create a push topic. Subscribe to it as /topic/NAME."""
    chosen = operations or tuple(word.lower() for word in OPERATIONS)
    values: dict[str, Any] = {
        "Name": name,
        "Query": query,
        "ApiVersion": float(api_version),
        "NotifyForFields": fields,
        **{f"NotifyForOperation{word}": word.lower() in chosen for word in OPERATIONS},
    }
    if description:
        values["Description"] = description
    topic_id = connection.rest(api_version).create("PushTopic", values)
    show(
        {"id": topic_id, "channel": f"/topic/{name}"},
        as_json=as_json,
        text=f"push topic {name} created; try: tidewire subscribe /topic/{name}",
    )


@topics.command("delete", epilog=examples("tidewire topics delete BigAccounts"))
@click.argument("name")
@connection_options
def delete(name: str, connection: Connection) -> None:
    """Delete a push topic."""
    client = connection.rest()
    found = [topic for topic in list_topics(client) if topic["name"].lower() == name.lower()]
    if not found:
        raise click.ClickException(f"no push topic {name}; `tidewire topics` lists them")
    client.delete("PushTopic", found[0]["id"])
    click.echo(f"push topic {found[0]['name']} deleted")
