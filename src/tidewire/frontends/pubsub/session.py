"""The protocol state of Subscribe and ManagedSubscribe calls. No I/O."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tidewire.errors import (
    ChannelInvalid,
    DemandInvalid,
    LimitExceeded,
    PlatformError,
    ProtocolViolation,
    ReplayIdInvalid,
    SessionInvalid,
)
from tidewire.frontends.pubsub.flow_control import FlowControl
from tidewire.frontends.pubsub.headers import CallHeaders
from tidewire.frontends.pubsub.request_rules import check_topic
from tidewire.frontends.pubsub.settings import PubSubSettings
from tidewire.frontends.pubsub.wire import try_parse_replay_id
from tidewire.ids import try_normalise_id
from tidewire.schema.proto import pubsub_pb2 as pb

_NO_REPLAY = "subscription.fetch.replayid.validation.failed"
_MANAGED = "managed.subscription."
_MAX_COMMITS = 1_000  # commits that only move forward collapse into one


@dataclass(frozen=True, slots=True)
class Start:
    """Where a subscription starts: LATEST, EARLIEST, or CUSTOM strictly after `position`."""

    topic: str
    preset: pb.ReplayPreset.ValueType
    position: int


class SubscribeSession:
    """The state of one Subscribe call. Pass the first request to `start`, later ones to `receive`."""

    def __init__(self, settings: PubSubSettings, headers: CallHeaders, now_s: float) -> None:
        self._has_time = headers.from_ms is not None
        self._topic = ""
        self.control = FlowControl(settings, headers, now_s)

    def start(self, request: pb.FetchRequest) -> Start:
        """Handle the first request.

        Raises ChannelInvalid, TopicUnknown, DemandInvalid, ReplayIdInvalid or SessionInvalid.
        """
        check_no_refresh(request.auth_refresh)
        self._topic = check_topic(request.topic_name, "topic.validation.empty")
        self.control.demand(request.num_requested)
        position = 0
        if request.replay_preset == pb.CUSTOM:
            if self._has_time:
                raise ReplayIdInvalid(
                    "A replay starts after an id or at a time, not both", wire_code=_NO_REPLAY
                )
            position = _parse_custom(request.replay_id)
        elif request.replay_preset not in (pb.LATEST, pb.EARLIEST):
            raise ReplayIdInvalid(
                "The replay preset is none of LATEST, EARLIEST and CUSTOM", wire_code=_NO_REPLAY
            )
        return Start(self._topic, request.replay_preset, position)

    def receive(self, request: pb.FetchRequest) -> None:
        """Handle a later request: demand adds up, replay options are ignored, the topic cannot change.

        A request with a token may leave out the demand. An error is stored for the writer, which ends the call.
        """
        if request.topic_name and request.topic_name != self._topic:
            _fail(
                self.control,
                ProtocolViolation(
                    f"The topic of a subscription cannot change from {self._topic} to {request.topic_name}"
                ),
            )
            return
        if request.auth_refresh and not request.num_requested:
            return
        try:
            self.control.demand(request.num_requested)
        except DemandInvalid as error:
            _fail(self.control, error)


@dataclass(frozen=True, slots=True)
class Commit:
    """A position to store; None if the replay id is malformed."""

    request_id: str
    replay_id: bytes
    position: int | None
    received_ms: int


class ManagedSession:
    """The state of one ManagedSubscribe call."""

    def __init__(self, settings: PubSubSettings, headers: CallHeaders, now_s: float) -> None:
        self._settings = settings
        self._committed_s = now_s
        self._subscription_id = ""
        self._name = ""
        self.control = FlowControl(settings, headers, now_s)
        self._commits: deque[Commit] = deque()

    def start(self, request: pb.ManagedFetchRequest, now_ms: int) -> tuple[str, str]:
        """Handle the first request; return the subscription's id and name, one of which may be empty.

        Raises ChannelInvalid, DemandInvalid or SessionInvalid.
        """
        check_no_refresh(request.auth_refresh, _MANAGED + "fetch.request.auth.request.restricted")
        given_id, name = request.subscription_id.strip(), request.developer_name.strip()
        if not given_id and not name:
            raise ChannelInvalid(
                "The request names neither subscription_id nor developer_name",
                wire_code=_MANAGED + "id.or.developer.name.empty",
            )
        subscription_id = try_normalise_id(given_id) or ""
        if given_id and not subscription_id:
            raise ChannelInvalid(
                "The subscription_id does not have the 15 or 18 characters of an id",
                wire_code=_MANAGED + "subscription.id.invalid",
            )
        self._take(request, now_ms)
        return subscription_id, name

    def bind(self, subscription_id: str, name: str) -> None:
        """Bind the call to a subscription; later requests may only repeat its name."""
        self._subscription_id, self._name = subscription_id, name

    def receive(self, request: pb.ManagedFetchRequest, now_ms: int, now_s: float) -> None:
        """Handle a later request: demand, a commit or both. An error is stored for the writer."""
        given_id = try_normalise_id(request.subscription_id) or request.subscription_id
        if (given_id and given_id != self._subscription_id) or (
            request.developer_name and request.developer_name.lower() != self._name.lower()
        ):
            _fail(self.control, ProtocolViolation("The subscription of a call cannot change"))
            return
        if request.HasField("commit_replay_id_request"):
            self._committed_s = now_s
        try:
            self._take(request, now_ms)
        except (DemandInvalid, LimitExceeded) as error:
            _fail(self.control, error)

    def check_commits(self, now_s: float) -> None:
        """Raise ProtocolViolation if the client has not committed for too long."""
        if now_s >= self._committed_s + self._settings.commit_close_s:
            raise ProtocolViolation(
                f"No CommitReplayRequests sent in the last {self._settings.commit_close_s:g} seconds."
                " Closing managed subscription.",
                wire_code="managed.subscription.commit.timeout",
            )

    def wait_s(self, now_s: float) -> float:
        """Return the seconds until a timer is due."""
        commits_s = self._committed_s + self._settings.commit_close_s - now_s
        return max(0.0, min(self.control.wait_s(now_s), commits_s))

    def take_commits(self) -> list[Commit]:
        """Remove and return the pending commits in order. Each one covers those it replaced."""
        commits = list(self._commits)
        self._commits.clear()
        return commits

    def _take(self, request: pb.ManagedFetchRequest, now_ms: int) -> None:
        is_commit = request.HasField("commit_replay_id_request")
        if request.num_requested < 0:
            raise DemandInvalid(
                f"num_requested must not be negative, as {request.num_requested} is",
                wire_code=_MANAGED + "fetch.request.events.invalid",
            )
        if request.num_requested:
            self.control.demand(request.num_requested)
        elif not (is_commit or request.auth_refresh):
            raise DemandInvalid(
                "A request needs num_requested, a commit or auth_refresh",
                wire_code=_MANAGED + "fetch.request.invalid",
            )
        if is_commit:
            wanted = request.commit_replay_id_request
            position = try_parse_replay_id(wanted.replay_id)
            self._add_commit(Commit(wanted.commit_request_id, wanted.replay_id, position, now_ms))

    def _add_commit(self, commit: Commit) -> None:
        """Queue a commit; it replaces the last one only if it covers it. A malformed one covers none."""
        last = self._commits[-1].position if self._commits else None
        if last is not None and commit.position is not None and commit.position >= last:
            self._commits.pop()
        elif len(self._commits) >= _MAX_COMMITS:
            raise LimitExceeded(f"More than {_MAX_COMMITS} commits wait to be answered", limit=_MAX_COMMITS)
        self._commits.append(commit)


def check_no_refresh(auth_refresh: str, wire_code: str = "service.auth.refresh.invalid") -> None:
    """Raise SessionInvalid if the first request of a call carries a token to refresh."""
    if auth_refresh:
        raise SessionInvalid(
            "auth_refresh belongs into later requests; the first has its token in the metadata",
            wire_code=wire_code,
        )


def _parse_custom(replay_id: bytes) -> int:
    if not replay_id:
        raise ReplayIdInvalid("The replay preset CUSTOM needs a replay id", wire_code=_NO_REPLAY)
    position = try_parse_replay_id(replay_id)
    if position is None:
        raise ReplayIdInvalid("The replay id is corrupted: it has a form that no replay id has")
    return position


def _fail(control: FlowControl, error: PlatformError) -> None:
    control.error = control.error or error
