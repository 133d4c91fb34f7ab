"""One event on one line: coloured for a person, or JSON for a program."""

from __future__ import annotations

import json
from typing import Any

import click

from tidewire.cli.output import printable
from tidewire.client.pubsub_messages import DecodedEvent, replay_number

COLOURS = ("auto", "always", "never")
_HEADER = "ChangeEventHeader"
_KINDS = {"created": "green", "updated": "yellow", "deleted": "red", "undeleted": "green"}
_CHANGE_KINDS = {"CREATE": "green", "UPDATE": "yellow", "DELETE": "red", "UNDELETE": "green"}
_GAP = "magenta"


def wants_colour(choice: str) -> bool | None:
    """What `--color` asks for; None leaves it to NO_COLOR and to whether a terminal reads."""
    return None if choice == "auto" else choice == "always"


def json_line(channel: str, data: dict[str, Any]) -> str:
    """An event as one line of JSON."""
    return json.dumps({"channel": channel, "data": data})


def text_line(channel: str, replay_id: int | None, data: dict[str, Any]) -> str:
    """An event's replay id, its channel, what happened, and the record or payload it happened to."""
    kind, body = _outline(data)
    shown = "-" if replay_id is None else str(replay_id)
    line = click.style(shown, dim=True) + "  " + click.style(printable(channel), fg="cyan") + "  "
    if kind:
        colour = _KINDS.get(kind) or _CHANGE_KINDS.get(kind) or (_GAP if kind.startswith("GAP_") else None)
        line += click.style(printable(kind), fg=colour, bold=True) + " "
    return line + printable(body)


def _outline(data: dict[str, Any]) -> tuple[str, str]:
    event = data.get("event")
    kind = event.get("type") if isinstance(event, dict) else None
    body = data["payload"] if "payload" in data else data.get("sobject")
    about = ""
    if isinstance(body, dict) and isinstance(header := body.get(_HEADER), dict):
        kind = header.get("changeType")
        ids = header.get("recordIds")
        about = (
            " ".join([str(header.get("entityName")), *map(str, ids if isinstance(ids, list) else [])]) + " "
        )
        body = {name: value for name, value in body.items() if name != _HEADER}
    text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
    return str(kind) if kind else "", about + text


def decoded_data(event: DecodedEvent) -> dict[str, Any]:
    """An event of the Pub/Sub API in the form that CometD has for it, its field lists by name.

    Fields that a change event leaves out are left out here too.
    """
    payload = {name: _plain(value) for name, value in event.fields.items()}
    header = payload.get(_HEADER)
    if isinstance(header, dict):
        nulled = set(event.nulled_fields)
        payload = {name: value for name, value in payload.items() if value is not None or name in nulled}
        lists = {
            "changedFields": event.changed_fields,
            "nulledFields": event.nulled_fields,
            "diffFields": event.diff_fields,
        }
        payload[_HEADER] = header | lists
    return {
        "schema": event.schema.schema_id,
        "payload": payload,
        "event": {"replayId": replay_number(event.replay_id), "EventUuid": event.event_id},
    }


def _plain(value: Any) -> Any:
    """A decoded value as JSON can hold it."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
