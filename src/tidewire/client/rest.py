"""REST calls for programs: one JSON request at a time, signed in. Blocks."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from typing import Any

from tidewire.client.login import Login
from tidewire.errors import RequestRefused, SessionInvalid, StoreClosed


class RestClient:
    """Calls on behalf of one login."""

    def __init__(self, login: Login, tls_ca: bytes | None = None, timeout_s: float = 60.0) -> None:
        self._login = login
        self._timeout_s = timeout_s
        self._context = ssl.create_default_context(cadata=tls_ca.decode("ascii") if tls_ca else None)

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The decoded answer, None if it has no body.

        Raises SessionInvalid, RequestRefused with the server's own words, or StoreClosed (retryable) if it
        cannot be reached.
        """
        request = urllib.request.Request(  # noqa: S310  # the instance URL came from a login over http or https
            self._login.instance_url + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self._login.token}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s, context=self._context) as response:  # noqa: S310
                answer = response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise _refusal(error.code, error.read()) from error
        except OSError as error:
            raise StoreClosed(f"the server cannot be reached: {error}") from error
        return json.loads(answer) if answer else None

    def query(self, soql: str) -> list[dict[str, Any]]:
        """Every record that a query finds, over all its pages."""
        page = self.call("GET", "/services/data/v67.0/query?q=" + urllib.parse.quote(soql))
        records: list[dict[str, Any]] = list(page["records"])
        while not page["done"]:
            page = self.call("GET", page["nextRecordsUrl"])
            records += page["records"]
        return records


def _refusal(status: int, body: bytes) -> SessionInvalid | RequestRefused:
    try:
        first = json.loads(body)[0]
        code, message = str(first["errorCode"]), str(first["message"])
    except (ValueError, LookupError, TypeError):
        code, message = f"HTTP {status}", body[:200].decode("utf-8", "replace")
    if status == 401:
        return SessionInvalid(message)
    return RequestRefused(f"{code}: {message}", status=status, error_code=code)
