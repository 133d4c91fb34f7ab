"""The seam between edge and core, both in this process: CoreLink over the core's own objects."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from tidewire.access.principal import Principal
from tidewire.access.publishing import Submitted
from tidewire.delivery.link import (
    ChannelGrant,
    LogBounds,
    LogPage,
    PublishDraft,
    PublishOutcome,
    TopicDescription,
)
from tidewire.errors import AccessDenied, ChannelForbidden, ChannelInvalid, ChannelUnknown, TopicUnknown
from tidewire.events import CommittedBatch, Family
from tidewire.matching.channels import ChannelView, view_channel, view_push_topic
from tidewire.names import ChannelKind, ChannelName, parse_channel
from tidewire.server.core import Core
from tidewire.transport.http import HttpRequest, HttpResponse


class LocalLink:
    """What an edge in the core's own process asks through."""

    def __init__(self, core: Core, answer_http: Callable[[HttpRequest], Awaitable[HttpResponse]]) -> None:
        self._core = core
        self._answer_http = answer_http
        self.org_id = core.logins.org_id

    async def authenticate(self, token: str) -> Principal:
        principal = await self._core.logins.authenticate(token)
        await self._core.gate.check_api(principal)
        return principal

    def touch_sessions(self, session_ids: frozenset[str]) -> None:
        self._core.logins.touch(session_ids)

    async def call_http(self, request: HttpRequest) -> HttpResponse:
        return await self._answer_http(request)

    async def open_channel(self, principal: Principal, channel: str, api_version: float) -> ChannelGrant:
        await self._core.gate.check_api(principal)
        generation, grants = await self._core.gate.current_grants(principal)
        view = view_channel(channel, self._core.gate.catalog, self._core.capture.push_topics, grants)
        return await self._grant(principal, channel, view, generation)

    async def renew_channel(
        self, principal: Principal, grant: ChannelGrant, api_version: float
    ) -> ChannelGrant:
        if grant.family is not Family.PUSH_TOPIC:
            return await self.open_channel(principal, grant.channel, api_version)
        await self._core.gate.check_api(principal)
        generation, grants = await self._core.gate.current_grants(principal)
        for topic_id in grant.topics:
            topic = self._core.capture.push_topics.by_id.get(topic_id)
            if topic is not None:
                view = view_push_topic(topic, grants, grant.channel)
                return await self._grant(principal, grant.channel, view, generation)
        raise ChannelUnknown(
            f"The channel you requested to subscribe to does not exist {{{grant.channel}}}",
            channel=grant.channel,
        )

    async def visible_record_ids(
        self, principal: Principal, entity: str, record_ids: tuple[str, ...]
    ) -> frozenset[str]:
        return await self._core.gate.visible_record_ids(principal, entity, record_ids)

    async def _grant(
        self, principal: Principal, channel: str, view: ChannelView, generation: int
    ) -> ChannelGrant:
        known = self._core.capture.push_topics.by_id if view.family is Family.PUSH_TOPIC else {}
        sifted = tuple(
            [
                (topic.record_id, topic.obj.name)
                for topic in (known[topic_id] for topic_id in view.topics if topic_id in known)
                if not await self._core.gate.sees_all_records(principal, topic.obj.name)
            ]
        )
        return ChannelGrant(channel, view.family, view.topics, view.hidden, generation, sifted)

    async def log_head(self) -> int:
        return await self._core.records.read(self._core.log.read_head)

    async def log_bounds(self, family: Family) -> LogBounds:
        bounds = await self._core.records.read(lambda reader: self._core.log.read_bounds(reader, family))
        return LogBounds(bounds.trimmed_through, bounds.head)

    async def is_position_known(self, position: int) -> bool:
        return await self._core.records.read(
            lambda reader: self._core.log.is_position_known(reader, position)
        )

    async def read_log(
        self, family: Family, topics: frozenset[str], after: int, max_events: int, max_bytes: int
    ) -> LogPage:
        page = await self._core.records.read(
            lambda reader: self._core.log.read_after(reader, family, topics, after, max_events, max_bytes)
        )
        return LogPage(page.events, page.through)

    async def describe_topic(self, principal: Principal, topic: str) -> TopicDescription:
        name = _topic_name(topic)
        generation_and_grants = await self._core.gate.current_grants(principal)
        grants = generation_and_grants[1]
        can_publish = False
        if name.kind is ChannelKind.PLATFORM_EVENT:
            event = self._core.gate.catalog.try_event(name.name)
            can_publish = event is not None and grants.on(event.name).can_create
        try:
            view = view_channel(topic, self._core.gate.catalog, self._core.capture.push_topics, grants)
        except (ChannelUnknown, ChannelInvalid) as error:
            raise TopicUnknown(error.message, topic=topic) from error
        except ChannelForbidden as error:
            if not can_publish:
                raise AccessDenied(error.message, topic=topic) from error
            return TopicDescription(topic, True, False, self._core.gate.latest_schema(name.name).schema_id)
        (only,) = view.topics if len(view.topics) == 1 else ("",)
        is_many = topic == "/data/ChangeEvents"
        schema_id = "" if is_many or not only else self._core.gate.latest_schema(only).schema_id
        return TopicDescription(topic, can_publish, True, schema_id)

    async def schema_json(self, schema_id: str) -> str:
        return await self._core.gate.schema_json(schema_id)

    async def publish(
        self, principal: Principal, topic: str, drafts: Sequence[PublishDraft]
    ) -> list[PublishOutcome]:
        name = _topic_name(topic)
        if name.kind is not ChannelKind.PLATFORM_EVENT:
            raise AccessDenied(f"{topic} cannot be published to", topic=topic)
        submitted = [Submitted(d.schema_id, d.payload, d.event_uuid) for d in drafts]
        outcomes = await self._core.gate.publish(principal, name.name, submitted)
        return [
            PublishOutcome(o.event_uuid, o.position)
            if o.error is None
            else PublishOutcome(o.event_uuid, 0, o.error.code, o.error.message)
            for o in outcomes
        ]

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
