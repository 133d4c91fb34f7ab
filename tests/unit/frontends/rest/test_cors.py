"""CORS: only allowed origins, never a wildcard."""

from __future__ import annotations

import pytest

from tests.orgs import TestOrg
from tests.unit.frontends.rest.caller import Caller, header, sign_in

LISTED = ["https://app.example.org", "https://*.example.net:8443"]
ASK = {"access_control_request_method": "PATCH", "access_control_request_headers": "authorization"}
ALLOW = "Access-Control-Allow-Origin"


@pytest.fixture
async def caller(org: TestOrg) -> Caller:
    await org.apply(settings={"cors_allowed_origins": LISTED})
    return await sign_in(org)


@pytest.mark.parametrize(
    "origin", ["https://app.example.org", "https://APP.example.org", "https://a.b.example.net:8443"]
)
async def test_listed_origin_may_ask_and_read(caller: Caller, origin: str) -> None:
    asked = await caller.go("OPTIONS", "/sobjects", origin=origin, authorization="", **ASK)
    assert asked.status == 204
    assert header(asked, ALLOW) == origin
    assert "PATCH" in header(asked, "Access-Control-Allow-Methods")
    assert "Authorization" in header(asked, "Access-Control-Allow-Headers")
    answer = await caller.go("GET", "/limits", origin=origin)
    assert (header(answer, ALLOW), header(answer, "Vary")) == (origin, "Origin")
    assert "Sforce-Limit-Info" in header(answer, "Access-Control-Expose-Headers")
    refused = await caller.go("GET", "/nope", origin=origin)
    assert (refused.status, header(refused, ALLOW)) == (404, origin)


@pytest.mark.parametrize(
    "origin",
    [
        "https://evil.org",
        "http://app.example.org",
        "https://app.example.org.evil.org",
        "https://appXexample.org",
        "https://example.net:8443",
        "https://evil.org/.example.net:8443",
        "null",
        "*",
    ],
)
async def test_other_origin_gets_no_permission(caller: Caller, origin: str) -> None:
    asked = await caller.go("OPTIONS", "/sobjects", origin=origin, **ASK)
    assert (asked.status, header(asked, ALLOW)) == (405, "")
    answer = await caller.go("GET", "/limits", origin=origin)
    assert (answer.status, header(answer, ALLOW), header(answer, "Vary")) == (200, "", "Origin")


async def test_login_pages_are_never_shared(caller: Caller) -> None:
    page = await caller.go("GET", "/services/oauth2/authorize", base="", origin=LISTED[0])
    assert header(page, ALLOW) == ""


async def test_without_a_list_nothing_is_shared(org: TestOrg) -> None:
    caller = await sign_in(org)
    asked = await caller.go("OPTIONS", "/sobjects", origin=LISTED[0], **ASK)
    assert (asked.status, header(asked, ALLOW)) == (405, "")
    assert header(await caller.go("GET", "/limits", origin=LISTED[0]), ALLOW) == ""
