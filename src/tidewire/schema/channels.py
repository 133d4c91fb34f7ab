"""The channels of an org: which events each of them shows, and which fields enrich them. Pure.

A member puts one kind of event on one channel. A change event is captured if it is on any channel. The standard
channel, `ChangeEvents`, shows only its own members, like every other. Events that were captured for other channels
before a channel had its member are not on that channel.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from tidewire.errors import LimitExceeded
from tidewire.names import change_event_name, entity_of_change_event
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.standard.streaming import STREAMING_CHANNEL

STANDARD_CHANNEL = "ChangeEvents"
CHANNEL_SUFFIX = "__chn"
MAX_ENRICHED = 10
"""Fields of one object that may be added to its events, counted once over all channels."""

RUN = "RUN"
STOP = "STOP"
STATES = (RUN, STOP)
LATEST = "LATEST"
EARLIEST = "EARLIEST"
REPLAYS = (LATEST, EARLIEST)
MAX_MANAGED = 200
"""Managed subscriptions of one org."""

_MAX_ENDED = 1000  # start positions of deleted types to keep; events of older ones have left the log


@dataclass(frozen=True, slots=True)
class CustomChannel:
    """A channel that the org defined. `kind` is `data` for change events, `event` for platform events."""

    name: str
    label: str
    kind: str
    event_type: str = ""


@dataclass(frozen=True, slots=True)
class ChannelMember:
    """One kind of event on one channel: `event` is a change event or a platform event, by its name.

    `enriched` are fields that events of updates and deletes carry besides the changed ones. With a `filter_text`, the
    channel shows only events that meet it.
    """

    full_name: str
    channel: str
    event: str
    enriched: tuple[str, ...] = ()
    filter_text: str = ""

    @property
    def entity(self) -> str:
        """The object whose changes it shows; empty for a platform event."""
        return "" if self.event.endswith("__e") else entity_of_change_event(self.event) or ""


@dataclass(frozen=True, slots=True)
class StartPosition:
    """The position after which a channel shows a kind of event.

    It survives the removal of the member, so that a member that is added again shows the same events. One without a
    channel holds for all channels: events before it belong to a deleted type of the same name.
    """

    channel: str
    event: str
    after: int = 0


@dataclass(frozen=True, slots=True)
class ManagedSubscription:
    """One subscription whose position the server stores.

    It starts at `default_replay` until a position is committed, and at `error_replay` if the committed position has
    expired.
    """

    name: str
    label: str
    topic: str
    default_replay: str = LATEST
    error_replay: str = LATEST
    state: str = RUN


@dataclass(frozen=True)
class Selection:
    """All channels, members and managed subscriptions of an org."""

    channels: tuple[CustomChannel, ...] = ()
    members: tuple[ChannelMember, ...] = ()
    managed: tuple[ManagedSubscription, ...] = ()
    start_positions: tuple[StartPosition, ...] = ()

    @cached_property
    def entities(self) -> frozenset[str]:
        """The objects whose changes become events."""
        return frozenset(m.entity for m in self.members if m.entity)

    @cached_property
    def _members_by_channel(self) -> dict[str, tuple[ChannelMember, ...]]:
        found: dict[str, list[ChannelMember]] = {}
        for member in self.members:
            found.setdefault(member.channel, []).append(member)
        return {channel: tuple(members) for channel, members in found.items()}

    @cached_property
    def _after(self) -> dict[tuple[str, str], int]:
        return {(b.channel, b.event): b.after for b in self.start_positions}

    def shown_after(self, channel: str, event: str) -> int:
        """Return the position after which a channel shows a kind of event; 0 for all events.

        An empty channel asks for the event's own channel.
        """
        return max(self._after.get((channel, event), 0), self._after.get(("", event), 0))

    def with_start_positions(self, head: int) -> Selection:
        """Return a copy in which each member has a start position: `head`, or 0 if its event was never captured."""
        captured = {b.event for b in self.start_positions}
        added = [
            StartPosition(m.channel, m.event, 0 if m.entity and m.event not in captured else head)
            for m in self.members
            if (m.channel, m.event) not in self._after
        ]
        return replace(self, start_positions=(*self.start_positions, *added)) if added else self

    def with_ended_events(self, events: Iterable[str], head: int) -> Selection:
        """Return a copy without these deleted types: later types of their names start after `head`."""
        gone = dict.fromkeys(events)
        kept = [b for b in self.start_positions if b.event not in gone]
        ended = [*(b for b in kept if not b.channel), *(StartPosition("", event, head) for event in gone)]
        held = [b for b in kept if b.channel]
        return replace(self, start_positions=(*held, *ended[-_MAX_ENDED:]))

    def members_of(self, channel: str) -> tuple[ChannelMember, ...]:
        """Return the members of a channel, by its exact name."""
        return self._members_by_channel.get(channel, ())

    def try_channel(self, name: str) -> CustomChannel | None:
        """Return the custom channel of that name in any letter case, or None."""
        return next((c for c in self.channels if c.name.lower() == name.lower()), None)

    def try_member(self, full_name: str) -> ChannelMember | None:
        """Return the member of that full name in any letter case, or None."""
        return next((m for m in self.members if m.full_name.lower() == full_name.lower()), None)

    def enriched_fields(self, event: str) -> frozenset[str]:
        """Return the fields that any channel adds to an event."""
        return frozenset(name for m in self.members if m.event == event for name in m.enriched)

    def with_channel(self, channel: CustomChannel) -> Selection:
        """Return a copy in which a channel is added or replaced."""
        kept = [c for c in self.channels if c.name != channel.name]
        return replace(self, channels=tuple(sorted([*kept, channel], key=lambda c: c.name)))

    def with_member(self, member: ChannelMember) -> Selection:
        """Return a copy in which a member is added or replaced."""
        kept = [m for m in self.members if m.full_name != member.full_name]
        return replace(self, members=tuple(sorted([*kept, member], key=lambda m: m.full_name)))

    def without_channel(self, name: str) -> Selection:
        """Return a copy without a channel and its members."""
        return replace(
            self,
            channels=tuple(c for c in self.channels if c.name != name),
            members=tuple(m for m in self.members if m.channel != name),
            start_positions=self._start_positions_without(name),
        )

    def _start_positions_without(self, channel: str) -> tuple[StartPosition, ...]:
        """Return the start positions on other channels; keeps the fact that events were captured before."""
        ended = [
            StartPosition("", b.event)
            for b in self.start_positions
            if b.channel == channel and ("", b.event) not in self._after
        ]
        return (*(b for b in self.start_positions if b.channel != channel), *ended)

    def try_managed(self, name: str) -> ManagedSubscription | None:
        """Return the managed subscription of that name in any letter case, or None."""
        return next((m for m in self.managed if m.name.lower() == name.lower()), None)

    def with_managed(self, managed: ManagedSubscription) -> Selection:
        """Return a copy in which a managed subscription is added or replaced."""
        kept = [m for m in self.managed if m.name != managed.name]
        return replace(self, managed=tuple(sorted([*kept, managed], key=lambda m: m.name)))

    def without_managed(self, name: str) -> Selection:
        """Return a copy without a managed subscription."""
        return replace(self, managed=tuple(m for m in self.managed if m.name != name))

    def without_member(self, full_name: str) -> Selection:
        """Return a copy without a member."""
        return replace(self, members=tuple(m for m in self.members if m.full_name != full_name))

    def with_standard(self, entities: Iterable[str]) -> Selection:
        """Return a copy with exactly these objects on the standard channel; members that stay do not change."""
        wanted = frozenset(entities)
        selection = self
        held = {m.entity: m for m in self.members_of(STANDARD_CHANNEL)}
        for entity, member in held.items():
            if entity not in wanted:
                selection = selection.without_member(member.full_name)
        for entity in sorted(wanted - held.keys()):
            selection = selection.with_member(selection.new_member(STANDARD_CHANNEL, entity))
        return selection

    def new_member(self, channel: str, entity: str) -> ChannelMember:
        """Return a new member for an object, under the platform's name for it or the next free one."""
        event = change_event_name(entity)
        name = member_name(channel, event)
        number, free = 1, name
        while self.try_member(free) is not None:
            number += 1
            free = f"{name}{number}"
        return ChannelMember(free, channel, event)

    def with_renamed(self, old: str, new: str) -> Selection:
        """Return a copy in which an event is renamed."""
        members = [replace(m, event=new) if m.event == old else m for m in self.members]
        start_positions = [replace(b, event=new) if b.event == old else b for b in self.start_positions]
        return replace(self, members=tuple(members), start_positions=tuple(start_positions))

    def with_renamed_field(self, event: str, old: str, new: str) -> Selection:
        """Return a copy in which an enriched field of an event is renamed."""
        members = [
            replace(m, enriched=tuple(new if name == old else name for name in m.enriched))
            if m.event == event
            else m
            for m in self.members
        ]
        return replace(self, members=tuple(members))


NOTHING_SELECTED = Selection()


@dataclass(frozen=True, slots=True)
class CaptureLimits:
    """How many objects may be captured, and how many custom channels there may be; None for any number."""

    entities: int | None = None
    channels: int | None = None


NO_LIMITS = CaptureLimits()
EDITION_LIMITS = CaptureLimits(entities=5, channels=100)
"""What every edition allows."""


def check_limits(new: Selection, old: Selection, limits: CaptureLimits) -> None:
    """Raise LimitExceeded if the new selection exceeds the limits; what was there before may stay."""
    counted = (
        (
            "entities selected for Change Data Capture",
            len(new.entities),
            len(old.entities),
            limits.entities,
        ),
        ("custom channels", len(new.channels), len(old.channels), limits.channels),
    )
    for what, count, before, limit in counted:
        if limit is not None and count > max(limit, before):
            raise LimitExceeded(
                f"The maximum number of {what}, {limit}, has been reached",
                limit=limit,
                status_code="LIMIT_EXCEEDED",
            )


def member_name(channel: str, event: str) -> str:
    """Return the name that the platform gives a member: `ChangeEvents_AccountChangeEvent`."""
    return f"{channel}_{event}".replace("__", "_")


def can_capture(obj: ObjectType) -> bool:
    """Return whether an object can be captured: not setup objects, shares and streaming channels."""
    return not (obj.is_setup or obj.shares or obj.name == STREAMING_CHANNEL.name)


def is_enrichable(f: Field) -> bool:
    """Return whether a field can enrich events, by the guide's list of types. Components come with their compound."""
    return f.in_change_events and not f.compound and f.type.row.is_enrichable


def render_selection(selection: Selection) -> str:
    """Render the selection as the JSON that is stored."""
    return json.dumps(
        {
            "channels": [asdict(channel) for channel in selection.channels],
            "members": [asdict(member) for member in selection.members],
            "managed": [asdict(managed) for managed in selection.managed],
            "beginnings": [asdict(start) for start in selection.start_positions],
        }
    )


def parse_selection(text: str) -> Selection:
    """Parse a stored selection.

    Early releases stored a plain list of the standard channel's objects, and later ones no start positions: members
    without one show all events.
    """
    stored = json.loads(text)
    if isinstance(stored, list):
        return Selection().with_standard(stored).with_start_positions(0)
    selection = Selection(
        tuple(CustomChannel(**channel) for channel in stored["channels"]),
        tuple(ChannelMember(**m | {"enriched": tuple(m["enriched"])}) for m in stored["members"]),
        tuple(ManagedSubscription(**managed) for managed in stored.get("managed", ())),
        tuple(StartPosition(**start) for start in stored.get("beginnings", ())),
    )
    return selection.with_start_positions(0)
