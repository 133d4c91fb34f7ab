"""An org with person accounts as its users meet it: definitions, queries, and the events of both halves."""

from __future__ import annotations

import pytest

from tests.orgs import TestOrg
from tidewire.errors import DefinitionInvalid, FieldUnknown
from tidewire.events import CommittedBatch

QUERY = "SELECT Name FROM Account WHERE IsPersonAccount = {} ORDER BY Name"


class Told:
    """The change events of an org: entity, operation, and the filled fields beside the header."""

    def __init__(self, org: TestOrg) -> None:
        self._org = org
        self.events: list[tuple[str, str, set[str]]] = []
        org.core.commits.watch(self._take)

    def _take(self, batch: CommittedBatch) -> None:
        schemas = self._org.core.records.types.schemas
        for event in batch.events:
            value = schemas[event.topic].decode(event.payload)
            header = value.pop("ChangeEventHeader")
            assert isinstance(header, dict)
            filled = {name for name, held in value.items() if held is not None}
            self.events.append((str(header["entityName"]), str(header["changeType"]), filled))


async def names(org: TestOrg, literal: str) -> list[object]:
    found = await org.gate.query(org.admin, QUERY.format(literal))
    return [row["Name"] for row in found.rows]


async def make_person(org: TestOrg, **values: object) -> str:
    await org.apply(settings={"person_accounts": True})
    return await org.gate.create(org.call, "Account", {"LastName": "Smith", **values})


async def test_setting_brings_the_fields_and_cannot_be_taken_back(org: TestOrg) -> None:
    await org.make_account("Firm")
    with pytest.raises(FieldUnknown):
        await org.gate.create(org.call, "Account", {"LastName": "Smith"})
    with pytest.raises(FieldUnknown):
        await names(org, "true")
    await make_person(org)
    assert (await names(org, "true"), await names(org, "false")) == (["Smith"], ["Firm"])
    with pytest.raises(DefinitionInvalid):
        await org.apply(settings={"person_accounts": False})


async def test_setting_and_fields_of_contacts_come_in_one_document(org: TestOrg) -> None:
    await org.apply(
        settings={"person_accounts": True},
        objects={"Contact": {"fields": {"Code__c": {"type": "Number", "scale": 0}}}},
    )
    account = await org.gate.create(org.call, "Account", {"LastName": "Smith", "Code__pc": 7})
    await org.apply(objects={"Contact": {"fields": {"Code__c": {"type": "Text", "length": 10}}}})
    found = await org.gate.query(org.admin, f"SELECT Code__pc FROM Account WHERE Id = '{account}'")
    assert found.rows[0]["Code__pc"] == "7"
    await org.apply(remove={"fields": ["Contact.Code__c"]})
    with pytest.raises(FieldUnknown):
        await org.gate.query(org.admin, "SELECT Code__pc FROM Account")


async def test_update_of_one_half_tells_of_both_and_no_update_of_neither(org: TestOrg) -> None:
    account = await make_person(org)
    told = Told(org)
    await org.gate.update(org.call, "Account", account, {"Industry": "Retail"})
    await org.gate.update(org.call, "Account", account, {"PersonEmail": "s@example.com"})
    await org.gate.update(org.call, "Account", account, {"Industry": "Retail"})
    assert told.events == [
        ("Account", "UPDATE", {"Industry", "LastModifiedDate"}),
        ("Contact", "UPDATE", {"LastModifiedDate"}),
        ("Account", "UPDATE", {"PersonEmail", "LastModifiedDate"}),
        ("Contact", "UPDATE", {"Email", "LastModifiedDate"}),
    ]


async def test_delete_tells_of_both_halves(org: TestOrg) -> None:
    account = await make_person(org)
    told = Told(org)
    await org.gate.delete(org.call, "Account", account)
    assert told.events == [("Account", "DELETE", set()), ("Contact", "DELETE", set())]


async def test_stamps_alone_are_told_of_no_business_account(org: TestOrg) -> None:
    account = await org.make_account("Firm", Phone="1")
    told = Told(org)
    org.clock.advance(5)
    await org.gate.update(org.call, "Account", account, {"Phone": "1"})
    assert told.events == []


async def test_definition_brings_record_types_for_persons(org: TestOrg) -> None:
    document = {"Account": {"record_types": {"Patient": {"person": True}}}}
    with pytest.raises(DefinitionInvalid):
        await org.apply(objects=document)
    await org.apply(settings={"person_accounts": True}, objects=document)
    found = await org.gate.query(org.admin, "SELECT DeveloperName FROM RecordType WHERE IsPersonType = true")
    assert [row["DeveloperName"] for row in found.rows] == ["PersonAccount", "Patient"]
    assert await org.apply(objects=document) == []
