"""The seam from edge to core: what an edge may ask, in plain values only.

Within one process `server/link.py` supplies an object of this shape; an edge in a process of its own speaks the
same calls over `server/wire_link.py`. Nothing here may grow a live object: every argument and result must survive
being copied byte for byte. All calls may raise PlatformError; none blocks the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from tidewire.access.principal import Principal
from tidewire.delivery.link_values import Delivered, DurableClient, StreamState
from tidewire.eventlog.log import LogBounds, LogPage
from tidewire.events import CommittedBatch, Family
from tidewire.matching.filters import NotificationFilter
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
    sharing_filtered: tuple[tuple[str, str], ...] = ()
    """Topics, with their objects, of which this user gets the events on records they may see, and no others."""
    notification_filter: NotificationFilter | None = None
    """Which records' notifications are sent; None for events that are no notifications."""
    enriched: tuple[tuple[str, tuple[str, ...]], ...] = ()
    """Topics whose events the core filters and completes, page by page, with the latest values of these fields."""
    start_positions: tuple[tuple[str, int], ...] = ()
    """Topics whose events the channel shows only after a position: it had no such member before."""

    @property
    def needs_core(self) -> bool:
        """Whether the core is asked about each page of events before it is delivered."""
        return bool(self.sharing_filtered or self.enriched)


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """What GetTopic tells. `schema_id` is empty for channels that carry several schemas."""

    name: str
    can_publish: bool
    can_subscribe: bool
    schema_id: str


class PublishDraft(NamedTuple):
    """One event that a client wants published. `event_uuid` may be empty; the core then makes one."""

    schema_id: str
    payload: bytes
    event_uuid: str


class Rejection(NamedTuple):
    """Why a draft was not published."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class PublishOutcomes:
    """What became of some drafts, told without a word about each that went well.

    `event_uuids` name all of them, in order. Those whose places are not in `refused` are durable: the first of them at
    `first`, the others right behind it. `schema_id` is the newest of their topic, by which they were stored.
    """

    event_uuids: tuple[str, ...]
    first: int
    refused: tuple[tuple[int, Rejection], ...]
    schema_id: str


@dataclass(frozen=True, slots=True)
class ManagedStart:
    """A managed subscription that a client may read now: after `position`, or if that is below 0, from the oldest
    kept event or from the tip.
    """

    subscription_id: str
    name: str
    topic: str
    position: int
    is_from_earliest: bool


class CoreLink(Protocol):
    """Calls from edge to core."""

    org_id: str

    async def authenticate(self, token: str) -> Principal:
        """The user behind a session token. Raises SessionInvalid. Cheap enough for every request."""

    def touch_sessions(self, session_ids: frozenset[str]) -> None:
        """Keep these login sessions from expiring: their clients have streams open."""

    async def admit_client(self, client_id: str, is_durable: bool, user_id: str) -> int:
        """Count a streaming client against the org's allocation. With `user_id` it is a Bayeux session, and the answer
        is how many others of that user must be ended for it. Raises LimitExceeded.
        """

    def renew_clients(self, client_ids: frozenset[str]) -> None:
        """These clients are still there."""

    def release_client(self, client_id: str) -> None:
        """This client has gone."""

    async def admit_subscription(
        self, client_id: str, channel: str, family: Family, is_durable: bool
    ) -> bool:
        """Count a client's subscription to a channel; returns whether what it delivers counts against an allocation.
        Raises LimitExceeded.
        """

    def release_subscription(self, client_id: str, channel: str) -> None:
        """A client no longer reads a channel."""

    def count_delivered(self, deliveries: tuple[Delivered, ...]) -> None:
        """Count events that have reached clients."""

    async def store_client(self, client: DurableClient) -> None:
        """Make a client outlive the server; returns when it is durable. Only positions rise by themselves."""

    def store_positions(self, clients: tuple[DurableClient, ...]) -> None:
        """How far these clients have come; durable soon after."""

    def forget_client(self, client_id: str) -> None:
        """A client that was stored need not come back."""

    async def find_client(self, client_id: str) -> DurableClient | None:
        """A client that was stored, if it is still to be had."""

    async def call_http(self, request: HttpRequest) -> HttpResponse:
        """Answer a REST, SOAP, OAuth or page request. Never raises; errors are responses."""

    async def open_channel(self, principal: Principal, channel: str, api_version: float) -> ChannelGrant:
        """Leave to subscribe. Raises ChannelInvalid, ChannelUnknown or ChannelForbidden.

        A generic channel (`/u/...`) that nobody has made yet is made here, if the org and the user may.
        """

    async def renew_channel(
        self, principal: Principal, grant: ChannelGrant, api_version: float
    ) -> ChannelGrant:
        """A grant for the same channel under today's permissions; a renamed push topic or generic channel keeps
        its subscribers.
        """

    async def begin_listening(self, topic: str, user_id: str) -> None:
        """Tell that a user has a first subscription to a generic channel here; returns when core knows of it."""

    def end_listening(self, topic: str, user_id: str) -> None:
        """Tell that a user's last subscription to a generic channel here has gone."""

    async def visible_record_ids(
        self, principal: Principal, entity: str, record_ids: tuple[str, ...]
    ) -> frozenset[str]:
        """Those of these records, deleted or not, that the user may read by now."""

    async def enrich_page(self, grant: ChannelGrant, page: LogPage) -> LogPage:
        """The events of a page that the channel's filters let pass, with the grant's fields of their records; a
        merged event becomes one for each record, all at the same position. What grows too large ends early.
        """

    async def read_log_head(self) -> int:
        """The last position the log has given out."""

    async def read_log_bounds(self, family: Family) -> LogBounds:
        """Earliest and latest position of a family."""

    async def is_position_known(self, position: int) -> bool:
        """Whether the log ever gave out this position (on any channel), or it is where an incarnation starts."""

    async def read_log(
        self, family: Family, topics: frozenset[str], after: int, max_events: int, max_bytes: int
    ) -> LogPage:
        """One page of events with position > `after`, oldest first. One short read transaction."""

    async def find_position_at(self, family: Family, time_ms: int) -> int:
        """The position before a family's first event from that time on; the head if there is none yet."""

    async def open_managed(
        self, principal: Principal, subscription_id: str, name: str, holder: str
    ) -> ManagedStart:
        """Have a managed subscription, by its id or its name, for `holder` alone. Raises ManagedUnknown,
        ManagedStopped, ManagedActive, ChannelUnknown or ChannelForbidden, or ReplayIdExpired or ReplayIdInvalid if its
        position can no longer be read; the next time it then starts where its setup says.
        """

    async def check_managed(self, principal: Principal, subscription_id: str, holder: str) -> None:
        """Whether `holder` may go on. Raises as `open_managed` does."""

    async def commit_managed(
        self, principal: Principal, subscription_id: str, holder: str, position: int
    ) -> None:
        """Keep a position; returns when it is durable. Raises ReplayIdInvalid, or as `open_managed` does."""

    def release_managed(self, subscription_id: str, holder: str) -> None:
        """`holder` has gone. The id may be empty: who was not told yet what they have gives up whatever it is."""

    def report_streams(self, streams: tuple[StreamState, ...]) -> None:
        """Everything that is open here now, instead of what was told before."""

    async def describe_topic(self, principal: Principal, topic: str) -> TopicDescription:
        """Raises TopicUnknown or AccessDenied."""

    async def schema_json(self, schema_id: str) -> str:
        """The Avro schema, as JSON text, of any id that an event ever had. Raises SchemaUnknown."""

    async def publish(
        self, principal: Principal, topic: str, drafts: Sequence[PublishDraft]
    ) -> PublishOutcomes:
        """Append platform events; returns when they are durable. Raises TopicUnknown or AccessDenied."""

    def watch_commits(self, deliver: Callable[[CommittedBatch], None]) -> Callable[[], None]:
        """Call `deliver` on the edge's loop after each commit, in order, from now on. Returns the way to
        stop.
        """
