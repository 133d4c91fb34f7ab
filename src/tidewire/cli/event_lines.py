"""Render an event on one line: coloured text for people, or JSON for programs."""

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
    """Parse `--color`; None means decide by NO_COLOR and by whether the output is a terminal."""
    return None if choice == "auto" else choice == "always"


def json_line(channel: str, data: dict[str, Any]) -> str:
    """Render an event as one line of JSON."""
    return json.dumps({"channel": channel, "data": data})


def text_line(channel: str, replay_id: int | None, data: dict[str, Any]) -> str:
    """Render an event's replay id, channel, kind of change, and record or payload."""
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
    """Convert an event of the Pub/Sub API to the CometD format, with field lists by name.

    Fields that a change event omits are omitted here too.
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
    """Convert a decoded value to a JSON value."""
    if isinstance(value, bytes):
        return value.hex()
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)
