"""jsforce, unmodified, over plain HTTP."""

from __future__ import annotations

import uuid
from typing import Any

import pytest

from tests.clients.watcher import run_walk
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import ServerProcess

pytestmark = pytest.mark.clients

WALK_LIMIT_S = 150


@pytest.fixture(scope="module")
def mark() -> str:
    """A word that stands in no other record, and can begin an API name."""
    return "J" + uuid.uuid4().hex[:10]


@pytest.fixture(scope="module")
def steps(server: ServerProcess, mark: str) -> dict[str, Any]:
    """What jsforce got back, by step."""
    login = [DEV_USERNAME, DEV_PASSWORD, DEV_CLIENT_ID, DEV_CLIENT_SECRET]
    return run_walk("jsforce_walk.mjs", [server.http, *login, mark], WALK_LIMIT_S)


@pytest.mark.timeout(WALK_LIMIT_S + 30)
def test_walk_comes_to_its_end(steps: dict[str, Any]) -> None:
    assert steps["end"] is True


def test_login_by_soap_and_by_oauth_is_the_same_user(server: ServerProcess, steps: dict[str, Any]) -> None:
    by_soap, by_oauth = steps["soap login"], steps["oauth login"]
    assert by_soap["orgId"] == by_oauth["orgId"] == server.org_id
    assert by_soap["userId"] == by_oauth["userId"] == steps["identity"]["user_id"]
    assert by_soap["instanceUrl"] == server.http
    assert steps["wrong password"]["message"].startswith("INVALID_LOGIN: ")
    assert steps["after logout"]["code"] == "INVALID_SESSION_ID"


def test_record_goes_through_its_life(steps: dict[str, Any], mark: str) -> None:
    created = steps["create"]
    assert created["success"] is True
    assert (steps["retrieve"]["Name"], steps["retrieve"]["Phone"]) == (f"{mark} one", "1")
    assert steps["update"] == {"id": created["id"], "success": True, "errors": []}
    assert [row["success"] for row in steps["create many"]] == [True] * 3
    codes = [row["errors"][0]["statusCode"] for row in steps["refused together"]]
    assert codes == ["ALL_OR_NONE_OPERATION_ROLLED_BACK", "REQUIRED_FIELD_MISSING"]


def test_queries_bring_children_parents_and_errors(steps: dict[str, Any], mark: str) -> None:
    (account,) = steps["children"]["records"]
    assert [c["LastName"] for c in account["Contacts"]["records"]] == [f"{mark} 1", f"{mark} 2"]
    assert {c["Account"]["Name"] for c in steps["parents"]["records"]} == {f"{mark} one"}
    assert [row["Name"] for row in steps["find"]] == [f"{mark} many 3", f"{mark} many 2"]
    assert [row["Name"] for row in steps["search"]["searchRecords"]] == [f"{mark} one"]
    assert steps["malformed"]["code"] == "MALFORMED_QUERY"


def test_deleted_record_is_undeleted_through_soap(steps: dict[str, Any], mark: str) -> None:
    assert steps["delete"]["success"] is True
    assert steps["deleted"]["code"] == "ENTITY_IS_DELETED"
    assert str(steps["undelete"][0]["success"]) in ("True", "true")
    assert steps["undeleted"] == f"{mark} many 1"


def test_merge_and_lead_conversion_go_through_soap(steps: dict[str, Any], mark: str) -> None:
    assert steps["merge"]["success"] is True
    assert len(steps["merge"]["mergedRecordIds"]) == 1
    assert steps["convert"]["success"] is True
    (lead,) = steps["converted"]["records"]
    assert lead["IsConverted"] is True
    assert lead["ConvertedAccount"]["Name"] == f"{mark} Company"
    assert lead["ConvertedOpportunity"]["Name"] == f"{mark} deal"
    assert steps["user info"]["userName"] == DEV_USERNAME


def test_bulk_loads_queries_and_deletes(steps: dict[str, Any]) -> None:
    assert steps["bulk2"] == {"good": 300, "bad": 0, "left": 0}
    assert steps["bulk2 query"] == 300
    assert steps["bulk"] == 300


def test_metadata_makes_an_object_with_number_and_picklist(steps: dict[str, Any], mark: str) -> None:
    assert steps["metadata create"]["success"] is True
    read = steps["metadata read"]
    assert read["fullName"] == f"{mark}_Invoice__c"
    assert read["nameField"]["displayFormat"] == "INV-{0000}"
    record = steps["new object's record"]
    assert (record["Name"], record["Status__c"]) == ("INV-0001", "Open")
    assert steps["refused value"]["code"] == "INVALID_OR_NULL_FOR_RESTRICTED_PICKLIST"
    assert steps["tooling field"]["success"] is True
    assert {"Description__c", "Status__c", "Amount__c"} <= set(steps["described"])
    assert steps["metadata delete"]["success"] is True
    assert steps["described after"]["code"] == "NOT_FOUND"
