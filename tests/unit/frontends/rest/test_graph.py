"""Graphs: one transaction each, run in the order of references."""

from __future__ import annotations

from typing import Any

import pytest

from tests.orgs import TestOrg
from tests.unit.frontends.rest.data_caller import Caller, count

V = "/services/data/v60.0"


def node(ref: str, entity: str = "Account", method: str = "POST", path: str = "", **body: object) -> Any:
    url = f"{V}/sobjects/{entity}{path}"
    return {"method": method, "url": url, "referenceId": ref, "body": body or None}


def graph(graph_id: str, *nodes: object) -> dict[str, object]:
    return {"graphId": graph_id, "compositeRequest": list(nodes)}


async def run(org: TestOrg, *graphs: object) -> list[dict[str, Any]]:
    status, body = await Caller(org).send("POST", "composite/graph", {"graphs": graphs})
    assert status == 200, body
    return list(body["graphs"])


def codes(answered: dict[str, Any]) -> list[int]:
    return [each["httpStatusCode"] for each in answered["graphResponse"]["compositeResponse"]]


async def test_nodes_run_by_dependency_and_answer_in_their_own_order(org: TestOrg) -> None:
    (told,) = await run(
        org,
        graph(
            "g",
            node("con", "Contact", LastName="L", AccountId="@{acc.id}"),
            node("read", "Contact", "GET", "/@{con.id}"),
            node("acc", Name="A"),
        ),
    )
    assert told["graphId"] == "g"
    assert told["isSuccessful"] is True
    con, read, acc = told["graphResponse"]["compositeResponse"]
    assert [con["referenceId"], read["referenceId"], acc["referenceId"]] == ["con", "read", "acc"]
    assert read["body"]["AccountId"] == acc["body"]["id"]


async def test_failed_graph_rolls_back_only_itself(org: TestOrg) -> None:
    good, bad, other = await run(
        org,
        graph("1", node("a", Name="A")),
        graph("2", node("a", Name="B"), node("b", Phone="1"), node("c", Name="C")),
        graph("3", node("a", Name="D")),
    )
    assert [g["isSuccessful"] for g in (good, bad, other)] == [True, False, True]
    assert [codes(good), codes(bad), codes(other)] == [[201], [400, 400, 400], [201]]
    bodies = [each["body"][0]["errorCode"] for each in bad["graphResponse"]["compositeResponse"]]
    assert bodies == ["PROCESSING_HALTED", "REQUIRED_FIELD_MISSING", "PROCESSING_HALTED"]
    assert await count(org) == 2


async def test_unknown_reference_fails_its_graph(org: TestOrg) -> None:
    (told,) = await run(
        org, graph("1", node("a", Name="A"), node("c", "Contact", LastName="L", AccountId="@{x.id}"))
    )
    assert told["isSuccessful"] is False
    assert await count(org) == 0


async def test_graphs_after_too_many_failures_are_halted(org: TestOrg) -> None:
    told = await run(org, *[graph(str(i), node("a")) for i in range(15)], graph("last", node("a", Name="A")))
    assert told[-1]["isSuccessful"] is False
    assert await count(org) == 0


async def test_large_graph_is_one_transaction(org: TestOrg) -> None:
    nodes = [node(f"n{i}", Name=f"N{i}") for i in range(500)]
    (told,) = await run(org, graph("g", *nodes))
    assert told["isSuccessful"] is True
    assert await count(org) == 500


def chain(length: int) -> list[object]:
    parents = [{"ParentId": f"@{{n{i - 1}.id}}"} if i else {} for i in range(length)]
    return [node(f"n{i}", Name="x", **parent) for i, parent in enumerate(parents)]


async def test_chain_of_fifteen_nodes_works(org: TestOrg) -> None:
    (told,) = await run(org, graph("g", *reversed(chain(15))))
    assert told["isSuccessful"] is True


@pytest.mark.parametrize(
    "graphs",
    [
        [],
        {"graphId": "x"},
        [1],
        [{"compositeRequest": [node("a", Name="A")]}],
        [graph("1")],
        [graph("1", node("b", Name="@{c.id}"), node("c", Name="@{b.id}"))],
        [graph("1", node("b", Name="@{b.id}"))],
        [graph("1", node("b", Name="A"), node("b", Name="B"))],
        [graph("0", node("b", Name="A"))],
        [graph("1", *chain(16))],
        [graph(str(i), node("a", Name="A")) for i in range(1, 76)],
        [graph(str(i), *[node(f"n{k}", Name="A") for k in range(10)]) for i in range(1, 52)],
        [graph("1", *[node(f"n{i}", f"X{i}__c", Name="A") for i in range(16)])],
        [graph("1", node("q", method="GET"))],
        [graph("1", {"method": "GET", "url": f"{V}/query?q=SELECT Id FROM Account", "referenceId": "q"})],
        [graph("1", {"method": "POST", "url": f"{V}/composite/sobjects", "referenceId": "q", "body": {}})],
        [graph("1", {"method": "GET", "url": "@{a.b}", "referenceId": "q"})],
        [graph("1", {"method": "GET", "url": "/services/data/v60.0", "referenceId": "q"})],
    ],
)
async def test_malformed_graphs_are_rejected_before_anything_is_run(org: TestOrg, graphs: Any) -> None:
    first = graph("0", node("a", Name="First"))
    body = {"graphs": [first, *graphs] if isinstance(graphs, list) and graphs else graphs}
    status, answer = await Caller(org).send("POST", "composite/graph", body)
    assert status == 400
    assert answer[0]["errorCode"] in ("JSON_PARSER_ERROR", "EXCEEDED_ID_LIMIT")
    assert await count(org) == 0


async def test_version_before_50_has_no_graphs(org: TestOrg) -> None:
    assert (await Caller(org, version=49).send("POST", "composite/graph", {}))[0] == 404
