"""Watches a channel with aiosfstream-ng and prints one JSON line for everything that happens.

    python aiosfstream_watch.py URL TOKEN REPLAY_ID CHANNEL

The client signs in by itself, so the token is not used. It gives up when the connection is lost; all this program adds
is what its documentation asks of applications, to open it again with the replay markers kept so far. A line on stdin
ends it.
"""

from __future__ import annotations

import asyncio
import json
import sys
from typing import Any

import aiosfstream_ng.auth
from aiosfstream_ng.client import SalesforceStreamingClient
from aiosfstream_ng.exceptions import AiosfstreamException
from aiosfstream_ng.replay import DefaultMappingStorage

from tidewire.config import DEV_CLIENT_ID, DEV_CLIENT_SECRET, DEV_PASSWORD, DEV_USERNAME

_RETRY_S = 0.2


def show(kind: str, **fields: Any) -> None:
    """Print one line."""
    print(json.dumps({"kind": kind, **fields}), flush=True)  # noqa: T201


async def watch(url: str, first_replay_id: int, channel: str) -> None:
    """Watch, over and over again."""
    aiosfstream_ng.auth.TOKEN_URL = url + "/services/oauth2/token"
    markers = DefaultMappingStorage({}, first_replay_id)
    while True:
        try:
            async with SalesforceStreamingClient(
                consumer_key=DEV_CLIENT_ID,
                consumer_secret=DEV_CLIENT_SECRET,
                username=DEV_USERNAME,
                password=DEV_PASSWORD,
                replay=markers,
            ) as client:
                show("handshake", successful=True)
                await client.subscribe(channel)
                show("subscribed", channel=channel, successful=True)
                async for message in client:
                    data = message["data"]
                    show("event", channel=channel, replayId=data["event"]["replayId"], data=data)
        except (AiosfstreamException, OSError) as error:
            show("lost", error=repr(error))
        await asyncio.sleep(_RETRY_S)


async def main() -> None:
    """Watch until a line comes on stdin."""
    url, _, first_replay_id, channel = sys.argv[1:]
    watching = asyncio.create_task(watch(url, int(first_replay_id), channel))
    await asyncio.to_thread(sys.stdin.readline)
    watching.cancel()


asyncio.run(main())
