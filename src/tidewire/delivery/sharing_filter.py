"""Remove events about records that their receiver may not see: notifications and generic events.

A grant names the topics to filter; there are none for receivers who see every record of the object. The core
is asked once for all records of a page, just before the page is sent.
"""

from __future__ import annotations

from collections.abc import Sequence

import orjson

from tidewire.access.principal import Principal
from tidewire.delivery.link import Channels
from tidewire.events import Event, Family
from tidewire.matching.channel_values import ChannelGrant


async def drop_unshared(
    link: Channels, principal: Principal, grant: ChannelGrant, events: Sequence[Event]
) -> tuple[Event, ...]:
    """Return the events of a page that this receiver may see."""
    sharing_filtered = dict(grant.sharing_filtered)
    about = {event.position: record_id_of(event) for event in events if event.topic in sharing_filtered}
    by_entity: dict[str, set[str]] = {}
    for event in events:
        if event.topic in sharing_filtered:
            by_entity.setdefault(sharing_filtered[event.topic], set()).add(about[event.position])
    visible: set[str] = set()
    for entity, record_ids in by_entity.items():
        visible |= await link.visible_record_ids(principal, entity, tuple(sorted(record_ids)))
    return tuple(e for e in events if e.position not in about or about[e.position] in visible)


def record_id_of(event: Event) -> str:
    """Return the id of the record that a notification is about; for a generic event, its channel."""
    if event.family is Family.GENERIC:
        return event.topic
    return str(orjson.loads(event.payload)["sobject"]["Id"])
