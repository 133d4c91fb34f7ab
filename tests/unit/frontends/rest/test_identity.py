"""Token answers and user documents."""

from __future__ import annotations

import base64
import hashlib
import hmac
from dataclasses import replace
from typing import Any

from tidewire.access.logins import UserInfo
from tidewire.frontends.rest.identity import render_identity, render_token, render_userinfo
from tidewire.ids import make_id

ORG = make_id("00D", 1)
USER = make_id("005", 1)
INFO = UserInfo(
    user_id=USER,
    username="ada@example.com",
    full_name="Ada Lovelace",
    first_name="Ada",
    last_name="Lovelace",
    email="ada@example.com",
    profile_id="00eTW0000000001AAA",
    role_id="",
    language="en_US",
    locale="en_GB",
    time_zone="America/New_York",
    user_type="Standard",
    is_active=True,
    org_id=ORG,
    org_name="Engines",
)
BASE = "http://localhost:8080"
SUMMER_MS = 1_720_000_000_000


def test_token_answer_echoes_the_host_and_signs_the_identity() -> None:
    answer = render_token(BASE, "00D!x", ORG, USER, "secret", 1_700_000_000_000)
    assert list(answer) == ["access_token", "instance_url", "id", "token_type", "issued_at", "signature"]
    assert answer["instance_url"] == BASE
    assert answer["id"] == f"{BASE}/id/{ORG}/{USER}"
    assert answer["issued_at"] == "1700000000000"
    digest = hmac.new(b"secret", (answer["id"] + answer["issued_at"]).encode(), hashlib.sha256).digest()
    assert base64.b64decode(answer["signature"]) == digest


def test_userinfo_names_the_user_and_the_org() -> None:
    body = render_userinfo(BASE, INFO, SUMMER_MS)
    assert body["sub"] == f"{BASE}/id/{ORG}/{USER}"
    assert (body["user_id"], body["organization_id"]) == (USER, ORG)
    assert body["preferred_username"] == "ada@example.com"
    assert body["user_type"] == "STANDARD"
    assert body["utcOffset"] == -5 * 3600 * 1000, "daylight saving time does not count"


def test_user_documents_have_the_address_and_the_change_date() -> None:
    info = replace(INFO, nickname="ada", mobile_phone="7", city="Kiel", modified_ms=SUMMER_MS)
    body = render_userinfo(BASE, info, SUMMER_MS)
    assert (body["nickname"], body["address"]) == ("ada", {"locality": "Kiel"})
    assert body["updated_at"] == "2024-07-03T09:46:40Z"
    identity = render_identity(BASE, info, SUMMER_MS, "")
    assert (identity["addr_city"], identity["addr_street"], identity["mobile_phone"]) == ("Kiel", None, "7")
    assert identity["last_modified_date"] == "2024-07-03T09:46:40.000+0000"
    urls = identity["urls"]
    assert isinstance(urls, dict)
    assert urls["metadata"] == f"{BASE}/services/Soap/m/{{version}}/{ORG[:15]}"
    assert urls["tooling_rest"] == f"{BASE}/services/data/v{{version}}/tooling/"


def test_unknown_time_zone_counts_as_utc() -> None:
    for zone in ("Moon/Base", "../etc/passwd", ""):
        assert render_userinfo(BASE, replace(INFO, time_zone=zone), SUMMER_MS)["utcOffset"] == 0


def test_identity_urls_keep_the_placeholder_without_a_version() -> None:
    plain: dict[str, Any] = render_identity(BASE, INFO, SUMMER_MS, "")
    asked: dict[str, Any] = render_identity(BASE, INFO, SUMMER_MS, "59.0")
    assert plain["urls"]["partner"] == f"{BASE}/services/Soap/u/{{version}}/{ORG[:15]}"
    assert plain["urls"]["query"] == f"{BASE}/services/data/v{{version}}/query/"
    assert asked["urls"]["query"] == f"{BASE}/services/data/v59.0/query/"
    assert plain["asserted_user"] is True
