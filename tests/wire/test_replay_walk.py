"""The guide's durable samples: subscribe again and again with an id, -1 and -2, and see what each of them shows."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Any

import pytest

from tests.running import API, Rest
from tidewire.client.cometd import ALL_EVENTS, NEW_EVENTS, CometdClient
from tidewire.client.login import Credentials, login
from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME
from tidewire.testing import ServerProcess

pytestmark = pytest.mark.timeout(300)

_PATIENCE_S = 120.0


def client_of(server: ServerProcess) -> CometdClient:
    credentials = Credentials(server.http, DEV_USERNAME, DEV_PASSWORD, DEV_CLIENT_ID, DEV_CLIENT_SECRET)
    return CometdClient(partial(login, credentials), api_version="42.0")


async def read(client: CometdClient, count: int) -> list[dict[str, Any]]:
    """The data of the next events."""
    async with asyncio.timeout(_PATIENCE_S):
        return [(await client.receive()).data for _ in range(count)]


def ids(events: list[dict[str, Any]]) -> list[int]:
    return [event["event"]["replayId"] for event in events]


async def test_durable_push_topic_sample_shows_what_each_replay_option_promises(
    fresh_server: ServerProcess,
) -> None:
    rest = Rest(fresh_server.http, fresh_server.login())
    query = "SELECT Id, Name, Website FROM Account"
    rest.create("PushTopic", {"Name": "TestAccountStreaming", "Query": query, "ApiVersion": 42.0})
    topic = "/topic/TestAccountStreaming"

    def generate(name: str) -> str:
        account = rest.create("Account", {"Name": name})
        rest.update("Account", account, {"Name": name + "_UPDATED"})
        rest.delete("Account", account)
        return account

    async with client_of(fresh_server) as client:
        await client.subscribe(topic, ALL_EVENTS)
        account = generate("Test account")
        old = await read(client, 3)
        assert [event["event"]["type"] for event in old] == ["created", "updated", "deleted"]
        assert [event["sobject"] for event in old] == [
            {"Website": None, "Id": account, "Name": "Test account"},
            {"Website": None, "Id": account, "Name": "Test account_UPDATED"},
            {"Id": account},
        ]
        await client.subscribe(topic, ids(old)[1])
        assert await read(client, 1) == old[2:]
        await client.subscribe(topic, NEW_EVENTS)
        generate("Lightning")
        new = await read(client, 3)
        assert [event["sobject"].get("Name") for event in new] == ["Lightning", "Lightning_UPDATED", None]
        await client.subscribe(topic, ALL_EVENTS)
        assert await read(client, 6) == old + new
    assert ids(old + new) == sorted(set(ids(old + new)))
    rest.close()


async def test_durable_generic_sample_shows_what_each_replay_option_promises(
    fresh_server: ServerProcess,
) -> None:
    rest = Rest(fresh_server.http, fresh_server.login())
    channel = "/u/TestStreaming"
    channel_id = rest.create("StreamingChannel", {"Name": channel})

    def generate(payload: str, count: int) -> None:
        body = {"pushEvents": [{"payload": payload, "userIds": []} for _ in range(count)]}
        answers = rest.call("POST", f"{API}/sobjects/StreamingChannel/{channel_id}/push", body)
        assert [answer["fanoutCount"] for answer in answers] == [-1] * count

    async with client_of(fresh_server) as client:
        await client.subscribe(channel, ALL_EVENTS)
        generate("Test message", 10)
        old = await read(client, 10)
        assert {event["payload"] for event in old} == {"Test message"}
        await client.subscribe(channel, ids(old)[4])
        assert await read(client, 5) == old[5:]
        await client.subscribe(channel, NEW_EVENTS)
        generate("Fresh message", 3)
        new = await read(client, 3)
        assert {event["payload"] for event in new} == {"Fresh message"}
        await client.subscribe(channel, ALL_EVENTS)
        assert await read(client, 13) == old + new
    assert ids(old + new) == sorted(set(ids(old + new)))
    rest.close()
