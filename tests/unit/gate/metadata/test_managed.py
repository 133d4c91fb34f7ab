"""Managed subscriptions as components: made, read, changed, removed, deployed and retrieved."""

from __future__ import annotations

import pytest

from tests.orgs import TestOrg
from tests.unit.gate.metadata.samples import deploy, retrieve
from tidewire.gate.metadata.archive import read_zip
from tidewire.gate.metadata.properties import Component
from tidewire.gate.metadata.service import Metadata
from tidewire.schema.channels import MAX_MANAGED

pytestmark = pytest.mark.anyio
KIND = "ManagedEventSubscription"
FULL = {
    "label": "Mine",
    "topicName": "/data/ChangeEvents",
    "defaultReplay": "EARLIEST",
    "errorRecoveryReplay": "LATEST",
    "state": "RUN",
}


async def save(org: TestOrg, full_name: str = "Mine", /, **properties: object) -> list[str]:
    component = Component(KIND, full_name, FULL | properties)
    saved = await Metadata(org.gate).upsert(org.call, [component], all_or_none=False)
    return [each.error.message for each in saved if each.error is not None]


async def test_subscription_is_read_back_and_changed(org: TestOrg) -> None:
    assert await save(org) == []
    (found,) = await Metadata(org.gate).read(org.admin, KIND, ["mine"])
    assert found == FULL
    assert await save(org, state="STOP", label="Other") == []
    (found,) = await Metadata(org.gate).read(org.admin, KIND, ["Mine"])
    assert found == FULL | {"state": "STOP", "label": "Other"}


async def test_subscription_without_replay_or_state_has_the_defaults(org: TestOrg) -> None:
    component = Component(KIND, "Short", {"label": "Short", "topicName": "/data/AccountChangeEvent"})
    (saved,) = await Metadata(org.gate).create(org.call, [component], all_or_none=True)
    assert saved.error is None
    (managed,) = org.gate.catalog.selection.managed
    assert (managed.default_replay, managed.error_replay, managed.state) == ("LATEST", "LATEST", "RUN")


@pytest.mark.parametrize(
    "change, reason",
    [
        ({"state": "PAUSE"}, "state"),
        ({"defaultReplay": "SOMETIME"}, "default_replay"),
        ({"topicName": "/topic/A"}, "not supported"),
        ({"topicName": "/data/Nothing__ChangeEvent"}, "does not exist"),
        ({"topicName": "/event/Nothing__chn"}, "does not exist"),
        ({"label": ""}, "label"),
        ({"label": "x" * 81}, "label"),
        ({"color": "red"}, "color"),
    ],
)
async def test_invalid_subscription_is_rejected(org: TestOrg, change: dict[str, object], reason: str) -> None:
    (message,) = await save(org, **change)
    assert reason in message
    assert org.gate.catalog.selection.managed == ()


@pytest.mark.parametrize("name", ["Two__Lines", "9", "A B", "x" * 81])
async def test_invalid_name_is_rejected(org: TestOrg, name: str) -> None:
    assert len(await save(org, name)) == 1


async def test_subscriptions_of_one_org_are_limited(org: TestOrg) -> None:
    spec = {"label": "Many", "topic": "/data/ChangeEvents"}
    await org.apply(managed_subscriptions={f"Many{n}": spec for n in range(MAX_MANAGED)})
    (message,) = await save(org, "OneMore")
    assert str(MAX_MANAGED) in message


async def test_subscription_is_retrieved_removed_and_deployed(org: TestOrg) -> None:
    assert await save(org) == []
    archive = await retrieve(org, {KIND: ["*"]})
    path = "managedEventSubscriptions/Mine.managedEventSubscription"
    assert any(name.endswith(path) for name in read_zip(archive))
    (removed,) = await Metadata(org.gate).delete(org.call, KIND, ["Mine"], all_or_none=True)
    assert removed.error is None
    assert org.gate.catalog.selection.managed == ()
    assert (await deploy(org, archive))["success"] is True
    (found,) = await Metadata(org.gate).read(org.admin, KIND, ["Mine"])
    assert found == FULL
