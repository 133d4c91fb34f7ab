"""WSC, the SOAP client by the platform's own makers, unmodified: its partner connection, and its compiler of WSDL."""

from __future__ import annotations

import subprocess
import uuid
import zipfile
from pathlib import Path
from typing import Any

import pytest
import requests

from tests.clients.watcher import HERE, JAVA, run_walk
from tests.running import Rest
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]

WALK_LIMIT_S = 180
KEY_FIELD = "Wsc_Key__c"


@pytest.fixture(scope="module")
def mark() -> str:
    """A word that stands in no other record."""
    return "W" + uuid.uuid4().hex[:10]


@pytest.fixture(scope="module")
def steps(server: ServerProcess, mark: str) -> dict[str, Any]:
    """What WSC got back, by step."""
    rest = Rest(server.http, server.login())
    metadata = {"label": "WSC Key", "type": "Text", "length": 40, "externalId": True, "unique": True}
    field = {"FullName": f"Account.{KEY_FIELD}", "Metadata": metadata}
    rest.call("POST", "/services/data/v65.0/tooling/sobjects/CustomField", field)
    rest.close()
    arguments = [server.http, DEV_USERNAME, DEV_PASSWORD, mark, KEY_FIELD]
    return run_walk("java/PartnerWalk.java", arguments, WALK_LIMIT_S)


def test_walk_comes_to_its_end(steps: dict[str, Any]) -> None:
    assert steps["end"] is True


def test_login_leads_to_the_org_and_a_wrong_one_is_a_typed_fault(
    server: ServerProcess, steps: dict[str, Any]
) -> None:
    assert steps["login"]["user"] == DEV_USERNAME
    assert steps["login"]["org"] == server.org_id
    assert steps["login"]["service"] == f"{server.http}/services/Soap/u/65.0/{server.org_id[:15]}"
    refused = {"fault": "LoginFault", "code": "INVALID_LOGIN"}
    assert steps["wrong password"] == steps["wrong org"] == refused
    assert steps["after logout"] == {"fault": "UnexpectedErrorFault", "code": "INVALID_SESSION_ID"}


def test_records_are_created_changed_and_upserted(steps: dict[str, Any], mark: str) -> None:
    first, second, refused = steps["create"]
    assert refused == "REQUIRED_FIELD_MISSING"
    assert steps["update"] == [first]
    again, third = steps["upsert"]
    assert again == {"id": first, "created": False}
    assert third["created"] is True
    assert len({first, second, third["id"]}) == 3
    assert (steps["delete"], steps["undelete"], steps["retrieve"]) == (True, True, f"{mark} again")


def test_query_brings_parents_children_compounds_and_pages(steps: dict[str, Any], mark: str) -> None:
    found = steps["query"]
    assert (found["size"], found["name"], found["phone"]) == (1, f"{mark} again", "null")
    assert (found["city"], found["owner"], found["child"]) == ("Kiel", "Ada Admin", mark)
    assert steps["pages"] == {"pages": 2, "size": 400, "ids": 400}
    assert steps["search"] == 2  # the other came of the converted lead
    assert steps["updated"] is True


def test_faults_of_queries_have_their_type_and_place(steps: dict[str, Any]) -> None:
    assert steps["malformed query"]["fault"] == "MalformedQueryFault"
    assert (steps["malformed query"]["row"], steps["malformed query"]["column"]) == (1, 16)
    assert steps["unknown field"]["fault"] == "InvalidFieldFault"
    assert steps["unknown type"]["fault"] == "InvalidSObjectFault"
    assert steps["malformed id"] == {"fault": "InvalidIdFault", "code": "MALFORMED_ID"}


def test_describes_are_understood_in_all_their_words(steps: dict[str, Any], mark: str) -> None:
    described = steps["describe"]
    assert (described["name"], described["label"]) == ("Account", "Account")
    assert described["fields"]["Id"] == "id tns:ID"
    assert described["fields"]["BillingAddress"] == "address tns:address"
    assert described["fields"][KEY_FIELD] == "string xsd:string"
    assert not [kind for kind in described["fields"].values() if "null" in kind]
    assert steps["describe several"] == 3
    assert {"Account", "UserLogin"} <= set(steps["describe global"])


def test_pages_have_one_layout_and_nothing_else(steps: dict[str, Any]) -> None:
    assert steps["layout"] > 20
    assert steps["compact layouts"] == "Account Name"
    assert steps["search layouts"] == "Account"
    assert (steps["approval layouts"], steps["theme"], steps["menu"]) == (0, 0, 0)
    assert steps["tabs"] is True


def test_merge_takes_a_map_and_lead_is_converted(steps: dict[str, Any]) -> None:
    assert steps["merge"] == [True, [steps["create"][1]]]
    assert steps["convert"] == "ok"


def test_what_is_not_there_is_refused_by_name(steps: dict[str, Any]) -> None:
    refused = {"fault": "UnexpectedErrorFault", "code": "FUNCTIONALITY_NOT_ENABLED"}
    assert steps["email"] == steps["process"] == steps["duplicates"] == refused
    assert steps["calls"] == "API REQUESTS"


@pytest.mark.parametrize(
    "page, made",
    [
        ("partner", "com/sforce/soap/partner/sobject/SObject.class"),
        ("enterprise", "com/sforce/soap/enterprise/sobject/Account.class"),
    ],
)
def test_compiler_makes_a_client_of_the_wsdl(
    server: ServerProcess, tmp_path: Path, page: str, made: str
) -> None:
    headers = {"Authorization": f"Bearer {server.login()}"}
    answer = requests.get(f"{server.http}/services/wsdl/{page}", headers=headers, timeout=120)
    (tmp_path / "api.wsdl").write_bytes(answer.content)
    classes = str(HERE / "java" / "lib" / "*")
    run = subprocess.run(
        [*JAVA, "-cp", classes, "com.sforce.ws.tools.wsdlc", "api.wsdl", "api.jar"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=WALK_LIMIT_S,
        check=False,
    )
    assert run.returncode == 0, run.stderr[-3000:]
    assert made in zipfile.ZipFile(tmp_path / "api.jar").namelist()
