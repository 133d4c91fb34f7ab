"""Units of work on a real store: validation, audit fields, and the changes they add up to."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

import pytest

from tests.stores import OpenStore
from tests.unit.records.small_org import NOW_MS, USER, Org, open_records
from tidewire.errors import (
    DuplicateValue,
    FieldNotWriteable,
    FieldUnknown,
    RecordDeleted,
    RecordNotFound,
    ReferenceMissing,
    ReferenceWrongType,
    RequiredFieldMissing,
)
from tidewire.events import Change, ChangeType, CommitContext, Value
from tidewire.ids import make_id
from tidewire.records.table import try_read_row
from tidewire.records.work import UnitOfWork
from tidewire.schema.field_types import FieldType
from tidewire.schema.layout import custom_object
from tidewire.schema.model import Field


@pytest.fixture
async def org(place: OpenStore) -> AsyncIterator[Org]:
    async with open_records(place) as opened:
        yield opened


async def test_create_sets_id_owner_and_audit_fields_to_the_second(org: Org) -> None:
    record_id = await org.make("Account", Name="Acme")
    row = await org.store.read(lambda r: try_read_row(r, org.obj("Account"), record_id))
    assert row is not None
    assert (row["Name"], row["OwnerId"], row["CreatedById"]) == ("Acme", USER, USER)
    assert row["CreatedDate"] == row["LastModifiedDate"] == row["SystemModstamp"] == 1_700_000_000_000
    assert row["IsDeleted"] is False


async def test_create_tells_one_change_with_its_data_and_context(org: Org) -> None:
    record_id = await org.make("Account", Name="Acme")
    (change,) = org.changes
    assert (change.entity, change.record_id, change.type) == ("Account", record_id, ChangeType.CREATE)
    assert (change.before, change.changed, change.sequence) == (None, (), 1)
    assert change.after is not None
    assert change.after["Name"] == "Acme"
    context = org.contexts[-1]
    assert (context.user_id, context.origin, context.commit_ms) == (USER, "here", NOW_MS)
    assert len(context.transaction_key) == 36


async def test_update_tells_exactly_the_fields_that_differ(org: Org) -> None:
    record_id = await org.make("Account", Name="Acme", Phone="1")
    org.clock.advance(5)
    await org.write(lambda unit: unit.update(org.obj("Account"), record_id, {"Phone": "2", "Name": "Acme"}))
    (change,) = org.changes
    assert change.changed == ("Phone", "LastModifiedDate", "SystemModstamp")
    assert change.before is not None
    assert change.after is not None
    assert (change.before["Phone"], change.after["Phone"]) == ("1", "2")


async def test_several_statements_on_one_record_are_one_change_of_the_first_kind(org: Org) -> None:
    def work(unit: UnitOfWork) -> None:
        account = org.obj("Account")
        record_id = unit.create(account, {"Name": "A"})
        unit.update(account, record_id, {"Name": "B"})
        other = unit.create(account, {"Name": "C"})
        unit.update(account, record_id, {"Phone": "9"})
        unit.delete(account, other)

    await org.write(work)
    (change,) = org.changes
    assert change.type is ChangeType.CREATE
    assert change.after is not None
    assert (change.after["Name"], change.after["Phone"]) == ("B", "9")


async def test_update_then_delete_in_one_transaction_is_a_delete(org: Org) -> None:
    record_id = await org.make("Account", Name="A")

    def work(unit: UnitOfWork) -> None:
        unit.update(org.obj("Account"), record_id, {"Name": "B"})
        unit.delete(org.obj("Account"), record_id)

    await org.write(work)
    (change,) = org.changes
    assert (change.type, change.after) == (ChangeType.DELETE, None)
    assert change.before is not None
    assert change.before["Name"] == "A"


async def test_sequence_counts_over_all_objects(org: Org) -> None:
    def work(unit: UnitOfWork) -> None:
        account = unit.create(org.obj("Account"), {"Name": "A"})
        unit.create(org.obj("Contact"), {"LastName": "L", "AccountId": account})
        unit.create(org.obj("Account"), {"Name": "B"})

    await org.write(work)
    assert [(c.entity, c.sequence) for c in org.changes] == [("Account", 1), ("Contact", 2), ("Account", 3)]


async def test_commit_numbers_rise(org: Org) -> None:
    await org.make("Account", Name="A")
    await org.make("Account", Name="B")
    numbers = [c.commit_number for c in org.contexts]
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 2


async def test_deleted_record_is_gone_for_reads_and_writes(org: Org) -> None:
    account = org.obj("Account")
    record_id = await org.make("Account", Name="A")
    await org.write(lambda unit: unit.delete(account, record_id))
    with pytest.raises(RecordDeleted):
        await org.write(lambda unit: unit.update(account, record_id, {"Name": "B"}))
    with pytest.raises(RecordDeleted):
        await org.write(lambda unit: unit.delete(account, record_id))
    with pytest.raises(RecordNotFound):
        await org.write(lambda unit: unit.delete(account, make_id("001", 999)))


@pytest.mark.parametrize(
    "values, error",
    [
        ({}, RequiredFieldMissing),
        ({"Name": None}, RequiredFieldMissing),
        ({"Name": "  "}, RequiredFieldMissing),
        ({"Name": "A", "Nope": 1}, FieldUnknown),
        ({"Name": "A", "Id": make_id("001", 5)}, FieldUnknown),
        ({"Name": "A", "CreatedDate": "2020-01-01T00:00:00Z"}, FieldNotWriteable),
        ({"Name": "A", "BillingAddress": {"city": "x"}}, FieldNotWriteable),
        ({"Name": "A", "ParentId": make_id("001", 77)}, ReferenceMissing),
        ({"Name": "A", "ParentId": make_id("003", 1)}, ReferenceWrongType),
    ],
)
async def test_bad_create_is_refused_and_leaves_nothing(
    org: Org, values: dict[str, object], error: type[Exception]
) -> None:
    with pytest.raises(error):
        await org.write(lambda unit: unit.create(org.obj("Account"), values))
    assert org.changes == []
    rows = await org.store.read(lambda r: r.execute(f"SELECT id FROM {org.obj('Account').table}"))
    assert rows == []


async def test_required_field_cannot_be_emptied(org: Org) -> None:
    record_id = await org.make("Account", Name="A")
    with pytest.raises(RequiredFieldMissing):
        await org.write(lambda unit: unit.update(org.obj("Account"), record_id, {"Name": ""}))


async def test_unique_field_is_unique_in_any_letter_case_until_deleted(org: Org) -> None:
    topics = org.obj("PushTopic")
    values = {"Name": "Straße", "Query": "SELECT Id FROM Account", "ApiVersion": 50}
    first = await org.write(lambda unit: unit.create(topics, values))
    with pytest.raises(DuplicateValue) as caught:
        await org.write(lambda unit: unit.create(topics, values | {"Name": "STRASSE"}))
    assert caught.value.details["record_id"] == first
    await org.write(lambda unit: unit.update(topics, first, {"Name": "STRASSE"}))
    await org.write(lambda unit: unit.delete(topics, first))
    await org.write(lambda unit: unit.create(topics, values))


async def test_reference_to_a_deleted_record_is_refused(org: Org) -> None:
    parent = await org.make("Account", Name="P")
    await org.write(lambda unit: unit.delete(org.obj("Account"), parent))
    with pytest.raises(ReferenceMissing):
        await org.make("Account", Name="C", ParentId=parent)


async def test_custom_object_has_auto_numbers_and_survives_a_restart(org: Org, place: OpenStore) -> None:
    name_field = Field(name="Name", label="No", type=FieldType.AUTO_NUMBER, display_format="INV-{0000}")
    amount = Field(name="Amount__c", label="Amount", type=FieldType.CURRENCY, precision=18, scale=2)
    invoice = custom_object("Invoice__c", "Invoice", "Invoices", "a00", 1001, name_field, (amount,))
    await org.records.write_plain(lambda tx: org.types.change(tx, objects=[invoice], captured=["Invoice__c"]))
    first = await org.make("Invoice__c", Amount__c=1.005)
    second = await org.make("invoice__C", amount__c="7")
    org.close()
    again = Org(place)
    await again.store.read(again.types.load)
    assert again.types.catalog.captured == {"Invoice__c"}
    assert "Invoice__ChangeEvent" in again.types.schemas
    rows = [
        await again.store.read(lambda r, i=i: try_read_row(r, again.obj("Invoice__c"), i))  # type: ignore[misc]
        for i in (first, second)
    ]
    assert [(r["Name"], r["Amount__c"]) for r in rows if r] == [("INV-0001", 1.01), ("INV-0002", 7.0)]
    again.close()


async def test_custom_record_without_a_name_goes_by_its_id(org: Org) -> None:
    thing = custom_object("Thing__c", "Thing", "Things", "a00", 1001, None, ())
    await org.records.write_plain(lambda tx: org.types.change(tx, objects=[thing]))
    unnamed = await org.make("Thing__c")
    named = await org.make("Thing__c", Name="N")

    async def names() -> list[Value]:
        rows = [await org.row("Thing__c", record_id) for record_id in (unnamed, named)]
        return [row["Name"] for row in rows]

    assert await names() == [unnamed[:15], "N"]
    await org.write(lambda unit: unit.update(org.obj("Thing__c"), named, {"Name": ""}))
    assert await names() == [unnamed[:15], named[:15]]


async def test_failing_hook_undoes_the_whole_request(org: Org) -> None:
    def refuse(unit: UnitOfWork, changes: Sequence[Change], context: CommitContext) -> None:
        raise DuplicateValue("no", fields=[])

    org.records.add_hook(refuse)
    with pytest.raises(DuplicateValue):
        await org.make("Account", Name="A")
    assert await org.store.read(lambda r: r.execute(f"SELECT id FROM {org.obj('Account').table}")) == []
