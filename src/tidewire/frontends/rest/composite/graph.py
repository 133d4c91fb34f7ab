"""The graph resource: independent graphs of up to 500 subrequests in all, each graph one transaction.

The nodes of a graph run in the order of their references, and are answered in the order of the request.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tidewire.errors import BodyMalformed, TooManyRecords
from tidewire.frontends.rest.calls import Api, ApiCall, Route, render_answer
from tidewire.frontends.rest.composite.references import count_expressions, source_of
from tidewire.frontends.rest.composite.subrequests import (
    Answer,
    Subrequest,
    halted_answer,
    parse_subrequests,
    run_as_one,
)
from tidewire.frontends.rest.wire import parse_json_object
from tidewire.transport.http import HttpResponse

_MAX_GRAPHS = 75
_MAX_NODES = 500
_MAX_DEPTH = 15
_MAX_KINDS = 15
_MAX_FAILURES = 14
_METHODS = {
    2: ("POST",),  # sobjects/Account
    3: ("DELETE", "GET", "PATCH"),  # sobjects/Account/{id}
    4: ("DELETE", "GET", "PATCH", "POST"),  # sobjects/Account/{external id field}/{value}
}
_TOO_MANY_FAILURES = halted_answer("Processing was halted since too many graphs of the request failed.")


@dataclass(frozen=True, slots=True)
class _Graph:
    graph_id: str
    nodes: list[Subrequest]
    order: list[int]  # indexes of `nodes` in the order to run them


async def run_graphs(api: Api, call: ApiCall) -> HttpResponse:
    """Run each graph in its own transaction; a failed graph does not roll back another."""
    graphs = _parse_graphs(parse_json_object(call.request).get("graphs"), call.version)
    rendered: list[dict[str, object]] = []
    failures = 0
    for graph in graphs:
        if failures > _MAX_FAILURES:
            answers = [_TOO_MANY_FAILURES] * len(graph.nodes)
        else:
            answers = await _run_graph(api, call, graph)
        is_successful = not any(answer.has_failed for answer in answers)
        failures += not is_successful
        responses = [a.render(n.reference_id) for a, n in zip(answers, graph.nodes, strict=True)]
        rendered.append(
            {
                "graphId": graph.graph_id,
                "graphResponse": {"compositeResponse": responses},
                "isSuccessful": is_successful,
            }
        )
    return render_answer(api, call, 200, {"graphs": rendered})


async def _run_graph(api: Api, call: ApiCall, graph: _Graph) -> list[Answer]:
    answers = await run_as_one(api, call, [graph.nodes[i] for i in graph.order])
    by_index = dict(zip(graph.order, answers, strict=True))
    return [by_index[i] for i in range(len(graph.nodes))]


def _parse_graphs(value: object, version: int) -> list[_Graph]:
    if not isinstance(value, list) or not value:
        raise BodyMalformed("graphs must be a list with at least one graph")
    if len(value) > _MAX_GRAPHS:
        raise TooManyRecords(
            f"The request can have up to {_MAX_GRAPHS} graphs, not {len(value)}", limit=_MAX_GRAPHS
        )
    graphs: list[_Graph] = []
    left = _MAX_NODES
    for each in value:
        graph = _parse_graph(each, version)
        if any(graph.graph_id == other.graph_id for other in graphs):
            raise BodyMalformed(f"Duplicate graphId provided in the request: {graph.graph_id[:200]}")
        left -= len(graph.nodes)
        if left < 0:
            raise TooManyRecords(f"The request can have up to {_MAX_NODES} nodes", limit=_MAX_NODES)
        graphs.append(graph)
    kinds = {_kind(node) for graph in graphs for node in graph.nodes}
    if len(kinds) > _MAX_KINDS:
        raise TooManyRecords(
            f"The request can have up to {_MAX_KINDS} different nodes, not {len(kinds)}", limit=_MAX_KINDS
        )
    return graphs


def _parse_graph(value: object, version: int) -> _Graph:
    if not isinstance(value, dict):
        raise BodyMalformed("graphs must be JSON objects")
    graph_id = value.get("graphId")
    if not isinstance(graph_id, str) or not graph_id:
        raise BodyMalformed("Every graph needs a graphId")
    nodes = parse_subrequests(value.get("compositeRequest"), version, _MAX_NODES)
    for node in nodes:
        segments = _segments(node)
        if segments[0] != "sobjects" or node.method not in _METHODS.get(len(segments), ()):
            raise BodyMalformed(
                f"{node.method} {node.url[:200]} is not supported in a graph: its nodes are records"
            )
    return _Graph(graph_id, nodes, _sort(graph_id, nodes))


def _sort(graph_id: str, nodes: Sequence[Subrequest]) -> list[int]:
    """Return indexes of nodes, each after all it refers to. Raises BodyMalformed for a cycle."""
    index_of = {node.reference_id: i for i, node in enumerate(nodes)}
    needed: list[set[int]] = []
    for node in nodes:
        sources = {source_of(expression) for expression in count_expressions([node.url, node.body])}
        needed.append({index_of[source] for source in sources if source in index_of})
    order: list[int] = []
    done: set[int] = set()
    for _ in range(_MAX_DEPTH):
        ready = [i for i in range(len(nodes)) if i not in done and needed[i] <= done]
        order += ready
        done.update(ready)
        if len(done) == len(nodes):
            return order
        if not ready:
            raise BodyMalformed(f"The nodes of graph {graph_id[:200]} refer to each other in a circle")
    raise TooManyRecords(f"A graph can be up to {_MAX_DEPTH} nodes deep", limit=_MAX_DEPTH)


def _kind(node: Subrequest) -> tuple[str, str]:
    """Return what the limit on different nodes counts: the API version and the object."""
    return node.url.split("/")[3].lower(), _segments(node)[1].lower()


def _segments(node: Subrequest) -> list[str]:
    """Return the path segments after the version; a reference has no slash."""
    return node.url.split("?", 1)[0].strip("/").split("/")[3:] or [""]


ROUTES: tuple[Route[Api], ...] = (Route(("composite", "graph"), {"POST": run_graphs}, since=50),)
