"""Person accounts: two rows kept in step, the way from business to person and back, and what events say."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.stores import OpenStore
from tests.unit.records.small_org import USER, Org, make_user, open_records
from tidewire.crm.leads import Conversion, Converted, convert_lead
from tidewire.crm.merge import Merged, merge
from tidewire.crm.person_setup import ensure_person_accounts
from tidewire.crm.rules import RULES
from tidewire.errors import (
    DeleteRestricted,
    FieldNotWriteable,
    FieldsInconsistent,
    FieldUnknown,
    MergeRefused,
    ReferenceMissing,
    RequiredFieldMissing,
)
from tidewire.eventlog.backends import make_event_log
from tidewire.events import ChangeType
from tidewire.records.settings import OrgSettings
from tidewire.records.types import Types
from tidewire.records.work import UnitOfWork
from tidewire.schema.fields import checkbox, text
from tidewire.schema.layout import add_fields

PERSONAL = {"IsPersonAccount", "PersonContactId", "PersonEmail", "LastName"}


def switch_on(unit: UnitOfWork, types: Types) -> None:
    types.change_settings(unit.tx, OrgSettings(person_accounts=True))
    ensure_person_accounts(unit, types)


@pytest.fixture
async def org(place: OpenStore) -> AsyncIterator[Org]:
    async with open_records(place) as opened:
        await opened.write(lambda unit: switch_on(unit, opened.types))
        profile = await opened.make("Profile", Name="Standard")
        assert await make_user(opened, "u", profile) == USER
        yield opened


async def do_merge(org: Org, entity: str, master: str, *losers: str, **values: object) -> Merged:
    return await org.write(lambda unit: merge(unit, org.obj(entity), master, losers, values))


async def change(org: Org, entity: str, record_id: str, **values: object) -> None:
    await org.write(lambda unit: unit.update(org.obj(entity), record_id, values))


async def convert(org: Org, lead: str, **asked: object) -> Converted:
    conversion = Conversion(lead_id=lead, converted_status="Closed - Converted", **asked)  # type: ignore[arg-type]
    return await org.write(lambda unit: convert_lead(unit, conversion))


async def record_type(org: Org, *, is_person: bool) -> str:
    name = "P2" if is_person else "B"
    return await org.make(
        "RecordType", Name=name, DeveloperName=name, SobjectType="Account", IsPersonType=is_person
    )


async def make_business(org: Org, **values: object) -> tuple[str, str]:
    """An account that can become a person, and its contact."""
    account = await org.make("Account", Name="Firm", **values)
    contact = await org.make(
        "Contact", LastName="Smith", FirstName="Jane", AccountId=account, Email="j@example.com"
    )
    return account, contact


async def make_person(org: Org, **values: object) -> tuple[str, str]:
    account = await org.make("Account", LastName="Smith", **values)
    return account, str((await org.row("Account", account))["PersonContactId"])


async def test_account_with_a_last_name_is_a_person_in_two_rows(org: Org) -> None:
    account, contact = await make_person(org, FirstName="Jane", PersonEmail="j@example.com", Phone="5")
    assert [(c.entity, c.record_id, c.type) for c in org.changes] == [
        ("Account", account, ChangeType.CREATE),
        ("Contact", contact, ChangeType.CREATE),
    ]
    row, twin = await org.row("Account", account), await org.row("Contact", contact)
    assert (row["Name"], row["IsPersonAccount"]) == ("Jane Smith", True)
    assert (twin["AccountId"], twin["IsPersonAccount"], twin["OwnerId"]) == (account, True, row["OwnerId"])
    assert (twin["Name"], twin["FirstName"], twin["Email"], twin["Phone"]) == (
        "Jane Smith",
        "Jane",
        "j@example.com",
        "5",
    )


async def test_update_of_either_half_reaches_and_stamps_both(org: Org) -> None:
    account, contact = await make_person(org)
    org.clock.advance(5)
    await org.write(lambda unit: unit.update(org.obj("Contact"), contact, {"FirstName": "Jo", "Title": "Dr"}))
    row = await org.row("Account", account)
    assert (row["Name"], row["FirstName"], row["PersonTitle"]) == ("Jo Smith", "Jo", "Dr")
    org.clock.advance(5)
    await org.write(lambda unit: unit.update(org.obj("Account"), account, {"Industry": "Retail"}))
    first, second = org.changes
    assert first.changed == ("Industry", "LastModifiedDate", "SystemModstamp")
    assert second.changed == ("LastModifiedDate", "SystemModstamp")
    await org.write(lambda unit: unit.update(org.obj("Account"), account, {"LastName": "Doe"}))
    twin = await org.row("Contact", contact)
    assert (twin["LastName"], twin["Name"]) == ("Doe", "Jo Doe")
    assert (await org.row("Account", account))["Name"] == "Jo Doe"


async def test_person_goes_and_comes_back_whole(org: Org) -> None:
    account, contact = await make_person(org)
    with pytest.raises(DeleteRestricted):
        await org.delete("Contact", contact)
    await org.delete("Account", account)
    assert [(c.record_id, c.type) for c in org.changes] == [
        (account, ChangeType.DELETE),
        (contact, ChangeType.DELETE),
    ]
    await org.undelete("Account", account)
    assert [c.type for c in org.changes] == [ChangeType.UNDELETE] * 2


async def test_fields_of_the_other_kind_of_account_are_refused(org: Org) -> None:
    for values in ({"Name": "A", "LastName": "B"}, {"Name": "A", "PersonEmail": "a@example.com"}):
        with pytest.raises(FieldNotWriteable):
            await org.make("Account", **values)
    business = await org.make("Account", Name="A", FirstName=None, PersonDoNotCall=False)
    person, contact = await make_person(org)
    for entity, record_id, values in (
        ("Account", business, {"LastName": "B"}),
        ("Account", person, {"Name": "B"}),
        ("Contact", contact, {"AccountId": business}),
    ):
        with pytest.raises(FieldNotWriteable):
            await org.write(lambda unit, e=entity, i=record_id, v=values: unit.update(org.obj(e), i, v))  # type: ignore[misc]
    with pytest.raises(RequiredFieldMissing):
        await org.write(lambda unit: unit.update(org.obj("Account"), person, {"LastName": ""}))


async def test_persons_merge_with_persons_only_and_both_rows_follow(org: Org) -> None:
    master, master_contact = await make_person(org)
    loser, loser_contact = await make_person(org)
    business = await org.make("Account", Name="A")
    case = await org.make("Case", ContactId=loser_contact, AccountId=loser)
    with pytest.raises(MergeRefused):
        await do_merge(org, "Account", master, business)
    with pytest.raises(MergeRefused):
        await do_merge(org, "Contact", master_contact, loser_contact)
    merged = await do_merge(org, "Account", master, loser)
    assert merged.updated_related_ids == (case,)
    row = await org.row("Case", case)
    assert (row["ContactId"], row["AccountId"]) == (master_contact, master)
    assert (await org.row("Contact", loser_contact))["IsDeleted"]
    assert not (await org.row("Contact", master_contact))["IsDeleted"]
    assert (await org.row("Account", master))["PersonContactId"] == master_contact


async def test_org_without_the_setting_has_none_of_the_fields(place: OpenStore) -> None:
    async with open_records(place) as plain:
        names = {f.name for f in plain.obj("Account").fields}
        assert not names & PERSONAL
        assert plain.obj("Contact").try_field("IsPersonAccount") is None
        with pytest.raises(FieldUnknown):
            await plain.make("Account", LastName="Smith")
        with pytest.raises(RequiredFieldMissing):
            await plain.make("Lead", LastName="Smith")


async def test_setting_is_kept_over_a_restart(org: Org) -> None:
    fresh = Types(make_event_log(), RULES)
    await org.store.read(fresh.load)
    assert {f.name for f in fresh.catalog.object("Account").fields} >= PERSONAL
    assert [f.column for f in fresh.catalog.object("Account").fields] == [
        f.column for f in org.obj("Account").fields
    ]


async def test_person_gets_the_persons_record_type_and_a_record_type_decides(org: Org) -> None:
    account, _ = await make_person(org)
    standard = (await org.row("Account", account))["RecordTypeId"]
    assert (await org.row("RecordType", str(standard)))["DeveloperName"] == "PersonAccount"
    person, business = await record_type(org, is_person=True), await record_type(org, is_person=False)
    other = await org.make("Account", LastName="Doe", RecordTypeId=person)
    assert (await org.row("Account", other))["IsPersonAccount"]
    with pytest.raises(FieldNotWriteable):
        await org.make("Account", LastName="Doe", RecordTypeId=business)
    with pytest.raises(RequiredFieldMissing):
        await org.make("Account", FirstName="Jo", RecordTypeId=person)
    await change(org, "Account", other, RecordTypeId=standard, Phone="1")
    assert (await org.row("Account", other))["Phone"] == "1"


async def test_business_account_becomes_a_person_with_its_only_contact(org: Org) -> None:
    account, contact = await make_business(org)
    person = await record_type(org, is_person=True)
    await change(org, "Account", account, RecordTypeId=person)
    assert [(c.entity, c.type) for c in org.changes] == [("Account", ChangeType.UPDATE)]
    assert "RecordTypeId" in org.changes[0].changed
    row, twin = await org.row("Account", account), await org.row("Contact", contact)
    assert (row["IsPersonAccount"], row["PersonContactId"], row["Name"]) == (True, contact, "Jane Smith")
    assert (row["PersonEmail"], row["LastName"], twin["IsPersonAccount"]) == ("j@example.com", "Smith", True)
    await change(org, "Account", account, FirstName="Jo")
    assert (await org.row("Contact", contact))["FirstName"] == "Jo"


async def test_common_fields_of_the_two_become_the_same(org: Org) -> None:
    account, contact = await make_business(org, Phone="1")
    await change(org, "Contact", contact, Phone="2", Fax="3")
    await change(org, "Account", account, RecordTypeId=await record_type(org, is_person=True))
    row, twin = await org.row("Account", account), await org.row("Contact", contact)
    assert (row["Phone"], row["Fax"]) == (twin["Phone"], twin["Fax"]) == ("1", "3")
    assert [c.entity for c in org.changes] == ["Account", "Contact"]


async def test_person_becomes_a_business_and_loses_what_only_persons_have(org: Org) -> None:
    account, contact = await make_person(org, PersonEmail="j@example.com", PersonDoNotCall=True, Phone="1")
    await change(org, "Account", account, RecordTypeId=await record_type(org, is_person=False))
    assert [c.entity for c in org.changes] == ["Account"]
    row, twin = await org.row("Account", account), await org.row("Contact", contact)
    assert (row["IsPersonAccount"], row["PersonContactId"], row["LastName"]) == (False, None, None)
    assert (row["PersonEmail"], row["PersonDoNotCall"], row["Name"], row["Phone"]) == (
        None,
        False,
        "Smith",
        "1",
    )
    assert (twin["IsPersonAccount"], twin["AccountId"], twin["Email"]) == (False, account, "j@example.com")
    await change(org, "Account", account, Name="Firm")
    await change(org, "Contact", contact, LastName="Doe")
    assert (await org.row("Account", account))["Name"] == "Firm"


async def test_account_that_is_not_alone_with_one_contact_cannot_become_a_person(org: Org) -> None:
    person = await record_type(org, is_person=True)
    lonely = await org.make("Account", Name="A")
    crowded, _ = await make_business(org)
    await org.make("Contact", LastName="Second", AccountId=crowded)
    parent, _ = await make_business(org)
    child, _ = await make_business(org, ParentId=parent)
    managed, worker = await make_business(org)
    manager = await org.make("Contact", LastName="M")
    await change(org, "Contact", worker, ReportsToId=manager)
    for account in (lonely, crowded, parent, child, managed):
        with pytest.raises(FieldsInconsistent, match="cannot be converted"):
            await change(org, "Account", account, RecordTypeId=person)
        assert not (await org.row("Account", account))["IsPersonAccount"]
    good, _ = await make_business(org)
    with pytest.raises(FieldNotWriteable, match="additional fields"):
        await change(org, "Account", good, RecordTypeId=person, Phone="1")


async def test_person_has_no_other_contacts(org: Org) -> None:
    account, _ = await make_person(org)
    with pytest.raises(FieldsInconsistent):
        await org.make("Contact", LastName="X", AccountId=account)
    loose = await org.make("Contact", LastName="X")
    with pytest.raises(FieldsInconsistent):
        await change(org, "Contact", loose, AccountId=account)


async def test_custom_field_of_contacts_is_on_person_accounts_too(org: Org) -> None:
    own = (text("Code__c", "Code", 10), checkbox("Vip__c", "VIP"))
    business = await org.make("Account", Name="B")
    await org.add(add_fields(org.obj("Contact"), own))
    account, contact = await make_person(org, Code__pc="x")
    row, twin = await org.row("Account", account), await org.row("Contact", contact)
    assert (row["Code__pc"], row["Vip__pc"], twin["Code__c"], twin["Vip__c"]) == ("x", False, "x", False)
    await change(org, "Contact", contact, Code__c="y", Vip__c=True)
    row = await org.row("Account", account)
    assert (row["Code__pc"], row["Vip__pc"]) == ("y", True)
    with pytest.raises(FieldNotWriteable):
        await change(org, "Account", business, Code__pc="z")
    fresh = Types(make_event_log(), RULES)
    await org.store.read(fresh.load)
    field = fresh.catalog.object("Account").try_field("Code__pc")
    assert field is not None
    assert (field.column, field.custom) == (org.obj("Account").by_name["code__pc"].column, True)


async def test_lead_without_a_company_becomes_a_person(org: Org) -> None:
    lead = await org.make(
        "Lead",
        LastName="Smith",
        FirstName="Jane",
        Email="j@example.com",
        Phone="1",
        City="Bonn",
        Title="T" * 128,
    )
    made = await convert(org, lead)
    assert [(c.entity, c.type) for c in org.changes] == [
        ("Account", ChangeType.CREATE),
        ("Contact", ChangeType.CREATE),
        ("Opportunity", ChangeType.CREATE),
        ("Lead", ChangeType.UPDATE),
    ]
    row = await org.row("Account", made.account_id)
    assert (row["Name"], row["IsPersonAccount"], row["PersonContactId"]) == (
        "Jane Smith",
        True,
        made.contact_id,
    )
    assert (row["PersonEmail"], row["Phone"], row["PersonMailingCity"]) == ("j@example.com", "1", "Bonn")
    assert row["PersonTitle"] == "T" * 80
    assert (await org.row("Opportunity", str(made.opportunity_id)))["Name"] == "Jane Smith-"


async def test_lead_joins_a_person_and_only_its_own_contact(org: Org) -> None:
    account, contact = await make_person(org)
    other = await org.make("Lead", LastName="X", Email="x@example.com")
    stranger = await org.make("Contact", LastName="Y")
    with pytest.raises(ReferenceMissing):
        await convert(org, other, account_id=account, contact_id=stranger)
    made = await convert(org, other, account_id=account, makes_opportunity=False)
    assert made == Converted(other, account, contact, None)
    assert (await org.row("Account", account))["PersonEmail"] == "x@example.com"
