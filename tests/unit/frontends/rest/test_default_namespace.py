"""Names that omit the default namespace in REST requests."""

from __future__ import annotations

from typing import Any
from urllib.parse import quote

import orjson
import pytest

from tests.orgs import TestOrg
from tests.unit.frontends.rest.caller import sign_in
from tests.unit.frontends.rest.data_caller import Caller

pytestmark = pytest.mark.anyio

OPTIONS = "client=tests/1; defaultNamespace=battle"
TYPES: dict[str, Any] = {
    "battle__Bot__c": {
        "name": {"type": "Text"},
        "fields": {
            "battle__Power__c": {"type": "Number"},
            "battle__Key__c": {"type": "Text", "length": 20, "external_id": True},
            "battle__Owner_Account__c": {
                "type": "Lookup",
                "references": "Account",
                "child_relationship": "battle__Bots",
            },
        },
    },
    "Account": {"fields": {"battle__Bot_Id__c": {"type": "Text"}, "Local__c": {"type": "Text"}}},
}


async def call(
    org: TestOrg, method: str, path: str, body: object = None, options: str = OPTIONS
) -> tuple[int, Any]:
    return await Caller(org).send(method, path, body, sforce_call_options=options)


async def query(org: TestOrg, soql: str, options: str = OPTIONS) -> tuple[int, Any]:
    return await call(org, "GET", f"query?q={quote(soql)}", options=options)


async def test_records_are_written_and_read_without_the_prefix(org: TestOrg) -> None:
    await org.apply(objects=TYPES)
    status, made = await call(
        org, "POST", "sobjects/Account", {"Name": "A", "Bot_Id__c": "x", "Local__c": "y"}
    )
    assert status == 201, made
    path = f"sobjects/Account/{made['id']}"
    _, record = await call(org, "GET", f"{path}?fields=Bot_Id__c,Local__c")
    assert (record["Bot_Id__c"], record["Local__c"]) == ("x", "y")
    assert (await call(org, "PATCH", path, {"Bot_Id__c": "z"}))[0] == 204
    _, whole = await call(org, "GET", path, options="client=tests/1")
    assert whole["battle__Bot_Id__c"] == "z"


async def test_queries_find_both_spellings_and_answer_without_the_prefix(org: TestOrg) -> None:
    await org.apply(objects=TYPES)
    account = await org.make_account("Acme", battle__Bot_Id__c="Bot_Id__c")
    await org.gate.create(
        org.call, "battle__Bot__c", {"battle__Power__c": 7, "battle__Owner_Account__c": account}
    )
    for name in ("Bot_Id__c", "battle__Bot_Id__c"):
        status, found = await query(org, f"SELECT {name} FROM Account WHERE {name} = 'Bot_Id__c'")
        assert (status, found["records"][0]["Bot_Id__c"]) == (200, "Bot_Id__c")
    _, found = await query(org, "SELECT Power__c, Owner_Account__r.Bot_Id__c FROM Bot__c WHERE Power__c > 5")
    (bot,) = found["records"]
    assert (bot["Power__c"], bot["Owner_Account__r"]["Bot_Id__c"]) == (7.0, "Bot_Id__c")
    _, found = await query(org, "SELECT (SELECT Power__c FROM Bots__r) FROM Account WHERE Bot_Id__c != null")
    assert found["records"][0]["Bots__r"]["records"][0]["Power__c"] == 7.0
    status, refused = await query(org, "SELECT Bot_Id__c FROM Account", "client=tests/1")
    assert (status, refused[0]["errorCode"]) == (400, "INVALID_FIELD")


async def test_paths_name_objects_and_keys_without_the_prefix(org: TestOrg) -> None:
    await org.apply(objects=TYPES)
    # the value of a key may look like a name and is none
    status, _ = await call(org, "PATCH", "sobjects/Bot__c/Key__c/Power__c", {"Power__c": 3})
    assert status == 201
    _, bot = await call(org, "GET", "sobjects/Bot__c/Key__c/Power__c")
    assert (bot["Key__c"], bot["Power__c"]) == ("Power__c", 3.0)


async def test_composite_subrequests_omit_the_default_namespace(org: TestOrg) -> None:
    await org.apply(objects=TYPES)
    base = "/services/data/v60.0"
    parts = [
        {"method": "POST", "url": f"{base}/sobjects/Bot__c", "referenceId": "bot", "body": {"Power__c": 4}},
        {
            "method": "GET",
            "url": f"{base}/sobjects/Bot__c/@{{bot.id}}?fields=Power__c",
            "referenceId": "read",
        },
        {
            "method": "POST",
            "url": f"{base}/sobjects/Bot__c",
            "referenceId": "copy",
            "body": {"Power__c": "@{read.Power__c}"},
        },
    ]
    _, answer = await call(org, "POST", "composite", {"compositeRequest": parts})
    assert [each["httpStatusCode"] for each in answer["compositeResponse"]] == [201, 200, 201], answer
    records = [{"attributes": {"type": "Bot__c"}, "Power__c": 5}]
    _, saved = await call(org, "POST", "composite/sobjects", {"records": records})
    assert saved[0]["success"] is True
    _, found = await query(org, "SELECT Power__c FROM Bot__c ORDER BY Power__c")
    assert [each["Power__c"] for each in found["records"]] == [4.0, 4.0, 5.0]


async def test_descriptions_and_unknown_namespaces_keep_full_names(org: TestOrg) -> None:
    await org.apply(objects=TYPES)
    _, described = await call(org, "GET", "sobjects/battle__Bot__c/describe")
    assert "battle__Power__c" in [each["name"] for each in described["fields"]]
    for given in ("nobody", "x" * 40, "a'b"):
        status, _ = await query(org, "SELECT Power__c FROM Bot__c", f"defaultNamespace={given}")
        assert status == 400


async def test_searches_omit_the_default_namespace_except_in_their_term(org: TestOrg) -> None:
    await org.apply(objects=TYPES)
    await org.gate.create(org.call, "battle__Bot__c", {"Name": "Power__c", "battle__Power__c": 9})
    sosl = "FIND {Power__c} IN NAME FIELDS RETURNING Bot__c(Name, Power__c WHERE Power__c > 1)"
    status, found = await call(org, "GET", f"search?q={quote(sosl)}")
    assert status == 200, found
    assert [each["Power__c"] for each in found["searchRecords"]] == [9.0]
    _, found = await call(org, "GET", "parameterizedSearch?q=Power__c&sobject=Bot__c&Bot__c.fields=Power__c")
    assert [each["Power__c"] for each in found["searchRecords"]] == [9.0]
    wanted = {"name": "Bot__c", "fields": ["Power__c"], "where": "Power__c = 9"}
    _, found = await call(org, "POST", "parameterizedSearch", {"q": "Power__c", "sobjects": [wanted]})
    assert [each["Power__c"] for each in found["searchRecords"]] == [9.0]


async def test_bulk_jobs_omit_the_default_namespace(org: TestOrg) -> None:
    await org.apply(objects=TYPES)
    caller = await sign_in(org)
    asked = {"object": "Bot__c", "operation": "upsert", "externalIdFieldName": "Key__c"}
    made = await caller.go("POST", "/jobs/ingest", asked, sforce_call_options=OPTIONS)
    assert made.status == 200, made.body
    path = f"/jobs/ingest/{orjson.loads(made.body)['id']}"
    data = b"Key__c,Power__c,Owner_Account__r.Bot_Id__c\nk,5,\n"
    assert (await caller.go("PUT", f"{path}/batches", data, content_type="text/csv")).status == 201
    await caller.go("PATCH", path, {"state": "UploadComplete"})
    await org.core.job_runner.wait_idle()
    job = await caller.read(path)
    assert (job["state"], job["numberRecordsProcessed"], job["numberRecordsFailed"]) == ("JobComplete", 1, 0)
    asked = {"operation": "query", "query": "SELECT Power__c, Key__c FROM Bot__c"}
    made = await caller.go("POST", "/jobs/query", asked, sforce_call_options=OPTIONS)
    await org.core.job_runner.wait_idle()
    result = await caller.go("GET", f"/jobs/query/{orjson.loads(made.body)['id']}/results")
    assert result.pieces is not None
    text = b"".join([piece async for piece in result.pieces])
    assert text == b'"Power__c","Key__c"\n"5.0","k"\n'


async def test_batches_of_bulk_api_1_omit_the_default_namespace(org: TestOrg) -> None:
    await org.apply(objects=TYPES)
    caller = await sign_in(org)
    base = "/services/async/59.0"
    asked = {"object": "Bot__c", "operation": "insert", "contentType": "JSON"}
    made = await caller.go("POST", "/job", asked, base, sforce_call_options=OPTIONS)
    job = orjson.loads(made.body)["id"]
    rows = [{"Power__c": 6, "attributes": {"type": "Bot__c"}}]
    batch = orjson.loads((await caller.go("POST", f"/job/{job}/batch", rows, base)).body)["id"]
    await org.core.job_runner.wait_idle()
    answer = await caller.go("GET", f"/job/{job}/batch/{batch}/result", None, base)
    assert orjson.loads(answer.body)[0]["success"] is True
    _, found = await query(org, "SELECT Power__c FROM Bot__c")
    assert [each["Power__c"] for each in found["records"]] == [6.0]
