"""Parse and render Pub/Sub messages: replay ids, redacted events and responses. Pure.

An event is encoded once, as a complete entry of field 1 of FetchResponse (tag, length, ConsumerEvent). A response joins
such entries and adds three small fields, because protobuf allows fields in any order.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import TypeVar

from google.protobuf.message import DecodeError, Message

from tidewire.errors import BodyMalformed
from tidewire.events import Event, Family
from tidewire.matching.channel_values import TopicDescription
from tidewire.schema.codec import EventSchema
from tidewire.schema.proto import pubsub_pb2 as pb
from tidewire.schema.redaction import redact_fields

TRANSACTION_LAST = "tidewire-tx-last"
_EVENTS_TAG = b"\x0a"  # field 1 of FetchResponse, length-delimited
_REPLAY_ID_PADDING = b"\0\0"
_MAX_POSITION = 2**63 - 1
_UUID_LENGTH = 36
_FAMILIES = frozenset({Family.PLATFORM, Family.CHANGE})

Request = TypeVar("Request", bound=Message)


def render_replay_id(position: int) -> bytes:
    """Render a position as a replay id: eight bytes big-endian, then two zero bytes."""
    return position.to_bytes(8, "big") + _REPLAY_ID_PADDING


def try_parse_replay_id(replay_id: bytes) -> int | None:
    """Parse a replay id of ten bytes, or of its first eight as some clients send it; None if malformed."""
    if len(replay_id) == 10 and replay_id.endswith(_REPLAY_ID_PADDING):
        replay_id = replay_id[:8]
    if len(replay_id) != 8:
        return None
    position = int.from_bytes(replay_id, "big")
    return position if position <= _MAX_POSITION else None


def parse_message(kind: type[Request], body: bytes) -> Request:
    """Parse a request message. Raises BodyMalformed."""
    try:
        return kind.FromString(body)
    except DecodeError as error:
        raise BodyMalformed(f"The request is not a {kind.__name__} message") from error


class PubSubForm:
    """The wire form of events as FetchResponse entries. The protocol carries only events with a schema."""

    name = "pubsub"

    def encode(self, event: Event, channel: str, hidden: frozenset[str], schema: EventSchema | None) -> bytes:
        """Return the event's entry; empty for families that this protocol does not carry."""
        if event.family not in _FAMILIES:
            return b""
        payload = event.payload
        if hidden and schema is not None:
            payload = redact_fields(schema, payload, hidden)
        return _render_entry(event, payload)


def _render_entry(event: Event, payload: bytes) -> bytes:
    """Render a ConsumerEvent as an entry of FetchResponse.

    Built by hand because it runs for every event, and filling protobuf messages takes several times as long.
    """
    position, _, _, _, _, schema_id, event_uuid, transaction_last = event
    last = b"%d" % transaction_last
    fields = (
        _text_field(b"\x0a", event_uuid) if event_uuid else b"",
        _schema_field(schema_id),
        b"\x1a",
        _length(payload),
        payload,
        _HEADER_STARTS[len(last)],
        last,
    )
    size = sum(map(len, fields))
    produced = _varint_of(size)
    replay_id = b"\x12\x0a%b\0\0" % position.to_bytes(8, "big")
    # The entry holds the event's tag, its length, the event and the replay id.
    entry = _varint_of(1 + len(produced) + size + len(replay_id))
    return b"".join((_EVENTS_TAG, entry, b"\x0a", produced, *fields, replay_id))


@lru_cache(maxsize=1024)
def _schema_field(schema_id: str) -> bytes:
    """Render the schema id field. Cached: most events use one of a few schemas."""
    return _text_field(b"\x12", schema_id)


def _text_field(tag: bytes, text: str) -> bytes:
    """Render a string field; an empty one is left out."""
    raw = text.encode()
    return b"%b%b%b" % (tag, _length(raw), raw) if raw else b""


def _length(content: bytes) -> bytes:
    return _varint_of(len(content))


def _varint_of(size: int) -> bytes:
    return _SHORT_LENGTHS[size] if size < 1024 else _varint(size)


def render_fetch_response(rpc_id: str, events: Sequence[bytes], reached: int, pending: int) -> bytes:
    """Render a FetchResponse of encoded entries; without entries it is a keepalive."""
    rest = pb.FetchResponse(
        latest_replay_id=render_replay_id(reached), rpc_id=rpc_id, pending_num_requested=pending
    )
    return b"".join((*events, rest.SerializeToString()))


def render_managed_response(
    rpc_id: str, commit: pb.CommitReplayResponse | None, events: Sequence[bytes], reached: int, pending: int
) -> bytes:
    """Render a ManagedFetchResponse of encoded entries, or the answer to a commit."""
    rest = pb.ManagedFetchResponse(
        latest_replay_id=render_replay_id(reached),
        rpc_id=rpc_id,
        pending_num_requested=pending,
        commit_response=commit,
    )
    return b"".join((*events, rest.SerializeToString()))


def render_topic_info(topic: TopicDescription, tenant: str, rpc_id: str) -> bytes:
    """Render the response of GetTopic."""
    return pb.TopicInfo(
        topic_name=topic.name,
        tenant_guid=tenant,
        can_publish=topic.can_publish,
        can_subscribe=topic.can_subscribe,
        schema_id=topic.schema_id,
        rpc_id=rpc_id,
    ).SerializeToString()


def render_schema_info(schema_json: str, schema_id: str, rpc_id: str) -> bytes:
    """Render the response of GetSchema."""
    return pb.SchemaInfo(schema_json=schema_json, schema_id=schema_id, rpc_id=rpc_id).SerializeToString()


def render_publish_response(results: Sequence[bytes], schema_id: str, rpc_id: str) -> bytes:
    """Render the response to a PublishRequest from rendered results."""
    rest = pb.PublishResponse(schema_id=schema_id, rpc_id=rpc_id).SerializeToString()
    return b"".join((*results, rest))


def render_published(event_uuid: str, position: int) -> bytes:
    """Render a PublishResult as an entry of field 1 of PublishResponse; by hand, as events are."""
    key = event_uuid.encode()
    if len(key) == _UUID_LENGTH:
        return b"\x0a\x32\x0a\x0a%b\0\0\x1a\x24%b" % (position.to_bytes(8, "big"), key)
    result = b"\x0a\x0a%b%b" % (render_replay_id(position), _text_field(b"\x1a", event_uuid))
    return b"\x0a%b%b" % (_length(result), result)


def render_rejected(event_uuid: str, message: str) -> bytes:
    """Render the result of a rejected event. It has no replay id: clients take one for success."""
    error = pb.Error(code=pb.PUBLISH, msg=message)
    result = pb.PublishResult(error=error, correlation_key=event_uuid).SerializeToString()
    return b"\x0a%b%b" % (_length(result), result)


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


_SHORT_LENGTHS = tuple(_varint(size) for size in range(1024))
_HEADER_KEY = b"\x0a" + _varint(len(TRANSACTION_LAST)) + TRANSACTION_LAST.encode()
# The bytes of an event's header before its value, by the number of digits in the value.
_HEADER_STARTS = tuple(
    b"\x22%b%b\x12%b" % (_varint(len(_HEADER_KEY) + 2 + digits), _HEADER_KEY, _varint(digits))
    for digits in range(20)
)
