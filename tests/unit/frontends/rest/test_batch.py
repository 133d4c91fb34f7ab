"""Batches: independent subrequests in order."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orgs import TestOrg
from tests.unit.frontends.rest.data_caller import Caller, count


def request(method: str, url: str, body: object = None) -> dict[str, object]:
    return {"method": method, "url": url, **({} if body is None else {"richInput": body})}


def account(**fields: object) -> dict[str, object]:
    return request("POST", "v60.0/sobjects/Account", fields)


async def run(org: TestOrg, *requests: object, **more: object) -> Any:
    status, body = await Caller(org).send("POST", "composite/batch", {"batchRequests": requests, **more})
    assert status == 200, body
    return body


async def test_each_request_is_answered_and_stays_done(org: TestOrg) -> None:
    record_id = await org.make_account("A")
    body = await run(
        org,
        request("PATCH", f"v60.0/sobjects/account/{record_id}", {"Name": "B"}),
        request("GET", f"v60.0/sobjects/account/{record_id}?fields=Name"),
        account(),
        request("GET", "/services/data/v60.0/query?q=SELECT Id FROM Account"),
    )
    assert body["hasErrors"] is True
    assert [each["statusCode"] for each in body["results"]] == [204, 200, 400, 200]
    assert body["results"][0]["result"] is None
    assert body["results"][1]["result"]["Name"] == "B"
    assert body["results"][2]["result"][0]["errorCode"] == "REQUIRED_FIELD_MISSING"


async def test_halt_stops_after_the_first_failure(org: TestOrg) -> None:
    body = await run(org, account(Name="A"), account(), account(Name="B"), haltOnError=True)
    assert body["hasErrors"] is True
    assert [each["statusCode"] for each in body["results"]] == [201, 400, 412]
    assert body["results"][2]["result"][0]["errorCode"] == "BATCH_PROCESSING_HALTED"
    assert await count(org) == 1


async def test_references_mean_nothing_in_a_batch(org: TestOrg) -> None:
    body = await run(org, account(Name="@{a.id}"))
    assert body["hasErrors"] is False
    found = await org.gate.query(org.admin, "SELECT Name FROM Account")
    assert [row["Name"] for row in found.rows] == ["@{a.id}"]


async def test_every_request_counts_as_a_call(org: TestOrg) -> None:
    before = org.gate.usage.used()
    await run(org, *[request("GET", "v60.0/limits")] * 3)
    assert org.gate.usage.used() == before + 3


@pytest.mark.parametrize(
    "url", ["v60.0/composite", "v60.0/composite/batch", "v60.0/tooling/x", "v99.0/limits", "v60.0"]
)
async def test_resource_that_no_batch_can_hold_is_not_found(org: TestOrg, url: str) -> None:
    body = await run(org, request("GET", url))
    assert body["results"][0]["statusCode"] == 404


@pytest.mark.parametrize(
    "requests",
    [
        None,
        [],
        "x",
        [1],
        [request("GET", "v60.0/limits")] * 26,
        [request("get", "v60.0/limits")],
        [request("GET", "limits")],
        [request("GET", "")],
        [{"method": "GET"}],
        [request("POST", "v60.0/sobjects/Account", "x")],
    ],
)
async def test_malformed_batch_is_rejected_before_anything_is_run(org: TestOrg, requests: Any) -> None:
    if isinstance(requests, list) and requests and len(requests) < 25:
        requests = [account(Name="First"), *requests]
    status, _ = await Caller(org).send("POST", "composite/batch", {"batchRequests": requests})
    assert status == 400
    assert await count(org) == 0
