"""Pub/Sub calls of one org: who answers which, and what a failure tells.

All rules of the protocol are in `session`, `requests` and `wire`, the sockets in `listener`. Messages cross grpc.aio as
bytes, so an encoded event is copied but never parsed or built again.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import grpc

from tidewire.clock import Clock
from tidewire.delivery.hub import Hub
from tidewire.delivery.link import CoreLink
from tidewire.errors import (
    AccessDenied,
    InternalError,
    PlatformError,
    SchemaUnknown,
    StorageError,
    TopicUnknown,
)
from tidewire.faults import fail_point
from tidewire.frontends.pubsub import requests as rules
from tidewire.frontends.pubsub import wire
from tidewire.frontends.pubsub.bodies import Bodies
from tidewire.frontends.pubsub.calls import Call, Caller, Callers, Requests
from tidewire.frontends.pubsub.delivering import Deliverer
from tidewire.frontends.pubsub.managing import ManagedSubscriber
from tidewire.frontends.pubsub.publishing import Publisher
from tidewire.frontends.pubsub.settings import PubSubSettings
from tidewire.frontends.pubsub.subscribing import Subscriber
from tidewire.frontends.pubsub.wire_errors import render_failure
from tidewire.ids import random_uuid
from tidewire.schema.proto import pubsub_pb2 as pb
from tidewire.telemetry import counters

log = logging.getLogger(__name__)


class PubSubApp:
    """The Pub/Sub calls of one org. Made after the hub, closed before it."""

    def __init__(self, link: CoreLink, hub: Hub, clock: Clock, settings: PubSubSettings) -> None:
        self._link = link
        self._settings = settings
        self._callers = callers = Callers(link, hub, settings)
        publisher = Publisher(link, callers, settings)
        deliverer = Deliverer(link, hub.usage, clock, settings)
        hub.usage.add_source(callers.client_ids, deliverer.states)
        subscriber = Subscriber(hub, callers, deliverer, clock, settings)
        managed = ManagedSubscriber(link, hub, callers, deliverer, clock, settings)
        self._bodies = Bodies(settings)
        self._unary: dict[str, Callable[[Call, Caller, bytes], Awaitable[bytes]]] = {
            "GetTopic": self._get_topic,
            "GetSchema": self._get_schema,
            "Publish": publisher.publish,
        }
        self._streams: dict[str, Callable[[Call, Caller, Requests], Awaitable[None]]] = {
            "PublishStream": publisher.publish_stream,
            "Subscribe": subscriber.subscribe,
            "ManagedSubscribe": managed.subscribe,
        }

    async def end_streams(self) -> None:
        """End every stream with a retryable status; later ones end at once."""
        self._callers.end_all()

    async def answer_call(self, rpc: str, requests: Requests, context: Any) -> bytes | None:
        """Answer a call of the listener, or abort it."""
        call = Call(rpc, random_uuid(), context)
        counters["pubsub.calls_received"] += 1
        try:
            return await self._answer(call, await self._callers.admit(call), requests)
        except PlatformError as error:
            # Its frames hold the request, and this one holds the error: together they would wait for the collector.
            reason = error.with_traceback(None)
        except grpc.aio.InternalError:
            return None  # the peer left in the middle of a write; there is nobody to tell
        except Exception as error:
            log.exception("pubsub.call_failed", extra={"rpc": rpc, "rpc_id": call.rpc_id})
            reason = InternalError(type(error).__name__)
        await self._abort(call, reason)
        return None

    async def _answer(self, call: Call, caller: Caller, requests: Requests) -> bytes | None:
        if call.rpc in self._streams:
            await self._streams[call.rpc](call, caller, requests)
            return None
        async with self._bodies.read(caller.principal.user_id, requests) as body:
            # It may have been long on its way, and the login ended meanwhile.
            await self._callers.check(caller)
            return await self._unary[call.rpc](call, caller, body)

    async def _abort(self, call: Call, error: PlatformError) -> None:
        counters["pubsub.calls_failed"] += 1
        failure = render_failure(
            error, rpc=call.rpc, rpc_id=call.rpc_id, tenant=call.tenant, topic=call.topic
        )
        trailers = (*failure.trailers, *call.trailers)
        with contextlib.suppress(grpc.aio.InternalError):  # the peer may have left in the meantime
            await call.context.abort(grpc.StatusCode[failure.status], failure.text, trailers)

    async def _get_topic(self, call: Call, caller: Caller, body: bytes) -> bytes:
        rules.check_size(body, self._settings)
        request = wire.parse_message(pb.TopicRequest, body)
        call.topic = request.topic_name
        rules.check_topic(request.topic_name, "topic.validation.empty")
        with _unavailable_as("topic.api.unavailable"):
            fail_point("pubsub.GetTopic", call.topic)
            topic = await self._link.describe_topic(caller.principal, request.topic_name)
        return wire.render_topic_info(topic, call.tenant, call.rpc_id)

    async def _get_schema(self, call: Call, caller: Caller, body: bytes) -> bytes:
        rules.check_size(body, self._settings)
        schema_id = wire.parse_message(pb.SchemaRequest, body).schema_id
        if not schema_id.strip():
            raise SchemaUnknown("The schema ID can't be blank", wire_code="schema.validation.failed")
        with _unavailable_as("schema.api.unavailable"):
            fail_point("pubsub.GetSchema", schema_id)
            schema_json = await self._link.schema_json(schema_id)
            topic = rules.topic_of_schema(schema_json)
            with contextlib.suppress(TopicUnknown):  # what is gone has nobody to keep it from
                try:
                    await self._link.describe_topic(caller.principal, topic)
                except AccessDenied as error:
                    raise SchemaUnknown("There is no such schema", schema_id=schema_id[:64]) from error
        return wire.render_schema_info(schema_json, schema_id, call.rpc_id)


@contextlib.contextmanager
def _unavailable_as(wire_code: str) -> Any:
    """What fails inside for a reason of the store's is told by this code."""
    try:
        yield
    except StorageError as error:
        error.details.setdefault("wire_code", wire_code)
        raise
