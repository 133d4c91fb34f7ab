"""The Metadata API against a live server, in the form of its clients."""

from __future__ import annotations

import base64
import io
import zipfile
from xml.etree.ElementTree import Element, fromstring

import pytest
import requests

from tests.orgs import READER
from tests.running import Rest
from tidewire.config import DEV_PASSWORD
from tidewire.gate.metadata.archive import write_zip
from tidewire.gate.metadata.package import render_manifest
from tidewire.testing import ServerProcess

METADATA = "http://soap.sforce.com/2006/04/metadata"
XSI = "http://www.w3.org/2001/XMLSchema-instance"


def post(
    server: ServerProcess, token: str, operation: str, arguments: str, *, header: str = "", path: str = ""
) -> tuple[int, Element]:
    body = (
        '<?xml version="1.0" encoding="UTF-8"?>'
        f'<soapenv:Envelope xmlns:soapenv="http://schemas.xmlsoap.org/soap/envelope/" xmlns:xsi="{XSI}">'
        f'<soapenv:Header xmlns="{METADATA}"><SessionHeader><sessionId>{token}</sessionId></SessionHeader>{header}'
        f'</soapenv:Header><soapenv:Body xmlns="{METADATA}"><{operation}>{arguments}</{operation}></soapenv:Body>'
        "</soapenv:Envelope>"
    )
    answer = requests.post(
        f"{server.http}/services/Soap/m/59.0{path}",
        data=body.encode(),
        headers={"Content-Type": "text/xml", "SOAPAction": '""'},
        timeout=120,
    )
    return answer.status_code, fromstring(answer.content)


def call(
    server: ServerProcess, token: str, operation: str, arguments: str, *, header: str = "", path: str = ""
) -> list[Element]:
    """The results of a call that must succeed, with bare names."""
    status, root = post(server, token, operation, arguments, header=header, path=path)
    assert status == 200, root.findtext(".//faultstring")
    response = root[-1][0]
    for element in response.iter():
        element.tag = element.tag.rpartition("}")[2]
    return list(response)


def fault(server: ServerProcess, token: str, operation: str, arguments: str) -> str:
    status, root = post(server, token, operation, arguments)
    assert status == 500
    return (root.findtext(".//faultcode") or "").removeprefix("sf:")


def custom_object(name: str) -> str:
    return (
        f'<metadata xsi:type="CustomObject"><fullName>{name}</fullName><label>Invoice &amp; Co</label>'
        "<pluralLabel>Invoices</pluralLabel><deploymentStatus>Deployed</deploymentStatus>"
        "<nameField><label>Number</label><type>AutoNumber</type><displayFormat>INV-{0000}</displayFormat></nameField>"
        "<sharingModel>ReadWrite</sharingModel>"
        "<fields><fullName>Status__c</fullName><label>Status</label><type>Picklist</type><valueSet>"
        "<restricted>true</restricted><valueSetDefinition><sorted>false</sorted>"
        "<value><fullName>Open</fullName><default>true</default><label>Open</label></value>"
        "<value><fullName>Paid</fullName><default>false</default><label>Paid</label></value>"
        "</valueSetDefinition></valueSet></fields></metadata>"
    )


def test_object_made_by_metadata_takes_records(server: ServerProcess, dev_token: str, rest: Rest) -> None:
    (made,) = call(server, dev_token, "createMetadata", custom_object("Bill__c"))
    assert [(child.tag, child.text) for child in made] == [("fullName", "Bill__c"), ("success", "true")]
    record_id = rest.create("Bill__c", {})
    (row,) = rest.query(f"SELECT Name, Status__c FROM Bill__c WHERE Id = '{record_id}'")
    assert (row["Name"], row["Status__c"]) == ("INV-0001", "Open")
    names = "<type>CustomObject</type><fullNames>Bill__c</fullNames><fullNames>No__c</fullNames>"
    (result,) = call(server, dev_token, "readMetadata", names)
    found, missing = result
    assert found.get(f"{{{XSI}}}type") == "CustomObject"
    assert (found.findtext("label"), found.findtext("nameField/displayFormat")) == (
        "Invoice & Co",
        "INV-{0000}",
    )
    assert missing.get(f"{{{XSI}}}nil") == "true"
    (gone,) = call(
        server, dev_token, "deleteMetadata", "<type>CustomObject</type><fullNames>Bill__c</fullNames>"
    )
    assert gone.findtext("success") == "true"


def test_failures_have_results_of_their_own(server: ServerProcess, dev_token: str) -> None:
    field = '<metadata xsi:type="CustomField"><fullName>Account.{}</fullName><label>F</label>{}</metadata>'
    good, bad = field.format("Fine__c", "<type>Date</type>"), field.format("Bad__c", "<type>Text</type>")
    good_result, bad_result = call(server, dev_token, "upsertMetadata", good + bad)
    assert (good_result.findtext("created"), good_result.findtext("success")) == ("true", "true")
    assert [child.tag for child in bad_result] == ["created", "errors", "fullName", "success"]
    assert bad_result.findtext("errors/statusCode") == "FIELD_INTEGRITY_EXCEPTION"
    all_or_none = "<AllOrNoneHeader><allOrNone>true</allOrNone></AllOrNoneHeader>"
    other = field.format("Other__c", "<type>Date</type>")
    results = call(server, dev_token, "createMetadata", other + bad, header=all_or_none)
    codes = [result.findtext("errors/statusCode") for result in results]
    assert codes == ["ALL_OR_NONE_OPERATION_ROLLED_BACK", "FIELD_INTEGRITY_EXCEPTION"]


def test_types_are_described_and_components_listed(server: ServerProcess, dev_token: str) -> None:
    (described,) = call(server, dev_token, "describeMetadata", "<asOfVersion>59.0</asOfVersion>")
    names = [each.findtext("xmlName") for each in described.iterfind("metadataObjects")]
    assert {"CustomObject", "PermissionSet", "Profile", "PlatformEventChannel"} <= set(names)
    listed = call(server, dev_token, "listMetadata", "<queries><type>Profile</type></queries>")
    assert "profiles/Admin.profile" in [each.findtext("fileName") for each in listed]
    value_type = f"<type>{{{METADATA}}}CustomField</type>"
    (fields,) = call(server, dev_token, "describeValueType", value_type)
    assert "label" in [each.findtext("name") for each in fields.iterfind("valueTypeFields")]


def test_package_is_deployed_and_retrieved_at_any_path(server: ServerProcess, dev_token: str) -> None:
    call(server, dev_token, "createMetadata", custom_object("Packed__c"))
    request = (
        "<retrieveRequest><apiVersion>59.0</apiVersion><singlePackage>true</singlePackage><unpackaged><types>"
        "<members>Packed__c</members><name>CustomObject</name></types></unpackaged></retrieveRequest>"
    )
    (queued,) = call(server, dev_token, "retrieve", request, path="/deployRequest/x/y")
    assert (queued.findtext("done"), queued.findtext("state")) == ("false", "Queued")
    asked = f"<asyncProcessId>{queued.findtext('id')}</asyncProcessId><includeZip>true</includeZip>"
    (retrieved,) = call(server, dev_token, "checkRetrieveStatus", asked)
    packed = retrieved.findtext("zipFile") or ""
    with zipfile.ZipFile(io.BytesIO(base64.b64decode(packed))) as archive:
        assert archive.namelist() == ["objects/Packed__c.object", "package.xml"]
    call(server, dev_token, "deleteMetadata", "<type>CustomObject</type><fullNames>Packed__c</fullNames>")
    options = "<DeployOptions><singlePackage>true</singlePackage><checkOnly>false</checkOnly></DeployOptions>"
    (queued,) = call(server, dev_token, "deploy", f"<ZipFile>{packed}</ZipFile>{options}")
    asked = f"<asyncProcessId>{queued.findtext('id')}</asyncProcessId><includeDetails>true</includeDetails>"
    (result,) = call(server, dev_token, "checkDeployStatus", asked)
    assert (result.findtext("status"), result.findtext("numberComponentsDeployed")) == ("Succeeded", "2")
    created = [
        e.findtext("fullName")
        for e in result.iterfind("details/componentSuccesses")
        if e.findtext("created") == "true"
    ]
    assert created == ["Packed__c", "Packed__c.Status__c"]
    assert (
        fault(server, dev_token, "cancelDeploy", f"<String>{queued.findtext('id')}</String>")
        == "INVALID_ID_FIELD"
    )


def test_answer_has_no_header_that_its_schema_does_not_know(server: ServerProcess, dev_token: str) -> None:
    status, root = post(server, dev_token, "describeMetadata", "<asOfVersion>59.0</asOfVersion>")
    assert (status, [part.tag.rpartition("}")[2] for part in root]) == (200, ["Body"])


def test_faults_have_the_codes_that_clients_know(server: ServerProcess, dev_token: str) -> None:
    reader = server.login(READER, DEV_PASSWORD)
    names = "<type>{}</type><fullNames>Account</fullNames>"
    assert fault(server, dev_token, "readMetadata", names.format("ApexClass")) == "INVALID_TYPE"
    assert fault(server, reader, "readMetadata", names.format("CustomObject")) == "INSUFFICIENT_ACCESS"
    assert fault(server, "no token", "describeMetadata", "") == "INVALID_SESSION_ID"
    unknown = "<asyncProcessId>0AfTW0000000zzz</asyncProcessId>"
    assert fault(server, dev_token, "checkDeployStatus", unknown) == "INVALID_CROSS_REFERENCE_KEY"
    eleven = "".join(custom_object(f"Many{n}__c") for n in range(11))
    assert fault(server, dev_token, "createMetadata", eleven) == "EXCEEDED_ID_LIMIT"
    for arguments in ("<ZipFile>!!</ZipFile>", "<metadata><fullName>X__c</fullName></metadata>"):
        operation = "deploy" if "Zip" in arguments else "createMetadata"
        assert fault(server, dev_token, operation, arguments) == "soapenv:Client"
    assert fault(server, dev_token, "login", "<username>x</username>") == "soapenv:Client"


def test_object_is_renamed_with_its_records(server: ServerProcess, dev_token: str, rest: Rest) -> None:
    call(server, dev_token, "createMetadata", custom_object("Renamable__c"))
    rest.create("Renamable__c", {})
    names = "<type>CustomObject</type><oldFullName>Renamable__c</oldFullName><newFullName>Renamed__c</newFullName>"
    (result,) = call(server, dev_token, "renameMetadata", names)
    assert result.findtext("success") == "true"
    assert len(rest.query("SELECT Id FROM Renamed__c")) == 1


def test_validated_package_is_deployed_by_its_id(server: ServerProcess, dev_token: str) -> None:
    manifest = render_manifest({}, "62.0")
    packed = base64.b64encode(write_zip({"package.xml": manifest})).decode()
    options = "<DeployOptions><singlePackage>true</singlePackage><checkOnly>true</checkOnly></DeployOptions>"
    (queued,) = call(server, dev_token, "deploy", f"<ZipFile>{packed}</ZipFile>{options}")
    validation = f"<validationId>{queued.findtext('id')}</validationId>"
    (deployed,) = call(server, dev_token, "deployRecentValidation", validation)
    (result,) = call(
        server, dev_token, "checkDeployStatus", f"<asyncProcessId>{deployed.text}</asyncProcessId>"
    )
    assert (result.findtext("status"), result.findtext("checkOnly")) == ("Succeeded", "false")


@pytest.mark.parametrize(
    "path, status",
    [
        ("/services/Soap/u/59.0", 405),
        ("/services/Soap/c/59.0?WSDL", 401),
        ("/services/Soap/m/59.0?wsdl", 404),
        ("/services/Soap/x/59.0?wsdl", 404),
        ("/services/wsdl/metadata", 404),
    ],
)
def test_interface_descriptions_are_refused_clearly(server: ServerProcess, path: str, status: int) -> None:
    answer = requests.get(server.http + path, timeout=120)
    assert answer.status_code == status
    if status == 405:
        assert answer.headers["Allow"] == "POST"
