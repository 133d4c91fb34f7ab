"""Platform errors as Bayeux errors: their texts and the reconnect advice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from tidewire import errors
from tidewire.errors import PlatformError

HANDSHAKE_DENIED = "403::Handshake denied"
SUBSCRIBE_DENIED = "403:denied_by_security_policy:subscribe_denied"
PUBLISH_DENIED = "403:denied_by_security_policy:publish_denied"
CHANNEL_MISSING = "400::channel_missing"
CHANNEL_UNKNOWN = "404::Unknown channel"
NO_HANDSHAKE = "403::Client has not completed handshake"
UNKNOWN_CLIENT = "403::Unknown client"
NO_TOKEN = "401::Request requires authentication"  # noqa: S105 - an error text
BAD_TOKEN = "401::Authentication invalid"  # noqa: S105 - an error text
OTHER_USER = "400::Authenticated user id does not match the session's user id"
NO_CHANNEL_NAME = "400::Channel name not specified"
NO_LEADING_SLASH = "400::Channel subscriptions must start with a leading '/'"
RESTRICTED_CHANNEL = "403::Restricted channel"
TOO_MANY_SUBSCRIPTIONS = "403::Subscription limit exceeded for this topic"
TOO_MANY_CONNECTIONS = (
    "403::To protect all customers from excessive use and Denial of Service attacks, we limit the number of "
    "simultaneous connections per server. Your request has been denied because this limit has been exceeded. "
    "Please try your request again later."
)
TOO_BUSY = "503::Server is too busy. Please try your request again later."
VERSION_MISSING = "API version in the URI is mandatory. URI format: '/cometd/42.0'"
VERSION_TOO_OLD = (
    "Unsupported API version. Only API versions '23.0' and above are supported. URI format: '/cometd/42.0'"
)
INTERNAL = "500::Internal server error"


class Reconnect(Enum):
    """The `reconnect` advice, by its wire values."""

    RETRY = "retry"
    HANDSHAKE = "handshake"
    NONE = "none"


@dataclass(frozen=True, slots=True)
class WireError:
    """A Bayeux failure. `reason`, if any, goes into `ext.sfdc.failureReason`."""

    text: str
    reconnect: Reconnect | None = None
    reason: str = ""


def no_cookie(client_id: str) -> WireError:
    """Return the error for a client that did not return its cookie."""
    text = f"400::Client {client_id} has established a session, but no BAYEUX_BROWSER cookie present"
    return WireError(text, Reconnect.HANDSHAKE)


def invalid_connection_type(name: object) -> WireError:
    """Return the error for a transport other than long polling."""
    return WireError(f"400::Invalid connection type {{{name}}}", Reconnect.NONE)


def unknown_channel(channel: str) -> str:
    """Return the text for a channel that does not exist for this user."""
    return f"400::The channel you requested to subscribe to does not exist {{{channel}}}"


def invalid_replay_id(replay_id: object) -> str:
    """Return the text for an expired, future or malformed replay id."""
    return (
        f"400::The replayId {{{replay_id}}} you provided was invalid. Please provide a valid ID, "
        "-2 to replay all events, or -1 to replay only new events."
    )


def replay_id_not_found(channel: str, shown_map: str) -> str:
    """Return the text for a replay map that lacks the channel."""
    return (
        f"400::The replayId for channel {{{channel}}} wasn't found using the provided replay ID map "
        f"{{{shown_map}}}. Ensure that the channel name you provided in the replay map is valid and matches "
        "the channel name used for subscribing."
    )


def unknown_format(channel: str, shown_format: str) -> str:
    """Return the text for an unsupported payload format."""
    return (
        f"400::The payload format {{{shown_format}}} isn't supported for channel {{{channel}}}. Use EXPANDED."
    )


_FIXED: dict[type[PlatformError], WireError] = {
    errors.AuthHeaderInvalid: WireError(NO_TOKEN, Reconnect.NONE),
    errors.SessionInvalid: WireError(BAD_TOKEN, Reconnect.NONE),
    errors.LoginFailed: WireError(BAD_TOKEN, Reconnect.NONE),
    errors.GrantInvalid: WireError(BAD_TOKEN, Reconnect.NONE),
    errors.ClientUnknown: WireError(UNKNOWN_CLIENT, Reconnect.HANDSHAKE),
    errors.InternalError: WireError(INTERNAL, Reconnect.RETRY),
    errors.LogCorrupt: WireError(INTERNAL, Reconnect.RETRY),
    errors.ConfigInvalid: WireError(INTERNAL, Reconnect.RETRY),
    errors.StoreLocked: WireError(INTERNAL, Reconnect.RETRY),
    errors.OutcomeUnknown: WireError(INTERNAL, Reconnect.RETRY),
    errors.AccessDenied: WireError(RESTRICTED_CHANNEL),
}


def wire_error(error: PlatformError, channel: str = "") -> WireError:
    """Return the Bayeux failure of a platform error on a channel."""
    if isinstance(error, errors.AccessDenied) and error.details.get("permission") == "ApiEnabled":
        return WireError(f"403::{error.message}", Reconnect.NONE)
    fixed = _FIXED.get(type(error))
    if fixed is not None:
        return fixed
    if isinstance(error, errors.LimitExceeded) and "allocation" in error.details:
        is_server = error.details["allocation"] == "sessions"
        return WireError(TOO_MANY_CONNECTIONS if is_server else f"403::{error.message}")
    if error.retryable:
        return WireError(SUBSCRIBE_DENIED, Reconnect.RETRY, TOO_BUSY)
    match error:
        case errors.ChannelUnknown() if error.details.get("is_generic"):
            return WireError(f"404::{error.message}")
        case errors.ChannelUnknown() | errors.TopicUnknown():
            return WireError(unknown_channel(channel))
        case errors.ChannelForbidden():
            # Only the core knows which right is missing; its message is the protocol's text.
            return WireError(f"403::{error.message}" if error.message else RESTRICTED_CHANNEL)
        case errors.ChannelInvalid():
            if not channel:
                return WireError(NO_CHANNEL_NAME)
            if not channel.startswith("/"):
                return WireError(NO_LEADING_SLASH)
            return WireError(unknown_channel(channel))
        case errors.ReplayIdInvalid() | errors.ReplayIdExpired():
            return WireError(invalid_replay_id(error.details.get("replay_id", "")))
        case errors.RequestError() | errors.ProtocolViolation():
            return WireError(f"400::{error.message}")
        case _:
            return WireError(INTERNAL, Reconnect.RETRY)
