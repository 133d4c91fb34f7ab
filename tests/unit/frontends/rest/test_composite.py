"""The composite resource: independent subrequests, and subrequests in one transaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from tests.orgs import TestOrg
from tests.unit.frontends.rest.data_caller import Caller, count
from tidewire.clock import ManualClock
from tidewire.events import Change, CommitContext
from tidewire.gate.requests import Call
from tidewire.records.work import UnitOfWork

V = "/services/data/v60.0"
HALTED = [
    {
        "errorCode": "PROCESSING_HALTED",
        "message": "The transaction was rolled back since another operation in the same transaction failed.",
    }
]


def sub(method: str, path: str, ref: str, body: object = None, **more: object) -> dict[str, object]:
    given = {} if body is None else {"body": body}
    return {"method": method, "url": f"{V}/{path}", "referenceId": ref, **given, **more}


def account(ref: str, **fields: object) -> dict[str, object]:
    return sub("POST", "sobjects/Account", ref, fields)


async def run(org: TestOrg, *requests: object, **more: object) -> list[dict[str, Any]]:
    status, body = await Caller(org).send("POST", "composite", {"compositeRequest": requests, **more})
    assert status == 200, body
    return list(body["compositeResponse"])


def statuses(answers: list[dict[str, Any]]) -> list[int]:
    return [answer["httpStatusCode"] for answer in answers]


async def test_resources_are_listed_as_the_version_has_them(org: TestOrg) -> None:
    assert await Caller(org).send("GET", "composite") == (
        200,
        {name: f"{V}/composite/{name}" for name in ("tree", "batch", "sobjects", "graph")},
    )
    assert list((await Caller(org, version=42).send("GET", "composite"))[1]) == ["tree", "batch", "sobjects"]


@pytest.mark.parametrize("all_or_none", [False, True])
async def test_chain_uses_earlier_answers_in_url_and_body(org: TestOrg, all_or_none: bool) -> None:
    soql = "SELECT Id, Name, NumberOfEmployees FROM Account WHERE Id = '@{acc.id}'"
    answers = await run(
        org,
        account("acc", Name="A & B/1", NumberOfEmployees=7),
        sub("GET", f"query?q={soql}", "found"),
        sub("POST", "sobjects/Contact", "con", {"LastName": "L", "AccountId": "@{found.records[0].Id}"}),
        sub("GET", "sobjects/Account/@{acc.id}?fields=Name,NumberOfEmployees", "read"),
        account("twin", Name="of @{read.Name}", NumberOfEmployees="@{read.NumberOfEmployees}"),
        sub("GET", "query?q=SELECT Id FROM Account WHERE Name = '@{read.Name}'", "again"),
        sub("PATCH", "sobjects/Account/@{acc.id}", "patched", {"Phone": "+@{read.NumberOfEmployees}"}),
        sub("DELETE", "sobjects/Contact/@{con.id}", "gone"),
        {"method": "GET", "url": "@{found.records[0].attributes.url}", "referenceId": "own"},
        allOrNone=all_or_none,
        collateSubrequests=True,
    )
    assert statuses(answers) == [201, 200, 201, 200, 201, 200, 204, 204, 200]
    record_id = answers[0]["body"]["id"]
    assert answers[0] == {
        "body": {"id": record_id, "success": True, "errors": []},
        "httpHeaders": {"Location": f"{V}/sobjects/Account/{record_id}"},
        "httpStatusCode": 201,
        "referenceId": "acc",
    }
    assert answers[5]["body"]["totalSize"] == 1
    assert answers[6]["body"] is None
    assert answers[8]["body"]["Phone"] == "+7"
    found = await org.gate.query(org.admin, "SELECT Name, NumberOfEmployees FROM Account ORDER BY Name")
    assert [(r["Name"], r["NumberOfEmployees"]) for r in found.rows] == [("A & B/1", 7), ("of A & B/1", 7)]
    assert await count(org, "Contact") == 0


async def test_without_all_or_none_each_is_alone_and_dependents_are_halted(org: TestOrg) -> None:
    answers = await run(
        org,
        account("good", Name="Good"),
        account("bad"),
        sub("POST", "sobjects/Contact", "child", {"LastName": "x", "AccountId": "@{bad.id}"}),
        sub("POST", "sobjects/Contact", "spy", {"LastName": "@{bad[0].message}"}),
        account("other", Name="Other"),
    )
    assert statuses(answers) == [201, 400, 400, 400, 201]
    assert answers[1]["body"][0]["errorCode"] == "REQUIRED_FIELD_MISSING"
    assert answers[2]["body"] == [
        {
            "errorCode": "PROCESSING_HALTED",
            "message": "Invalid reference specified. No value for bad.id found in bad. Provided referenceId"
            " ('bad.id') must start with a letter or a number, and it can contain only letters, numbers and"
            " underscores ('_').",
        }
    ]
    assert (await count(org), await count(org, "Contact")) == (2, 0)


@pytest.mark.parametrize(
    "bad",
    [
        account("bad"),
        sub("GET", "sobjects/Account/001TW0000099999AAA", "bad"),
        sub("GET", "sobjects/Nope", "bad"),
        sub("GET", "query?q=SELECT", "bad"),
        sub("POST", "sobjects/Contact", "bad", {"LastName": "@{first.nope}"}),
        sub("POST", "composite/sobjects", "bad", {"records": [{"attributes": {"type": "Account"}}]}),
        sub("PATCH", "sobjects/Account/x", "bad", {"Name": "y"}),
        sub("PUT", "sobjects/Account/@{first.id}", "bad", {"Name": "y"}),
        sub("POST", "composite", "bad", {"compositeRequest": []}),
        sub("POST", "composite/batch", "bad", {"batchRequests": []}),
        sub("GET", "tooling/query?q=SELECT+Id+FROM+Account", "bad"),
        sub("GET", "../../oauth2/userinfo", "bad"),
        {"method": "GET", "url": "/services/data/v99.0/limits", "referenceId": "bad"},
        {"method": "GET", "url": "@{first.id}", "referenceId": "bad"},
        sub(
            "POST",
            "sobjects/PushTopic",
            "bad",
            {"Name": "T", "Query": "SELECT Nope FROM Account", "ApiVersion": 60},
        ),
    ],
)
async def test_all_or_none_stores_nothing_when_any_subrequest_fails(
    org: TestOrg, bad: dict[str, object]
) -> None:
    head = await org.link.read_log_head()
    first, failed, *last = await run(
        org,
        account("first", Name="First"),
        bad,
        sub("GET", "limits", "last"),
        allOrNone=True,
    )
    assert first == {"body": HALTED, "httpHeaders": {}, "httpStatusCode": 400, "referenceId": "first"}
    assert failed["body"] != HALTED
    assert [answer["body"] for answer in last] == [HALTED]
    assert await count(org) == 0
    assert await org.link.read_log_head() == head


async def test_all_or_none_is_one_transaction_with_one_change_a_record(org: TestOrg) -> None:
    told: list[tuple[list[Change], CommitContext]] = []

    def note(unit: UnitOfWork, changes: Sequence[Change], context: CommitContext) -> None:
        told.append((list(changes), context))

    org.core.records.add_hook(note)
    await run(
        org,
        account("a", Name="A"),
        sub("PATCH", "sobjects/Account/@{a.id}", "b", {"Phone": "1"}),
        account("c", Name="C"),
        sub("DELETE", "sobjects/Account/@{c.id}", "d"),
        allOrNone=True,
    )
    ((changes, context),) = told
    assert [(c.type.name, c.after and c.after["Phone"]) for c in changes] == [("CREATE", "1")]
    assert context.origin == "com/salesforce/api/rest/60.0"


async def test_all_or_none_overrules_a_collections_own_choice(org: TestOrg) -> None:
    records = [{"attributes": {"type": "Account"}, "Name": "x"}, {"attributes": {"type": "Account"}}]
    kept = await org.make_account("Kept")
    for request in (
        sub("POST", "composite/sobjects", "rows", {"allOrNone": False, "records": records}),
        sub("POST", "composite/%73objects", "rows", {"records": records}),
        sub("DELETE", f"composite/sobjects?ids={kept},001TW0000099999AAA&allOrNone=false", "rows"),
    ):
        first, rows = await run(org, account("first", Name="First"), request, allOrNone=True)
        assert first["body"] == HALTED
        assert rows["httpStatusCode"] == 200
        codes = [row["errors"][0]["statusCode"] for row in rows["body"]]
        assert codes[0] == "ALL_OR_NONE_OPERATION_ROLLED_BACK"
        assert await count(org) == 1


async def test_collection_in_a_chain_keeps_its_good_rows_without_all_or_none(org: TestOrg) -> None:
    records = [{"attributes": {"type": "Account"}, "Name": "x"}, {"attributes": {"type": "Account"}}]
    rows, contact = await run(
        org,
        sub("POST", "composite/sobjects", "rows", {"records": records}),
        sub("POST", "sobjects/Contact", "con", {"LastName": "L", "AccountId": "@{rows[0].id}"}),
    )
    assert [row["success"] for row in rows["body"]] == [True, False]
    assert contact["httpStatusCode"] == 201
    assert await count(org) == 1


async def test_other_resources_answer_inside_a_transaction_too(org: TestOrg) -> None:
    answers = await run(
        org,
        sub("GET", "sobjects", "all"),
        sub("GET", "sobjects/Account/describe", "one"),
        sub("GET", "limits", "limits"),
        sub("GET", "search?q=FIND {Acme}", "search"),
        sub("GET", "sobjects/Account/describe", "since", httpHeaders={"X-PrettyPrint": "1"}),
        allOrNone=True,
    )
    assert statuses(answers) == [200] * 5
    assert answers[1]["body"] == answers[4]["body"]


async def test_reader_may_do_no_more_than_outside(org: TestOrg) -> None:
    await org.make_account("Secret", Phone="1")
    reader = Caller(org, org.reader)
    for flag in (False, True):
        requests = [sub("GET", "query?q=SELECT Phone FROM Account", "q")]
        _, body = await reader.send("POST", "composite", {"allOrNone": flag, "compositeRequest": requests})
        assert body["compositeResponse"][0]["body"][0]["errorCode"] == "INVALID_FIELD"
        requests = [account("made", Name="x")]
        _, body = await reader.send("POST", "composite", {"allOrNone": flag, "compositeRequest": requests})
        assert body["compositeResponse"][0]["httpStatusCode"] == 403
    assert await count(org) == 1


async def test_null_can_be_referred_to_from_version_52_on(org: TestOrg) -> None:
    record_id = await org.make_account()
    requests = [
        sub("GET", f"sobjects/Account/{record_id}?fields=Phone", "read"),
        account("new", Name="N", Phone="@{read.Phone}"),
    ]
    for version, expected in ((51, 400), (52, 201)):
        caller = Caller(org, version=version)
        _, body = await caller.send("POST", "composite", {"compositeRequest": requests})
        assert statuses(body["compositeResponse"]) == [200, expected]


async def test_composite_counts_as_one_call(org: TestOrg) -> None:
    before = org.gate.usage.used()
    await run(org, *[sub("GET", "limits", f"r{i}") for i in range(25)])
    assert org.gate.usage.used() == before + 1


class SlowClock(ManualClock):
    """Every look at it takes six seconds."""

    def monotonic_s(self) -> float:
        self.advance(6)
        return super().monotonic_s()


async def test_long_transaction_is_ended(org: TestOrg) -> None:
    requests = [account("a", Name="A"), account("b", Name="B"), account("c", Name="C")]
    caller = Caller(org, clock=SlowClock())
    _, body = await caller.send("POST", "composite", {"allOrNone": True, "compositeRequest": requests})
    codes = [answer["body"][0]["errorCode"] for answer in body["compositeResponse"]]
    assert codes == ["PROCESSING_HALTED", "REQUEST_LIMIT_EXCEEDED", "PROCESSING_HALTED"]
    assert await count(org) == 0


GET = sub("GET", "limits", "a")
QUERY = f"{V}/query?q=SELECT Id FROM Account"


@pytest.mark.parametrize(
    "body, code",
    [
        ({}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": []}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": {"a": 1}}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [1]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [GET], "allOrNone": 1}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [GET], "collateSubrequests": "maybe"}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [GET, GET]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [sub("GET", "limits", f"r{i}") for i in range(26)]}, "EXCEEDED_ID_LIMIT"),
        (
            {"compositeRequest": [{**GET, "url": QUERY, "referenceId": f"r{i}"} for i in range(6)]},
            "EXCEEDED_ID_LIMIT",
        ),
        (
            {"compositeRequest": [sub("GET", "%71uery?q=SELECT Id FROM Account", f"r{i}") for i in range(6)]},
            "EXCEEDED_ID_LIMIT",
        ),
        ({"compositeRequest": [{**GET, "referenceId": None}]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [{**GET, "referenceId": "a-b"}]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [{**GET, "referenceId": "a[0]"}]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [{**GET, "method": "get"}]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [{**GET, "method": ["GET"]}]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [{**GET, "url": "limits"}]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [{**GET, "url": "http://other/services/data/v60.0/"}]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [{**GET, "url": "/services/tidewire/v1/apply"}]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [{**GET, "url": "/services/oauth2/token"}]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [{**GET, "url": 5}]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [{**GET, "body": "text"}]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [{**GET, "httpHeaders": {"Authorization": "x"}}]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [{**GET, "httpHeaders": {"a b": "x"}}]}, "JSON_PARSER_ERROR"),
        ({"compositeRequest": [{**GET, "httpHeaders": [1]}]}, "JSON_PARSER_ERROR"),
    ],
)
async def test_malformed_request_is_rejected_before_anything_is_run(
    org: TestOrg, body: dict[str, Any], code: str
) -> None:
    requests = body.get("compositeRequest")
    if isinstance(requests, list) and requests and len(requests) < 25:
        body = {**body, "compositeRequest": [account("first", Name="First"), *requests]}
    status, answer = await Caller(org).send("POST", "composite", body)
    assert (status, answer[0]["errorCode"]) == (400, code)
    assert await count(org) == 0


async def test_deep_body_is_rejected(org: TestOrg) -> None:
    value: Any = "x"
    for _ in range(200):
        value = [value]
    status, answer = await Caller(org).send(
        "POST", "composite", {"compositeRequest": [account("a", Name=value)]}
    )
    assert (status, answer[0]["errorCode"]) == (400, "JSON_PARSER_ERROR")


async def test_reference_id_of_any_form_is_accepted_before_version_52(org: TestOrg) -> None:
    caller = Caller(org, version=51)
    _, body = await caller.send("POST", "composite", {"compositeRequest": [account("a-b", Name="A")]})
    assert statuses(body["compositeResponse"]) == [201]


async def test_version_before_38_has_no_composite(org: TestOrg) -> None:
    assert (await Caller(org, version=37).send("POST", "composite", {}))[0] == 404


async def test_setup_records_take_effect_with_the_transaction(org: TestOrg) -> None:
    topic = {"Name": "T", "Query": "SELECT Id, Name FROM Account", "ApiVersion": 60}
    made, _ = await run(
        org, sub("POST", "sobjects/PushTopic", "t", topic), account("a", Name="A"), allOrNone=True
    )
    assert made["httpStatusCode"] == 201
    head = await org.link.read_log_head()
    await org.gate.create(Call(org.admin, ""), "Account", {"Name": "B"})
    assert await org.link.read_log_head() == head + 2  # the change event and the notification
