"""Lead conversion, and upserts by external id."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.stores import OpenStore
from tests.unit.records.small_org import USER, Org, make_user, open_records
from tidewire.crm.leads import Conversion, Converted, convert_lead, quarter_end
from tidewire.errors import (
    ExternalIdAmbiguous,
    FieldUnknown,
    LeadConverted,
    RecordNotFound,
    ReferenceMissing,
    RequiredFieldMissing,
    StatusRefused,
)
from tidewire.events import ChangeType
from tidewire.ids import make_id
from tidewire.schema.field_types import FieldType
from tidewire.schema.layout import custom_object
from tidewire.schema.model import Field

CONVERTED = "Closed - Converted"


@pytest.fixture
async def org(place: OpenStore) -> AsyncIterator[Org]:
    async with open_records(place) as opened:
        code = Field(name="Code__c", label="Code", type=FieldType.TEXT, length=20, external_id=True)
        number = Field(
            name="Number__c",
            label="Number",
            type=FieldType.NUMBER,
            precision=10,
            external_id=True,
            unique=True,
        )
        await opened.add(custom_object("Part__c", "Part", "Parts", "a01", 1001, None, (code, number)))
        profile = await opened.make("Profile", Name="Standard")
        assert await make_user(opened, "u", profile) == USER
        yield opened


async def make_lead(org: Org, **values: object) -> str:
    return await org.make("Lead", **{"LastName": "Mcclure", "Company": "Cardinal", **values})


async def convert(org: Org, lead_id: str, status: str = CONVERTED, **asked: object) -> Converted:
    conversion = Conversion(lead_id=lead_id, converted_status=status, **asked)  # type: ignore[arg-type]
    return await org.write(lambda unit: convert_lead(unit, conversion))


async def test_conversion_makes_three_records_and_changes_the_lead_last(org: Org) -> None:
    lead = await make_lead(
        org,
        FirstName="Brenda",
        Title="CFO",
        Email="brenda@example.com",
        Phone="7",
        State="IL",
        LeadSource="Web",
        NumberOfEmployees=5,
    )
    org.clock.advance(5)
    made = await convert(org, lead)
    assert [(c.entity, c.record_id, c.type) for c in org.changes] == [
        ("Account", made.account_id, ChangeType.CREATE),
        ("Contact", made.contact_id, ChangeType.CREATE),
        ("Opportunity", made.opportunity_id, ChangeType.CREATE),
        ("Lead", lead, ChangeType.UPDATE),
    ]
    account = await org.row("Account", made.account_id)
    assert (account["Name"], account["BillingState"], account["AccountSource"]) == ("Cardinal", "IL", "Web")
    assert (account["Phone"], account["NumberOfEmployees"]) == ("7", 5)
    contact = await org.row("Contact", made.contact_id)
    assert (contact["Name"], contact["AccountId"]) == ("Brenda Mcclure", made.account_id)
    assert (contact["MailingState"], contact["Title"], contact["LeadSource"]) == ("IL", "CFO", "Web")
    deal = await org.row("Opportunity", str(made.opportunity_id))
    assert (deal["Name"], deal["StageName"], deal["Probability"]) == ("Cardinal-", "Prospecting", 10.0)
    row = await org.row("Lead", lead)
    assert (row["Status"], row["IsConverted"], row["ConvertedContactId"]) == (
        CONVERTED,
        True,
        made.contact_id,
    )


async def test_conversion_does_not_modify_the_lead_but_for_its_six_fields(org: Org) -> None:
    lead = await make_lead(org)
    org.clock.advance(5)
    await convert(org, lead)
    assert set(org.changes[-1].changed) == {
        "Status",
        "IsConverted",
        "ConvertedDate",
        "ConvertedAccountId",
        "ConvertedContactId",
        "ConvertedOpportunityId",
        "SystemModstamp",
    }


async def test_conversion_joins_existing_records_and_fills_what_they_lack(org: Org) -> None:
    account = await org.make("Account", Name="Old", Phone="1")
    contact = await org.make("Contact", LastName="Old", AccountId=account, LeadSource="Other")
    lead = await make_lead(org, Phone="7", Title="CFO", LeadSource="Web")
    made = await convert(
        org,
        lead,
        account_id=account,
        contact_id=contact,
        makes_opportunity=False,
        overwrites_lead_source=True,
    )
    assert made == Converted(lead, account, contact, None)
    row = await org.row("Contact", contact)
    assert (row["LastName"], row["Title"], row["LeadSource"]) == ("Old", "CFO", "Web")
    assert (await org.row("Account", account))["Phone"] == "1"
    stranger = await org.make("Contact", LastName="X")
    with pytest.raises(ReferenceMissing):
        await convert(org, await make_lead(org), account_id=account, contact_id=stranger)


async def test_activities_and_campaigns_follow_the_lead_to_its_contact(org: Org) -> None:
    lead = await make_lead(org)
    task = await org.make("Task", WhoId=lead, Status="Not Started", Priority="Normal")
    made = await convert(org, lead)
    assert (await org.row("Task", task))["WhoId"] == made.contact_id


async def test_campaign_counts_the_lead_as_converted_and_as_a_contact(org: Org) -> None:
    campaign = await org.make("Campaign", Name="C")
    lead = await make_lead(org, FirstName="Brenda")
    member = await org.make("CampaignMember", CampaignId=campaign, LeadId=lead)
    made = await convert(org, lead)
    row = await org.row("CampaignMember", member)
    assert (row["LeadId"], row["ContactId"], row["Type"]) == (lead, made.contact_id, "Contact")
    assert (row["Name"], row["CompanyOrAccount"]) == ("Brenda Mcclure", "Cardinal")
    counts = await org.row("Campaign", campaign)
    assert (counts["NumberOfLeads"], counts["NumberOfConvertedLeads"], counts["NumberOfContacts"]) == (
        1,
        1,
        1,
    )
    assert [c.entity for c in org.changes][3:] == ["Lead", "CampaignMember", "Campaign"]


async def test_nothing_new_can_point_at_a_converted_lead(org: Org) -> None:
    lead = await make_lead(org)
    campaign = await org.make("Campaign", Name="C")
    await convert(org, lead)
    with pytest.raises(LeadConverted):
        await org.make("Task", WhoId=lead, Status="Not Started", Priority="Normal")
    with pytest.raises(LeadConverted):
        await org.make("CampaignMember", CampaignId=campaign, LeadId=lead)


async def test_lead_of_a_queue_is_converted_for_the_user_named(org: Org) -> None:
    queue = await org.make("Group", Name="Q", Type="Queue")
    lead = await make_lead(org, OwnerId=queue)
    with pytest.raises(RequiredFieldMissing, match="ownerId"):
        await convert(org, lead)
    made = await convert(org, lead, owner_id=USER, opportunity_name="Deal")
    for entity, record_id in (("Account", made.account_id), ("Contact", made.contact_id)):
        assert (await org.row(entity, record_id))["OwnerId"] == USER
    deal = await org.row("Opportunity", str(made.opportunity_id))
    assert (deal["Name"], deal["OwnerId"]) == ("Deal", USER)


async def test_conversion_into_records_that_do_not_belong_together_is_refused(org: Org) -> None:
    account = await org.make("Account", Name="A")
    contact = await org.make("Contact", LastName="C", AccountId=account)
    deal = await org.make("Opportunity", Name="O", StageName="Prospecting", CloseDate="2030-01-01")
    lead = await make_lead(org)
    with pytest.raises(RequiredFieldMissing, match="accountId"):
        await convert(org, lead, contact_id=contact)
    with pytest.raises(ReferenceMissing):
        await convert(org, lead, account_id=account, opportunity_id=deal)
    assert not (await org.row("Lead", lead))["IsConverted"]


async def test_converted_lead_cannot_be_converted_or_updated_again(org: Org) -> None:
    lead = await make_lead(org)
    with pytest.raises(StatusRefused, match="invalid convertedStatus: Working"):
        await convert(org, lead, "Working - Contacted")
    await convert(org, lead)
    with pytest.raises(LeadConverted):
        await convert(org, lead)
    with pytest.raises(LeadConverted):
        await org.write(lambda unit: unit.update(org.obj("Lead"), lead, {"Phone": "1"}))


async def test_deleting_the_account_clears_the_converted_lead(org: Org) -> None:
    lead = await make_lead(org)
    made = await convert(org, lead)
    await org.delete("Account", made.account_id)
    row = await org.row("Lead", lead)
    assert (row["ConvertedAccountId"], row["ConvertedContactId"], row["IsConverted"]) == (None, None, True)


def test_quarter_ends_on_its_last_day() -> None:
    day_ms = 86_400_000
    assert quarter_end(0) == "1970-03-31"
    assert quarter_end(90 * day_ms) == "1970-06-30"
    assert quarter_end(364 * day_ms) == "1970-12-31"


async def upsert(org: Org, field: str, value: object, **values: object) -> tuple[str, bool]:
    return await org.write(lambda unit: unit.upsert(org.obj("Part__c"), field, value, values))


async def test_upsert_creates_once_and_then_updates(org: Org) -> None:
    part, is_new = await upsert(org, "code__c", "x-1", Name="A")
    assert is_new
    assert (await org.row("Part__c", part))["Code__c"] == "x-1"
    assert await upsert(org, "Code__c", "X-1", Name="B") == (part, False)
    assert (await org.row("Part__c", part))["Name"] == "B"
    numbered, _ = await upsert(org, "Number__c", "7")
    assert await upsert(org, "Number__c", 7.0) == (numbered, False)


async def test_upsert_by_id_updates_or_without_one_creates(org: Org) -> None:
    part, is_new = await upsert(org, "Id", None, Name="A")
    assert is_new
    assert await upsert(org, "Id", part[:15], Name="B") == (part, False)
    with pytest.raises(RecordNotFound):
        await upsert(org, "Id", make_id("a01", 99))


async def test_upsert_on_a_deleted_record_creates_anew(org: Org) -> None:
    part, _ = await upsert(org, "Code__c", "x")
    await org.delete("Part__c", part)
    other, is_new = await upsert(org, "Code__c", "x")
    assert is_new
    assert other != part


async def test_upsert_refuses_ambiguous_missing_and_repeated_keys(org: Org) -> None:
    first = await org.make("Part__c", Code__c="same")
    second = await org.make("Part__c", Code__c="SAME")
    with pytest.raises(ExternalIdAmbiguous) as caught:
        await upsert(org, "Code__c", "same")
    assert caught.value.details["record_ids"] == [first, second]
    with pytest.raises(RequiredFieldMissing):
        await upsert(org, "Code__c", "")
    with pytest.raises(FieldUnknown):
        await upsert(org, "Name", "A")
    with pytest.raises(FieldUnknown):
        await upsert(org, "Code__c", "x", code__C="y")
