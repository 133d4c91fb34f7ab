"""Positions of subscriptions: a replay id that the client keeps, or commits that the server keeps."""

from __future__ import annotations

import asyncio
import uuid
from itertools import takewhile
from typing import ClassVar, Literal

from tidewire.client.pubsub_messages import replay_number
from tidewire.errors import ManagedActive, PlatformError, RequestRefused
from tidewire.schema.proto import pubsub_pb2 as pb

Preset = Literal["latest", "earliest"]

_MAX_UNCOMMITTED = 100_000
_NOTICED_WITHIN_S = 120.0  # how long a server may take to detect a dead connection


class ReplayCursor:
    """A position that the client keeps: a preset until an event arrives, then a replay id.

    `replay` is the position to resume from.
    """

    rpc: ClassVar[str] = "Subscribe"

    def __init__(
        self, topic: str, replay: Preset | bytes, from_ms: int | None, when_expired: Preset | None
    ) -> None:
        self._topic = topic
        self.replay = replay
        self._from_ms = from_ms
        self._when_expired = when_expired

    parse = staticmethod(pb.FetchResponse.FromString)

    def metadata(self) -> list[tuple[str, str]]:
        """Return the metadata of a call that starts at this position."""
        if self._from_ms is None or isinstance(self.replay, bytes):
            return []
        return [("tidewire-replay-from-ms", str(self._from_ms))]

    def first_requests(self, count: int) -> list[pb.FetchRequest]:
        """Return the requests that open a call for `count` events."""
        request = pb.FetchRequest(topic_name=self._topic, num_requested=count)
        if isinstance(self.replay, bytes):
            request.replay_preset = pb.CUSTOM
            request.replay_id = self.replay
        elif self.replay == "earliest":
            request.replay_preset = pb.EARLIEST
        return [request]

    def more_request(self, count: int) -> pb.FetchRequest:
        """Return the request for `count` more events."""
        return pb.FetchRequest(topic_name=self._topic, num_requested=count)

    def has_commits(self) -> bool:
        """Whether commits are waiting for the server's confirmation."""
        return False

    def take(self, response: pb.FetchResponse) -> list[pb.ConsumerEvent]:
        """Return the new events of a response. `note` then advances the cursor."""
        return list(response.events)

    def follow_ups(self) -> list[pb.FetchRequest]:
        """Return the requests that the last response makes necessary."""
        return []

    def note(self, event: pb.ConsumerEvent) -> None:
        """Advance past a received event."""
        self.replay = event.replay_id

    def note_end(self, response: pb.FetchResponse) -> None:
        """Advance to the end of a response whose events were all noted."""
        # A keepalive says how far the server has read the log, but only while there is demand.
        if not response.events and response.pending_num_requested > 0 and response.latest_replay_id:
            self.replay = response.latest_replay_id

    def can_recover(self, error: PlatformError) -> bool:
        """Whether another call may succeed after an error that says the position is expired or in use."""
        if self._when_expired is None or not isinstance(self.replay, bytes):
            return False
        self.replay = self._when_expired
        self._from_ms = None
        return True

    def fail(self, error: PlatformError) -> None:
        """Fail pending commits: there will be no further call."""


class ManagedCursor:
    """A position that the server keeps, and the commits that advance it. Methods as in ReplayCursor."""

    rpc: ClassVar[str] = "ManagedSubscribe"

    def __init__(self, name: str) -> None:
        is_id = name.startswith("18x") and len(name) in (15, 18)
        self._id, self._developer_name = (name, "") if is_id else ("", name)
        self._uncommitted: dict[bytes, None] = {}
        self._commits: dict[str, tuple[bytes, asyncio.Future[None]]] = {}
        self._unanswered: list[str] = []
        self._is_recovering = False
        self._heard_s: float | None = None

    parse = staticmethod(pb.ManagedFetchResponse.FromString)

    def metadata(self) -> list[tuple[str, str]]:
        return []

    def first_requests(self, count: int) -> list[pb.ManagedFetchRequest]:
        # Only the highest: the server rejects a commit below the one that it stored before the last call broke.
        return [self.more_request(count), *self._repeat_highest(list(self._commits))]

    def more_request(self, count: int) -> pb.ManagedFetchRequest:
        return pb.ManagedFetchRequest(
            subscription_id=self._id, developer_name=self._developer_name, num_requested=count
        )

    def add_commit(self, replay_id: bytes) -> tuple[pb.ManagedFetchRequest, asyncio.Future[None]]:
        """Return a commit request, and a future that resolves when the server confirms it."""
        key = str(uuid.uuid4())
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._commits[key] = (replay_id, done)
        return self._commit_request(key), done

    def has_commits(self) -> bool:
        return bool(self._commits)

    def fail(self, error: PlatformError) -> None:
        for _, done in self._commits.values():
            if not done.done():
                done.set_exception(error)
                done.exception()  # marks it as retrieved: the committing task may be gone
        self._commits.clear()

    def take(self, response: pb.ManagedFetchResponse) -> list[pb.ConsumerEvent]:
        self._is_recovering = False
        self._heard_s = asyncio.get_running_loop().time()
        if response.HasField("commit_response"):
            self._confirm(response.commit_response)
        return [event for event in response.events if event.replay_id not in self._uncommitted]

    def follow_ups(self) -> list[pb.ManagedFetchRequest]:
        unanswered, self._unanswered = self._unanswered, []
        return self._repeat_highest(unanswered)

    def note(self, event: pb.ConsumerEvent) -> None:
        self._uncommitted[event.replay_id] = None
        if len(self._uncommitted) > _MAX_UNCOMMITTED:
            del self._uncommitted[next(iter(self._uncommitted))]

    def note_end(self, response: pb.ManagedFetchResponse) -> None:
        """No-op: only commits advance the position."""

    def can_recover(self, error: PlatformError) -> bool:
        if isinstance(error, ManagedActive):
            # Until the server detects that our last call is dead, it takes us for another client.
            now_s = asyncio.get_running_loop().time()
            return self._heard_s is not None and now_s - self._heard_s < _NOTICED_WITHIN_S
        # The server applies the subscription's error recovery setting on the next call.
        is_first, self._is_recovering = not self._is_recovering, True
        return is_first

    def _commit_request(self, key: str) -> pb.ManagedFetchRequest:
        request = self.more_request(0)
        request.commit_replay_id_request.commit_request_id = key
        request.commit_replay_id_request.replay_id = self._commits[key][0]
        return request

    def _repeat_highest(self, keys: list[str]) -> list[pb.ManagedFetchRequest]:
        """Return a request for the highest of these commits, which from now on covers all of them."""
        if not keys:
            return []
        rising = sorted(keys, key=lambda key: replay_number(self._commits[key][0]))
        self._commits = {key: self._commits[key] for key in dict.fromkeys([*rising, *self._commits])}
        return [self._commit_request(rising[-1])]

    def _confirm(self, response: pb.CommitReplayResponse) -> None:
        """Resolve the commits that a response confirms: the named one and earlier ones at or below its position.

        Earlier commits above that position get no other response and are sent again.
        """
        last = response.commit_request_id
        if last not in self._commits:
            return
        if response.HasField("error"):
            _, done = self._commits[last]
            if not done.done():
                done.set_exception(RequestRefused(response.error.msg or "the commit failed"))
            self._unanswered = list(takewhile(lambda key: key != last, self._commits))
            del self._commits[last]
            return
        reached = replay_number(self._commits[last][0])
        for key in [*takewhile(lambda key: key != last, self._commits), last]:
            replay_id, done = self._commits[key]
            if replay_number(replay_id) > reached:
                self._unanswered.append(key)
                continue
            del self._commits[key]
            if not done.done():
                done.set_result(None)
            if replay_id in self._uncommitted:
                self._forget_through(replay_id)

    def _forget_through(self, replay_id: bytes) -> None:
        """Drop events that the server will not send again."""
        for known in list(self._uncommitted):
            del self._uncommitted[known]
            if known == replay_id:
                return


Cursor = ReplayCursor | ManagedCursor
"""The position of a subscription, and the requests that resume from it."""
