"""`defaultNamespace` of Sforce-Call-Options: names in paths, queries and bodies may omit that prefix.

Descriptions, and the Tooling and Metadata resources, ignore the header and always use full names.
"""

from __future__ import annotations

from dataclasses import replace
from urllib.parse import urlencode

import orjson

from tidewire.frontends.rest.wire import parse_default_namespace, render_json
from tidewire.gate.namespaces import Namespace, try_namespace
from tidewire.ids import try_normalise_id
from tidewire.schema.catalog import Catalog
from tidewire.transport.http import HttpRequest, HttpResponse

_FULL_NAMES_ONLY = frozenset({"tooling", "metadata", "limits"})
_QUERIES = frozenset({"query", "queryAll"})
_CLAUSES = (".where", ".orderBy")  # of an object that a parameterized search names
_MAX_DEPTH = 64


def namespace_of(request: HttpRequest, segments: tuple[str, ...], catalog: Catalog) -> Namespace | None:
    """Return the namespace that a request omits, or None if its names are full."""
    given = parse_default_namespace(request)
    if not given or not segments or segments[0] in _FULL_NAMES_ONLY or "describe" in segments:
        return None
    return try_namespace(catalog, given)


def add_prefixes(
    namespace: Namespace, request: HttpRequest, segments: tuple[str, ...]
) -> tuple[HttpRequest, tuple[str, ...]]:
    """Return a request and its path with full names; composite subrequests are rewritten when they run."""
    segments = _full_segments(namespace, segments)
    query = dict(request.query)
    if segments[0] in _QUERIES and "q" in query:
        query["q"] = namespace.qualify_query(query["q"])
    if segments[0] == "search" and "q" in query:
        query["q"] = namespace.qualify_search(query["q"])
    if segments[0] == "parameterizedSearch":
        query = {name: text for given in query.items() for name, text in [_full_parameter(namespace, *given)]}
    elif "fields" in query:
        query["fields"] = _full_list(namespace, query["fields"])
    if query != request.query:
        request = replace(request, target=f"{request.raw_path}?{urlencode(query)}")
    is_composite = segments[0] == "composite" and (len(segments) == 1 or segments[1] in ("batch", "graph"))
    if request.body and not is_composite:
        is_search = segments[0] == "parameterizedSearch"
        request = replace(request, body=_full_body(namespace, request.body, is_search=is_search))
    return request, segments


def _full_list(namespace: Namespace, text: str) -> str:
    return ",".join(namespace.qualify_path(each.strip()) for each in text.split(","))


def _full_parameter(namespace: Namespace, name: str, text: str) -> tuple[str, str]:
    """Rewrite a search parameter: `sobject`, `fields`, or those of one object such as `Object.fields`."""
    if name in ("sobject", "fields"):
        return name, _full_list(namespace, text)
    entity, dot, what = name.rpartition(".")
    if what == "fields":
        text = _full_list(namespace, text)
    elif name.endswith(_CLAUSES):
        text = namespace.qualify_query(text)
    return namespace.qualify(entity) + dot + what, text


def _full_search(namespace: Namespace, value: object) -> object:
    """Rewrite a search body, whose names are the values of `name`, `fields`, `where` and `orderBy`."""
    if not isinstance(value, dict):
        return value
    listed = value.get("sobjects")
    whole = _full_part(namespace, value)
    if isinstance(listed, list):
        whole["sobjects"] = [_full_part(namespace, e) if isinstance(e, dict) else e for e in listed]
    return whole


def _full_part(namespace: Namespace, part: dict[str, object]) -> dict[str, object]:
    whole = dict(part)
    for key, value in part.items():
        if key == "name" and isinstance(value, str):
            whole[key] = namespace.qualify(value)
        elif key in ("where", "orderBy") and isinstance(value, str):
            whole[key] = namespace.qualify_query(value)
        elif key == "fields" and isinstance(value, list):
            whole[key] = [namespace.qualify_path(each) if isinstance(each, str) else each for each in value]
        elif key == "fields" and isinstance(value, str):
            whole[key] = namespace.qualify_path(value)
    return whole


def _full_segments(namespace: Namespace, segments: tuple[str, ...]) -> tuple[str, ...]:
    """Rewrite the object and field of a path; the segment after an external id field is a value."""
    named = {1, 2}
    if segments[0] == "composite" or (len(segments) > 3 and try_normalise_id(segments[2]) is not None):
        named.add(3)
    return tuple(namespace.qualify(part) if place in named else part for place, part in enumerate(segments))


def _full_body(namespace: Namespace, body: bytes, *, is_search: bool) -> bytes:
    try:
        value = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body  # the handler reports the error
    return orjson.dumps(_full_search(namespace, value) if is_search else _full_value(namespace, value, 0))


def _full_value(namespace: Namespace, value: object, depth: int) -> object:
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, list):
        return [_full_value(namespace, each, depth + 1) for each in value]
    if not isinstance(value, dict):
        return value
    whole: dict[str, object] = {}
    for key, inner in value.items():
        if key == "attributes" and isinstance(inner, dict) and isinstance(inner.get("type"), str):
            inner = {**inner, "type": namespace.qualify(inner["type"])}
        elif key == "fields" and isinstance(inner, list):
            inner = [namespace.qualify_path(each) if isinstance(each, str) else each for each in inner]
        else:
            inner = _full_value(namespace, inner, depth + 1)
        whole[namespace.qualify(key)] = inner
    return whole


def strip_prefixes(namespace: Namespace, request: HttpRequest, response: HttpResponse) -> HttpResponse:
    """Return a response whose names omit the prefix, as the caller's do."""
    if not response.body or not response.content_type.startswith("application/json"):
        return response
    value = _bare_value(namespace, orjson.loads(response.body), 0)
    return replace(response, body=render_json(request, response.status, value).body)


def _bare_value(namespace: Namespace, value: object, depth: int) -> object:
    if depth > _MAX_DEPTH:
        return value
    if isinstance(value, list):
        return [_bare_value(namespace, each, depth + 1) for each in value]
    if isinstance(value, dict):
        return {namespace.unqualify(key): _bare_value(namespace, v, depth + 1) for key, v in value.items()}
    return value
