"""What whole transactions of an org are told by: cascades, merges, renamed values, conversions, jobs, overflows."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orgs import TestOrg
from tidewire.errors import AccessDenied, DefinitionInvalid, RecordNotFound
from tidewire.events import ChangeType, Event, Family
from tidewire.gate.database_jobs import Job, archive, run_job
from tidewire.gate.requests import Call, Write
from tidewire.ids import EMPTY_ID
from tidewire.schema.bitmap import decode_bitmap

Told = tuple[str, str, list[str]]


class Listener:
    """The change events of an org since it began to listen."""

    def __init__(self, org: TestOrg) -> None:
        self._org = org
        self._events: list[Event] = []
        org.core.commits.watch(lambda batch: self._events.extend(batch.events))

    async def payloads(self) -> list[dict[str, Any]]:
        """Everything told so far, which is forgotten; a write after it has been answered has been told."""
        await self._org.gate.create(self._org.call, "Campaign", {"Name": "Last"})
        schemas = {s.schema_id: s for s in self._org.core.records.types.schemas.values()}
        told = [e for e in self._events if e.family is Family.CHANGE]
        self._events.clear()
        return [schemas[e.schema_id].decode(e.payload) | {"_schema": schemas[e.schema_id]} for e in told]

    async def headers(self) -> list[dict[str, Any]]:
        return [payload["ChangeEventHeader"] for payload in await self.payloads()]

    async def told(self) -> list[Told]:
        return [(h["entityName"], h["changeType"], h["recordIds"]) for h in await self.headers()]


async def listen(org: TestOrg, *entities: str) -> Listener:
    """Listen, with these entities selected too."""
    if entities:
        await org.apply(capture=list(entities))
    return Listener(org)


async def make_family(org: TestOrg) -> tuple[str, list[str], str]:
    """An account, two contacts of it and an opportunity."""
    account = await org.make_account("Parent")
    contacts = [
        await org.gate.create(org.call, "Contact", {"LastName": n, "AccountId": account}) for n in "ab"
    ]
    values = {"Name": "O", "AccountId": account, "StageName": "Prospecting", "CloseDate": "2026-01-01"}
    return account, contacts, await org.gate.create(org.call, "Opportunity", values)


async def test_cascade_and_undelete_have_an_event_for_every_record(org: TestOrg) -> None:
    account, contacts, opportunity = await make_family(org)
    listener = await listen(org)
    await org.gate.delete(org.call, "Account", account)
    headers = await listener.headers()
    ids = [account, *contacts, opportunity]
    assert sorted(h["recordIds"][0] for h in headers) == sorted(ids)
    assert all(h["changeType"] == "DELETE" and len(h["recordIds"]) == 1 for h in headers)
    assert [h["sequenceNumber"] for h in headers] == [1, 2, 3, 4]
    assert len({h["transactionKey"] for h in headers}) == 1
    await org.gate.undelete(org.call, [account])
    payloads = await listener.payloads()
    assert sorted(p["ChangeEventHeader"]["recordIds"][0] for p in payloads) == sorted(ids)
    assert {p["ChangeEventHeader"]["changeType"] for p in payloads} == {"UNDELETE"}
    assert all(p["Name"] for p in payloads)


async def test_merge_has_an_event_for_every_record_it_touched(org: TestOrg) -> None:
    master = await org.make_account("M")
    loser, contacts, opportunity = await make_family(org)
    listener = await listen(org)
    await org.gate.merge(org.call, "Account", master, [loser], {"Phone": "1"})
    told = await listener.told()
    assert sorted(told) == sorted(
        [
            ("Account", "UPDATE", [master]),
            *(("Contact", "UPDATE", [contact]) for contact in contacts),
            ("Opportunity", "UPDATE", [opportunity]),
            ("Account", "DELETE", [loser]),
        ]
    )


async def test_several_writes_of_one_record_are_one_event_of_the_first_type(org: TestOrg) -> None:
    listener = await listen(org)
    obj = org.core.records.types.catalog.object("Account")

    def work(unit: Any) -> None:
        record_id = unit.create(obj, {"Name": "A", "Rating": "Cold"})
        unit.update(obj, record_id, {"Rating": "Hot"})
        gone = unit.create(obj, {"Name": "B"})
        unit.delete(obj, gone)

    await org.core.records.write(work, user_id=org.admin.user_id)
    (event,) = await listener.payloads()
    assert (event["ChangeEventHeader"]["changeType"], event["Rating"]) == ("CREATE", "Hot")


async def test_renamed_picklist_value_is_one_merged_update(org: TestOrg) -> None:
    kind = {"type": "Picklist", "values": ["old", "other"]}
    await org.apply(objects={"Account": {"fields": {"Kind__c": kind}}})
    ids = [await org.make_account(f"A{n}", Kind__c="old") for n in range(3)]
    await org.make_account("B", Kind__c="other")
    listener = await listen(org)
    await org.apply(
        objects={"Account": {"fields": {"Kind__c": {"type": "Picklist", "rename": {"old": "new"}}}}}
    )
    (event,) = await listener.payloads()
    assert event["ChangeEventHeader"]["recordIds"] == ids
    assert event["Kind__c"] == "new"


async def test_renamed_value_of_a_persons_contact_has_contact_events_only(org: TestOrg) -> None:
    await org.apply(settings={"person_accounts": True})
    kind = {"type": "Picklist", "values": ["old", "other"]}
    await org.apply(objects={"Contact": {"fields": {"Kind__c": kind}}})
    account = await org.gate.create(org.call, "Account", {"LastName": "P", "Kind__pc": "old"})
    listener = await listen(org)
    await org.apply(
        objects={"Contact": {"fields": {"Kind__c": {"type": "Picklist", "rename": {"old": "new"}}}}}
    )
    assert [line[:2] for line in await listener.told()] == [("Contact", "UPDATE")]
    rows = (await org.gate.query(org.admin, f"SELECT Kind__pc FROM Account WHERE Id = '{account}'")).rows
    assert rows[0]["Kind__pc"] == "new"


async def test_account_that_becomes_a_person_sends_its_record_type_only(org: TestOrg) -> None:
    await org.apply(settings={"person_accounts": True})
    person = await org.gate.create(org.call, "Account", {"FirstName": "Jo", "LastName": "Doe"})
    kinds = (await org.gate.query(org.admin, f"SELECT RecordTypeId FROM Account WHERE Id = '{person}'")).rows
    business = await org.make_account("Doe Ltd")
    await org.gate.create(org.call, "Contact", {"LastName": "Doe", "AccountId": business})
    listener = await listen(org)
    await org.gate.update(org.call, "Account", business, {"RecordTypeId": kinds[0]["RecordTypeId"]})
    (event,) = await listener.payloads()
    header = event["ChangeEventHeader"]
    assert (header["entityName"], header["changeType"]) == ("Account", "UPDATE")
    assert event["RecordTypeId"] == kinds[0]["RecordTypeId"]


@pytest.mark.parametrize(
    "before, after, told",
    [
        ({"type": "Date"}, {"type": "Text", "length": 20}, "UPDATE"),
        ({"type": "Checkbox"}, {"type": "Text", "length": 20}, "UPDATE"),
        ({"type": "Picklist", "values": ["a"]}, {"type": "Checkbox"}, "GAP_UPDATE"),
        (
            {"type": "Picklist", "values": ["a"]},
            {"type": "MultiselectPicklist", "values": ["a"]},
            "GAP_UPDATE",
        ),
        ({"type": "Picklist", "values": ["a"]}, {"type": "Text", "length": 20}, None),
        ({"type": "Text", "length": 20}, {"type": "Picklist", "values": ["a"]}, None),
        ({"type": "LongTextArea", "length": 2000}, {"type": "Text", "length": 20}, None),
        ({"type": "Number", "precision": 8, "scale": 0}, {"type": "Text", "length": 20}, None),
    ],
)
async def test_converted_field_has_the_events_of_the_table(
    org: TestOrg, before: dict[str, object], after: dict[str, object], told: str | None
) -> None:
    examples = {"Date": "2020-01-01", "Checkbox": True, "Number": 5}
    await org.apply(objects={"Account": {"fields": {"X__c": before}}})
    account = await org.make_account("A", X__c=examples.get(str(before["type"]), "a"))
    await org.make_account("B")
    listener = await listen(org)
    await org.apply(objects={"Account": {"fields": {"X__c": after}}})
    payloads = await listener.payloads()
    if told is None:
        assert payloads == []
        return
    (event,) = payloads
    schema, header = event.pop("_schema"), event.pop("ChangeEventHeader")
    assert header["changeType"] == told
    assert set(event.values()) == {None}
    if told == "UPDATE":
        assert header["recordIds"] == ["001*"]
        assert decode_bitmap(schema, header["changedFields"]) == ["X__c"]
    else:
        assert (header["recordIds"], header["changeOrigin"]) == ([account], "")


@pytest.mark.parametrize(
    "before, after, told",
    [
        ({"type": "Date"}, {"type": "Text", "length": 20}, "UPDATE"),
        ({"type": "Picklist", "values": ["a"]}, {"type": "Checkbox"}, "GAP_UPDATE"),
        ({"type": "Picklist", "values": ["a"]}, {"type": "Text", "length": 20}, None),
    ],
)
async def test_converted_contact_field_has_person_account_events_too(
    org: TestOrg, before: dict[str, object], after: dict[str, object], told: str | None
) -> None:
    await org.apply(settings={"person_accounts": True})
    await org.apply(objects={"Contact": {"fields": {"X__c": before}}})
    value = "2020-01-01" if before["type"] == "Date" else "a"
    person = await org.gate.create(org.call, "Account", {"LastName": "P", "X__pc": value})
    await org.gate.create(org.call, "Account", {"LastName": "Q"})
    contact = await org.gate.create(org.call, "Contact", {"LastName": "C", "X__c": value})
    query = f"SELECT PersonContactId FROM Account WHERE Id = '{person}'"
    twin = str((await org.gate.query(org.admin, query)).rows[0]["PersonContactId"])
    listener = await listen(org)
    await org.apply(objects={"Contact": {"fields": {"X__c": after}}})
    payloads = await listener.payloads()
    if told is None:
        assert payloads == []
        return
    of_contacts, of_accounts = (payload["ChangeEventHeader"] for payload in payloads)
    assert (of_contacts["entityName"], of_accounts["entityName"]) == ("Contact", "Account")
    assert (of_contacts["changeType"], of_accounts["changeType"]) == (told, told)
    if told == "UPDATE":
        assert (of_contacts["recordIds"], of_accounts["recordIds"]) == (["003*"], ["001*"])
        assert decode_bitmap(payloads[1]["_schema"], of_accounts["changedFields"]) == ["X__pc"]
    else:
        assert (set(of_contacts["recordIds"]), of_accounts["recordIds"]) == ({twin, contact}, [person])


@pytest.mark.parametrize("field", ["BillingState", "BillingCountry", "ShippingStateCode"])
async def test_setting_up_states_and_countries_is_rejected_without_events(org: TestOrg, field: str) -> None:
    await org.make_account("A", BillingState="IL", BillingCountry="USA")
    listener = await listen(org)
    values = {"type": "Picklist", "values": ["Illinois"]}
    with pytest.raises(DefinitionInvalid):
        await org.apply(objects={"Account": {"fields": {field: values}}})
    assert await listener.told() == []


async def test_database_job_has_gap_events_with_its_own_key(org: TestOrg) -> None:
    ids = [await org.make_account(f"A{n}") for n in range(3)]
    listener = await listen(org)
    values: dict[str, object] = {"Rating": "Hot"}
    await run_job(org.gate, org.call, Job(ChangeType.UPDATE, "Account", ids, values))
    await run_job(org.gate, org.call, Job(ChangeType.DELETE, "Account", ids[:1]))
    await run_job(org.gate, org.call, Job(ChangeType.UNDELETE, "Account", ids[:1]))
    (made,) = await run_job(org.gate, org.call, Job(ChangeType.CREATE, "Account", records=[{"Name": "N"}]))
    headers = await listener.headers()
    assert [(h["changeType"], h["recordIds"]) for h in headers] == [
        ("GAP_UPDATE", ids),
        ("GAP_DELETE", ids[:1]),
        ("GAP_UNDELETE", ids[:1]),
        ("GAP_CREATE", [made]),
    ]
    assert all(h["transactionKey"].startswith("0Mc") for h in headers)
    assert len({h["transactionKey"] for h in headers}) == 4
    assert all((h["sequenceNumber"], h["changeOrigin"], h["changedFields"]) == (1, "", []) for h in headers)


@pytest.mark.parametrize("operation", [ChangeType.DELETE, ChangeType.UNDELETE])
async def test_database_job_does_not_delete_undeletable_records(org: TestOrg, operation: ChangeType) -> None:
    with pytest.raises(DefinitionInvalid):
        await run_job(org.gate, org.call, Job(operation, "User", [org.reader.user_id]))
    await run_job(org.gate, org.call, Job(ChangeType.UPDATE, "User", [org.reader.user_id], {"Title": "T"}))
    soql = f"SELECT Title FROM User WHERE Id = '{org.reader.user_id}'"
    assert [row["Title"] for row in (await org.gate.query(org.admin, soql)).rows] == ["T"]


async def test_failed_database_job_changes_nothing_and_has_no_events(org: TestOrg) -> None:
    account = await org.make_account("A")
    listener = await listen(org)
    job = Job(ChangeType.UPDATE, "Account", [account, EMPTY_ID], {"Rating": "Hot"})
    with pytest.raises(RecordNotFound):
        await run_job(org.gate, org.call, job)
    assert await listener.told() == []
    rows = (await org.gate.query(org.admin, f"SELECT Rating FROM Account WHERE Id = '{account}'")).rows
    assert rows[0]["Rating"] is None


async def test_jobs_and_archiving_are_for_administrators(org: TestOrg) -> None:
    call = Call(org.reader, "com/test")
    with pytest.raises(AccessDenied):
        await run_job(org.gate, call, Job(ChangeType.DELETE, "Account", [EMPTY_ID]))
    with pytest.raises(AccessDenied):
        await archive(org.gate, call, 0)


async def test_archived_activities_of_one_kind_share_a_gap_event(org: TestOrg) -> None:
    listener = await listen(org, "Task", "Event")
    done = {"Subject": "T", "Status": "Completed", "ActivityDate": "2020-01-01"}
    tasks = [await org.gate.create(org.call, "Task", done) for _ in range(2)]
    open_task = {"Subject": "T", "ActivityDate": "2020-01-01"}
    await org.gate.create(org.call, "Task", open_task)
    over = {"Subject": "E", "ActivityDateTime": "2020-01-01T10:00:00.000Z", "DurationInMinutes": 5}
    event = await org.gate.create(org.call, "Event", over)
    await listener.told()
    assert await archive(org.gate, org.call, 1_600_000_000_000) == {"Task": 2, "Event": 1}
    headers = await listener.headers()
    assert [(h["entityName"], h["changeType"], h["recordIds"]) for h in headers] == [
        ("Task", "GAP_UPDATE", tasks),
        ("Event", "GAP_UPDATE", [event]),
    ]
    assert len({h["transactionKey"] for h in headers}) == 1


async def test_cascade_beyond_the_limit_ends_in_one_overflow_event_for_each_entity(org: TestOrg) -> None:
    accounts = [await org.make_account(f"A{n}") for n in range(2)]
    for account in accounts:
        writes = [Write("Contact", None, {"LastName": "c", "AccountId": account}) for _ in range(30)]
        values = {"Name": "O", "AccountId": account, "StageName": "Prospecting", "CloseDate": "2026-01-01"}
        writes += [Write("Opportunity", None, dict(values)) for _ in range(30)]
        await org.gate.write_together(org.call, writes, all_or_none=True)
    listener = await listen(org)
    org.core.capture.max_changes = 80
    obj = org.core.records.types.catalog.object("Account")

    def work(unit: Any) -> None:
        for account in accounts:
            unit.delete(obj, account)

    await org.core.records.write(work, user_id=org.admin.user_id)
    told = await listener.told()
    deletes = [line for line in told if line[1] == "DELETE"]
    assert sum(len(ids) for _, _, ids in deletes) == 80
    overflows = told[len(deletes) :]
    assert sorted(overflows) == [
        ("Contact", "GAP_OVERFLOW", [EMPTY_ID]),
        ("Opportunity", "GAP_OVERFLOW", [EMPTY_ID]),
    ]
