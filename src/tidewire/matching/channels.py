"""What a channel name covers for one user: topics of the log, and the fields to hide in their events."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tidewire.access.grants import Grants
from tidewire.capture.event_filters import EventFilter, compile_event_filter
from tidewire.capture.push_topics import PushTopic
from tidewire.capture.topic_index import PushTopicIndex
from tidewire.errors import ChannelForbidden, ChannelUnknown, DefinitionInvalid
from tidewire.events import Family
from tidewire.gate.publishing import can_see_event
from tidewire.matching.filters import NotificationFilter, parse_filter
from tidewire.names import ALL_CHANGES, ChannelKind, change_event_name, entity_of_change_event, parse_channel
from tidewire.schema.catalog import Catalog
from tidewire.schema.channels import CHANNEL_SUFFIX, STANDARD_CHANNEL, ChannelMember, CustomChannel
from tidewire.schema.standard.activities import WITHOUT_VIEW_ALL
from tidewire.soql.compile_predicate import Predicate

_NO_TOPICS = "User not enabled for streaming"
_NO_ENTITY = "Subscriber does not have access to the entity in this topic"
_NO_WHERE_FIELDS = (
    "Subscriber does not have access to all fields referenced in the where clause of the PushTopic"
)
_NO_CHANGES = "User not allowed to subscribe CDC without View All Data permissions"
_NOTHING_PASSES = EventFilter((), lambda values: False)


@dataclass(frozen=True, slots=True)
class ChannelView:
    """A channel as one user sees it. Its fields are those of `ChannelGrant`."""

    family: Family
    topics: frozenset[str]
    hidden: tuple[tuple[str, frozenset[str]], ...] = ()
    notification_filter: NotificationFilter | None = None
    enriched: tuple[tuple[str, tuple[str, ...]], ...] = ()
    start_positions: tuple[tuple[str, int], ...] = ()


def view_channel(channel: str, catalog: Catalog, push_topics: PushTopicIndex, grants: Grants) -> ChannelView:
    """View a channel by name. Raises ChannelInvalid, ChannelUnknown or ChannelForbidden."""
    name = parse_channel(channel)
    if name.kind is ChannelKind.PUSH_TOPIC:
        topic = push_topics.by_name.get(name.name)
        if topic is not None:
            return view_push_topic(topic, grants, channel)
    elif name.kind is ChannelKind.CHANGE_EVENT and not name.filter_text:
        return _view_changes(channel, name.name, catalog, grants)
    elif name.kind is ChannelKind.PLATFORM_EVENT and not name.filter_text:
        custom = _try_custom(catalog, name.name, "event")
        if custom is not None:
            return _view_events(custom, catalog, grants)
        event = catalog.try_any_event(name.name)
        if event is not None and event.name == name.name:
            if not can_see_event(grants, event):
                raise ChannelForbidden(_NO_ENTITY, channel=channel)
            start_positions = _start_positions([ChannelMember("", "", event.name)], catalog)
            return ChannelView(Family.PLATFORM, frozenset({event.name}), start_positions=start_positions)
    raise unknown_channel(channel)


def view_push_topic(topic: PushTopic, grants: Grants, channel: str) -> ChannelView:
    """View a push topic. Raises ChannelForbidden, ChannelInvalid or FilterInvalid.

    The user must be able to read push topics, the object and all WHERE fields. Other unreadable fields are hidden, and
    the filter in the channel's name may not use them.
    """
    obj = topic.obj
    if not grants.can_read("PushTopic"):
        raise ChannelForbidden(_NO_TOPICS, channel=channel)
    if not grants.can_read(obj.name):
        raise ChannelForbidden(_NO_ENTITY, channel=channel)
    if any(not grants.can_read_field(obj, obj.by_name[f.lower()]) for f in topic.where_fields):
        raise ChannelForbidden(_NO_WHERE_FIELDS, channel=channel)
    # All unreadable fields, not only selected ones: events from before a change of the query may hold others.
    hidden = grants.hidden_fields(obj)
    return ChannelView(
        Family.PUSH_TOPIC,
        frozenset({topic.record_id}),
        ((topic.record_id, hidden),) if hidden else (),
        # The key prefix excludes events from before the query moved to this object.
        NotificationFilter(obj.key_prefix, parse_filter(channel, topic, grants)),
    )


def _view_changes(channel: str, name: str, catalog: Catalog, grants: Grants) -> ChannelView:
    """View a channel of change events.

    An object's own channel is forbidden unless the user may view all its records. Other channels show only the members
    that the user may view.
    """
    custom = _try_custom(catalog, name, "data")
    if channel == ALL_CHANGES or custom is not None:
        members = catalog.selection.members_of(STANDARD_CHANNEL if custom is None else custom.name)
        return _change_view([m for m in members if _can_view_changes(grants, m.entity)], catalog, grants)
    entity = entity_of_change_event(name)
    obj = catalog.try_object(entity) if entity else None
    # Channel names are case-sensitive, object names are not.
    if obj is None or obj.name != entity or obj.name not in catalog.captured:
        raise unknown_channel(channel)
    if not _can_view_changes(grants, obj.name):
        raise ChannelForbidden(_NO_CHANGES, channel=channel)
    return _change_view([ChannelMember("", "", change_event_name(obj.name))], catalog, grants)


def _change_view(members: Sequence[ChannelMember], catalog: Catalog, grants: Grants) -> ChannelView:
    hidden = {
        m.event: grants.hidden_fields(catalog.object(m.entity)) | catalog.removed_from(m.entity)
        for m in members
    }
    return ChannelView(
        Family.CHANGE,
        frozenset(hidden),
        tuple((topic, names) for topic, names in hidden.items() if names),
        enriched=_enriched(members, catalog),
        start_positions=_start_positions(members, catalog),
    )


def _view_events(custom: CustomChannel, catalog: Catalog, grants: Grants) -> ChannelView:
    members = catalog.selection.members_of(custom.name)
    seen = [m for m in members if (e := catalog.try_any_event(m.event)) and can_see_event(grants, e)]
    topics = frozenset(member.event for member in seen)
    enriched, start_positions = _enriched(seen, catalog), _start_positions(seen, catalog)
    return ChannelView(Family.PLATFORM, topics, enriched=enriched, start_positions=start_positions)


def channel_filters(channel: str, catalog: Catalog) -> dict[str, Predicate]:
    """Return the filters of a channel by topic, for the topics that have one."""
    filters = {
        m.event: _filter(m, catalog) for m in catalog.selection.members_of(parse_channel(channel).name)
    }
    return {event: found.matches for event, found in filters.items() if found is not None}


def _filter(member: ChannelMember, catalog: Catalog) -> EventFilter | None:
    """Return the filter of a member, if it has one. A filter that names a deleted field lets nothing pass."""
    kind = catalog.try_object(member.entity) if member.entity else catalog.try_any_event(member.event)
    if not member.filter_text or kind is None:
        return None
    try:
        return compile_event_filter(member.filter_text, kind)
    except DefinitionInvalid:
        return _NOTHING_PASSES


def _enriched(members: Iterable[ChannelMember], catalog: Catalog) -> tuple[tuple[str, tuple[str, ...]], ...]:
    """Return the fields to add to events, by topic: the member's, and those that its filter uses."""
    found: list[tuple[str, tuple[str, ...]]] = []
    for member in members:
        filtered = _filter(member, catalog)
        if member.enriched or filtered is not None:
            used = filtered.fields if filtered is not None else ()
            found.append((member.event, tuple(dict.fromkeys((*member.enriched, *used)))))
    return tuple(found)


def _start_positions(members: Iterable[ChannelMember], catalog: Catalog) -> tuple[tuple[str, int], ...]:
    found = ((m.event, catalog.selection.shown_after(m.channel, m.event)) for m in members)
    return tuple((event, after) for event, after in found if after)


def _try_custom(catalog: Catalog, name: str, kind: str) -> CustomChannel | None:
    found = catalog.selection.try_channel(name) if name.endswith(CHANNEL_SUFFIX) else None
    return found if found is not None and found.name == name and found.kind == kind else None


def _can_view_changes(grants: Grants, entity: str) -> bool:
    """Return whether the user may see every record of an object, since change events ignore sharing."""
    if entity in WITHOUT_VIEW_ALL:
        return grants.has("ViewAllData")
    return grants.can_view_all(entity)


def unknown_channel(channel: str) -> ChannelUnknown:
    """Return the error for a channel that does not exist, in the protocol's words."""
    return ChannelUnknown(
        f"The channel you requested to subscribe to does not exist {{{channel}}}", channel=channel
    )
