"""Every row of the Streaming API's error table, provoked over the wire, in the place where clients look for it.

A row is a text, the place where it is told, and a function that provokes it: `rows()` is the table, and adding a row
is adding a line to it. Places: `handshake` is `ext.sfdc.failureReason` of a handshake that was denied; `connect` and
`subscribe` are `error` of these replies; `http` is the status line and the body.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.bayeux import PATH, Dialler, Poller
from tests.oauth import PASSWORD, Admin
from tests.running import Rest
from tidewire.testing import READER_USERNAME, ServerProcess

Reply = dict[str, Any]


@dataclass
class Scene:
    """What a row may need: servers, people, topics of its own."""

    server: ServerProcess
    strict: ServerProcess
    dial: Dialler

    def client(
        self, username: str = "", *, path: str = PATH, strict: bool = False, token: str = ""
    ) -> Poller:
        server = self.strict if strict else self.server
        if not token:
            token = (
                server.login(username, PASSWORD)
                if "example.org" in username
                else server.login(*_given(username))
            )
        return Poller(self.dial.plain(server), token, path=path)

    def topic(self, query: str) -> str:
        rest = Rest(self.server.http, self.server.login())
        name = f"E{secrets.token_hex(8)}"
        rest.create("PushTopic", {"Name": name, "Query": query, "ApiVersion": 60.0})
        rest.close()
        return name

    def user(self, *, objects: dict[str, list[str]], fields: dict[str, Any] | None = None) -> str:
        """Somebody with these rights and no others."""
        admin, set_name = Admin(self.server), f"Rows_{secrets.token_hex(6)}"
        admin.apply(
            permission_sets={
                set_name: {
                    "label": set_name,
                    "permissions": ["ApiEnabled"],
                    "objects": objects,
                    "fields": fields or {},
                }
            }
        )
        return admin.make_user(last_name="Rows", permission_sets=[set_name])


def _given(username: str) -> tuple[str, ...]:
    return (username,) if username else ()


@dataclass(frozen=True)
class Row:
    """One error. `text` may name `{client}`, which stands for the client's id."""

    text: str
    place: str
    provoke: Callable[[Scene], tuple[Poller, Reply]]
    reconnect: str | None = None


def handshake(
    path: str = PATH, *, token: str = "", bare: bool = False, **values: Any
) -> Callable[[Scene], tuple[Poller, Reply]]:
    """A handshake that is denied."""

    def provoke(scene: Scene) -> tuple[Poller, Reply]:
        client = scene.client(path=path, token=token)
        if bare:
            client = Poller(scene.dial.plain(scene.server), "", path=path)
        return client, client.shake_hands(**values)

    return provoke


def subscribe(channel: Any, username: str = "", **values: Any) -> Callable[[Scene], tuple[Poller, Reply]]:
    """A subscribe that is refused."""

    def provoke(scene: Scene) -> tuple[Poller, Reply]:
        client = scene.client(username)
        client.shake_hands()
        message = {"channel": "/meta/subscribe", **({} if channel is None else {"subscription": channel})}
        (reply,) = client.ask({**message, **values})
        return client, reply

    return provoke


def subscribe_to(
    query: str,
    suffix: str = "",
    *,
    objects: dict[str, list[str]] | None = None,
    fields: dict[str, Any] | None = None,
) -> Callable[[Scene], tuple[Poller, Reply]]:
    """A refused subscribe to a push topic, as somebody with these rights or as the administrator."""

    def provoke(scene: Scene) -> tuple[Poller, Reply]:
        username = "" if objects is None else scene.user(objects=objects, fields=fields)
        return subscribe(f"/topic/{scene.topic(query)}{suffix}", username)(scene)

    return provoke


def connect_as_somebody_else(scene: Scene) -> tuple[Poller, Reply]:
    client, other = scene.client(), scene.client(READER_USERNAME)
    client.shake_hands()
    other.client_id = client.client_id
    (reply,) = other.ask({"channel": "/meta/connect", "connectionType": "long-polling"})
    return other, reply


def connect_by_callback(scene: Scene) -> tuple[Poller, Reply]:
    client = scene.client()
    client.shake_hands()
    (reply,) = client.ask({"channel": "/meta/connect", "connectionType": "callback-polling"})
    return client, reply


def connect_without_cookie(scene: Scene) -> tuple[Poller, Reply]:
    client = scene.client(strict=True)
    client.shake_hands()
    (reply,) = client.ask({"channel": "/meta/connect", "connectionType": "long-polling"})
    leave(scene, client)
    return client, reply


def connect_after_logout(scene: Scene) -> tuple[Poller, Reply]:
    token = scene.server.login()
    client = scene.client(token=token)
    client.open()
    client.connect()
    scene.dial.revoke(scene.server, token)
    (reply,) = client.receive()
    return client, reply


def connect_to_nothing(scene: Scene) -> tuple[Poller, Reply]:
    client = scene.client()
    client.client_id = "1q1lib66fvm7k1ilgfoauu95i78g"
    (reply,) = client.ask({"channel": "/meta/connect", "connectionType": "long-polling"})
    return client, reply


def subscribe_before_handshake(scene: Scene) -> tuple[Poller, Reply]:
    client = scene.client()
    return client, client.subscribe("/topic/Anything")


def subscribe_to_changes_of_some(scene: Scene) -> tuple[Poller, Reply]:
    return subscribe("/data/AccountChangeEvent", scene.user(objects={"Account": ["read"]}))(scene)


def subscribe_generic(channel: str, rights: list[str]) -> Callable[[Scene], tuple[Poller, Reply]]:
    """A refused subscribe to a generic channel, as somebody with these rights on channels."""

    def provoke(scene: Scene) -> tuple[Poller, Reply]:
        return subscribe(channel, scene.user(objects={"StreamingChannel": rights}))(scene)

    return provoke


def subscribe_in_another_case(scene: Scene) -> tuple[Poller, Reply]:
    rest = Rest(scene.server.http, scene.server.login())
    name = f"/u/Rows{secrets.token_hex(8)}"
    rest.create("StreamingChannel", {"Name": name})
    rest.close()
    return subscribe(name.replace("Rows", "rOWS"))(scene)


def handshake_too_many(scene: Scene) -> tuple[Poller, Reply]:
    clients = [scene.client(strict=True)]
    # Each process of the server has room for one.
    while (reply := clients[-1].shake_hands())["successful"] and len(clients) < 50:
        clients.append(scene.client(strict=True))
    for client in clients[:-1]:
        leave(scene, client)
    return clients[-1], reply


def leave(scene: Scene, client: Poller) -> None:
    cookie = client.cookie.partition(";")[0]
    leaving = Poller(client.connection, scene.strict.login(), cookie)
    leaving.client_id = client.client_id
    assert leaving.ask({"channel": "/meta/disconnect"})[0]["successful"]


def rows() -> list[Row]:
    """The table."""
    reads = {"PushTopic": ["read"], "Account": ["read"]}
    return [
        Row(
            "400::API version in the URI is mandatory. URI format: '/cometd/42.0'",
            "handshake",
            handshake("/cometd"),
        ),
        Row(
            "400::Unsupported API version. Only API versions '23.0' and above are supported. "
            "URI format: '/cometd/42.0'",
            "handshake",
            handshake("/cometd/22.0"),
        ),
        Row("400::Invalid connection type {callback-polling}", "connect", connect_by_callback, "none"),
        Row(
            "400::Invalid connection type {websocket}",
            "handshake",
            handshake(supportedConnectionTypes=["websocket"]),
        ),
        Row(
            "400::The channel you requested to subscribe to does not exist {/topic/NoSuchRow}",
            "subscribe",
            subscribe("/topic/NoSuchRow"),
        ),
        Row("400::Channel name not specified", "subscribe", subscribe(None)),
        Row("400::Channel subscriptions must start with a leading '/'", "subscribe", subscribe("topic/X")),
        Row(
            "400::Query fields {Nope} do not exist on the topic entity",
            "subscribe",
            subscribe_to("SELECT Id, Name FROM Account", "?Nope='1'"),
        ),
        Row(
            "400::Client {client} has established a session, but no BAYEUX_BROWSER cookie present",
            "connect",
            connect_without_cookie,
            "handshake",
        ),
        Row(
            "400::The replayId {9007199254740000} you provided was invalid. Please provide a valid ID, -2 to replay "
            "all events, or -1 to replay only new events.",
            "subscribe",
            subscribe(
                "/data/AccountChangeEvent",
                ext={"replay": {"/data/AccountChangeEvent": 9_007_199_254_740_000}},
            ),
        ),
        Row(
            "400::The replayId for channel {/data/AccountChangeEvent} wasn't found using the provided replay ID map "
            "{{/data/Other=1}}. Ensure that the channel name you provided in the replay map is valid and matches the "
            "channel name used for subscribing.",
            "subscribe",
            subscribe("/data/AccountChangeEvent", ext={"replay": {"/data/Other": 1}}),
        ),
        Row(
            "400::Authenticated user id does not match the session's user id",
            "connect",
            connect_as_somebody_else,
            "none",
        ),
        Row("401::Authentication invalid", "handshake", handshake(token="nonsense")),
        Row("401::Authentication invalid", "connect", connect_after_logout, "none"),
        Row("401::Request requires authentication", "handshake", handshake(bare=True)),
        Row(
            "403::Subscriber does not have access to the entity in this topic",
            "subscribe",
            subscribe_to("SELECT Id, Name FROM Opportunity", objects=reads),
        ),
        Row(
            "403::Subscriber does not have access to all fields referenced in the where clause of the PushTopic",
            "subscribe",
            subscribe_to("SELECT Id, Name FROM Account WHERE Fax = '1'", objects=reads),
        ),
        Row("403::Client has not completed handshake", "subscribe", subscribe_before_handshake, "handshake"),
        Row("403::Restricted channel", "subscribe", subscribe("/meta/connect")),
        Row(
            "403::User not enabled for streaming",
            "subscribe",
            subscribe_to("SELECT Id, Name FROM Account", objects={"Account": ["read"]}),
        ),
        Row(
            "403::User not allowed to subscribe CDC without View All Data permissions",
            "subscribe",
            subscribe_to_changes_of_some,
        ),
        Row(
            "403::Cannot create channel {/u/NoSuchRow}",
            "subscribe",
            subscribe_generic("/u/NoSuchRow", ["read"]),
        ),
        Row("403::No access on channel", "subscribe", subscribe_generic("/u/NoSuchRow", [])),
        Row("404::channel names may not vary only by case", "subscribe", subscribe_in_another_case),
        Row("403::Unknown client", "connect", connect_to_nothing, "handshake"),
        Row(
            "403::To protect all customers from excessive use and Denial of Service attacks, we limit the number of "
            "simultaneous connections per server. Your request has been denied because this limit has been exceeded. "
            "Please try your request again later.",
            "handshake",
            handshake_too_many,
        ),
    ]


@pytest.fixture(scope="module")
def strict_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A server that insists on cookies and has room for one client."""
    options = ["--bayeux-require-cookie", "--bayeux-clients", "1"]
    with ServerProcess(tmp_path_factory.mktemp("strict") / "data", options=options) as process:
        yield process


@pytest.fixture
def scene(server: ServerProcess, strict_server: ServerProcess, dial: Dialler) -> Scene:
    return Scene(server, strict_server, dial)


@pytest.mark.parametrize("row", rows(), ids=lambda row: f"{row.place}: {row.text[:60]}")
def test_error_is_told_where_clients_look_for_it(row: Row, scene: Scene) -> None:
    client, reply = row.provoke(scene)
    text = row.text.replace("{client}", client.client_id)
    assert reply["channel"] == f"/meta/{row.place}"
    assert reply["successful"] is False
    if row.place == "handshake":
        assert reply["error"] == "403::Handshake denied"
        assert reply["ext"]["sfdc"]["failureReason"] == text
        assert reply["advice"] == {"reconnect": "none"}
        assert "clientId" not in reply
    else:
        assert reply["error"] == text
        assert reply.get("advice", {}).get("reconnect") == row.reconnect


def test_busy_server_denies_a_subscribe_and_says_why_in_its_extension(tmp_path: Path, dial: Dialler) -> None:
    env = {"TIDEWIRE_FAIL_AT": "bayeux.subscribe@/data/AccountChangeEvent=write_conflict"}
    with ServerProcess(tmp_path / "data", env=env) as server:
        client = Poller(dial.plain(server), server.login())
        client.shake_hands()
        busy, fine = (
            client.ask({"channel": "/meta/subscribe", "subscription": channel})[0]
            for channel in ("/data/AccountChangeEvent", "/data/ChangeEvents")
        )
    assert (busy["successful"], busy["error"]) == (False, "403:denied_by_security_policy:subscribe_denied")
    cause = "503::Server is too busy. Please try your request again later."
    assert busy["ext"]["sfdc"]["failureReason"] == cause
    assert fine["successful"] is True


def test_request_over_the_limit_gets_413_and_its_text(scene: Scene) -> None:
    connection = scene.dial.plain(scene.server)
    body = json.dumps([{"channel": "/meta/handshake", "filler": "x" * 32_768}])
    headers = {"Content-Type": "application/json", "Authorization": f"OAuth {scene.server.login()}"}
    connection.request("POST", PATH, body, headers)
    response = connection.getresponse()
    assert (response.status, response.read()) == (413, b"Maximum Request Size Exceeded\n")
