"""The seam from edge to core: the calls that an edge may make, grouped by role.

In one process `server/link.py` implements them over the core's objects. In an edge process `server/wire_link.py`
generates a stub for each of them from the declarations below, and `server/wire_values.py` their codecs from the type
hints. Adding a call therefore means to declare it in a role here and to implement it in `server/link.py`.

Rules for a declaration: parameters are positional and of plain copyable types, because stubs send them byte for byte.
A coroutine is a request: it may raise PlatformError and never blocks the loop. A plain function is a notice: it is sent
without waiting, has no result and cannot fail for the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tidewire.access.principal import Principal
from tidewire.delivery.link_values import Delivered, DurableClient, ManagedStart, StreamState
from tidewire.eventlog.log import LogBounds, LogPage
from tidewire.events import CommittedBatch, Family
from tidewire.matching.channel_values import ChannelGrant, PublishDraft, PublishOutcomes, TopicDescription


class Sessions(Protocol):
    """Login sessions."""

    async def authenticate(self, token: str, /) -> Principal:
        """Return the user of a session token. Cheap enough for every request. Raises SessionInvalid."""

    def touch_sessions(self, session_ids: frozenset[str], /) -> None:
        """Keep sessions from expiring, because their clients have streams open."""


class Clients(Protocol):
    """Streaming clients and what they use, counted against the org's allocations."""

    async def admit_client(self, client_id: str, front_end: str, user_id: str, is_durable: bool, /) -> int:
        """Count a client. Raises LimitExceeded.

        Returns how many other clients of the user at this front end must end for it.
        """

    def renew_clients(self, client_ids: frozenset[str], /) -> None:
        """Renew the leases of clients that are still connected."""

    def release_client(self, client_id: str, /) -> None:
        """Stop counting a client."""

    async def admit_subscription(
        self, client_id: str, channel: str, family: Family, is_durable: bool, /
    ) -> bool:
        """Count a subscription and return whether its deliveries count against an allocation. Raises LimitExceeded."""

    def release_subscription(self, client_id: str, channel: str, /) -> None:
        """Stop counting a subscription."""

    def count_delivered(self, deliveries: tuple[Delivered, ...], /) -> None:
        """Count delivered events."""

    def report_streams(self, streams: tuple[StreamState, ...], /) -> None:
        """Replace the list of everything that is open at this edge."""

    async def begin_listening(self, topic: str, user_id: str, /) -> None:
        """Report a user's first subscription to a generic channel here; returns when the core has it."""

    def end_listening(self, topic: str, user_id: str, /) -> None:
        """Report that a user's last subscription to a generic channel here has ended."""


class StoredClients(Protocol):
    """Clients that survive a restart of the server."""

    async def store_client(self, client: DurableClient, /) -> None:
        """Store a client; returns when it is durable."""

    def store_positions(self, clients: tuple[DurableClient, ...], /) -> None:
        """Store new positions of clients; durable soon after."""

    def forget_client(self, client_id: str, /) -> None:
        """Delete a stored client."""

    async def find_client(self, client_id: str, /) -> DurableClient | None:
        """Return a stored client, if it exists."""


class Channels(Protocol):
    """Permission to subscribe, and what the core must do to the events of a subscription."""

    async def open_channel(self, principal: Principal, channel: str, api_version: float, /) -> ChannelGrant:
        """Grant a subscription. Raises ChannelInvalid, ChannelUnknown or ChannelForbidden.

        A generic channel (`/u/...`) that does not exist is created if the org and the user may create it.
        """

    async def renew_channel(
        self, principal: Principal, grant: ChannelGrant, api_version: float, /
    ) -> ChannelGrant:
        """Grant the same channel under the current permissions. Raises as `open_channel` does."""

    async def visible_record_ids(
        self, principal: Principal, entity: str, record_ids: tuple[str, ...], /
    ) -> frozenset[str]:
        """Return which of these records, deleted or not, the user may read now."""

    async def enrich_page(self, grant: ChannelGrant, page: LogPage, /) -> LogPage:
        """Filter and enrich a page of events for a channel; a page that grows too large ends early."""


class LogReads(Protocol):
    """Reads of the event log."""

    async def read_log_head(self) -> int:
        """Return the last position assigned."""

    async def read_log_bounds(self, family: Family, /) -> LogBounds:
        """Return the readable range of a family."""

    async def is_position_known(self, position: int, /) -> bool:
        """Return whether the log ever assigned this position, on any channel, or an incarnation starts after it."""

    async def read_log(
        self, family: Family, topics: frozenset[str], after: int, max_events: int, max_bytes: int, /
    ) -> LogPage:
        """Return one page of events with position > `after`, oldest first, from one short read transaction."""

    async def find_position_at(self, family: Family, time_ms: int, /) -> int:
        """Return the position before a family's first event from a time on, or the head if there is none yet."""

    async def schema_json(self, schema_id: str, /) -> str:
        """Return the JSON text of any Avro schema that an event ever had. Raises SchemaUnknown."""


class Topics(Protocol):
    """Topics of the event bus: what they are, and publishing to them."""

    async def describe_topic(self, principal: Principal, topic: str, /) -> TopicDescription:
        """Describe a topic. Raises TopicUnknown or AccessDenied."""

    async def publish(
        self, principal: Principal, topic: str, drafts: Sequence[PublishDraft], /
    ) -> PublishOutcomes:
        """Append platform events; returns when they are durable. Raises TopicUnknown or AccessDenied."""


class ManagedSubscriptions(Protocol):
    """Managed subscriptions, each held by one stream at a time."""

    async def open_managed(
        self, principal: Principal, subscription_id: str, name: str, holder: str, /
    ) -> ManagedStart:
        """Give a managed subscription, by id or name, to `holder` alone.

        Raises ManagedUnknown, ManagedStopped, ManagedActive, ChannelUnknown or ChannelForbidden. Raises ReplayIdExpired
        or ReplayIdInvalid if its stored position can no longer be read; the next call then starts as configured.
        """

    async def check_managed(self, principal: Principal, subscription_id: str, holder: str, /) -> None:
        """Check that `holder` may continue. Raises as `open_managed` does."""

    async def commit_managed(
        self, principal: Principal, subscription_id: str, holder: str, position: int, /
    ) -> None:
        """Store a position; returns when it is durable. Raises ReplayIdInvalid, or as `open_managed` does."""

    def release_managed(self, subscription_id: str, holder: str, /) -> None:
        """Release whatever `holder` holds. The id is empty if `holder` gave up before it learned the id."""


class Commits(Protocol):
    """The feed from core to edge. Takes a callable, so it has no stub: `RemoteLink` implements it itself."""

    def watch_commits(self, deliver: Callable[[CommittedBatch], None], /) -> Callable[[], None]:
        """Call `deliver` on the edge's loop after each commit, in order. Returns a function that stops it."""


CALL_ROLES = (Sessions, Clients, StoredClients, Channels, LogReads, Topics, ManagedSubscriptions)
"""The roles whose calls cross to another process."""


class HubLink(Sessions, Clients, Channels, LogReads, Commits, Protocol):
    """The roles that a hub needs."""


class CoreLink(HubLink, StoredClients, Topics, ManagedSubscriptions, Protocol):
    """All roles together: one org's core as an edge sees it."""
