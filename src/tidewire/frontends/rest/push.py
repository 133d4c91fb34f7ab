"""`sobjects/StreamingChannel/<id>/push`: list the subscribers of a generic channel, and push events to them."""

from __future__ import annotations

from tidewire.errors import BodyMalformed, RequiredFieldMissing
from tidewire.frontends.rest.calls import Api, ApiCall, Route, object_in_path, render_answer
from tidewire.frontends.rest.xml_bodies import parse_body
from tidewire.matching.generic import FIRST_VERSION, PushEvent
from tidewire.transport.http import HttpResponse


async def show_subscribers(api: Api, call: ApiCall) -> HttpResponse:
    """Return the channel's name and its online users."""
    (channel_id,) = call.arguments
    with object_in_path:
        name, online = await api.generic.list_online(api.gate, call.principal, channel_id)
    return render_answer(api, call, 200, {"OnlineUserIds": online, "ChannelName": name})


async def push_events(api: Api, call: ApiCall) -> HttpResponse:
    """Push events to all subscribers, or to the users that each event names."""
    (channel_id,) = call.arguments
    events = _parse_events(parse_body(call.request))
    with object_in_path:
        results = await api.generic.push(api.gate, call.principal, channel_id, events)
    body = [{"fanoutCount": r.fanout_count, "userOnlineStatus": r.online} for r in results]
    return render_answer(api, call, 200, body)


def _parse_events(body: dict[str, object]) -> list[PushEvent]:
    _check_names(body, "pushEvents")
    if body.get("pushEvents") is None:
        raise RequiredFieldMissing("Required fields are missing: [pushEvents]", fields=["pushEvents"])
    return [_parse_event(item) for item in _items(body["pushEvents"])]


def _parse_event(item: object) -> PushEvent:
    if not isinstance(item, dict):
        raise BodyMalformed("Each of pushEvents must be an object with payload and userIds")
    _check_names(item, "payload", "userIds")
    payload = item.get("payload")
    if payload is None:
        raise RequiredFieldMissing("Required fields are missing: [payload]", fields=["payload"])
    user_ids = _items(item.get("userIds"))
    if not isinstance(payload, str) or not all(isinstance(user_id, str) for user_id in user_ids):
        raise BodyMalformed("payload must be text, and userIds a list of ids")
    return PushEvent(payload, tuple(str(user_id) for user_id in user_ids))


def _items(value: object) -> list[object]:
    """Return a list. In XML a single element is a list of one, and an empty element an empty list."""
    if value is None or value == "":
        return []
    return value if isinstance(value, list) else [value]


def _check_names(given: dict[str, object], *known: str) -> None:
    unknown = [name for name in given if name not in known]
    if unknown:
        raise BodyMalformed(f'Unrecognized field "{unknown[0][:80]}"')


ROUTES: tuple[Route[Api], ...] = (
    Route(
        ("sobjects", "StreamingChannel", "*", "push"),
        {"GET": show_subscribers, "POST": push_events},
        since=int(FIRST_VERSION),
        xml_root="StreamingChannelPush",
    ),
)
