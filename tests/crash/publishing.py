"""Publishers over gRPC that note every event they sent and what they were told, and go on after the server's deaths.

Deliberately built on bare stubs, not on the package's own client.
"""

from __future__ import annotations

import io
import json
import random
import threading
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from queue import SimpleQueue
from typing import Any

import fastavro
import grpc

from tests.crash.lives import Lives
from tests.running import call_metadata, dial
from tidewire.schema.proto import pubsub_pb2 as pb
from tidewire.testing import ServerProcess

TOPIC = "/event/Order_Event__e"
_SERVICE = "/eventbus.v1.PubSub/"
_ANSWER_S = 60.0
_PROGRESS_S = 300.0  # whoever was not answered in a life may wait in vain for the next, and goes on
_IN_FLIGHT = 4


@dataclass(slots=True)
class PublishLedger:
    """What was sent. Requests hold event ids; `acknowledged` maps an event id to its replay id."""

    acknowledged: dict[str, int] = field(default_factory=dict)
    requests: list[tuple[str, ...]] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)
    changed: threading.Condition = field(default_factory=threading.Condition)

    def note_sent(self, ids: Sequence[str]) -> None:
        """A request is about to leave; until it is answered, nobody knows what becomes of it."""
        with self.changed:
            self.requests.append(tuple(ids))

    def note_answer(self, response: pb.PublishResponse) -> None:
        """The server's word on each event of a request."""
        with self.changed:
            for result in response.results:
                if result.replay_id:
                    replay_id = int.from_bytes(result.replay_id[:8], "big")
                    self.acknowledged[result.correlation_key] = replay_id
                else:
                    self.refusals.append(f"{result.correlation_key}: {result.error.msg}")
            self.changed.notify_all()

    def wait_progress(self, events: int) -> None:
        """Wait until so many further events are acknowledged."""
        with self.changed:
            target = len(self.acknowledged) + events
            self.changed.wait_for(
                lambda: len(self.acknowledged) >= target or bool(self.refusals), _PROGRESS_S
            )
            assert len(self.acknowledged) >= target, (
                f"{len(self.acknowledged)} of {target}: {self.refusals[:3]}"
            )


class Publishers:
    """Half of them use Publish and half PublishStream with several requests under way."""

    def __init__(self, server: ServerProcess, ledger: PublishLedger, seed: int, count: int = 4) -> None:
        self._server = server
        self._metadata = call_metadata(server.login(), server.http, server.org_id)
        self._ledger = ledger
        self._lives = Lives()
        with dial(server.grpc) as channel:
            self._schema_id, self._schema = self._read_schema(channel)
        self._threads = [
            threading.Thread(
                target=self._publish, args=(f"{seed}-{n}", random.Random(seed + n), n % 2), daemon=True
            )
            for n in range(count)
        ]

    def start(self) -> None:
        """Let them begin."""
        self._lives.start(self._threads)

    def note_back(self) -> None:
        """Tell them that the server lives again."""
        self._lives.note_back()

    def stop(self) -> None:
        """Let each finish what it waits for."""
        self._lives.stop(self._threads)

    def publish_one(self, event_id: str) -> None:
        """Publish one event now; raises grpc.RpcError."""
        with dial(self._server.grpc) as channel:
            request = self._request([event_id])
            self._ledger.note_sent([event_id])
            self._ledger.note_answer(_unary(channel)(request, metadata=self._metadata, timeout=_ANSWER_S))

    def _publish(self, name: str, rng: random.Random, is_streaming: bool) -> None:
        count = 0
        while not self._lives.is_stopping:
            life = self._lives.count
            # A channel for each life: one that failed waits before it dials again.
            with dial(self._server.grpc) as channel:
                try:
                    while not self._lives.is_stopping:
                        requests = []
                        for _ in range(_IN_FLIGHT if is_streaming else 1):
                            size = rng.choice((1, 1, 3, 20))
                            requests.append([f"{name}-{count + n}" for n in range(size)])
                            count += size
                        self._send(channel, requests, is_streaming)
                except grpc.RpcError:
                    self._lives.wait_back(life)

    def _send(self, channel: grpc.Channel, requests: list[list[str]], is_streaming: bool) -> None:
        for ids in requests:
            self._ledger.note_sent(ids)
        if not is_streaming:
            answer = _unary(channel)(self._request(requests[0]), metadata=self._metadata, timeout=_ANSWER_S)
            self._ledger.note_answer(answer)
            return
        method = channel.stream_stream(
            _SERVICE + "PublishStream", pb.PublishRequest.SerializeToString, pb.PublishResponse.FromString
        )
        outgoing: SimpleQueue[pb.PublishRequest | None] = SimpleQueue()
        for ids in requests:
            outgoing.put(self._request(ids))
        outgoing.put(None)
        for answer in method(iter(outgoing.get, None), metadata=self._metadata, timeout=_ANSWER_S):
            self._ledger.note_answer(answer)

    def _request(self, ids: Sequence[str]) -> pb.PublishRequest:
        events = []
        for event_id in ids:
            out = io.BytesIO()
            value = {"CreatedDate": 1, "CreatedById": "005", "City__c": event_id}
            fastavro.schemaless_writer(out, self._schema, value)
            events.append(pb.ProducerEvent(id=event_id, schema_id=self._schema_id, payload=out.getvalue()))
        return pb.PublishRequest(topic_name=TOPIC, events=events)

    def _read_schema(self, channel: grpc.Channel) -> tuple[str, Any]:
        get_topic = channel.unary_unary(
            _SERVICE + "GetTopic", pb.TopicRequest.SerializeToString, pb.TopicInfo.FromString
        )
        get_schema = channel.unary_unary(
            _SERVICE + "GetSchema", pb.SchemaRequest.SerializeToString, pb.SchemaInfo.FromString
        )
        schema_id = get_topic(pb.TopicRequest(topic_name=TOPIC), metadata=self._metadata).schema_id
        info = get_schema(pb.SchemaRequest(schema_id=schema_id), metadata=self._metadata)
        return schema_id, fastavro.parse_schema(json.loads(info.schema_json))


def _unary(channel: grpc.Channel) -> Any:
    return channel.unary_unary(
        _SERVICE + "Publish", pb.PublishRequest.SerializeToString, pb.PublishResponse.FromString
    )


def find_publish_violations(ledger: PublishLedger, seen: Sequence[tuple[int, str, str]]) -> list[str]:
    """Every broken promise, in words. `seen` is what one subscriber got: replay id, event id and the event's text."""
    found = [f"refused: {text}" for text in ledger.refusals]
    found += [
        f"replay id {later[0]} follows {earlier[0]}"
        for earlier, later in pairwise(seen)
        if later[0] <= earlier[0]
    ]
    places = {event_id: place for place, (_, event_id, _) in enumerate(seen)}
    if len(places) != len(seen):
        found.append(f"{len(seen) - len(places)} events came twice")
    found += [f"{event_id} came with the text {text}" for _, event_id, text in seen if text != event_id]
    got = {event_id: replay_id for replay_id, event_id, _ in seen}
    found += [
        f"{event_id} was acknowledged as {replay_id}, came as {got.get(event_id)}"
        for event_id, replay_id in ledger.acknowledged.items()
        if got.get(event_id) != replay_id
    ]
    sent = {event_id for ids in ledger.requests for event_id in ids}
    found += [f"{event_id} came and was never sent" for event_id in got if event_id not in sent]
    for ids in ledger.requests:
        order = [places[event_id] for event_id in ids if event_id in places]
        if order and order != list(range(order[0], order[0] + len(ids))):
            found.append(f"the request {ids} came in part, or apart: {order}")
    return found
