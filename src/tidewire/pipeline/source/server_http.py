"""HTTP reads as the bus's user: signed in, retried while that can help, with errors mapped to ours."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, Any

from tidewire.client.http_blocking import BlockingHttp, HttpHead
from tidewire.errors import (
    AccessDenied,
    ChannelForbidden,
    ChannelInvalid,
    ChannelUnknown,
    PlatformError,
    ReplayIdExpired,
    ReplayIdInvalid,
    RequestRefused,
    ResourceUnknown,
    ServerUnreachable,
    SessionInvalid,
)
from tidewire.pipeline.lake.spans import START
from tidewire.pipeline.source.bus import Bus, Retry

_BY_CODE: dict[str, type[PlatformError]] = {
    "REPLAY_ID_EXPIRED": ReplayIdExpired,
    "INVALID_REPLAY_ID": ReplayIdInvalid,
    "INVALID_CHANNEL": ChannelInvalid,
    "INSUFFICIENT_ACCESS": ChannelForbidden,
    "INSUFFICIENT_ACCESS_OR_READONLY": AccessDenied,
    "API_DISABLED_FOR_ORG": AccessDenied,
}


class ServerHttp:
    """Reads from one server, for one thread. `url` is the server's address; empty for that of the login."""

    def __init__(self, bus: Bus, url: str = "") -> None:
        self._bus = bus
        self._url = url
        self._http: BlockingHttp | None = None

    def get_json(self, path: str, position: int = START) -> tuple[HttpHead, Any]:
        """Return a JSON response; retries as `Bus.stream` does. `position` is reported with a failure."""
        retry = Retry(self._bus, threading.Event())
        while True:
            try:
                return self._get(path)
            except PlatformError as error:
                retry.failed(error, position)

    def try_get_json(self, path: str) -> Any:
        """Return a JSON response; None if the server rejects the request in any way."""
        try:
            return self._get(path)[1]
        except PlatformError:
            return None

    @contextmanager
    def open(self, path: str) -> Iterator[IO[bytes]]:
        """Yield the body of a response as a stream. Does not retry."""
        with self._connected().open(path, self._headers()) as (head, body):
            if head.status != 200:
                check(head, body.read(1 << 16), path)
            yield body

    def close(self) -> None:
        """Close the connection."""
        if self._http is not None:
            self._http.close()

    def _get(self, path: str) -> tuple[HttpHead, Any]:
        head, body = self._connected().get(path, self._headers())
        check(head, body, path)
        try:
            return head, json.loads(body)
        except ValueError as error:
            raise RequestRefused(f"{path.partition('?')[0]}: the answer is not JSON") from error

    def _headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self._bus.session().token}"}

    def _connected(self) -> BlockingHttp:
        url = self._url or self._bus.session().instance_url
        if self._http is None or self._http.url != url:
            self._http = BlockingHttp(url, self._bus.roots or None)
        return self._http


def check(head: HttpHead, body: bytes, path: str) -> None:
    """Raise the error that a rejected request means."""
    if head.status == 200:
        return
    try:
        first = json.loads(body)[0]
        code, message = str(first["errorCode"]), str(first["message"])
    except (ValueError, LookupError, TypeError):
        code, message = f"HTTP {head.status}", body[:200].decode("utf-8", "replace")
    resource = path.partition("?")[0]
    if head.status == 401:
        raise SessionInvalid(message)
    if code in _BY_CODE:
        raise _BY_CODE[code](message)
    if head.status == 404:
        raise (ChannelUnknown(message) if "channel" in message else ResourceUnknown(f"{resource}: {message}"))
    if head.status >= 500:
        raise ServerUnreachable(f"{resource}: {code}: {message}")
    raise RequestRefused(f"{resource}: {code}: {message}", status=head.status, error_code=code)
