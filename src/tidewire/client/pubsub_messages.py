"""Converts Pub/Sub messages to plain values, and the protocol's failures to our errors."""

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
USUAL_MAX_REQUESTED = 100  # every server grants this many; more is an extension of ours
CHANNEL_OPTIONS = [
    ("grpc.max_receive_message_length", 16 << 20),
    ("grpc.max_send_message_length", 16 << 20),
    # Spark executors open one client per task; with a shared subchannel one failure would hit them all.
    ("grpc.use_local_subchannel_pool", 1),
    # Detects a dead peer within minutes; TCP alone may take hours.
    ("grpc.keepalive_time_ms", 60_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    ("grpc.http2.max_pings_without_data", 0),
]
_CODE_PREFIX = "sfdc.platform.eventbus.grpc."
_CHANGE_HEADER = "ChangeEventHeader"

ErrorClass = type[PlatformError]

# Our servers name the error exactly, while a code of the protocol may stand for several. Some of their parts call a
# topic a channel.
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
    # Left by a proxy or a broken connection: the same call may work on the next connection.
    "CANCELLED": ServerUnreachable,
    "DEADLINE_EXCEEDED": ServerUnreachable,
    "ABORTED": ServerUnreachable,
}


@dataclass(frozen=True, slots=True)
class Topic:
    """A topic's description. `schema_id` is empty for channels with several schemas."""

    name: str
    can_publish: bool
    can_subscribe: bool
    schema_id: str


@dataclass(frozen=True, slots=True)
class Published:
    """The result of one published event: its `replay_id` if it is durable, otherwise None and an `error`."""

    event_id: str
    replay_id: int | None
    error: str


class Received(NamedTuple):
    """One undecoded event. `payload` is Avro in the schema `schema_id`."""

    replay_id: int
    event_id: str
    schema_id: str
    payload: bytes
    headers: dict[str, bytes]


@dataclass(frozen=True, slots=True)
class Fetched:
    """One response: events in log order, none in a keepalive.

    Resuming after `latest_replay_id` loses nothing. `pending` counts requested events that were not delivered yet.
    """

    events: list[Received]
    latest_replay_id: int
    pending: int


@dataclass(frozen=True, slots=True)
class DecodedEvent:
    """One decoded event. `replay_id` is opaque: store it unchanged.

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
        """The fields that an update changed."""
        return self._listed("changedFields")

    @property
    def nulled_fields(self) -> list[str]:
        """The fields that an update set to null; other null fields of an update are unchanged."""
        return self._listed("nulledFields")

    @property
    def diff_fields(self) -> list[str]:
        """The fields whose values are unified diffs."""
        return self._listed("diffFields")

    def _listed(self, name: str) -> list[str]:
        header = self.fields.get(_CHANGE_HEADER)
        return decode_bitmap(self.schema, header[name]) if isinstance(header, dict) else []


def render_replay_id(position: int) -> bytes:
    """Render a replay id from its number: eight bytes big-endian and two zero bytes. Raises ReplayIdInvalid."""
    if not 0 <= position < 2**63:
        raise ReplayIdInvalid(f"{position} is not a valid replay id", replay_id=position)
    return position.to_bytes(8, "big") + b"\0\0"


def replay_number(replay_id: bytes) -> int:
    """Return the number in a replay id, which CometD uses for the same event."""
    return int.from_bytes(replay_id[:8], "big")


def read_topic_info(info: pb.TopicInfo) -> Topic:
    """Convert a response to GetTopic."""
    return Topic(info.topic_name, info.can_publish, info.can_subscribe, info.schema_id)


def read_results(response: pb.PublishResponse) -> list[Published]:
    """Convert the results of a publish request."""
    return [
        Published(
            result.correlation_key,
            replay_number(result.replay_id) if result.replay_id else None,
            result.error.msg,
        )
        for result in response.results
    ]


def read_fetched(response: pb.FetchResponse) -> Fetched:
    """Convert a response of a subscription."""
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


def login_metadata(token: str, instance_url: str, org_id: str) -> list[tuple[str, str]]:
    """Return the metadata by which every call is authenticated."""
    return [("accesstoken", token), ("instanceurl", instance_url), ("tenantid", org_id)]


def subscribe_metadata(max_requested: int, keepalive_ms: int | None) -> list[tuple[str, str]]:
    """Return the metadata of our extensions to the protocol. Other servers ignore it."""
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
        # Without a code of the protocol the text is gRPC's, which often lacks the address.
        return ServerUnreachable.at(endpoint, text or status, **details)
    return cls(text or status, **details)


def read_rpc_error(error: Any, endpoint: str = "") -> PlatformError:
    """Return the error for one of gRPC's."""
    return read_failure(error.code().name, error.details(), error.trailing_metadata(), endpoint)
