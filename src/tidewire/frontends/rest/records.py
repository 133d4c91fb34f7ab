"""Records and query results as JSON: attributes first, then the fields in the order asked for. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidewire.access.gate import Rows
from tidewire.events import Value
from tidewire.frontends.rest.wire import Page, data_url
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.values import render_compound, render_value

_DATETIME_SUFFIX = "+0000"  # REST writes UTC so; the streaming forms write Z


def render_record(
    entity: ObjectType, columns: Iterable[Field], row: Mapping[str, Value], version: int
) -> dict[str, object]:
    """One record. Every column is present, null or not."""
    attributes = {"type": entity.name}
    if record_id := row.get("Id"):
        attributes["url"] = data_url(version, "sobjects", entity.name, str(record_id))
    record: dict[str, object] = {"attributes": attributes}
    for column in columns:
        if column.is_compound:
            record[column.name] = render_compound(entity, column, row, _DATETIME_SUFFIX)
        else:
            record[column.name] = render_value(column, row.get(column.name), _DATETIME_SUFFIX)
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
    answer["records"] = [
        render_record(rows.entity, rows.columns, row, version) for row in rows.rows[page.first : page.end]
    ]
    return answer


def render_created(record_id: str) -> dict[str, object]:
    """The answer to a create."""
    return {"id": record_id, "success": True, "errors": []}


def render_published(event_id: str, event_uuid: str) -> dict[str, object]:
    """The answer to publishing an event: a success that carries the event's uuid where errors would stand."""
    entry = {"statusCode": "OPERATION_ENQUEUED", "message": event_uuid, "fields": list[str]()}
    return {"id": event_id, "success": True, "errors": [entry]}
