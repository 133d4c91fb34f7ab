"""Fields that follow from other records: copies, totals, fiscal periods and the prices of lines."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.stores import OpenStore
from tests.unit.records.small_org import NOW_MS, USER, Org, open_records
from tidewire.crm.copied_fields import fiscal_quarter
from tidewire.events import ChangeType, Value
from tidewire.records.table import insert_row
from tidewire.schema.values import DAY_MS

TODAY = NOW_MS - NOW_MS % DAY_MS


@pytest.fixture
async def org(place: OpenStore) -> AsyncIterator[Org]:
    async with open_records(place) as opened:
        yield opened


async def change(org: Org, entity: str, record_id: str, **values: object) -> None:
    await org.write(lambda unit: unit.update(org.obj(entity), record_id, values))


async def values(org: Org, entity: str, record_id: str, *names: str) -> tuple[Value, ...]:
    row = await org.row(entity, record_id)
    return tuple(row[name] for name in names)


async def make_deal(org: Org, **given: object) -> str:
    return await org.make(
        "Opportunity", **{"Name": "D", "StageName": "Prospecting", "CloseDate": "2026-05-31", **given}
    )


async def make_entry(org: Org, price: float = 10) -> str:
    book = await org.make("Pricebook2", Name="Book")
    product = await org.make("Product2", Name="Pump", ProductCode="P-1")
    return await org.make("PricebookEntry", Pricebook2Id=book, Product2Id=product, UnitPrice=price)


async def test_campaign_member_shows_its_lead_and_follows_it(org: Org) -> None:
    campaign = await org.make("Campaign", Name="C")
    lead = await org.make("Lead", LastName="Smith", FirstName="Jo", Company="Acme", City="Bonn", Phone="1")
    member = await org.make("CampaignMember", CampaignId=campaign, LeadId=lead)
    shown = ("Name", "CompanyOrAccount", "City", "Phone", "Type", "LeadOrContactId", "LeadOrContactOwnerId")
    assert await values(org, "CampaignMember", member, *shown) == (
        "Jo Smith",
        "Acme",
        "Bonn",
        "1",
        "Lead",
        lead,
        USER,
    )
    await change(org, "Lead", lead, Phone="2", LastName="Doe")
    assert await values(org, "CampaignMember", member, "Phone", "Name") == ("2", "Jo Doe")
    assert [c.entity for c in org.changes] == ["Lead"]


async def test_campaign_member_shows_the_account_of_its_contact_and_follows_both(org: Org) -> None:
    campaign = await org.make("Campaign", Name="C")
    account = await org.make("Account", Name="Acme")
    contact = await org.make("Contact", LastName="S", AccountId=account, MailingCity="Rome", DoNotCall=True)
    member = await org.make("CampaignMember", CampaignId=campaign, ContactId=contact)
    shown = ("CompanyOrAccount", "City", "DoNotCall", "Type")
    assert await values(org, "CampaignMember", member, *shown) == ("Acme", "Rome", True, "Contact")
    await change(org, "Account", account, Name="Apex")
    await change(org, "Contact", contact, MailingCity="Oslo")
    assert await values(org, "CampaignMember", member, *shown) == ("Apex", "Oslo", True, "Contact")


async def test_member_has_responded_by_its_status_and_remembers_the_first_day(org: Org) -> None:
    campaign = await org.make("Campaign", Name="C")
    lead = await org.make("Lead", LastName="S", Company="A")
    member = await org.make("CampaignMember", CampaignId=campaign, LeadId=lead)
    names = ("HasResponded", "FirstRespondedDate")
    assert await values(org, "CampaignMember", member, *names) == (False, None)
    await change(org, "CampaignMember", member, Status="Responded")
    assert await values(org, "CampaignMember", member, *names) == (True, TODAY)
    assert await values(org, "Campaign", campaign, "NumberOfResponses") == (1,)
    org.clock.advance(5 * 86_400)
    await change(org, "CampaignMember", member, Status="Sent")
    assert await values(org, "CampaignMember", member, *names) == (False, TODAY)


async def test_campaign_counts_members_and_opportunities_in_the_same_transaction(org: Org) -> None:
    campaign = await org.make("Campaign", Name="C")
    lead = await org.make("Lead", LastName="S", Company="A")
    contact = await org.make("Contact", LastName="S")
    await org.make("CampaignMember", CampaignId=campaign, LeadId=lead)
    assert [(c.entity, c.type) for c in org.changes] == [
        ("CampaignMember", ChangeType.CREATE),
        ("Campaign", ChangeType.UPDATE),
    ]
    assert org.changes[1].changed == ("NumberOfLeads",)
    member = await org.make("CampaignMember", CampaignId=campaign, ContactId=contact)
    deal = await make_deal(org, CampaignId=campaign, Amount=100)
    await make_deal(org, CampaignId=campaign, Amount=50, StageName="Closed Won")
    counts = ("NumberOfLeads", "NumberOfContacts", "NumberOfOpportunities", "NumberOfWonOpportunities")
    amounts = ("AmountAllOpportunities", "AmountWonOpportunities")
    assert await values(org, "Campaign", campaign, *counts, *amounts) == (1, 1, 2, 1, 150.0, 50.0)
    await org.delete("CampaignMember", member)
    await change(org, "Opportunity", deal, StageName="Closed Won")
    assert await values(org, "Campaign", campaign, *counts, *amounts) == (1, 0, 2, 2, 150.0, 150.0)
    await change(org, "Opportunity", deal, CampaignId=None)
    assert await values(org, "Campaign", campaign, *counts, *amounts) == (1, 0, 1, 1, 50.0, 50.0)


async def test_case_shows_its_contact_and_starts_with_the_contacts_account(org: Org) -> None:
    account = await org.make("Account", Name="A")
    contact = await org.make("Contact", LastName="S", AccountId=account, Email="s@example.com", Phone="1")
    case = await org.make("Case", ContactId=contact)
    names = ("ContactEmail", "ContactPhone", "AccountId")
    assert await values(org, "Case", case, *names) == ("s@example.com", "1", account)
    await change(org, "Contact", contact, Phone="2")
    assert await values(org, "Case", case, *names) == ("s@example.com", "2", account)
    assert [c.entity for c in org.changes] == ["Contact"]
    await change(org, "Case", case, ContactId=None)
    assert await values(org, "Case", case, *names) == (None, None, account)


async def test_copy_made_in_the_same_transaction_is_in_the_change_too(org: Org) -> None:
    contact = await org.make("Contact", LastName="S", Phone="1")
    case = await org.make("Case", ContactId=contact)

    def work(unit):  # type: ignore[no-untyped-def]
        unit.update(org.obj("Case"), case, {"Subject": "x"})
        unit.update(org.obj("Contact"), contact, {"Phone": "2"})

    await org.write(work)
    after = next(c.after for c in org.changes if c.entity == "Case")
    assert after is not None
    assert after["ContactPhone"] == "2"


@pytest.mark.parametrize(
    "day, start_month, is_named_by_start, expected",
    [
        ("2026-05-31", 1, False, (2026, 2)),
        ("2026-05-31", 4, False, (2027, 1)),
        ("2026-05-31", 4, True, (2026, 1)),
        ("2026-01-01", 4, False, (2026, 4)),
        ("2026-12-31", 12, False, (2027, 1)),
    ],
)
async def test_fiscal_period_follows_close_date_and_first_month(
    org: Org, day: str, start_month: int, is_named_by_start: bool, expected: tuple[int, int]
) -> None:
    row: dict[str, Value] = {
        "Id": "00DTW0000000001",
        "FiscalYearStartMonth": start_month,
        "UsesStartDateAsFiscalYearName": is_named_by_start,
    }
    await org.records.write_plain(lambda tx: insert_row(tx, org.obj("Organization"), row))
    deal = await make_deal(org, CloseDate=day)
    year, quarter = expected
    assert await values(org, "Opportunity", deal, "FiscalYear", "FiscalQuarter", "Fiscal") == (
        year,
        quarter,
        f"{year} {quarter}",
    )
    close_ms = (await org.row("Opportunity", deal))["CloseDate"]
    assert isinstance(close_ms, int)
    assert fiscal_quarter(close_ms, start_month, is_named_by_start) == expected


async def test_fiscal_period_moves_with_the_close_date(org: Org) -> None:
    deal = await make_deal(org)
    await change(org, "Opportunity", deal, CloseDate="2027-11-01")
    assert await values(org, "Opportunity", deal, "Fiscal") == ("2027 4",)


async def test_another_fiscal_year_moves_all_opportunities_and_tells_nobody(org: Org) -> None:
    row: dict[str, Value] = {"Id": "00DTW0000000001", "FiscalYearStartMonth": 1, "Name": "Org"}
    await org.records.write_plain(lambda tx: insert_row(tx, org.obj("Organization"), row))
    deal = await make_deal(org)
    await change(org, "Organization", "00DTW0000000001", FiscalYearStartMonth=4)
    assert await values(org, "Opportunity", deal, "Fiscal") == ("2027 1",)
    assert [c.entity for c in org.changes] == ["Organization"]


async def test_stage_change_is_dated_but_the_first_stage_is_not(org: Org) -> None:
    deal = await make_deal(org)
    assert await values(org, "Opportunity", deal, "LastStageChangeDate") == (None,)
    await change(org, "Opportunity", deal, StageName="Qualification")
    assert await values(org, "Opportunity", deal, "LastStageChangeDate") == (NOW_MS - NOW_MS % 1000,)


async def test_lines_price_the_opportunity_and_its_campaign(org: Org) -> None:
    entry = await make_entry(org)
    campaign = await org.make("Campaign", Name="C")
    deal = await make_deal(org, CampaignId=campaign, Amount=7)
    line = await org.make(
        "OpportunityLineItem", OpportunityId=deal, PricebookEntryId=entry, Quantity=3, Discount=10
    )
    names = ("UnitPrice", "ListPrice", "TotalPrice", "Name", "ProductCode")
    assert await values(org, "OpportunityLineItem", line, *names) == (10.0, 10.0, 27.0, "D Pump", "P-1")
    totals = ("HasOpportunityLineItem", "Amount", "TotalOpportunityQuantity", "ExpectedRevenue")
    assert await values(org, "Opportunity", deal, *totals) == (True, 27.0, 3.0, 2.7)
    assert await values(org, "Campaign", campaign, "AmountAllOpportunities") == (27.0,)
    await change(org, "Opportunity", deal, Amount=1, NextStep="call")
    assert await values(org, "Opportunity", deal, "Amount", "NextStep") == (27.0, "call")
    await change(org, "OpportunityLineItem", line, TotalPrice=54)
    assert await values(org, "OpportunityLineItem", line, "UnitPrice", "TotalPrice") == (20.0, 54.0)
    await org.delete("OpportunityLineItem", line)
    assert await values(org, "Opportunity", deal, "HasOpportunityLineItem", "Amount") == (False, 54.0)
    await change(org, "Opportunity", deal, Amount=1)
    assert await values(org, "Opportunity", deal, "Amount") == (1.0,)


async def test_order_and_quote_add_up_their_lines(org: Org) -> None:
    entry = await make_entry(org)
    order = await org.make("Order", EffectiveDate="2026-01-01")
    item = await org.make("OrderItem", OrderId=order, PricebookEntryId=entry, Quantity=2, UnitPrice=8)
    assert await values(org, "OrderItem", item, "TotalPrice", "ListPrice") == (16.0, 10.0)
    assert await values(org, "Order", order, "TotalAmount") == (16.0,)
    account = await org.make("Account", Name="A")
    deal = await make_deal(org, AccountId=account)
    quote = await org.make("Quote", Name="Q", OpportunityId=deal, Tax=5)
    await org.make("QuoteLineItem", QuoteId=quote, PricebookEntryId=entry, Quantity=2, Discount=50)
    names = ("Subtotal", "TotalPrice", "GrandTotal", "LineItemCount", "AccountId")
    assert await values(org, "Quote", quote, *names) == (20.0, 10.0, 15.0, 1, account)


async def test_contract_ends_the_day_before_its_term_is_over(org: Org) -> None:
    account = await org.make("Account", Name="A")
    contract = await org.make("Contract", AccountId=account, StartDate="2024-01-31", ContractTerm=1)
    row = await org.row("Contract", contract)
    assert isinstance(row["EndDate"], int)
    assert row["EndDate"] // DAY_MS == 19_781  # 2024-02-28
    await change(org, "Contract", contract, ContractTerm=None)
    assert await values(org, "Contract", contract, "EndDate") == (None,)
