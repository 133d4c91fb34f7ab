"""Records as one user may use them."""

from __future__ import annotations

import gc
import weakref

import pytest

from tests.orgs import TestOrg
from tidewire.errors import (
    AccessDenied,
    FieldNotWriteable,
    FieldUnknown,
    ObjectUnknown,
    PayloadInvalid,
    RecordDeleted,
    RequiredFieldMissing,
    SchemaUnknown,
    TopicUnknown,
)
from tidewire.gate.gate import Gate
from tidewire.gate.requests import Call, Write
from tidewire.records.work import UnitOfWork

ORDER_EVENT = {"events": {"Order__e": {"fields": {"Number__c": {"type": "Text", "length": 20}}}}}


async def test_administrator_reads_written_values(org: TestOrg) -> None:
    record_id = await org.make_account(Phone="1", AnnualRevenue=5)
    rows = await org.gate.read(org.admin, "account", record_id[:15], None)
    assert rows.rows[0]["Phone"] == "1"
    assert "AnnualRevenue" in [f.name for f in rows.columns]
    found = await org.gate.query(org.admin, "SELECT Name, AnnualRevenue FROM Account WHERE Phone = '1'")
    assert found.rows == [{"Name": "Acme", "AnnualRevenue": 5.0, "Id": record_id}]


async def test_position_of_a_read_is_the_logs_head_in_its_snapshot(org: TestOrg) -> None:
    before = (await org.gate.query(org.admin, "SELECT Id FROM Account")).position
    await org.make_account()
    after = (await org.gate.query(org.admin, "SELECT Id FROM Account")).position
    assert after == before + 1


async def test_restricted_user_does_not_see_hidden_fields(org: TestOrg) -> None:
    record_id = await org.make_account(Phone="1", AnnualRevenue=5, Fax="2")
    rows = await org.gate.read(org.reader, "Account", record_id, None)
    assert rows.rows[0]["Fax"] == "2"
    assert not {"Phone", "AnnualRevenue"} & ({f.name for f in rows.columns} | set(rows.rows[0]))
    with pytest.raises(FieldUnknown):
        await org.gate.read(org.reader, "Account", record_id, ["Phone"])
    for query in ("SELECT Phone FROM Account", "SELECT Id FROM Account WHERE Phone = '1'"):
        with pytest.raises(FieldUnknown):
            await org.gate.query(org.reader, query)


async def test_grants_are_no_older_than_the_generation_they_are_known_by(org: TestOrg) -> None:
    """A read may see a commit whose types memory has yet to take over."""
    known_to_memory = 0
    gate = Gate(org.core.records, org.core.log, org.clock, lambda: known_to_memory)
    assert await gate.current_grants(org.admin) == (0, await org.gate.grants(org.admin))


async def test_object_without_a_grant_does_not_exist_for_the_user(org: TestOrg) -> None:
    call = Call(org.reader, "")
    with pytest.raises(ObjectUnknown):
        await org.gate.query(org.reader, "SELECT Id FROM Opportunity")
    with pytest.raises(ObjectUnknown):
        await org.gate.create(call, "Opportunity", {"Name": "O"})
    assert "Opportunity" not in [o.name for o in await org.gate.visible_objects(org.reader)]


async def test_reader_may_not_write(org: TestOrg) -> None:
    record_id = await org.make_account()
    call = Call(org.reader, "")
    with pytest.raises(AccessDenied):
        await org.gate.create(call, "Account", {"Name": "B"})
    with pytest.raises(AccessDenied):
        await org.gate.update(call, "Account", record_id, {"Name": "B"})
    with pytest.raises(AccessDenied):
        await org.gate.delete(call, "Account", record_id)


async def test_editor_may_set_only_the_fields_it_was_given(org: TestOrg) -> None:
    await org.apply(
        permission_sets={
            "Editor": {
                "objects": {"Account": ["read", "edit"]},
                "fields": {"Account": {"Fax": "edit", "Site": "read"}},
            }
        },
        users={"reader@tidewire.local": {"permission_sets": ["Editor"]}},
    )
    record_id = await org.make_account()
    call = Call(org.reader, "")
    await org.gate.update(call, "Account", record_id, {"Fax": "7"})
    with pytest.raises(FieldNotWriteable):
        await org.gate.update(call, "Account", record_id, {"Site": "x"})
    with pytest.raises(FieldUnknown):
        await org.gate.update(call, "Account", record_id, {"Phone": "x"})


async def test_grant_counts_from_its_commit_on(org: TestOrg) -> None:
    with pytest.raises(ObjectUnknown):
        await org.gate.query(org.reader, "SELECT Id FROM Opportunity")
    await org.apply(
        permission_sets={"More": {"objects": {"Opportunity": ["read"]}}},
        users={"reader@tidewire.local": {"permission_sets": ["More"]}},
    )
    assert (await org.gate.query(org.reader, "SELECT Id FROM Opportunity")).rows == []


async def test_hidden_part_of_a_compound_is_left_out_of_it(org: TestOrg) -> None:
    await org.apply(
        permission_sets={
            "Account_Reader": {
                "permissions": ["ApiEnabled"],
                "objects": {"Account": ["read"]},
                "fields": {"Account": {"*": "read", "BillingAddress": "none", "BillingCity": "read"}},
            }
        }
    )
    record_id = await org.make_account(BillingCity="Rome", BillingStreet="Via 1")
    found = await org.gate.query(org.reader, "SELECT BillingAddress FROM Account")
    assert found.rows == [{"BillingCity": "Rome", "Id": record_id}]


async def test_all_or_none_rolls_back_valid_writes_with_an_invalid_one(org: TestOrg) -> None:
    writes = [Write("Account", None, {"Name": "A"}), Write("Account", None, {})]
    good, bad = await org.gate.write_together(org.call, writes, all_or_none=True)
    assert isinstance(good, str)
    assert isinstance(bad, RequiredFieldMissing)
    assert (await org.gate.query(org.admin, "SELECT COUNT() FROM Account")).count == 0


async def test_together_keeps_the_good_when_each_stands_alone(org: TestOrg) -> None:
    first = await org.make_account("First")
    writes = [
        Write("Account", None, {"Name": "A"}),
        Write("Nope", None, {"Name": "A"}),
        Write("Account", first, {"Phone": "5"}),
        Write("Account", first, None),
        Write("Account", first, {"Phone": "6"}),
    ]
    results = await org.gate.write_together(org.call, writes, all_or_none=False)
    assert [type(r) for r in results] == [str, ObjectUnknown, str, str, RecordDeleted]
    names = [r["Name"] for r in (await org.gate.query(org.admin, "SELECT Name FROM Account")).rows]
    assert names == ["A"]


async def test_platform_event_is_published_by_values_and_by_avro(org: TestOrg) -> None:
    await org.apply(**ORDER_EVENT)
    published = await org.gate.publisher.publish(org.call, "order__E", {"number__C": "7"})
    assert len(published.event_uuid) == 36
    schema = org.gate.latest_schema("Order__e")
    payload = schema.encode({"CreatedDate": 1, "CreatedById": "u", "Number__c": "8"})
    outcomes = await org.gate.publisher.publish_avro(
        org.admin,
        "Order__e",
        [
            (schema.schema_id, b"\xff", "a"),
            (schema.schema_id, payload, ""),
            ("nope", payload, "c"),
        ],
    )
    assert {place: type(error) for place, error in outcomes.rejected.items()} == {
        0: PayloadInvalid,
        2: SchemaUnknown,
    }
    assert outcomes.first == await org.link.read_log_head()
    assert [len(each) for each in outcomes.event_uuids] == [1, 36, 1]


async def test_platform_event_needs_a_grant_to_publish(org: TestOrg) -> None:
    await org.apply(**ORDER_EVENT)
    with pytest.raises(TopicUnknown):
        await org.gate.publisher.publish(Call(org.reader, ""), "Order__e", {})
    await org.apply(
        permission_sets={"Listener": {"objects": {"Order__e": ["read"]}}},
        users={"reader@tidewire.local": {"permission_sets": ["Listener"]}},
    )
    with pytest.raises(AccessDenied):
        await org.gate.publisher.publish(Call(org.reader, ""), "Order__e", {})
    with pytest.raises(FieldUnknown):
        await org.gate.publisher.publish(org.call, "Order__e", {"Nope__c": 1})


async def test_formula_with_the_current_date_is_computed_when_read(org: TestOrg) -> None:
    fields = {
        "Due__c": {"type": "Date"},
        "Days_Left__c": {"type": "Number", "scale": 0, "formula": "Due__c - TODAY()"},
    }
    await org.apply(objects={"Job__c": {"fields": fields}})
    job = await org.gate.create(org.call, "Job__c", {"Name": "j", "Due__c": "2023-11-24"})
    for expected in (10.0, 7.0):
        read = await org.gate.read(org.admin, "Job__c", job, ["Days_Left__c"])
        queried = await org.gate.query(org.admin, "SELECT Days_Left__c FROM Job__c")
        assert read.rows[0]["Days_Left__c"] == queried.rows[0]["Days_Left__c"] == expected
        org.clock.advance(3 * 86_400)


async def test_write_leaves_nothing_to_the_garbage_collector(org: TestOrg) -> None:
    units: list[weakref.ref[UnitOfWork]] = []
    org.core.records.add_hook(lambda unit, changes, context: units.append(weakref.ref(unit)))
    gc.disable()
    try:
        await org.make_account()
        assert [unit() for unit in units] == [None]
    finally:
        gc.enable()
