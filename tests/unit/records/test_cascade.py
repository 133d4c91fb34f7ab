"""Deletes that take other records along, and undeletes that bring them back."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from tests.stores import OpenStore
from tests.unit.records.small_org import Org, open_records
from tidewire.errors import DeleteRestricted, DuplicateValue, RecordNotFound, UndeleteRefused
from tidewire.events import Change, ChangeType, CommitContext, Value
from tidewire.ids import make_id
from tidewire.records.recycle_bin import BIN_RETENTION_MS, purge_expired
from tidewire.records.work import UnitOfWork
from tidewire.schema.fields import detail, lookup, text
from tidewire.schema.layout import custom_object
from tidewire.schema.model import Field, ObjectType


def make_object(name: str, number: int, *fields: Field) -> ObjectType:
    return custom_object(name, name[:-3], name[:-3] + "s", f"a0{number}", 1000 + number, None, fields)


@pytest.fixture
async def org(place: OpenStore) -> AsyncIterator[Org]:
    async with open_records(place) as opened:
        await opened.add(
            make_object("Order__c", 1, text("Code__c", "Code", 20, unique=True)),
            make_object("Line__c", 2, detail("Order__c", "Order", "Order__c", "Order__r", "Lines__r")),
            make_object("Part__c", 3, detail("Line__c", "Line", "Line__c", "Line__r", "Parts__r")),
            make_object("Note__c", 4, lookup("Order__c", "Order", "Order__c", "Order__r")),
            make_object(
                "Invoice__c",
                5,
                lookup("Order__c", "Order", "Order__c", "Order__r", delete_constraint="Restrict"),
                lookup("Line__c", "Line", "Line__c", "Line__r", delete_constraint="Cascade"),
            ),
            make_object("Stamp__c", 6, lookup("Note__c", "Note", "Note__c", "Note__r", required=True)),
        )
        yield opened


async def test_delete_takes_details_of_details_along_the_root_first(org: Org) -> None:
    order = await org.make("Order__c", Name="O")
    line = await org.make("Line__c", Order__c=order)
    part = await org.make("Part__c", Line__c=line)
    other = await org.make("Order__c", Name="other")
    kept = await org.make("Line__c", Order__c=other)
    await org.delete("Order__c", order)
    assert [(c.record_id, c.type) for c in org.changes] == [
        (i, ChangeType.DELETE) for i in (order, line, part)
    ]
    assert (await org.row("Part__c", part))["IsDeleted"]
    assert not (await org.row("Line__c", kept))["IsDeleted"]


async def test_details_that_go_along_are_told_as_they_were(org: Org) -> None:
    told: dict[str, dict[str, Value]] = {}

    def look(unit: UnitOfWork, changes: Sequence[Change], context: CommitContext) -> None:
        told.update({change.record_id: dict(change.before or {}) for change in changes})

    order = await org.make("Order__c", Name="O")
    lines = [await org.make("Line__c", Name=f"L{n}", Order__c=order) for n in range(3)]
    before = {line: await org.row("Line__c", line) for line in lines}
    org.clock.advance(5)
    org.records.add_hook(look)
    await org.delete("Order__c", order)
    assert {line: told[line] for line in lines} == before
    assert [(await org.row("Line__c", line))["IsDeleted"] for line in lines] == [True] * 3


async def test_delete_clears_plain_lookups_as_updates(org: Org) -> None:
    order = await org.make("Order__c")
    note = await org.make("Note__c", Name="N", Order__c=order)
    org.clock.advance(2)
    await org.delete("Order__c", order)
    deleted, cleared = org.changes
    assert (deleted.type, cleared.type, cleared.record_id) == (ChangeType.DELETE, ChangeType.UPDATE, note)
    assert cleared.changed == ("LastModifiedDate", "SystemModstamp", "Order__c")
    assert (await org.row("Note__c", note))["Order__c"] is None


async def test_delete_is_refused_by_a_restricting_lookup_and_changes_nothing(org: Org) -> None:
    order = await org.make("Order__c", Name="O-1")
    line = await org.make("Line__c", Order__c=order)
    note = await org.make("Note__c", Order__c=order)
    invoice = await org.make("Invoice__c", Order__c=order)
    with pytest.raises(DeleteRestricted, match=invoice) as caught:
        await org.delete("Order__c", order)
    assert caught.value.details == {"record_id": order, "entity": "Invoice__c", "child_id": invoice}
    assert org.changes == []
    assert not (await org.row("Line__c", line))["IsDeleted"]
    assert (await org.row("Note__c", note))["Order__c"] == order


async def test_restricting_lookup_of_a_record_that_goes_along_does_not_count(org: Org) -> None:
    order = await org.make("Order__c")
    line = await org.make("Line__c", Order__c=order)
    invoice = await org.make("Invoice__c", Order__c=order, Line__c=line)
    await org.delete("Order__c", order)
    assert {c.record_id for c in org.changes} == {order, line, invoice}


async def test_required_lookup_restricts(org: Org) -> None:
    note = await org.make("Note__c")
    await org.make("Stamp__c", Note__c=note)
    with pytest.raises(DeleteRestricted):
        await org.delete("Note__c", note)


async def test_account_takes_contacts_opportunities_and_activities_along(org: Org) -> None:
    account = await org.make("Account", Name="A")
    contact = await org.make("Contact", LastName="C", AccountId=account)
    deal = await org.make(
        "Opportunity", Name="D", StageName="Prospecting", CloseDate="2030-01-01", AccountId=account
    )
    task = await org.make("Task", WhatId=deal, Status="Not Started", Priority="Normal")
    child = await org.make("Account", Name="B", ParentId=account)
    await org.delete("Account", account)
    gone = {c.record_id for c in org.changes if c.type is ChangeType.DELETE}
    assert gone == {account, contact, deal, task}
    assert (await org.row("Account", child))["ParentId"] is None


async def test_undelete_brings_the_whole_delete_back_with_full_rows(org: Org) -> None:
    order = await org.make("Order__c", Name="O", Code__c="X")
    line = await org.make("Line__c", Order__c=order)
    note = await org.make("Note__c", Order__c=order)
    await org.delete("Order__c", order)
    await org.undelete("Order__c", order)
    assert [(c.record_id, c.type) for c in org.changes] == [
        (order, ChangeType.UNDELETE),
        (line, ChangeType.UNDELETE),
        (note, ChangeType.UPDATE),
    ]
    after = org.changes[0].after
    assert after is not None
    assert (after["Name"], after["Code__c"], after["IsDeleted"]) == ("O", "X", False)
    assert (await org.row("Note__c", note))["Order__c"] == order
    with pytest.raises(UndeleteRefused):
        await org.undelete("Order__c", order)


async def test_undelete_leaves_alone_what_another_delete_took_and_what_was_set_since(org: Org) -> None:
    order = await org.make("Order__c")
    other = await org.make("Order__c")
    early = await org.make("Line__c", Order__c=order)
    note = await org.make("Note__c", Order__c=order)
    await org.delete("Line__c", early)
    await org.delete("Order__c", order)
    await org.write(lambda unit: unit.update(org.obj("Note__c"), note, {"Order__c": other}))
    await org.undelete("Order__c", order)
    assert [c.record_id for c in org.changes] == [order]
    assert (await org.row("Line__c", early))["IsDeleted"]
    assert (await org.row("Note__c", note))["Order__c"] == other


async def test_undelete_of_a_detail_whose_master_is_deleted_is_refused(org: Org) -> None:
    order = await org.make("Order__c")
    line = await org.make("Line__c", Order__c=order)
    await org.delete("Order__c", order)
    with pytest.raises(UndeleteRefused, match="Order"):
        await org.undelete("Line__c", line)


async def test_contact_can_come_back_without_its_account(org: Org) -> None:
    account = await org.make("Account", Name="A")
    contact = await org.make("Contact", LastName="C", AccountId=account)
    case = await org.make("Case", ContactId=contact)
    await org.delete("Account", account)
    await org.undelete("Contact", contact)
    assert (await org.row("Contact", contact))["AccountId"] is None
    assert (await org.row("Case", case))["ContactId"] == contact
    await org.undelete("Account", account)
    assert [c.record_id for c in org.changes] == [account, case]  # the case had its contact's account


async def test_undelete_is_refused_when_its_unique_value_was_taken(org: Org) -> None:
    order = await org.make("Order__c", Code__c="X")
    await org.delete("Order__c", order)
    await org.make("Order__c", Code__c="x")
    with pytest.raises(DuplicateValue):
        await org.undelete("Order__c", order)
    assert (await org.row("Order__c", order))["IsDeleted"]


async def test_undelete_of_living_missing_and_setup_records_is_refused(org: Org) -> None:
    order = await org.make("Order__c")
    with pytest.raises(UndeleteRefused):
        await org.undelete("Order__c", order)
    with pytest.raises(RecordNotFound):
        await org.undelete("Order__c", make_id("a01", 99))
    topic = await org.make("PushTopic", Name="T", Query="SELECT Id FROM Account", ApiVersion=50)
    await org.delete("PushTopic", topic)
    with pytest.raises(UndeleteRefused):
        await org.undelete("PushTopic", topic)


async def test_delete_and_undelete_in_one_transaction_is_an_update(org: Org) -> None:
    order = await org.make("Order__c", Name="O")
    line = await org.make("Line__c", Order__c=order)
    org.clock.advance(2)

    def work(unit: UnitOfWork) -> None:
        unit.delete(org.obj("Order__c"), order)
        unit.undelete(org.obj("Order__c"), order)

    await org.write(work)
    assert [(c.record_id, c.type) for c in org.changes] == [
        (order, ChangeType.UPDATE),
        (line, ChangeType.UPDATE),
    ]
    assert org.changes[0].changed == ("LastModifiedDate", "SystemModstamp")


async def test_undelete_and_delete_in_one_transaction_is_nothing(org: Org) -> None:
    order = await org.make("Order__c")
    await org.delete("Order__c", order)

    def work(unit: UnitOfWork) -> None:
        unit.undelete(org.obj("Order__c"), order)
        unit.update(org.obj("Order__c"), order, {"Name": "seen by nobody"})
        unit.delete(org.obj("Order__c"), order)

    await org.write(work)
    assert org.changes == []
    await org.undelete("Order__c", order)


async def test_purge_removes_the_rows_and_tells_nobody(org: Org) -> None:
    order = await org.make("Order__c")
    await org.make("Line__c", Order__c=order)
    with pytest.raises(UndeleteRefused):
        await org.write(lambda unit: unit.purge(org.obj("Order__c"), order))
    await org.delete("Order__c", order)
    await org.write(lambda unit: unit.purge(org.obj("Order__c"), order))
    assert org.changes == []
    for entity in ("Order__c", "Line__c"):
        assert await org.store.read(lambda r, e=entity: r.execute(f"SELECT id FROM {org.obj(e).table}")) == []  # type: ignore[misc]
    assert await org.store.read(lambda r: r.execute("SELECT root_id FROM recycle_bin")) == []
    with pytest.raises(RecordNotFound):
        await org.undelete("Order__c", order)


async def test_bin_keeps_deletes_for_fifteen_days(org: Org) -> None:
    old = await org.make("Order__c")
    await org.make("Line__c", Order__c=old)
    await org.delete("Order__c", old)
    org.clock.advance(60)
    young = await org.make("Order__c")
    await org.delete("Order__c", young)

    async def expire(now_ms: int) -> int:
        return await org.records.write_plain(lambda tx: purge_expired(tx, org.types.catalog, now_ms))

    deleted_ms = org.clock.now_ms() - 60_000
    assert await expire(deleted_ms + BIN_RETENTION_MS) == 0
    assert await expire(deleted_ms + BIN_RETENTION_MS + 1) == 2
    with pytest.raises(RecordNotFound):
        await org.undelete("Order__c", old)
    await org.undelete("Order__c", young)


async def test_delete_of_many_children_reads_them_in_chunks(org: Org) -> None:
    order = await org.make("Order__c")

    def fill(unit: UnitOfWork) -> None:
        for _ in range(501):
            line = unit.create(org.obj("Line__c"), {"Order__c": order})
            unit.create(org.obj("Part__c"), {"Line__c": line})

    await org.write(fill)
    await org.delete("Order__c", order)
    assert len(org.changes) == 1 + 2 * 501
