"""A blocking REST client: one JSON request at a time. Works with any server of the API."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http.client import HTTPException
from typing import Any

from tidewire.client.login import Login
from tidewire.errors import RequestRefused, ServerUnreachable, SessionInvalid

USUAL_VERSION = "67.0"


@dataclass(frozen=True, slots=True)
class QueryPage:
    """One page of records, and the total of all pages."""

    records: list[dict[str, Any]]
    total: int


class RestClient:
    """Calls with one login. `renew` logs in again when the server no longer accepts the token."""

    def __init__(
        self,
        login: Login,
        tls_ca: bytes | None = None,
        timeout_s: float = 60.0,
        *,
        api_version: str = USUAL_VERSION,
        renew: Callable[[], Login] | None = None,
    ) -> None:
        self.login = login  # the login in use
        self._timeout_s = timeout_s
        self._context = ssl.create_default_context(cadata=tls_ca.decode("ascii") if tls_ca else None)
        self._renew = renew
        self.data_path = f"/services/data/v{api_version}"

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request and return the decoded response; None without a body.

        Raises SessionInvalid, RequestRefused with the server's message, or ServerUnreachable.
        """
        try:
            return self._call_once(method, path, body)
        except SessionInvalid:
            if self._renew is None:
                raise
        # A request that was rejected for its token had no effect, so it is safe to send again.
        self.login = self._renew()
        return self._call_once(method, path, body)

    def query(self, soql: str) -> list[dict[str, Any]]:
        """Return all records that a query finds, over all pages."""
        return [record for page in self.iter_pages(soql) for record in page.records]

    def iter_pages(self, soql: str, *, resource: str = "query") -> Iterator[QueryPage]:
        """Yield the pages of a query, each fetched on demand. `resource` is query, queryAll or tooling/query.

        `total` counts the records of all pages. A query that only counts has one page without records.
        """
        page = self.call("GET", f"{self.data_path}/{resource}?q=" + urllib.parse.quote(soql, safe=""))
        yield QueryPage(page["records"], page["totalSize"])
        while not page["done"]:
            page = self.call("GET", page["nextRecordsUrl"])
            yield QueryPage(page["records"], page["totalSize"])

    def read(self, entity: str, record_id: str, fields: str = "") -> dict[str, Any]:
        """Read a record; `fields` is a comma-separated list, empty for all visible fields."""
        return self._read(self._record_path(entity, record_id), fields)

    def read_by(self, entity: str, key: str, value: str, fields: str = "") -> dict[str, Any]:
        """Read the record whose external id field `key` has `value`."""
        return self._read(self._record_path(entity, key, value), fields)

    def create(self, entity: str, fields: Mapping[str, Any]) -> str:
        """Create a record and return its id."""
        return str(self.call("POST", self._record_path(entity), dict(fields))["id"])

    def update(self, entity: str, record_id: str, fields: Mapping[str, Any]) -> None:
        """Update fields of a record."""
        self.call("PATCH", self._record_path(entity, record_id), dict(fields))

    def upsert(self, entity: str, key: str, value: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Upsert the record whose external id field `key` has `value`; return its `id` and whether `created`."""
        path = self._record_path(entity, key, value)
        answer: dict[str, Any] | None = self.call("PATCH", path, dict(fields))
        if not answer:  # older API versions answer an update without a body
            found = self.call("GET", path)
            return {"id": found["Id"], "created": False}
        return {"id": answer["id"], "created": bool(answer.get("created"))}

    def delete(self, entity: str, record_id: str) -> None:
        """Move a record to the recycle bin."""
        self.call("DELETE", self._record_path(entity, record_id))

    def describe(self, entity: str = "") -> dict[str, Any]:
        """Describe an object, or list all objects if none is named."""
        path = self._record_path(entity, "describe") if entity else f"{self.data_path}/sobjects"
        answer: dict[str, Any] = self.call("GET", path)
        return answer

    def _read(self, path: str, fields: str) -> dict[str, Any]:
        suffix = "?fields=" + urllib.parse.quote(fields) if fields else ""
        record: dict[str, Any] = self.call("GET", path + suffix)
        return record

    def _record_path(self, *segments: str) -> str:
        quoted = "/".join(urllib.parse.quote(segment, safe="") for segment in segments)
        return f"{self.data_path}/sobjects/{quoted}"

    def _call_once(self, method: str, path: str, body: Any) -> Any:
        request = urllib.request.Request(  # noqa: S310  # the instance URL came from a login over http or https
            self.login.instance_url + path,
            None if body is None else json.dumps(body).encode(),
            {"Authorization": f"Bearer {self.login.token}", "Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=self._timeout_s, context=self._context) as response:  # noqa: S310
                answer = response.read()
        except urllib.error.HTTPError as error:
            with error:
                raise _rejection(error.code, error.read()) from error
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise ServerUnreachable.at(self.login.instance_url, reason) from error
        try:
            return json.loads(answer) if answer else None
        except ValueError as error:
            raise RequestRefused(
                f"the response to {method} {path} is not JSON; check that {self.login.instance_url} serves the API",
                status=200,
                error_code="",
            ) from error


def _rejection(status: int, body: bytes) -> SessionInvalid | RequestRefused:
    try:
        first = json.loads(body)[0]
        code, message = str(first["errorCode"]), str(first["message"])
    except (ValueError, LookupError, TypeError):
        code, message = f"HTTP {status}", body[:200].decode("utf-8", "replace")
    if status == 401:
        return SessionInvalid(message)
    return RequestRefused(f"{code}: {message}", status=status, error_code=code)
