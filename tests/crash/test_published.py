"""Killing the server between publishes: events whose results carried a replay id reach subscribers once, in order."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, Self

import pytest

from tests.crash.loop_thread import LoopThread
from tests.crash.publishing import TOPIC, Publishers, PublishLedger, find_publish_violations
from tests.lasting_loop import LastingLoop
from tests.running import call_metadata, read_topic
from tidewire.client.login import Credentials, login
from tidewire.client.pubsub import PubSubClient
from tidewire.client.pubsub_messages import DecodedEvent, replay_number
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.slow]

_CATCH_UP_S = 300.0
_LAST = "the last one"


class PubSubSubscriber:
    """Our client in a thread of its own, from the topic's first event on.

    With `events_per_client` it forgets everything but its last replay id after so many events, as a program does that
    is restarted.
    """

    def __init__(self, server: ServerProcess, events_per_client: int | None = None) -> None:
        credentials = Credentials(server.http, DEV_USERNAME, DEV_PASSWORD, DEV_CLIENT_ID, DEV_CLIENT_SECRET)
        self._endpoint = server.grpc
        self._sign_in = partial(login, credentials)
        self._events_per_client = events_per_client
        self._received: list[DecodedEvent] = []
        self.calls = 0
        self._thread = LoopThread(self._watch, LastingLoop())
        self._thread.start()

    @property
    def seen(self) -> list[tuple[int, str, str]]:
        """Replay id, event id and text of each event, as it came."""
        with self._thread.changed:
            return [(replay_number(e.replay_id), e.event_id, e.fields["City__c"]) for e in self._received]

    def wait_more(self) -> None:
        """Wait until an event has come that was not there before the call."""
        known = len(self._received)
        self._wait(lambda: len(self._received) > known)

    def wait_last(self) -> None:
        """Wait for the event that ends a run."""
        self._wait(lambda: bool(self._received) and self._received[-1].event_id == _LAST)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._thread.stop()

    def _wait(self, claim: Callable[[], bool]) -> None:
        self._thread.wait(claim, _CATCH_UP_S, lambda: f"{len(self._received)} events")

    async def _watch(self) -> None:
        replay: Any = "earliest"
        while True:
            async with PubSubClient(self._endpoint, self._sign_in, tls_ca=None, max_pause_s=0.5) as client:
                left = self._events_per_client
                subscription = client.subscribe(TOPIC, replay)
                async for event in subscription:
                    with self._thread.changed:
                        self._received.append(event)
                        self._thread.changed.notify_all()
                    replay = subscription.last_replay_id
                    if left is not None:
                        left -= 1
                        if left == 0:
                            break
                self.calls += subscription.calls


@pytest.mark.timeout(1800)
def test_subscribers_of_a_killed_server_get_every_acknowledged_event_once(
    fresh_server: ServerProcess, kills: int, seed: int
) -> None:
    rng = random.Random(seed)
    ledger = PublishLedger()
    publishers = Publishers(fresh_server, ledger, seed)
    with ExitStack() as stack:
        subscribers = [
            stack.enter_context(PubSubSubscriber(fresh_server, events_per_client))
            for events_per_client in (None, None, 1_500)
        ]
        publishers.start()
        try:
            for _ in range(kills):
                for subscriber in subscribers:
                    subscriber.wait_more()
                ledger.wait_progress(rng.randrange(20, 200))
                # A moment within a request rather than right after an answer.
                threading.Event().wait(rng.uniform(0, 0.03))
                fresh_server.kill()
                fresh_server.restart()
                publishers.note_back()
            ledger.wait_progress(20)
        finally:
            publishers.stop()
        publishers.publish_one(_LAST)
        for subscriber in subscribers:
            subscriber.wait_last()
    metadata = call_metadata(fresh_server.login(), fresh_server.http, fresh_server.org_id)
    kept = read_topic(fresh_server.grpc, metadata, TOPIC, lambda event: event.event_id == _LAST)
    judged = [(event.replay_id, event.event_id, event.payload["City__c"]) for event in kept]
    assert find_publish_violations(ledger, judged) == []
    for subscriber in subscribers:
        assert subscriber.seen == judged
    assert len(ledger.acknowledged) > 20 * kills


def sample() -> tuple[PublishLedger, list[tuple[int, str, str]]]:
    """Two requests, of which the second was never answered, and a subscriber that got both."""
    ledger = PublishLedger({"a": 1, "b": 2}, [("a", "b"), ("c", "d")])
    return ledger, [(1, "a", "a"), (2, "b", "b"), (3, "c", "c"), (4, "d", "d")]


def test_verdict_on_a_faithful_log_is_empty() -> None:
    ledger, seen = sample()
    assert find_publish_violations(ledger, seen) == []
    assert find_publish_violations(ledger, seen[:2]) == []


@pytest.mark.parametrize(
    "seen",
    [
        [(1, "a", "a")],  # lost
        [(2, "b", "b"), (1, "a", "a")],  # out of order
        [(1, "a", "a"), (2, "b", "b"), (3, "b", "b")],  # twice
        [(1, "a", "a"), (5, "b", "b")],  # another place than promised
        [(1, "a", "a"), (2, "b", "b"), (3, "c", "c")],  # half a request
        [(1, "a", "a"), (2, "b", "b"), (3, "x", "x")],  # never sent
        [(1, "a", "a"), (2, "b", "a")],  # another event's content
    ],
    ids=str,
)
def test_verdict_on_a_broken_log_is_not_empty(seen: list[tuple[int, str, str]]) -> None:
    ledger, _ = sample()
    assert find_publish_violations(ledger, seen) != []
