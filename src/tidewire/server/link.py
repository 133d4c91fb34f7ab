"""`CoreLink` in the core's own process: each call goes straight to the part of the core that answers it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tidewire.access.principal import Principal
from tidewire.delivery.link_values import Delivered, DurableClient, ManagedStart, StreamState
from tidewire.eventlog.log import LogBounds, LogPage
from tidewire.events import CommittedBatch, Family
from tidewire.matching.channel_values import ChannelGrant, PublishDraft, PublishOutcomes, TopicDescription
from tidewire.names import parse_channel
from tidewire.server.core import Core


class LocalLink:
    """One edge's link. The core knows by the link itself which edge has which clients, streams and holders."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._client_ids: set[str] = set()

    def close(self) -> None:
        """Release everything that the edge behind this link had."""
        self._core.generic.listeners.drop(self)
        self._core.managed.drop(self)
        self._core.streams.drop(self)
        for client_id in tuple(self._client_ids):
            self.release_client(client_id)

    # sessions

    async def authenticate(self, token: str) -> Principal:
        principal = await self._core.logins.sessions.authenticate(token)
        await self._core.gate.check_api(principal)
        return principal

    def touch_sessions(self, session_ids: frozenset[str]) -> None:
        self._core.logins.sessions.touch(session_ids)

    # clients

    async def admit_client(self, client_id: str, front_end: str, user_id: str, is_durable: bool) -> int:
        surplus = self._core.allocations.admit_client(client_id, front_end, user_id, is_durable=is_durable)
        self._client_ids.add(client_id)
        return surplus

    def renew_clients(self, client_ids: frozenset[str]) -> None:
        self._core.allocations.renew_clients(client_ids)

    def release_client(self, client_id: str) -> None:
        self._client_ids.discard(client_id)
        self._core.allocations.release_client(client_id)

    async def admit_subscription(
        self, client_id: str, channel: str, family: Family, is_durable: bool
    ) -> bool:
        topic = parse_channel(channel).path
        return self._core.allocations.admit_subscription(
            client_id, channel, topic, family, is_durable=is_durable
        )

    def release_subscription(self, client_id: str, channel: str) -> None:
        self._core.allocations.release_subscription(client_id, channel)

    def count_delivered(self, deliveries: tuple[Delivered, ...]) -> None:
        self._core.allocations.count_delivered(deliveries)

    def report_streams(self, streams: tuple[StreamState, ...]) -> None:
        self._core.streams.replace(self, streams)

    async def begin_listening(self, topic: str, user_id: str) -> None:
        self._core.generic.listeners.begin(self, topic, user_id)

    def end_listening(self, topic: str, user_id: str) -> None:
        self._core.generic.listeners.end(self, topic, user_id)

    # stored clients

    async def store_client(self, client: DurableClient) -> None:
        await self._core.durable_clients.store(client)

    def store_positions(self, clients: tuple[DurableClient, ...]) -> None:
        self._core.durable_clients.note(clients)

    def forget_client(self, client_id: str) -> None:
        self._core.durable_clients.forget(client_id)

    async def find_client(self, client_id: str) -> DurableClient | None:
        return await self._core.durable_clients.try_find(client_id)

    # channels

    async def open_channel(self, principal: Principal, channel: str, api_version: float) -> ChannelGrant:
        return await self._core.channel_policy.open_channel(principal, channel, api_version)

    async def renew_channel(
        self, principal: Principal, grant: ChannelGrant, api_version: float
    ) -> ChannelGrant:
        return await self._core.channel_policy.renew_channel(principal, grant, api_version)

    async def visible_record_ids(
        self, principal: Principal, entity: str, record_ids: tuple[str, ...]
    ) -> frozenset[str]:
        return await self._core.gate.visible_record_ids(principal, entity, record_ids)

    async def enrich_page(self, grant: ChannelGrant, page: LogPage) -> LogPage:
        return await self._core.channel_policy.enrich_page(grant, page)

    # log reads

    async def read_log_head(self) -> int:
        return await self._core.records.read(self._core.log.read_head)

    async def read_log_bounds(self, family: Family) -> LogBounds:
        return await self._core.records.read(lambda reader: self._core.log.read_bounds(reader, family))

    async def is_position_known(self, position: int) -> bool:
        return await self._core.records.read(
            lambda reader: self._core.log.is_position_known(reader, position)
        )

    async def read_log(
        self, family: Family, topics: frozenset[str], after: int, max_events: int, max_bytes: int
    ) -> LogPage:
        return await self._core.records.read(
            lambda reader: self._core.log.read_after(reader, family, topics, after, max_events, max_bytes)
        )

    async def find_position_at(self, family: Family, time_ms: int) -> int:
        return await self._core.records.read(lambda reader: self._core.log.find_time(reader, family, time_ms))

    async def schema_json(self, schema_id: str) -> str:
        return await self._core.gate.schema_json(schema_id)

    # topics

    async def describe_topic(self, principal: Principal, topic: str) -> TopicDescription:
        return await self._core.channel_policy.describe_topic(principal, topic)

    async def publish(
        self, principal: Principal, topic: str, drafts: Sequence[PublishDraft]
    ) -> PublishOutcomes:
        return await self._core.channel_policy.publish(principal, topic, drafts)

    # managed subscriptions

    async def open_managed(
        self, principal: Principal, subscription_id: str, name: str, holder: str
    ) -> ManagedStart:
        await self._check_managed(principal, subscription_id, name)
        return await self._core.managed.open(subscription_id, name, self, holder)

    async def check_managed(self, principal: Principal, subscription_id: str, holder: str) -> None:
        await self._check_managed(principal, subscription_id, "")
        self._core.managed.confirm(subscription_id, self, holder)

    async def commit_managed(
        self, principal: Principal, subscription_id: str, holder: str, position: int
    ) -> None:
        await self._check_managed(principal, subscription_id, "")
        await self._core.managed.commit(subscription_id, self, holder, position)

    def release_managed(self, subscription_id: str, holder: str) -> None:
        self._core.managed.release(subscription_id, self, holder)

    async def _check_managed(self, principal: Principal, subscription_id: str, name: str) -> None:
        await self._core.gate.check_api(principal)
        topic = self._core.managed.find(subscription_id, name).topic
        await self._core.channel_policy.check_managed(principal, topic)

    # commits

    def watch_commits(self, deliver: Callable[[CommittedBatch], None]) -> Callable[[], None]:
        return self._core.commits.watch(deliver)
