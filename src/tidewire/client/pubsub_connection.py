"""A gRPC connection that logs in by itself, and the retry policy of its calls."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, TypeVar

import grpc

from tidewire.client.login import Login
from tidewire.client.pubsub_messages import (
    CHANNEL_OPTIONS,
    SERVICE,
    login_metadata,
    read_failure,
    read_rpc_error,
)
from tidewire.errors import (
    AuthHeaderInvalid,
    InternalError,
    PlatformError,
    ProtocolViolation,
    ServerUnreachable,
    SessionInvalid,
)

Message = TypeVar("Message")
REFUSED_LOGIN = (SessionInvalid, AuthHeaderInvalid)

_OPTIONS = [
    *CHANNEL_OPTIONS,
    # By default a channel waits up to two minutes before it reconnects.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
]


class PubSubConnection:
    """A channel to `endpoint` and the login of its calls. `sign_in` blocks and runs in a thread."""

    def __init__(
        self, endpoint: str, sign_in: Callable[[], Login], *, tls_ca: bytes | None, timeout_s: float
    ) -> None:
        if tls_ca is None:
            self._channel = grpc.aio.insecure_channel(endpoint, _OPTIONS)
        else:
            credentials = grpc.ssl_channel_credentials(tls_ca or None)
            self._channel = grpc.aio.secure_channel(endpoint, credentials, _OPTIONS)
        self._endpoint = endpoint
        self._sign_in = sign_in
        self._timeout_s = timeout_s
        self._login: Login | None = None
        self._signing_in = asyncio.Lock()
        self._is_closed = False

    async def login(self, refused: Login | None = None) -> Login:
        """Return the current login; log in if there is none, or if it is the one that was `refused`."""
        async with self._signing_in:
            if self._login is None or self._login is refused:
                self._login = await asyncio.to_thread(self._sign_in)
            return self._login

    async def call(self, name: str, request: Any, parse: Callable[[bytes], Message]) -> Message:
        """Make a unary call. Waits for a server that is not reachable yet, and logs in again if the token is rejected.

        After ServerUnreachable it is unknown whether the server has executed the call.
        """
        self._check_open()
        method: Any = self._channel.unary_unary(SERVICE + name, type(request).SerializeToString, parse)
        login = await self.login()
        has_renewed = False
        while True:
            try:
                response: Message = await method(
                    request, metadata=_metadata_of(login), timeout=self._timeout_s, wait_for_ready=True
                )
                return response
            except grpc.aio.AioRpcError as rpc_error:
                error = read_rpc_error(rpc_error, self._endpoint)
                if has_renewed or not isinstance(error, REFUSED_LOGIN):
                    raise error from rpc_error
            has_renewed = True
            login = await self.login(refused=login)

    def open_stream(
        self,
        name: str,
        requests: AsyncIterator[Any],
        parse: Callable[[bytes], Any],
        login: Login,
        extra: Sequence[tuple[str, str]] = (),
    ) -> Any:
        """Open a bidirectional stream of grpc.aio. Requests serialise themselves."""
        self._check_open()
        method: Any = self._channel.stream_stream(
            SERVICE + name, lambda request: request.SerializeToString(), parse
        )
        return method(requests, metadata=[*_metadata_of(login), *extra])

    async def close(self) -> None:
        """Close the channel and cancel its calls. Idempotent."""
        self._is_closed = True
        await self._channel.close()

    def _check_open(self) -> None:
        if self._is_closed:
            raise ProtocolViolation("the client is closed")


async def read_response(call: Any, timeout_s: float | None) -> Any:
    """Return the next response of a stream; None after the last. Raises ServerUnreachable after `timeout_s`."""
    try:
        async with asyncio.timeout(timeout_s):
            response = await call.read()
        if response is not grpc.aio.EOF:
            return response
        status = await call.code()
        if status is grpc.StatusCode.OK:
            return None
        raise read_failure(status.name, await call.details(), await call.trailing_metadata())
    except grpc.aio.AioRpcError as rpc_error:
        raise read_rpc_error(rpc_error) from rpc_error
    except TimeoutError as error:
        raise ServerUnreachable(
            f"the server sent nothing for {timeout_s:g} s; the subscription reconnects"
        ) from error


async def iter_queue(queue: asyncio.Queue[Any]) -> AsyncIterator[Any]:
    """Yield the items of a queue until None."""
    while (item := await queue.get()) is not None:
        yield item


class Retry:
    """The retry policy of one stream: whether to retry after a failure, and how long to back off."""

    def __init__(self, connection: PubSubConnection, *, min_pause_s: float, max_pause_s: float) -> None:
        self._connection = connection
        self._min_pause_s = min_pause_s
        self._max_pause_s = max_pause_s
        self._pause_s = min_pause_s
        self._has_renewed = False

    def succeeded(self) -> None:
        """Reset the backoff after a successful response."""
        self._pause_s = self._min_pause_s
        self._has_renewed = False

    async def failed(self, error: PlatformError, login: Login | None) -> None:
        """Return when it is time to retry; raise if the error is final."""
        if isinstance(error, REFUSED_LOGIN):
            if self._has_renewed:
                raise error
            try:
                await self._connection.login(refused=login)
                self._has_renewed = True
            except PlatformError as login_error:
                if not login_error.retryable:
                    raise
        elif not (error.retryable or isinstance(error, InternalError)):
            raise error
        await self.pause()

    async def pause(self) -> None:
        """Back off: exponential, with jitter, so that many clients of one server do not reconnect at once."""
        await asyncio.sleep(self._pause_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads load, no secret
        self._pause_s = min(self._pause_s * 2, self._max_pause_s)


def _metadata_of(login: Login) -> list[tuple[str, str]]:
    return login_metadata(login.token, login.instance_url, login.org_id)
