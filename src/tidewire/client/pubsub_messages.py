"""What Pub/Sub clients read and raise: values for the protocol's messages, and our errors for its failures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from tidewire.errors import (
    AccessDenied,
    AuthHeaderInvalid,
    BodyMalformed,
    ChannelForbidden,
    ChannelUnknown,
    DemandInvalid,
    InternalError,
    LimitExceeded,
    ManagedActive,
    ManagedStopped,
    ManagedUnknown,
    PlatformError,
    ReplayIdInvalid,
    RequestRefused,
    SchemaUnknown,
    ServerUnreachable,
    SessionInvalid,
    TopicUnknown,
    leaf_errors,
)
from tidewire.schema.bitmap import decode_bitmap
from tidewire.schema.codec import EventSchema
from tidewire.schema.proto import pubsub_pb2 as pb

SERVICE = "/eventbus.v1.PubSub/"
USUAL_MAX_REQUESTED = 100  # what every server of the protocol grants; more has to be asked for
MAX_MESSAGE_BYTES = 16 << 20
# A peer that vanished without a word is found out, which TCP alone may take hours for.
KEEPALIVE_OPTIONS = [
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
]
_CODE_PREFIX = "sfdc.platform.eventbus.grpc."
_CHANGE_HEADER = "ChangeEventHeader"

ErrorClass = type[PlatformError]

# Our own servers name the error exactly, where a code of the protocol may stand for several. To some of their parts a
# topic is a channel.
_BY_OWN_CODE: dict[str, ErrorClass] = {
    **{cls.code: cls for cls in leaf_errors()},
    ChannelUnknown.code: TopicUnknown,
    ChannelForbidden.code: AccessDenied,
}
_BY_WIRE_CODE: dict[str, ErrorClass] = {
    "service.auth.error": SessionInvalid,
    "service.auth.headers.invalid": AuthHeaderInvalid,
    "service.auth.refresh.invalid": SessionInvalid,
    "service.unavailable": ServerUnreachable,
    "service.protection.triggered": ServerUnreachable,
    "schema.api.unavailable": ServerUnreachable,
    "topic.api.unavailable": ServerUnreachable,
    "schema.meta.permission": SchemaUnknown,
    "schema.validation.failed": SchemaUnknown,
    "topic.meta.permission": AccessDenied,
    "subscription.topic.cannot.subscribe": AccessDenied,
    "subscription.fetch.replayid.corrupted": ReplayIdInvalid,
    "subscription.fetch.replayid.validation.failed": ReplayIdInvalid,
    "subscription.fetch.requested.events.invalid": DemandInvalid,
    "managed.subscription.already.active": ManagedActive,
    "managed.subscription.config.stopped": ManagedStopped,
    "managed.subscription.config.deleted": ManagedUnknown,
    "managed.subscription.developer.name.not.found": ManagedUnknown,
    "managed.subscription.subscription.id.not.found": ManagedUnknown,
}
_BY_STATUS: dict[str, ErrorClass] = {
    "UNAVAILABLE": ServerUnreachable,
    "UNAUTHENTICATED": SessionInvalid,
    "PERMISSION_DENIED": AccessDenied,
    "NOT_FOUND": TopicUnknown,
    "INVALID_ARGUMENT": BodyMalformed,
    "RESOURCE_EXHAUSTED": LimitExceeded,
    "ALREADY_EXISTS": RequestRefused,
    "FAILED_PRECONDITION": RequestRefused,
    "OUT_OF_RANGE": RequestRefused,
    "UNIMPLEMENTED": RequestRefused,
    # What a proxy or a dying connection leaves behind: the same call may well work on the next one.
    "CANCELLED": ServerUnreachable,
    "DEADLINE_EXCEEDED": ServerUnreachable,
    "ABORTED": ServerUnreachable,
}


@dataclass(frozen=True, slots=True)
class Topic:
    """What the server says about a topic. `schema_id` is empty for channels that carry several schemas."""

    name: str
    can_publish: bool
    can_subscribe: bool
    schema_id: str


@dataclass(frozen=True, slots=True)
class Published:
    """What became of one event: `replay_id` if it is durable, otherwise None and an `error` text."""

    event_id: str
    replay_id: int | None
    error: str


class Received(NamedTuple):
    """One event as it came. `payload` is Avro by `schema_id`."""

    replay_id: int
    event_id: str
    schema_id: str
    payload: bytes
    headers: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Fetched:
    """One response: events in log order, none for a sign of life.

    Resuming after `latest_replay_id` loses nothing. `pending` counts events asked for and not yet delivered.
    """

    events: list[Received]
    latest_replay_id: int
    pending: int


@dataclass(frozen=True, slots=True)
class DecodedEvent:
    """One event with its fields. `replay_id` is the server's own word for its place: keep it as it is.

    The three field lists are those of a change event's header with their names, such as `Phone` or
    `BillingAddress.City`; for other events they are empty.
    """

    replay_id: bytes
    event_id: str
    schema: EventSchema
    payload: bytes
    headers: Mapping[str, bytes]
    fields: Mapping[str, Any]

    @property
    def changed_fields(self) -> list[str]:
        """What an update has changed."""
        return self._listed("changedFields")

    @property
    def nulled_fields(self) -> list[str]:
        """What an update has made null; other nulls of an update mean unchanged."""
        return self._listed("nulledFields")

    @property
    def diff_fields(self) -> list[str]:
        """Whose values are unified differences."""
        return self._listed("diffFields")

    def _listed(self, name: str) -> list[str]:
        header = self.fields.get(_CHANGE_HEADER)
        return decode_bitmap(self.schema, header[name]) if isinstance(header, dict) else []


def render_replay_id(position: int) -> bytes:
    """A replay id from its number: eight bytes big-endian, two zero. Raises ReplayIdInvalid."""
    if not 0 <= position < 2**63:
        raise ReplayIdInvalid(f"{position} is not the number of a replay id", replay_id=position)
    return position.to_bytes(8, "big") + b"\0\0"


def replay_number(replay_id: bytes) -> int:
    """The number in a replay id, by which CometD knows the same event."""
    return int.from_bytes(replay_id[:8], "big")


def read_topic_info(info: pb.TopicInfo) -> Topic:
    """The answer to GetTopic."""
    return Topic(info.topic_name, info.can_publish, info.can_subscribe, info.schema_id)


def read_results(response: pb.PublishResponse) -> list[Published]:
    """What became of each event of a request."""
    return [
        Published(
            result.correlation_key,
            replay_number(result.replay_id) if result.replay_id else None,
            result.error.msg,
        )
        for result in response.results
    ]


def read_fetched(response: pb.FetchResponse) -> Fetched:
    """One response of a subscription."""
    events = [
        Received(
            replay_number(consumed.replay_id),
            consumed.event.id,
            consumed.event.schema_id,
            consumed.event.payload,
            {header.key: header.value for header in consumed.event.headers},
        )
        for consumed in response.events
    ]
    return Fetched(events, replay_number(response.latest_replay_id), response.pending_num_requested)


def subscribe_metadata(max_requested: int, keepalive_ms: int | None) -> list[tuple[str, str]]:
    """What our own server is asked for beyond the protocol. Other servers ignore it."""
    metadata = []
    if max_requested > USUAL_MAX_REQUESTED:
        metadata.append(("tidewire-max-requested", str(max_requested)))
    if keepalive_ms is not None:
        metadata.append(("tidewire-keepalive-ms", str(keepalive_ms)))
    return metadata


def read_failure(status: str, text: str | None, trailing_metadata: Any, endpoint: str = "") -> PlatformError:
    """Return the error for a call's status and trailers. `endpoint` is named if the server was not reached."""
    trailers = {key: value for key, value in trailing_metadata or () if isinstance(value, str)}
    wire_code = trailers.get("error-code", "")
    cls = (
        _BY_OWN_CODE.get(trailers.get("tidewire-code", ""))
        or _BY_WIRE_CODE.get(wire_code.removeprefix(_CODE_PREFIX))
        or _BY_STATUS.get(status, InternalError)
    )
    details: dict[str, Any] = {
        "status": status,
        "error_code": wire_code,
        "rpc_id": trailers.get("rpc-id", ""),
    }
    if earliest := trailers.get("tidewire-earliest-replay-id", ""):
        details["earliest"] = earliest
    if cls is ServerUnreachable and not wire_code and endpoint:
        # No server of the protocol sends this: it is gRPC's own text, often without an address.
        return ServerUnreachable.at(endpoint, text or status, **details)
    return cls(text or status, **details)


def read_rpc_error(error: Any, endpoint: str = "") -> PlatformError:
    """Return the error for one of gRPC's."""
    return read_failure(error.code().name, error.details(), error.trailing_metadata(), endpoint)
