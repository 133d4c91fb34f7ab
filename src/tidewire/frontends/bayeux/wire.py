"""Parse and render Bayeux messages. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import parse_qs

import orjson

from tidewire.errors import AuthHeaderInvalid, BodyMalformed, ResourceUnknown, VersionUnsupported
from tidewire.frontends.bayeux.wire_errors import (
    HANDSHAKE_DENIED,
    VERSION_MISSING,
    VERSION_TOO_OLD,
    Reconnect,
    WireError,
    invalid_replay_id,
    replay_id_not_found,
    unknown_format,
)

Message = dict[str, Any]
"""A Bayeux message as received: a JSON object, otherwise unchecked."""

HANDSHAKE = "/meta/handshake"
CONNECT = "/meta/connect"
SUBSCRIBE = "/meta/subscribe"
UNSUBSCRIBE = "/meta/unsubscribe"
DISCONNECT = "/meta/disconnect"
LONG_POLLING = "long-polling"
WEBSOCKET = "websocket"
COOKIE_NAME = "BAYEUX_BROWSER"
EXPANDED = "EXPANDED"

FIRST_VERSION = 23.0
LAST_TIMED_VERSION = 24.0  # the last version whose sessions have a fixed lifetime
FIRST_DURABLE_VERSION = 37.0
NEWEST_VERSION = 67.0
MAX_MESSAGES = 256  # a request is at most 32 KiB, and no client sends more

REPLAY_NEW = -1
REPLAY_ALL = -2
_MAX_REPLAY_ID = 1 << 53

_JSON_TYPES = frozenset(
    {"", "application/json", "application/json;charset=UTF-8", "application/json; charset=utf-8"}
)
_PATH = re.compile(
    r"/cometd(?P<replay>/replay)?(?:/(?P<version>[^/]+))?"
    r"(?:/(?:handshake|connect|subscribe|unsubscribe|disconnect|publish)?)?"
)
_AUTHORIZATION_KEY = b'"authorization"'
_MAX_CREDENTIALS = 8192
_REPLAY_ID = re.compile(r"-?[0-9]{1,17}")
_VERSION = re.compile(r"[0-9]{1,3}\.0")
_COOKIE = re.compile(rf"(?:^|;)\s*{COOKIE_NAME}=\"?([A-Za-z0-9]{{8,64}})\"?\s*(?:;|$)")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The API version in the URI, and whether its sessions may replay."""

    api_version: float
    is_durable: bool

    def replays(self, channel: str) -> bool:
        """Return whether a channel's events have replay ids: below 37.0 only generic ones at the replay endpoint."""
        return self.is_durable and (self.api_version >= FIRST_DURABLE_VERSION or channel.startswith("/u/"))


def parse_endpoint(path: str) -> Endpoint:
    """Parse the API version in a path. Raises VersionUnsupported, or ResourceUnknown for other paths."""
    match = _PATH.fullmatch(path)
    if match is None:
        raise ResourceUnknown("no such path")
    text = match["version"]
    if text is None:
        raise VersionUnsupported(VERSION_MISSING, version="")
    version = float(text) if _VERSION.fullmatch(text) else 0.0
    if not FIRST_VERSION <= version <= NEWEST_VERSION:
        raise VersionUnsupported(VERSION_TOO_OLD, version=text[:20])
    return Endpoint(version, version >= FIRST_DURABLE_VERSION or match["replay"] is not None)


def parse_messages(body: bytes, content_type: str) -> list[Message]:
    """Parse the messages of a request body, in order. Raises BodyMalformed."""
    if content_type in _JSON_TYPES:
        try:
            return _checked(_as_list(orjson.loads(body)))
        except ValueError as error:
            raise BodyMalformed("the body is not JSON") from error
    media_type, _, parameters = content_type.partition(";")
    charset = _charset(parameters)
    try:
        text = body if charset in ("utf-8", "utf8", "us-ascii") else body.decode(charset)
        if media_type.strip().lower() == "application/x-www-form-urlencoded":
            form = parse_qs(text.decode() if isinstance(text, bytes) else text, max_num_fields=MAX_MESSAGES)
            found = [item for part in form.get("message", ()) for item in _as_list(orjson.loads(part))]
        else:
            found = _as_list(orjson.loads(text))
    except (ValueError, LookupError) as error:
        raise BodyMalformed("the body is not JSON") from error
    return _checked(found)


def parse_token(header: str | None) -> str:
    """Parse the token in an Authorization header: `OAuth x`, `Bearer x` or `x`. Raises AuthHeaderInvalid."""
    words = header.split() if header else []
    if len(words) == 1 and words[0].lower() not in ("oauth", "bearer"):
        return words[0]
    if len(words) == 2 and words[0].lower() in ("oauth", "bearer"):
        return words[1]
    raise AuthHeaderInvalid("no usable Authorization header")


def parse_browser(cookies: str | None) -> str:
    """Parse the browser id in a Cookie header; empty if there is none."""
    match = _COOKIE.search(cookies) if cookies else None
    return match[1] if match else ""


def parse_replay(message: Message, path: str) -> int | WireError:
    """Parse where a subscribe starts: -1, -2 or a replay id. `path` is the channel without its filter."""
    ext = message.get("ext")
    replay_map = ext.get("replay") if isinstance(ext, dict) else None
    if replay_map is None or isinstance(replay_map, bool):
        return REPLAY_NEW
    value = replay_map.get(path) if isinstance(replay_map, dict) else None
    if value is None:
        return WireError(replay_id_not_found(path, _java_text(replay_map)))
    if (isinstance(value, float) and value.is_integer()) or (
        isinstance(value, str) and _REPLAY_ID.fullmatch(value)
    ):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int) or not REPLAY_ALL <= value < _MAX_REPLAY_ID:
        return WireError(invalid_replay_id(_java_text(value)[:64]))
    return value


def check_format(message: Message, path: str) -> WireError | None:
    """Return the error of a subscribe's payload format; only EXPANDED is supported."""
    ext = message.get("ext")
    formats = ext.get("payload.format") if isinstance(ext, dict) else None
    wanted = formats.get(path) if isinstance(formats, dict) else None
    if wanted is None or (isinstance(wanted, str) and wanted.upper() == EXPANDED):
        return None
    return WireError(unknown_format(path, _java_text(wanted)[:64]))


def parse_channels(message: Message) -> list[str] | None:
    """Return the channels of a subscribe or unsubscribe, or None if they are missing or malformed."""
    names = _as_list(message.get("subscription"))
    channels = [name for name in names if isinstance(name, str) and name]
    return channels if channels and len(channels) == len(names) else None


def client_id_of(message: Message) -> str:
    """Return the client id of a message; empty if there is none."""
    value = message.get("clientId")
    return value if isinstance(value, str) else ""


def advice_ms(message: Message, name: str) -> int | None:
    """Return a time in the client's advice, or None."""
    advice = message.get("advice")
    value = advice.get(name) if isinstance(advice, dict) else None
    if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
        return None
    return int(value)


def render_reply(message: Message, client_id: str) -> bytes:
    """Render a successful reply to a meta message."""
    reply: dict[str, object] = {"clientId": client_id, "channel": message["channel"]}
    if "id" in message:
        reply["id"] = message["id"]
    if "subscription" in message:
        reply["subscription"] = message["subscription"]
    reply["successful"] = True
    return orjson.dumps(reply)


def render_failure(message: Message, error: WireError, client_id: str = "") -> bytes:
    """Render an unsuccessful reply to any message."""
    reply: dict[str, object] = {}
    if client_id:
        reply["clientId"] = client_id
    if error.reconnect is not None:
        reply["advice"] = {"reconnect": error.reconnect.value, "interval": 0}
    if isinstance(message.get("channel"), str):
        reply["channel"] = message["channel"]
    if "id" in message:
        reply["id"] = message["id"]
    if "subscription" in message:
        reply["subscription"] = message["subscription"]
    if error.reason:
        reply["ext"] = {"sfdc": {"failureReason": error.reason}}
    reply["error"] = error.text
    reply["successful"] = False
    return orjson.dumps(reply)


def render_handshake(
    message: Message,
    client_id: str,
    endpoint: Endpoint,
    hold_ms: int,
    *,
    has_ack: bool = False,
    has_websocket: bool = False,
) -> bytes:
    """Render the reply of a successful handshake."""
    reply: dict[str, object] = {}
    ext = {"replay": True, "payload.format": True} if endpoint.is_durable else {}
    if has_ack:
        ext["ack"] = True
    if ext:
        reply["ext"] = ext
    reply["minimumVersion"] = "1.0"
    reply["clientId"] = client_id
    reply["supportedConnectionTypes"] = [WEBSOCKET, LONG_POLLING] if has_websocket else [LONG_POLLING]
    reply["channel"] = HANDSHAKE
    if "id" in message:
        reply["id"] = message["id"]
    reply["version"] = "1.0"
    reply["successful"] = True
    # Clients keep the last advice: without this, one that was told `handshake` would repeat it forever.
    reply["advice"] = {"reconnect": Reconnect.RETRY.value, "interval": 0, "timeout": hold_ms}
    return orjson.dumps(reply)


def render_handshake_failure(message: Message, reason: str, reconnect: Reconnect, is_durable: bool) -> bytes:
    """Render the reply of a failed handshake; the cause goes into `ext`."""
    ext: dict[str, object] = {"sfdc": {"failureReason": reason}}
    if is_durable:
        ext |= {"replay": True, "payload.format": True}
    reply: dict[str, object] = {
        "ext": ext,
        "advice": {"reconnect": reconnect.value},
        "channel": HANDSHAKE,
        "error": HANDSHAKE_DENIED,
        "successful": False,
    }
    if "id" in message:
        reply["id"] = message["id"]
    return orjson.dumps(reply)


def render_body(messages: list[bytes]) -> bytes:
    """Join rendered messages into a response body."""
    return b"[" + b",".join(messages) + b"]"


def parse_frame_credentials(body: bytes) -> str:
    """Parse `ext.authorization` in a WebSocket frame; empty if there is none.

    A page in a browser cannot set headers on the request that opens its socket, so it sends its token in any message's
    `ext` as `{"authorization": "Bearer ..."}`. It holds for the socket from then on.
    """
    if _AUTHORIZATION_KEY not in body:
        return ""
    try:
        messages = _as_list(orjson.loads(body))
    except ValueError:
        return ""
    for message in messages:
        ext = message.get("ext") if isinstance(message, dict) else None
        text = ext.get("authorization") if isinstance(ext, dict) else None
        if isinstance(text, str) and len(text) <= _MAX_CREDENTIALS:
            return text
    return ""


def _charset(parameters: str) -> str:
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            return value.strip().strip("\"'").lower()
    return "utf-8"


def _checked(found: list[Any]) -> list[Message]:
    if not 0 < len(found) <= MAX_MESSAGES:
        raise BodyMalformed("the body holds no messages, or too many")
    for item in found:
        if not isinstance(item, dict):
            raise BodyMalformed("the body is not a list of Bayeux messages")
    return found


def _as_list(value: object) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _java_text(value: object) -> str:
    """Render a JSON value as Java's toString does, as the original service does in its error texts."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}={_java_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_java_text(item) for item in value) + "]"
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else str(value)
