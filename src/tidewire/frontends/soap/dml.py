"""The calls that write records: create, update, upsert, delete, undelete and emptyRecycleBin.

A call is refused whole, with a fault, for what it says of types and fields: an object or a field that does not
exist for the caller. What is wrong with one record is that record's own result.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from tidewire.errors import (
    FieldUnknown,
    IdMalformed,
    PlatformError,
    RecordNotFound,
    RequestError,
)
from tidewire.frontends.soap.calls import SoapCall, check_count
from tidewire.frontends.soap.values import SObject, parse_sobject, typed_values
from tidewire.frontends.soap.wire import render_element
from tidewire.frontends.soap.wire_errors import render_row_error, rolled_back_error
from tidewire.gate.duplicate_upserts import reject_duplicate_keys
from tidewire.gate.editable_fields import unknown_column
from tidewire.gate.mixed_creates import Created, create_mixed
from tidewire.gate.publishing import Published, event_object
from tidewire.gate.requests import Upsert, Write
from tidewire.ids import try_normalise_id
from tidewire.records.references import try_lookup
from tidewire.schema.model import ObjectType

T = TypeVar("T")


async def create(call: SoapCall) -> str:
    """Make records, or publish platform events."""
    given = await _records(call)
    writes = [
        Write(r.entity, None, r.values if not r.record_id else {**r.values, "Id": r.record_id}) for r in given
    ]
    if not writes:
        return ""
    try:
        created, is_undone = await create_mixed(call.gate, call.context, writes, all_or_none=call.all_or_none)
    except RequestError as error:
        created, is_undone = [error] * len(writes), True
    return "".join(_render_created(each, is_undone=is_undone) for each in created)


def _render_created(created: Created, *, is_undone: bool) -> str:
    match created:
        case PlatformError():
            return _failure([render_row_error(created)])
        case Published(event_id, event_uuid, is_immediate) if is_immediate or not is_undone:
            # A success that carries the event's uuid where errors would stand.
            note = (
                f"<errors><message>{event_uuid}</message><statusCode>OPERATION_ENQUEUED</statusCode></errors>"
            )
            return f"<result>{note}{render_element('id', event_id)}<success>true</success></result>"
        case str() if not is_undone:
            return f"<result>{render_element('id', created)}<success>true</success></result>"
        case _:
            return _failure([rolled_back_error()])


async def update(call: SoapCall) -> str:
    """Set fields of records."""
    given = await _records(call)
    writes = [Write(record.entity, record.record_id, record.values) for record in given]
    return "".join(await _write(call, writes))


async def delete(call: SoapCall) -> str:
    """Put records into the recycle bin."""
    ids = call.request.texts("ids")
    check_count(ids)
    writes = []
    for record_id in ids:
        entity = call.gate.catalog.try_object_of_id(record_id)
        writes.append(Write(entity.name if entity else "", record_id, None))
    return "".join(await _write(call, writes))


async def _write(call: SoapCall, writes: Sequence[Write]) -> list[str]:
    if not writes:
        return []
    results = await _settle(
        len(writes),
        call.gate.write_together(call.context, writes, all_or_none=call.all_or_none),
    )
    for number, write in enumerate(writes):
        if write.record_id is not None and isinstance(results[number], PlatformError):
            results[number] = _bad_id(write) or results[number]
    return _render(results, lambda record_id: render_element("id", record_id), all_or_none=call.all_or_none)


def _bad_id(write: Write) -> PlatformError | None:
    """What is wrong with the id itself, which comes before anything else about the record."""
    if not write.record_id:
        return IdMalformed("Id not specified in an update call", value="")
    if try_normalise_id(write.record_id) is None:
        return IdMalformed(f"malformed id {write.record_id[:64]}", value=write.record_id[:64])
    return RecordNotFound("invalid cross reference id") if not write.entity else None


async def upsert(call: SoapCall) -> str:
    """Update records found by an external id, and make the others."""
    given = await _records(call)
    name = call.request.text("externalIDFieldName") or call.request.text("externalIdFieldName")
    upserts = []
    for record in given:
        values = dict(record.values)
        if name.lower() == "id":
            value: object = record.record_id or None
        else:
            keys = [key for key in values if key.lower() == name.lower()]
            value = next((values.pop(key) for key in keys), None)
        upserts.append(Upsert(record.entity, name, value, values))
    for entity in {record.entity for record in given}:
        obj, readable, _ = await call.gate.visible_fields(call.principal, entity, "upsert")
        field = obj.try_field(name)
        if field is None or field.name not in readable or field.name not in obj.keys:
            raise FieldUnknown(
                f"Field name provided, {name[:80]} is not an External ID or indexed field for {obj.name}",
                field=name[:80],
                entity=obj.name,
            )
    if not upserts:
        return ""
    upserts = reject_duplicate_keys(call.gate.catalog, upserts)
    results = await _settle(
        len(upserts), call.gate.upsert_together(call.context, upserts, all_or_none=call.all_or_none)
    )
    is_undone = call.all_or_none and any(isinstance(r, PlatformError) for r in results)
    out = []
    for result in results:
        if isinstance(result, PlatformError) or is_undone:
            error = result if isinstance(result, PlatformError) else None
            note = rolled_back_error() if error is None else render_row_error(error)
            out.append(_failure([note], before="<created>false</created>"))
        else:
            record_id, is_new = result
            created = render_element("created", is_new)
            out.append(f"<result>{created}{render_element('id', record_id)}<success>true</success></result>")
    return "".join(out)


async def undelete(call: SoapCall) -> str:
    """Bring records back from the recycle bin."""
    ids = call.request.texts("ids")
    check_count(ids)
    if not ids:
        return ""
    results = await _settle(len(ids), call.gate.undelete(call.context, ids, all_or_none=call.all_or_none))
    return "".join(
        _render(results, lambda record_id: render_element("id", record_id), all_or_none=call.all_or_none)
    )


async def empty_recycle_bin(call: SoapCall) -> str:
    """Remove records in the recycle bin for good."""
    ids = call.request.texts("ids")
    check_count(ids)
    if not ids:
        return ""
    results = await _settle(len(ids), call.gate.purge(call.context, ids))
    return "".join(_render(results, lambda record_id: render_element("id", record_id), all_or_none=False))


async def _settle(count: int, outcome: Awaitable[list[T | PlatformError]]) -> list[T | PlatformError]:
    """A transaction's results. One that was refused as a whole has stored nothing, which each record is told."""
    try:
        return await outcome
    except RequestError as error:
        return [error] * count


def _render(
    results: Sequence[T | PlatformError], render: Callable[[T], str], *, all_or_none: bool
) -> list[str]:
    is_undone = all_or_none and any(isinstance(result, PlatformError) for result in results)
    out = []
    for result in results:
        if isinstance(result, PlatformError):
            out.append(_failure([render_row_error(result)]))
        elif is_undone:
            out.append(_failure([rolled_back_error()]))
        else:
            out.append(f"<result>{render(result)}<success>true</success></result>")
    return out


def _failure(errors: Sequence[str], before: str = "") -> str:
    return f'<result>{before}{"".join(errors)}<id xsi:nil="true"/><success>false</success></result>'


async def _records(call: SoapCall) -> list[SObject]:
    """The sObjects of a call, with their values in the form that their fields take."""
    elements = list(call.request.all("sObjects"))
    check_count(elements)
    truncates = call.request.flag("AllowFieldTruncationHeader", "allowFieldTruncation", default=False)
    out = []
    for record in map(parse_sobject, elements):
        event = call.gate.catalog.try_any_event(record.entity)
        if event is None:
            out.append(await read_values(call, record, truncates=truncates))
        else:
            values = typed_values(event_object(event), record.values, truncates=truncates)
            out.append(SObject(event.name, record.record_id, values))
    return out


async def read_values(call: SoapCall, record: SObject, *, truncates: bool) -> SObject:
    """A record with its values typed. Raises ObjectUnknown, or FieldUnknown for a name that is no field."""
    obj, readable, _ = await call.gate.visible_fields(call.principal, record.entity)
    for name in record.values:
        if not _is_visible(obj, name, readable):
            raise unknown_column(name, obj)
    return SObject(obj.name, record.record_id, typed_values(obj, record.values, truncates=truncates))


def _is_visible(obj: ObjectType, name: str, readable: frozenset[str]) -> bool:
    field = obj.try_field(name) or try_lookup(obj, name)
    return field is not None and field.name in readable
