"""Merging records, and person accounts, whose two rows are kept in step."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.unit.records.small_org import Org, open_records
from tidewire.errors import (
    DeleteRestricted,
    FieldNotWriteable,
    MergeRefused,
    RecordDeleted,
    RecordNotFound,
    RequiredFieldMissing,
)
from tidewire.events import ChangeType
from tidewire.records.merge import Merged, merge


@pytest.fixture
async def org(tmp_path: Path) -> AsyncIterator[Org]:
    async with open_records(tmp_path / "org.db") as opened:
        yield opened


async def do_merge(org: Org, entity: str, master: str, *losers: str, **values: object) -> Merged:
    return await org.write(lambda unit: merge(unit, org.obj(entity), master, losers, values))


async def test_merge_moves_children_and_bins_the_losers_under_the_master(org: Org) -> None:
    master = await org.make("Account", Name="M", Phone="1")
    first = await org.make("Account", Name="A", Phone="2")
    second = await org.make("Account", Name="B", ParentId=first)
    contact = await org.make("Contact", LastName="C", AccountId=first)
    child = await org.make("Account", Name="D", ParentId=second)
    merged = await do_merge(org, "Account", master, first, second, Phone="2")
    assert merged == Merged(master, (first, second), (child, contact))
    row = await org.row("Account", master)
    assert (row["Name"], row["Phone"]) == ("M", "2")
    assert (await org.row("Contact", contact))["AccountId"] == master
    assert (await org.row("Account", child))["ParentId"] == master
    loser = await org.row("Account", first)
    assert (loser["IsDeleted"], loser["MasterRecordId"]) == (True, master)
    told = {c.record_id: c.type for c in org.changes}
    assert told == {
        master: ChangeType.UPDATE,
        contact: ChangeType.UPDATE,
        child: ChangeType.UPDATE,
        first: ChangeType.DELETE,
        second: ChangeType.DELETE,
    }


async def test_merged_master_is_not_left_below_itself(org: Org) -> None:
    loser = await org.make("Account", Name="L")
    master = await org.make("Account", Name="M", ParentId=loser)
    await do_merge(org, "Account", master, loser)
    assert (await org.row("Account", master))["ParentId"] is None


async def test_undeleted_loser_forgets_the_master_and_gets_no_children_back(org: Org) -> None:
    master = await org.make("Account", Name="M")
    loser = await org.make("Account", Name="L")
    contact = await org.make("Contact", LastName="C", AccountId=loser)
    await do_merge(org, "Account", master, loser)
    await org.undelete("Account", loser)
    assert (await org.row("Account", loser))["MasterRecordId"] is None
    assert (await org.row("Contact", contact))["AccountId"] == master


@pytest.mark.parametrize("entity, values", [("Contact", {"LastName": "X"}), ("Case", {"Subject": "X"})])
async def test_contacts_and_cases_merge_too(org: Org, entity: str, values: dict[str, object]) -> None:
    master, loser = await org.make(entity, **values), await org.make(entity, **values)
    await do_merge(org, entity, master, loser)
    assert (await org.row(entity, loser))["MasterRecordId"] == master


async def test_impossible_merges_are_refused_and_change_nothing(org: Org) -> None:
    account = await org.make("Account", Name="A")
    others = [await org.make("Account", Name="B") for _ in range(3)]
    gone = await org.make("Account", Name="G")
    await org.delete("Account", gone)
    deal = await org.make("Opportunity", Name="O", StageName="Prospecting", CloseDate="2030-01-01")
    for losers in ([], others, [account], [others[0], others[0]]):
        with pytest.raises(MergeRefused):
            await do_merge(org, "Account", account, *losers)
    with pytest.raises(MergeRefused):
        await do_merge(org, "Opportunity", deal, deal)
    with pytest.raises(RecordDeleted):
        await do_merge(org, "Account", account, gone)
    with pytest.raises(RecordNotFound):
        await do_merge(org, "Account", account, deal)
    with pytest.raises(RequiredFieldMissing):
        await do_merge(org, "Account", account, others[0], Name="")
    assert not (await org.row("Account", others[0]))["IsDeleted"]


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
