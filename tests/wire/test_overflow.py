"""One transaction with more changes than are told one by one, as the guide describes it: the cascade of a delete."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.running import API, Json, Rest, call_metadata, read_topic
from tests.wire.guide_watch import Watcher, check_event
from tidewire.testing import ServerProcess

ENTITIES = ["Account", "Opportunity", "Contact", "Task"]
ACCOUNTS = 3
OF_EACH_KIND = 13_400
CHILDREN = ACCOUNTS * 3 * OF_EACH_KIND
TOLD = 100_000
AT_A_TIME = 200
MOST_MORE_MB = 40
"""How much more memory than before the delete may take at any moment, however many records it takes along. A thin row
of each would be twice that, their whole rows eight times.
"""
EMPTY_ID = "000000000000000AAA"
LAST = "after the cascade"


@pytest.fixture
def rest(fresh_server: ServerProcess) -> Iterator[Rest]:
    client = Rest(fresh_server.http, fresh_server.login())
    client.call("POST", "/services/tidewire/v1/apply", {"capture": ENTITIES})
    yield client
    client.close()


def make_children(server: ServerProcess, account: str) -> None:
    """Give an account its share of opportunities, contacts and tasks, as many of each."""
    kinds: dict[str, Json] = {
        "Opportunity": {
            "Name": "O",
            "StageName": "Prospecting",
            "CloseDate": "2030-01-01",
            "AccountId": account,
        },
        "Contact": {"LastName": "C", "AccountId": account},
        "Task": {"Subject": "T", "WhatId": account},
    }
    rest = Rest(server.http, server.login())
    for entity, values in kinds.items():
        records = [{"attributes": {"type": entity}, **values}] * AT_A_TIME
        for _ in range(OF_EACH_KIND // AT_A_TIME):
            results = rest.call("POST", f"{API}/composite/sobjects", {"allOrNone": True, "records": records})
            assert all(result["success"] for result in results)
    rest.close()


def memory_mb(pid: int, kind: str) -> float:
    """Resident memory of a process: VmRSS now, VmHWM at most since it was last forgotten."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    (found,) = (line for line in lines if line.startswith(kind))
    return int(found.split()[1]) / 1024


def delete_together(server: ServerProcess, token: str, ids: list[str]) -> None:
    """Delete records in one transaction, however long that takes."""
    connection = HTTPConnection(urlsplit(server.http).netloc, timeout=600)
    path = f"{API}/composite/sobjects?ids={','.join(ids)}&allOrNone=true"
    connection.request("DELETE", path, headers={"Authorization": f"Bearer {token}"})
    answer = json.loads(connection.getresponse().read())
    connection.close()
    assert all(result["success"] for result in answer), answer


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_delete_cascade_beyond_the_limit_sends_overflow_events_in_bounded_memory(
    fresh_server: ServerProcess, rest: Rest
) -> None:
    token = fresh_server.login()
    accounts = [rest.create("Account", {"Name": f"Owner {n}"}) for n in range(ACCOUNTS)]
    makers = [threading.Thread(target=make_children, args=(fresh_server, account)) for account in accounts]
    for maker in makers:
        maker.start()
    for maker in makers:
        maker.join()
    rest.close()
    assert rest.query("SELECT COUNT(Id) n FROM Contact")[0]["n"] == CHILDREN // 3
    metadata = call_metadata(token, fresh_server.http, fresh_server.org_id)
    first = rest.create("Account", {"Name": "before the cascade"})
    begun = read_topic(
        fresh_server.grpc,
        metadata,
        "/data/AccountChangeEvent",
        lambda event: first in event.header["recordIds"],
    )
    Path(f"/proc/{fresh_server.pid}/clear_refs").write_text("5")
    before_mb = memory_mb(fresh_server.pid, "VmRSS")
    delete_together(fresh_server, token, accounts)
    more_mb = memory_mb(fresh_server.pid, "VmHWM") - before_mb
    print(f"{more_mb:.0f} MB more than {before_mb:.0f}")  # noqa: T201
    rest.close()
    rest.create("Account", {"Name": LAST})
    *cascade, _ = read_topic(
        fresh_server.grpc,
        metadata,
        "/data/ChangeEvents",
        lambda event: event.payload.get("Name") == LAST,
        after=begun[-1].replay_id,
        timeout_s=300,
    )
    assert len({event.header["transactionKey"] for event in cascade}) == 1
    kinds = Counter(event.header["changeType"] for event in cascade)
    deleted = [i for e in cascade if e.header["changeType"] == "DELETE" for i in e.header["recordIds"]]
    assert kinds.keys() == {"DELETE", "GAP_OVERFLOW"}
    assert len(deleted) == len(set(deleted)) == TOLD
    overflows = [event for event in cascade if event.header["changeType"] == "GAP_OVERFLOW"]
    assert overflows == cascade[-len(overflows) :]
    # Of the third account's children 20,000 are told, contacts first.
    assert [event.header["entityName"] for event in overflows] == ["Opportunity", "Task"]
    assert all(event.header["recordIds"] == [EMPTY_ID] for event in overflows)
    assert all(
        value is None for e in overflows for name, value in e.payload.items() if name != "ChangeEventHeader"
    )
    left = sum(CHILDREN // 3 - sum(i.startswith(p) for i in deleted) for p in ("006", "003", "00T"))
    assert left == CHILDREN + ACCOUNTS - TOLD
    channel = "/data/TaskChangeEvent"
    watcher = Watcher(fresh_server.http, token, channel, replay_id=begun[-1].replay_id)
    event = watcher.wait_for("GAP_OVERFLOW")
    watcher.close()
    # The guide's example is of a task too; its place in the transaction is its own.
    place = event["payload"]["ChangeEventHeader"]["sequenceNumber"]
    header = check_event(event, "GAP_OVERFLOW", "Task", place, {})
    assert (header["changedFields"], header["recordIds"]) == ([], [EMPTY_ID])
    assert more_mb < MOST_MORE_MB
