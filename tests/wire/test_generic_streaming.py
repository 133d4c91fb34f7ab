"""Generic streaming over the wire: on one process, on two edges and on PostgreSQL, clients cannot tell which."""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import requests

from tests.postgres import PostgresServer
from tidewire.config import DEV_PASSWORD
from tidewire.testing import ServerProcess

_WAIT_S = 60.0
_DATA = "/services/data/v62.0"
_HOLD = ["--bayeux-hold-s", "5"]


@pytest.fixture(scope="module", params=["sqlite", "edges", "postgres"])
def site(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server of each kind."""
    options = list(_HOLD)
    if request.param == "edges":
        options += ["--edges", "2"]
    if request.param == "postgres":
        postgres: PostgresServer = request.getfixturevalue("postgres")
        options += ["--store", postgres.make_url()]
    data = tmp_path_factory.mktemp("generic") / "data"
    with ServerProcess(data, options=options) as process:
        yield process


class User:
    """A signed-in user's REST calls, each on a connection of its own."""

    def __init__(self, server: ServerProcess, token: str) -> None:
        self._base = server.http
        self.token = token

    def call(self, method: str, path: str, body: Any = None, **headers: str) -> requests.Response:
        data = {"data": body} if isinstance(body, str) else {"json": body}
        named = {
            "Authorization": f"Bearer {self.token}",
            **{k.replace("_", "-"): v for k, v in headers.items()},
        }
        return requests.request(method, self._base + path, headers=named, timeout=_WAIT_S, **data)

    @property
    def user_id(self) -> str:
        return str(self.call("GET", "/services/oauth2/userinfo").json()["user_id"])

    def make_channel(self, name: str) -> str:
        answer = self.call("POST", f"{_DATA}/sobjects/StreamingChannel", {"Name": name})
        assert answer.status_code == 201, answer.text
        return str(answer.json()["id"])

    def push(self, channel_id: str, *events: dict[str, Any]) -> Any:
        path = f"{_DATA}/sobjects/StreamingChannel/{channel_id}/push"
        answer = self.call("POST", path, {"pushEvents": list(events)})
        assert answer.status_code == 200, answer.text
        return answer.json()

    def online(self, channel_id: str) -> Any:
        return self.call("GET", f"{_DATA}/sobjects/StreamingChannel/{channel_id}/push").json()


class Client:
    """A Bayeux client that dials anew for every request."""

    def __init__(self, server: ServerProcess, token: str, path: str = "/cometd/62.0") -> None:
        self._url = server.http + path
        self._headers = {"Authorization": f"Bearer {token}"}
        (reply,) = self._ask(channel="/meta/handshake", supportedConnectionTypes=["long-polling"])
        self._id = reply["clientId"]
        self.connect()

    def _ask(self, **message: Any) -> list[dict[str, Any]]:
        answer = requests.post(self._url, json=[message], headers=self._headers, timeout=_WAIT_S)
        assert answer.status_code == 200, answer.text
        messages: list[dict[str, Any]] = answer.json()
        return messages

    def subscribe(self, channel: str, replay: int | None = None) -> dict[str, Any]:
        ext = {} if replay is None else {"ext": {"replay": {channel: replay}}}
        replies = self._ask(channel="/meta/subscribe", clientId=self._id, subscription=channel, **ext)
        return next(reply for reply in replies if reply["channel"] == "/meta/subscribe")

    def unsubscribe(self, channel: str) -> None:
        self._ask(channel="/meta/unsubscribe", clientId=self._id, subscription=channel)

    def disconnect(self) -> None:
        self._ask(channel="/meta/disconnect", clientId=self._id)

    def connect(self) -> list[dict[str, Any]]:
        return self._ask(channel="/meta/connect", clientId=self._id, connectionType="long-polling")

    def read(self, count: int) -> list[dict[str, Any]]:
        """The data of exactly so many messages."""
        seen: list[dict[str, Any]] = []
        deadline = time.monotonic() + _WAIT_S
        while len(seen) < count:
            assert time.monotonic() < deadline, seen
            seen += [message["data"] for message in self.connect() if "data" in message]
        assert len(seen) == count, seen
        return seen


@pytest.fixture
def admin(site: ServerProcess) -> User:
    return User(site, site.login())


@pytest.fixture
def name() -> str:
    """A channel of this test's own."""
    return f"/u/tests/C{uuid.uuid4().hex[:12]}"


def make_user(site: ServerProcess, admin: User, rights: list[str]) -> User:
    mark = uuid.uuid4().hex[:10]
    document = {
        "permission_sets": {f"P{mark}": {"objects": {"StreamingChannel": rights}}},
        "users": {
            f"{mark}@x.test": {
                "password": DEV_PASSWORD,
                "last_name": mark,
                "profile": "Standard User",
                "permission_sets": [f"P{mark}"],
            }
        },
    }
    answer = admin.call("POST", "/services/tidewire/v1/apply", document)
    assert answer.status_code == 200, answer.text
    return User(site, site.login(f"{mark}@x.test"))


def until(condition: Callable[[], bool]) -> None:
    pause = threading.Event()
    deadline = time.monotonic() + _WAIT_S
    while not condition():
        assert time.monotonic() < deadline, "it never came to be"
        pause.wait(0.02)


def test_quick_start_sends_a_broadcast_to_its_subscriber(site: ServerProcess, admin: User) -> None:
    channel = "/u/notifications/ExampleUserChannel"
    channel_id = admin.make_channel(channel)
    client = Client(site, admin.token)
    assert client.subscribe(channel, -2)["successful"]
    event = {"payload": "Broadcast message to all subscribers", "userIds": []}
    assert admin.push(channel_id, event) == [{"fanoutCount": -1, "userOnlineStatus": {}}]
    (data,) = client.read(1)
    assert data["payload"] == "Broadcast message to all subscribers"
    assert data["event"].keys() == {"createdDate", "replayId"}
    assert isinstance(data["event"]["replayId"], int)
    assert admin.online(channel_id) == {"OnlineUserIds": [admin.user_id], "ChannelName": channel}


def test_replay_walk_of_the_durable_sample(site: ServerProcess, admin: User, name: str) -> None:
    channel_id = admin.make_channel(name)
    admin.push(channel_id, *[{"payload": "Test message", "userIds": []} for _ in range(10)])
    first = Client(site, admin.token)
    first.subscribe(name, -1)
    admin.push(channel_id, *[{"payload": "New Events"} for _ in range(3)])
    newest = first.read(3)
    assert [data["payload"] for data in newest] == ["New Events"] * 3
    everything = Client(site, admin.token)
    everything.subscribe(name, -2)
    ids = [data["event"]["replayId"] for data in everything.read(13)]
    assert ids == sorted(set(ids))
    middle = Client(site, admin.token)
    middle.subscribe(name, ids[4])
    assert [data["event"]["replayId"] for data in middle.read(8)] == ids[5:]


def test_event_for_named_users_reaches_them_alone(site: ServerProcess, admin: User, name: str) -> None:
    channel_id = admin.make_channel(name)
    other = make_user(site, admin, ["read"])
    absent = make_user(site, admin, ["read"])
    ours, theirs = Client(site, admin.token), Client(site, other.token)
    ours.subscribe(name)
    theirs.subscribe(name)
    assert admin.push(
        channel_id,
        {"payload": "hello world!", "userIds": [other.user_id, absent.user_id]},
        {"payload": "broadcast to everybody (empty user list)!", "userIds": []},
    ) == [
        {"fanoutCount": 1, "userOnlineStatus": {other.user_id: True, absent.user_id: False}},
        {"fanoutCount": -1, "userOnlineStatus": {}},
    ]
    assert [data["payload"] for data in theirs.read(2)] == [
        "hello world!",
        "broadcast to everybody (empty user list)!",
    ]
    assert [data["payload"] for data in ours.read(1)] == ["broadcast to everybody (empty user list)!"]
    later = Client(site, absent.token)
    later.subscribe(name, -2)
    assert len(later.read(2)) == 2
    admin_later = Client(site, admin.token)
    admin_later.subscribe(name, -2)
    assert len(admin_later.read(1)) == 1


def test_users_are_online_while_they_are_subscribed(site: ServerProcess, admin: User, name: str) -> None:
    channel_id = admin.make_channel(name)
    other = make_user(site, admin, ["read"])
    clients = [Client(site, admin.token), Client(site, other.token), Client(site, other.token)]
    for client in clients:
        client.subscribe(name)
        client.subscribe(name)
    assert admin.online(channel_id)["OnlineUserIds"] == sorted([admin.user_id, other.user_id])
    clients[0].unsubscribe(name)
    clients[1].disconnect()
    until(lambda: admin.online(channel_id)["OnlineUserIds"] == [other.user_id])
    clients[2].disconnect()
    until(lambda: admin.online(channel_id)["OnlineUserIds"] == [])
    assert admin.push(channel_id, {"payload": "x"}) == [{"fanoutCount": 0, "userOnlineStatus": {}}]


def test_session_of_36_gets_the_older_form_and_its_replay_endpoint_ids(
    site: ServerProcess, admin: User, name: str
) -> None:
    channel_id = admin.make_channel(name)
    admin.push(channel_id, {"payload": "before"})
    old, durable = Client(site, admin.token, "/cometd/36.0"), Client(site, admin.token, "/cometd/replay/36.0")
    old.subscribe(name)
    durable.subscribe(name, -2)
    admin.push(channel_id, {"payload": "after"})
    (data,) = old.read(1)
    assert data["payload"] == "after"
    assert data["event"].keys() == {"createdDate"}
    assert data["event"]["createdDate"].endswith("+0000")
    both = durable.read(2)
    assert [data["payload"] for data in both] == ["before", "after"]
    assert all(data["event"]["replayId"] for data in both)


def test_subscriber_makes_its_channel(site: ServerProcess, admin: User, name: str) -> None:
    maker = make_user(site, admin, ["read", "create"])
    client = Client(site, maker.token)
    assert client.subscribe(name)["successful"]
    soql = f"SELECT Id, IsDynamic FROM StreamingChannel WHERE Name = '{name}'"
    (row,) = admin.call("GET", f"{_DATA}/query?q={soql}").json()["records"]
    assert row["IsDynamic"] is True
    maker.push(row["Id"], {"payload": "mine"})
    assert client.read(1)[0]["payload"] == "mine"


def test_subscribe_that_is_refused_says_why(site: ServerProcess, admin: User, name: str) -> None:
    admin.make_channel(name)
    reader, stranger = make_user(site, admin, ["read"]), make_user(site, admin, [])
    variant = name.swapcase().replace("/U/", "/u/")
    cases = [
        (reader, f"{name}New", f"403::Cannot create channel {{{name}New}}"),
        (stranger, name, "403::No access on channel"),
        (reader, variant, "404::channel names may not vary only by case"),
    ]
    for user, channel, error in cases:
        reply = Client(site, user.token).subscribe(channel)
        assert (reply["successful"], reply["error"]) == (False, error)


def test_org_that_makes_no_channels_knows_none(site: ServerProcess, admin: User, name: str) -> None:
    document = {"settings": {"dynamic_channels": False}}
    admin.call("POST", "/services/tidewire/v1/apply", document)
    try:
        reply = Client(site, admin.token).subscribe(name)
    finally:
        document["settings"]["dynamic_channels"] = True
        admin.call("POST", "/services/tidewire/v1/apply", document)
    assert (reply["successful"], reply["error"]) == (False, "404::Unknown channel")


def test_push_resource_speaks_xml(site: ServerProcess, admin: User, name: str) -> None:
    channel_id = admin.make_channel(name)
    client = Client(site, admin.token)
    client.subscribe(name)
    path = f"{_DATA}/sobjects/StreamingChannel/{channel_id}/push"
    shown = ElementTree.fromstring(admin.call("GET", path, Accept="application/xml").content)
    assert shown.findtext("ChannelName") == name
    assert [each.text for each in shown.findall("OnlineUserIds")] == [admin.user_id]
    body = (
        "<request><pushEvents><payload>one &amp; two</payload></pushEvents><pushEvents><payload>three</payload>"
        f"<userIds>{admin.user_id}</userIds></pushEvents></request>"
    )
    headers = {"Accept": "application/xml", "Content_Type": "application/xml"}
    answer = admin.call("POST", path, body, **headers)
    assert answer.headers["Content-Type"].startswith("application/xml")
    told = ElementTree.fromstring(answer.content)
    assert [each.findtext("fanoutCount") for each in told] == ["-1", "1"]
    assert [data["payload"] for data in client.read(2)] == ["one & two", "three"]


@pytest.mark.parametrize(
    "body, status, code",
    [
        ({"pushEvents": [{"payload": "x" * 3001}]}, 400, "STRING_TOO_LONG"),
        ({"pushEvents": [{"payload": "good"}, {"payload": 7}]}, 400, "JSON_PARSER_ERROR"),
        ({"pushEvents": [{"payload": "good"}, {}]}, 400, "REQUIRED_FIELD_MISSING"),
        ({"pushEvents": [{"payload": "x", "userIds": ["nobody"]}]}, 400, "MALFORMED_ID"),
        ({"pushEvents": [{"payload": "x", "userIds": "005"}]}, 400, "MALFORMED_ID"),
        ({"pushEvents": [{"payload": "x", "users": []}]}, 400, "JSON_PARSER_ERROR"),
        ({"pushEvents": ["x"]}, 400, "JSON_PARSER_ERROR"),
        ({"pushEvents": [{"payload": "x"}] * 1001}, 400, "EXCEEDED_ID_LIMIT"),
        ({}, 400, "REQUIRED_FIELD_MISSING"),
        ("[", 400, "JSON_PARSER_ERROR"),
    ],
)
def test_bad_push_sends_nothing(
    site: ServerProcess, admin: User, name: str, body: Any, status: int, code: str
) -> None:
    channel_id = admin.make_channel(name)
    path = f"{_DATA}/sobjects/StreamingChannel/{channel_id}/push"
    answer = admin.call("POST", path, body, Content_Type="application/json")
    assert (answer.status_code, answer.json()[0]["errorCode"]) == (status, code)
    client = Client(site, admin.token)
    client.subscribe(name, -2)
    admin.push(channel_id, {"payload": "only"})
    assert [data["payload"] for data in client.read(1)] == ["only"]


def test_push_to_what_is_no_channel_or_in_an_older_version_is_not_found(
    site: ServerProcess, admin: User, name: str
) -> None:
    channel_id = admin.make_channel(name)
    event = {"pushEvents": [{"payload": "x"}]}
    stranger = make_user(site, admin, [])
    reader = make_user(site, admin, ["read"])
    path = f"sobjects/StreamingChannel/{channel_id}/push"
    assert admin.call("POST", f"/services/data/v28.0/{path}", event).status_code == 404
    missing = f"{_DATA}/sobjects/StreamingChannel/0M6000000000000AAA/push"
    assert admin.call("GET", missing).status_code == 404
    assert admin.call("POST", missing, event).status_code == 404
    assert stranger.call("GET", f"{_DATA}/{path}").status_code == 404
    assert stranger.call("POST", f"{_DATA}/{path}", event).status_code == 404
    refused = reader.call("POST", f"{_DATA}/{path}", event)
    assert (refused.status_code, refused.json()[0]["errorCode"]) == (403, "INSUFFICIENT_ACCESS_OR_READONLY")
    assert reader.call("GET", f"{_DATA}/{path}").json()["ChannelName"] == name


def test_channel_record_is_described_changed_deleted_and_brought_back(
    site: ServerProcess, admin: User, name: str
) -> None:
    described = admin.call("GET", f"{_DATA}/sobjects/StreamingChannel/describe").json()
    fields = {field["name"]: field for field in described["fields"]}
    assert fields["Name"]["length"] == 80
    assert fields["Description"]["length"] == 255
    assert not fields["IsDynamic"]["createable"]
    assert fields.keys() >= {"OwnerId", "IsDeleted", "LastViewedDate", "LastReferencedDate"}
    assert described["undeletable"]
    assert described["replicateable"]
    layout = admin.call("GET", f"{_DATA}/sobjects/StreamingChannel/describe/layouts")
    assert layout.status_code == 200
    channel_id = admin.make_channel(name)
    path = f"{_DATA}/sobjects/StreamingChannel/{channel_id}"
    assert admin.call("PATCH", path, {"Description": "mine"}).status_code == 204
    assert admin.call("PATCH", path, {"Name": "elsewhere"}).status_code == 400
    assert admin.call("PATCH", path, {"IsDynamic": True}).status_code == 400
    now = datetime.now(UTC)
    moments = {"start": now - timedelta(hours=1), "end": now + timedelta(minutes=5)}
    window = "&".join(f"{word}={moment:%Y-%m-%dT%H:%M:%SZ}" for word, moment in moments.items())
    listed = f"{_DATA}/sobjects/StreamingChannel"
    assert channel_id in admin.call("GET", f"{listed}/updated?{window}").json()["ids"]
    assert admin.call("DELETE", path).status_code == 204
    deleted = admin.call("GET", f"{listed}/deleted?{window}").json()["deletedRecords"]
    assert channel_id in [each["id"] for each in deleted]
    answer = ElementTree.fromstring(undelete(site, admin.token, channel_id))
    assert [e.text for e in answer.iter() if e.tag.endswith("}success")] == ["true"]
    assert admin.call("GET", path).json()["Description"] == "mine"


def undelete(site: ServerProcess, token: str, record_id: str) -> bytes:
    body = (
        '<e:Envelope xmlns:e="http://schemas.xmlsoap.org/soap/envelope/" xmlns="urn:partner.soap.sforce.com">'
        f"<e:Header><SessionHeader><sessionId>{token}</sessionId></SessionHeader></e:Header>"
        f"<e:Body><undelete><ids>{record_id}</ids></undelete></e:Body></e:Envelope>"
    )
    headers = {"Content-Type": "text/xml", "SOAPAction": '""'}
    url = f"{site.http}/services/Soap/u/62.0"
    return requests.post(url, body, headers=headers, timeout=_WAIT_S).content


def test_dates_of_use_follow_what_its_user_looks_at(site: ServerProcess, admin: User, name: str) -> None:
    channel_id = admin.make_channel(name)
    path = f"{_DATA}/sobjects/StreamingChannel/{channel_id}"
    assert admin.call("GET", path).json()["LastViewedDate"] is None
    soql = f"SELECT Id FROM StreamingChannel WHERE Id = '{channel_id}' FOR REFERENCE"
    admin.call("GET", f"{_DATA}/query?q={soql}")
    seen = admin.call("GET", path).json()
    assert seen["LastViewedDate"] is None
    assert seen["LastReferencedDate"] is not None
    admin.call("GET", path, Sforce_Mru="updateMru=true")
    assert admin.call("GET", path).json()["LastViewedDate"] is not None
    soql = f"SELECT LastViewedDate FROM StreamingChannel WHERE Id = '{channel_id}'"
    (row,) = admin.call("GET", f"{_DATA}/query?q={soql}").json()["records"]
    assert row["LastViewedDate"] is not None
    newest = admin.call("GET", f"{_DATA}/recent?limit=1").json()[0]
    assert (newest["Id"], newest["Name"]) == (channel_id, name)


def test_org_of_an_edition_makes_no_more_channels_than_it_may(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", options=["--edition", "developer", *_HOLD]) as server:
        admin = User(server, server.login())
        records = [{"attributes": {"type": "StreamingChannel"}, "Name": f"/u/C{n}"} for n in range(200)]
        answer = admin.call("POST", f"{_DATA}/composite/sobjects", {"allOrNone": True, "records": records})
        assert all(each["success"] for each in answer.json()), answer.text
        reply = Client(server, admin.token).subscribe("/u/OneMore")
        error = "403::Unable to create channel dynamically, maximum channel limit has been exceeded"
        assert (reply["successful"], reply["error"]) == (False, error)


@pytest.mark.crash
def test_users_of_an_edge_that_dies_are_no_longer_online(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data", options=["--edges", "1", *_HOLD]) as server:
        admin = User(server, server.login())
        channel_id = admin.make_channel("/u/Dying")
        Client(server, admin.token).subscribe("/u/Dying")
        assert admin.online(channel_id)["OnlineUserIds"] == [admin.user_id]
        children = Path(f"/proc/{server.pid}/task/{server.pid}/children").read_text().split()
        edges = [c for c in children if b"tidewire.server.edge" in Path(f"/proc/{c}/cmdline").read_bytes()]
        assert edges
        for edge in edges:
            os.kill(int(edge), signal.SIGKILL)

        def is_empty() -> bool:
            try:
                return bool(admin.online(channel_id).get("OnlineUserIds") == [])
            except (requests.RequestException, ValueError):
                return False

        until(is_empty)
