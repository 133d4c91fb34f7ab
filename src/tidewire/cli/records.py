"""`tidewire get`, `create`, `update`, `upsert`, `delete` and `describe`: work with single records."""

from __future__ import annotations

import click

from tidewire.cli.client_options import Connection, connection_options, version_option
from tidewire.cli.field_values import parse_fields, parse_pair
from tidewire.cli.output import (
    examples,
    flat_record,
    json_option,
    plain_record,
    progress,
    show,
    show_fields,
    show_table,
)
from tidewire.cli.suggestions import suggesting
from tidewire.errors import PlatformError

_FIELDS = click.argument("arguments", metavar="NAME=VALUE...", nargs=-1)


@click.command(
    epilog=examples(
        "tidewire get Account 001TW0000000001YAA",
        "tidewire get Account 001TW0000000001YAA --fields Name,Phone --json",
        "tidewire get Account Account_Number__c/A-1",
    )
)
@click.argument("entity", metavar="OBJECT")
@click.argument("record_id", metavar="ID")
@click.option("--fields", default="", help="comma-separated field names (default: all)")
@json_option
@version_option
@connection_options
def get(
    entity: str, record_id: str, fields: str, as_json: bool, api_version: str, connection: Connection
) -> None:
    """Print one record.

    ID is a record id, or FIELD/VALUE of an external id.
    """
    client = connection.rest(api_version)
    key, sign, value = record_id.partition("/")
    with suggesting(client, entity):
        found = client.read_by(entity, key, value, fields) if sign else client.read(entity, record_id, fields)
    record = plain_record(found)
    show_fields(record if as_json else flat_record(record), as_json=as_json)


@click.command(
    epilog=examples(
        "tidewire create Account Name=Acme Phone=5551234",
        'tidewire create Account \'{"Name": "Acme", "NumberOfEmployees": 12}\'',
        "tidewire create Contact LastName=Li AccountId=001TW0000000001YAA --json",
        "tidewire create Account @account.json",
    )
)
@click.argument("entity", metavar="OBJECT")
@_FIELDS
@json_option
@version_option
@connection_options
def create(
    entity: str, arguments: tuple[str, ...], as_json: bool, api_version: str, connection: Connection
) -> None:
    """Create a record and print its id.

    Pass fields as NAME=VALUE, as a JSON object, as @FILE with a JSON object, or as - to read one from standard input.
    """
    fields = parse_fields(arguments)
    client = connection.rest(api_version)
    with suggesting(client, entity):
        record_id = client.create(entity, fields)
    show({"id": record_id}, as_json=as_json, text=record_id)


@click.command(
    epilog=examples(
        "tidewire update Account 001TW0000000001YAA Phone=5551234 Fax=",
        "tidewire update Account 001TW0000000001YAA '{\"NumberOfEmployees\": 13}'",
    )
)
@click.argument("entity", metavar="OBJECT")
@click.argument("record_id", metavar="ID")
@_FIELDS
@json_option
@version_option
@connection_options
def update(
    entity: str,
    record_id: str,
    arguments: tuple[str, ...],
    as_json: bool,
    api_version: str,
    connection: Connection,
) -> None:
    """Update fields of a record.

    Pass fields as for `tidewire create`; NAME= clears a field.
    """
    fields = parse_fields(arguments)
    if not fields:
        raise click.UsageError("no fields: pass the fields to update as NAME=VALUE")
    client = connection.rest(api_version)
    with suggesting(client, entity):
        client.update(entity, record_id, fields)
    show({"id": record_id}, as_json=as_json, text=f"{record_id} updated")


@click.command(
    epilog=examples(
        "tidewire upsert Account Account_Number__c=A-1 Name=Acme",
        'tidewire upsert Account Account_Number__c=A-1 \'{"Name": "Acme"}\' --json',
    )
)
@click.argument("entity", metavar="OBJECT")
@click.argument("key", metavar="EXTERNAL_ID=VALUE")
@_FIELDS
@json_option
@version_option
@connection_options
def upsert(
    entity: str,
    key: str,
    arguments: tuple[str, ...],
    as_json: bool,
    api_version: str,
    connection: Connection,
) -> None:
    """Create or update a record by external id."""
    name, value = parse_pair(key)
    if value is None:
        raise click.UsageError(f"{name} needs a value")
    fields = parse_fields(arguments)
    client = connection.rest(api_version)
    with suggesting(client, entity):
        answer = client.upsert(entity, name, value, fields)
    word = "created" if answer["created"] else "updated"
    show(answer, as_json=as_json, text=f"{answer['id']} {word}")


@click.command(
    epilog=examples(
        "tidewire delete Account 001TW0000000001YAA",
        "tidewire delete Account 001TW0000000001YAA 001TW0000000002YAA",
    )
)
@click.argument("entity", metavar="OBJECT")
@click.argument("record_ids", metavar="ID...", nargs=-1, required=True)
@json_option
@version_option
@connection_options
def delete(
    entity: str, record_ids: tuple[str, ...], as_json: bool, api_version: str, connection: Connection
) -> None:
    """Move records to the recycle bin.

    A record that cannot be deleted does not stop the others; errors are listed at the end.
    """
    client = connection.rest(api_version)
    done: list[str] = []
    failed: dict[str, PlatformError] = {}
    with progress(len(record_ids), "deleting") as step:
        for record_id in record_ids:
            try:
                client.delete(entity, record_id)
                done.append(record_id)
            except PlatformError as error:
                if error.retryable:
                    raise
                failed[record_id] = error
            step(1)
    if len(failed) == len(record_ids) == 1:
        raise next(iter(failed.values()))
    show({"deleted": done}, as_json=as_json, text="\n".join(f"{each} deleted" for each in done))
    for record_id, reason in failed.items():
        click.echo(f"error: {record_id}: {reason.message}", err=True)
    if failed:
        raise click.exceptions.Exit(1)


@click.command(
    epilog=examples("tidewire describe", "tidewire describe Account", "tidewire describe Account --json")
)
@click.argument("entity", metavar="[OBJECT]", required=False, default="")
@json_option
@version_option
@connection_options
def describe(entity: str, as_json: bool, api_version: str, connection: Connection) -> None:
    """List objects, or the fields of an object."""
    client = connection.rest(api_version)
    with suggesting(client, entity):
        described = client.describe(entity)
    if as_json:
        show(described, as_json=True, text="")
        return
    if not entity:
        rows = [
            {"object": each["name"], "label": each["label"], "prefix": each["keyPrefix"]}
            for each in described["sobjects"]
        ]
        show_table(rows, ("object", "label", "prefix"), as_json=False)
        return
    rows = [
        {
            "field": field["name"],
            "label": field["label"],
            "type": _type_of(field),
            "required": field["createable"] and not field["nillable"] and not field["defaultedOnCreate"],
            "can_set": " ".join(word for word in ("createable", "updateable") if field[word]),
        }
        for field in described["fields"]
    ]
    show_table(rows, ("field", "label", "type", "required", "can_set"), as_json=False)


def _type_of(field: dict[str, object]) -> str:
    """Return a field's type with its referenced objects, or with its length."""
    kind = str(field["type"])
    targets = field.get("referenceTo")
    if isinstance(targets, list) and targets:
        return f"{kind}({', '.join(map(str, targets))})"
    return f"{kind}({field['length']})" if field.get("length") and kind != "id" else kind
