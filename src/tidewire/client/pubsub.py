"""An asynchronous Pub/Sub client: decoded events in order, publishing, and managed subscriptions.

    async with PubSubClient("localhost:7011", lambda: login(credentials), tls_ca=None) as client:
        await client.publish("/event/Order_Event__e", [{"Order_Number__c": "A-1"}])
        async with client.subscribe("/data/OpportunityChangeEvent", "earliest") as subscription:
            async for event in subscription:
                print(event.replay_id.hex(), event.fields, event.changed_fields)

Works with any server of the protocol. Logs in by itself, at the start and whenever the server no longer accepts the
token. Subscriptions survive lost connections and resume after the last received event; see `pubsub_subscription`.
Schemas are fetched once. Threads without an event loop use `pubsub_blocking`.

A publish request whose response was lost is not retried. Every event carries an id that the client chose, by which
consumers of a program that publishes again can deduplicate.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Self, TypeVar
from weakref import WeakSet

from tidewire.client.login import Login
from tidewire.client.pubsub_connection import PubSubConnection, Retry
from tidewire.client.pubsub_cursors import Cursor, ManagedCursor, Preset, ReplayCursor
from tidewire.client.pubsub_messages import (
    USUAL_MAX_REQUESTED,
    DecodedEvent,
    Published,
    Topic,
    read_results,
    read_topic_info,
    render_replay_id,
    subscribe_metadata,
)
from tidewire.client.pubsub_publishing import PublishStream
from tidewire.client.pubsub_subscription import ManagedSubscription, Subscription
from tidewire.clock import Clock, SystemClock
from tidewire.errors import AccessDenied, DemandInvalid, FieldUnknown, PayloadInvalid, PlatformError
from tidewire.schema.codec import EventSchema
from tidewire.schema.proto import pubsub_pb2 as pb

MAX_SCHEMAS = 1_000
Opened = TypeVar("Opened", bound=Subscription)


class PubSubClient:
    """A client of one endpoint (`host:port`) and user. Use it with `async with`; all calls belong on one event loop.

    `sign_in` runs in a thread; it raises LoginFailed, or ServerUnreachable to be called again later. `tls_ca` holds
    the PEM roots to trust; empty bytes mean the usual public ones, None means plain text. `timeout_s` limits single
    calls.
    """

    def __init__(
        self,
        endpoint: str,
        sign_in: Callable[[], Login],
        *,
        tls_ca: bytes | None,
        timeout_s: float = 30.0,
        min_pause_s: float = 0.1,
        max_pause_s: float = 30.0,
        clock: Clock | None = None,
    ) -> None:
        self._connection = PubSubConnection(endpoint, sign_in, tls_ca=tls_ca, timeout_s=timeout_s)
        self._pauses = {"min_pause_s": min_pause_s, "max_pause_s": max_pause_s}
        self._clock = clock or SystemClock()
        self._schemas: OrderedDict[str, asyncio.Future[EventSchema]] = OrderedDict()
        self._schema_ids: dict[str, str] = {}
        self._open: WeakSet[Subscription | PublishStream] = WeakSet()

    async def __aenter__(self) -> Self:
        """Log in. Raises the login server's rejection; waits while it cannot be reached."""
        retry = Retry(self._connection, **self._pauses)
        try:
            while True:
                try:
                    await self._connection.login()
                    return self
                except PlatformError as error:
                    await retry.failed(error, None)
        except BaseException:
            await self.close()
            raise

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def close(self) -> None:
        """End every subscription and stream, then the connection. Idempotent."""
        for opened in list(self._open):
            await opened.close()
        await self._connection.close()

    async def get_topic(self, topic: str) -> Topic:
        """Return a topic's description. Raises TopicUnknown or AccessDenied."""
        request = pb.TopicRequest(topic_name=topic)
        return read_topic_info(await self._connection.call("GetTopic", request, pb.TopicInfo.FromString))

    async def get_schema(self, schema_id: str) -> EventSchema:
        """Return the schema of an id; cached. Raises SchemaUnknown."""
        found = self._schemas.get(schema_id)
        if found is None:
            found = asyncio.ensure_future(self._load_schema(schema_id))
            self._schemas[schema_id] = found
            if len(self._schemas) > MAX_SCHEMAS:
                self._schemas.popitem(last=False)
        else:
            self._schemas.move_to_end(schema_id)
        try:
            # Shielded: cancelling one caller must not cancel the fetch for the others.
            return await asyncio.shield(found)
        except BaseException:
            if found.done() and self._schemas.get(schema_id) is found:
                del self._schemas[schema_id]
            raise

    def subscribe(
        self,
        topic: str,
        replay: Preset | bytes | int = "latest",
        *,
        max_requested: int = USUAL_MAX_REQUESTED,
        keepalive_ms: int | None = None,
        from_ms: int | None = None,
        when_expired: Preset | None = None,
    ) -> Subscription:
        """Subscribe from the tip, from the oldest retained event, or strictly after a replay id (bytes or number).

        Rejections by the server are raised from the iteration. `when_expired` is where to start if the server no longer
        has the replay id; without it that is an error. Three options work with our server and are ignored by others:
        `max_requested` above 100, `keepalive_ms`, and `from_ms`, which starts a preset at that time. Raises
        DemandInvalid, or ReplayIdInvalid for a number that cannot be a replay id.
        """
        start = render_replay_id(replay) if isinstance(replay, int) else replay
        cursor = ReplayCursor(topic, start, from_ms, when_expired)
        return self._open_subscription(Subscription, cursor, max_requested, keepalive_ms)

    def subscribe_managed(
        self, name: str, *, max_requested: int = USUAL_MAX_REQUESTED, keepalive_ms: int | None = None
    ) -> ManagedSubscription:
        """Read a managed subscription, by id or developer name, from after its last commit."""
        return self._open_subscription(ManagedSubscription, ManagedCursor(name), max_requested, keepalive_ms)

    async def publish(self, topic: str, events: Sequence[Mapping[str, Any]]) -> list[Published]:
        """Publish events given by their fields; return the result of each, in order, once accepted ones are durable.

        CreatedDate and CreatedById are filled in. Raises PayloadInvalid or FieldUnknown if an event does not match the
        topic's schema, AccessDenied if the topic cannot be published to. After ServerUnreachable the outcome is
        unknown.
        """
        if not events:
            return []
        request = pb.PublishRequest(topic_name=topic, events=await self._encode(topic, events))
        return read_results(await self._connection.call("Publish", request, pb.PublishResponse.FromString))

    def publish_stream(self, topic: str, *, max_in_flight: int = 32) -> PublishStream:
        """Open a stream for many requests to one topic, at most `max_in_flight` of them unanswered."""
        stream = PublishStream(self._connection, self._encode, topic, max_in_flight=max_in_flight)
        self._open.add(stream)
        return stream

    def _open_subscription(
        self, kind: type[Opened], cursor: Cursor, max_requested: int, keepalive_ms: int | None
    ) -> Opened:
        if max_requested < 1:
            raise DemandInvalid(f"max_requested must be at least 1, not {max_requested}")
        subscription = kind(
            self._connection,
            self._decode,
            cursor,
            max_requested=max_requested,
            metadata=subscribe_metadata(max_requested, keepalive_ms),
            retry=Retry(self._connection, **self._pauses),
        )
        self._open.add(subscription)
        return subscription

    async def _load_schema(self, schema_id: str) -> EventSchema:
        request = pb.SchemaRequest(schema_id=schema_id)
        info = await self._connection.call("GetSchema", request, pb.SchemaInfo.FromString)
        return EventSchema(info.schema_json)

    async def _decode(self, consumed: pb.ConsumerEvent) -> DecodedEvent:
        event = consumed.event
        schema = await self.get_schema(event.schema_id)
        try:
            fields = schema.decode(event.payload)
        except PayloadInvalid as error:
            raise PayloadInvalid(
                f"{error.message} It has the replay id {consumed.replay_id.hex()}.",
                replay_id=consumed.replay_id,
            ) from error
        headers = {header.key: header.value for header in event.headers}
        return DecodedEvent(consumed.replay_id, event.id, schema, event.payload, headers, fields)

    async def _encode(self, topic: str, events: Sequence[Mapping[str, Any]]) -> list[pb.ProducerEvent]:
        names = {name for event in events for name in event}
        schema_id, schema = await self._publish_schema(topic, names)
        login = await self._connection.login()
        system = {"CreatedDate": self._clock.now_ms(), "CreatedById": login.user_id}
        return [
            pb.ProducerEvent(
                id=str(uuid.uuid4()), schema_id=schema_id, payload=schema.encode({**system, **event})
            )
            for event in events
        ]

    async def _publish_schema(self, topic: str, names: set[str]) -> tuple[str, EventSchema]:
        """Return the schema to publish with. A cached one that lacks a field is fetched again."""
        schema_id = self._schema_ids.get(topic)
        if schema_id is not None:
            schema = await self.get_schema(schema_id)
            if names <= set(schema.field_names):
                return schema_id, schema
        described = await self.get_topic(topic)
        if not described.can_publish or not described.schema_id:
            raise AccessDenied(f"{topic} cannot be published to", topic=topic)
        schema = await self.get_schema(described.schema_id)
        unknown = sorted(names - set(schema.field_names))
        if unknown:
            raise FieldUnknown(
                f"{schema.name} has no field {unknown[0]}.", field=unknown[0], entity=schema.name
            )
        self._schema_ids[topic] = described.schema_id
        return described.schema_id, schema
