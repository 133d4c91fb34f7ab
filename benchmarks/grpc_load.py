"""The load of the Pub/Sub bench: publishers, or subscribers that only count.

    python grpc_load.py ADDRESS METADATA_FILE publish|stream REQUEST_FILE EVENTS_PER_REQUEST CALLERS SECONDS
    python grpc_load.py ADDRESS METADATA_FILE subscribe TOPIC REPLAY_ID EVENTS_PER_PASS SUBSCRIBERS SECONDS

Publishers send the same ready-made request over and over, each waiting for its answer: `publish` with calls of their
own, `stream` on one stream each. Subscribers ask for 100 events at a time and begin again after REPLAY_ID when they
have had EVENTS_PER_PASS. Messages stay bytes, so that as little as possible of the time is this program's. Prints
`ready` when everything is connected, and one JSON object at the end.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from pathlib import Path
from typing import Any

import grpc
import uvloop

from tidewire.schema.proto import pubsub_pb2 as pb

SERVICE = "/eventbus.v1.PubSub/"
MARK = b"@mark-of-one-event@"
"""What every event holds once."""

_BATCH = 100
_CHECK_EVERY = 50

Metadata = list[tuple[str, str]]


class Load:
    """One channel, and what came through it."""

    def __init__(self, channel: grpc.aio.Channel, metadata: Metadata, seconds: float) -> None:
        self._channel = channel
        self._metadata = metadata
        self._seconds = seconds
        self._end_s = 0.0
        self.events = 0

    async def publish(self, body: bytes, size: int, callers: int, *, is_streaming: bool) -> float:
        """Keep the callers busy; how long it took."""
        one = self._publish_stream if is_streaming else self._publish_calls
        return await self._run([one(body, size) for _ in range(callers)])

    async def subscribe(self, topic: str, replay_id: bytes, per_pass: int, count: int) -> float:
        """Keep the subscribers reading; how long it took."""
        first = pb.FetchRequest(
            topic_name=topic, replay_preset=pb.CUSTOM, replay_id=replay_id, num_requested=_BATCH
        )
        return await self._run([self._read(first.SerializeToString(), per_pass) for _ in range(count)])

    async def _run(self, work: list[Any]) -> float:
        started_s = time.perf_counter()
        self._end_s = started_s + self._seconds
        await asyncio.gather(*work)
        return time.perf_counter() - started_s

    def _is_over(self) -> bool:
        return time.perf_counter() >= self._end_s

    async def _publish_calls(self, body: bytes, size: int) -> None:
        call = self._channel.unary_unary(SERVICE + "Publish")
        answers = 0
        while not self._is_over():
            answer = await call(body, metadata=self._metadata)
            self._count(answer, size, answers)
            answers += 1

    async def _publish_stream(self, body: bytes, size: int) -> None:
        call = self._channel.stream_stream(SERVICE + "PublishStream")(metadata=self._metadata)
        answers = 0
        while not self._is_over():
            await call.write(body)
            self._count(await call.read(), size, answers)
            answers += 1
        await call.done_writing()
        await call.read()

    def _count(self, answer: Any, size: int, answers: int) -> None:
        self.events += size
        if answers % _CHECK_EVERY == 0:
            results = pb.PublishResponse.FromString(answer).results
            assert [bool(result.replay_id) for result in results] == [True] * size, results[0].error.msg

    async def _read(self, first: bytes, per_pass: int) -> None:
        while not self._is_over():
            call = self._channel.stream_stream(SERVICE + "Subscribe")(metadata=self._metadata)
            await call.write(first)
            left, used = per_pass, 0
            while left > 0 and not self._is_over():
                message = await call.read()
                assert message is not grpc.aio.EOF, await call.details()
                found = message.count(MARK)
                self.events += found
                left -= found
                used += found
                if used >= _BATCH // 2:
                    await call.write(pb.FetchRequest(num_requested=used).SerializeToString())
                    used = 0
            call.cancel()


async def run(address: str, metadata: Metadata, kind: str, body: bytes, rest: list[str]) -> None:
    """Connect, tell, work, tell."""
    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(address, options) as channel:
        await asyncio.wait_for(channel.channel_ready(), 10)
        load = Load(channel, metadata, float(rest[-1]))
        print("ready", flush=True)
        if kind == "subscribe":
            topic, replay_id, per_pass, count, _ = rest
            took_s = await load.subscribe(topic, bytes.fromhex(replay_id), int(per_pass), int(count))
        else:
            _, size, callers, _ = rest
            took_s = await load.publish(body, int(size), int(callers), is_streaming=kind == "stream")
    print(json.dumps({"events": load.events, "seconds": took_s}))


if __name__ == "__main__":
    address, metadata_file, kind, *rest = sys.argv[1:]
    metadata = [tuple(pair) for pair in json.loads(Path(metadata_file).read_text())]
    body = b"" if kind == "subscribe" else Path(rest[0]).read_bytes()
    uvloop.run(run(address, metadata, kind, body, rest))
