"""Objects, platform events and fields under another name: what follows, what stays, and what is rejected."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.orgs import TestOrg, open_org
from tests.unit.gate.metadata.samples import make_everything, services
from tidewire.gate.metadata.service import SaveResult
from tidewire.records.types import read_sharing_rules

pytestmark = pytest.mark.anyio


def code(saved: SaveResult) -> str:
    return "" if saved.error is None else str(saved.error.details.get("status_code"))


async def rename(org: TestOrg, old: str, new: str, kind: str = "CustomObject") -> SaveResult:
    metadata, _, _ = services(org)
    return await metadata.rename(org.call, kind, old, new)


async def ids(org: TestOrg) -> dict[str, str]:
    metadata, _, _ = services(org)
    listed = await metadata.entries(org.admin, ["CustomObject", "CustomField"])
    return {each.full_name: each.component_id for each in listed}


async def values(org: TestOrg, soql: str) -> list[object]:
    return [next(iter(row.values())) for row in (await org.gate.query(org.admin, soql)).rows]


async def make_masters(org: TestOrg) -> tuple[str, str]:
    """A master with one detail."""
    await make_everything(org)
    contact = await org.gate.create(org.call, "Contact", {"LastName": "Person"})
    master = await org.gate.create(
        org.call, "Master__c", {"Area__c": "a", "Needed__c": contact, "Text__c": "kept"}
    )
    detail = {"Master__c": master, "Amount__c": 7, "Good__c": True}
    return master, await org.gate.create(org.call, "Detail__c", detail)


async def test_renamed_object_keeps_records_ids_numbers_and_rights(tmp_path: Path) -> None:
    async with open_org(tmp_path) as org:
        master, detail = await make_masters(org)
        before = await ids(org)
        saved = await rename(org, "Master__c", "Chief__c")
        assert saved.error is None
    async with open_org(tmp_path) as org:
        assert await values(org, "SELECT Text__c FROM Chief__c") == ["kept"]
        assert await values(org, "SELECT Id FROM Detail__c WHERE Master__r.Text__c = 'kept'") == [detail]
        after = await ids(org)
        assert after["Chief__c"] == before["Master__c"]
        assert after["Chief__c.Text__c"] == before["Master__c.Text__c"]
        assert "Master__c" not in after
        # the roll-up follows the child, the lookup its target, and the name goes on being counted
        await org.gate.update(org.call, "Detail__c", detail, {"Amount__c": 9})
        assert await values(org, f"SELECT Sum_of__c FROM Chief__c WHERE Id = '{master}'") == [9]
        contact = (await values(org, "SELECT Id FROM Contact LIMIT 1"))[0]
        await org.gate.create(org.call, "Chief__c", {"Area__c": "b", "Needed__c": contact})
        assert await values(org, "SELECT Name FROM Chief__c ORDER BY Name") == ["M-0001", "M-0002"]
        metadata, _, _ = services(org)
        (clerk,) = await metadata.read(org.admin, "PermissionSet", ["Clerk"])
        assert clerk is not None
        assert "Chief__c" in {each["object"] for each in clerk["objectPermissions"]}  # type: ignore[attr-defined]
        assert "Chief__c.Text__c" in {each["field"] for each in clerk["fieldPermissions"]}  # type: ignore[attr-defined]
        (chief,) = await metadata.read(org.admin, "CustomObject", ["Chief__c"])
        assert chief is not None
        assert [each["fullName"] for each in chief["recordTypes"]] == ["Big"]  # type: ignore[attr-defined]


async def test_renamed_child_is_still_added_up_and_captured(org: TestOrg) -> None:
    master, _ = await make_masters(org)
    await org.apply(objects={"Detail__c": {"capture": True}})
    assert (await rename(org, "Detail__c", "Line__c")).error is None
    await org.gate.create(org.call, "Line__c", {"Master__c": master, "Amount__c": 6, "Good__c": True})
    assert await values(org, f"SELECT Sum_of__c FROM Master__c WHERE Id = '{master}'") == [13]
    assert org.gate.catalog.captured & {"Detail__c", "Line__c"} == {"Line__c"}
    assert "Line__ChangeEvent" in org.core.records.types.schemas


async def test_record_deleted_before_a_rename_can_be_undeleted(org: TestOrg) -> None:
    _, detail = await make_masters(org)
    await org.gate.delete(org.call, "Detail__c", detail)
    assert (await rename(org, "Detail__c", "Line__c")).error is None
    await org.gate.undelete(org.call, [detail])
    assert await values(org, "SELECT Id FROM Line__c") == [detail]


async def test_sharing_rules_follow_a_renamed_object(org: TestOrg) -> None:
    rules = {"Open": {"criteria": [["Name", "=", "x"]], "share_with": "group:Partners"}}
    await org.apply(
        groups={"Partners": {}}, objects={"Secret__c": {"sharing": "private", "sharing_rules": rules}}
    )
    assert (await rename(org, "Secret__c", "Hidden__c")).error is None
    assert [rule.key for rule in await org.core.records.read(read_sharing_rules)] == ["Hidden__c.Open"]


async def test_renamed_platform_event_keeps_its_id_and_rights(org: TestOrg) -> None:
    await make_everything(org)
    before = await ids(org)
    assert (await rename(org, "Happened__e", "Occurred__e")).error is None
    after = await ids(org)
    assert after["Occurred__e"] == before["Happened__e"]
    assert after["Occurred__e.What__c"] == before["Happened__e.What__c"]
    assert org.gate.catalog.try_event("Happened__e") is None
    metadata, _, _ = services(org)
    (clerk,) = await metadata.read(org.admin, "PermissionSet", ["Clerk"])
    assert clerk is not None
    assert "Occurred__e" in {each["object"] for each in clerk["objectPermissions"]}  # type: ignore[attr-defined]


async def test_renamed_field_of_an_event_keeps_its_id_and_gives_another_schema(org: TestOrg) -> None:
    await make_everything(org)
    before = await ids(org)
    schema_id = org.gate.latest_schema("Happened__e").schema_id
    saved = await rename(org, "Happened__e.What__c", "Happened__e.Which__c", "CustomField")
    assert saved.error is None
    after = await ids(org)
    assert after["Happened__e.Which__c"] == before["Happened__e.What__c"]
    assert "Happened__e.What__c" not in after
    assert org.gate.latest_schema("Happened__e").schema_id != schema_id
    assert "What__c" in await org.gate.schema_json(schema_id)
    await org.gate.publisher.publish(org.call, "Happened__e", {"which__c": "that"})


@pytest.mark.parametrize(
    "old, new, expected",
    [
        ("Happened__e.What__c", "Happened__e.Which", "INVALID_FULL_NAME"),
        ("Happened__e.What__c", "Order_Event__e.Which__c", "INVALID_FULL_NAME"),
        ("Happened__e.Nope__c", "Happened__e.Which__c", "INVALID_CROSS_REFERENCE_KEY"),
        ("Order_Event__e.City__c", "Order_Event__e.amount__c", "DUPLICATE_DEVELOPER_NAME"),
    ],
)
async def test_rename_of_an_event_field_to_an_invalid_name_is_rejected(
    org: TestOrg, old: str, new: str, expected: str
) -> None:
    await make_everything(org)
    assert code(await rename(org, old, new, "CustomField")) == expected


async def test_field_of_an_event_that_a_filter_names_is_not_renamed(org: TestOrg) -> None:
    await org.apply(
        channels={"Some__chn": {"kind": "event", "label": "Some"}},
        channel_members={
            "One": {"channel": "Some__chn", "event": "Order_Event__e", "filter": "City__c = 'B'"}
        },
    )
    saved = await rename(org, "Order_Event__e.City__c", "Order_Event__e.Town__c", "CustomField")
    assert saved.error is not None


async def test_rename_of_an_object_to_an_invalid_name_is_rejected(org: TestOrg) -> None:
    await make_everything(org)
    await org.apply(
        objects={"Watched__c": {}},
        push_topics={"Watch": {"query": "SELECT Id, Name FROM Watched__c"}},
    )
    for old, new, expected in (
        ("Account", "Firm__c", "INVALID_OPERATION"),
        ("Master__c", "Chief", "INVALID_FULL_NAME"),
        ("Master__c", "Chief__e", "INVALID_FULL_NAME"),
        ("Happened__e", "Happened__c", "INVALID_FULL_NAME"),
        ("Master__c", "Detail__c", "DUPLICATE_DEVELOPER_NAME"),
        ("No__c", "Yes__c", "INVALID_CROSS_REFERENCE_KEY"),
        ("Watched__c", "Seen__c", "DEPENDENCY_EXISTS"),
    ):
        assert (old, new, code(await rename(org, old, new))) == (old, new, expected)


async def test_renamed_auto_number_field_counts_on_and_keeps_its_id(org: TestOrg) -> None:
    await org.apply(objects={"Account": {"fields": {"Count__c": {"type": "AutoNumber", "format": "C-{00}"}}}})
    await org.make_account()
    before = await ids(org)
    await rename(org, "Account.Count__c", "Account.Tally__c", "CustomField")
    await org.make_account()
    assert await values(org, "SELECT Tally__c FROM Account ORDER BY Tally__c") == ["C-01", "C-02"]
    # a new field of the old name is another field
    await org.apply(objects={"Account": {"fields": {"Count__c": {"type": "Text", "length": 9}}}})
    after = await ids(org)
    assert after["Account.Tally__c"] == before["Account.Count__c"] != after["Account.Count__c"]
