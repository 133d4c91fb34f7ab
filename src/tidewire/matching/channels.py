"""What a channel name covers for one user: topics of the log, and the fields to leave out of their events."""

from __future__ import annotations

from dataclasses import dataclass

from tidewire.access.grants import Grants
from tidewire.capture.push_topics import PushTopic
from tidewire.capture.topic_index import PushTopicIndex
from tidewire.errors import ChannelForbidden, ChannelUnknown
from tidewire.events import Family
from tidewire.names import ALL_CHANGES, ChannelKind, change_event_name, entity_of_change_event, parse_channel
from tidewire.schema.catalog import Catalog

_NO_TOPICS = "User not enabled for streaming"
_NO_ENTITY = "Subscriber does not have access to the entity in this topic"
_NO_WHERE_FIELDS = (
    "Subscriber does not have access to all fields referenced in the where clause of the PushTopic"
)
_NO_CHANGES = "User not allowed to subscribe CDC without View All Data permissions"


@dataclass(frozen=True, slots=True)
class ChannelView:
    """A channel as one user sees it. `hidden` lists only topics with something to hide."""

    family: Family
    topics: frozenset[str]
    hidden: tuple[tuple[str, frozenset[str]], ...] = ()


def view_channel(channel: str, catalog: Catalog, push_topics: PushTopicIndex, grants: Grants) -> ChannelView:
    """Open a channel by name. Raises ChannelInvalid, ChannelUnknown or ChannelForbidden."""
    name = parse_channel(channel)
    if name.kind is ChannelKind.PUSH_TOPIC and not name.filter_text:
        topic = push_topics.by_name.get(name.name)
        if topic is not None:
            return view_push_topic(topic, grants, channel)
    elif name.kind is ChannelKind.CHANGE_EVENT and not name.filter_text:
        return _view_changes(channel, name.name, catalog, grants)
    elif name.kind is ChannelKind.PLATFORM_EVENT and not name.filter_text:
        event = catalog.try_event(name.name)
        if event is not None and event.name == name.name:
            if not grants.can_read(event.name):
                raise ChannelForbidden(_NO_ENTITY, channel=channel)
            return ChannelView(Family.PLATFORM, frozenset({event.name}))
    raise _unknown(channel)


def view_push_topic(topic: PushTopic, grants: Grants, channel: str) -> ChannelView:
    """A push topic for one user, who must be able to read push topics: its WHERE fields must all be readable, what
    it shows is cut to what is.
    """
    obj = topic.obj
    if not grants.can_read("PushTopic"):
        raise ChannelForbidden(_NO_TOPICS, channel=channel)
    if not grants.can_read(obj.name):
        raise ChannelForbidden(_NO_ENTITY, channel=channel)
    if any(not grants.can_read_field(obj, obj.by_name[f.lower()]) for f in topic.where_fields):
        raise ChannelForbidden(_NO_WHERE_FIELDS, channel=channel)
    # Not only of the selected fields: events from before a change of the query may hold others.
    hidden = grants.hidden_fields(obj)
    return ChannelView(
        Family.PUSH_TOPIC, frozenset({topic.record_id}), ((topic.record_id, hidden),) if hidden else ()
    )


def _view_changes(channel: str, name: str, catalog: Catalog, grants: Grants) -> ChannelView:
    if channel == ALL_CHANGES:
        entities = sorted(catalog.captured)
        if not grants.has("ViewAllData") or ("User" in entities and not grants.has("ViewAllUsers")):
            raise ChannelForbidden(_NO_CHANGES, channel=channel)
    else:
        entity = entity_of_change_event(name)
        obj = catalog.try_object(entity) if entity else None
        # Channel names are case-sensitive, object names are not.
        if obj is None or obj.name != entity or obj.name not in catalog.captured:
            raise _unknown(channel)
        if not grants.can_view_all(obj.name):
            raise ChannelForbidden(_NO_CHANGES, channel=channel)
        entities = [obj.name]
    hidden = {
        change_event_name(e): grants.hidden_fields(catalog.object(e)) | catalog.removed_from(e)
        for e in entities
    }
    return ChannelView(
        Family.CHANGE, frozenset(hidden), tuple((topic, names) for topic, names in hidden.items() if names)
    )


def _unknown(channel: str) -> ChannelUnknown:
    return ChannelUnknown(
        f"The channel you requested to subscribe to does not exist {{{channel}}}", channel=channel
    )
