"""Serve the WSDL documents.

The partner API is the same for every org, so its document needs no session. The enterprise document lists the org's
objects and fields as far as the caller may see them.
"""

from __future__ import annotations

import asyncio
import re
from http.cookies import CookieError, SimpleCookie

from tidewire.access.principal import Principal
from tidewire.errors import MethodNotAllowed, ResourceUnknown
from tidewire.frontends.soap.calls import Services
from tidewire.frontends.soap.wire import (
    ENTERPRISE,
    PARTNER,
    Endpoint,
    parse_endpoint,
)
from tidewire.frontends.soap.wsdl.document import RecordShape, render_wsdl
from tidewire.names import MAX_API_VERSION
from tidewire.schema.model import EventType, Field
from tidewire.transport.http import HttpRequest, HttpResponse

_PAGES = {"/services/wsdl/partner": PARTNER, "/services/wsdl/enterprise": ENTERPRISE}
_PAGE = "/soap/wsdl.jsp"
_BEARER = re.compile(r"(?:bearer|oauth) +(\S+)", re.IGNORECASE)
_COOKIE = "sid"
_MEDIA_TYPE = "text/xml;charset=UTF-8"


def is_wsdl(request: HttpRequest) -> bool:
    """Whether a request is for a document rather than a call."""
    path = request.raw_path
    if path.startswith("/services/Soap/"):
        return request.method in ("GET", "HEAD") and any(name.lower() == "wsdl" for name in request.query)
    return True


async def answer_wsdl(services: Services, request: HttpRequest) -> HttpResponse:
    """Return the document. Raises ResourceUnknown, SessionInvalid or VersionUnsupported."""
    if request.method not in ("GET", "HEAD"):
        raise MethodNotAllowed("A WSDL is fetched by GET", allowed=("GET", "HEAD"))
    endpoint = _endpoint(request)
    address = f"{request.base_url}/services/Soap/{endpoint.dialect.letter}/{endpoint.version}.0"
    records: list[RecordShape] = []
    if not endpoint.dialect.has_type_element:
        principal = await services.logins.sessions.authenticate(find_token(request))
        await services.gate.check_api(principal)
        services.gate.usage.count()
        records = await _records(services, principal)
    body = await asyncio.to_thread(render_wsdl, endpoint.dialect, address, records)
    return HttpResponse(200, body, _MEDIA_TYPE)


def _endpoint(request: HttpRequest) -> Endpoint:
    path = request.raw_path.rstrip("/")
    if path.startswith("/services/Soap/"):
        endpoint = parse_endpoint(request.raw_path)
        if endpoint.dialect in _PAGES.values():
            return endpoint
    if path == _PAGE:
        return Endpoint(ENTERPRISE if request.query.get("type") == "*" else PARTNER, MAX_API_VERSION)
    if path not in _PAGES:
        raise ResourceUnknown("No WSDL is at this path")
    return Endpoint(_PAGES[path], MAX_API_VERSION)


def find_token(request: HttpRequest) -> str:
    """Return the session token from the header, the parameters or the browser's cookie; empty if there is none."""
    given = _BEARER.fullmatch(request.headers.get("authorization", "").strip())
    if given is not None:
        return given[1]
    asked = request.query.get("oauth_token") or request.query.get("access_token")
    if asked:
        return asked
    try:
        held = SimpleCookie(request.headers.get("cookie", "")).get(_COOKIE)
    except CookieError:
        return ""
    return held.value if held is not None else ""


async def _records(services: Services, principal: Principal) -> list[RecordShape]:
    gate = services.gate
    seen = {}
    for entity in await gate.visible_objects(principal):
        _, readable, _ = await gate.visible_fields(principal, entity.name)
        seen[entity.name] = (entity, [f for f in entity.fields if f.name in readable])
    words: dict[str, dict[str, str]] = {name: {} for name in seen}
    for entity, fields in seen.values():
        own = words[entity.name]
        for f in fields:
            if f.name != "Id":
                own[f.name] = _field_word(f)
            if f.relationship_name:
                own[f.relationship_name] = _parent_word(f, frozenset(seen))
            for target in f.reference_to:
                if f.child_relationship_name and target in seen:
                    child = f.child_relationship_name
                    words[target].setdefault(child, f"{child}:QueryResult?~")
    shapes = [RecordShape(name, tuple(own[key] for key in sorted(own))) for name, own in words.items()]
    grants = await gate.grants(principal)
    shapes += [
        _event_shape(event)
        for event in gate.catalog.events
        if grants.can_read(event.name) or grants.on(event.name).can_create
    ]
    return sorted(shapes, key=lambda shape: shape.name)


def _field_word(f: Field) -> str:
    kind = f.type.row.soap_type.replace("urn:", "tns:")
    return f"{f.name}:{kind}?~"


def _parent_word(f: Field, seen: frozenset[str]) -> str:
    """Declare a parent with its type; one of several types is an sObject that names its type in answers."""
    is_one = len(f.reference_to) == 1 and f.reference_to[0] in seen
    return f"{f.relationship_name}:ens:{f.reference_to[0] if is_one else 'sObject'}?~"


def _event_shape(event: EventType) -> RecordShape:
    return RecordShape(event.name, tuple(sorted(_field_word(f) for f in event.fields)))
