"""Checks of single requests: topics, batches and sizes. Pure."""

from __future__ import annotations

import json

from tidewire.errors import BodyMalformed, BodyTooLarge, ChannelInvalid, ProtocolViolation, TopicUnknown
from tidewire.frontends.pubsub.settings import PubSubSettings
from tidewire.names import entity_of_change_event
from tidewire.schema.proto import pubsub_pb2 as pb


def topic_of_schema(schema_json: str) -> str:
    """Return the topic whose events use this schema."""
    name = str(json.loads(schema_json)["name"])
    return f"/{'event' if entity_of_change_event(name) is None else 'data'}/{name}"


def check_topic(topic: str, empty_code: str) -> str:
    """A topic name that this protocol may serve.

    Raises ChannelInvalid if blank, TopicUnknown if of another protocol.
    """
    if not topic.strip():
        raise ChannelInvalid("The topic name is missing or blank", wire_code=empty_code)
    if not topic.startswith(("/event/", "/data/")) or "?" in topic:
        raise TopicUnknown(f"No topic has the name {topic}", topic=topic)
    return topic


def check_publish_topic(topic: str, stream_topic: str) -> str:
    """The topic of a request in a publish stream, which may be left out after the first.

    Raises ProtocolViolation.
    """
    if topic and stream_topic and topic != stream_topic:
        raise ProtocolViolation(
            f"The topic of a publish stream cannot change from {stream_topic} to {topic}",
            wire_code="publish.topic.mismatch",
        )
    return topic or stream_topic


def check_publish(request: pb.PublishRequest) -> None:
    """Raise ChannelInvalid or TopicUnknown for a bad topic, BodyMalformed for a request without events."""
    check_topic(request.topic_name, "publish.topic.validation.empty")
    if not request.events:
        raise BodyMalformed("The request has no events", wire_code="publish.event.count.invalid")


def check_first_publish(request: pb.PublishRequest) -> None:
    """Raise ProtocolViolation if the first request of a call refreshes its token."""
    if request.auth_refresh:
        raise ProtocolViolation(
            "The refresh token shouldn't be provided in the initial request",
            wire_code="publish.auth.refresh.invalid",
        )


def check_size(body: bytes, settings: PubSubSettings) -> None:
    """Raise BodyTooLarge for a request over the limit."""
    if len(body) > settings.max_request_bytes:
        raise BodyTooLarge(
            f"The request has {len(body)} bytes; the limit is {settings.max_request_bytes}",
            limit_bytes=settings.max_request_bytes,
        )
