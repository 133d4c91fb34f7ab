"""Calls with one request over a real core: what ends between their metadata and their request counts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest

from tests.orgs import TestOrg
from tidewire.clock import ManualClock
from tidewire.config import DEV_PASSWORD, DEV_USERNAME
from tidewire.delivery.hub import Hub
from tidewire.frontends.pubsub.serve import PubSubApp
from tidewire.frontends.pubsub.settings import PubSubSettings
from tidewire.schema.proto import pubsub_pb2 as pb

pytestmark = pytest.mark.anyio

TOPIC = "/event/Tide__e"


class Context:
    """What gRPC gives to a call."""

    def __init__(self, token: str, org_id: str) -> None:
        self._metadata = [("accesstoken", token), ("instanceurl", "http://here"), ("tenantid", org_id)]
        self.status: grpc.StatusCode | None = None

    def invocation_metadata(self) -> list[tuple[str, str]]:
        return self._metadata

    async def abort(self, status: grpc.StatusCode, *reason: Any) -> None:
        self.status = status


@pytest.fixture
async def app(org: TestOrg) -> AsyncIterator[PubSubApp]:
    hub = Hub(org.link)
    await hub.start()
    yield PubSubApp(org.link, hub, ManualClock(), PubSubSettings())
    await hub.close()


async def test_publish_whose_login_ends_before_its_request_arrives_is_refused(
    org: TestOrg, app: PubSubApp
) -> None:
    await org.apply(events={"Tide__e": {"label": "Tide", "fields": {"A__c": {"type": "Text"}}}})
    schema = org.gate.latest_schema("Tide__e")
    event = pb.ProducerEvent(
        schema_id=schema.schema_id, payload=schema.encode({"CreatedDate": 1, "CreatedById": "005"})
    )
    body = pb.PublishRequest(topic_name=TOPIC, events=[event]).SerializeToString()
    login = await org.core.logins.login(DEV_USERNAME, DEV_PASSWORD, "test")
    context = Context(login.token, org.core.logins.org_id)

    async def at_once() -> AsyncIterator[bytes]:
        yield body

    async def after_logout() -> AsyncIterator[bytes]:
        await org.core.logins.sessions.log_out(login.principal.session_id)
        yield body

    assert await app.answer_call("Publish", at_once(), context) is not None
    head = await org.link.read_log_head()
    assert await app.answer_call("Publish", after_logout(), context) is None
    assert context.status is grpc.StatusCode.UNAUTHENTICATED
    assert await org.link.read_log_head() == head
