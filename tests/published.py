"""Platform events as a test reads them back from the log of a core without sockets."""

from __future__ import annotations

from typing import Any

from tests.orgs import TestOrg
from tidewire.events import Event, Family
from tidewire.schema.codec import EventSchema


async def kept_events(org: TestOrg, topic: str, after: int) -> list[Event]:
    """The events of a topic after a position."""
    page = await org.link.read_log(Family.PLATFORM, frozenset({topic}), after, 1000, 1 << 24)
    return list(page.events)


async def bodies(org: TestOrg, topic: str, after: int) -> list[dict[str, Any]]:
    """The same, each decoded by the schema that it was written by."""
    return [
        EventSchema(await org.link.schema_json(event.schema_id)).decode(event.payload)
        for event in await kept_events(org, topic, after)
    ]
