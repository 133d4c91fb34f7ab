"""Records and query results as JSON: attributes first, then the fields in the order of the query. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tidewire.events import Value
from tidewire.gate.query_pages import AnswerPage
from tidewire.gate.requests import Rows
from tidewire.names import data_url
from tidewire.records.explain import Plan
from tidewire.records.query import Cell, Children, Record, Related
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.values import render_compound, render_value
from tidewire.soql.bound import Selected, SelectedField

_DATETIME_SUFFIX = "+0000"  # REST writes UTC so; the streaming forms write Z


def render_record(
    entity: ObjectType,
    columns: Iterable[Field | Selected],
    row: Mapping[str, Cell],
    version: int,
    resource: str = "query",
) -> dict[str, object]:
    """Render one record, with its parents and children inside. Every column is present, even if null.

    `resource` is where clients fetch further children.
    """
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
            record[column.name] = _render_cell(row.get(column.name), version, resource)
    return record


def _render_field(entity: ObjectType, field: Field, row: Mapping[str, Cell]) -> object:
    if field.is_compound:
        parts = {part.name: _value(row.get(part.name)) for part in entity.components(field.name)}
        return render_compound(entity, field, parts, _DATETIME_SUFFIX)
    return render_value(field, _value(row.get(field.name)), _DATETIME_SUFFIX)


def _render_cell(cell: Cell, version: int, resource: str) -> object:
    match cell:
        case Related(entity, select, row):
            return render_record(entity, select, row, version, resource)
        case Children(entity, select, rows):
            answer = _render_head(cell.total, cell.locator, version, resource)
            answer["records"] = [render_record(entity, select, row, version, resource) for row in rows]
            return answer
        case _:
            return cell


def _value(cell: Cell) -> Value:
    return None if isinstance(cell, Related | Children) else cell


def _render_group(columns: Iterable[Field], row: Record) -> dict[str, object]:
    record: dict[str, object] = {"attributes": {"type": "AggregateResult"}}
    for column in columns:
        value = _value(row[column.name])
        # Null marks the columns that a subtotal adds up, even a checkbox, which is never null otherwise.
        record[column.name] = None if value is None else render_value(column, value, _DATETIME_SUFFIX)
    return record


def render_single(rows: Rows, version: int) -> dict[str, object]:
    """Render one record; its id is included even if only other fields were selected."""
    row = rows.rows[0]
    record = render_record(rows.entity, rows.columns, row, version)
    if "Id" not in record and "Id" in row:
        record["Id"] = row["Id"]
    return record


def _render_head(total: int, locator: str, version: int, resource: str) -> dict[str, object]:
    head: dict[str, object] = {"totalSize": total, "done": not locator}
    if locator:
        head["nextRecordsUrl"] = data_url(version, resource, locator)
    return head


def render_page(page: AnswerPage, version: int, resource: str) -> dict[str, object]:
    """Render one page of a query; the next page is under the same resource."""
    answer = _render_head(page.total, page.locator, version, resource)
    rows = page.rows
    if rows.is_aggregate:
        answer["records"] = [_render_group(rows.columns, row) for row in rows.rows]
    else:
        chosen = rows.select or rows.columns
        answer["records"] = [render_record(rows.entity, chosen, row, version, resource) for row in rows.rows]
    return answer


def render_plans(plans: Iterable[Plan], soql: str) -> dict[str, object]:
    """Render query plans, the cheapest first."""
    return {
        "plans": [
            {
                "cardinality": plan.cardinality,
                "fields": list(plan.fields),
                "leadingOperationType": "Index" if plan.is_indexed else "TableScan",
                "notes": [
                    {
                        "description": "Not considering filter for optimization because unindexed",
                        "fields": list(fields),
                        "tableEnumOrId": plan.entity,
                    }
                    for fields in plan.unindexed
                ],
                "relativeCost": plan.relative_cost,
                "sobjectCardinality": plan.entity_cardinality,
                "sobjectType": plan.entity,
            }
            for plan in plans
        ],
        "sourceQuery": soql,
    }


def render_created(record_id: str) -> dict[str, object]:
    """Render the answer to a create."""
    return {"id": record_id, "success": True, "errors": []}


def render_upserted(record_id: str, *, is_new: bool) -> dict[str, object]:
    """Render the answer to an upsert."""
    return render_created(record_id) | {"created": is_new}


def render_published(event_id: str, event_uuid: str) -> dict[str, object]:
    """Render the answer to a publish: a success whose `errors` carry the event's uuid."""
    entry = {"statusCode": "OPERATION_ENQUEUED", "message": event_uuid, "fields": list[str]()}
    return {"id": event_id, "success": True, "errors": [entry]}
