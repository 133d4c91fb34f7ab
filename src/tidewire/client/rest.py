"""REST calls for programs: one JSON request at a time, signed in. Blocks. Works against any server of the API."""

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
    """Some records of an answer, and how many the whole answer has."""

    records: list[dict[str, Any]]
    total: int


class RestClient:
    """Calls on behalf of one login. `renew` signs in again when the server no longer accepts the token."""

    def __init__(
        self,
        login: Login,
        tls_ca: bytes | None = None,
        timeout_s: float = 60.0,
        *,
        api_version: str = USUAL_VERSION,
        renew: Callable[[], Login] | None = None,
    ) -> None:
        self._login = login
        self._timeout_s = timeout_s
        self._context = ssl.create_default_context(cadata=tls_ca.decode("ascii") if tls_ca else None)
        self._renew = renew
        self.data_path = f"/services/data/v{api_version}"

    @property
    def login(self) -> Login:
        """The login in use."""
        return self._login

    def call(self, method: str, path: str, body: Any = None) -> Any:
        """The decoded answer, None if it has no body.

        Raises SessionInvalid, RequestRefused with the server's own words, or ServerUnreachable (retryable) if it
        cannot be reached.
        """
        try:
            return self._call_once(method, path, body)
        except SessionInvalid:
            if self._renew is None:
                raise
        # A request that was refused for its token has not been carried out: it may be sent again.
        self._login = self._renew()
        return self._call_once(method, path, body)

    def query(self, soql: str) -> list[dict[str, Any]]:
        """Every record that a query finds, over all its pages."""
        return [record for page in self.iter_pages(soql) for record in page.records]

    def iter_pages(self, soql: str, *, resource: str = "query") -> Iterator[QueryPage]:
        """The pages of an answer, each asked for when it is wanted. `resource` is query, queryAll or tooling/query.

        The total is that of all pages. A query that only counts has one page without records.
        """
        page = self.call("GET", f"{self.data_path}/{resource}?q=" + urllib.parse.quote(soql, safe=""))
        yield QueryPage(page["records"], page["totalSize"])
        while not page["done"]:
            page = self.call("GET", page["nextRecordsUrl"])
            yield QueryPage(page["records"], page["totalSize"])

    def read(self, entity: str, record_id: str, fields: str = "") -> dict[str, Any]:
        """One record; `fields` are names with commas between them, all that the user sees if empty."""
        return self._read(self._record_path(entity, record_id), fields)

    def read_by(self, entity: str, key: str, value: str, fields: str = "") -> dict[str, Any]:
        """The record whose external id field `key` has `value`."""
        return self._read(self._record_path(entity, key, value), fields)

    def create(self, entity: str, fields: Mapping[str, Any]) -> str:
        """Make a record; its id."""
        return str(self.call("POST", self._record_path(entity), dict(fields))["id"])

    def update(self, entity: str, record_id: str, fields: Mapping[str, Any]) -> None:
        """Change fields of a record."""
        self.call("PATCH", self._record_path(entity, record_id), dict(fields))

    def upsert(self, entity: str, key: str, value: str, fields: Mapping[str, Any]) -> dict[str, Any]:
        """Make or change the record whose external id field `key` has `value`; its `id`, and if it was `created`."""
        path = self._record_path(entity, key, value)
        answer: dict[str, Any] | None = self.call("PATCH", path, dict(fields))
        if not answer:  # servers of older API versions have no body for an update
            found = self.call("GET", path)
            return {"id": found["Id"], "created": False}
        return {"id": answer["id"], "created": bool(answer.get("created"))}

    def delete(self, entity: str, record_id: str) -> None:
        """Put a record into the recycle bin."""
        self.call("DELETE", self._record_path(entity, record_id))

    def describe(self, entity: str = "") -> dict[str, Any]:
        """What the server tells about an object, or about all if none is named."""
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
        except (OSError, HTTPException) as error:
            reason = error.reason if isinstance(error, urllib.error.URLError) else error
            raise ServerUnreachable.at(self._login.instance_url, reason) from error
        try:
            return json.loads(answer) if answer else None
        except ValueError as error:
            raise RequestRefused(
                f"the answer to {method} {path} is not JSON: is {self._login.instance_url} a server of the API?",
                status=200,
                error_code="",
            ) from error


def _refusal(status: int, body: bytes) -> SessionInvalid | RequestRefused:
    try:
        first = json.loads(body)[0]
        code, message = str(first["errorCode"]), str(first["message"])
    except (ValueError, LookupError, TypeError):
        code, message = f"HTTP {status}", body[:200].decode("utf-8", "replace")
    if status == 401:
        return SessionInvalid(message)
    return RequestRefused(f"{code}: {message}", status=status, error_code=code)
