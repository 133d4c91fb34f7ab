"""Pub/Sub subscribers that only count, for the path bench.

    python grpc_subscribers.py ADDRESS TOKEN INSTANCE_URL ORG_ID TOPIC SUBSCRIBERS SECONDS

Prints `ready` when every stream is open, and after SECONDS one JSON object: deliveries and percentiles of
their age in us.
"""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time

import grpc
import uvloop

from tidewire.schema.proto import pubsub_pb2 as pb

STAMP = re.compile(rb"@(\d{16})@")
_BATCH = 100


async def subscribe(
    channel: grpc.aio.Channel, metadata: list[tuple[str, str]], topic: str, ages_us: list[int]
) -> None:
    """Count stamps on one stream for ever.

    Messages stay bytes: decoding would be this client's cost, not the server's.
    """
    call = channel.stream_stream(
        "/eventbus.v1.PubSub/Subscribe",
        request_serializer=pb.FetchRequest.SerializeToString,
        response_deserializer=None,
    )(metadata=metadata)
    await call.write(pb.FetchRequest(topic_name=topic, num_requested=_BATCH))
    received = 0
    while True:
        message = await call.read()
        if message is grpc.aio.EOF:
            print(f"stream ended: {await call.code()} {await call.details()}", file=sys.stderr)
            return
        now_us = time.time_ns() // 1000
        found = STAMP.findall(message)
        ages_us.extend(now_us - int(stamp) for stamp in found)
        received += len(found)
        if received >= _BATCH // 2:
            await call.write(pb.FetchRequest(topic_name=topic, num_requested=received))
            received = 0


async def count(argv: list[str]) -> None:
    """Run all subscribers for the time given."""
    address, token, instance_url, org_id, topic, subscribers, seconds = argv
    metadata = [("accesstoken", token), ("instanceurl", instance_url), ("tenantid", org_id)]
    ages_us: list[int] = []
    async with grpc.aio.insecure_channel(address) as channel:
        await asyncio.wait_for(channel.channel_ready(), 10)
        tasks = [
            asyncio.create_task(subscribe(channel, metadata, topic, ages_us)) for _ in range(int(subscribers))
        ]
        # A unary call on the same connection comes after the streams' first requests have been read.
        get_topic = channel.unary_unary(
            "/eventbus.v1.PubSub/GetTopic",
            request_serializer=pb.TopicRequest.SerializeToString,
            response_deserializer=pb.TopicInfo.FromString,
        )
        await get_topic(pb.TopicRequest(topic_name=topic), metadata=metadata)
        print("ready", flush=True)
        await asyncio.sleep(float(seconds))
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    ages_us.sort()
    last = len(ages_us) - 1
    print(
        json.dumps(
            {
                "deliveries": len(ages_us),
                "age_p50_us": ages_us[last // 2] if ages_us else 0,
                "age_p99_us": ages_us[int(last * 0.99)] if ages_us else 0,
            }
        )
    )


if __name__ == "__main__":
    uvloop.run(count(sys.argv[1:]))
