"""Descriptions of objects over SOAP."""

from __future__ import annotations

from tests.orgs import READER, TestOrg
from tests.unit.frontends.soap.caller import children, sign_in


async def test_global_list_has_the_entries_of_the_wsdl_in_order(org: TestOrg) -> None:
    caller = await sign_in(org)
    (result,) = await caller.call("describeGlobal")
    assert children(result)[:3] == ["encoding", "maxBatchSize", "sobjects"]
    account = next(e for e in result.iterfind("sobjects") if e.findtext("name") == "Account")
    assert children(account) == sorted(children(account))
    assert account.findtext("keyPrefix") == "001"
    assert account.findtext("queryable") == "true"


async def test_object_is_described_with_fields_and_children(org: TestOrg) -> None:
    caller = await sign_in(org)
    (result,) = await caller.call("describeSObject", "<sObjectType>account</sObjectType>")
    assert result.findtext("name") == "Account"
    fields = {field.findtext("name"): field for field in result.iterfind("fields")}
    assert fields["Id"].findtext("soapType") == "tns:ID"
    assert fields["OwnerId"].findtext("referenceTo") == "User"
    assert fields["Rating"].findtext("picklistValues/value") == "Hot"
    assert children(fields["Rating"]) == sorted(children(fields["Rating"]))
    assert any(c.findtext("childSObject") == "Contact" for c in result.iterfind("childRelationships"))
    assert result.find("urls") is None


async def test_default_value_of_a_field_names_its_type(org: TestOrg) -> None:
    caller = await sign_in(org)
    answer = await caller.post("describeSObject", "<sObjectType>Account</sObjectType>")
    assert b' xmlns:xsd="http://www.w3.org/2001/XMLSchema"' in answer.body
    assert b'<defaultValue xsi:type="xsd:boolean">false</defaultValue><defaultedOnCreate>' in answer.body
    assert b"<active>true</active><defaultValue>false</defaultValue><label>Hot</label>" in answer.body


async def test_reader_sees_neither_hidden_objects_nor_fields(org: TestOrg) -> None:
    caller = await sign_in(org, username=READER)
    (result,) = await caller.call("describeSObjects", "<sObjectType>Account</sObjectType>")
    assert "Phone" not in [field.findtext("name") for field in result.iterfind("fields")]
    fault = await caller.fault("describeSObject", "<sObjectType>Opportunity</sObjectType>")
    assert fault[0] == "sf:INVALID_TYPE"
    (listed,) = await caller.call("describeGlobal")
    assert "Opportunity" not in [e.findtext("name") for e in listed.iterfind("sobjects")]
    layout = (await caller.call("describeLayout", "<sObjectType>Account</sObjectType>"))[0]
    shown = [e.text for e in layout.iterfind(".//layoutComponents/value")]
    assert "Name" in shown
    assert "Phone" not in shown


async def test_several_objects_are_described_up_to_a_limit(org: TestOrg) -> None:
    caller = await sign_in(org)
    names = "<sObjectType>Account</sObjectType><sObjectType>Contact</sObjectType>"
    assert [r.findtext("name") for r in await caller.call("describeSObjects", names)] == [
        "Account",
        "Contact",
    ]
    many = "<sObjectType>Account</sObjectType>" * 101
    assert (await caller.fault("describeSObjects", many))[0] == "sf:EXCEEDED_ID_LIMIT"


async def test_tabs_name_the_objects_of_data(org: TestOrg) -> None:
    caller = await sign_in(org)
    (result,) = await caller.call("describeTabs")
    objects = [tab.findtext("sobjectName") for tab in result.iterfind("tabs")]
    assert "Account" in objects
    assert "Profile" not in objects
