"""Generic streaming for one user: opening and creating channels, pushing events, listing subscribers.

To receive, a user needs read access to the object and to the channel's record. To send, they need permission to create
or edit channels and edit access to the record. A channel that does not exist is created by its first subscriber if the
org and the user's permissions allow it.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

from tidewire.access.principal import Principal
from tidewire.access.sharing import Level
from tidewire.capture.generic import CHANNEL_OBJECT, MAX_PAYLOAD, GenericChannels, generic_event
from tidewire.clock import Clock
from tidewire.errors import (
    AccessDenied,
    ChannelForbidden,
    ChannelUnknown,
    DuplicateValue,
    LimitExceeded,
    TextTooLong,
    TooManyRecords,
)
from tidewire.eventlog.log import EventLog
from tidewire.events import Family
from tidewire.gate.gate import Gate
from tidewire.ids import normalise_id
from tidewire.matching.channels import ChannelView
from tidewire.names import is_generic_channel
from tidewire.records.work import UnitOfWork

FIRST_VERSION = 29.0
"""The API version that brought generic streaming."""
MAX_EVENTS = 1000
"""Events of one push."""
MAX_USERS = 2000
"""Users that one event can name."""
_NO_ACCESS = "No access on channel"
_UNKNOWN = "Unknown channel"
_VARIANT = "channel names may not vary only by case"
_TOO_MANY = "Unable to create channel dynamically, maximum channel limit has been exceeded"


@dataclass(frozen=True, slots=True)
class PushEvent:
    """One event to push, for these users or, if there are none, for all subscribers."""

    payload: str
    user_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PushResult:
    """How many of the named users were subscribed, and which. -1 for an event to all subscribers, 0 without any."""

    fanout_count: int
    online: dict[str, bool]


class Listeners:
    """The users subscribed to each channel. Each edge reports its own, and loses them all when it goes.

    Safe to read on any thread: the sets that readers get are replaced, never modified.
    """

    def __init__(self) -> None:
        self._edges: dict[str, dict[str, set[Hashable]]] = {}
        self._users: dict[str, frozenset[str]] = {}

    def __len__(self) -> int:
        """Return the number of channels with a subscriber."""
        return len(self._users)

    def on(self, channel_id: str) -> frozenset[str]:
        """Return the users subscribed to a channel."""
        return self._users.get(channel_id, frozenset())

    def begin(self, edge: Hashable, channel_id: str, user_id: str) -> None:
        """Add a user's first subscription to a channel through an edge."""
        self._edges.setdefault(channel_id, {}).setdefault(user_id, set()).add(edge)
        self._publish(channel_id)

    def end(self, edge: Hashable, channel_id: str, user_id: str) -> None:
        """Remove a user's last subscription to a channel through an edge."""
        users = self._edges.get(channel_id, {})
        edges = users.get(user_id, set())
        edges.discard(edge)
        if not edges:
            users.pop(user_id, None)
        self._publish(channel_id)

    def drop(self, edge: Hashable) -> None:
        """Remove an edge and all subscriptions through it."""
        for channel_id, users in tuple(self._edges.items()):
            for user_id in [user_id for user_id, edges in users.items() if edge in edges]:
                self.end(edge, channel_id, user_id)

    def _publish(self, channel_id: str) -> None:
        users = self._edges.get(channel_id)
        if users:
            self._users[channel_id] = frozenset(users)
        else:
            self._edges.pop(channel_id, None)
            self._users.pop(channel_id, None)


class GenericStreaming:
    """One org's generic streaming. Permissions are checked at the gate that each call passes in."""

    def __init__(self, channels: GenericChannels, log: EventLog, clock: Clock) -> None:
        self._channels = channels
        self._log = log
        self._clock = clock
        self.listeners = Listeners()

    async def ensure_channel(self, gate: Gate, principal: Principal, channel: str) -> ChannelView:
        """View a channel by name, creating it if it is missing and the org and the user may.

        Raises ChannelForbidden or ChannelUnknown in the protocol's words.
        """
        grants = await gate.grants(principal)
        if not grants.can_read(CHANNEL_OBJECT):
            raise ChannelForbidden(_NO_ACCESS, channel=channel)
        if self._channels.try_id(channel) is None:
            self._check_variant(channel)
            if not gate.records.types.settings.dynamic_channels:
                raise _unknown(_UNKNOWN, channel)
            if not is_generic_channel(channel) or not grants.on(CHANNEL_OBJECT).can_create:
                raise ChannelForbidden(f"Cannot create channel {{{channel}}}", channel=channel)
            await self._create(gate, principal, channel)
        channel_id = self._channels.try_id(channel)
        if channel_id is None:
            raise _unknown(_UNKNOWN, channel)  # deleted or renamed just now
        return await self.renew(gate, principal, channel, channel_id)

    async def renew(self, gate: Gate, principal: Principal, channel: str, channel_id: str) -> ChannelView:
        """View a channel by id, whatever its name is now."""
        if self._channels.try_name(channel_id) is None:
            raise _unknown(_UNKNOWN, channel)
        if not await gate.visible_record_ids(principal, CHANNEL_OBJECT, (channel_id,)):
            raise ChannelForbidden(_NO_ACCESS, channel=channel)
        return ChannelView(Family.GENERIC, frozenset({channel_id}))

    async def list_online(self, gate: Gate, principal: Principal, channel_id: str) -> tuple[str, list[str]]:
        """Return the channel's name and the ids of its subscribers.

        Raises ObjectUnknown, RecordNotFound or RecordDeleted.
        """
        rows = await gate.read(principal, CHANNEL_OBJECT, channel_id, ("Id", "Name"))
        record = rows.rows[0]
        return str(record["Name"]), sorted(self.listeners.on(str(record["Id"])))

    async def push(
        self, gate: Gate, principal: Principal, channel_id: str, events: Sequence[PushEvent]
    ) -> list[PushResult]:
        """Append events, all or none; returns their results in order once they are durable.

        Raises ObjectUnknown, RecordNotFound, RecordDeleted, AccessDenied, TextTooLong, TooManyRecords or
        IdMalformed.
        """
        rows = await gate.read(principal, CHANNEL_OBJECT, channel_id, ("Id",))
        own_id = str(rows.rows[0]["Id"])
        grant = (await gate.grants(principal)).on(CHANNEL_OBJECT)
        is_sender = grant.can_create or grant.can_edit or grant.can_modify_all
        is_open = is_sender and await gate.visible_record_ids(
            principal, CHANNEL_OBJECT, (own_id,), level=Level.EDIT
        )
        if not is_open:
            raise AccessDenied("insufficient access rights on object id", entity=CHANNEL_OBJECT)
        checked = _checked(events)
        now_ms = self._clock.now_ms()
        drafts = [generic_event(own_id, event.payload, event.user_ids, now_ms) for event in checked]
        if drafts:
            await gate.records.write_plain(lambda tx: self._log.append(tx, drafts, now_ms))
        online = self.listeners.on(own_id)
        return [_result(event, online) for event in checked]

    def _check_variant(self, channel: str) -> None:
        if self._channels.is_variant(channel):
            raise _unknown(_VARIANT, channel)

    async def _create(self, gate: Gate, principal: Principal, channel: str) -> None:
        def work(unit: UnitOfWork) -> None:
            obj = unit.catalog.object(CHANNEL_OBJECT)
            record_id = unit.create(obj, {"Name": channel})
            unit.store(obj, unit.read(obj, record_id), {"IsDynamic": True})

        try:
            await gate.records.write(work, user_id=principal.user_id)
        except LimitExceeded as error:
            raise ChannelForbidden(_TOO_MANY, channel=channel) from error
        except DuplicateValue:
            # Somebody else has just created it, under this name or one that differs by case only.
            self._check_variant(channel)


def _checked(events: Sequence[PushEvent]) -> list[PushEvent]:
    if len(events) > MAX_EVENTS:
        raise TooManyRecords(f"At most {MAX_EVENTS} events can be pushed at once", limit=MAX_EVENTS)
    checked: list[PushEvent] = []
    for event in events:
        if len(event.payload) > MAX_PAYLOAD:
            text = f"payload: data value too large (max length={MAX_PAYLOAD})"
            raise TextTooLong(text, fields=["payload"], max_length=MAX_PAYLOAD)
        if len(event.user_ids) > MAX_USERS:
            raise TooManyRecords(f"An event can be for {MAX_USERS} users at most", limit=MAX_USERS)
        user_ids = tuple(dict.fromkeys(normalise_id(user_id) for user_id in event.user_ids))
        checked.append(PushEvent(event.payload, user_ids))
    return checked


def _result(event: PushEvent, online: frozenset[str]) -> PushResult:
    if not event.user_ids:
        return PushResult(-1 if online else 0, {})
    statuses = {user_id: user_id in online for user_id in event.user_ids}
    return PushResult(sum(statuses.values()), statuses)


def _unknown(text: str, channel: str) -> ChannelUnknown:
    return ChannelUnknown(text, channel=channel, is_generic=True)
