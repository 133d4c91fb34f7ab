"""The Tooling API and the deploy resource against a live server."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import pytest
import requests

from tests.orgs import READER
from tests.running import API, Rest
from tidewire.config import DEV_PASSWORD
from tidewire.gate.metadata.archive import write_zip
from tidewire.gate.metadata.package import render_manifest
from tidewire.testing import ServerProcess

TOOLING = f"{API}/tooling"
TEXT = {"label": "Shade", "type": "Text", "length": 12}


@pytest.fixture
def call(server: ServerProcess, dev_token: str) -> Any:
    """A request as the administrator: the status and the JSON of its answer."""

    def run(method: str, path: str, body: object = None, token: str = dev_token) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        answer = requests.request(method, server.http + path, json=body, headers=headers, timeout=120)
        return answer.status_code, answer.json() if answer.content else None

    return run


def query(call: Any, soql: str, **more: str) -> Any:
    status, body = call("GET", f"{TOOLING}/query?q={quote(soql)}", **more)
    return body if status == 200 else (status, body[0]["errorCode"])


def names(answer: Any) -> list[str]:
    return [record["QualifiedApiName"] for record in answer["records"]]


def test_field_lives_and_dies_as_a_tooling_record(call: Any, rest: Rest) -> None:
    status, made = call(
        "POST", f"{TOOLING}/sobjects/CustomField", {"FullName": "Account.Shade__c", "Metadata": TEXT}
    )
    assert (status, made["success"], made["errors"], made["warnings"]) == (201, True, [], [])
    path = f"{TOOLING}/sobjects/CustomField/{made['id']}"
    record = call("GET", path)[1]
    assert (record["FullName"], record["DeveloperName"], record["TableEnumOrId"]) == (
        "Account.Shade__c",
        "Shade",
        "Account",
    )
    assert record["Metadata"]["length"] == 12
    assert call("PATCH", path, {"Metadata": {**record["Metadata"], "length": 20, "urls": None}}) == (
        204,
        None,
    )
    account = rest.create("Account", {"Name": "Shady", "Shade__c": "x" * 20})
    assert rest.query(f"SELECT Shade__c FROM Account WHERE Id = '{account}'")[0]["Shade__c"] == "x" * 20
    assert call("DELETE", path) == (204, None)
    assert call("GET", path)[0] == 404


@pytest.mark.parametrize(
    "body, code",
    [
        ({"FullName": "Account.Name", "Metadata": TEXT}, "DUPLICATE_DEVELOPER_NAME"),
        (
            {"FullName": "Account.Odd__c", "Metadata": {"label": "Odd", "type": "Text"}},
            "FIELD_INTEGRITY_EXCEPTION",
        ),
        ({"FullName": "No_Such__c.Odd__c", "Metadata": TEXT}, "INVALID_CROSS_REFERENCE_KEY"),
        ({"FullName": "Account.Odd__c"}, "REQUIRED_FIELD_MISSING"),
        ({"Metadata": TEXT}, "REQUIRED_FIELD_MISSING"),
        ({"FullName": "Account.Odd__c", "Metadata": TEXT, "Length": 3}, "INVALID_FIELD"),
    ],
)
def test_field_that_cannot_be_is_refused_with_its_code(call: Any, body: object, code: str) -> None:
    status, answer = call("POST", f"{TOOLING}/sobjects/CustomField", body)
    assert (status, answer[0]["errorCode"]) == (400, code)


def test_entity_definition_is_read_only(call: Any) -> None:
    body = {"FullName": "Odd__c", "Metadata": {}}
    status, answer = call("POST", f"{TOOLING}/sobjects/EntityDefinition", body)
    assert (status, answer[0]["errorCode"]) == (400, "INVALID_TYPE_FOR_OPERATION")


def test_entities_and_fields_are_queried_like_data(call: Any) -> None:
    where = "WHERE QualifiedApiName IN ('Account', 'Contact', 'AccountChangeEvent')"
    answer = query(
        call, f"SELECT QualifiedApiName, KeyPrefix FROM EntityDefinition {where} ORDER BY KeyPrefix DESC"
    )
    assert names(answer) == ["AccountChangeEvent", "Contact", "Account"]
    assert (answer["size"], answer["totalSize"], answer["queryLocator"]) == (3, 3, None)
    assert answer["entityTypeName"] == "EntityDefinition"
    fields = query(
        call,
        "SELECT QualifiedApiName, DurableId, EntityDefinition.KeyPrefix FROM FieldDefinition"
        " WHERE EntityDefinition.QualifiedApiName = 'Account' AND QualifiedApiName LIKE 'Billing%ode'",
    )
    assert names(fields) == ["BillingPostalCode"]
    assert fields["records"][0]["DurableId"] == "Account.BillingPostalCode"
    assert fields["records"][0]["EntityDefinition"]["KeyPrefix"] == "001"


def test_children_counts_limits_and_nulls_work_over_rows_without_tables(call: Any) -> None:
    (account,) = query(
        call,
        "SELECT (SELECT QualifiedApiName FROM Fields WHERE IsNameField = true) FROM EntityDefinition"
        " WHERE QualifiedApiName = 'account'",
    )["records"]
    assert names(account["Fields"]) == ["Name"]
    some = query(
        call, "SELECT QualifiedApiName FROM EntityDefinition ORDER BY QualifiedApiName LIMIT 2 OFFSET 1"
    )
    first = query(call, "SELECT QualifiedApiName FROM EntityDefinition ORDER BY QualifiedApiName LIMIT 3")
    assert names(some) == names(first)[1:]
    whole = query(call, "SELECT COUNT() FROM EntityDefinition")
    parts = [
        query(call, f"SELECT COUNT() FROM EntityDefinition WHERE KeyPrefix {op} null") for op in ("=", "!=")
    ]
    assert whole["totalSize"] == sum(part["totalSize"] for part in parts)


@pytest.mark.parametrize(
    "soql, code",
    [
        ("SELECT Nope FROM EntityDefinition", "INVALID_FIELD"),
        ("SELECT Id FROM Account", "INVALID_TYPE"),
        ("SELECT Id FROM", "MALFORMED_QUERY"),
        ("SELECT COUNT(Id) FROM EntityDefinition", "MALFORMED_QUERY"),
        ("SELECT Id FROM CustomField WHERE Id IN (SELECT Id FROM CustomObject)", "INVALID_FIELD"),
        ("SELECT Metadata FROM CustomField", "MALFORMED_QUERY"),
    ],
)
def test_query_that_cannot_be_asked_is_refused(call: Any, rest: Rest, soql: str, code: str) -> None:
    for name in ("One__c", "Two__c"):
        call("POST", f"{TOOLING}/sobjects/CustomField", {"FullName": f"Contact.{name}", "Metadata": TEXT})
    assert query(call, soql) == (400, code)


def test_components_are_counted_and_grouped(call: Any) -> None:
    for name in ("Grouped_One__c", "Grouped_Two__c"):
        call("POST", f"{TOOLING}/sobjects/CustomField", {"FullName": f"Lead.{name}", "Metadata": TEXT})
    where = "WHERE EntityDefinition.QualifiedApiName = 'Lead' AND DeveloperName LIKE 'Grouped%'"
    answer = query(
        call,
        f"SELECT TableEnumOrId, COUNT(Id) many, MAX(Length) longest FROM CustomField {where}"
        " GROUP BY TableEnumOrId HAVING COUNT(Id) > 1",
    )
    assert (answer["totalSize"], answer["entityTypeName"]) == (1, "AggregateResult")
    assert answer["records"] == [
        {"attributes": {"type": "AggregateResult"}, "TableEnumOrId": "Lead", "many": 2, "longest": 12}
    ]


def test_composite_makes_and_reads_components_in_order(call: Any) -> None:
    field = {"FullName": "Lead.Composed__c", "Metadata": TEXT}
    parts = [
        {"method": "POST", "url": f"{TOOLING}/sobjects/CustomField", "referenceId": "made", "body": field},
        {"method": "GET", "url": f"{TOOLING}/sobjects/CustomField/@{{made.id}}", "referenceId": "read"},
        {"method": "GET", "url": f"{API}/sobjects/Account/describe", "referenceId": "data"},
    ]
    status, answer = call("POST", f"{TOOLING}/composite", {"compositeRequest": parts})
    assert status == 200
    made, read, data = answer["compositeResponse"]
    assert (made["httpStatusCode"], read["httpStatusCode"], data["httpStatusCode"]) == (201, 200, 404)
    assert read["body"]["FullName"] == "Lead.Composed__c"


def test_composite_of_all_or_none_makes_all_components_or_leaves_no_trace(call: Any) -> None:
    def make(name: str, reference: str) -> dict[str, object]:
        body = {"FullName": f"Lead.{name}", "Metadata": TEXT}
        url = f"{TOOLING}/sobjects/CustomField"
        return {"method": "POST", "url": url, "referenceId": reference, "body": body}

    read = {"method": "GET", "url": f"{TOOLING}/sobjects/CustomField/@{{a.id}}", "referenceId": "read"}
    body = {"allOrNone": True, "compositeRequest": [make("Both_A__c", "a"), read, make("Both_B__c", "b")]}
    status, answer = call("POST", f"{TOOLING}/composite", body)
    assert status == 200
    assert [each["httpStatusCode"] for each in answer["compositeResponse"]] == [201, 200, 201]
    assert answer["compositeResponse"][1]["body"]["FullName"] == "Lead.Both_A__c"
    found = query(call, "SELECT Id FROM CustomField WHERE DeveloperName IN ('Both_A', 'Both_B')")
    assert len(found["records"]) == 2
    body = {"allOrNone": True, "compositeRequest": [make("Neither__c", "a"), make("Both_A__c", "b")]}
    _, answer = call("POST", f"{TOOLING}/composite", body)
    codes = [each["body"][0]["errorCode"] for each in answer["compositeResponse"]]
    assert codes == ["PROCESSING_HALTED", "DUPLICATE_DEVELOPER_NAME"]
    assert query(call, "SELECT Id FROM CustomField WHERE DeveloperName = 'Neither'")["records"] == []
    status, _ = call("POST", f"{TOOLING}/sobjects/CustomField", make("Neither__c", "a")["body"])
    assert status == 201


def test_unknown_tooling_objects_are_not_there(call: Any) -> None:
    assert query(call, "SELECT Id FROM ApexClass") == (400, "INVALID_TYPE")
    for path in ("ApexClass", "ApexClass/describe", "ApexClass/01p000000000001AAA"):
        status, answer = call("GET", f"{TOOLING}/sobjects/{path}")
        assert (status, answer[0]["errorCode"]) == (404, "NOT_FOUND")
    assert call("POST", f"{TOOLING}/sobjects/ApexClass", {"Body": "class A {}"})[0] == 404


def test_describes_name_what_can_be_written(call: Any) -> None:
    listed = call("GET", f"{TOOLING}/sobjects")[1]["sobjects"]
    assert [each["name"] for each in listed if each["createable"]] == [
        "CustomField",
        "CustomObject",
        "ManagedEventSubscription",
        "PlatformEventChannel",
        "PlatformEventChannelMember",
    ]
    described = call("GET", f"{TOOLING}/sobjects/CustomField/describe")[1]
    writeable = [each["name"] for each in described["fields"] if each["createable"]]
    assert writeable == ["FullName", "Metadata"]
    assert described["urls"]["sobject"] == f"{TOOLING}/sobjects/CustomField"


def test_reader_sees_only_what_it_may_and_changes_nothing(server: ServerProcess, call: Any) -> None:
    token = server.login(READER, DEV_PASSWORD)
    call(
        "POST",
        f"{TOOLING}/sobjects/CustomField",
        {"FullName": "Account.Unseen_By_Reader__c", "Metadata": TEXT},
    )
    where = "WHERE QualifiedApiName = 'Unseen_By_Reader__c'"
    assert len(names(query(call, f"SELECT QualifiedApiName FROM FieldDefinition {where}"))) == 1
    assert names(query(call, f"SELECT QualifiedApiName FROM FieldDefinition {where}", token=token)) == []
    assert (
        query(call, "SELECT Id FROM CustomField WHERE DeveloperName = 'Unseen_By_Reader'", token=token)[
            "records"
        ]
        == []
    )
    body = {"FullName": "Account.Mine__c", "Metadata": TEXT}
    status, answer = call("POST", f"{TOOLING}/sobjects/CustomField", body, token=token)
    assert (status, answer[0]["errorCode"]) == (403, "INSUFFICIENT_ACCESS_OR_READONLY")


def test_deploy_resource_takes_a_form_and_tells_the_result(server: ServerProcess, dev_token: str) -> None:
    inner = "<fields><fullName>Formed__c</fullName><label>F</label><type>Date</type></fields>"
    text = f'<CustomObject xmlns="http://soap.sforce.com/2006/04/metadata">{inner}</CustomObject>'
    manifest = render_manifest({"CustomField": ["Account.Formed__c"]}, "62.0")
    archive = write_zip({"objects/Account.object": text.encode(), "package.xml": manifest})
    options = b'{"deployOptions": {"singlePackage": true, "rollbackOnError": true}}'
    parts: dict[str, tuple[str | None, bytes, str]] = {
        "json": (None, options, "application/json"),
        "file": ("deploy.zip", archive, "application/zip"),
    }
    url, headers = f"{server.http}{API}/metadata/deployRequest", {"Authorization": f"Bearer {dev_token}"}
    answer = requests.post(url, files=parts, headers=headers, timeout=120)
    assert answer.status_code == 201, answer.text
    assert answer.json()["deployOptions"]["singlePackage"] is True
    path = f"{url}/{answer.json()['id']}"
    result = requests.get(f"{path}?includeDetails=true", headers=headers, timeout=120).json()["deployResult"]
    assert (result["status"], result["numberComponentsDeployed"]) == ("Succeeded", 1)
    assert result["details"]["componentSuccesses"][0]["fullName"] == "Account.Formed__c"
    assert "details" not in requests.get(path, headers=headers, timeout=120).json()["deployResult"]


@pytest.mark.parametrize(
    "content_type", ["application/json", "multipart/form-data", "multipart/form-data; boundary=x"]
)
def test_deploy_resource_refuses_what_is_no_form(
    server: ServerProcess, dev_token: str, content_type: str
) -> None:
    answer = requests.post(
        f"{server.http}{API}/metadata/deployRequest",
        data=b"--x\r\nnothing",
        headers={"Authorization": f"Bearer {dev_token}", "Content-Type": content_type},
        timeout=120,
    )
    assert answer.status_code in (400, 415)


def test_validated_deploy_is_deployed_by_its_id(server: ServerProcess, dev_token: str) -> None:
    inner = "<fields><fullName>Validated__c</fullName><label>V</label><type>Date</type></fields>"
    text = f'<CustomObject xmlns="http://soap.sforce.com/2006/04/metadata">{inner}</CustomObject>'
    manifest = render_manifest({"CustomField": ["Account.Validated__c"]}, "62.0")
    archive = write_zip({"objects/Account.object": text.encode(), "package.xml": manifest})
    parts: dict[str, tuple[str | None, bytes, str]] = {
        "json": (None, b'{"deployOptions": {"singlePackage": true, "checkOnly": true}}', "application/json"),
        "file": ("deploy.zip", archive, "application/zip"),
    }
    url, headers = f"{server.http}{API}/metadata/deployRequest", {"Authorization": f"Bearer {dev_token}"}
    checked = requests.post(url, files=parts, headers=headers, timeout=120).json()["id"]
    answer = requests.post(url, json={"validatedDeployRequestId": checked}, headers=headers, timeout=120)
    assert (answer.status_code, answer.json()["validatedDeployRequestId"]) == (201, checked)
    result = requests.get(f"{url}/{answer.json()['id']}", headers=headers, timeout=120).json()["deployResult"]
    assert (result["status"], result["checkOnly"]) == ("Succeeded", False)
    again = requests.post(
        url, json={"validatedDeployRequestId": answer.json()["id"]}, headers=headers, timeout=120
    )
    assert again.status_code == 404
