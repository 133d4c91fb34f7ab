"""Enriched events as a Bayeux subscriber of a custom channel gets them, over a real core."""

from __future__ import annotations

import asyncio
from typing import Any

import orjson
import pytest

from tests.orgs import TestOrg
from tidewire.access.principal import Principal
from tidewire.delivery.hub import EARLIEST, LATEST, Hub, Replay
from tidewire.delivery.subscription import Subscription
from tidewire.errors import DefinitionInvalid
from tidewire.frontends.bayeux.forms import bayeux_form
from tidewire.frontends.pubsub.wire import PubSubForm
from tidewire.gate.requests import Write

pytestmark = pytest.mark.anyio
CHANNEL = "/data/Enriched__chn"


async def select(org: TestOrg, event: str, *fields: str, filter_text: str = "") -> None:
    member = {"channel": "Enriched__chn", "event": event, "enriched": list(fields), "filter": filter_text}
    await org.apply(
        channels={"Enriched__chn": {"label": "Enriched", "kind": "data"}},
        channel_members={f"Enriched_{event.replace('__', '_')}": member},
    )


class Listener:
    """Takes messages from one subscription."""

    def __init__(self) -> None:
        self.woken = asyncio.Event()
        self.subscription: Subscription | None = None

    async def start(
        self, hub: Hub, who: Principal, replay: Replay = LATEST, channel: str = CHANNEL
    ) -> Listener:
        form = bayeux_form(59.0)
        self.subscription = await hub.subscribe(who, channel, 59.0, replay, form, self.woken.set)
        return self

    async def read(self, count: int, max_events: int = 100, max_bytes: int = 1 << 20) -> list[dict[str, Any]]:
        """The next messages' data; `count` and what is delivered together with the last of them."""
        assert self.subscription is not None
        seen: list[bytes] = []
        async with asyncio.timeout(120):
            while len(seen) < count:
                self.woken.clear()
                taken = self.subscription.take(max_events, max_bytes)
                seen += taken
                if not taken:
                    await self.woken.wait()
        return [orjson.loads(message)["data"] for message in seen]


def body_of(data: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in data["payload"].items() if name != "ChangeEventHeader"}


def header_of(data: dict[str, Any]) -> dict[str, Any]:
    header: dict[str, Any] = data["payload"]["ChangeEventHeader"]
    return header


async def test_update_and_delete_carry_enriched_fields_and_create_does_not_need_them(
    org: TestOrg, hub: Hub
) -> None:
    await select(org, "AccountChangeEvent", "Industry", "Phone", "Website")
    listener = await Listener().start(hub, org.admin)
    account = await org.make_account("Acme", Industry="Biotechnology", Phone="1")
    await org.gate.update(org.call, "Account", account, {"Fax": "2"})
    await org.gate.delete(org.call, "Account", account)
    created, updated, deleted = await listener.read(3)
    assert header_of(created)["changeType"] == "CREATE"
    stamp = body_of(updated)["LastModifiedDate"]
    assert body_of(updated) == {
        "Fax": "2",
        "Industry": "Biotechnology",
        "Phone": "1",
        "LastModifiedDate": stamp,
    }
    assert header_of(updated)["changedFields"] == ["Fax", "LastModifiedDate"]
    assert body_of(deleted) == {"Industry": "Biotechnology", "Phone": "1"}
    assert header_of(deleted)["changedFields"] == []


async def test_replay_adds_latest_values_except_for_changed_fields(org: TestOrg, hub: Hub) -> None:
    await select(org, "AccountChangeEvent", "Industry", "Phone")
    account = await org.make_account("Acme", Industry="Biotechnology", Phone="1")
    await org.gate.update(org.call, "Account", account, {"Phone": "2"})
    await org.gate.update(org.call, "Account", account, {"Phone": None})
    await org.gate.update(org.call, "Account", account, {"Industry": "Energy", "Phone": "3"})
    listener = await Listener().start(hub, org.admin, EARLIEST)
    updates = [d for d in await listener.read(4) if header_of(d)["changeType"] == "UPDATE"]
    assert [body_of(d).get("Phone") for d in updates] == ["2", None, "3"]
    assert "Phone" in body_of(updates[1])
    assert [body_of(d)["Industry"] for d in updates] == ["Energy"] * 3


async def test_merged_event_is_ungrouped_at_one_position_and_never_parted(org: TestOrg, hub: Hub) -> None:
    await select(org, "AccountChangeEvent", "Industry")
    accounts = [await org.make_account(f"n{n}", Industry=("Energy", "Media")[n % 2]) for n in range(5)]
    listener = await Listener().start(hub, org.admin)
    standard = await Listener().start(hub, org.admin, channel="/data/ChangeEvents")
    writes = [Write("Account", account, {"Fax": "9"}) for account in accounts]
    await org.gate.write_together(org.call, writes, all_or_none=True)
    (merged,) = await standard.read(1)
    assert header_of(merged)["recordIds"] == accounts
    assert "Industry" not in body_of(merged)
    parts = await listener.read(1, max_events=1, max_bytes=1)
    assert [header_of(d)["recordIds"] for d in parts] == [[account] for account in accounts]
    assert [body_of(d)["Industry"] for d in parts] == ["Energy", "Media", "Energy", "Media", "Energy"]
    assert {d["event"]["replayId"] for d in parts} == {merged["event"]["replayId"]}


async def test_compound_and_lookup_give_their_filled_parts_and_an_id(org: TestOrg, hub: Hub) -> None:
    await select(org, "ContactChangeEvent", "Name", "MailingAddress", "Account")
    account = await org.make_account()
    values = {"FirstName": "Ada", "LastName": "Byron", "MailingCity": "London", "AccountId": account}
    contact = await org.gate.create(org.call, "Contact", values)
    listener = await Listener().start(hub, org.admin)
    await org.gate.update(org.call, "Contact", contact, {"FirstName": "Augusta"})
    (data,) = await listener.read(1)
    stamp = body_of(data)["LastModifiedDate"]
    assert body_of(data) == {
        "Name": {"FirstName": "Augusta", "LastName": "Byron"},
        "MailingAddress": {"City": "London"},
        "AccountId": account,
        "LastModifiedDate": stamp,
    }
    assert header_of(data)["changedFields"] == ["LastModifiedDate", "Name.FirstName"]


async def test_name_of_a_person_is_added_by_its_parts_and_of_a_business_as_text(
    org: TestOrg, hub: Hub
) -> None:
    await org.apply(settings={"person_accounts": True})
    await select(org, "AccountChangeEvent", "Name")
    rows = await org.gate.query(org.admin, "SELECT Id FROM RecordType WHERE IsPersonType = true")
    values = {"FirstName": "Ada", "LastName": "Byron", "RecordTypeId": rows.rows[0]["Id"]}
    person = await org.gate.create(org.call, "Account", values)
    business = await org.make_account("Acme")
    listener = await Listener().start(hub, org.admin)
    for account in (person, business):
        await org.gate.update(org.call, "Account", account, {"Fax": "9"})
    await org.gate.update(org.call, "Account", person, {"LastName": "King"})
    await org.gate.delete(org.call, "Account", person)
    seen = await listener.read(4)
    assert [body_of(d)["Name"] for d in seen] == [
        {"FirstName": "Ada", "LastName": "King"},
        "Acme",
        {"FirstName": "Ada", "LastName": "King"},
        {"FirstName": "Ada", "LastName": "King"},
    ]


async def test_enriched_field_is_hidden_from_users_who_may_not_see_it(org: TestOrg, hub: Hub) -> None:
    await select(org, "AccountChangeEvent", "Industry", "Phone")
    account = await org.make_account(Industry="Energy", Phone="1")
    rights = {"permissions": ["ApiEnabled"], "objects": {"Account": ["read", "view_all"]}}
    fields = {"Account": {"Phone": "read", "Fax": "read", "Industry": "none"}}
    await org.apply(permission_sets={"Account_Reader": rights | {"fields": fields}})
    listener = await Listener().start(hub, org.reader)
    await org.gate.update(org.call, "Account", account, {"Fax": "2"})
    (data,) = await listener.read(1)
    assert set(body_of(data)) == {"Fax", "Phone", "LastModifiedDate"}


async def test_deleted_campaign_member_is_enriched_only_if_its_campaign_was_deleted(
    org: TestOrg, hub: Hub
) -> None:
    await select(org, "CampaignMemberChangeEvent", "LeadId")
    lead = await org.gate.create(org.call, "Lead", {"LastName": "L", "Company": "C"})
    campaigns = [await org.gate.create(org.call, "Campaign", {"Name": f"c{n}"}) for n in range(2)]
    members = [
        await org.gate.create(org.call, "CampaignMember", {"CampaignId": campaign, "LeadId": lead})
        for campaign in campaigns
    ]
    listener = await Listener().start(hub, org.admin)
    await org.gate.delete(org.call, "CampaignMember", members[0])
    await org.gate.delete(org.call, "Campaign", campaigns[1])
    direct, cascaded = await listener.read(2)
    assert body_of(direct) == {}
    assert (header_of(cascaded)["recordIds"], body_of(cascaded)) == ([members[1]], {"LeadId": lead})


async def test_avro_form_carries_enriched_fields_too(org: TestOrg, hub: Hub) -> None:
    await select(org, "AccountChangeEvent", "Industry")
    account = await org.make_account(Industry="Energy")
    woken = asyncio.Event()
    subscription = await hub.subscribe(org.admin, CHANNEL, 59.0, LATEST, PubSubForm(), woken.set)
    await org.gate.update(org.call, "Account", account, {"Fax": "2"})
    taken: list[bytes] = []
    async with asyncio.timeout(120):
        while not (taken := subscription.take(10, 1 << 20)):
            woken.clear()
            await woken.wait()
    assert b"Energy" in taken[0]


@pytest.mark.parametrize(
    "expression, told",
    [
        ("Industry = 'energy'", ["CREATE", "UPDATE", "DELETE"]),
        ("Industry LIKE 'En%' AND NumberOfEmployees > 1000", []),
        (
            "NumberOfEmployees >= 10 AND (Industry = 'Energy' OR Industry = 'Media')",
            ["CREATE", "UPDATE", "DELETE"],
        ),
        ("ChangeEventHeader.changeType = 'UPDATE'", ["UPDATE"]),
        ("BillingAddress.City IN ('Kiel', 'Ulm')", ["CREATE", "UPDATE", "DELETE"]),
        ("Fax != null", ["UPDATE", "DELETE"]),
        ("NOT Industry = 'Energy'", []),
    ],
)
async def test_filter_passes_matching_events(
    org: TestOrg, hub: Hub, expression: str, told: list[str]
) -> None:
    await select(org, "AccountChangeEvent", filter_text=expression)
    await org.apply(
        channel_members={"Enriched_Lead": {"channel": "Enriched__chn", "event": "LeadChangeEvent"}},
    )
    listener = await Listener().start(hub, org.admin)
    account = await org.make_account(Industry="Energy", NumberOfEmployees=10, BillingCity="Kiel")
    await org.gate.update(org.call, "Account", account, {"Fax": "2"})
    await org.gate.delete(org.call, "Account", account)
    await org.gate.create(org.call, "Lead", {"LastName": "the", "Company": "end"})
    seen = await listener.read(len(told) + 1)
    assert [header_of(d)["changeType"] for d in seen] == [*told, "CREATE"]
    assert header_of(seen[-1])["entityName"] == "Lead"


async def test_filtered_field_is_added_to_events(org: TestOrg, hub: Hub) -> None:
    await select(org, "AccountChangeEvent", filter_text="BillingAddress.City = 'Kiel'")
    account = await org.make_account(BillingCity="Kiel", BillingStreet="Kai")
    listener = await Listener().start(hub, org.admin)
    await org.gate.update(org.call, "Account", account, {"Fax": "2"})
    (data,) = await listener.read(1)
    assert body_of(data)["BillingAddress"] == {"City": "Kiel", "Street": "Kai"}


async def test_field_lost_by_all_records_passes_every_filter(org: TestOrg, hub: Hub) -> None:
    await org.apply(objects={"Account": {"fields": {"Day__c": {"type": "Date"}}}})
    await select(org, "AccountChangeEvent", filter_text="Industry = 'Energy'")
    await org.make_account(Industry="Energy", Day__c="2020-01-01")
    listener = await Listener().start(hub, org.admin)
    await org.apply(objects={"Account": {"fields": {"Day__c": {"type": "Text"}}}})
    (data,) = await listener.read(1)
    assert header_of(data)["recordIds"] == ["001*"]


async def test_filter_on_a_hidden_field_works_and_does_not_reveal_it(org: TestOrg, hub: Hub) -> None:
    await select(org, "AccountChangeEvent", filter_text="Industry = 'Energy'")
    rights = {"permissions": ["ApiEnabled"], "objects": {"Account": ["read", "view_all"]}}
    fields = {"Account": {"Fax": "read", "Industry": "none"}}
    await org.apply(permission_sets={"Account_Reader": rights | {"fields": fields}})
    listener = await Listener().start(hub, org.reader)
    accounts = [await org.make_account(Industry=industry) for industry in ("Media", "Energy")]
    for account in accounts:
        await org.gate.update(org.call, "Account", account, {"Fax": "2"})
    seen = await listener.read(2)
    assert [header_of(data)["recordIds"] for data in seen] == [[accounts[1]]] * 2
    assert all("Industry" not in body_of(data) for data in seen)
    assert set(body_of(seen[1])) == {"Fax", "LastModifiedDate"}


async def test_platform_events_of_a_channel_are_filtered(org: TestOrg, hub: Hub) -> None:
    fields = {"City__c": {"type": "Text", "length": 40}, "Amount__c": {"type": "Number", "scale": 2}}
    await org.apply(
        events={"Placed__e": {"fields": fields}},
        channels={"Placed__chn": {"label": "Placed", "kind": "event"}},
        channel_members={
            "Placed_Placed": {
                "channel": "Placed__chn",
                "event": "Placed__e",
                "filter": "(City__c LIKE 'S%' OR City__c='New York') AND Amount__c>10.50",
            }
        },
    )
    listener = await Listener().start(hub, org.admin, channel="/event/Placed__chn")
    for city, amount in (("Kiel", 99), ("Seoul", 10.5), ("Seoul", 11), ("new york", 12)):
        await org.gate.publisher.publish(org.call, "Placed__e", {"City__c": city, "Amount__c": amount})
    seen = await listener.read(2)
    assert [data["payload"]["City__c"] for data in seen] == ["Seoul", "new york"]


async def test_event_from_before_a_fields_conversion_does_not_pass_a_filter_on_it(
    org: TestOrg, hub: Hub
) -> None:
    await org.apply(objects={"Account": {"fields": {"Size__c": {"type": "Text"}}}})
    await select(org, "AccountChangeEvent")
    account = await org.make_account("Old", Size__c="12")
    await org.gate.update(org.call, "Account", account, {"Size__c": "13"})
    await org.apply(objects={"Account": {"fields": {"Size__c": {"type": "Number"}}}})
    await select(org, "AccountChangeEvent", filter_text="Size__c > 10")
    new = await org.make_account("New", Size__c=11)
    listener = await Listener().start(hub, org.admin, EARLIEST)
    assert [header_of(d)["recordIds"] for d in await listener.read(2)] == [["001*"], [new]]


@pytest.mark.parametrize("is_wanted", [True, False])
async def test_merged_event_with_a_large_text_is_delivered_as_it_is_stored(
    org: TestOrg, hub: Hub, is_wanted: bool
) -> None:
    notes = {"type": "LongTextArea", "length": 131_072}
    await org.apply(objects={"Account": {"fields": {"Notes__c": notes}}})
    wanted = "Energy" if is_wanted else "Media"
    await select(org, "AccountChangeEvent", filter_text=f"Industry = '{wanted}'")
    accounts = [await org.make_account(f"n{n}", Industry="Energy") for n in range(6)]
    last = await org.make_account("last", Industry=wanted)
    listener = await Listener().start(hub, org.admin)
    writes = [Write("Account", account, {"Notes__c": "x" * 100_000}) for account in accounts]
    await org.gate.write_together(org.call, writes, all_or_none=True)
    await org.gate.update(org.call, "Account", last, {"Fax": "9"})
    seen = await listener.read(1 + is_wanted)
    assert [header_of(d)["recordIds"] for d in seen] == [accounts] * is_wanted + [[last]]
    assert ["Industry" in body_of(d) for d in seen] == [False] * is_wanted + [True]


async def test_large_page_ends_early_and_the_next_continues(org: TestOrg, hub: Hub) -> None:
    wide = {f"Wide{n}__c": {"type": "Text", "length": 255} for n in range(9)}
    await org.apply(objects={"Account": {"fields": wide}})
    await select(org, "AccountChangeEvent", *wide)
    values = dict.fromkeys(wide, "w" * 255)
    accounts = [await org.make_account(f"n{n}", **values) for n in range(180)]
    listener = await Listener().start(hub, org.admin)
    head = await org.link.read_log_head()
    for turn in range(7):
        writes = [Write("Account", account, {"Fax": str(turn)}) for account in accounts]
        await org.gate.write_together(org.call, writes, all_or_none=True)
    grant = await org.link.open_channel(org.admin, CHANNEL, 59.0)
    stored = await org.link.read_log(grant.family, grant.topics, head, 500, 1 << 20)
    page = await org.link.enrich_page(grant, stored)
    assert 2 << 20 < sum(len(event.payload) for event in page.events) < 3 << 20
    assert page.through == page.events[-1].position < stored.through
    rest = await org.link.enrich_page(
        grant, await org.link.read_log(grant.family, grant.topics, page.through, 500, 1 << 20)
    )
    assert len(page.events) + len(rest.events) == 7 * 180
    seen = await listener.read(7 * 180)
    told = [(body_of(d)["Fax"], header_of(d)["recordIds"]) for d in seen]
    assert told == [(str(turn), [account]) for turn in range(7) for account in accounts]


@pytest.mark.parametrize(
    "expression",
    [
        "WHERE Industry = 'Energy'",
        "Industry = 'Energy' LIMIT 1",
        "Industry =",
        "Nope = 1",
        "Owner.Name = 'x'",
        "BillingAddress = 'x'",
        "BillingCity = 'Kiel'",
        "CreatedDate = TODAY",
        "CALENDAR_YEAR(CreatedDate) = 2024",
        "Id IN (SELECT AccountId FROM Contact)",
        "ChangeEventHeader.recordIds = 'x'",
        "Industry = Phone",
        "Description = 'x'",
        "(" * 500 + "Industry = 'x'" + ")" * 500,
        "Industry = '" + "x" * 5000 + "'",
    ],
)
async def test_invalid_filter_is_rejected(org: TestOrg, expression: str) -> None:
    with pytest.raises(DefinitionInvalid, match="The filter expression has syntax errors"):
        await select(org, "AccountChangeEvent", filter_text=expression)
    assert org.gate.catalog.selection.channels == ()
