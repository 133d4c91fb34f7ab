"""One call's protocol state: who is calling, what is still owed, and when to speak or to end.

Theory of operation. Demand is a number: requests add to it up to a cap, delivered events take from it. Three
times matter. A response is due `keepalive_s` after the last one; a client that asked for it
(`tidewire-keepalive-ms`) also gets one that soon whenever the position reached has moved; and a call that
owes nothing ends `idle_close_s` after its last event. Times are seconds of a monotonic clock and always
passed in.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from tidewire.errors import (
    AuthHeaderInvalid,
    BodyMalformed,
    BodyTooLarge,
    ChannelInvalid,
    DemandInvalid,
    PlatformError,
    ProtocolViolation,
    ReplayIdInvalid,
    TopicUnknown,
)
from tidewire.frontends.pubsub.wire import try_parse_replay_id
from tidewire.ids import try_normalise_id
from tidewire.names import entity_of_change_event
from tidewire.schema.proto import pubsub_pb2 as pb

_TOKEN = ("accesstoken", "x-sfdc-api-session-token")
_INSTANCE = ("instanceurl", "x-sfdc-instance-url")
_TENANT = ("tenantid", "x-sfdc-tenant-id")
_MAX_TRACE_ID = 128


@dataclass(frozen=True, slots=True)
class PubSubSettings:
    """Limits and times of the protocol; the defaults are the ones clients know."""

    max_outstanding: int = 100
    lifted_max_outstanding: int = 10_000
    max_response_bytes: int = 1 << 20
    max_event_bytes: int = 1 << 20
    max_request_bytes: int = 4 << 20
    keepalive_s: float = 60.0  # clients are promised one within 270 s, and watchdogs in use expect it sooner
    min_keepalive_ms: int = 50
    idle_close_s: float = 60.0
    publish_idle_close_s: float = 70.0


@dataclass(frozen=True, slots=True)
class CallHeaders:
    """What a call's metadata says. `max_requested` and `keepalive_ms` are our own extensions."""

    token: str
    org_id: str
    trace_id: str
    max_requested: int | None
    keepalive_ms: int | None


def parse_headers(metadata: Iterable[tuple[str, str | bytes]]) -> CallHeaders:
    """Read a call's metadata in either generation of names.

    Raises AuthHeaderInvalid, DemandInvalid, BodyMalformed.
    """
    values = {key: value for key, value in metadata if isinstance(value, str)}
    token = _required(values, _TOKEN)
    _required(values, _INSTANCE)
    org_id = _parse_tenant(_required(values, _TENANT))
    trace_id = values.get("x-client-trace-id", "")
    max_requested = _number(values, "tidewire-max-requested")
    if max_requested is not None and max_requested < 1:
        raise DemandInvalid("tidewire-max-requested must be at least 1")
    return CallHeaders(
        token,
        org_id,
        trace_id if len(trace_id) <= _MAX_TRACE_ID else "",
        max_requested,
        _number(values, "tidewire-keepalive-ms"),
    )


def try_find_token(metadata: Iterable[tuple[str, str | bytes]]) -> str | None:
    """The token that a call's metadata carries, if any."""
    values = {key: value for key, value in metadata if isinstance(value, str)}
    return next((found for name in _TOKEN if (found := values.get(name, "").strip())), None)


def _required(values: dict[str, str], names: tuple[str, str]) -> str:
    for name in names:
        if found := values.get(name, "").strip():
            return found
    raise AuthHeaderInvalid(f"The metadata header {names[0]} is missing or blank", header=names[0])


def _parse_tenant(text: str) -> str:
    """The org id of `<orgId>` or `core/<name>/<orgId>`, in its 18-character form."""
    segments = text.split("/")
    if len(segments) == 3 and segments[0].lower() == "core":
        text = segments[2]
    org_id = try_normalise_id(text)
    if org_id is None:
        raise AuthHeaderInvalid("The metadata header tenantid is not an org id", header="tenantid")
    return org_id


def _number(values: dict[str, str], name: str) -> int | None:
    text = values.get(name)
    if text is None:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 9):
        raise BodyMalformed(f"The metadata header {name} is not a whole number")
    return int(text)


@dataclass(frozen=True, slots=True)
class Start:
    """Where a subscription begins: `preset` LATEST or EARLIEST, or CUSTOM strictly after `position`."""

    topic: str
    preset: pb.ReplayPreset.ValueType
    position: int


class Due(Enum):
    """What a call has to do now that no event is ready."""

    NOTHING = "nothing"
    KEEPALIVE = "keepalive"
    END = "end"


class SubscribeSession:
    """The state of one Subscribe call, from its first request on.

    Feed `first` to `start`, later ones to `receive`.
    """

    def __init__(self, settings: PubSubSettings, headers: CallHeaders, now_s: float) -> None:
        self._settings = settings
        self._cap = settings.max_outstanding
        if headers.max_requested is not None:
            self._cap = min(headers.max_requested, settings.lifted_max_outstanding)
        self._prompt_s: float | None = None
        if headers.keepalive_ms is not None:
            self._prompt_s = max(headers.keepalive_ms, settings.min_keepalive_ms) / 1000
        self._sent_s = now_s
        self._sent_reached = -1
        self._idle_since_s = now_s
        self._topic = ""
        self._is_half_closed = False
        self.pending = 0
        self.error: PlatformError | None = None

    def start(self, request: pb.FetchRequest) -> Start:
        """Take the first request. Raises ChannelInvalid, TopicUnknown, DemandInvalid or ReplayIdInvalid."""
        self._topic = check_topic(request.topic_name, "topic.validation.empty")
        self._demand(request.num_requested)
        position = 0
        if request.replay_preset == pb.CUSTOM:
            position = _parse_custom(request.replay_id)
        elif request.replay_preset not in (pb.LATEST, pb.EARLIEST):
            raise ReplayIdInvalid(
                "The replay preset is none of LATEST, EARLIEST and CUSTOM",
                wire_code="subscription.fetch.replayid.validation.failed",
            )
        return Start(self._topic, request.replay_preset, position)

    def receive(self, request: pb.FetchRequest) -> None:
        """Take a later request: demand adds up, replay options are ignored, the topic may only be repeated.

        An error ends the call, so it is kept in `error` for the side that writes.
        """
        if request.topic_name and request.topic_name != self._topic:
            self.error = self.error or ProtocolViolation(
                f"The topic of a subscription cannot change from {self._topic} to {request.topic_name}"
            )
            return
        try:
            self._demand(request.num_requested)
        except DemandInvalid as error:
            self.error = self.error or error

    def half_close(self) -> None:
        """The client will send no more requests; the call ends when everything owed is delivered."""
        self._is_half_closed = True

    def note_sent(self, events: int, reached: int, now_s: float) -> None:
        """A response with so many events is about to go out, telling of position `reached`."""
        self.pending = max(0, self.pending - events)
        self._sent_s = now_s
        self._sent_reached = reached
        if events:
            self._idle_since_s = now_s

    def due(self, reached: int, now_s: float) -> Due:
        """What to do when no event is ready."""
        if self.pending == 0 and (
            self._is_half_closed or now_s >= self._idle_since_s + self._settings.idle_close_s
        ):
            return Due.END
        if now_s >= self._sent_s + self._settings.keepalive_s:
            return Due.KEEPALIVE
        if (
            self._prompt_s is not None
            and reached > self._sent_reached
            and now_s >= self._sent_s + self._prompt_s
        ):
            return Due.KEEPALIVE
        return Due.NOTHING

    def wait_s(self, now_s: float) -> float:
        """How long nothing can become due by time alone."""
        next_s = self._sent_s + self._settings.keepalive_s
        if self._prompt_s is not None:
            # Positions that pass by without an event for this call wake nobody, so they are looked for.
            prompt_s = self._sent_s + self._prompt_s
            next_s = min(next_s, prompt_s if prompt_s > now_s else now_s + self._prompt_s)
        if self.pending == 0:
            next_s = min(next_s, self._idle_since_s + self._settings.idle_close_s)
        return max(0.0, next_s - now_s)

    def _demand(self, requested: int) -> None:
        if requested <= 0:
            raise DemandInvalid(f"num_requested must be at least 1, not {requested}")
        self.pending = min(self._cap, self.pending + requested)


def _parse_custom(replay_id: bytes) -> int:
    if not replay_id:
        raise ReplayIdInvalid(
            "The replay preset CUSTOM needs a replay id",
            wire_code="subscription.fetch.replayid.validation.failed",
        )
    position = try_parse_replay_id(replay_id)
    if position is None:
        raise ReplayIdInvalid("The replay id is corrupted: it has a form that no replay id has")
    return position


def topic_of_schema(schema_json: str) -> str:
    """The topic whose events are written by this schema."""
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
    """Raises ChannelInvalid or TopicUnknown for the topic, and BodyMalformed if there is no event."""
    check_topic(request.topic_name, "publish.topic.validation.empty")
    if not request.events:
        raise BodyMalformed("The request has no events", wire_code="publish.event.count.invalid")


def check_size(body: bytes, settings: PubSubSettings) -> None:
    """Raises BodyTooLarge for a request over the limit."""
    if len(body) > settings.max_request_bytes:
        raise BodyTooLarge(
            f"The request has {len(body)} bytes; the limit is {settings.max_request_bytes}",
            limit_bytes=settings.max_request_bytes,
        )
