"""Killing the server under load while subscribers resume by replay id: each of them is told of every acknowledged
change exactly once."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from tests.crash.ledger import Kind
from tests.crash.subscriber import Subscriber
from tests.crash.trial import Trial
from tests.crash.verdict import MARKER_FIELD, find_violations
from tests.running import Rest
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.slow]

_CATCH_UP_S = 300.0
_LAST = "the last one"


@pytest.mark.timeout(1800)
def test_subscribers_of_a_killed_server_see_every_acknowledged_change_once(
    fresh_server: ServerProcess, kills: int, seed: int
) -> None:
    rest = Rest(fresh_server.http, fresh_server.login())
    query = f"SELECT Id, Name, {MARKER_FIELD} FROM Account"
    rest.create("PushTopic", {"Name": "Kills", "Query": query, "ApiVersion": 62.0, "NotifyForFields": "All"})
    rest.close()
    trial = Trial(fresh_server, seed)
    with ExitStack() as stack:
        subscribers = [
            stack.enter_context(Subscriber(fresh_server.http, channel, events_per_client))
            for channel, events_per_client in (
                ("/topic/Kills", None),
                ("/topic/Kills", 25),
                ("/data/AccountChangeEvent", None),
                ("/data/AccountChangeEvent", 40),
            )
        ]

        def kill_while_watched() -> None:
            for subscriber in subscribers:
                subscriber.wait_more(_CATCH_UP_S)
            trial.kill_at_random()

        trial.write_through(kills, kill_while_watched)
        last_id = rest.create("Account", {"Name": _LAST, MARKER_FIELD: _LAST})
        trial.ledger.note(last_id, Kind.CREATE, _LAST, is_acknowledged=True)
        for subscriber in subscribers:
            subscriber.wait_marker(_LAST, _CATCH_UP_S)
    records = {row["Id"]: row[MARKER_FIELD] for row in rest.query(f"SELECT Id, {MARKER_FIELD} FROM Account")}
    rest.close()
    for subscriber in subscribers:
        assert find_violations(trial.ledger, subscriber.events, records) == []
    assert subscribers[0].events == subscribers[1].events
    assert subscribers[2].events == subscribers[3].events
    assert trial.ledger.acknowledged > 10 * kills
    assert subscribers[0].handshakes > kills
    assert subscribers[1].clients > kills // 2
