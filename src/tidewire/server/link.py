"""The seam between edge and core, both in this process: CoreLink over the core's own objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from functools import cache

from tidewire.access.principal import Principal
from tidewire.capture.enrichment import enrich_events
from tidewire.capture.generic import CHANNEL_OBJECT
from tidewire.delivery.link import (
    ChannelGrant,
    ManagedStart,
    PublishDraft,
    PublishOutcomes,
    Rejection,
    TopicDescription,
)
from tidewire.delivery.link_values import Delivered, DurableClient, StreamState
from tidewire.errors import (
    AccessDenied,
    ChannelForbidden,
    ChannelInvalid,
    ChannelUnknown,
    TopicUnknown,
)
from tidewire.eventlog.log import LogBounds, LogPage
from tidewire.events import CommittedBatch, Family
from tidewire.gate.metadata.registry import managed_id
from tidewire.matching.channels import ChannelView, channel_filters, view_channel, view_push_topic
from tidewire.matching.generic import FIRST_VERSION
from tidewire.names import ALL_CHANGES, ChannelKind, ChannelName, parse_channel
from tidewire.schema.channels import CHANNEL_SUFFIX
from tidewire.schema.codec import EventSchema, compiled_schema
from tidewire.server.core import Core
from tidewire.storage.store import Reader
from tidewire.transport.http import HttpRequest, HttpResponse


class LocalLink:
    """What an edge in the core's own process asks through."""

    def __init__(self, core: Core, answer_http: Callable[[HttpRequest], Awaitable[HttpResponse]]) -> None:
        self._core = core
        self._answer_http = answer_http
        self._client_ids: set[str] = set()
        self.org_id = core.logins.org_id

    async def authenticate(self, token: str) -> Principal:
        principal = await self._core.logins.authenticate(token)
        await self._core.gate.check_api(principal)
        return principal

    def touch_sessions(self, session_ids: frozenset[str]) -> None:
        self._core.logins.touch(session_ids)

    async def admit_client(self, client_id: str, is_durable: bool, user_id: str) -> int:
        surplus = self._core.allocations.admit_client(client_id, is_durable=is_durable, user_id=user_id)
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

    async def store_client(self, client: DurableClient) -> None:
        await self._core.durable_clients.store(client)

    def store_positions(self, clients: tuple[DurableClient, ...]) -> None:
        self._core.durable_clients.note(clients)

    def forget_client(self, client_id: str) -> None:
        self._core.durable_clients.forget(client_id)

    async def find_client(self, client_id: str) -> DurableClient | None:
        return await self._core.durable_clients.try_find(client_id)

    async def call_http(self, request: HttpRequest) -> HttpResponse:
        return await self._answer_http(request)

    def for_edge(self) -> LocalLink:
        """A link of its own for one edge, to be closed when that has gone."""
        return LocalLink(self._core, self._answer_http)

    def close(self) -> None:
        """Whoever asked through this link has gone, and so have their clients and those who listened there."""
        self._core.generic.listeners.drop(self)
        self._core.managed.drop(self)
        self._core.streams.drop(self)
        for client_id in tuple(self._client_ids):
            self.release_client(client_id)

    async def begin_listening(self, topic: str, user_id: str) -> None:
        self._core.generic.listeners.begin(self, topic, user_id)

    def end_listening(self, topic: str, user_id: str) -> None:
        self._core.generic.listeners.end(self, topic, user_id)

    async def open_channel(self, principal: Principal, channel: str, api_version: float) -> ChannelGrant:
        await self._core.gate.check_api(principal)
        if parse_channel(channel).kind is ChannelKind.GENERIC and api_version >= FIRST_VERSION:
            generation, _ = await self._core.gate.current_grants(principal)
            view = await self._core.generic.ensure_channel(self._core.gate, principal, channel)
            return await self._grant(principal, channel, view, generation)
        generation, grants = await self._core.gate.current_grants(principal)
        view = view_channel(channel, self._core.gate.catalog, self._core.capture.push_topics, grants)
        return await self._grant(principal, channel, view, generation)

    async def renew_channel(
        self, principal: Principal, grant: ChannelGrant, api_version: float
    ) -> ChannelGrant:
        if grant.family not in (Family.PUSH_TOPIC, Family.GENERIC):
            return await self._renew_bus(principal, grant, api_version)
        await self._core.gate.check_api(principal)
        generation, grants = await self._core.gate.current_grants(principal)
        if grant.family is Family.GENERIC:
            (channel_id,) = grant.topics
            view = await self._core.generic.renew(self._core.gate, principal, grant.channel, channel_id)
            return await self._grant(principal, grant.channel, view, generation)
        for topic_id in grant.topics:
            topic = self._core.capture.push_topics.by_id.get(topic_id)
            if topic is not None:
                view = view_push_topic(topic, grants, grant.channel)
                return await self._grant(principal, grant.channel, view, generation)
        raise ChannelUnknown(
            f"The channel you requested to subscribe to does not exist {{{grant.channel}}}",
            channel=grant.channel,
        )

    async def _renew_bus(self, principal: Principal, grant: ChannelGrant, api_version: float) -> ChannelGrant:
        """Who may not read change events any more stays subscribed and is sent none."""
        # Asked first: rights that come back while the others are judged are of a later generation.
        generation, _ = await self._core.gate.current_grants(principal)
        try:
            return await self.open_channel(principal, grant.channel, api_version)
        except ChannelForbidden:
            if grant.family is not Family.CHANGE:
                raise
            return ChannelGrant(grant.channel, grant.family, frozenset(), (), generation)

    async def visible_record_ids(
        self, principal: Principal, entity: str, record_ids: tuple[str, ...]
    ) -> frozenset[str]:
        return await self._core.gate.visible_record_ids(principal, entity, record_ids)

    async def _grant(
        self, principal: Principal, channel: str, view: ChannelView, generation: int
    ) -> ChannelGrant:
        if view.family is Family.GENERIC:
            is_open = await self._core.gate.sees_all_records(principal, CHANNEL_OBJECT)
            whole = () if is_open else tuple((topic, CHANNEL_OBJECT) for topic in view.topics)
            return ChannelGrant(channel, view.family, view.topics, view.hidden, generation, whole)
        known = self._core.capture.push_topics.by_id if view.family is Family.PUSH_TOPIC else {}
        sharing_filtered = tuple(
            [
                (topic.record_id, topic.obj.name)
                for topic in (known[topic_id] for topic_id in view.topics if topic_id in known)
                if not await self._core.gate.sees_all_records(principal, topic.obj.name)
            ]
        )
        return ChannelGrant(
            channel,
            view.family,
            view.topics,
            view.hidden,
            generation,
            sharing_filtered,
            view.notification_filter,
            view.enriched,
            view.start_positions,
        )

    async def enrich_page(self, grant: ChannelGrant, page: LogPage) -> LogPage:
        log, catalog = self._core.log, self._core.gate.catalog

        def work(reader: Reader) -> LogPage:
            def schema_of(schema_id: str) -> EventSchema:
                return compiled_schema(log.read_schema(reader, schema_id))

            fields, filters = dict(grant.enriched), channel_filters(grant.channel, catalog)
            events, last = enrich_events(reader, catalog, cache(schema_of), fields, filters, page.events)
            return LogPage(events, page.through if last is None else last)

        return await self._core.records.read(work)

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

    async def open_managed(
        self, principal: Principal, subscription_id: str, name: str, holder: str
    ) -> ManagedStart:
        await self._check_managed(principal, subscription_id, name)
        opened = await self._core.managed.open(subscription_id, name, self, holder)
        managed = opened.managed
        return ManagedStart(
            managed_id(managed.name), managed.name, managed.topic, opened.position, opened.is_from_earliest
        )

    async def check_managed(self, principal: Principal, subscription_id: str, holder: str) -> None:
        await self._check_managed(principal, subscription_id, "")
        self._core.managed.confirm(subscription_id, self, holder)

    async def commit_managed(
        self, principal: Principal, subscription_id: str, holder: str, position: int
    ) -> None:
        await self._check_managed(principal, subscription_id, "")
        await self._core.managed.commit(subscription_id, self, holder, position)

    async def _check_managed(self, principal: Principal, subscription_id: str, name: str) -> None:
        """Who may read nothing of a managed subscription's topic can neither hold nor move it."""
        await self._core.gate.check_api(principal)
        _, grants = await self._core.gate.current_grants(principal)
        topic = self._core.managed.find(subscription_id, name).topic
        catalog = self._core.gate.catalog
        if view_channel(topic, catalog, self._core.capture.push_topics, grants).topics:
            return
        # A channel may have no members yet; whoever views all data may wait for the first.
        if catalog.selection.members_of(parse_channel(topic).name) or not grants.has("ViewAllData"):
            raise ChannelForbidden(f"User not allowed to read anything of {topic}", channel=topic)

    def release_managed(self, subscription_id: str, holder: str) -> None:
        self._core.managed.release(subscription_id, self, holder)

    def report_streams(self, streams: tuple[StreamState, ...]) -> None:
        self._core.streams.replace(self, streams)

    async def describe_topic(self, principal: Principal, topic: str) -> TopicDescription:
        name = _topic_name(topic)
        generation_and_grants = await self._core.gate.current_grants(principal)
        grants = generation_and_grants[1]
        can_publish = False
        if name.kind is ChannelKind.PLATFORM_EVENT:
            event = self._core.gate.catalog.try_event(name.name)
            can_publish = event is not None and grants.on(event.name).can_create
            if (
                event is not None
                and not event.is_high_volume
                and (can_publish or grants.can_read(event.name))
            ):
                # Events of the older kind are streaming's; here they have a schema and nothing else.
                schema_id = self._core.gate.latest_schema(event.name).schema_id
                return TopicDescription(topic, False, False, schema_id)
        try:
            view = view_channel(topic, self._core.gate.catalog, self._core.capture.push_topics, grants)
        except (ChannelUnknown, ChannelInvalid) as error:
            raise TopicUnknown(error.message, topic=topic) from error
        except ChannelForbidden as error:
            if not can_publish:
                raise AccessDenied(error.message, topic=topic) from error
            return TopicDescription(topic, True, False, self._core.gate.latest_schema(name.name).schema_id)
        (only,) = view.topics if len(view.topics) == 1 else ("",)
        is_many = topic == ALL_CHANGES or name.name.endswith(CHANNEL_SUFFIX)
        schema_id = "" if is_many or not only else self._core.gate.latest_schema(only).schema_id
        return TopicDescription(topic, can_publish, True, schema_id)

    async def schema_json(self, schema_id: str) -> str:
        return await self._core.gate.schema_json(schema_id)

    async def publish(
        self, principal: Principal, topic: str, drafts: Sequence[PublishDraft]
    ) -> PublishOutcomes:
        name = _topic_name(topic)
        if name.kind is not ChannelKind.PLATFORM_EVENT:
            raise AccessDenied(f"{topic} cannot be published to", topic=topic)
        outcomes = await self._core.gate.publisher.publish_avro(principal, name.name, drafts)
        event = self._core.gate.catalog.try_any_event(name.name)
        schema = None if event is None else self._core.records.types.schemas.get(event.name)
        schema_id = "" if schema is None else schema.schema_id
        refused = tuple((place, Rejection(e.code, e.message)) for place, e in outcomes.refused.items())
        return PublishOutcomes(outcomes.event_uuids, outcomes.first, refused, schema_id)

    def watch_commits(self, deliver: Callable[[CommittedBatch], None]) -> Callable[[], None]:
        return self._core.commits.watch(deliver)


def _topic_name(topic: str) -> ChannelName:
    try:
        name = parse_channel(topic)
    except ChannelInvalid as error:
        raise TopicUnknown(error.message, topic=topic) from error
    if name.kind not in (ChannelKind.PLATFORM_EVENT, ChannelKind.CHANGE_EVENT):
        # Push topics and generic channels are streaming's; the bus does not know them.
        raise TopicUnknown(f"There is no topic {topic}", topic=topic)
    return name
