"""Subscribe and unsubscribe: turn channel names and replay maps into hub subscriptions."""

from __future__ import annotations

import logging

from tidewire.delivery.hub import EARLIEST, LATEST, Hub, Replay, after
from tidewire.errors import ClientUnknown, PlatformError
from tidewire.faults import fail_point
from tidewire.frontends.bayeux import wire
from tidewire.frontends.bayeux.forms import bayeux_form
from tidewire.frontends.bayeux.session import EventSource, Session
from tidewire.frontends.bayeux.wire import Message
from tidewire.frontends.bayeux.wire_errors import (
    NO_CHANNEL_NAME,
    RESTRICTED_CHANNEL,
    TOO_MANY_SUBSCRIPTIONS,
    WireError,
    wire_error,
)
from tidewire.names import parse_channel

log = logging.getLogger(__name__)


async def subscribe(hub: Hub, session: Session, message: Message, max_subscriptions: int) -> WireError | None:
    """Subscribe to all channels of a message or to none; return the error, if any."""
    channels = wire.parse_channels(message)
    if channels is None:
        return WireError(NO_CHANNEL_NAME)
    if len(session.sources) + len(channels) > max_subscriptions:
        return WireError(TOO_MANY_SUBSCRIPTIONS)
    opened: dict[str, EventSource] = {}
    failure: WireError | None = None
    for channel in dict.fromkeys(channels):
        start = _start_of(session, message, channel)
        if isinstance(start, WireError):
            failure = start
            break
        held = session.sources.get(channel)
        if start is LATEST and held is not None and held.error is None:
            # Clients repeat subscribes. Restarting at the tip would lose events that were not sent yet.
            continue
        try:
            opened[channel] = await open_source(hub, session, channel, start)
        except PlatformError as error:
            failure = wire_error(error, channel)
            break
    if failure is None and session.is_closed:
        failure = wire_error(ClientUnknown("disconnected meanwhile"))
    if failure is not None:
        for source in opened.values():
            source.close()
        return failure
    for channel, source in opened.items():
        replaced = session.sources.pop(channel, None)
        if replaced is not None:
            replaced.close()
            session.confirmed.pop(channel, None)
        session.sources[channel] = source
    return None


def unsubscribe(session: Session, message: Message) -> WireError | None:
    """Unsubscribe from the channels of a message. A channel without a subscription is not an error."""
    channels = wire.parse_channels(message)
    if channels is None:
        return WireError(NO_CHANNEL_NAME)
    for channel in channels:
        source = session.sources.pop(channel, None)
        if source is not None:
            source.close()
    return None


async def reopen(hub: Hub, session: Session) -> None:
    """Reopen every subscription under the session's new login, so that none ends with the old one."""
    for channel, source in tuple(session.sources.items()):
        try:
            fresh = await open_source(hub, session, channel, after(source.position))
        except PlatformError as error:
            log.info("bayeux.subscription_dropped", extra={"channel": channel, "code": error.code})
            continue
        # During the call the client may have left, or a reply may have advanced the old subscription.
        if session.is_closed or session.sources.get(channel) is not source:
            fresh.close()
        else:
            fresh.position = source.position
            session.sources[channel] = fresh
            source.close()


def _start_of(session: Session, message: Message, channel: str) -> Replay | WireError:
    if channel.startswith("/meta/"):
        return WireError(RESTRICTED_CHANNEL)
    try:
        path = parse_channel(channel).path
    except PlatformError as error:
        return wire_error(error, channel)
    failure = wire.check_format(message, path)
    if failure is not None:
        return failure
    if not session.endpoint.replays(channel):
        return LATEST
    wanted = wire.parse_replay(message, path)
    if isinstance(wanted, WireError):
        return wanted
    if wanted == wire.REPLAY_NEW:
        return LATEST
    return EARLIEST if wanted == wire.REPLAY_ALL else after(wanted)


async def open_source(hub: Hub, session: Session, channel: str, start: Replay) -> EventSource:
    """Open a session's subscription to one channel. Raises PlatformError."""
    version = session.endpoint.api_version
    # Generic events have replay ids at the replay endpoint of 36.0 already.
    form = bayeux_form(
        max(version, wire.FIRST_DURABLE_VERSION) if session.endpoint.replays(channel) else version
    )
    fail_point("bayeux.subscribe", channel)
    source = await hub.subscribe(session.principal, channel, version, start, form, session.wake)
    try:
        source.usage_counter = await hub.usage.admit(
            session.client_id, channel, source.grant.family, is_durable=session.endpoint.is_durable
        )
    except BaseException:
        source.close()
        raise
    return source
