"""Who may subscribe to, describe and publish to which channel, judged for one user at a time.

Every answer follows from the grants of one access generation. A grant names that generation, so that an edge knows when
to renew it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

from tidewire.access.principal import Principal
from tidewire.capture.enrichment import enrich_events
from tidewire.capture.generic import CHANNEL_OBJECT
from tidewire.capture.stage import CaptureStage
from tidewire.errors import AccessDenied, ChannelForbidden, ChannelInvalid, ChannelUnknown, TopicUnknown
from tidewire.eventlog.log import EventLog, LogPage
from tidewire.events import Family
from tidewire.gate.gate import Gate
from tidewire.matching.channel_values import (
    ChannelGrant,
    PublishDraft,
    PublishOutcomes,
    Rejection,
    TopicDescription,
)
from tidewire.matching.channels import (
    ChannelView,
    channel_filters,
    unknown_channel,
    view_channel,
    view_push_topic,
)
from tidewire.matching.generic import FIRST_VERSION, GenericStreaming
from tidewire.names import ALL_CHANGES, ChannelKind, ChannelName, parse_channel
from tidewire.schema.channels import CHANNEL_SUFFIX
from tidewire.schema.codec import EventSchema, compiled_schema
from tidewire.storage.store import Reader


class ChannelPolicy:
    """One org's."""

    def __init__(self, gate: Gate, log: EventLog, capture: CaptureStage, generic: GenericStreaming) -> None:
        self._gate = gate
        self._log = log
        self._capture = capture
        self._generic = generic

    async def open_channel(self, principal: Principal, channel: str, api_version: float) -> ChannelGrant:
        """Grant a subscription. Raises ChannelInvalid, ChannelUnknown or ChannelForbidden.

        A generic channel (`/u/...`) that does not exist is created if the org and the user may create it.
        """
        await self._gate.check_api(principal)
        # The generation is read before the rights are judged: if they change meanwhile, the grant is stale at once
        # and renewed, instead of being trusted under the new generation.
        generation, grants = await self._gate.current_grants(principal)
        if parse_channel(channel).kind is ChannelKind.GENERIC and api_version >= FIRST_VERSION:
            view = await self._generic.ensure_channel(self._gate, principal, channel)
        else:
            view = view_channel(channel, self._gate.catalog, self._capture.push_topics, grants)
        return await self._grant(principal, channel, view, generation)

    async def renew_channel(
        self, principal: Principal, grant: ChannelGrant, api_version: float
    ) -> ChannelGrant:
        """Grant the same channel under the current permissions. Raises as `open_channel` does.

        A renamed push topic or generic channel keeps its subscribers, because it is found by id.
        """
        if grant.family not in (Family.PUSH_TOPIC, Family.GENERIC):
            return await self._renew_bus(principal, grant, api_version)
        await self._gate.check_api(principal)
        generation, grants = await self._gate.current_grants(principal)
        if grant.family is Family.GENERIC:
            (channel_id,) = grant.topics
            view = await self._generic.renew(self._gate, principal, grant.channel, channel_id)
            return await self._grant(principal, grant.channel, view, generation)
        for topic_id in grant.topics:
            topic = self._capture.push_topics.by_id.get(topic_id)
            if topic is not None:
                view = view_push_topic(topic, grants, grant.channel)
                return await self._grant(principal, grant.channel, view, generation)
        raise unknown_channel(grant.channel)

    async def _renew_bus(self, principal: Principal, grant: ChannelGrant, api_version: float) -> ChannelGrant:
        """Renew a channel of the event bus. Who may no longer read change events stays subscribed but gets none."""
        # Read first: rights that come back while they are judged belong to a later generation.
        generation, _ = await self._gate.current_grants(principal)
        try:
            return await self.open_channel(principal, grant.channel, api_version)
        except ChannelForbidden:
            if grant.family is not Family.CHANGE:
                raise
            return ChannelGrant(grant.channel, grant.family, frozenset(), (), generation)

    async def _grant(
        self, principal: Principal, channel: str, view: ChannelView, generation: int
    ) -> ChannelGrant:
        objects: dict[str, str] = {}
        if view.family is Family.GENERIC:
            objects = dict.fromkeys(view.topics, CHANNEL_OBJECT)
        elif view.family is Family.PUSH_TOPIC:
            known = self._capture.push_topics.by_id
            objects = {topic: known[topic].obj.name for topic in view.topics if topic in known}
        # Change and platform events ignore sharing.
        sharing_filtered = [
            (topic, entity)
            for topic, entity in objects.items()
            if not await self._gate.sees_all_records(principal, entity)
        ]
        return ChannelGrant(
            channel,
            view.family,
            view.topics,
            view.hidden,
            generation,
            tuple(sharing_filtered),
            view.notification_filter,
            view.enriched,
            view.start_positions,
        )

    async def enrich_page(self, grant: ChannelGrant, page: LogPage) -> LogPage:
        """Return the events of a page that pass the channel's filters, with the latest values of the granted fields.

        A merged event becomes one per record, all at the same position. A result that grows too large ends early.
        """
        catalog = self._gate.catalog

        def work(reader: Reader) -> LogPage:
            @cache
            def schema_of(schema_id: str) -> EventSchema:
                return compiled_schema(self._log.read_schema(reader, schema_id))

            fields, filters = dict(grant.enriched), channel_filters(grant.channel, catalog)
            events, last = enrich_events(reader, catalog, schema_of, fields, filters, page.events)
            return LogPage(events, page.through if last is None else last)

        return await self._gate.records.read(work)

    async def check_managed(self, principal: Principal, topic: str) -> None:
        """Raise ChannelForbidden if the user may read nothing of a managed subscription's topic."""
        _, grants = await self._gate.current_grants(principal)
        catalog = self._gate.catalog
        if view_channel(topic, catalog, self._capture.push_topics, grants).topics:
            return
        # A channel may have no members yet; users who view all data may wait for the first.
        if catalog.selection.members_of(parse_channel(topic).name) or not grants.has("ViewAllData"):
            raise ChannelForbidden(f"User not allowed to read anything of {topic}", channel=topic)

    async def describe_topic(self, principal: Principal, topic: str) -> TopicDescription:
        """Describe a topic of the event bus. Raises TopicUnknown or AccessDenied."""
        name = _parse_topic(topic)
        catalog = self._gate.catalog
        _, grants = await self._gate.current_grants(principal)
        can_publish = False
        if name.kind is ChannelKind.PLATFORM_EVENT:
            event = catalog.try_event(name.name)
            can_publish = event is not None and grants.on(event.name).can_create
            if (
                event is not None
                and not event.is_high_volume
                and (can_publish or grants.can_read(event.name))
            ):
                # Standard-volume events belong to the Streaming API; the Pub/Sub API only shows their schema.
                return TopicDescription(topic, False, False, self._gate.latest_schema(event.name).schema_id)
        try:
            view = view_channel(topic, catalog, self._capture.push_topics, grants)
        except (ChannelUnknown, ChannelInvalid) as error:
            raise TopicUnknown(error.message, topic=topic) from error
        except ChannelForbidden as error:
            if not can_publish:
                raise AccessDenied(error.message, topic=topic) from error
            return TopicDescription(topic, True, False, self._gate.latest_schema(name.name).schema_id)
        (only,) = view.topics if len(view.topics) == 1 else ("",)
        has_many_schemas = topic == ALL_CHANGES or name.name.endswith(CHANNEL_SUFFIX)
        schema_id = "" if has_many_schemas or not only else self._gate.latest_schema(only).schema_id
        return TopicDescription(topic, can_publish, True, schema_id)

    async def publish(
        self, principal: Principal, topic: str, drafts: Sequence[PublishDraft]
    ) -> PublishOutcomes:
        """Append platform events and return once they are durable. Raises TopicUnknown or AccessDenied."""
        name = _parse_topic(topic)
        if name.kind is not ChannelKind.PLATFORM_EVENT:
            raise AccessDenied(f"{topic} cannot be published to", topic=topic)
        outcomes = await self._gate.publisher.publish_avro(principal, name.name, drafts)
        event = self._gate.catalog.try_any_event(name.name)
        schema = None if event is None else self._gate.records.types.schemas.get(event.name)
        schema_id = "" if schema is None else schema.schema_id
        rejected = tuple((place, Rejection(e.code, e.message)) for place, e in outcomes.rejected.items())
        return PublishOutcomes(outcomes.event_uuids, outcomes.first, rejected, schema_id)


def _parse_topic(topic: str) -> ChannelName:
    try:
        name = parse_channel(topic)
    except ChannelInvalid as error:
        raise TopicUnknown(error.message, topic=topic) from error
    if name.kind not in (ChannelKind.PLATFORM_EVENT, ChannelKind.CHANGE_EVENT):
        # Push topics and generic channels belong to the Streaming API; the event bus has no such topics.
        raise TopicUnknown(f"There is no topic {topic}", topic=topic)
    return name
