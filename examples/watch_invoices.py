"""Watch invoice statements; resume after the last notification when started again.

    python examples/watch_invoices.py [FILE]

FILE keeps the last replay id. Needs `tidewire serve --dev` with the object and push topic of examples/invoices.yaml.
"""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from tidewire.client.cometd import ALL_EVENTS, CometdClient
from tidewire.client.login import Credentials, login

CREDENTIALS = Credentials(
    os.environ.get("TIDEWIRE_URL", "http://localhost:8080"),
    username="admin@tidewire.local",
    password="tidewire",
    client_id="tidewire-dev",
    client_secret="tidewire-dev-secret",
)


def load_replay_id(marker: Path) -> int:
    """Return the start position: after the last processed notification, or the oldest retained one."""
    return int(marker.read_text()) if marker.exists() else ALL_EVENTS


def keep_replay_id(marker: Path, replay_id: int | None) -> None:
    """Note a notification as dealt with. Whenever this is interrupted, the file holds one id or the other."""
    written = marker.with_suffix(".new")
    written.write_text(str(replay_id))
    written.replace(marker)


async def main(marker: Path) -> None:
    """Print notifications until Ctrl-C."""
    async with CometdClient(lambda: login(CREDENTIALS)) as client:
        await client.subscribe("/topic/InvoiceStatementUpdates", load_replay_id(marker))
        async for event in client:
            record = event.data["sobject"]
            print(event.data["event"]["type"], record["Id"], record.get("Status__c", ""), flush=True)
            # Only now: a notification that was not dealt with comes again.
            keep_replay_id(marker, event.replay_id)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1] if len(sys.argv) > 1 else "last-replay-id")))
