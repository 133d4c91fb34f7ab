"""Channels and their members as components: made, read, changed, removed, deployed and retrieved."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.orgs import TestOrg, open_org
from tests.unit.gate.metadata.samples import deploy, retrieve
from tidewire.clock import ManualClock
from tidewire.config import Settings
from tidewire.errors import DefinitionInvalid, RequestError
from tidewire.gate.metadata.archive import read_zip, write_zip
from tidewire.gate.metadata.package import render_manifest
from tidewire.gate.metadata.properties import Component
from tidewire.gate.metadata.service import Metadata
from tidewire.server.core import open_core

pytestmark = pytest.mark.anyio
CHANNEL, MEMBER = "PlatformEventChannel", "PlatformEventChannelMember"
SALES = Component(CHANNEL, "Sales__chn", {"channelType": "data", "label": "Sales"})


def member(name: str, event: str, *fields: str, channel: str = "Sales__chn", **more: object) -> Component:
    properties = {"eventChannel": channel, "selectedEntity": event, **more}
    enriched = {"enrichedFields": [{"name": field} for field in fields]} if fields else {}
    return Component(MEMBER, name, properties | enriched)


async def save(org: TestOrg, *components: Component, version: int | None = None) -> list[str]:
    """Make or change components one by one; the messages of those that are rejected."""
    call = replace(org.call, api_version=version)
    saved = await Metadata(org.gate).upsert(call, components, all_or_none=False)
    return [each.error.message for each in saved if each.error is not None]


async def rejected(org: TestOrg, component: Component) -> tuple[str, str]:
    """The status code and the message by which a new component is rejected."""
    before = org.gate.catalog
    (saved,) = await Metadata(org.gate).create(org.call, [component], all_or_none=True)
    assert isinstance(saved.error, RequestError)
    assert org.gate.catalog is before
    return str(saved.error.details["status_code"]), saved.error.message


async def read(org: TestOrg, kind: str, name: str, version: int | None = None) -> Any:
    (found,) = await Metadata(org.gate).read(org.admin, kind, [name], api_version=version)
    return found


async def test_member_selects_its_object_and_is_read_back(org: TestOrg) -> None:
    assert await save(org, SALES, member("Sales_Lead", "LeadChangeEvent", "Company", "Name")) == []
    assert "Lead" in org.gate.catalog.captured
    assert await read(org, CHANNEL, "Sales__chn") == {"channelType": "data", "label": "Sales"}
    assert await read(org, MEMBER, "sales_lead") == {
        "enrichedFields": [{"name": "Company"}, {"name": "Name"}],
        "eventChannel": "Sales__chn",
        "selectedEntity": "LeadChangeEvent",
    }


async def test_selection_survives_a_restart_and_is_removed_with_its_channel(tmp_path: Path) -> None:
    async with open_org(tmp_path / "org") as org:
        assert await save(org, SALES, member("Sales_Lead", "LeadChangeEvent", "Company")) == []
        stored = org.gate.catalog.selection
    async with open_org(tmp_path / "org") as again:
        assert again.gate.catalog.selection == stored
        await Metadata(again.gate).delete(again.call, CHANNEL, ["Sales__chn"], all_or_none=True)
        assert "Lead" not in again.gate.catalog.captured
        assert await read(again, MEMBER, "Sales_Lead") is None


async def test_standard_selection_is_members_of_the_standard_channel(org: TestOrg) -> None:
    entries = await Metadata(org.gate).entries(org.admin, [MEMBER])
    assert [e.full_name for e in entries] == [
        "ChangeEvents_AccountChangeEvent",
        "ChangeEvents_ContactChangeEvent",
        "ChangeEvents_OpportunityChangeEvent",
    ]
    name = "ChangeEvents_ContactChangeEvent"
    await Metadata(org.gate).delete(org.call, MEMBER, [name], all_or_none=True)
    assert org.gate.catalog.captured == {"Account", "Opportunity"}
    await org.apply(capture=["Contact"])
    assert await read(org, MEMBER, name) == {
        "eventChannel": "ChangeEvents",
        "selectedEntity": "ContactChangeEvent",
    }


@pytest.mark.parametrize(
    "component, code, words",
    [
        (
            member("A", "NopeChangeEvent"),
            "FIELD_INTEGRITY_EXCEPTION",
            "invalid event in the 'selectedEntity'",
        ),
        (member("A", "Account"), "FIELD_INTEGRITY_EXCEPTION", "invalid event in the 'selectedEntity'"),
        (member("A", "ProfileChangeEvent"), "FIELD_INTEGRITY_EXCEPTION", "invalid event"),
        (
            member("A", "LeadChangeEvent", channel="No__chn"),
            "INVALID_CROSS_REFERENCE_KEY",
            "Unable to find the specified channel",
        ),
        (member("A", "CaseChangeEvent"), "DUPLICATE_VALUE", "already a member"),
        (member("Sales_Case", "LeadChangeEvent"), "DUPLICATE_DEVELOPER_NAME", "already a"),
        (member("A__B", "LeadChangeEvent"), "INVALID_FULL_NAME", "with the namespace: A"),
        (member("A_", "LeadChangeEvent"), "INVALID_FULL_NAME", "not end with an underscore"),
        (member("A", "LeadChangeEvent", "Nope"), "INVALID_FIELD", "The selected field, Nope, isn't valid"),
        (member("A", "LeadChangeEvent", "Owner.Name"), "INVALID_FIELD", "Owner.Name, isn't valid"),
        (member("A", "LeadChangeEvent", "FirstName"), "INVALID_FIELD", "FirstName, isn't valid"),
        (member("A", "LeadChangeEvent", "City"), "INVALID_FIELD", "City, isn't valid"),
        (member("A", "LeadChangeEvent", "Description"), "INVALID_FIELD", "Description, isn't valid"),
        (
            Component(MEMBER, "A", {"eventChannel": "Sales__chn", "enrichedFields": [{"name": "Company"}]}),
            "REQUIRED_FIELD_MISSING",
            "Required field is missing: selectedEntity",
        ),
        (
            Component(MEMBER, "A", {"selectedEntity": "LeadChangeEvent"}),
            "REQUIRED_FIELD_MISSING",
            "Required field is missing: eventChannel",
        ),
        (
            Component(CHANNEL, "ChangeEvents", {"channelType": "data", "label": "All"}),
            "FIELD_INTEGRITY_EXCEPTION",
            "standard channel",
        ),
        (Component(CHANNEL, "B", {"channelType": "data", "label": "B"}), "INVALID_FULL_NAME", "__chn"),
        (Component(CHANNEL, "B__chn", {"label": "B"}), "REQUIRED_FIELD_MISSING", "channelType"),
        (Component(CHANNEL, "B__chn", {"channelType": "data"}), "REQUIRED_FIELD_MISSING", "label"),
        (
            Component(CHANNEL, "B__chn", {"channelType": "x", "label": "B"}),
            "FIELD_INTEGRITY_EXCEPTION",
            "'x' is not a valid value",
        ),
        (
            Component(CHANNEL, "B__chn", {"channelType": "data", "label": "B", "channelMembers": []}),
            "FIELD_INTEGRITY_EXCEPTION",
            "channelMembers",
        ),
    ],
)
async def test_wrong_component_is_rejected_and_nothing_is_created(
    org: TestOrg, component: Component, code: str, words: str
) -> None:
    assert await save(org, SALES, member("Sales_Case", "CaseChangeEvent")) == []
    found, message = await rejected(org, component)
    assert found == code
    assert words in message


async def test_event_on_the_wrong_kind_of_channel_is_rejected(org: TestOrg) -> None:
    orders = Component(CHANNEL, "Orders__chn", {"channelType": "event", "label": "Orders"})
    await org.apply(events={"Shipped__e": {"fields": {"Number__c": {"type": "Text", "length": 9}}}})
    assert await save(org, SALES, orders, member("O", "Shipped__e", channel="Orders__chn")) == []
    assert "invalid event" in (await rejected(org, member("P", "Shipped__e")))[1]
    assert "invalid event" in (await rejected(org, member("P", "LeadChangeEvent", channel="Orders__chn")))[1]
    await org.apply(remove={"events": ["Shipped__e"]})
    assert await read(org, MEMBER, "O") is None


async def test_channel_and_event_of_a_member_and_kind_of_a_channel_stay(org: TestOrg) -> None:
    other = Component(CHANNEL, "Other__chn", {"channelType": "data", "label": "Other"})
    assert await save(org, SALES, other, member("M", "LeadChangeEvent")) == []
    assert "selectedEntity" in (await save(org, member("M", "CaseChangeEvent")))[0]
    assert "eventChannel" in (await save(org, member("M", "LeadChangeEvent", channel="Other__chn")))[0]
    changed = Component(CHANNEL, "Other__chn", {"channelType": "event", "label": "Other"})
    assert "channelType" in (await save(org, changed))[0]


async def test_enriched_field_over_the_limit_is_rejected_and_a_shared_one_counts_once(org: TestOrg) -> None:
    six = ("Phone", "Fax", "Website", "Industry", "Name", "BillingAddress")
    four = ("AccountNumber", "Site", "Rating", "ParentId")
    other = Component(CHANNEL, "Other__chn", {"channelType": "data", "label": "Other"})
    event = "AccountChangeEvent"
    assert await save(org, SALES, other, member("A", event, *six)) == []
    assert await save(org, member("B", event, "Phone", "Fax", *four, channel="Other__chn")) == []
    (message,) = await save(org, member("A", event, *six, "Sic"))
    assert "The maximum number of enriched fields, 10" in message
    assert await save(org, member("A", event, *six[:5], "Sic")) == []


async def test_removed_field_is_enriched_no_more(org: TestOrg) -> None:
    await org.apply(objects={"Account": {"fields": {"Key__c": {"type": "Text", "length": 9}}}})
    assert await save(org, SALES, member("A", "AccountChangeEvent", "Key__c", "Phone")) == []
    await org.apply(remove={"fields": ["Account.Key__c"]})
    assert (await read(org, MEMBER, "A"))["enrichedFields"] == [{"name": "Phone"}]


async def test_renamed_field_object_and_event_keep_their_places(org: TestOrg) -> None:
    orders = Component(CHANNEL, "Orders__chn", {"channelType": "event", "label": "Orders"})
    await org.apply(
        objects={"Thing__c": {"fields": {"Key__c": {"type": "Text", "length": 9}}}},
        events={"Shipped__e": {"fields": {"Number__c": {"type": "Text", "length": 9}}}},
    )
    assert await save(org, SALES, orders, member("T", "Thing__ChangeEvent", "Key__c")) == []
    assert await save(org, member("O", "Shipped__e", channel="Orders__chn")) == []
    metadata = Metadata(org.gate)
    for kind, old, new in (
        ("CustomField", "Thing__c.Key__c", "Thing__c.Code__c"),
        ("CustomObject", "Thing__c", "Item__c"),
        ("CustomObject", "Shipped__e", "Sent__e"),
    ):
        assert (await metadata.rename(org.call, kind, old, new)).error is None
    assert await read(org, MEMBER, "T") == {
        "enrichedFields": [{"name": "Code__c"}],
        "eventChannel": "Sales__chn",
        "selectedEntity": "Item__ChangeEvent",
    }
    assert (await read(org, MEMBER, "O"))["selectedEntity"] == "Sent__e"


async def test_field_that_a_filter_names_cannot_be_removed(org: TestOrg) -> None:
    await org.apply(objects={"Account": {"fields": {"Key__c": {"type": "Text", "length": 9}}}})
    assert await save(org, SALES, member("A", "AccountChangeEvent", filterExpression="Key__c = 'x'")) == []
    with pytest.raises(DefinitionInvalid, match="the channel member A filters by it"):
        await org.apply(remove={"fields": ["Account.Key__c"]})


async def test_old_version_holds_members_inside_the_channel(org: TestOrg) -> None:
    def old(name: str, *events: str) -> Component:
        members = [{"selectedEntity": event} for event in events]
        return Component(CHANNEL, name, {"channelType": "data", "label": "L", "channelMembers": members})

    assert await save(org, old("Old__chn", "LeadChangeEvent", "CaseChangeEvent"), version=46) == []
    assert await read(org, MEMBER, "Old_chn_LeadChangeEvent") == {
        "eventChannel": "Old__chn",
        "selectedEntity": "LeadChangeEvent",
    }
    assert await save(org, old("Old__chn", "CaseChangeEvent"), version=45) == []
    assert (await read(org, CHANNEL, "Old__chn", 45))["channelMembers"] == [
        {"selectedEntity": "CaseChangeEvent"}
    ]
    assert await save(org, old("ChangeEvents", "CaseChangeEvent", "AccountChangeEvent"), version=46) == []
    assert org.gate.catalog.captured == {"Case", "Account"}
    assert await read(org, CHANNEL, "ChangeEvents") is None
    assert len((await read(org, CHANNEL, "ChangeEvents", 46))["channelMembers"]) == 2


async def test_retrieved_channels_deploy_back_and_into_another_org(org: TestOrg, tmp_path: Path) -> None:
    assert await save(org, SALES, member("Sales_Lead", "LeadChangeEvent", "Company")) == []
    archive = await retrieve(org, {CHANNEL: ["*"], MEMBER: ["*"]})
    assert {
        "platformEventChannels/Sales__chn.platformEventChannel",
        "platformEventChannelMembers/Sales_Lead.platformEventChannelMember",
    } <= {path.removeprefix("unpackaged/") for path in read_zip(archive)}
    before = org.gate.catalog
    assert (await deploy(org, archive))["status"] == "Succeeded"
    assert org.gate.catalog is before
    async with open_org(tmp_path / "other") as other:
        assert (await deploy(other, archive))["status"] == "Succeeded"
        assert other.gate.catalog.selection == before.selection
        gone = write_zip(
            {
                "package.xml": render_manifest({}, "59.0"),
                "destructiveChanges.xml": render_manifest({CHANNEL: ["Sales__chn"]}, "59.0"),
            }
        )
        assert (await deploy(other, gone))["status"] == "Succeeded"
        assert "Lead" not in other.gate.catalog.captured


async def test_object_over_the_edition_limit_is_rejected_and_a_shared_one_counts_once(
    tmp_path: Path,
) -> None:
    settings = Settings(data=str(tmp_path / "org"), dev=True, edition="enterprise")
    core = await open_core(settings, ManualClock())
    try:
        admin = await core.logins.login("admin@tidewire.local", "tidewire", "test")
        org = TestOrg(core, ManualClock(), admin.principal, admin.principal)
        await org.apply(capture=["Lead", "Case"])
        assert await save(org, SALES, member("A", "AccountChangeEvent")) == []
        code, message = await rejected(org, member("B", "TaskChangeEvent"))
        assert (code, message) == (
            "LIMIT_EXCEEDED",
            "The maximum number of entities selected for Change Data Capture, 5, has been reached",
        )
        names = [f"C{n}__chn" for n in range(99)]
        await org.apply(channels={name: {"label": "C", "kind": "data"} for name in names})
        extra = Component(CHANNEL, "More__chn", {"channelType": "data", "label": "More"})
        assert (await rejected(org, extra))[0] == "LIMIT_EXCEEDED"
    finally:
        await core.close()
