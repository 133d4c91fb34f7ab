"""Single records: by id, by external id, and along relationships."""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import unquote

from tidewire.errors import (
    ExternalIdAmbiguous,
    FieldUnknown,
    PlatformError,
    RecordNotFound,
    ResourceUnknown,
)
from tidewire.events import Value
from tidewire.frontends.rest.calls import Api, ApiCall, Route, object_in_path, render_answer, render_empty
from tidewire.frontends.rest.conditional_requests import (
    check_conditions,
    is_conditional,
    record_validators,
    try_answer_unchanged,
)
from tidewire.frontends.rest.describe import describe_briefly
from tidewire.frontends.rest.queries import answer_page
from tidewire.frontends.rest.record_json import (
    render_created,
    render_published,
    render_single,
    render_upserted,
)
from tidewire.frontends.rest.record_lists import updates_recent
from tidewire.frontends.rest.relationship_paths import ChildRecords, ParentRecord, child_query, follow
from tidewire.frontends.rest.wire import (
    POSITION_HEADER,
    method_not_allowed,
    parse_batch_size,
    without_attributes,
)
from tidewire.frontends.rest.xml_bodies import parse_body
from tidewire.gate.publishing import reject_event
from tidewire.gate.requests import Write
from tidewire.ids import try_normalise_id
from tidewire.names import data_url
from tidewire.records.submitted import ID_NAMES
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.values import parse_value
from tidewire.transport.http import HttpResponse

_FIRST_UPSERT_BODY = 46  # older versions answer an update by external id with an empty body
_MAX_MATCHES = 2_000


@dataclass(frozen=True, slots=True)
class _Key:
    """An external id in a path: the object, the field, and the values that it may stand for."""

    entity: ObjectType
    field: Field
    values: tuple[str, ...]


async def create(api: Api, call: ApiCall) -> HttpResponse:
    """Create a record, or publish an event."""
    name = call.arguments[0]
    values = _record_values(call)
    if event := api.gate.catalog.try_any_event(name):
        published = await api.gate.publisher.publish(call.context, event.name, values)
        return render_answer(api, call, 201, render_published(published.event_id, published.event_uuid))
    with object_in_path:
        entity = api.gate.catalog.object(name)
        record_id = await api.gate.create(call.context, entity.name, values)
    api.gate.recent_items.add_use(call.principal, entity.name, record_id)
    return render_answer(api, call, 201, render_created(record_id), _location(call, entity.name, record_id))


async def read_record(api: Api, call: ApiCall) -> HttpResponse:
    """Return one record, with all fields or those in `?fields=`."""
    name, id_text = call.arguments
    with object_in_path:
        return await _read(api, call, name, _parse_id(id_text))


async def update_record(api: Api, call: ApiCall) -> HttpResponse:
    """Update a record."""
    name, id_text = call.arguments
    if id_text.lower() == "id":  # an upsert by an empty id
        values = _record_values(call)
        with object_in_path:
            entity = api.gate.catalog.object(name)
            made_id = await api.gate.create(call.context, entity.name, values)
        return _render_upserted(api, call, entity, made_id, is_new=True)
    record_id = _parse_id(id_text)
    values = _record_values(call)
    with object_in_path:
        await _write(api, call, name, record_id, values)
    return render_empty(api)


async def create_by_empty_id(api: Api, call: ApiCall) -> HttpResponse:
    """Create a record by `sobjects/X/Id`, an upsert with an empty id."""
    if call.arguments[1].lower() != "id":
        raise method_not_allowed("POST", ("GET", "PATCH", "DELETE"))
    return await create(api, call)


async def delete_record(api: Api, call: ApiCall) -> HttpResponse:
    """Move a record to the recycle bin."""
    name, id_text = call.arguments
    with object_in_path:
        await _write(api, call, name, _parse_id(id_text), None)
    return render_empty(api)


async def read_by_key_or_path(api: Api, call: ApiCall) -> HttpResponse:
    """Return the record with an external id, or the records that a relationship leads to."""
    key = await _try_key(api, call, "retrieve")
    if key is None:
        return await read_related(api, call)
    found = await _find(api, call, key)
    if len(found) > 1:
        return _render_matches(api, call, key.entity, found)
    return await _read(api, call, key.entity.name, _only(found))


async def update_by_key_or_path(api: Api, call: ApiCall) -> HttpResponse:
    """Upsert by external id, or update the record that a lookup leads to."""
    key = await _try_key(api, call, "upsert")
    if key is None:
        parent = await _find_parent(api, call)
        await _write(api, call, parent.entity, parent.record_id, _record_values(call))
        return render_empty(api)
    values = _record_values(call)
    is_update_only = call.request.query.get("updateOnly", "").lower() == "true"
    found = [] if key.field.type is FieldType.ID else await _find(api, call, key)
    if len(found) > 1:
        return _render_matches(api, call, key.entity, found)
    if is_conditional(call.request) or is_update_only:
        if found or key.field.type is FieldType.ID:
            record_id = found[0] if found else key.values[0]
            await _write(api, call, key.entity.name, record_id, _without_key(values, key))
            return _render_upserted(api, call, key.entity, record_id, is_new=False)
        if is_update_only:
            raise RecordNotFound("The requested resource does not exist")
    return await _upsert(api, call, key, values, found)


async def delete_by_key_or_path(api: Api, call: ApiCall) -> HttpResponse:
    """Delete the record with an external id, or the one that a lookup leads to."""
    key = await _try_key(api, call, "delete")
    if key is None:
        parent = await _find_parent(api, call)
        await _write(api, call, parent.entity, parent.record_id, None)
        return render_empty(api)
    found = await _find(api, call, key)
    if len(found) > 1:
        return _render_matches(api, call, key.entity, found)
    await _write(api, call, key.entity.name, _only(found), None)
    return render_empty(api)


async def _upsert(
    api: Api, call: ApiCall, key: _Key, values: dict[str, object], found: list[str]
) -> HttpResponse:
    # Use the value that a record has, even if that is the one with blanks for pluses; a new record gets the literal.
    value = key.values[0]
    if found and len(key.values) > 1 and not await _find(api, call, _Key(key.entity, key.field, (value,))):
        value = key.values[1]
    try:
        record_id, is_new = await api.gate.upsert(
            call.context, key.entity.name, key.field.name, value, values
        )
    except ExternalIdAmbiguous as error:
        # A second match may have been created since. If the caller cannot see both, report the error instead.
        matches = await _find(api, call, key)
        if "record_ids" not in error.details or len(matches) < 2:
            raise
        return _render_matches(api, call, key.entity, matches)
    return _render_upserted(api, call, key.entity, record_id, is_new=is_new)


def _render_upserted(
    api: Api, call: ApiCall, entity: ObjectType, record_id: str, *, is_new: bool
) -> HttpResponse:
    api.gate.recent_items.add_use(call.principal, entity.name, record_id)
    if not is_new and call.version < _FIRST_UPSERT_BODY:
        return render_empty(api)
    body = (
        render_upserted(record_id, is_new=is_new)
        if call.version >= _FIRST_UPSERT_BODY
        else render_created(record_id)
    )
    if not is_new:
        return render_answer(api, call, 200, body)
    return render_answer(api, call, 201, body, _location(call, entity.name, record_id))


async def _try_key(api: Api, call: ApiCall, operation: str) -> _Key | None:
    """Return the external id that a path names, or None if it follows relationships."""
    name, field_name, value = call.arguments
    with object_in_path:
        entity, readable, _ = await api.gate.visible_fields(call.principal, name, operation)
    field = entity.try_field(field_name)
    if field is None or field.name not in readable:
        if try_normalise_id(field_name) is not None:
            return None
        raise _key_unknown(field_name)
    if field.name not in entity.keys or not field.column:
        raise _key_unknown(field_name)
    raw = call.request.raw_path.rstrip("/").rpartition("/")[2]
    # Some clients encode a blank as a plus, others send a plus unencoded: the literal value is tried first.
    decoded = unquote(raw.replace("+", "%20"))
    return _Key(entity, field, (value,) if decoded == value or "+" not in raw else (value, decoded))


def _parse_id(text: str) -> str:
    record_id = try_normalise_id(text)
    if record_id is None:
        raise _key_unknown(text)
    return record_id


def _key_unknown(name: str) -> ResourceUnknown:
    return ResourceUnknown(
        f"Provided external ID field does not exist or is not accessible: {name[:80]}", external_id=name[:80]
    )


async def _find(api: Api, call: ApiCall, key: _Key) -> list[str]:
    """Return the ids of the records with this external id that the caller may see."""
    for text in key.values:
        try:
            value = parse_value(key.field, text)
        except PlatformError:
            continue  # no record has a value that the field cannot hold
        if value is None:
            continue
        # Names come from the catalog; the value has the field's type, and text is quoted.
        rows = await api.gate.query(
            call.principal,
            f"SELECT Id FROM {key.entity.name} WHERE {key.field.name} = {_literal(value)}"  # noqa: S608
            f" LIMIT {_MAX_MATCHES}",
        )
        if rows.rows:
            return [str(row["Id"]) for row in rows.rows]
    return []


def _literal(value: Value) -> str:
    if not isinstance(value, str):
        return repr(value)
    escaped = value.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n").replace("\r", "\\r")
    return f"'{escaped}'"


def _only(found: list[str]) -> str:
    if not found:
        raise RecordNotFound("The requested resource does not exist")
    return found[0]


def _render_matches(api: Api, call: ApiCall, entity: ObjectType, found: list[str]) -> HttpResponse:
    urls = [data_url(call.version, "sobjects", entity.name, record_id) for record_id in found]
    return render_answer(api, call, 300, urls)


async def _read(
    api: Api, call: ApiCall, name: str, record_id: str, fields: list[str] | None = None
) -> HttpResponse:
    rows = await api.gate.read(call.principal, name, record_id, fields or _chosen_fields(call))
    _, readable, _ = await api.gate.visible_fields(call.principal, rows.entity.name)
    row: dict[str, Value] = {
        n: v for n, v in rows.rows[0].items() if isinstance(v, (str, int, float)) or v is None
    }
    validators = record_validators(rows.entity, row, readable)
    if updates_recent(call.request):
        api.gate.recent_items.add_view(call.principal, rows.entity.name, record_id)
    unchanged = try_answer_unchanged(call.request, validators)
    if unchanged is not None:
        return unchanged
    position = (POSITION_HEADER, str(rows.position))
    return render_answer(api, call, 200, render_single(rows, call.version), position, *validators.headers())


async def _write(
    api: Api, call: ApiCall, name: str, record_id: str, values: dict[str, object] | None
) -> None:
    """Update a record, or delete it if `values` is None, provided that the request's conditions hold."""
    operation = "delete" if values is None else "update"
    reject_event(api.gate.catalog, await api.gate.grants(call.principal), name, operation)
    entity, readable, _ = await api.gate.visible_fields(call.principal, name)

    def check(row: dict[str, Value]) -> None:
        check_conditions(call.request, record_validators(entity, row, readable))

    condition = check if is_conditional(call.request) else None
    write = Write(entity.name, record_id, values, check=condition)
    (result,) = await api.gate.write_together(call.context, [write], all_or_none=True)
    if isinstance(result, PlatformError):
        raise result
    if values is not None:
        api.gate.recent_items.add_use(call.principal, entity.name, result)


async def read_related(api: Api, call: ApiCall) -> HttpResponse:
    """Return what a chain of relationships leads to."""
    name, id_text, *path = call.arguments
    fields = _chosen_fields(call)
    try:
        found = await _follow(api, call, name, id_text, path)
    except ResourceUnknown:
        if len(path) < 2:
            raise
        # The last step may be a field of the record that the others lead to.
        found = await _follow(api, call, name, id_text, path[:-1])
        fields = [await _field_at_end(api, call, found, path[-1])]
    if isinstance(found, ParentRecord):
        with object_in_path:
            return await _read(api, call, found.entity, found.record_id, fields)
    soql = await child_query(api.gate, call.principal, found, fields)
    size = parse_batch_size(call.request)
    page = await api.pages.open(call.principal, soql, size, version=call.version)
    return answer_page(api, call, page, "query")


async def _field_at_end(api: Api, call: ApiCall, found: ParentRecord | ChildRecords, name: str) -> str:
    entity = found.entity if isinstance(found, ParentRecord) else found.entity.name
    with object_in_path:
        obj, readable, _ = await api.gate.visible_fields(call.principal, entity)
    field = obj.try_field(name)
    if field is None or field.name not in readable:
        raise ResourceUnknown("The requested resource does not exist")
    return field.name


async def _find_parent(api: Api, call: ApiCall) -> ParentRecord:
    name, id_text, *path = call.arguments
    found = await _follow(api, call, name, id_text, path)
    if not isinstance(found, ParentRecord):
        raise ResourceUnknown("The requested resource does not exist")
    return found


async def _follow(
    api: Api, call: ApiCall, name: str, id_text: str, path: list[str]
) -> ParentRecord | ChildRecords:
    """Follow a chain of relationships; only the last one may lead to children."""
    at = ParentRecord(name, _parse_id(id_text))
    with object_in_path:
        for relationship in path[:-1]:
            found = await follow(api.gate, call.principal, at.entity, at.record_id, relationship)
            if not isinstance(found, ParentRecord):
                raise ResourceUnknown("The requested resource does not exist")
            at = found
        return await follow(api.gate, call.principal, at.entity, at.record_id, path[-1])


def _record_values(call: ApiCall) -> dict[str, object]:
    values = without_attributes(parse_body(call.request))
    if not ID_NAMES.isdisjoint(values):
        raise FieldUnknown("The Id field should not be specified in the sobject data.", field="Id")
    return values


def _without_key(values: dict[str, object], key: _Key) -> dict[str, object]:
    if any(name.lower() == key.field.name.lower() for name in values):
        raise FieldUnknown(
            f"The {key.field.name} field should not be specified in the sobject data.", field=key.field.name
        )
    return values


def _chosen_fields(call: ApiCall) -> list[str] | None:
    """Return the names in `?fields=`, or None without any."""
    names = [name.strip() for name in call.request.query.get("fields", "").split(",")]
    return [name for name in names if name] or None


def _location(call: ApiCall, entity: str, record_id: str) -> tuple[str, str]:
    return ("Location", data_url(call.version, "sobjects", entity, record_id))


ROUTES: tuple[Route[Api], ...] = (
    Route(("sobjects", "*"), {"GET": describe_briefly, "POST": create}),
    Route(
        ("sobjects", "*", "*"),
        {"GET": read_record, "PATCH": update_record, "DELETE": delete_record, "POST": create_by_empty_id},
    ),
    Route(
        ("sobjects", "*", "*", "*"),
        {"GET": read_by_key_or_path, "PATCH": update_by_key_or_path, "DELETE": delete_by_key_or_path},
    ),
    Route(("sobjects", "*", "*", "*", "*"), {"GET": read_related}, xml_root="QueryResult"),
    Route(("sobjects", "*", "*", "*", "*", "*"), {"GET": read_related}, xml_root="QueryResult"),
)
