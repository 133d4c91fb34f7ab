"""What the platform demands of single standard objects."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.stores import OpenStore
from tests.unit.records.small_org import NOW_MS, USER, Org, open_records
from tidewire.errors import (
    ActivationRefused,
    DuplicateValue,
    EmailInvalid,
    FieldsInconsistent,
    HierarchyCircular,
    PicklistValueInvalid,
    ReferenceWrongType,
    RequiredFieldMissing,
)
from tidewire.schema.fields import text
from tidewire.schema.layout import custom_object


@pytest.fixture
async def org(place: OpenStore) -> AsyncIterator[Org]:
    async with open_records(place) as opened:
        yield opened


async def change(org: Org, entity: str, record_id: str, **values: object) -> None:
    await org.write(lambda unit: unit.update(org.obj(entity), record_id, values))


@pytest.mark.parametrize(
    "entity, values", [("Account", {"Name": "A"}), ("Campaign", {"Name": "A"}), ("Case", {"Subject": "A"})]
)
async def test_parent_below_its_own_child_is_refused(
    org: Org, entity: str, values: dict[str, object]
) -> None:
    top = await org.make(entity, **values)
    middle = await org.make(entity, ParentId=top, **values)
    bottom = await org.make(entity, ParentId=middle, **values)
    for parent in (top, middle, bottom):
        with pytest.raises(HierarchyCircular):
            await change(org, entity, top, ParentId=parent)
    assert (await org.row(entity, top))["ParentId"] is None
    await change(org, entity, bottom, ParentId=top)
    assert (await org.row(entity, bottom))["ParentId"] == top


async def test_campaign_member_is_one_lead_or_contact_once(org: Org) -> None:
    campaign = await org.make("Campaign", Name="C")
    lead = await org.make("Lead", LastName="S", Company="A")
    contact = await org.make("Contact", LastName="S")
    with pytest.raises(RequiredFieldMissing):
        await org.make("CampaignMember", CampaignId=campaign)
    with pytest.raises(FieldsInconsistent):
        await org.make("CampaignMember", CampaignId=campaign, LeadId=lead, ContactId=contact)
    member = await org.make("CampaignMember", CampaignId=campaign, LeadId=lead)
    with pytest.raises(DuplicateValue, match="Already a campaign member"):
        await org.make("CampaignMember", CampaignId=campaign, LeadId=lead)
    await org.delete("CampaignMember", member)
    await org.make("CampaignMember", CampaignId=campaign, LeadId=lead)
    other = await org.make("Campaign", Name="D")
    await org.make("CampaignMember", CampaignId=other, LeadId=lead)


async def test_price_of_a_product_stands_once_in_a_price_book(org: Org) -> None:
    book, product = await org.make("Pricebook2", Name="B"), await org.make("Product2", Name="P")
    values = {"Pricebook2Id": book, "Product2Id": product, "UnitPrice": 1}
    await org.make("PricebookEntry", **values)
    with pytest.raises(FieldsInconsistent, match="already exists in this price book"):
        await org.make("PricebookEntry", **values)
    values["Pricebook2Id"] = await org.make("Pricebook2", Name="C")
    await org.make("PricebookEntry", **values)


async def test_asset_belongs_to_an_account_or_a_contact(org: Org) -> None:
    with pytest.raises(FieldsInconsistent, match="needs an account"):
        await org.make("Asset", Name="A")
    contact = await org.make("Contact", LastName="S")
    asset = await org.make("Asset", Name="A", ContactId=contact)
    with pytest.raises(FieldsInconsistent):
        await change(org, "Asset", asset, ContactId=None)
    assert (await org.row("Asset", asset))["ContactId"] == contact


async def test_new_primary_contact_takes_the_flag_from_the_old_one(org: Org) -> None:
    deal = await org.make("Opportunity", Name="O", StageName="Prospecting", CloseDate="2030-01-01")
    contact = await org.make("Contact", LastName="S")
    roles = [
        await org.make("OpportunityContactRole", OpportunityId=deal, ContactId=contact, IsPrimary=True)
        for _ in range(2)
    ]
    assert [(c.record_id, c.changed[:1]) for c in org.changes] == [(roles[1], ()), (roles[0], ("IsPrimary",))]
    await change(org, "OpportunityContactRole", roles[0], IsPrimary=True)
    assert [(await org.row("OpportunityContactRole", r))["IsPrimary"] for r in roles] == [True, False]


async def test_contract_is_activated_from_a_draft_and_stays_so(org: Org) -> None:
    account = await org.make("Account", Name="A")
    with pytest.raises(ActivationRefused):
        await org.make("Contract", AccountId=account, Status="Activated")
    contract = await org.make("Contract", AccountId=account)
    await change(org, "Contract", contract, Status="Activated")
    row = await org.row("Contract", contract)
    assert (row["StatusCode"], row["ActivatedDate"], row["ActivatedById"]) == (
        "Activated",
        NOW_MS - NOW_MS % 1000,
        USER,
    )
    with pytest.raises(ActivationRefused):
        await change(org, "Contract", contract, Status="Draft")
    await change(org, "Contract", contract, Status="Activated", SpecialTerms="none")


async def test_order_is_activated_with_a_product_and_can_go_back(org: Org) -> None:
    book, product = await org.make("Pricebook2", Name="B"), await org.make("Product2", Name="P")
    entry = await org.make("PricebookEntry", Pricebook2Id=book, Product2Id=product, UnitPrice=1)
    with pytest.raises(ActivationRefused):
        await org.make("Order", EffectiveDate="2026-01-01", Status="Activated")
    order = await org.make("Order", EffectiveDate="2026-01-01")
    with pytest.raises(ActivationRefused, match="at least one product"):
        await change(org, "Order", order, Status="Activated")
    await org.make("OrderItem", OrderId=order, PricebookEntryId=entry, Quantity=1)
    await change(org, "Order", order, Status="Activated")
    assert (await org.row("Order", order))["ActivatedDate"] is not None
    await change(org, "Order", order, Status="Draft")
    assert (await org.row("Order", order))["ActivatedDate"] is None


async def test_user_needs_an_address_as_name_and_a_known_time_zone(org: Org) -> None:
    profile = await org.make("Profile", Name="P")
    values = {
        "LastName": "U",
        "Alias": "u",
        "Email": "u@example.com",
        "ProfileId": profile,
        "TimeZoneSidKey": "GMT",
        "LocaleSidKey": "en_US",
        "EmailEncodingKey": "UTF-8",
        "LanguageLocaleKey": "en_US",
    }
    for wrong in ("u", "@example.com", "u@"):
        with pytest.raises(EmailInvalid):
            await org.make("User", Username=wrong, **values)
    with pytest.raises(RequiredFieldMissing):
        await org.make("User", **values)
    with pytest.raises(PicklistValueInvalid, match="Mars/Olympus"):
        await org.make("User", Username="u@example.com", **values | {"TimeZoneSidKey": "Mars/Olympus"})
    await org.make("User", Username="u@example.com", **values)


async def test_custom_record_can_belong_to_a_queue_but_to_no_other_group(org: Org) -> None:
    await org.add(custom_object("Part__c", "Part", "Parts", "a01", 1001, None, (text("A__c", "A", 5),)))
    queue = await org.make("Group", Name="Q", Type="Queue")
    group = await org.make("Group", Name="G", Type="Regular")
    part = await org.make("Part__c", OwnerId=queue)
    assert (await org.row("Part__c", part))["OwnerId"] == queue
    for entity, values in (("Part__c", {}), ("Lead", {"LastName": "S", "Company": "A"})):
        with pytest.raises(ReferenceWrongType):
            await org.make(entity, OwnerId=group, **values)
