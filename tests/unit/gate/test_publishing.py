"""Platform events by values: defaults and refusals, transactions that are taken back, and what events cannot do."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orgs import TestOrg
from tests.published import bodies, kept_events
from tests.unit.frontends.rest.data_caller import Caller, count
from tests.unit.frontends.soap.caller import sign_in
from tidewire.errors import (
    FieldUnknown,
    NumberOutOfRange,
    OperationUnsupported,
    PlatformError,
    RequiredFieldMissing,
    TextTooLong,
    TopicUnknown,
    ValueMalformed,
)
from tidewire.gate.mixed_creates import create_mixed
from tidewire.gate.publishing import Published
from tidewire.gate.requests import Write

pytestmark = pytest.mark.anyio

FIELDS: dict[str, Any] = {
    "Code__c": {"type": "Text", "length": 5, "required": True},
    "Kind__c": {"type": "Text", "length": 9, "default": "usual"},
    "Size__c": {"type": "Number", "precision": 4, "scale": 1},
    "Done__c": {"type": "Checkbox"},
    "At__c": {"type": "DateTime"},
}
EVENTS = {
    "Late__e": {"fields": FIELDS},
    "Prompt__e": {"fields": FIELDS, "publish": "immediately"},
}


async def test_what_a_publisher_leaves_out_has_its_default(org: TestOrg) -> None:
    await org.apply(events=EVENTS)
    head = await org.link.read_log_head()
    published = await org.gate.publisher.publish(org.call, "late__E", {"code__c": "a"})
    (event,) = await kept_events(org, "Late__e", head)
    (body,) = await bodies(org, "Late__e", head)
    assert event.event_uuid == published.event_uuid
    assert body == {
        "CreatedDate": org.clock.now_ms(),
        "CreatedById": org.admin.user_id,
        "Code__c": "a",
        "Kind__c": "usual",
        "Size__c": None,
        "Done__c": False,
        "At__c": None,
    }


@pytest.mark.parametrize(
    "values, error",
    [
        ({}, RequiredFieldMissing),
        ({"Code__c": None}, RequiredFieldMissing),
        ({"Code__c": "sixsix"}, TextTooLong),
        ({"Code__c": 7}, ValueMalformed),
        ({"Code__c": "a", "Size__c": "much"}, ValueMalformed),
        ({"Code__c": "a", "Size__c": 12345}, NumberOutOfRange),
        ({"Code__c": "a", "At__c": "yesterday"}, ValueMalformed),
        ({"Code__c": "a", "Nope__c": 1}, FieldUnknown),
        ({"Code__c": "a", "ReplayId": "1"}, FieldUnknown),
    ],
)
async def test_event_that_does_not_fit_its_type_is_rejected_and_leaves_nothing(
    org: TestOrg, values: dict[str, object], error: type[PlatformError]
) -> None:
    await org.apply(events=EVENTS)
    head = await org.link.read_log_head()
    with pytest.raises(error):
        await org.gate.publisher.publish(org.call, "Late__e", values)
    assert await org.link.read_log_head() == head


async def test_composite_that_is_taken_back_keeps_only_events_published_immediately(org: TestOrg) -> None:
    await org.apply(events=EVENTS)
    head = await org.link.read_log_head()
    url = "/services/data/v60.0/sobjects/"
    subrequests = [
        {"method": "POST", "url": url + "Prompt__e", "referenceId": "a", "body": {"Code__c": "1"}},
        {"method": "POST", "url": url + "Late__e", "referenceId": "b", "body": {"Code__c": "2"}},
        {"method": "POST", "url": url + "Account", "referenceId": "c", "body": {"Name": "A"}},
        {"method": "POST", "url": url + "Account", "referenceId": "d", "body": {}},
    ]
    body = {"allOrNone": True, "compositeRequest": subrequests}
    _, answer = await Caller(org).send("POST", "composite", body)
    assert [each["httpStatusCode"] for each in answer["compositeResponse"]] == [400] * 4
    assert await count(org) == 0
    assert [b["Code__c"] for b in await bodies(org, "Prompt__e", head)] == ["1"]
    assert await kept_events(org, "Late__e", head) == []


async def test_composite_that_is_kept_publishes_each_event_once(org: TestOrg) -> None:
    await org.apply(events=EVENTS)
    head = await org.link.read_log_head()
    collection = [{"attributes": {"type": name}, "Code__c": "1"} for name in EVENTS]
    collection.append({"attributes": {"type": "Account"}, "Name": "A"})
    inner = {
        "method": "POST",
        "url": "/services/data/v60.0/composite/sobjects",
        "referenceId": "a",
        "body": {"records": collection},
    }
    await Caller(org).send("POST", "composite", {"allOrNone": True, "compositeRequest": [inner]})
    assert await count(org) == 1
    assert [len(await kept_events(org, name, head)) for name in EVENTS] == [1, 1]


async def test_collection_inside_a_composite_that_is_taken_back_keeps_immediate_events(org: TestOrg) -> None:
    await org.apply(events=EVENTS)
    head = await org.link.read_log_head()
    collection = [{"attributes": {"type": name}, "Code__c": "1"} for name in EVENTS]
    collection.append({"attributes": {"type": "Account"}, "Name": "A"})
    v = "/services/data/v60.0"
    inner = [
        {
            "method": "POST",
            "url": f"{v}/composite/sobjects",
            "referenceId": "a",
            "body": {"records": collection},
        },
        {"method": "POST", "url": f"{v}/sobjects/Account", "referenceId": "b", "body": {}},
    ]
    await Caller(org).send("POST", "composite", {"allOrNone": True, "compositeRequest": inner})
    assert await count(org) == 0
    assert [len(await kept_events(org, name, head)) for name in EVENTS] == [0, 1]


async def test_all_or_none_takes_back_records_with_the_events_that_wait_for_them(org: TestOrg) -> None:
    await org.apply(events=EVENTS)
    head = await org.link.read_log_head()
    writes = [
        Write("Prompt__e", None, {"Code__c": "1"}),
        Write("Account", None, {"Name": "A"}),
        Write("Late__e", None, {"Code__c": "1"}),
        Write("Account", None, {}),
    ]
    results, is_undone = await create_mixed(org.gate, org.call, writes, all_or_none=True)
    assert is_undone
    assert isinstance(results[3], RequiredFieldMissing)
    assert isinstance(results[0], Published)
    assert results[0].is_immediate
    assert await count(org) == 0
    assert [len(await kept_events(org, name, head)) for name in EVENTS] == [0, 1]


async def test_all_or_none_means_nothing_among_events_alone(org: TestOrg) -> None:
    await org.apply(events=EVENTS)
    head = await org.link.read_log_head()
    writes = [Write("Late__e", None, {"Code__c": code}) for code in ("1", "toolong", "2")]
    results, is_undone = await create_mixed(org.gate, org.call, writes, all_or_none=True)
    assert not is_undone
    assert [type(each) for each in results] == [Published, TextTooLong, Published]
    assert [b["Code__c"] for b in await bodies(org, "Late__e", head)] == ["1", "2"]


async def test_event_can_be_created_and_nothing_else(org: TestOrg) -> None:
    await org.apply(events=EVENTS)
    event_id = (await org.gate.publisher.publish(org.call, "Late__e", {"Code__c": "1"})).event_id
    caller = Caller(org)
    for method, path, body, operation in (
        ("PATCH", f"sobjects/Late__e/{event_id}", {"Code__c": "2"}, "update"),
        ("DELETE", f"sobjects/Late__e/{event_id}", None, "delete"),
        ("GET", f"sobjects/Late__e/{event_id}", None, "retrieve"),
        ("GET", "query?q=SELECT+Id+FROM+Late__e", None, "query"),
        ("PATCH", "sobjects/Late__e/Code__c/1", {}, "upsert"),
        ("DELETE", "sobjects/Late__e/Code__c/1", None, "delete"),
        ("PATCH", "composite/sobjects/Late__e/Code__c", {"records": []}, "upsert"),
    ):
        expected = [
            {
                "message": f"entity type Late__e does not support {operation}",
                "errorCode": "INVALID_TYPE_FOR_OPERATION",
            }
        ]
        assert await caller.send(method, path, body) == (400, expected)


async def test_soap_upsert_of_an_event_is_rejected_as_such(org: TestOrg) -> None:
    await org.apply(events=EVENTS)
    caller = await sign_in(org)
    row = "<sObjects><type>Late__e</type><Code__c>1</Code__c></sObjects>"
    content = f"<externalIDFieldName>Code__c</externalIDFieldName>{row}"
    assert await caller.fault("upsert", content) == (
        "sf:INVALID_TYPE_FOR_OPERATION",
        "INVALID_TYPE_FOR_OPERATION: entity type Late__e does not support upsert",
    )


async def test_event_over_a_megabyte_is_rejected_and_leaves_nothing(org: TestOrg) -> None:
    texts = {f"Text{n}__c": {"type": "LongTextArea", "length": 131_072} for n in range(9)}
    await org.apply(events={"Large__e": {"fields": texts}})
    head = await org.link.read_log_head()
    status, refused = await Caller(org).send("POST", "sobjects/Large__e", dict.fromkeys(texts, "x" * 131_072))
    assert (status, refused[0]["errorCode"]) == (400, "LIMIT_EXCEEDED")
    values = "".join(f"<{name}>{'x' * 131_072}</{name}>" for name in texts)
    rows = f"<sObjects><type>Large__e</type>{values}</sObjects><sObjects><type>Large__e</type></sObjects>"
    results = await (await sign_in(org)).call("create", rows)
    codes = [result.findtext("errors/statusCode") for result in results]
    assert codes == ["LIMIT_EXCEEDED", "OPERATION_ENQUEUED"]
    assert len(await bodies(org, "Large__e", head)) == 1


async def test_tree_publishes_events_that_stand_at_its_top(org: TestOrg) -> None:
    await org.apply(events=EVENTS)
    head = await org.link.read_log_head()

    def tree(*codes: str) -> dict[str, object]:
        rows = [
            {"attributes": {"type": "Late__e", "referenceId": f"r{n}"}, "Code__c": code}
            for n, code in enumerate(codes)
        ]
        return {"records": rows}

    caller = Caller(org)
    status, refused = await caller.send("POST", "composite/tree/Late__e", tree("0", "too long a code" * 9))
    assert (status, [r["referenceId"] for r in refused["results"]]) == (400, ["r1"])
    assert await bodies(org, "Late__e", head) == []
    status, made = await caller.send("POST", "composite/tree/late__e", tree("1", "2"))
    assert (status, made["hasErrors"], len(made["results"])) == (201, False, 2)
    assert [b["Code__c"] for b in await bodies(org, "Late__e", head)] == ["1", "2"]
    stranger = Caller(org, org.reader)
    assert (await stranger.send("POST", "composite/tree/Late__e", tree("3")))[0] == 404


async def test_change_events_are_listed_and_cannot_be_queried(org: TestOrg) -> None:
    caller, reader = Caller(org), Caller(org, org.reader)
    listed = {e["name"]: e for e in (await caller.send("GET", "sobjects"))[1]["sobjects"]}
    entry = listed["AccountChangeEvent"]
    assert not any(entry[flag] for flag in ("createable", "queryable", "retrieveable", "custom"))
    assert entry["keyPrefix"] is None
    assert entry["urls"]["eventSchema"].endswith("/sobjects/AccountChangeEvent/eventSchema")
    assert "OpportunityChangeEvent" in listed
    assert "ProfileChangeEvent" not in listed
    seen = {e["name"] for e in (await reader.send("GET", "sobjects"))[1]["sobjects"]}
    assert {"Account", "AccountChangeEvent"} <= seen
    assert not {"Opportunity", "OpportunityChangeEvent"} & seen
    for user, code in ((caller, "INVALID_TYPE_FOR_OPERATION"), (reader, "INVALID_TYPE")):
        answer = await user.send("GET", "query?q=SELECT+Id+FROM+OpportunityChangeEvent")
        assert (answer[0], answer[1][0]["errorCode"]) == (400, code)
    soap = (await (await sign_in(org)).call("describeGlobal"))[0].iterfind("sobjects")
    assert {e.findtext("name") for e in soap} == listed.keys()


async def test_event_of_others_does_not_exist_for_who_may_do_nothing_with_it(org: TestOrg) -> None:
    await org.apply(events=EVENTS)
    caller = Caller(org, org.reader)
    status, answer = await caller.send("GET", "query?q=SELECT+Id+FROM+Late__e")
    assert (status, answer[0]["errorCode"]) == (400, "INVALID_TYPE")
    assert (await caller.send("POST", "sobjects/Late__e", {"Code__c": "1"}))[0] == 404
    assert (await caller.send("PATCH", "sobjects/Late__e/e00000000000001AAA", {"Code__c": "1"}))[0] == 404


async def test_server_s_own_event_cannot_be_published(org: TestOrg) -> None:
    with pytest.raises(OperationUnsupported, match="does not support create"):
        await org.gate.publisher.publish(org.call, "LoginEventStream", {"Status": "Success"})
    with pytest.raises(TopicUnknown):
        await org.gate.publisher.publish(org.call, "NoSuchEventStream", {})


async def test_event_made_anew_under_a_name_begins_without_the_old_events(org: TestOrg) -> None:
    await org.apply(events=EVENTS)
    head = await org.link.read_log_head()
    await org.gate.publisher.publish(org.call, "Late__e", {"Code__c": "old"})
    await org.apply(remove={"events": ["Late__e"]})
    await org.apply(events=EVENTS)
    await org.gate.publisher.publish(org.call, "Late__e", {"Code__c": "new"})
    assert [b["Code__c"] for b in await bodies(org, "Late__e", head)] == ["new"]


async def test_schema_of_a_removed_event_is_kept_for_whoever_makes_types(org: TestOrg) -> None:
    await org.apply(events=EVENTS)
    schema_id = org.gate.latest_schema("Late__e").schema_id
    await org.apply(remove={"events": ["Late__e"]})
    path = f"event/eventSchema/{schema_id}?payloadFormat=COMPACT"
    status, schema = await Caller(org).send("GET", path)
    assert (status, schema["uuid"]) == (200, schema_id)
    assert (await Caller(org, org.reader).send("GET", path))[0] == 404
    assert (await Caller(org).send("GET", "sobjects/Late__e/eventSchema"))[0] == 404
