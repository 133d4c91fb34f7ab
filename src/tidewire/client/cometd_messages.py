"""The messages of a CometD client: requests, replies, advice and errors. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import orjson

from tidewire.errors import (
    ChannelForbidden,
    ChannelUnknown,
    ClientUnknown,
    LimitExceeded,
    PlatformError,
    ProtocolViolation,
    ReplayIdInvalid,
    RequestRefused,
    ServerUnreachable,
    SessionInvalid,
)

Message = dict[str, Any]

HANDSHAKE = "/meta/handshake"
CONNECT = "/meta/connect"
SUBSCRIBE = "/meta/subscribe"
UNSUBSCRIBE = "/meta/unsubscribe"
DISCONNECT = "/meta/disconnect"
LONG_POLLING = "long-polling"


@dataclass(frozen=True, slots=True)
class Advice:
    """The server's last advice: how to reconnect, after which interval, and how long it holds a connect.

    `reconnect` is `retry`, `handshake` or `none`.
    """

    reconnect: str = "retry"
    interval_ms: int = 0
    timeout_ms: int = 110_000


def render_messages(messages: Iterable[Message]) -> bytes:
    """Render a request body."""
    return orjson.dumps(list(messages))


def parse_messages(body: bytes) -> list[Message]:
    """Parse the messages of a response. Raises ProtocolViolation."""
    try:
        found = orjson.loads(body)
    except ValueError as error:
        raise ProtocolViolation("the server's response is not JSON") from error
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ProtocolViolation("the server's response is not a list of Bayeux messages")
    return found


def handshake_message() -> Message:
    """Return the request that opens a session and announces the replay extension."""
    return {
        "channel": HANDSHAKE,
        "version": "1.0",
        "minimumVersion": "1.0",
        "supportedConnectionTypes": [LONG_POLLING],
        "ext": {"replay": True},
    }


def subscribe_message(client_id: str, channel: str, replay_id: int | None) -> Message:
    """Return the request that subscribes after a replay id. The replay map names channels without their filter."""
    message: Message = {"channel": SUBSCRIBE, "clientId": client_id, "subscription": channel}
    if replay_id is not None:
        message["ext"] = {"replay": {channel.partition("?")[0]: replay_id}}
    return message


def merge_advice(known: Advice, message: Message) -> Advice:
    """Return the advice after a reply; values that the reply omits stay."""
    given = message.get("advice")
    if not isinstance(given, dict):
        return known
    reconnect = given.get("reconnect")
    return Advice(
        reconnect if reconnect in ("retry", "handshake", "none") else known.reconnect,
        _milliseconds(given.get("interval"), known.interval_ms),
        _milliseconds(given.get("timeout"), known.timeout_ms),
    )


def replay_id_of(message: Message) -> int | None:
    """Return the replay id of a delivered event; None before API 37.0."""
    data = message.get("data")
    event = data.get("event") if isinstance(data, dict) else None
    value = event.get("replayId") if isinstance(event, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def is_event(message: Message) -> bool:
    """Whether a message is a delivered event rather than a reply."""
    channel = message.get("channel")
    return isinstance(channel, str) and not channel.startswith("/meta/") and "data" in message


def error_of(reply: Message, channel: str = "") -> PlatformError:
    """Return the error of an unsuccessful reply. The reason in `ext` takes precedence over the reply's text."""
    ext = reply.get("ext")
    cause = ext.get("sfdc") if isinstance(ext, dict) else None
    reason = cause.get("failureReason") if isinstance(cause, dict) else None
    text = str(reason or reply.get("error") or "no reason given")
    code, _, rest = text.partition(":")
    message = rest.partition(":")[2] or text
    folded = message.casefold()
    if code == "401":
        return SessionInvalid(message)
    if code == "503":
        return ServerUnreachable(message)
    if "unknown client" in folded or "not completed handshake" in folded or "bayeux_browser" in folded:
        return ClientUnknown(message)
    if "replayid" in folded:
        return ReplayIdInvalid(message, channel=channel)
    if "limit" in folded and code == "403":
        return LimitExceeded(message)
    if code == "404" or "does not exist {" in folded:
        return ChannelUnknown(message, channel=channel)
    if code == "403" and channel:
        return ChannelForbidden(message, channel=channel)
    if code == "500":
        return ServerUnreachable(message)
    return RequestRefused(text, status=int(code) if code.isdecimal() else 0, error_code=code)


def http_error(status: int) -> PlatformError:
    """Return the error of an HTTP response that has no Bayeux messages."""
    if status == 401:
        return SessionInvalid("the server answered 401")
    if status == 403:
        return ClientUnknown("the server answered 403")
    if status >= 500 or status in (408, 429):
        return ServerUnreachable(f"the server answered {status}")
    return RequestRefused(f"the server answered {status}", status=status, error_code=f"HTTP {status}")


def _milliseconds(value: object, otherwise: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return otherwise
    return int(value)
