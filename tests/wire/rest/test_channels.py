"""Channels, members and enriched fields through the Tooling API, as the guide drives them, and what subscribers get."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
import requests

from tests.bayeux import Dialler, Poller
from tests.running import Rest
from tidewire.testing import READER_USERNAME, ServerProcess

TOOLING = "/services/data/v52.0/tooling"
CHANNELS = f"{TOOLING}/sobjects/PlatformEventChannel"
MEMBERS = f"{TOOLING}/sobjects/PlatformEventChannelMember"


@pytest.fixture
def dialler() -> Iterator[Dialler]:
    opened = Dialler()
    yield opened
    opened.close()


@pytest.fixture
def call(server: ServerProcess, dev_token: str) -> Any:
    """A request as the administrator: the status and the JSON of its answer."""

    def run(method: str, path: str, body: object = None, token: str = dev_token) -> tuple[int, Any]:
        headers = {"Authorization": f"Bearer {token}"}
        answer = requests.request(method, server.http + path, json=body, headers=headers, timeout=120)
        return answer.status_code, answer.json() if answer.content else None

    return run


def query(call: Any, soql: str, **more: str) -> list[dict[str, Any]]:
    status, body = call("GET", f"{TOOLING}/query/?q={quote(soql)}", **more)
    assert status == 200, body
    return [{k: v for k, v in record.items() if k != "attributes"} for record in body["records"]]


def make(call: Any, path: str, full_name: str, **metadata: object) -> str:
    status, made = call("POST", path, {"FullName": full_name, "Metadata": metadata})
    assert (status, made["success"]) == (201, True), made
    return str(made["id"])


def make_member(call: Any, full_name: str, channel: str, event: str, *fields: str) -> str:
    enriched = [{"name": name} for name in fields]
    return make(call, MEMBERS, full_name, eventChannel=channel, selectedEntity=event, enrichedFields=enriched)


def test_guide_steps_make_query_and_change_a_member(call: Any, rest: Rest) -> None:
    field = {"label": "External Account ID", "type": "Text", "length": 20}
    full = {"FullName": "Account.External_Account_ID__c", "Metadata": field}
    status, made = call("POST", f"{TOOLING}/sobjects/CustomField", full)
    assert status == 201
    channel = make(
        call, CHANNELS, "SalesEvents__chn", channelType="data", label="Custom Channel for Sales App"
    )
    member = make_member(
        call,
        "SalesEvents_chn_AccountChangeEvent",
        "SalesEvents__chn",
        "AccountChangeEvent",
        "External_Account_ID__c",
        "Industry",
    )
    assert (channel[:3], member[:3]) == ("0YL", "0v8")
    rows = query(call, "SELECT ChannelMemberId, Field FROM EnrichedField ORDER BY ChannelMemberId")
    own = [row["Field"] for row in rows if row["ChannelMemberId"] == member]
    assert sorted(own) == sorted([made["id"], "Industry"])
    found = query(call, "SELECT Id FROM PlatformEventChannel WHERE DeveloperName='SalesEvents'")
    assert found == [{"Id": channel}]
    found = query(
        call,
        "SELECT Id, DeveloperName, EventChannel, SelectedEntity FROM PlatformEventChannelMember "
        f"WHERE EventChannel='{channel}' AND SelectedEntity='AccountChangeEvent'",
    )
    assert found == [
        {
            "Id": member,
            "DeveloperName": "SalesEvents_chn_AccountChangeEvent",
            "EventChannel": channel,
            "SelectedEntity": "AccountChangeEvent",
        }
    ]
    standard = query(
        call,
        "SELECT Id,DeveloperName,EventChannel,SelectedEntity FROM PlatformEventChannelMember "
        "WHERE EventChannel='ChangeEvents' AND SelectedEntity='AccountChangeEvent'",
    )
    assert [row["DeveloperName"] for row in standard] == ["ChangeEvents_AccountChangeEvent"]
    whole: dict[str, Any] = {
        "FullName": "SalesEvents_chn_AccountChangeEvent",
        "Metadata": {
            "enrichedFields": [{"name": "Phone"}],
            "eventChannel": "SalesEvents__chn",
            "selectedEntity": "AccountChangeEvent",
        },
    }
    assert call("PATCH", f"{MEMBERS}/{member}", whole) == (204, None)
    record = call("GET", f"{MEMBERS}/{member}")[1]
    assert record["Metadata"] == whole["Metadata"] | {"filterExpression": None, "urls": None}
    partial = {"Metadata": {"enrichedFields": [{"name": "Fax"}]}}
    status, (problem,) = call("PATCH", f"{MEMBERS}/{member}", partial)
    assert (status, problem["message"]) == (400, "Required field is missing: selectedEntity")
    assert call("GET", f"{MEMBERS}/{member}")[1]["Metadata"] == record["Metadata"]
    status, (problem,) = call("POST", MEMBERS, whole)
    assert (status, problem["errorCode"]) == (400, "DUPLICATE_DEVELOPER_NAME")
    assert call("DELETE", f"{CHANNELS}/{channel}") == (204, None)
    for method in ("GET", "DELETE"):
        status, (problem,) = call(method, f"{MEMBERS}/{member}")
        assert (status, problem["errorCode"]) == (400, "INVALID_CROSS_REFERENCE_KEY")
    assert query(call, "SELECT Id FROM PlatformEventChannel WHERE DeveloperName='SalesEvents'") == []


def test_channel_record_has_the_columns_that_clients_read(call: Any) -> None:
    channel = make(call, CHANNELS, "Columns__chn", channelType="event", label="Columns")
    record = call("GET", f"{CHANNELS}/{channel}")[1]
    assert record["FullName"] == "Columns__chn"
    assert record["Metadata"] == {"channelType": "event", "label": "Columns", "urls": None}
    names = ("DeveloperName", "MasterLabel", "ChannelType", "ManageableState", "IsDeleted", "NamespacePrefix")
    assert [record[name] for name in names] == ["Columns", "Columns", "event", "unmanaged", False, None]
    assert call("GET", f"{CHANNELS}/describe")[0] == 200


def test_who_may_not_view_setup_sees_and_makes_no_channels(server: ServerProcess, call: Any) -> None:
    make(call, CHANNELS, "Secret__chn", channelType="data", label="Secret")
    token = server.login(READER_USERNAME)
    assert query(call, "SELECT Id FROM PlatformEventChannel", token=token) == []
    body = {"FullName": "Mine__chn", "Metadata": {"channelType": "data", "label": "Mine"}}
    assert call("POST", CHANNELS, body, token=token)[0] == 403


def test_custom_channel_delivers_enriched_events_of_its_members_only(
    server: ServerProcess, dev_token: str, call: Any, rest: Rest, dialler: Dialler
) -> None:
    make(call, CHANNELS, "Wire__chn", channelType="data", label="Wire")
    client = Poller(dialler.plain(server), dev_token)
    client.open()
    assert client.subscribe("/data/LeadChangeEvent")["successful"] is False
    make_member(call, "Wire_Lead", "Wire__chn", "LeadChangeEvent", "Company", "Name")
    for channel in ("/data/Wire__chn", "/data/LeadChangeEvent", "/data/ChangeEvents"):
        assert client.subscribe(channel)["successful"] is True, channel
    lead = rest.create("Lead", {"FirstName": "Ada", "LastName": "Byron", "Company": "Engine"})
    rest.call("PATCH", f"/services/data/v59.0/sobjects/Lead/{lead}", {"City": "London"})
    got: dict[str, list[dict[str, Any]]] = {}
    while sum(map(len, got.values())) < 4:
        for message in client.poll():
            if "data" in message:
                got.setdefault(message["channel"], []).append(message["data"])
    assert set(got) == {"/data/Wire__chn", "/data/LeadChangeEvent"}
    (_, plain), (_, enriched) = got["/data/LeadChangeEvent"], got["/data/Wire__chn"]
    added = set(enriched["payload"]) - set(plain["payload"])
    assert added == {"Company", "Name"}
    assert enriched["payload"]["Name"] == {"FirstName": "Ada", "LastName": "Byron"}
    assert plain["payload"]["ChangeEventHeader"] == enriched["payload"]["ChangeEventHeader"]
    assert plain["event"]["replayId"] == enriched["event"]["replayId"]


def test_description_of_a_change_event_has_the_readable_fields_and_its_schema_all(
    server: ServerProcess, call: Any
) -> None:
    token = server.login(READER_USERNAME)
    path = "/services/data/v59.0/sobjects/AccountChangeEvent"
    seen = {f["name"] for f in call("GET", f"{path}/describe", token=token)[1]["fields"]}
    everything = {f["name"] for f in call("GET", f"{path}/describe")[1]["fields"]}
    schema = call("GET", f"{path}/eventSchema?payloadFormat=COMPACT", token=token)[1]
    assert {"ChangeEventHeader", "ReplayId", "Name"} <= seen < everything
    assert {f["name"] for f in schema["fields"]} > seen - {"Id", "ReplayId"}


def test_schema_of_an_object_that_is_not_selected_is_found_by_name_and_by_id(
    server: ServerProcess, call: Any
) -> None:
    fields = {"Note__c": {"type": "Text", "length": 20}}
    status, _ = call(
        "POST", "/services/tidewire/v1/apply", {"objects": {"Unselected__c": {"fields": fields}}}
    )
    assert status == 200
    data = "/services/data/v62.0"
    by_name = f"{data}/sobjects/Unselected__ChangeEvent/eventSchema?payloadFormat=COMPACT"
    status, schema = call("GET", by_name)
    assert (status, schema["name"], schema["fields"][-1]["name"]) == (
        200,
        "Unselected__ChangeEvent",
        "Note__c",
    )
    by_id = f"{data}/event/eventSchema/{schema['uuid']}?payloadFormat=COMPACT"
    assert call("GET", by_id) == (200, schema)
    reader = server.login(READER_USERNAME)
    assert [call("GET", path, token=reader)[0] for path in (by_name, by_id)] == [404, 404]
    assert call("GET", f"{data}/sobjects/ProfileChangeEvent/eventSchema")[0] == 404
