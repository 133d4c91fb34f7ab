"""The account of an activity, and the date of a record's last one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.stores import OpenStore
from tests.unit.crm.activity_org import make_event, moment, open_activities, told, update
from tests.unit.records.small_org import Org
from tidewire.events import ChangeType


@pytest.fixture
async def org(place: OpenStore) -> AsyncIterator[Org]:
    async with open_activities(place) as opened:
        yield opened


async def account_of(org: Org, **values: object) -> object:
    return (await org.row("Task", await org.make("Task", **values)))["AccountId"]


async def last(org: Org, entity: str, record_id: str) -> object:
    return (await org.row(entity, record_id))["LastActivityDate"]


async def test_account_is_that_of_what_the_activity_is_about_before_that_of_its_contact(org: Org) -> None:
    one = await org.make("Account", Name="One")
    two = await org.make("Account", Name="Two")
    contact = await org.make("Contact", LastName="C", AccountId=one)
    lead = await org.make("Lead", LastName="L", Company="L")
    deal = await org.make(
        "Opportunity", Name="Deal", AccountId=two, StageName="Prospecting", CloseDate="2024-01-01"
    )
    campaign = await org.make("Campaign", Name="Fair")
    assert await account_of(org, WhatId=two) == two
    assert await account_of(org, WhatId=deal, WhoId=contact) == two
    assert await account_of(org, WhatId=campaign, WhoId=contact) == one
    assert await account_of(org, WhatId=campaign) is None
    assert await account_of(org, WhoId=lead) is None
    assert await account_of(org) is None
    event = await make_event(org, WhoId=contact)
    assert (await org.row("Event", event))["AccountId"] == one
    await update(org, "Event", event, WhatId=two)
    assert (await org.row("Event", event))["AccountId"] == two
    await update(org, "Event", event, WhatId=None, WhoId=None)
    assert (await org.row("Event", event))["AccountId"] is None


async def test_last_activity_is_the_latest_event_or_closed_task_and_no_record_change(org: Org) -> None:
    account = await org.make("Account", Name="One")
    contact = await org.make("Contact", LastName="C", AccountId=account)
    modified = (await org.row("Account", account))["SystemModstamp"]
    org.clock.advance(60)
    task = await org.make("Task", WhoId=contact, ActivityDate="2023-11-30")
    assert await last(org, "Contact", contact) is None
    await update(org, "Task", task, Status="Completed")
    assert told(org) == [("Task", ChangeType.UPDATE)]
    assert await last(org, "Contact", contact) == await last(org, "Account", account) == moment("2023-11-30")
    event = await make_event(org, WhatId=account, StartDateTime="2023-12-02T09:00:00.000Z")
    assert await last(org, "Account", account) == moment("2023-12-02")
    assert await last(org, "Contact", contact) == moment("2023-11-30")
    await org.delete("Event", event)
    assert await last(org, "Account", account) == moment("2023-11-30")
    await org.undelete("Event", event)
    assert await last(org, "Account", account) == moment("2023-12-02")
    await update(org, "Event", event, WhatId=None)
    assert await last(org, "Account", account) == moment("2023-11-30")
    await update(org, "Task", task, Status="Not Started")
    assert await last(org, "Contact", contact) is None
    assert (await org.row("Account", account))["SystemModstamp"] == modified
