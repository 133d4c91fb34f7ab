"""REST calls to a core without sockets."""

from __future__ import annotations

import json
from typing import Any

from tests.orgs import TestOrg
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.frontends.rest.serve import RestApp
from tidewire.matching.log_ranges import LogRanges
from tidewire.transport.http import HttpRequest, HttpResponse

V = "/services/data/v59.0"


class Caller:
    """One signed-in user's calls."""

    def __init__(self, org: TestOrg, token: str) -> None:
        core = org.core
        self._app = RestApp(
            core.gate,
            core.logins,
            core.cursors,
            org.clock,
            core.oauth,
            core.jobs,
            core.generic,
            core.streams,
            LogRanges(core.gate, core.log, core.capture),
            is_first=True,
        )
        self.token = token

    async def go(
        self, method: str, path: str, body: object = None, base: str = V, **headers: str
    ) -> HttpResponse:
        """The answer to one request; a body that is no bytes is sent as JSON, header names have `_` for `-`."""
        content = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        given = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = {"host": "localhost", "authorization": f"Bearer {self.token}"} | given
        if content and "content-type" not in sent:
            sent["content-type"] = "application/json"
        return await self._app.handle(HttpRequest(method, base + path, sent, content))

    async def read(self, path: str, **headers: str) -> Any:
        """The JSON of an answer that must be good."""
        answer = await self.go("GET", path, **headers)
        assert answer.status == 200, answer.body
        return json.loads(answer.body)


async def sign_in(org: TestOrg, username: str = DEV_USERNAME) -> Caller:
    """A caller with a session of its own."""
    login = await org.core.logins.login(username, DEV_PASSWORD, "test")
    return Caller(org, login.token)


def header(answer: HttpResponse, name: str) -> str:
    """A header of an answer, empty if it is absent."""
    return next((value for key, value in answer.headers if key.lower() == name.lower()), "")


def code(answer: HttpResponse) -> tuple[int, str]:
    """Status and errorCode of a refusal."""
    return answer.status, json.loads(answer.body)[0]["errorCode"]
