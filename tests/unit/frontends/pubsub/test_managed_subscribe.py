"""ManagedSubscribe calls over a real core whose answers can be held back: what arrives meanwhile is not lost."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.orgs import TestOrg
from tidewire.access.principal import Principal
from tidewire.clock import ManualClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.delivery.hub import Hub
from tidewire.delivery.link_values import ManagedStart
from tidewire.frontends.pubsub.serve import PubSubApp
from tidewire.frontends.pubsub.settings import PubSubSettings
from tidewire.frontends.pubsub.wire import render_replay_id
from tidewire.matching.channel_values import PublishDraft
from tidewire.schema.proto import pubsub_pb2 as pb
from tidewire.server.link import LocalLink

pytestmark = pytest.mark.anyio

TOPIC = "/event/Tide__e"
DEFINITION = {
    "events": {"Tide__e": {"label": "Tide", "fields": {"A__c": {"type": "Text"}}}},
    "managed_subscriptions": {"Mine": {"label": "Mine", "topic": TOPIC, "default_replay": "EARLIEST"}},
}
PATIENCE_S = 120.0


class HeldLink(LocalLink):
    """A link whose answers of two kinds wait until they are let go."""

    def __init__(self, org: TestOrg) -> None:
        super().__init__(org.core)
        self.opened = asyncio.Event()
        self.may_open = asyncio.Event()
        self.committing = asyncio.Event()
        self.may_commit = asyncio.Event()

    async def open_managed(
        self, principal: Principal, subscription_id: str, name: str, holder: str
    ) -> ManagedStart:
        start = await super().open_managed(principal, subscription_id, name, holder)
        self.opened.set()
        await self.may_open.wait()
        return start

    async def commit_managed(
        self, principal: Principal, subscription_id: str, holder: str, position: int
    ) -> None:
        self.committing.set()
        await self.may_commit.wait()
        await super().commit_managed(principal, subscription_id, holder, position)


class Context:
    """What gRPC gives to a call."""

    def __init__(self, token: str, org_id: str) -> None:
        self._metadata = [("accesstoken", token), ("instanceurl", "http://here"), ("tenantid", org_id)]
        self.written: list[pb.ManagedFetchResponse] = []
        self.has_events = asyncio.Event()

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return self._metadata

    async def write(self, body: bytes) -> None:
        response = pb.ManagedFetchResponse.FromString(body)
        self.written.append(response)
        if response.events:
            self.has_events.set()

    async def abort(self, *reason: Any) -> None:
        raise AssertionError(reason)


async def publish(org: TestOrg) -> int:
    schema = org.gate.latest_schema("Tide__e")
    draft = PublishDraft(schema.schema_id, schema.encode({"CreatedDate": 1, "CreatedById": "005"}), "")
    outcomes = await org.link.publish(org.admin, TOPIC, [draft])
    return outcomes.first


def commit(name: str, position: int) -> bytes:
    wanted = pb.CommitReplayRequest(commit_request_id=name, replay_id=render_replay_id(position))
    return pb.ManagedFetchRequest(commit_replay_id_request=wanted).SerializeToString()


@pytest.fixture
async def link(org: TestOrg) -> HeldLink:
    await org.apply(**DEFINITION)
    return HeldLink(org)


@pytest.fixture
async def app(link: HeldLink) -> AsyncIterator[PubSubApp]:
    hub = Hub(link)
    await hub.start()
    yield PubSubApp(link, hub, ManualClock(), PubSubSettings())
    await hub.close()


@pytest.fixture
async def context(org: TestOrg, link: HeldLink) -> Context:
    signed_in = await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "test")
    return Context(signed_in.token, org.core.logins.org_id)


async def test_commit_that_comes_with_the_end_of_requests_during_another_is_kept(
    org: TestOrg, link: HeldLink, app: PubSubApp, context: Context
) -> None:
    link.may_open.set()
    first, second = await publish(org), await publish(org)

    async def requests() -> AsyncIterator[bytes]:
        yield pb.ManagedFetchRequest(developer_name="Mine", num_requested=1).SerializeToString()
        await context.has_events.wait()
        yield commit("one", first)
        await link.committing.wait()
        yield commit("two", second)
        link.may_commit.set()

    async with asyncio.timeout(PATIENCE_S):
        await app.answer_call("ManagedSubscribe", requests(), context)
    answers = [r.commit_response for r in context.written if r.HasField("commit_response")]
    assert [answer.commit_request_id for answer in answers] == ["one", "two"]
    assert await org.core.managed.positions() == {"Mine": second}


async def test_call_that_is_cancelled_before_it_hears_that_it_is_open_holds_nothing(
    org: TestOrg, link: HeldLink, app: PubSubApp, context: Context
) -> None:
    async def requests() -> AsyncIterator[bytes]:
        yield pb.ManagedFetchRequest(developer_name="Mine", num_requested=1).SerializeToString()

    calling = asyncio.create_task(app.answer_call("ManagedSubscribe", requests(), context))
    async with asyncio.timeout(PATIENCE_S):
        await link.opened.wait()
    assert org.core.managed.is_read("Mine")
    calling.cancel()
    await asyncio.wait([calling])
    assert not org.core.managed.is_read("Mine")
