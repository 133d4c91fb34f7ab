"""The composite family over the wire."""

from __future__ import annotations

import uuid
from typing import Any
from urllib.parse import quote

import pytest
import requests

from tidewire.testing import ServerProcess

V = "/services/data/v60.0"


@pytest.fixture
def session(dev_token: str) -> requests.Session:
    opened = requests.Session()
    opened.trust_env = False
    opened.headers["Authorization"] = f"Bearer {dev_token}"
    return opened


@pytest.fixture
def name() -> str:
    return uuid.uuid4().hex


def count(session: requests.Session, server: ServerProcess, name: str) -> int:
    soql = f"SELECT COUNT() FROM Account WHERE Name = '{name}'"
    return int(session.get(f"{server.http}{V}/query?q={quote(soql)}").json()["totalSize"])


def post(session: requests.Session, server: ServerProcess, resource: str, body: object) -> Any:
    answer = session.post(f"{server.http}{V}/{resource}", json=body)
    return answer.status_code, answer.json()


def test_chain_of_subrequests_is_answered_in_order(
    session: requests.Session, server: ServerProcess, name: str
) -> None:
    body = {
        "allOrNone": True,
        "compositeRequest": [
            {"method": "POST", "url": f"{V}/sobjects/Account/", "referenceId": "acc", "body": {"Name": name}},
            {
                "method": "GET",
                "url": f"{V}/query/?q=SELECT Id, Name FROM Account WHERE Name = '{name}'",
                "referenceId": "found",
            },
            {
                "method": "POST",
                "url": f"{V}/sobjects/Contact",
                "referenceId": "con",
                "body": {"LastName": "@{found.records[0].Name}", "AccountId": "@{acc.id}"},
            },
        ],
    }
    status, answer = post(session, server, "composite", body)
    assert status == 200
    assert [each["httpStatusCode"] for each in answer["compositeResponse"]] == [201, 200, 201]
    assert count(session, server, name) == 1


def test_failure_takes_everything_back(session: requests.Session, server: ServerProcess, name: str) -> None:
    requested = [
        {"method": "POST", "url": f"{V}/sobjects/Account", "referenceId": "a", "body": {"Name": name}},
        {"method": "POST", "url": f"{V}/sobjects/Account", "referenceId": "b", "body": {"Phone": "1"}},
    ]
    _, answer = post(session, server, "composite", {"allOrNone": True, "compositeRequest": requested})
    first, second = answer["compositeResponse"]
    assert first["body"][0]["errorCode"] == "PROCESSING_HALTED"
    assert second["body"][0]["errorCode"] == "REQUIRED_FIELD_MISSING"
    assert count(session, server, name) == 0


def test_batch_tree_and_graph_answer(session: requests.Session, server: ServerProcess, name: str) -> None:
    batch = {"batchRequests": [{"method": "GET", "url": "v60.0/limits"}]}
    status, answer = post(session, server, "composite/batch", batch)
    assert (status, answer["hasErrors"]) == (200, False)
    tree = {"records": [{"attributes": {"type": "Account", "referenceId": "r"}, "Name": name}]}
    status, answer = post(session, server, "composite/tree/Account/", tree)
    assert (status, answer["results"][0]["referenceId"]) == (201, "r")
    node = {"method": "POST", "url": f"{V}/sobjects/Account", "referenceId": "a", "body": {"Name": name}}
    graphs = {"graphs": [{"graphId": "g", "compositeRequest": [node]}]}
    status, answer = post(session, server, "composite/graph", graphs)
    assert (status, answer["graphs"][0]["isSuccessful"]) == (200, True)
    assert count(session, server, name) == 2


def test_wrong_method_and_missing_login_are_refused(session: requests.Session, server: ServerProcess) -> None:
    answer = session.get(f"{server.http}{V}/composite/batch")
    assert (answer.status_code, answer.headers["Allow"]) == (405, "POST")
    assert session.get(f"{server.http}{V}/composite").json()["graph"] == f"{V}/composite/graph"
    del session.headers["Authorization"]
    assert session.post(f"{server.http}{V}/composite", json={}).status_code == 401


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"compositeRequest":' + b"[" * 2000, b"null"])
def test_body_that_is_no_request_is_refused(
    session: requests.Session, server: ServerProcess, body: bytes
) -> None:
    headers = {"Content-Type": "application/json"}
    for resource in ("composite", "composite/batch", "composite/graph", "composite/tree/Account"):
        answer = session.post(f"{server.http}{V}/{resource}", data=body, headers=headers)
        assert (answer.status_code, answer.json()[0]["errorCode"]) == (400, "JSON_PARSER_ERROR")
