"""A subscriber in a thread of its own that outlives its server: our CometD client, and all that it has received."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Self

from tests.crash.loop_thread import LoopThread
from tests.crash.verdict import MARKER_FIELD
from tests.running import SeenEvent
from tidewire.client.cometd import ALL_EVENTS, CometdClient, ReceivedEvent
from tidewire.client.login import Credentials, login
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME

_CHANGE_TYPES = {"created": "CREATE", "updated": "UPDATE", "deleted": "DELETE", "undeleted": "UNDELETE"}


class Subscriber:
    """Receives a channel from its first event on.

    With `events_per_client` it forgets everything but its last replay id after so many events, as a program does that
    is restarted, and goes on with a new client.
    """

    def __init__(self, http_url: str, channel: str, events_per_client: int | None = None) -> None:
        credentials = Credentials(http_url, DEV_USERNAME, DEV_PASSWORD, DEV_CLIENT_ID, DEV_CLIENT_SECRET)
        self._sign_in = partial(login, credentials)
        self._channel = channel
        self._events_per_client = events_per_client
        self._received: list[ReceivedEvent] = []
        self.clients = 0
        self.handshakes = 0
        self._thread = LoopThread(self._watch, asyncio.new_event_loop())
        self._thread.start()

    @property
    def events(self) -> list[SeenEvent]:
        """What has been received, in its order, in the form of change events."""
        with self._thread.changed:
            return [_seen(event) for event in self._received]

    def wait_more(self, timeout_s: float) -> None:
        """Wait until an event has come that was not there before the call."""
        known = len(self._received)
        self._wait(lambda: len(self._received) > known, timeout_s)

    def wait_marker(self, marker: str, timeout_s: float) -> None:
        """Wait until the change with a marker has come."""
        self._wait(lambda: any(_marker(event) == marker for event in self._received[-50:]), timeout_s)

    def stop(self) -> None:
        """End the client, and wait for it."""
        self._thread.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()

    def _wait(self, claim: Callable[[], bool], timeout_s: float) -> None:
        self._thread.wait(claim, timeout_s, lambda: f"{len(self._received)} events")

    async def _watch(self) -> None:
        replay = ALL_EVENTS
        while True:
            self.clients += 1
            async with CometdClient(self._sign_in, max_queued=50, max_pause_s=0.5) as client:
                await client.subscribe(self._channel, replay)
                left = self._events_per_client
                async for event in client:
                    with self._thread.changed:
                        self._received.append(event)
                        self._thread.changed.notify_all()
                    assert event.replay_id is not None
                    replay = event.replay_id
                    self.handshakes = max(self.handshakes, client.handshakes)
                    if left is not None:
                        left -= 1
                        if left == 0:
                            break


def _marker(event: ReceivedEvent) -> str:
    record = event.data["sobject"] if "sobject" in event.data else event.data["payload"]
    return str(record.get(MARKER_FIELD) or "")


def _seen(event: ReceivedEvent) -> SeenEvent:
    assert event.replay_id is not None
    if "payload" in event.data:
        return SeenEvent(event.replay_id, str(event.replay_id), event.data["payload"])
    header = {
        "recordIds": [event.data["sobject"]["Id"]],
        "changeType": _CHANGE_TYPES[event.data["event"]["type"]],
    }
    payload = {"ChangeEventHeader": header, MARKER_FIELD: _marker(event)}
    return SeenEvent(event.replay_id, str(event.replay_id), payload)
