"""Calls that write records: create, update, upsert, delete, undelete and emptyRecycleBin.

An object or field that does not exist for the caller fails the whole call with a fault. Any other error is the result
of its record.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence
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
    """Create records, or publish platform events."""
    given = await _parse_records(call)
    writes = [
        Write(r.entity, None, r.values if not r.record_id else {**r.values, "Id": r.record_id}) for r in given
    ]
    if not writes:
        return ""
    try:
        created, is_undone = await create_mixed(call.gate, call.context, writes, all_or_none=call.all_or_none)
    except RequestError as error:
        created, is_undone = [error] * len(writes), True
    return "".join(_render_result(each, is_undone=is_undone) for each in created)


def _render_result(result: Created, *, is_undone: bool, created: str = "") -> str:
    match result:
        case PlatformError():
            return _failure(render_row_error(result), created)
        case Published(event_id, event_uuid, is_immediate) if is_immediate or not is_undone:
            # A success whose errors element carries the event's uuid.
            note = (
                f"<errors><message>{event_uuid}</message><statusCode>OPERATION_ENQUEUED</statusCode></errors>"
            )
            return f"<result>{note}{render_element('id', event_id)}<success>true</success></result>"
        case str() if not is_undone:
            return f"<result>{created}{render_element('id', result)}<success>true</success></result>"
        case _:
            return _failure(rolled_back_error(), created)


async def update(call: SoapCall) -> str:
    """Update records."""
    given = await _parse_records(call)
    writes = [Write(record.entity, record.record_id, record.values) for record in given]
    return await _write(call, writes)


async def delete(call: SoapCall) -> str:
    """Move records to the recycle bin."""
    ids = call.request.texts("ids")
    check_count(ids)
    writes = []
    for record_id in ids:
        entity = call.gate.catalog.try_object_of_id(record_id)
        writes.append(Write(entity.name if entity else "", record_id, None))
    return await _write(call, writes)


async def _write(call: SoapCall, writes: Sequence[Write]) -> str:
    if not writes:
        return ""
    results = await _results_of(
        len(writes),
        call.gate.write_together(call.context, writes, all_or_none=call.all_or_none),
    )
    for number, write in enumerate(writes):
        if write.record_id is not None and isinstance(results[number], PlatformError):
            results[number] = _bad_id(write) or results[number]
    return _render_ids(results, all_or_none=call.all_or_none)


def _bad_id(write: Write) -> PlatformError | None:
    """Return the error of a bad id, which takes precedence over other errors of the record."""
    if not write.record_id:
        return IdMalformed("Id not specified in an update call", value="")
    if try_normalise_id(write.record_id) is None:
        return IdMalformed(f"malformed id {write.record_id[:64]}", value=write.record_id[:64])
    return RecordNotFound("invalid cross reference id") if not write.entity else None


async def upsert(call: SoapCall) -> str:
    """Update or create records by external id."""
    given = await _parse_records(call)
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
    results = await _results_of(
        len(upserts), call.gate.upsert_together(call.context, upserts, all_or_none=call.all_or_none)
    )
    is_undone = call.all_or_none and any(isinstance(r, PlatformError) for r in results)
    out = []
    for result in results:
        outcome, is_new = (result, False) if isinstance(result, PlatformError) else result
        created = render_element("created", is_new and not is_undone)
        out.append(_render_result(outcome, is_undone=is_undone, created=created))
    return "".join(out)


async def undelete(call: SoapCall) -> str:
    """Restore records from the recycle bin."""
    ids = call.request.texts("ids")
    check_count(ids)
    if not ids:
        return ""
    results = await _results_of(len(ids), call.gate.undelete(call.context, ids, all_or_none=call.all_or_none))
    return _render_ids(results, all_or_none=call.all_or_none)


async def empty_recycle_bin(call: SoapCall) -> str:
    """Purge records from the recycle bin."""
    ids = call.request.texts("ids")
    check_count(ids)
    if not ids:
        return ""
    results = await _results_of(len(ids), call.gate.purge(call.context, ids))
    return _render_ids(results, all_or_none=False)


async def _results_of(count: int, outcome: Awaitable[list[T | PlatformError]]) -> list[T | PlatformError]:
    """Return a transaction's results; if it failed as a whole, that error for each record."""
    try:
        return await outcome
    except RequestError as error:
        return [error] * count


def _render_ids(results: Sequence[str | PlatformError], *, all_or_none: bool) -> str:
    """Render the id or the error of each record."""
    is_undone = all_or_none and any(isinstance(result, PlatformError) for result in results)
    return "".join(_render_result(result, is_undone=is_undone) for result in results)


def _failure(error: str, created: str) -> str:
    return f'<result>{created}{error}<id xsi:nil="true"/><success>false</success></result>'


async def _parse_records(call: SoapCall) -> list[SObject]:
    """Return the sObjects of a call, with values converted for their fields."""
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
    """Convert a record's values for their fields. Raises ObjectUnknown or FieldUnknown."""
    obj, readable, _ = await call.gate.visible_fields(call.principal, record.entity)
    for name in record.values:
        if not _is_visible(obj, name, readable):
            raise unknown_column(name, obj)
    return SObject(obj.name, record.record_id, typed_values(obj, record.values, truncates=truncates))


def _is_visible(obj: ObjectType, name: str, readable: frozenset[str]) -> bool:
    field = obj.try_field(name) or try_lookup(obj, name)
    return field is not None and field.name in readable
