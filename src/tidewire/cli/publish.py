"""`tidewire publish`: publish platform events, or messages to generic channels."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from itertools import islice
from typing import Any, TextIO

import click

from tidewire.cli.client_options import Connection, connection_options, endpoint_option, version_option
from tidewire.cli.field_values import Fields, iter_objects, parse_fields
from tidewire.cli.output import examples, iter_lines, json_option, printable, show
from tidewire.client.rest import RestClient

_EVENTS_PER_CALL = 200


@click.command(
    epilog=examples(
        "tidewire publish /event/Order_Event__e Order_Number__c=A-1 Amount__c=12.5",
        'tidewire publish /event/Order_Event__e \'{"Order_Number__c": "A-1"}\' --protocol pubsub',
        "tidewire publish /event/Order_Event__e --lines events.jsonl",
        'tidewire publish /u/Broadcast "Lunch is ready"',
        'tidewire publish /u/Broadcast "For you only" --to 005TW0000000001YAA',
    )
)
@click.argument("channel")
@click.argument("arguments", metavar="[NAME=VALUE|JSON|MESSAGE]...", nargs=-1)
@click.option(
    "--lines", type=click.File("r", encoding="utf-8"), help="file with one event per line; - is stdin"
)
@click.option(
    "--to",
    "user_ids",
    multiple=True,
    help="id of a user to send a message to, repeatable (default: all subscribers)",
)
@click.option(
    "--protocol",
    type=click.Choice(["rest", "pubsub"]),
    default="rest",
    show_default=True,
    help="protocol for platform events",
)
@json_option
@version_option
@endpoint_option
@connection_options
def publish(
    channel: str,
    arguments: tuple[str, ...],
    lines: TextIO | None,
    user_ids: tuple[str, ...],
    protocol: str,
    as_json: bool,
    api_version: str,
    endpoint: str,
    connection: Connection,
) -> None:
    """Publish platform events, or messages to a generic channel.

    Pass a platform event's fields as NAME=VALUE or as a JSON object, or one object per line with --lines. A generic
    channel takes text messages, one per line with --lines.
    """
    if bool(arguments) == (lines is not None):
        raise click.UsageError("pass an event, or --lines FILE with one event per line")
    given = None if lines is None else iter_lines(lines, "publishing")
    if channel.startswith("/u/"):
        texts = (line.rstrip("\n") for line in given) if given is not None else iter([" ".join(arguments)])
        _push(connection.rest(api_version), channel, texts, user_ids, as_json=as_json)
        return
    entity = channel.removeprefix("/event/")
    if "/" in entity or not entity or user_ids:
        raise click.UsageError(
            "CHANNEL must be /event/NAME__e, or /u/NAME for a message; --to is for messages only"
        )
    events = iter_objects(given) if given is not None else iter([parse_fields(arguments)])
    results: list[dict[str, Any]] = []
    try:
        if protocol == "pubsub":
            asyncio.run(_publish_pubsub(connection, endpoint, f"/event/{entity}", events, results))
        else:
            _publish_rest(connection.rest(api_version), entity, events, results)
    except Exception:
        if results:  # so that a retry does not publish them again
            click.echo(f"{_count(results)} published before the error:", err=True)
        raise
    show(results, as_json=as_json, text=_summary(results))


def _push(
    client: RestClient, channel: str, texts: Iterator[str], user_ids: tuple[str, ...], *, as_json: bool
) -> None:
    quoted = channel.replace("\\", "\\\\").replace("'", "\\'")
    soql = f"SELECT Id FROM StreamingChannel WHERE Name = '{quoted}'"  # noqa: S608  # SOQL, quoted
    found = client.query(soql)
    if not found:
        raise click.ClickException(
            f"no channel {channel}; create it with: tidewire create StreamingChannel Name={channel}"
        )
    path = f"{client.data_path}/sobjects/StreamingChannel/{found[0]['Id']}/push"
    sent = fanout = 0
    while texts_now := list(islice(texts, _EVENTS_PER_CALL)):
        body = {"pushEvents": [{"payload": text, "userIds": list(user_ids)} for text in texts_now]}
        results = client.call("POST", path, body)
        sent += len(results)
        fanout += sum(max(0, result["fanoutCount"]) for result in results if user_ids)
    target = f"{fanout} subscribers" if user_ids else "all subscribers"
    show({"sent": sent}, as_json=as_json, text=f"{sent} message{'' if sent == 1 else 's'} sent to {target}")


def _publish_rest(
    client: RestClient, entity: str, events: Iterable[Fields], results: list[dict[str, Any]]
) -> None:
    for fields in events:
        answer = client.call("POST", f"{client.data_path}/sobjects/{entity}", fields)
        results.append({"id": answer["id"], "event_id": _event_uuid(answer)})


def _event_uuid(answer: dict[str, Any]) -> str | None:
    """Return the event's UUID, which servers put in the list of errors."""
    queued = [each for each in answer.get("errors", []) if each.get("statusCode") == "OPERATION_ENQUEUED"]
    return str(queued[0]["message"]) if queued else None


async def _publish_pubsub(
    connection: Connection, endpoint: str, topic: str, events: Iterator[Fields], results: list[dict[str, Any]]
) -> None:
    from tidewire.client.pubsub import PubSubClient  # gRPC takes longer to load than most commands run

    address, roots = await connection.reach_pubsub(endpoint)
    async with PubSubClient(address, connection.signing_in_with_org(), tls_ca=roots) as client:
        schema_id = (await client.get_topic(topic)).schema_id
        kinds = _avro_kinds((await client.get_schema(schema_id)).json) if schema_id else {}
        tried = 0
        while now := [_typed(fields, kinds) for fields in islice(events, _EVENTS_PER_CALL)]:
            answers = await client.publish(topic, now)
            # A rejected event does not stop the others of its request.
            results += [{"event_id": a.event_id, "replay_id": a.replay_id} for a in answers if not a.error]
            rejected = [(n, a.error) for n, a in enumerate(answers, tried + 1) if a.error]
            if rejected:
                raise click.ClickException("\n".join(f"event {n}: {printable(why)}" for n, why in rejected))
            tried += len(answers)


def _avro_kinds(schema_json: str) -> dict[str, str]:
    """Return the primitive type of each field of a schema, without null."""
    kinds: dict[str, str] = {}
    for field in json.loads(schema_json)["fields"]:
        choices = field["type"] if isinstance(field["type"], list) else [field["type"]]
        kinds[field["name"]] = next((str(each) for each in choices if each != "null"), "null")
    return kinds


def _typed(fields: Fields, kinds: dict[str, str]) -> Fields:
    """Convert texts of `NAME=VALUE` to the types of the schema. Invalid ones stay, for the server to reject."""
    typed = dict(fields)
    for name, value in fields.items():
        kind = kinds.get(name)
        if not isinstance(value, str):
            typed[name] = float(value) if kind == "double" and isinstance(value, int) else value
            continue
        with suppress(ValueError, KeyError):
            if kind == "boolean":
                typed[name] = {"true": True, "false": False}[value.lower()]
            elif kind in ("int", "long"):
                typed[name] = int(value)
            elif kind in ("float", "double"):
                typed[name] = float(value)
    return typed


def _summary(results: list[dict[str, Any]]) -> str:
    event_id = results[0].get("event_id") if len(results) == 1 else None
    return f"{_count(results)} published" + (f": {event_id}" if event_id else "")


def _count(results: list[dict[str, Any]]) -> str:
    return f"{len(results)} event{'' if len(results) == 1 else 's'}"
