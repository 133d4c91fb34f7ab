"""A blocking keep-alive HTTP/1.1 connection: whole responses, or bodies that are streamed.

For threads, such as those of Spark tasks; programs with an event loop use `tidewire.client.http_connection`. GET only,
because a request on a stale connection is sent again on a new one.
"""

from __future__ import annotations

import http.client
import ssl
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO
from urllib.parse import urlsplit

from tidewire.errors import ConfigInvalid, ServerUnreachable

MAX_ANSWER_BYTES = 256 << 20
_PORTS = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True)
class HttpHead:
    """Status and headers of a response; header names are in lower case."""

    status: int
    headers: Mapping[str, str]


def parse_server(url: str, tls_ca: bytes | None) -> tuple[str, int, ssl.SSLContext | None]:
    """Return the host, the port and the TLS context of a URL. Raises ConfigInvalid."""
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ConfigInvalid(f"the URL must start with http:// or https://: {url}", setting="url")
    tls: ssl.SSLContext | None = None
    if parts.scheme == "https":
        tls = ssl.create_default_context(cadata=tls_ca.decode("ascii") if tls_ca else None)
    return parts.hostname, parts.port or _PORTS[parts.scheme], tls


class BlockingHttp:
    """A connection to the host of `url`. `tls_ca` holds PEM roots to trust besides the system's."""

    def __init__(self, url: str, tls_ca: bytes | None = None, timeout_s: float = 60.0) -> None:
        self.url = url
        self._host, self._port, self._tls = parse_server(url, tls_ca)
        self._timeout_s = timeout_s
        self._connection: http.client.HTTPConnection | None = None

    def get(self, path: str, headers: Mapping[str, str]) -> tuple[HttpHead, bytes]:
        """Return the whole response. Raises ServerUnreachable if there is none."""
        with self.open(path, headers) as (head, body):
            content = body.read(MAX_ANSWER_BYTES + 1)
            if len(content) > MAX_ANSWER_BYTES:
                raise ServerUnreachable(f"the answer of {self.url} is longer than {MAX_ANSWER_BYTES} bytes")
            promised = head.headers.get("content-length", "")
            if promised.isdecimal() and int(promised) != len(content):
                raise ServerUnreachable(f"the answer of {self.url} is incomplete; retry")
            return head, content

    @contextmanager
    def open(self, path: str, headers: Mapping[str, str]) -> Iterator[tuple[HttpHead, IO[bytes]]]:
        """Open a response to stream its body inside the block. Raises ServerUnreachable if it breaks off."""
        try:
            response = self._send(path, headers)
            found = {name.lower(): value for name, value in response.getheaders()}
            yield HttpHead(response.status, found), response
            if not response.isclosed() and response.read(1):
                self.close()  # unread bytes would be taken for the next response
        except (OSError, http.client.HTTPException) as error:
            self.close()
            raise ServerUnreachable.at(self.url, repr(error)) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection; the next request opens another. Idempotent."""
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self, path: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        is_new = self._connection is None
        try:
            return self._request(path, headers)
        except (ConnectionError, http.client.BadStatusLine):
            self.close()
            if is_new:
                raise
            return self._request(path, headers)

    def _request(self, path: str, headers: Mapping[str, str]) -> http.client.HTTPResponse:
        if self._connection is None:
            self._connection = self._connect()
        self._connection.request("GET", path, headers=dict(headers))
        return self._connection.getresponse()

    def _connect(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=self._timeout_s)
        return http.client.HTTPSConnection(self._host, self._port, timeout=self._timeout_s, context=self._tls)
