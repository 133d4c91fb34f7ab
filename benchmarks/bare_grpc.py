"""The peers of the Pub/Sub bench: a bare grpc.aio server that does only what cannot be left out.

    python bare_grpc.py SCHEMA_FILE RESPONSE_ENTRY_FILE

Publish and PublishStream parse the request, decode each payload with fastavro and answer with a running number: no
login, no storage. Subscribe sends copies of one ready-made event, as many as are asked for, at most 100 at a time: no
log, no permissions, nothing encoded. Prints its port.
"""

from __future__ import annotations

import io
import itertools
import json
import sys
from pathlib import Path
from typing import Any

import fastavro
import grpc
import uvloop

from tidewire.schema.proto import pubsub_pb2 as pb

_MOST = 100


class BareServer:
    """The handlers. Messages cross grpc.aio as bytes, as they do with ours."""

    def __init__(self, schema_json: str, entry: bytes) -> None:
        self._schema: Any = fastavro.parse_schema(json.loads(schema_json))
        self._positions = itertools.count(1)
        rest = pb.FetchResponse(latest_replay_id=bytes(10), rpc_id="0" * 36)
        self._responses = [entry * count + rest.SerializeToString() for count in range(_MOST + 1)]

    def _answer(self, body: bytes) -> bytes:
        request = pb.PublishRequest.FromString(body)
        results = []
        for event in request.events:
            fastavro.schemaless_reader(io.BytesIO(event.payload), self._schema, None)
            replay_id = next(self._positions).to_bytes(8, "big") + b"\0\0"
            results.append(pb.PublishResult(replay_id=replay_id, correlation_key=event.id))
        return pb.PublishResponse(results=results, schema_id=request.events[0].schema_id).SerializeToString()

    async def publish(self, body: bytes, context: Any) -> bytes:
        """The unary call."""
        return self._answer(body)

    async def publish_stream(self, requests: Any, context: Any) -> None:
        """The stream: one answer a request."""
        async for body in requests:
            await context.write(self._answer(body))

    async def subscribe(self, requests: Any, context: Any) -> None:
        """Send what is asked for as soon as it is."""
        async for body in requests:
            demand = pb.FetchRequest.FromString(body).num_requested
            while demand > 0:
                count = min(demand, _MOST)
                await context.write(self._responses[count])
                demand -= count


async def serve(schema_json: str, entry: bytes) -> None:
    """Listen on a free port until killed."""
    bare = BareServer(schema_json, entry)
    handlers = {
        "Publish": grpc.unary_unary_rpc_method_handler(bare.publish),
        "PublishStream": grpc.stream_stream_rpc_method_handler(bare.publish_stream),
        "Subscribe": grpc.stream_stream_rpc_method_handler(bare.subscribe),
    }
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", 8 << 20)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler("eventbus.v1.PubSub", handlers),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(port, flush=True)
    await server.wait_for_termination()


if __name__ == "__main__":
    uvloop.run(serve(Path(sys.argv[1]).read_text(), Path(sys.argv[2]).read_bytes()))
