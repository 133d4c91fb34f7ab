"""Users by channels by fields: what each subscriber is sent of changes, against an oracle that knows only this table.

No event shows what a query of the same user would hide, sharing aside; and whoever gains or loses a right is sent what
that right opens from then on, without subscribing again.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import orjson
import pytest

from tests.orgs import TestOrg
from tidewire.access.principal import Principal
from tidewire.config import DEV_PASSWORD
from tidewire.delivery.hub import LATEST, Hub
from tidewire.delivery.subscription import Subscription
from tidewire.errors import ChannelForbidden, ObjectUnknown
from tidewire.frontends.bayeux.forms import bayeux_form

pytestmark = pytest.mark.anyio
FIELDS = ("Phone", "Fax", "Website")
ENTITIES = ("Account", "Contact", "User", "Task")


@dataclass(frozen=True)
class Person:
    """Who may view all records of which objects, and read which fields of accounts."""

    view_all: tuple[str, ...] = ()
    fields: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()

    def views(self, entity: str) -> bool:
        if "ModifyAllData" in self.permissions:
            return True
        if entity == "User":
            return "ViewAllUsers" in self.permissions
        return "ViewAllData" in self.permissions or (entity != "Task" and entity in self.view_all)

    def reads(self, field: str) -> bool:
        return "ModifyAllData" in self.permissions or field in self.fields


PEOPLE = {
    "stranger": Person(),
    "clerk": Person(("Account",), ("Phone",)),
    "seller": Person(("Account", "Contact"), ("Phone", "Fax")),
    "warden": Person((), (), ("ViewAllUsers",)),
    "auditor": Person((), ("Fax", "Website"), ("ViewAllData",)),
    "chief": Person((), FIELDS, ("ViewAllData", "ViewAllUsers")),
    "root": Person((), (), ("ModifyAllData",)),
}
SINGLE = {f"/data/{entity}ChangeEvent": (entity,) for entity in ENTITIES}
SEVERAL = {
    "/data/ChangeEvents": ("Account", "Contact", "Task"),
    "/data/Few__chn": ("Account", "User"),
    "/data/None__chn": (),
}


def rights_of(person: Person) -> dict[str, Any]:
    objects = {entity: ["read", "view_all"] for entity in person.view_all}
    objects.setdefault("Account", ["read"])
    fields = {name: "read" if name in person.fields else "none" for name in FIELDS}
    return {
        "permissions": ["ApiEnabled", *person.permissions],
        "objects": objects,
        "fields": {"Account": fields},
    }


@pytest.fixture
async def people(org: TestOrg) -> dict[str, Principal]:
    """Everybody of the table, signed in, with channels of several kinds."""
    name = "{}@matrix.example".format
    await org.apply(
        capture=["Account", "Contact", "Task"],
        objects={"Opportunity": {"capture": False}},
        channels={n: {"label": n, "kind": "data"} for n in ("Few__chn", "None__chn")},
        channel_members={
            "Few_Account": {"channel": "Few__chn", "event": "AccountChangeEvent", "enriched": ["Website"]},
            "Few_User": {"channel": "Few__chn", "event": "UserChangeEvent"},
        },
        profiles={f"Mx_{who}": rights_of(person) for who, person in PEOPLE.items()},
        users={name(who): {"password": DEV_PASSWORD, "profile": f"Mx_{who}"} for who in PEOPLE},
    )
    logins = {who: await org.core.logins.login(name(who), DEV_PASSWORD, "test") for who in PEOPLE}
    return {who: login.principal for who, login in logins.items()}


class Listener:
    """Reads a subscription to the log's head."""

    def __init__(self) -> None:
        self.subscription: Subscription | None = None

    async def read_to(self, head: int) -> list[dict[str, Any]]:
        assert self.subscription is not None
        seen: list[bytes] = []
        async with asyncio.timeout(120):
            while True:
                taken = self.subscription.take(100, 1 << 20)
                seen += taken
                if taken:
                    continue
                if self.subscription.reached() >= head:
                    return [orjson.loads(message)["data"]["payload"] for message in seen]
                await asyncio.sleep(0.001)  # what the channel does not show wakes nobody


async def listen(hub: Hub, who: Principal, channel: str) -> Listener:
    listener = Listener()
    form = bayeux_form(59.0)
    listener.subscription = await hub.subscribe(who, channel, 59.0, LATEST, form, lambda: None)
    return listener


async def change_everything(org: TestOrg, account: str, contact: str, task: str, mark: str) -> int:
    """Touch one record of every object; the log's head after that."""
    await org.gate.update(org.call, "Account", account, {"Phone": mark, "Fax": mark})
    await org.gate.update(org.call, "Contact", contact, {"Title": mark})
    await org.gate.update(org.call, "User", org.admin.user_id, {"Title": mark})
    await org.gate.update(org.call, "Task", task, {"Subject": mark})
    return await org.link.read_log_head()


async def make_records(org: TestOrg) -> tuple[str, str, str]:
    account = await org.make_account("Matrix", Phone="0", Fax="0", Website="http://w.example")
    contact = await org.gate.create(org.call, "Contact", {"LastName": "M"})
    task = await org.gate.create(org.call, "Task", {"Subject": "M"})
    return account, contact, task


async def test_every_subscriber_is_sent_what_the_table_says(
    org: TestOrg, hub: Hub, people: dict[str, Principal]
) -> None:
    records = await make_records(org)
    listeners: dict[tuple[str, str], Listener] = {}
    for who, principal in people.items():
        for channel, entities in {**SINGLE, **SEVERAL}.items():
            if channel in SINGLE and not PEOPLE[who].views(entities[0]):
                with pytest.raises(ChannelForbidden, match="View All Data"):
                    await listen(hub, principal, channel)
            else:
                listeners[who, channel] = await listen(hub, principal, channel)
    head = await change_everything(org, *records, "1")
    for (who, channel), listener in listeners.items():
        person, entities = PEOPLE[who], {**SINGLE, **SEVERAL}[channel]
        payloads = await listener.read_to(head)
        told = [p["ChangeEventHeader"]["entityName"] for p in payloads]
        expected = [e for e in ENTITIES if e in entities and person.views(e)]
        assert told == expected, (who, channel)
        for payload in payloads:
            if payload["ChangeEventHeader"]["entityName"] != "Account":
                continue
            sent = FIELDS if channel == "/data/Few__chn" else ("Phone", "Fax")
            shown = {name for name in FIELDS if name in payload}
            assert shown == {name for name in sent if person.reads(name)}, (who, channel)
            named = set(payload["ChangeEventHeader"]["changedFields"]) & set(FIELDS)
            assert named == {name for name in ("Phone", "Fax") if person.reads(name)}, (who, channel)


async def test_no_event_shows_what_a_query_hides(
    org: TestOrg, hub: Hub, people: dict[str, Principal]
) -> None:
    for who, principal in people.items():
        try:
            _, readable, _ = await org.gate.visible_fields(principal, "Account")
        except ObjectUnknown:
            readable = frozenset()
        grant = await org.link.open_channel(principal, "/data/Few__chn", 59.0)
        hidden = dict(grant.hidden).get("AccountChangeEvent", frozenset())
        for name in FIELDS if "AccountChangeEvent" in grant.topics else ():
            assert (name in readable) is (name not in hidden), (who, name)


async def test_rights_gained_and_lost_count_at_once(
    org: TestOrg, hub: Hub, people: dict[str, Principal]
) -> None:
    records = await make_records(org)
    clerk = await listen(hub, people["clerk"], "/data/ChangeEvents")
    warden = await listen(hub, people["warden"], "/data/Few__chn")
    await org.apply(
        profiles={
            "Mx_clerk": rights_of(PEOPLE["warden"]),
            "Mx_warden": rights_of(PEOPLE["seller"]) | {"permissions": ["ApiEnabled"]},
        }
    )
    head = await change_everything(org, *records, "2")
    assert await clerk.read_to(head) == []
    (account,) = await warden.read_to(head)
    assert {name for name in FIELDS if name in account} == {"Phone", "Fax"}
