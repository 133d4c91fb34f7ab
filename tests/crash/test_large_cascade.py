"""A server that dies in the middle of a large cascade: its records and its events agree afterwards."""

from __future__ import annotations

import random
import threading
from contextlib import suppress

import pytest

from tests.running import API, InDoubt, Rest, call_metadata, read_topic
from tidewire.testing import ServerProcess

pytestmark = [pytest.mark.crash, pytest.mark.slow]

CONTACTS = 3_000
AT_A_TIME = 200
TOPIC = "/data/ContactChangeEvent"


def make_owner(rest: Rest) -> str:
    """An account with all its contacts."""
    account = rest.create("Account", {"Name": "Owner"})
    record = {"attributes": {"type": "Contact"}, "LastName": "C", "AccountId": account}
    for _ in range(CONTACTS // AT_A_TIME):
        body = {"allOrNone": True, "records": [record] * AT_A_TIME}
        assert all(result["success"] for result in rest.call("POST", f"{API}/composite/sobjects", body))
    return account


def delete_in_vain(server: ServerProcess, token: str, account: str) -> None:
    """Delete an account on a server that may not live to answer."""
    rest = Rest(server.http, token)
    with suppress(InDoubt):
        rest.delete("Account", account)
    rest.close()


def deleted_since(server: ServerProcess, token: str, rest: Rest, after: int | None) -> tuple[set[str], int]:
    """The contacts that events after a replay id tell to be deleted, and the replay id of the last event."""
    last = rest.create("Contact", {"LastName": "last"})
    metadata = call_metadata(token, server.http, server.org_id)
    events = read_topic(
        server.grpc, metadata, TOPIC, lambda e: last in e.header["recordIds"], after=after, timeout_s=300
    )
    told = [i for e in events if e.header["changeType"] == "DELETE" for i in e.header["recordIds"]]
    assert len(told) == len(set(told))
    return set(told), events[-1].replay_id


@pytest.mark.timeout(1800)
def test_cascade_that_a_kill_interrupts_is_wholly_there_or_not_at_all(
    fresh_server: ServerProcess, kills: int, seed: int
) -> None:
    dice = random.Random(seed)
    token = fresh_server.login()
    rest = Rest(fresh_server.http, token)
    rest.call("POST", "/services/tidewire/v1/apply", {"capture": ["Account", "Contact"]})
    _, reached = deleted_since(fresh_server, token, rest, None)
    for _ in range(kills):
        account = make_owner(rest)
        rest.close()
        deleting = threading.Thread(target=delete_in_vain, args=(fresh_server, token, account))
        deleting.start()
        deleting.join(dice.uniform(0, 1.5))
        fresh_server.restart()
        deleting.join()
        of_account = f"FROM Contact WHERE AccountId = '{account}'"
        left = rest.query(f"SELECT COUNT(Id) n {of_account}")[0]["n"]
        accounts = rest.query(f"SELECT Id FROM Account WHERE Id = '{account}'")
        assert (left, len(accounts)) in ((CONTACTS, 1), (0, 0))
        told, reached = deleted_since(fresh_server, token, rest, reached)
        assert len(told) == CONTACTS - left
    rest.close()
