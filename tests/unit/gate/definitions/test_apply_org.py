"""Settings, users, record types and capture of a definition."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.orgs import READER, TestOrg, open_org
from tidewire.config import DEV_PASSWORD
from tidewire.errors import DefinitionInvalid, LoginFailed, SessionInvalid
from tidewire.records.settings import OrgSettings, read_settings
from tidewire.records.table import read_all_rows, read_rows
from tidewire.server.bootstrap import try_read_identity
from tidewire.server.core_http import CoreHttp
from tidewire.transport.http import HttpRequest

EXAMPLES = Path(__file__).parents[4] / "examples"


async def test_settings_are_stored_and_said_once(tmp_path: Path) -> None:
    settings = {"session_timeout_s": 600, "trusted_ip_ranges": ["10.1.2.3/8"], "person_accounts": True}
    async with open_org(tmp_path) as org:
        assert await org.apply(settings=settings) == [
            "set person_accounts = true, session_timeout_s = 600, trusted_ip_ranges = 10.0.0.0/8"
        ]
        assert await org.apply(settings=settings) == []
    async with open_org(tmp_path) as org:
        assert org.core.records.types.settings == OrgSettings(
            session_timeout_s=600, trusted_ip_ranges=("10.0.0.0/8",), person_accounts=True
        )


async def test_login_and_origin_settings_are_stored_and_read_back(tmp_path: Path) -> None:
    settings = {
        "cors_allowed_origins": ["https://App.example.org:8443", "https://*.example.org"],
        "lockout_attempts": 3,
        "lockout_minutes": 0,
        "api_enabled": False,
    }
    async with open_org(tmp_path) as org:
        assert await org.apply(settings=settings) == [
            "set cors_allowed_origins = https://app.example.org:8443 https://*.example.org,"
            " lockout_attempts = 3, lockout_minutes = 0, api_enabled = false"
        ]
        assert await org.apply(settings=settings) == []
        stored = org.core.records.types.settings
        assert await org.core.records.read(read_settings) == stored
    assert stored == OrgSettings(
        cors_allowed_origins=("https://app.example.org:8443", "https://*.example.org"),
        lockout_attempts=3,
        lockout_minutes=0,
        api_enabled=False,
    )


async def test_settings_of_the_organization_are_kept_in_its_record(org: TestOrg) -> None:
    settings = {
        "org_name": "Harbour",
        "time_zone": "Europe/Berlin",
        "locale": "de_DE",
        "language": "de",
        "fiscal_year_start_month": 4,
    }
    assert await org.apply(settings=settings) == [
        "set org_name = Harbour, time_zone = Europe/Berlin, locale = de_DE, language = de,"
        " fiscal_year_start_month = 4"
    ]
    assert await org.apply(settings=settings) == []
    organization = org.gate.catalog.object("Organization")
    (row,) = await org.core.records.read(lambda r: read_all_rows(r, organization))
    assert (row["Name"], row["FiscalYearStartMonth"], row["TimeZoneSidKey"]) == (
        "Harbour",
        4,
        "Europe/Berlin",
    )
    identity = await org.core.records.read(try_read_identity)
    assert identity is not None
    assert identity.name == "Harbour"
    await org.apply(users={"new@example.org": {}})
    users = org.gate.catalog.object("User")
    created = (await org.core.records.read(lambda r: read_all_rows(r, users)))[-1]
    assert (created["TimeZoneSidKey"], created["LocaleSidKey"]) == ("Europe/Berlin", "de_DE")


async def test_session_timeout_of_the_org_counts_at_once(org: TestOrg) -> None:
    login = await org.core.logins.login(READER, DEV_PASSWORD, "")
    await org.apply(settings={"session_timeout_s": 600})
    assert org.core.logins.seconds_valid == 600
    org.clock.advance(601)
    with pytest.raises(SessionInvalid):
        await org.core.logins.sessions.authenticate(login.token)
    await org.apply(settings={"session_timeout_s": 0})
    assert org.core.logins.seconds_valid == 7200


@pytest.mark.parametrize(
    "settings",
    [
        {"streaming": True},
        {"streaming_api": "yes"},
        {"streaming_api": None},
        {"session_timeout_s": 5},
        {"session_timeout_s": True},
        {"session_timeout_s": 1e3},
        {"trusted_ip_ranges": ["somewhere"]},
        {"trusted_ip_ranges": [5]},
        {"cors_allowed_origins": ["*"]},
        {"cors_allowed_origins": ["https://a.example.org/path"]},
        {"cors_allowed_origins": ["ftp://a.example.org"]},
        {"lockout_attempts": -1},
        {"lockout_minutes": 20_000},
        {"lockout_minutes": "5"},
        {"api_enabled": 1},
        {"fiscal_year_start_month": 0},
        {"fiscal_year_start_month": 13},
        {"fiscal_year_start_month": None},
        {"time_zone": "Mars/Olympus"},
        {"time_zone": 5},
        {"locale": "english"},
        {"language": "xx"},
        {"org_name": ""},
        {"org_name": "x" * 81},
    ],
)
async def test_invalid_setting_is_rejected(org: TestOrg, settings: dict[str, object]) -> None:
    with pytest.raises(DefinitionInvalid) as caught:
        await org.apply(settings=settings)
    assert str(caught.value.details["path"]).startswith("settings")


async def test_plain_http_is_rejected_where_https_is_required(org: TestOrg) -> None:
    http = CoreHttp(org.core, org.clock, is_dev=True, is_first=True)

    async def status(path: str, scheme: str) -> int:
        return (await http.answer(HttpRequest("GET", path, {}, scheme=scheme))).status

    await org.apply(settings={"https_required": True})
    assert await status("/services/data", "http") == 403
    assert await status("/services/data", "https") == 200
    await org.apply(settings={"https_required": False})
    assert await status("/services/data", "http") == 200


async def test_user_is_brought_up_to_date(org: TestOrg) -> None:
    spec = {"first_name": "Rosa", "email": "rosa@example.org", "profile": "System Administrator"}
    assert await org.apply(users={READER: spec}) == [f"update user {READER}: Email, FirstName, ProfileId"]
    assert await org.apply(users={READER: spec}) == []
    users = org.gate.catalog.object("User")
    (row,) = await org.core.records.read(lambda r: read_rows(r, users, "Id", [org.reader.user_id]))
    assert (row["FirstName"], row["LastName"], row["Email"]) == ("Rosa", "Reader", "rosa@example.org")


async def test_inactive_user_stays_inactive_unless_the_document_says_active(org: TestOrg) -> None:
    await org.apply(users={READER: {"active": False}})
    assert await org.apply(users={READER: {"first_name": "Rita"}}) == []


async def test_password_is_set_again_only_on_demand(org: TestOrg) -> None:
    login = await org.core.logins.login(READER, DEV_PASSWORD, "")
    assert await org.apply(users={READER: {"password": "another"}}) == []
    await org.core.logins.sessions.authenticate(login.token)
    plan = await org.apply(users={READER: {"password": "another", "reset_password": True}})
    assert plan == [f"reset the password of {READER}"]
    with pytest.raises(SessionInvalid):
        await org.core.logins.sessions.authenticate(login.token)
    with pytest.raises(LoginFailed):
        await org.core.logins.login(READER, DEV_PASSWORD, "")
    await org.core.logins.login(READER, "another", "")


async def test_record_types_are_rows_of_their_object(org: TestOrg) -> None:
    document = {
        "objects": {"Account": {"record_types": {"Big_Customer": {"label": "Big", "description": "x"}}}}
    }
    assert await org.apply(**document) == ["create record type Account.Big_Customer"]
    assert await org.apply(**document) == []
    retired = {"objects": {"Account": {"record_types": {"Big_Customer": {"label": "Big", "active": False}}}}}
    assert await org.apply(**retired) == ["update record type Account.Big_Customer: IsActive"]
    types = org.gate.catalog.object("RecordType")
    (row,) = await org.core.records.read(lambda r: read_all_rows(r, types))
    names = ("DeveloperName", "Name", "SobjectType", "IsActive", "Description")
    assert tuple(row[n] for n in names) == ("Big_Customer", "Big", "Account", False, "x")


async def test_capture_is_switched_on_and_off(org: TestOrg) -> None:
    assert await org.apply(objects={"Thing__c": {"capture": True}}) == [
        "create object Thing__c with 0 fields",
        "capture changes of Thing__c",
    ]
    assert await org.apply(objects={"Thing__c": {"capture": False}}) == ["stop capturing changes of Thing__c"]
    assert "Thing__c" not in org.gate.catalog.captured
    assert await org.apply(objects={"Thing__c": {"capture": False}}) == []


async def test_labels_of_custom_objects_and_events_change(org: TestOrg) -> None:
    await org.apply(objects={"Thing__c": {}}, events={"Happened__e": {}})
    document = {"objects": {"Thing__c": {"label": "Stuff"}}, "events": {"Happened__e": {"label": "Done"}}}
    assert await org.apply(**document) == ["change Thing__c: label", "change Happened__e: label"]
    assert await org.apply(**document) == []
    with pytest.raises(DefinitionInvalid, match="standard object"):
        await org.apply(objects={"Account": {"label": "Customer"}})


async def test_maintenance_example_follows_the_invoices_example(org: TestOrg) -> None:
    first, second = (
        yaml.safe_load((EXAMPLES / name).read_text()) for name in ("invoices.yaml", "maintenance.yaml")
    )
    await org.apply(**first)
    values = {"Status__c": "Pending", "Description__c": "d", "Amount__c": 5}
    invoice = await org.gate.create(org.call, "Invoice_Statement__c", values)
    assert await org.apply(**second) == [
        "set session_timeout_s = 3600",
        "change Invoice_Statement__c: label",
        "change Invoice_Statement__c.Status__c: restricted",
        "rename value Negotiating of Invoice_Statement__c.Status__c by In Review (0 records)",
        "replace value Pending of Invoice_Statement__c.Status__c by Open (1 records)",
        "convert Invoice_Statement__c.Description__c from Text to LongTextArea (no event)",
        "add field Invoice_Statement__c.Reviewed__c (Checkbox)",
        "remove field Invoice_Statement__c.Amount__c",
        "update push topic InvoiceStatementUpdates",
    ]
    assert await org.apply(**second) == []
    obj = org.gate.catalog.object("Invoice_Statement__c")
    (row,) = await org.core.records.read(lambda r: read_rows(r, obj, "Id", [invoice]))
    assert (row["Status__c"], row["Description__c"], row["Reviewed__c"]) == ("Open", "d", False)
