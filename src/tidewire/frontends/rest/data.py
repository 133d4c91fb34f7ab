"""The resources under `/services/data/vN.0`: what each path and method does, through the gate.

Permissions are the gate's: an object that the caller may not see raises the same ObjectUnknown as one that
does not exist, and a path that names either answers alike.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from tidewire.access.cursors import QueryCursors
from tidewire.access.describe import (
    ChildLink,
    render_describe,
    render_event_describe,
    render_event_entry,
    render_global_entry,
)
from tidewire.access.gate import Call, Gate, Rows
from tidewire.access.principal import Principal
from tidewire.clock import Clock
from tidewire.errors import (
    FieldUnknown,
    MethodNotAllowed,
    ObjectUnknown,
    ResourceUnknown,
    SoqlSyntaxError,
)
from tidewire.frontends.rest import event_schema
from tidewire.frontends.rest.collections import parse_deletes, parse_writes, render_results
from tidewire.frontends.rest.identity import identity_url
from tidewire.frontends.rest.limits import ApiUsage, render_limits
from tidewire.frontends.rest.records import (
    render_created,
    render_page,
    render_published,
    render_record,
    render_single,
)
from tidewire.frontends.rest.wire import (
    NO_STORE,
    POSITION_HEADER,
    Page,
    parse_batch_size,
    parse_json_object,
    render_http_date,
    render_json,
    render_origin,
    without_attributes,
)
from tidewire.frontends.rest.wire_errors import render_refusal
from tidewire.ids import make_id, try_normalise_id
from tidewire.names import change_event_name, data_url
from tidewire.records.query import count_rows
from tidewire.schema.model import EventType, ObjectType
from tidewire.transport.http import HttpRequest, HttpResponse

_SEARCH_OBJECT_VERSION = 37  # older versions answer a search with a bare list
MAX_BATCH_SIZE = 200  # records that one collection request may carry, as the global list announces it


@dataclass(frozen=True, slots=True)
class ApiCall:
    """One signed-in request to the data API; `arguments` are the path segments that the route leaves open."""

    request: HttpRequest
    version: int
    principal: Principal
    arguments: tuple[str, ...] = ()

    @property
    def context(self) -> Call:
        """Who calls, and what change events will say about it."""
        return Call(self.principal, render_origin(self.request, self.version))


Handler = Callable[["DataApi", ApiCall], Awaitable[HttpResponse]]


@dataclass(frozen=True, slots=True)
class Route:
    """A resource: its path, `*` for an open segment, and what each method does."""

    path: tuple[str, ...]
    methods: dict[str, Handler]

    def try_match(self, segments: tuple[str, ...]) -> tuple[str, ...] | None:
        """The open segments, or None if the path is another resource's."""
        if len(segments) != len(self.path):
            return None
        if any(part not in ("*", given) for part, given in zip(self.path, segments, strict=True)):
            return None
        return tuple(given for part, given in zip(self.path, segments, strict=True) if part == "*")


@contextmanager
def _object_in_path() -> Iterator[None]:
    """An unknown object in a query is a wrong query; in a path it makes the path name nothing."""
    try:
        yield
    except ObjectUnknown as err:
        raise ResourceUnknown("The requested resource does not exist") from err


class DataApi:
    """Answers data API requests. Holds no state but the count of calls."""

    def __init__(self, gate: Gate, cursors: QueryCursors[Rows], clock: Clock) -> None:
        self._gate = gate
        self._cursors = cursors
        self._usage = ApiUsage(clock)

    async def answer(
        self, request: HttpRequest, version: int, segments: tuple[str, ...], principal: Principal
    ) -> HttpResponse:
        """The answer to one request; raises PlatformError."""
        self._usage.count()
        method = request.method
        if method == "POST":
            method = request.query.get("_HttpMethod", method).upper()
        for route in ROUTES:
            arguments = route.try_match(segments)
            if arguments is None:
                continue
            handler = route.methods.get(method)
            if handler is None:
                allowed = tuple(route.methods)
                raise MethodNotAllowed(
                    f"HTTP Method '{method[:16]}' not allowed. Allowed are {', '.join(allowed)}",
                    allowed=allowed,
                )
            return await handler(self, ApiCall(request, version, principal, arguments))
        raise ResourceUnknown("The requested resource does not exist")

    async def list_resources(self, call: ApiCall) -> HttpResponse:
        """The resources of a version, and who is asking."""
        resources = {
            "eventSchema": data_url(call.version, "event", "eventSchema"),
            "limits": data_url(call.version, "limits"),
            "query": data_url(call.version, "query"),
            "queryAll": data_url(call.version, "queryAll"),
            "sobjects": data_url(call.version, "sobjects"),
            "identity": identity_url(call.request.base_url, call.principal.org_id, call.principal.user_id),
        }
        return self._json(call, 200, resources)

    async def list_objects(self, call: ApiCall) -> HttpResponse:
        """The global list: every object and every platform event that the caller may know of."""
        objects = await self._gate.visible_objects(call.principal)
        entries = [render_global_entry(entity, call.version) for entity in objects]
        entries += [render_event_entry(event, call.version) for event in await self._events(call.principal)]
        entries.sort(key=lambda entry: str(entry["name"]))
        body = {"encoding": "UTF-8", "maxBatchSize": MAX_BATCH_SIZE, "sobjects": entries}
        return self._json(call, 200, body)

    async def describe_briefly(self, call: ApiCall) -> HttpResponse:
        """An object's entry of the global list."""
        (name,) = call.arguments
        if event := await self._try_event(call.principal, name):
            entry = render_event_entry(event, call.version)
        else:
            with _object_in_path():
                entity, _, _ = await self._gate.visible_fields(call.principal, name)
            entry = render_global_entry(entity, call.version)
        return self._json(call, 200, {"objectDescribe": entry, "recentItems": []})

    async def describe(self, call: ApiCall) -> HttpResponse:
        """Everything about an object that the caller may know."""
        (name,) = call.arguments
        if event := await self._try_event(call.principal, name):
            return self._json(call, 200, render_event_describe(event, call.version))
        with _object_in_path():
            entity, readable, editable = await self._gate.visible_fields(call.principal, name)
        children = await self._children(call.principal, entity)
        return self._json(call, 200, render_describe(entity, readable, editable, children, call.version))

    async def _children(self, principal: Principal, parent: ObjectType) -> list[ChildLink]:
        links = []
        for entity in await self._gate.visible_objects(principal):
            lookups = [f for f in entity.fields if parent.name in f.reference_to]
            if lookups:
                _, readable, _ = await self._gate.visible_fields(principal, entity.name)
                links += [ChildLink(entity.name, f) for f in lookups if f.name in readable]
        return links

    async def _events(self, principal: Principal) -> list[EventType]:
        """The platform events that the caller may read or publish; the others do not exist for it."""
        grants = await self._gate.grants(principal)
        return [
            event
            for event in self._gate.catalog.events
            if grants.can_read(event.name) or grants.on(event.name).can_create
        ]

    async def _try_event(self, principal: Principal, name: str) -> EventType | None:
        events = await self._events(principal)
        return next((event for event in events if event.name.lower() == name.lower()), None)

    async def create(self, call: ApiCall) -> HttpResponse:
        """Make a record, or publish an event."""
        (name,) = call.arguments
        values = _record_body(call.request)
        if event := self._gate.catalog.try_event(name):
            uuid = await self._gate.publish_event(call.context, event.name, values)
            # Events have no records; the id only has the form that clients expect.
            return self._json(call, 201, render_published(make_id(event.key_prefix, 1), uuid))
        with _object_in_path():
            entity = self._gate.catalog.object(name)
            record_id = await self._gate.create(call.context, entity.name, values)
        location = ("Location", data_url(call.version, "sobjects", entity.name, record_id))
        return self._json(call, 201, render_created(record_id), location)

    async def read_record(self, call: ApiCall) -> HttpResponse:
        """One record, whole or only the fields named in `?fields=`."""
        name, id_text = call.arguments
        record_id = try_normalise_id(id_text)
        if record_id is None:
            return _bad_record_path(call)
        chosen = call.request.query.get("fields")
        fields = None if chosen is None else [f.strip() for f in chosen.split(",") if f.strip()]
        with _object_in_path():
            rows = await self._gate.read(call.principal, name, record_id, fields or None)
        headers = [(POSITION_HEADER, str(rows.position))]
        modified_ms = rows.rows[0].get("LastModifiedDate")
        if isinstance(modified_ms, int):
            headers.append(("Last-Modified", render_http_date(modified_ms)))
        return self._json(call, 200, render_single(rows, call.version), *headers)

    async def update_record(self, call: ApiCall) -> HttpResponse:
        """Set fields of a record."""
        name, id_text = call.arguments
        record_id = try_normalise_id(id_text)
        if record_id is None:
            return _bad_record_path(call)
        values = _record_body(call.request)
        with _object_in_path():
            await self._gate.update(call.context, name, record_id, values)
        return self._empty()

    async def delete_record(self, call: ApiCall) -> HttpResponse:
        """Move a record to the recycle bin."""
        name, id_text = call.arguments
        record_id = try_normalise_id(id_text)
        if record_id is None:
            return _bad_record_path(call)
        with _object_in_path():
            await self._gate.delete(call.context, name, record_id)
        return self._empty()

    async def query(self, call: ApiCall) -> HttpResponse:
        """The first page of a query over living records."""
        return await self._query(call, "query")

    async def query_all(self, call: ApiCall) -> HttpResponse:
        """The first page of a query over all records, the deleted ones too."""
        return await self._query(call, "queryAll")

    async def _query(self, call: ApiCall, resource: str) -> HttpResponse:
        soql = call.request.query.get("q", "")
        if not soql.strip():
            raise SoqlSyntaxError("A query string has to be specified", row=1, column=1, query="")
        rows = await self._gate.query(call.principal, soql, include_deleted=resource == "queryAll")
        if rows.count is not None:
            body = {"totalSize": rows.count, "done": True, "records": list[object]()}
            return self._json(call, 200, body, (POSITION_HEADER, str(rows.position)))
        return self._page(call, rows, resource, first=0, cursor_id="")

    async def search(self, call: ApiCall) -> HttpResponse:
        """Records that match a SOSL search, of all its objects in one list."""
        answers = await self._gate.search(call.principal, call.request.query.get("q", ""))
        records = [
            render_record(rows.entity, rows.select, row, call.version)
            for rows in answers
            for row in rows.rows
        ]
        body: object = {"searchRecords": records} if call.version >= _SEARCH_OBJECT_VERSION else records
        return self._json(call, 200, body)

    async def next_page(self, call: ApiCall) -> HttpResponse:
        """A later page of an earlier query."""
        (locator,) = call.arguments
        found = self._cursors.try_find(call.principal.session_id, locator)
        if found is None:
            return render_refusal(call.request, 400, "INVALID_QUERY_LOCATOR", "invalid query locator")
        cursor_id, rows, first = found
        return self._page(call, rows, "query", first=first, cursor_id=cursor_id)

    def _page(self, call: ApiCall, rows: Rows, resource: str, *, first: int, cursor_id: str) -> HttpResponse:
        total = len(rows.rows)
        page = Page(first, min(first + parse_batch_size(call.request), total), total)
        next_url = ""
        if not page.is_last:
            cursor_id = cursor_id or self._cursors.open(
                call.principal.session_id, rows, total, count_rows(rows.rows)
            )
            next_url = data_url(call.version, resource, f"{cursor_id}-{page.end}")
        body = render_page(rows, page, call.version, next_url)
        return self._json(call, 200, body, (POSITION_HEADER, str(rows.position)))

    async def limits(self, call: ApiCall) -> HttpResponse:
        """What may be used, and how much of it is left."""
        return self._json(call, 200, render_limits(self._usage.used(), call.version))

    async def schema_by_name(self, call: ApiCall) -> HttpResponse:
        """The newest schema of an event type."""
        (name,) = call.arguments
        objects = await self._gate.visible_objects(call.principal)
        visible = {change_event_name(entity.name).lower() for entity in objects}
        visible |= {event.name.lower() for event in await self._events(call.principal)}
        if name.lower() not in visible:
            raise ResourceUnknown("The requested resource does not exist")
        return await self._schema(call, lambda: self._gate.event_schema(name))

    async def schema_by_id(self, call: ApiCall) -> HttpResponse:
        """The schema with this id, which some event was once written by."""
        (schema_id,) = call.arguments
        return await self._schema(call, lambda: self._gate.schema_json(schema_id))

    async def _schema(self, call: ApiCall, load: Callable[[], Awaitable[str]]) -> HttpResponse:
        if call.version < event_schema.FIRST_VERSION:
            raise ResourceUnknown("The requested resource does not exist")
        payload_format = call.request.query.get("payloadFormat")
        if not event_schema.is_format_valid(payload_format, call.version):
            return render_refusal(
                call.request,
                400,
                "INVALID_PARAMETER",
                "payloadFormat takes EXPANDED or COMPACT, from API version 43.0 on",
            )
        with _object_in_path():
            schema_json = await load()
        return self._json(
            call, 200, event_schema.render_event_schema(schema_json, payload_format, call.version)
        )

    async def create_collection(self, call: ApiCall) -> HttpResponse:
        """Make several records in one transaction."""
        return await self._write_collection(call, is_update=False)

    async def update_collection(self, call: ApiCall) -> HttpResponse:
        """Set fields of several records in one transaction."""
        return await self._write_collection(call, is_update=True)

    async def _write_collection(self, call: ApiCall, *, is_update: bool) -> HttpResponse:
        writes, all_or_none = parse_writes(parse_json_object(call.request), is_update=is_update)
        results = await self._gate.write_together(call.context, writes, all_or_none=all_or_none)
        return self._json(call, 200, render_results(results, all_or_none=all_or_none))

    async def delete_collection(self, call: ApiCall) -> HttpResponse:
        """Put several records into the recycle bin in one transaction."""
        entity_of = {o.key_prefix: o.name for o in self._gate.catalog.objects}
        writes = parse_deletes(call.request.query.get("ids", ""), entity_of)
        all_or_none = call.request.query.get("allOrNone", "").lower() == "true"
        results = await self._gate.write_together(call.context, writes, all_or_none=all_or_none)
        return self._json(call, 200, render_results(results, all_or_none=all_or_none))

    def _json(self, call: ApiCall, status: int, value: object, *headers: tuple[str, str]) -> HttpResponse:
        return render_json(call.request, status, value, (*headers, self._usage.header(), NO_STORE))

    def _empty(self) -> HttpResponse:
        return HttpResponse(204, b"", "", (self._usage.header(), NO_STORE))


def _record_body(request: HttpRequest) -> dict[str, object]:
    values = without_attributes(parse_json_object(request))
    if any(name.lower() == "id" for name in values):
        raise FieldUnknown("The Id field should not be specified in the sobject data.", field="Id")
    return values


def _bad_record_path(call: ApiCall) -> HttpResponse:
    """Text where an id should be is taken for an external id field that does not exist."""
    shown = call.arguments[1][:80]
    message = f"Provided external ID field does not exist or is not accessible: {shown}"
    return render_refusal(call.request, 404, "NOT_FOUND", message)


ROUTES = (
    Route((), {"GET": DataApi.list_resources}),
    Route(("sobjects",), {"GET": DataApi.list_objects}),
    Route(("sobjects", "*"), {"GET": DataApi.describe_briefly, "POST": DataApi.create}),
    Route(("sobjects", "*", "describe"), {"GET": DataApi.describe}),
    Route(("sobjects", "*", "eventSchema"), {"GET": DataApi.schema_by_name}),
    Route(
        ("sobjects", "*", "*"),
        {"GET": DataApi.read_record, "PATCH": DataApi.update_record, "DELETE": DataApi.delete_record},
    ),
    Route(("query",), {"GET": DataApi.query}),
    Route(("queryAll",), {"GET": DataApi.query_all}),
    Route(("query", "*"), {"GET": DataApi.next_page}),
    Route(("queryAll", "*"), {"GET": DataApi.next_page}),
    Route(("search",), {"GET": DataApi.search}),
    Route(("limits",), {"GET": DataApi.limits}),
    Route(
        ("composite", "sobjects"),
        {
            "POST": DataApi.create_collection,
            "PATCH": DataApi.update_collection,
            "DELETE": DataApi.delete_collection,
        },
    ),
    Route(("event", "eventSchema", "*"), {"GET": DataApi.schema_by_id}),
)
