"""Merging records."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.stores import OpenStore
from tests.unit.records.small_org import Org, open_records
from tidewire.crm.merge import Merged, merge
from tidewire.errors import (
    MergeRefused,
    RecordDeleted,
    RecordNotFound,
    RequiredFieldMissing,
)
from tidewire.events import ChangeType


@pytest.fixture
async def org(place: OpenStore) -> AsyncIterator[Org]:
    async with open_records(place) as opened:
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
