"""Single records: by id, by external id, and along their relationships."""

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
from tidewire.frontends.rest import relationship_paths as related
from tidewire.frontends.rest.calls import Api, ApiCall, Route, object_in_path, render_answer, render_empty
from tidewire.frontends.rest.conditional_requests import (
    check_conditions,
    is_conditional,
    record_validators,
    try_answer_unchanged,
)
from tidewire.frontends.rest.describe import describe_briefly
from tidewire.frontends.rest.queries import answer_page
from tidewire.frontends.rest.recent import wants_noting
from tidewire.frontends.rest.record_json import (
    render_created,
    render_published,
    render_single,
    render_upserted,
)
from tidewire.frontends.rest.wire import (
    POSITION_HEADER,
    method_not_allowed,
    parse_batch_size,
    without_attributes,
)
from tidewire.frontends.rest.xml_bodies import parse_body
from tidewire.gate.publishing import refuse_event
from tidewire.gate.requests import Write
from tidewire.ids import try_normalise_id
from tidewire.names import data_url
from tidewire.records.given import ID_NAMES
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.values import parse_value
from tidewire.transport.http import HttpResponse

_FIRST_UPSERT_BODY = 46  # older versions answer an update by external id with nothing
_MAX_CHOICES = 2_000


@dataclass(frozen=True, slots=True)
class _Key:
    """An external id in a path: the object, the field, and the value as it may have been meant."""

    entity: ObjectType
    field: Field
    values: tuple[str, ...]


async def create(api: Api, call: ApiCall) -> HttpResponse:
    """Make a record, or publish an event."""
    name = call.arguments[0]
    values = _record_values(call)
    if event := api.gate.catalog.try_any_event(name):
        published = await api.gate.publisher.publish(call.context, event.name, values)
        return render_answer(api, call, 201, render_published(published.event_id, published.event_uuid))
    with object_in_path():
        entity = api.gate.catalog.object(name)
        record_id = await api.gate.create(call.context, entity.name, values)
    api.gate.recent_items.add_use(call.principal, entity.name, record_id)
    return render_answer(api, call, 201, render_created(record_id), _location(call, entity.name, record_id))


async def read_record(api: Api, call: ApiCall) -> HttpResponse:
    """One record, whole or only the fields named in `?fields=`."""
    name, id_text = call.arguments
    record_id = try_normalise_id(id_text)
    if record_id is None:
        raise _no_such_key(id_text)
    with object_in_path():
        return await _read(api, call, name, record_id)


async def update_record(api: Api, call: ApiCall) -> HttpResponse:
    """Set fields of a record."""
    name, id_text = call.arguments
    if id_text.lower() == "id":  # an upsert by an id that is empty
        values = _record_values(call)
        with object_in_path():
            entity = api.gate.catalog.object(name)
            made_id = await api.gate.create(call.context, entity.name, values)
        return _render_upserted(api, call, entity, made_id, is_new=True)
    record_id = try_normalise_id(id_text)
    if record_id is None:
        raise _no_such_key(id_text)
    values = _record_values(call)
    with object_in_path():
        await _write(api, call, name, record_id, values)
    return render_empty(api)


async def create_by_empty_id(api: Api, call: ApiCall) -> HttpResponse:
    """Make a record by `sobjects/X/Id`, which is an upsert without an id."""
    if call.arguments[1].lower() != "id":
        raise method_not_allowed("POST", ("GET", "PATCH", "DELETE"))
    return await create(api, call)


async def delete_record(api: Api, call: ApiCall) -> HttpResponse:
    """Move a record to the recycle bin."""
    name, id_text = call.arguments
    record_id = try_normalise_id(id_text)
    if record_id is None:
        raise _no_such_key(id_text)
    with object_in_path():
        await _write(api, call, name, record_id, None)
    return render_empty(api)


async def read_further(api: Api, call: ApiCall) -> HttpResponse:
    """The record with an external id, or what a relationship of a record leads to."""
    key = await _try_key(api, call, "retrieve")
    if key is None:
        return await _read_related(api, call)
    found = await _find(api, call, key)
    if len(found) > 1:
        return _render_choices(api, call, key.entity, found)
    return await _read(api, call, key.entity.name, _only(found))


async def update_further(api: Api, call: ApiCall) -> HttpResponse:
    """Upsert the record with an external id, or update the record that a lookup names."""
    key = await _try_key(api, call, "upsert")
    if key is None:
        parent = await _find_parent(api, call)
        await _write(api, call, parent.entity, parent.record_id, _record_values(call))
        return render_empty(api)
    values = _record_values(call)
    is_update_only = call.request.query.get("updateOnly", "").lower() == "true"
    found = [] if key.field.type is FieldType.ID else await _find(api, call, key)
    if len(found) > 1:
        return _render_choices(api, call, key.entity, found)
    if is_conditional(call.request) or is_update_only:
        if found or key.field.type is FieldType.ID:
            record_id = found[0] if found else key.values[0]
            await _write(api, call, key.entity.name, record_id, _without_key(values, key))
            return _render_upserted(api, call, key.entity, record_id, is_new=False)
        if is_update_only:
            raise RecordNotFound("The requested resource does not exist")
    return await _upsert(api, call, key, values, found)


async def delete_further(api: Api, call: ApiCall) -> HttpResponse:
    """Delete the record with an external id, or the one that a lookup names."""
    key = await _try_key(api, call, "delete")
    if key is None:
        parent = await _find_parent(api, call)
        await _write(api, call, parent.entity, parent.record_id, None)
        return render_empty(api)
    found = await _find(api, call, key)
    if len(found) > 1:
        return _render_choices(api, call, key.entity, found)
    await _write(api, call, key.entity.name, _only(found), None)
    return render_empty(api)


async def _upsert(
    api: Api, call: ApiCall, key: _Key, values: dict[str, object], found: list[str]
) -> HttpResponse:
    # The value that some record holds, be it the one with blanks for pluses; a new record gets the literal.
    value = key.values[0]
    if found and len(key.values) > 1 and not await _find(api, call, _Key(key.entity, key.field, (value,))):
        value = key.values[1]
    try:
        record_id, is_new = await api.gate.upsert(
            call.context, key.entity.name, key.field.name, value, values
        )
    except ExternalIdAmbiguous as error:
        # Somebody may have made another one since; without any that the caller sees, only the error is left.
        choices = await _find(api, call, key)
        if "record_ids" not in error.details or len(choices) < 2:
            raise
        return _render_choices(api, call, key.entity, choices)
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
    """The external id that the path names, or None if the path goes along relationships."""
    name, field_name, value = call.arguments
    with object_in_path():
        entity, readable, _ = await api.gate.visible_fields(call.principal, name, operation)
    field = entity.try_field(field_name)
    if field is None or field.name not in readable:
        if try_normalise_id(field_name) is not None:
            return None
        raise _no_such_key(field_name)
    if field.name not in entity.keys or not field.column:
        raise _no_such_key(field_name)
    raw = call.request.raw_path.rstrip("/").rpartition("/")[2]
    # Some clients write a blank as a plus, others send a plus as it is: the literal value is tried first.
    meant = unquote(raw.replace("+", "%20"))
    return _Key(entity, field, (value,) if meant == value or "+" not in raw else (value, meant))


def _no_such_key(name: str) -> ResourceUnknown:
    return ResourceUnknown(
        f"Provided external ID field does not exist or is not accessible: {name[:80]}", external_id=name[:80]
    )


async def _find(api: Api, call: ApiCall, key: _Key) -> list[str]:
    """The ids of the records with this external id that the caller sees."""
    for text in key.values:
        try:
            value = parse_value(key.field, text)
        except PlatformError:
            continue  # a value that the field cannot hold is no record's
        if value is None:
            continue
        # Names are the catalog's; the value is of the field's type, and quoted where it is text.
        rows = await api.gate.query(
            call.principal,
            f"SELECT Id FROM {key.entity.name} WHERE {key.field.name} = {_literal(value)}"  # noqa: S608
            f" LIMIT {_MAX_CHOICES}",
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


def _render_choices(api: Api, call: ApiCall, entity: ObjectType, found: list[str]) -> HttpResponse:
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
    if wants_noting(call.request):
        api.gate.recent_items.add_view(call.principal, rows.entity.name, record_id)
    unchanged = try_answer_unchanged(call.request, validators)
    if unchanged is not None:
        return unchanged
    position = (POSITION_HEADER, str(rows.position))
    return render_answer(api, call, 200, render_single(rows, call.version), position, *validators.headers())


async def _write(
    api: Api, call: ApiCall, name: str, record_id: str, values: dict[str, object] | None
) -> None:
    """Update a record, or delete it without values, if it is in the state that the request asks for."""
    operation = "delete" if values is None else "update"
    refuse_event(api.gate.catalog, await api.gate.grants(call.principal), name, operation)
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


async def _read_related(api: Api, call: ApiCall) -> HttpResponse:
    name, id_text, *path = call.arguments
    fields = _chosen_fields(call)
    try:
        found = await _follow(api, call, name, id_text, path)
    except ResourceUnknown:
        if len(path) < 2:
            raise
        # The last step may name a field of what the others lead to.
        found = await _follow(api, call, name, id_text, path[:-1])
        fields = [await _field_behind(api, call, found, path[-1])]
    if isinstance(found, related.ParentRecord):
        with object_in_path():
            return await _read(api, call, found.entity, found.record_id, fields)
    soql = await related.child_query(api.gate, call.principal, found, fields)
    size = parse_batch_size(call.request)
    page = await api.pages.open(call.principal, soql, size, version=call.version)
    return answer_page(api, call, page, "query")


async def _field_behind(
    api: Api, call: ApiCall, found: related.ParentRecord | related.ChildRecords, name: str
) -> str:
    entity = found.entity if isinstance(found, related.ParentRecord) else found.entity.name
    with object_in_path():
        obj, readable, _ = await api.gate.visible_fields(call.principal, entity)
    field = obj.try_field(name)
    if field is None or field.name not in readable:
        raise ResourceUnknown("The requested resource does not exist")
    return field.name


async def _find_parent(api: Api, call: ApiCall) -> related.ParentRecord:
    name, id_text, *path = call.arguments
    found = await _follow(api, call, name, id_text, path)
    if not isinstance(found, related.ParentRecord):
        raise ResourceUnknown("The requested resource does not exist")
    return found


async def _follow(
    api: Api, call: ApiCall, name: str, id_text: str, path: list[str]
) -> related.ParentRecord | related.ChildRecords:
    """What a chain of relationships leads to; only the last one may lead to children."""
    record_id = try_normalise_id(id_text)
    if record_id is None:
        raise _no_such_key(id_text)
    at = related.ParentRecord(name, record_id)
    with object_in_path():
        for relationship in path[:-1]:
            found = await related.find(api.gate, call.principal, at.entity, at.record_id, relationship)
            if not isinstance(found, related.ParentRecord):
                raise ResourceUnknown("The requested resource does not exist")
            at = found
        return await related.find(api.gate, call.principal, at.entity, at.record_id, path[-1])


async def read_chain(api: Api, call: ApiCall) -> HttpResponse:
    """What several relationships in a row lead to."""
    return await _read_related(api, call)


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
    """The names in `?fields=`, or None if there are none."""
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
        {"GET": read_further, "PATCH": update_further, "DELETE": delete_further},
    ),
    Route(("sobjects", "*", "*", "*", "*"), {"GET": read_chain}, xml_root="QueryResult"),
    Route(("sobjects", "*", "*", "*", "*", "*"), {"GET": read_chain}, xml_root="QueryResult"),
)
