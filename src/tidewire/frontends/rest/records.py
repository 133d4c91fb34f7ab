"""Records and query results as JSON: attributes first, then the fields in the order asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidewire.access.gate import Rows
from tidewire.events import Value
from tidewire.frontends.rest.wire import Page
from tidewire.names import data_url
from tidewire.records.query import Cell, Children, Record, Related
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.values import render_compound, render_value
from tidewire.soql.bound import Selected, SelectedField

_DATETIME_SUFFIX = "+0000"  # REST writes UTC so; the streaming forms write Z


def render_record(
    entity: ObjectType, columns: Iterable[Field | Selected], row: Mapping[str, Cell], version: int
) -> dict[str, object]:
    """One record, with its parents and children inside. Every column is present, null or not."""
    attributes = {"type": entity.name}
    if record_id := row.get("Id"):
        attributes["url"] = data_url(version, "sobjects", entity.name, str(record_id))
    record: dict[str, object] = {"attributes": attributes}
    for column in columns:
        if isinstance(column, SelectedField) and not column.function:
            record[column.name] = _render_field(entity, column.field, row)
        elif isinstance(column, Field):
            record[column.name] = _render_field(entity, column, row)
        else:
            record[column.name] = _render_cell(row.get(column.name), version)
    return record


def _render_field(entity: ObjectType, field: Field, row: Mapping[str, Cell]) -> object:
    if field.is_compound:
        parts = {part.name: _value(row.get(part.name)) for part in entity.components(field.name)}
        return render_compound(entity, field, parts, _DATETIME_SUFFIX)
    return render_value(field, _value(row.get(field.name)), _DATETIME_SUFFIX)


def _render_cell(cell: Cell, version: int) -> object:
    match cell:
        case Related(entity, select, row):
            return render_record(entity, select, row, version)
        case Children(entity, select, rows):
            records = [render_record(entity, select, row, version) for row in rows]
            return {"totalSize": len(records), "done": True, "records": records}
        case _:
            return cell


def _value(cell: Cell) -> Value:
    return None if isinstance(cell, Related | Children) else cell


def _render_group(columns: Iterable[Field], row: Record) -> dict[str, object]:
    record: dict[str, object] = {"attributes": {"type": "AggregateResult"}}
    for column in columns:
        value = _value(row[column.name])
        # A subtotal has null in place of what it adds up, be it a checkbox.
        record[column.name] = None if value is None else render_value(column, value, _DATETIME_SUFFIX)
    return record


def render_single(rows: Rows, version: int) -> dict[str, object]:
    """The answer to reading one record; its id is there even if other fields were asked for."""
    row = rows.rows[0]
    record = render_record(rows.entity, rows.columns, row, version)
    if "Id" not in record and "Id" in row:
        record["Id"] = row["Id"]
    return record


def render_page(rows: Rows, page: Page, version: int, next_url: str) -> dict[str, object]:
    """One page of a query's answer; `next_url` is empty on the last one."""
    answer: dict[str, object] = {"totalSize": page.total, "done": not next_url}
    if next_url:
        answer["nextRecordsUrl"] = next_url
    shown = rows.rows[page.first : page.end]
    if rows.is_aggregate:
        answer["records"] = [_render_group(rows.columns, row) for row in shown]
    else:
        chosen = rows.select or rows.columns
        answer["records"] = [render_record(rows.entity, chosen, row, version) for row in shown]
    return answer


def render_created(record_id: str) -> dict[str, object]:
    """The answer to a create."""
    return {"id": record_id, "success": True, "errors": []}


def render_published(event_id: str, event_uuid: str) -> dict[str, object]:
    """The answer to publishing an event: a success that carries the event's uuid where errors would stand."""
    entry = {"statusCode": "OPERATION_ENQUEUED", "message": event_uuid, "fields": list[str]()}
    return {"id": event_id, "success": True, "errors": [entry]}
