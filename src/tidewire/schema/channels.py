"""The channels of an org: which events each of them shows, and what is added to them. Pure.

A member puts one kind of event on one channel. A change event that is on any channel is captured; the standard
channel, `ChangeEvents`, shows only members of its own, like every other. What was captured for other channels before a
channel had its member is not on that channel.
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

_MAX_ENDED = 1000  # of the events that are gone, the last; the log itself finds nothing of the others


@dataclass(frozen=True, slots=True)
class CustomChannel:
    """A channel of the org's own. `kind` is `data` for change events, `event` for platform events."""

    name: str
    label: str
    kind: str
    event_type: str = ""


@dataclass(frozen=True, slots=True)
class ChannelMember:
    """One kind of event on one channel: `event` is a change event or a platform event, by its name.

    `enriched` are fields of the record that its updates and deletes carry besides what changed; of the events only
    those are shown that `filter_text` is true of, if there is one.
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
    """From where on a channel shows a kind of event: strictly after a position. It stays when the member goes, so that
    one that comes back shows what it showed before. One without a channel holds for all of them: an earlier type of
    the same name had what lies before it.
    """

    channel: str
    event: str
    after: int = 0


@dataclass(frozen=True, slots=True)
class ManagedSubscription:
    """One subscription whose position the server keeps.

    `default_replay` is where it starts while no position was committed, `error_replay` where it starts after one that
    could no longer be read.
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
        """The position after which a channel shows events of a kind; 0 if it shows all that there are. Without a
        channel, that of the event's own.
        """
        return max(self._after.get((channel, event), 0), self._after.get(("", event), 0))

    def with_start_positions(self, head: int) -> Selection:
        """Give each member without a start position one: `head`, or 0 if its event was never captured."""
        captured = {b.event for b in self.start_positions}
        fresh = [
            StartPosition(m.channel, m.event, 0 if m.entity and m.event not in captured else head)
            for m in self.members
            if (m.channel, m.event) not in self._after
        ]
        return replace(self, start_positions=(*self.start_positions, *fresh)) if fresh else self

    def with_ended_events(self, events: Iterable[str], head: int) -> Selection:
        """With these events gone: types that come to have their names begin after `head` everywhere."""
        gone = dict.fromkeys(events)
        kept = [b for b in self.start_positions if b.event not in gone]
        ended = [*(b for b in kept if not b.channel), *(StartPosition("", event, head) for event in gone)]
        held = [b for b in kept if b.channel]
        return replace(self, start_positions=(*held, *ended[-_MAX_ENDED:]))

    def members_of(self, channel: str) -> tuple[ChannelMember, ...]:
        """The members of a channel, by its exact name."""
        return self._members_by_channel.get(channel, ())

    def try_channel(self, name: str) -> CustomChannel | None:
        """The custom channel of that name in any letter case, or None."""
        return next((c for c in self.channels if c.name.lower() == name.lower()), None)

    def try_member(self, full_name: str) -> ChannelMember | None:
        """The member of that full name in any letter case, or None."""
        return next((m for m in self.members if m.full_name.lower() == full_name.lower()), None)

    def enriched_fields(self, event: str) -> frozenset[str]:
        """The fields that any channel adds to an event."""
        return frozenset(name for m in self.members if m.event == event for name in m.enriched)

    def with_channel(self, channel: CustomChannel) -> Selection:
        """With a channel that is new, or in place of the one of its name."""
        kept = [c for c in self.channels if c.name != channel.name]
        return replace(self, channels=tuple(sorted([*kept, channel], key=lambda c: c.name)))

    def with_member(self, member: ChannelMember) -> Selection:
        """With a member that is new, or in place of the one of its full name."""
        kept = [m for m in self.members if m.full_name != member.full_name]
        return replace(self, members=tuple(sorted([*kept, member], key=lambda m: m.full_name)))

    def without_channel(self, name: str) -> Selection:
        """Without a channel and its members."""
        return replace(
            self,
            channels=tuple(c for c in self.channels if c.name != name),
            members=tuple(m for m in self.members if m.channel != name),
            start_positions=self._start_positions_without(name),
        )

    def _start_positions_without(self, channel: str) -> tuple[StartPosition, ...]:
        """The start positions on other channels; keeps the fact that events were captured before."""
        ended = [
            StartPosition("", b.event)
            for b in self.start_positions
            if b.channel == channel and ("", b.event) not in self._after
        ]
        return (*(b for b in self.start_positions if b.channel != channel), *ended)

    def try_managed(self, name: str) -> ManagedSubscription | None:
        """The managed subscription of that name in any letter case, or None."""
        return next((m for m in self.managed if m.name.lower() == name.lower()), None)

    def with_managed(self, managed: ManagedSubscription) -> Selection:
        """With a managed subscription that is new, or in place of the one of its name."""
        kept = [m for m in self.managed if m.name != managed.name]
        return replace(self, managed=tuple(sorted([*kept, managed], key=lambda m: m.name)))

    def without_managed(self, name: str) -> Selection:
        """Without a managed subscription."""
        return replace(self, managed=tuple(m for m in self.managed if m.name != name))

    def without_member(self, full_name: str) -> Selection:
        """Without a member."""
        return replace(self, members=tuple(m for m in self.members if m.full_name != full_name))

    def with_standard(self, entities: Iterable[str]) -> Selection:
        """With exactly these objects on the standard channel; those that stay keep what is added to them."""
        wanted = frozenset(entities)
        selection = self
        held = {m.entity: m for m in self.members_of(STANDARD_CHANNEL)}
        for entity, member in held.items():
            if entity not in wanted:
                selection = selection.without_member(member.full_name)
        for entity in sorted(wanted - held.keys()):
            selection = selection.with_member(selection.fresh_member(STANDARD_CHANNEL, entity))
        return selection

    def fresh_member(self, channel: str, entity: str) -> ChannelMember:
        """A member for an object under the name that the platform gives one, or the next that is free."""
        event = change_event_name(entity)
        name = member_name(channel, event)
        number, free = 1, name
        while self.try_member(free) is not None:
            number += 1
            free = f"{name}{number}"
        return ChannelMember(free, channel, event)

    def with_renamed(self, old: str, new: str) -> Selection:
        """With an event under its new name."""
        members = [replace(m, event=new) if m.event == old else m for m in self.members]
        start_positions = [replace(b, event=new) if b.event == old else b for b in self.start_positions]
        return replace(self, members=tuple(members), start_positions=tuple(start_positions))

    def with_renamed_field(self, event: str, old: str, new: str) -> Selection:
        """With a field that is added to an event under its new name."""
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
    """Refuse what goes beyond the limits; what was there before may stay. Raises LimitExceeded."""
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
    """The name that the platform gives a member: `ChangeEvents_AccountChangeEvent`."""
    return f"{channel}_{event}".replace("__", "_")


def can_capture(obj: ObjectType) -> bool:
    """Whether changes of an object may become events: not of what sets up the org, of shares or of channels."""
    return not (obj.is_setup or obj.shares or obj.name == STREAMING_CHANNEL.name)


def is_enrichable(f: Field) -> bool:
    """Whether events may carry a field that did not change, by the guide's list of types. A part goes with its
    compound only.
    """
    return f.in_change_events and not f.compound and f.type.row.is_enrichable


def render_selection(selection: Selection) -> str:
    """The selection as it is stored."""
    return json.dumps(
        {
            "channels": [asdict(channel) for channel in selection.channels],
            "members": [asdict(member) for member in selection.members],
            "managed": [asdict(managed) for managed in selection.managed],
            "beginnings": [asdict(start) for start in selection.start_positions],
        }
    )


def parse_selection(text: str) -> Selection:
    """The selection that was stored; a plain list is how the standard channel alone used to be. What was stored without
    beginnings shows all there is.
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
