"""merge and convertLead."""

from __future__ import annotations

import pytest

from tests.orgs import READER, TestOrg
from tests.unit.frontends.soap.caller import children, code, sign_in

CONVERTED = "<convertedStatus>Closed - Converted</convertedStatus>"


@pytest.mark.parametrize("name", ["request", "mergeRequests"])
async def test_merge_takes_either_element_name_and_answers_each_request(org: TestOrg, name: str) -> None:
    caller = await sign_in(org)
    master, loser = await org.make_account("M"), await org.make_account("L")
    child = await org.gate.create(org.call, "Contact", {"LastName": "C", "AccountId": loser})

    def request(master_id: str, loser_id: str) -> str:
        return (
            f"<{name}><masterRecord><type>Account</type><Id>{master_id}</Id><Phone>7</Phone></masterRecord>"
            f"<recordToMergeIds>{loser_id}</recordToMergeIds></{name}>"
        )

    merged, refused = await caller.call("merge", request(master, loser) + request(master, master))
    assert children(merged) == ["id", "mergedRecordIds", "success", "updatedRelatedIds"]
    assert [merged.findtext(tag) for tag in children(merged)] == [master, loser, "true", child]
    assert children(refused) == ["errors", "id", "success"]
    assert code(refused) == "MERGE_FAILED"
    rows = await org.gate.read(org.admin, "Account", master, ["Phone"])
    assert rows.rows[0]["Phone"] == "7"


async def test_lead_becomes_account_contact_and_opportunity(org: TestOrg) -> None:
    caller = await sign_in(org)
    lead = await org.gate.create(org.call, "Lead", {"LastName": "L", "Company": "Co"})
    convert = f"<leadConverts><leadId>{lead}</leadId>{CONVERTED}<accountId></accountId></leadConverts>"
    (result,) = await caller.call("convertLead", convert)
    assert children(result) == ["accountId", "contactId", "leadId", "opportunityId", "success"]
    assert [(child.text or "")[:3] for child in result] == ["001", "003", "00Q", "006", "tru"]
    (again,) = await caller.call("convertLead", convert)
    assert children(again) == ["accountId", "contactId", "errors", "leadId", "opportunityId", "success"]
    assert again.findtext("leadId") == lead
    assert again.findtext("success") == "false"


async def test_lead_without_opportunity_answers_nil(org: TestOrg) -> None:
    caller = await sign_in(org)
    lead = await org.gate.create(org.call, "Lead", {"LastName": "L", "Company": "Co"})
    (result,) = await caller.call(
        "convertLead",
        f"<leadConverts><leadId>{lead}</leadId>{CONVERTED}"
        "<doNotCreateOpportunity>true</doNotCreateOpportunity></leadConverts>",
    )
    assert result.findtext("success") == "true"
    assert not result.findtext("opportunityId")


async def test_records_beside_a_conversion_come_before_the_leads_values(org: TestOrg) -> None:
    caller = await sign_in(org)
    lead = await org.gate.create(org.call, "Lead", {"LastName": "L", "Company": "Co", "Phone": "1"})
    (result,) = await caller.call(
        "convertLead",
        f"<leadConverts><leadId>{lead}</leadId>{CONVERTED}"
        "<accountRecord><type>Account</type><Name>Given</Name><Site>North</Site></accountRecord>"
        "<contactRecord><type>Contact</type><Department>Sales</Department></contactRecord>"
        "<opportunityRecord><type>Opportunity</type><Name>Deal</Name></opportunityRecord></leadConverts>",
    )
    assert result.findtext("success") == "true", code(result)
    rows = await org.gate.query(
        org.admin, "SELECT Name, Account.Name, Account.Site, Account.Phone FROM Opportunity"
    )
    (deal,) = rows.rows
    assert deal["Name"] == "Deal"
    accounts = await org.gate.query(org.admin, "SELECT Name, Site, Phone FROM Account WHERE Name = 'Given'")
    assert [(row["Site"], row["Phone"]) for row in accounts.rows] == [("North", "1")]
    contacts = await org.gate.query(org.admin, "SELECT Department FROM Contact WHERE LastName = 'L'")
    assert [row["Department"] for row in contacts.rows] == ["Sales"]
    other = await org.gate.create(org.call, "Lead", {"LastName": "M", "Company": "Co"})
    wrong = "<accountRecord><type>Contact</type><LastName>x</LastName></accountRecord>"
    (refused,) = await caller.call(
        "convertLead", f"<leadConverts><leadId>{other}</leadId>{CONVERTED}{wrong}</leadConverts>"
    )
    assert refused.findtext("success") == "false"


async def test_more_than_a_hundred_leads_are_rejected(org: TestOrg) -> None:
    caller = await sign_in(org)
    many = "<leadConverts><leadId>x</leadId></leadConverts>" * 101
    assert (await caller.fault("convertLead", many))[0] == "sf:EXCEEDED_ID_LIMIT"


async def test_conversion_without_status_or_rights_is_its_own_result(org: TestOrg) -> None:
    lead = await org.gate.create(org.call, "Lead", {"LastName": "L", "Company": "Co"})
    caller = await sign_in(org)
    (result,) = await caller.call("convertLead", f"<leadConverts><leadId>{lead}</leadId></leadConverts>")
    assert code(result) == "REQUIRED_FIELD_MISSING"
    reader = await sign_in(org, username=READER)
    (refused,) = await reader.call(
        "convertLead", f"<leadConverts><leadId>{lead}</leadId>{CONVERTED}</leadConverts>"
    )
    assert refused.findtext("success") == "false"


@pytest.mark.parametrize(
    "given, is_taken",
    [
        ("<name>a</name><value>b</value>", True),
        ("<name>a</name>", True),
        ("<value>b</value>", False),
        ("<name>a</name><other>b</other>", False),
    ],
)
async def test_merge_takes_a_map_of_names_and_values(org: TestOrg, given: str, is_taken: bool) -> None:
    caller = await sign_in(org)
    master, loser = await org.make_account("A"), await org.make_account("B")
    request = (
        f"<request><additionalInformationMap>{given}</additionalInformationMap>"
        f"<masterRecord><sf:type>Account</sf:type><sf:Id>{master}</sf:Id></masterRecord>"
        f"<recordToMergeIds>{loser}</recordToMergeIds></request>"
    )
    answer = await caller.post("merge", request)
    assert (b"<success>true</success>" in answer.body) is is_taken
    assert (b"<faultcode>soapenv:Client</faultcode>" in answer.body) is not is_taken
