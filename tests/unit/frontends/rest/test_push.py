"""The push resource: its bodies, and pushes in composite requests."""

from __future__ import annotations

from tests.orgs import TestOrg
from tests.unit.frontends.rest.data_caller import Caller
from tidewire.events import Family


async def make_channel(org: TestOrg, name: str) -> str:
    return await org.gate.create(org.call, "StreamingChannel", {"Name": name})


async def count_kept(org: TestOrg, channel_id: str) -> int:
    page = await org.gate.records.read(
        lambda r: org.core.log.read_after(r, Family.GENERIC, frozenset({channel_id}), 0, 100, 1 << 20)
    )
    return len(page.events)


def subrequest(channel_id: str, payload: str, mark: str) -> dict[str, object]:
    return {
        "method": "POST",
        "url": f"/services/data/v60.0/sobjects/StreamingChannel/{channel_id}/push",
        "referenceId": mark,
        "body": {"pushEvents": [{"payload": payload}]},
    }


async def test_push_in_a_failed_composite_is_rolled_back(org: TestOrg) -> None:
    channel_id = await make_channel(org, "/u/Joined")
    caller = Caller(org)
    good = subrequest(channel_id, "kept", "a")
    bad = subrequest(channel_id, "x" * 3001, "b")
    status, answer = await caller.send(
        "POST", "composite", {"allOrNone": True, "compositeRequest": [good, bad]}
    )
    assert status == 200
    assert [part["httpStatusCode"] for part in answer["compositeResponse"]] == [400, 400]
    assert await count_kept(org, channel_id) == 0
    status, answer = await caller.send("POST", "composite", {"allOrNone": True, "compositeRequest": [good]})
    assert answer["compositeResponse"][0]["body"] == [{"fanoutCount": 0, "userOnlineStatus": {}}]
    assert await count_kept(org, channel_id) == 1


async def test_channel_created_in_a_composite_can_be_pushed_to_in_it(org: TestOrg) -> None:
    made = {
        "method": "POST",
        "url": "/services/data/v60.0/sobjects/StreamingChannel",
        "referenceId": "made",
        "body": {"Name": "/u/Fresh"},
    }
    pushed = subrequest("@{made.id}", "first", "pushed")
    body = {"allOrNone": True, "compositeRequest": [made, pushed]}
    _, answer = await Caller(org).send("POST", "composite", body)
    assert [part["httpStatusCode"] for part in answer["compositeResponse"]] == [201, 200]
    assert await count_kept(org, answer["compositeResponse"][0]["body"]["id"]) == 1


async def test_push_of_nothing_sends_nothing(org: TestOrg) -> None:
    channel_id = await make_channel(org, "/u/Nothing")
    path = f"sobjects/StreamingChannel/{channel_id}/push"
    assert await Caller(org).send("POST", path, {"pushEvents": []}) == (200, [])
    assert await count_kept(org, channel_id) == 0


async def test_short_id_in_the_path_is_the_same_channel(org: TestOrg) -> None:
    channel_id = await make_channel(org, "/u/Short")
    status, answer = await Caller(org).send("GET", f"sobjects/StreamingChannel/{channel_id[:15]}/push")
    assert (status, answer) == (200, {"OnlineUserIds": [], "ChannelName": "/u/Short"})


async def test_other_methods_are_not_allowed(org: TestOrg) -> None:
    channel_id = await make_channel(org, "/u/Methods")
    status, answer = await Caller(org).send("DELETE", f"sobjects/StreamingChannel/{channel_id}/push")
    assert (status, answer[0]["errorCode"]) == (405, "METHOD_NOT_ALLOWED")


async def test_path_with_malformed_id_is_rejected(org: TestOrg) -> None:
    for method, body in (("GET", None), ("POST", {"pushEvents": [{"payload": "x"}]})):
        status, _ = await Caller(org).send(method, "sobjects/StreamingChannel/nonsense/push", body)
        assert status in (400, 404)
