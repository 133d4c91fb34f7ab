"""The Pub/Sub calls of one org: dispatch and error responses.

The protocol's rules are in `session`, `request_rules` and `wire`, the sockets in `listener`. Messages cross grpc.aio as
bytes, so an encoded event is copied but never parsed or encoded again.
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
from tidewire.frontends.pubsub import request_rules as rules
from tidewire.frontends.pubsub import wire
from tidewire.frontends.pubsub.calls import Call, Caller, Callers, Requests
from tidewire.frontends.pubsub.deliver import Deliverer
from tidewire.frontends.pubsub.managed_subscribe import ManagedSubscriber
from tidewire.frontends.pubsub.publish import Publisher
from tidewire.frontends.pubsub.request_bodies import RequestBodies
from tidewire.frontends.pubsub.settings import PubSubSettings
from tidewire.frontends.pubsub.subscribe import Subscriber
from tidewire.frontends.pubsub.wire_errors import render_failure
from tidewire.ids import random_uuid
from tidewire.schema.proto import pubsub_pb2 as pb
from tidewire.telemetry import counters

log = logging.getLogger(__name__)


class PubSubApp:
    """Answers the Pub/Sub calls of one org. Opened after the hub, closed before it."""

    def __init__(self, link: CoreLink, hub: Hub, clock: Clock, settings: PubSubSettings) -> None:
        self._link = link
        self._settings = settings
        self._callers = callers = Callers(link, hub, settings)
        publisher = Publisher(link, callers, settings)
        deliverer = Deliverer(link, hub.usage, clock, settings)
        hub.usage.add_source(callers.client_ids, deliverer.states)
        subscriber = Subscriber(hub, callers, deliverer, clock, settings)
        managed = ManagedSubscriber(link, subscriber)
        self._bodies = RequestBodies(settings)
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
        """End every stream with a retryable status; new ones end at once."""
        self._callers.end_all()

    async def answer_call(self, rpc: str, requests: Requests, context: Any) -> bytes | None:
        """Answer or abort a call from the listener."""
        call = Call(rpc, random_uuid(), context)
        counters["pubsub.calls_received"] += 1
        try:
            return await self._answer(call, await self._callers.admit(call), requests)
        except PlatformError as error:
            # Drop the traceback: its frames hold the request and form a cycle that only the garbage collector frees.
            reason = error.with_traceback(None)
        except grpc.aio.InternalError:
            return None  # the peer left during a write, so there is nobody to answer
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
            # The request may have taken long to arrive, and the login may have ended meanwhile.
            await self._callers.check(caller)
            return await self._unary[call.rpc](call, caller, body)

    async def _abort(self, call: Call, error: PlatformError) -> None:
        counters["pubsub.calls_failed"] += 1
        failure = render_failure(
            error, rpc=call.rpc, rpc_id=call.rpc_id, tenant=call.tenant, topic=call.topic
        )
        trailers = (*failure.trailers, *call.trailers)
        with contextlib.suppress(grpc.aio.InternalError):  # the peer may have left
            await call.context.abort(grpc.StatusCode[failure.status], failure.text, trailers)

    async def _get_topic(self, call: Call, caller: Caller, body: bytes) -> bytes:
        rules.check_size(body, self._settings)
        request = wire.parse_message(pb.TopicRequest, body)
        call.topic = request.topic_name
        rules.check_topic(request.topic_name, "topic.validation.empty")
        with _storage_errors_as("topic.api.unavailable"):
            fail_point("pubsub.GetTopic", call.topic)
            topic = await self._link.describe_topic(caller.principal, request.topic_name)
        return wire.render_topic_info(topic, call.tenant, call.rpc_id)

    async def _get_schema(self, call: Call, caller: Caller, body: bytes) -> bytes:
        rules.check_size(body, self._settings)
        schema_id = wire.parse_message(pb.SchemaRequest, body).schema_id
        if not schema_id.strip():
            raise SchemaUnknown("The schema ID can't be blank", wire_code="schema.validation.failed")
        with _storage_errors_as("schema.api.unavailable"):
            fail_point("pubsub.GetSchema", schema_id)
            schema_json = await self._link.schema_json(schema_id)
            topic = rules.topic_of_schema(schema_json)
            with contextlib.suppress(TopicUnknown):  # a deleted topic has no rights to check
                try:
                    await self._link.describe_topic(caller.principal, topic)
                except AccessDenied as error:
                    raise SchemaUnknown("There is no such schema", schema_id=schema_id[:64]) from error
        return wire.render_schema_info(schema_json, schema_id, call.rpc_id)


@contextlib.contextmanager
def _storage_errors_as(wire_code: str) -> Any:
    """Give storage errors raised inside this wire code."""
    try:
        yield
    except StorageError as error:
        error.details.setdefault("wire_code", wire_code)
        raise
