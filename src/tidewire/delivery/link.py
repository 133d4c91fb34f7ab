"""The seam from edge to core: what an edge may ask, in plain values only.

Today both sides live in one process and `server.py` supplies an object of this shape; an edge in a process of
its own
speaks the same calls over a socket. Nothing here may grow a live object: every argument and result must
survive being
copied byte for byte. All calls may raise PlatformError; none blocks the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from tidewire.access.principal import Principal
from tidewire.events import CommittedBatch, Event, Family
from tidewire.transport.http import HttpRequest, HttpResponse


@dataclass(frozen=True, slots=True)
class ChannelGrant:
    """Leave to read a channel, and in which form.

    `topics` are the log topics the channel shows (all of one family). `hidden` maps a topic to the fields of
    its events that
    this user may not see (only topics with something hidden are listed). Two grants with equal `hidden` share
    encoded bytes. The grant counts
    while the log's access generation equals `generation`; after that it must be asked for again.
    """

    channel: str
    family: Family
    topics: frozenset[str]
    hidden: tuple[tuple[str, frozenset[str]], ...]
    generation: int
    sifted: tuple[tuple[str, str], ...] = ()
    """Topics, with their objects, of which this user gets the events on records they may see, and no others."""


@dataclass(frozen=True, slots=True)
class LogBounds:
    """Where a family's readable events lie. A valid position p to resume after has `trimmed_through` <= p <=
    `head`.
    """

    trimmed_through: int
    head: int


@dataclass(frozen=True, slots=True)
class LogPage:
    """Events after a position, and how far the search went: everything up to `through` has been looked at."""

    events: tuple[Event, ...]
    through: int


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """What GetTopic tells. `schema_id` is empty for channels that carry several schemas."""

    name: str
    can_publish: bool
    can_subscribe: bool
    schema_id: str


@dataclass(frozen=True, slots=True)
class PublishDraft:
    """One event that a client wants published. `event_uuid` may be empty; the core then makes one."""

    schema_id: str
    payload: bytes
    event_uuid: str


@dataclass(frozen=True, slots=True)
class PublishOutcome:
    """What became of one draft: `position` if it is durable, otherwise `error_code` and `message`."""

    event_uuid: str
    position: int
    error_code: str = ""
    message: str = ""


class CoreLink(Protocol):
    """Calls from edge to core."""

    org_id: str

    async def authenticate(self, token: str) -> Principal:
        """The user behind a session token. Raises SessionInvalid. Cheap enough for every request."""

    def touch_sessions(self, session_ids: frozenset[str]) -> None:
        """Keep these login sessions from expiring: their clients have streams open."""

    async def call_http(self, request: HttpRequest) -> HttpResponse:
        """Answer a REST, SOAP, OAuth or page request. Never raises; errors are responses."""

    async def open_channel(self, principal: Principal, channel: str, api_version: float) -> ChannelGrant:
        """Leave to subscribe. Raises ChannelInvalid, ChannelUnknown or ChannelForbidden."""

    async def renew_channel(
        self, principal: Principal, grant: ChannelGrant, api_version: float
    ) -> ChannelGrant:
        """A grant for the same channel under today's permissions; a renamed push topic keeps its subscribers."""

    async def visible_record_ids(
        self, principal: Principal, entity: str, record_ids: tuple[str, ...]
    ) -> frozenset[str]:
        """Those of these records, deleted or not, that the user may read by now."""

    async def log_head(self) -> int:
        """The last position the log has given out."""

    async def log_bounds(self, family: Family) -> LogBounds:
        """Earliest and latest position of a family."""

    async def is_position_known(self, position: int) -> bool:
        """Whether the log ever gave out this position (on any channel), or it is where an incarnation starts."""

    async def read_log(
        self, family: Family, topics: frozenset[str], after: int, max_events: int, max_bytes: int
    ) -> LogPage:
        """One page of events with position > `after`, oldest first. One short read transaction."""

    async def describe_topic(self, principal: Principal, topic: str) -> TopicDescription:
        """Raises TopicUnknown or AccessDenied."""

    async def schema_json(self, schema_id: str) -> str:
        """The Avro schema, as JSON text, of any id that an event ever had. Raises SchemaUnknown."""

    async def publish(
        self, principal: Principal, topic: str, drafts: Sequence[PublishDraft]
    ) -> list[PublishOutcome]:
        """Append platform events; returns, in order, when they are durable. Raises TopicUnknown or
        AccessDenied.
        """

    def watch_commits(self, deliver: Callable[[CommittedBatch], None]) -> Callable[[], None]:
        """Call `deliver` on the edge's loop after each commit, in order, from now on. Returns the way to
        stop.
        """
