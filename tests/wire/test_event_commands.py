"""`tidewire publish`, `channels`, `topics` and `subscribe` over the Pub/Sub API against a live server."""

from __future__ import annotations

import json
import secrets
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.edges import until
from tests.running import Rest, call_metadata, read_topic
from tidewire.cli.main import cli
from tidewire.errors import ReplayIdExpired, ServerUnreachable, TopicUnknown
from tidewire.testing import ServerProcess

EVENT = "Command_Event__e"
TOPIC = f"/event/{EVENT}"


@pytest.fixture(scope="module", autouse=True)
def event(server: ServerProcess) -> None:
    fields = {
        "Number__c": {"type": "text", "length": 80},
        "Amount__c": {"type": "number", "precision": 10, "scale": 2},
        "Is_Paid__c": {"type": "checkbox"},
    }
    rest = Rest(server.http, server.login())
    rest.call(
        "POST", "/services/tidewire/v1/apply", {"events": {EVENT: {"label": "Command", "fields": fields}}}
    )
    rest.close()


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TIDEWIRE_CONFIG_DIR", str(tmp_path / "conf"))


def run(server: ServerProcess, *arguments: str, input: str | None = None) -> Result:
    return CliRunner().invoke(cli, [*arguments, "--url", server.http], input=input)


def ok(server: ServerProcess, *arguments: str, input: str | None = None) -> str:
    done = run(server, *arguments, input=input)
    assert done.exit_code == 0, (done.output, done.exception)
    return done.stdout


@pytest.mark.parametrize("protocol", ["rest", "pubsub"])
def test_published_event_is_received_over_both_protocols(server: ServerProcess, protocol: str) -> None:
    mark = secrets.token_hex(6)
    before = json.loads(
        ok(
            server,
            "publish",
            TOPIC,
            f"Number__c={mark}",
            "--protocol",
            "pubsub",
            "--endpoint",
            server.grpc,
            "--json",
        )
    )[0]["replay_id"]
    how = ["--protocol", protocol] + (["--endpoint", server.grpc] if protocol == "pubsub" else [])
    ok(server, "publish", TOPIC, f"Number__c={mark}-2", "Amount__c=12.5", "Is_Paid__c=true", *how)
    after = ["--replay", str(before), "--count", "1", "--json"]
    by_cometd = json.loads(ok(server, "subscribe", TOPIC, *after))
    by_grpc = json.loads(
        ok(server, "subscribe", TOPIC, *after, "--protocol", "pubsub", "--endpoint", server.grpc)
    )
    for message in (by_cometd, by_grpc):
        payload = message["data"]["payload"]
        assert message["channel"] == TOPIC
        assert (payload["Number__c"], payload["Amount__c"], payload["Is_Paid__c"]) == (
            f"{mark}-2",
            12.5,
            True,
        )
    assert by_cometd["data"]["event"]["replayId"] == by_grpc["data"]["event"]["replayId"]


def test_lines_are_published_in_order(server: ServerProcess) -> None:
    mark = secrets.token_hex(6)
    lines = "".join(json.dumps({"Number__c": f"{mark}-{n}"}) + "\n" for n in range(250))
    first = json.loads(
        ok(
            server,
            "publish",
            TOPIC,
            "--lines",
            "-",
            "--protocol",
            "pubsub",
            "--endpoint",
            server.grpc,
            "--json",
            input=lines,
        )
    )
    assert len(first) == 250
    after = ["--replay", str(first[0]["replay_id"]), "--count", "249", "--json", "--protocol", "pubsub"]
    seen = ok(server, "subscribe", TOPIC, *after, "--endpoint", server.grpc).splitlines()
    numbers = [json.loads(line)["data"]["payload"]["Number__c"] for line in seen]
    assert numbers == [f"{mark}-{n}" for n in range(1, 250)]


def test_change_event_names_its_fields_over_grpc(server: ServerProcess, rest: Rest, dev_token: str) -> None:
    topic = "/data/AccountChangeEvent"
    # Other tests may have left thousands of changes of accounts: they are read past once, not by the command.
    first = rest.create("Account", {"Name": "before command change"})
    metadata = call_metadata(dev_token, server.http, server.org_id)
    *_, before = read_topic(server.grpc, metadata, topic, lambda event: first in event.header["recordIds"])
    account = rest.create("Account", {"Name": "command change"})
    rest.update("Account", account, {"Phone": "7", "Name": "command changed"})
    rest.update("Account", account, {"Phone": None})
    after = ["--replay", str(before.replay_id), "--count", "3", "--json"]
    over = ["--protocol", "pubsub", "--endpoint", server.grpc]
    lines = ok(server, "subscribe", topic, *after, *over).splitlines()
    payloads = [json.loads(line)["data"]["payload"] for line in lines]
    seen: list[dict[str, object]] = [
        each for each in payloads if each["ChangeEventHeader"]["recordIds"] == [account]
    ]
    created, updated, nulled = (each["ChangeEventHeader"] for each in seen)
    assert (created["changeType"], created["changedFields"]) == ("CREATE", [])  # type: ignore[index]
    assert set(updated["changedFields"]) == {"Name", "Phone", "LastModifiedDate"}  # type: ignore[index]
    assert nulled["nulledFields"] == ["Phone"]  # type: ignore[index]
    assert "Phone" in seen[2]
    assert "Fax" not in seen[1]


def test_colours_are_for_who_asks_for_them(server: ServerProcess) -> None:
    ok(server, "publish", TOPIC, "Number__c=colour")
    plain = ok(server, "subscribe", TOPIC, "--replay", "all", "--count", "1")
    assert "\x1b" not in plain
    coloured = CliRunner().invoke(
        cli,
        ["subscribe", TOPIC, "--replay", "all", "--count", "1", "--color", "always", "--url", server.http],
        color=True,
    )
    assert "\x1b[36m" in coloured.stdout


def test_message_reaches_a_generic_channel(server: ServerProcess) -> None:
    channel = "/u/Command_" + secrets.token_hex(4)
    refused = run(server, "publish", channel, "hello")
    assert refused.exit_code == 1
    assert f"tidewire create StreamingChannel Name={channel}" in refused.output
    ok(server, "create", "StreamingChannel", f"Name={channel}")
    assert ok(server, "publish", channel, "hello", "there") == "1 message sent to all subscribers\n"
    ok(server, "publish", channel, "--lines", "-", input="two\nthree\n")
    told = ok(server, "subscribe", channel, "--replay", "all", "--count", "3", "--json").splitlines()
    assert [json.loads(line)["data"]["payload"] for line in told] == ["hello there", "two", "three"]


def test_managed_subscription_goes_on_after_what_was_printed(server: ServerProcess, rest: Rest) -> None:
    spec = {"label": "Command", "topic": TOPIC, "default_replay": "EARLIEST"}
    rest.call("POST", "/services/tidewire/v1/apply", {"managed_subscriptions": {"Command_Managed": spec}})
    for n in range(2):
        ok(server, "publish", TOPIC, f"Number__c=managed-{n}")
    options = ["--managed", "Command_Managed", "--endpoint", server.grpc, "--count", "1", "--json"]

    def is_free() -> bool:
        managed = rest.call("GET", "/services/tidewire/v1/status")["managed"]
        return [each["is_read"] for each in managed if each["name"] == "Command_Managed"] == [False]

    ids = []
    for _ in range(2):
        until(is_free)  # the server notices a moment later that the reader before has gone
        ids.append(json.loads(ok(server, "subscribe", *options))["data"]["event"]["replayId"])
    assert ids[0] < ids[1]


def test_what_cannot_work_over_grpc_is_refused_at_once(server: ServerProcess) -> None:
    over = ["--protocol", "pubsub", "--endpoint", server.grpc]
    assert isinstance(run(server, "subscribe", "/event/None__e", *over).exception, TopicUnknown)
    assert isinstance(run(server, "subscribe", TOPIC, *over, "--replay", "12").exception, ReplayIdExpired)
    nowhere = run(server, "subscribe", TOPIC, "--protocol", "pubsub", "--endpoint", "127.0.0.1:1")
    assert isinstance(nowhere.exception, ServerUnreachable)
    assert "--endpoint" in nowhere.exception.message


@pytest.mark.parametrize(
    "arguments",
    [
        ["subscribe", TOPIC, "--replay", "soon"],
        ["subscribe", TOPIC, "--replay", "0xff"],
        ["subscribe", TOPIC, "--managed", "X"],
        ["subscribe", TOPIC, "--protocol", "pubsub", "--endpoint", "nonsense"],
        ["publish", TOPIC],
        ["publish", "/data/AccountChangeEvent", "A=1"],
        ["publish", TOPIC, "A=1", "--to", "005"],
    ],
)
def test_wrong_usage_is_refused(server: ServerProcess, arguments: list[str]) -> None:
    assert run(server, *arguments).exit_code == 2


def test_topic_is_made_listed_and_removed(server: ServerProcess) -> None:
    name = "Cmd" + secrets.token_hex(4)
    soql = "SELECT Id, Name FROM Account WHERE Name LIKE 'topics %'"
    ok(server, "topics", "create", name, soql, "--on", "create", "--on", "delete", "--fields", "Select")
    (row,) = [each for each in json.loads(ok(server, "topics", "--json")) if each["name"] == name]
    assert (row["tells_of"], row["if_changed"], row["query"]) == (["create", "delete"], "Select", soql)
    ok(server, "topics", "delete", name)
    assert name not in ok(server, "topics")
    assert "no push topic" in run(server, "topics", "delete", name).output


def test_channels_of_every_family_are_listed_with_what_they_select(server: ServerProcess, rest: Rest) -> None:
    name = "Command_Sales"
    tooling = "/services/data/v62.0/tooling/sobjects"
    metadata = {"channelType": "data", "label": "Sales"}
    made = rest.call(
        "POST", f"{tooling}/PlatformEventChannel", {"FullName": f"{name}__chn", "Metadata": metadata}
    )
    member = {"eventChannel": f"{name}__chn", "selectedEntity": "AccountChangeEvent"}
    full_name = f"{name}_chn_AccountChangeEvent"
    rest.call("POST", f"{tooling}/PlatformEventChannelMember", {"FullName": full_name, "Metadata": member})
    ok(server, "topics", "create", "CommandListed", "SELECT Id, Name FROM Account")
    ok(server, "create", "StreamingChannel", "Name=/u/CommandListed")
    rows = {row["channel"]: row for row in json.loads(ok(server, "channels", "--json"))}
    assert made["success"]
    assert rows[f"/data/{name}__chn"]["members"] == ["AccountChangeEvent"]
    assert rows["/topic/CommandListed"]["selects"] == "SELECT Id, Name FROM Account"
    assert rows["/u/CommandListed"]["family"] == "generic"
    assert rows[TOPIC]["family"] == "platform"
    assert rows["/data/AccountChangeEvent"]["selects"] == "changes of Account"
    assert "AccountChangeEvent" in rows["/data/ChangeEvents"]["members"]
    only = ok(server, "channels", "--family", "push")
    assert "/topic/CommandListed" in only
    assert "/u/" not in only
