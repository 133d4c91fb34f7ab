"""A publish stream that opens on demand and has many requests in flight."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Self

from tidewire.client.login import Login
from tidewire.client.pubsub_connection import REFUSED_LOGIN, PubSubConnection, iter_queue, read_response
from tidewire.client.pubsub_messages import Published, read_results
from tidewire.errors import PlatformError, ProtocolViolation, ServerUnreachable
from tidewire.schema.proto import pubsub_pb2 as pb

Encode = Callable[[str, Sequence[Mapping[str, Any]]], Awaitable[list[pb.ProducerEvent]]]


class PublishStream:
    """Publishes to one topic. Tasks of one event loop may share it; a request's events stay together and in order.

    If the server closes an idle stream, the next request opens another.
    """

    def __init__(
        self, connection: PubSubConnection, encode: Encode, topic: str, *, max_in_flight: int = 32
    ) -> None:
        self._connection = connection
        self._encode = encode
        self._topic = topic
        self._room = asyncio.Semaphore(max_in_flight)
        self._opening = asyncio.Lock()
        self._call: _Call | None = None

    async def publish(self, events: Sequence[Mapping[str, Any]]) -> list[Published]:
        """Publish one request; return the result of each event, in order, once all accepted ones are durable.

        After ServerUnreachable the outcome is unknown: the response was lost.
        """
        if not events:
            return []
        request = pb.PublishRequest(topic_name=self._topic, events=await self._encode(self._topic, events))
        async with self._room:
            call = await self._live_call(None)
            try:
                response = await call.ask(request)
            except REFUSED_LOGIN:
                if call.has_answered:
                    raise
                # The login was rejected before any response, so nothing was published.
                call = await self._live_call(call)
                response = await call.ask(request)
        return read_results(response)

    async def close(self) -> None:
        """Wait for outstanding responses, then end the stream. Idempotent."""
        call, self._call = self._call, None
        if call is not None:
            await call.finish()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        await self.close()

    async def _live_call(self, refused: _Call | None) -> _Call:
        async with self._opening:
            call = self._call
            if call is None or call.has_ended or call is refused:
                login = await self._connection.login(refused=None if refused is None else refused.login)
                call = self._call = _Call(self._connection, login)
            return call


class _Call:
    """One PublishStream call. Responses are matched to requests by the first event's id.

    Older servers answer without ids, in the order of the requests.
    """

    def __init__(self, connection: PubSubConnection, login: Login) -> None:
        self.login = login
        self.has_answered = False
        self.has_ended = False
        self._requests: asyncio.Queue[pb.PublishRequest | None] = asyncio.Queue()
        self._asked: dict[str, asyncio.Future[pb.PublishResponse]] = {}
        self._call = connection.open_stream(
            "PublishStream", iter_queue(self._requests), pb.PublishResponse.FromString, login
        )
        self._task = asyncio.create_task(self._read(), name="pubsub-publishing")

    async def ask(self, request: pb.PublishRequest) -> pb.PublishResponse:
        """Send a request of at least one event and wait for its response."""
        if self.has_ended:
            raise ServerUnreachable("the server ended the publish stream; publish again to open another")
        answer: asyncio.Future[pb.PublishResponse] = asyncio.get_running_loop().create_future()
        self._asked[request.events[0].id] = answer
        self._requests.put_nowait(request)
        return await answer

    async def finish(self) -> None:
        """Half-close the stream and wait for its end."""
        self._requests.put_nowait(None)
        await asyncio.wait({self._task})

    async def _read(self) -> None:
        error: PlatformError = ServerUnreachable("the server ended the publish stream before it answered")
        try:
            while (response := await read_response(self._call, None)) is not None:
                self.has_answered = True
                key = response.results[0].correlation_key if response.results else ""
                answer = self._asked.pop(key or next(iter(self._asked), ""), None)
                if answer is None:
                    error = ProtocolViolation("the server answered a request that was not made")
                    break
                if not answer.done():  # the waiting task may have been cancelled
                    answer.set_result(response)
        except PlatformError as failure:
            error = failure
        finally:
            self.has_ended = True
            self._call.cancel()
            self._requests.put_nowait(None)
            for answer in self._asked.values():
                if not answer.done():
                    answer.set_exception(error)
