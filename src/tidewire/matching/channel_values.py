"""The values in which channel policy answers: grants, topic descriptions and publish outcomes.

Edges load this module, so it imports nothing heavy. Every value can be copied byte for byte to another process.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tidewire.events import Family
from tidewire.matching.filters import NotificationFilter


@dataclass(frozen=True, slots=True)
class ChannelGrant:
    """Permission for one user to read a channel, and which parts of its events.

    `topics` are the log topics that the channel shows, all of one family. `hidden` maps a topic to the fields that
    this user may not see; topics with nothing to hide are not listed. Two grants with equal `hidden` share encoded
    bytes. The grant is valid while the log's access generation equals `generation`, and must be renewed after that.
    """

    channel: str
    family: Family
    topics: frozenset[str]
    hidden: tuple[tuple[str, frozenset[str]], ...]
    generation: int
    sharing_filtered: tuple[tuple[str, str], ...] = ()
    """Topics, with their objects, whose events the user gets only for records that are shared with them."""
    notification_filter: NotificationFilter | None = None
    """Which records' notifications are sent; None for other families."""
    enriched: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Topics whose events the core filters and enriches, page by page, with the latest values of these fields."""
    start_positions: tuple[tuple[str, int], ...] = ()
    """Topics whose events the channel shows only after a position, because they joined the channel then."""

    @property
    def needs_core(self) -> bool:
        """Whether the core must process each page of events before it is delivered."""
        return bool(self.sharing_filtered or self.enriched)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """The answer to GetTopic. `schema_id` is empty for channels that carry several schemas."""

    name: str
    can_publish: bool
    can_subscribe: bool
    schema_id: str


class PublishDraft(NamedTuple):
    """One event to publish. An empty `event_uuid` is replaced by a new one."""

    schema_id: str
    payload: bytes
    event_uuid: str


class Rejection(NamedTuple):
    """Why a draft was not published."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class PublishOutcomes:
    """The outcome of a publish call, without an entry for each success.

    `event_uuids` name all drafts, in order. Those whose index is not in `rejected` are durable: the first of them at
    position `first`, the others right behind it. `schema_id` is the topic's newest, by which they were stored.
    """

    event_uuids: tuple[str, ...]
    first: int
    rejected: tuple[tuple[int, Rejection], ...]
    schema_id: str
