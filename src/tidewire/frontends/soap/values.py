"""Records in XML: parse the sObjects that callers send, and render the records of answers. Pure.

An element without text, or marked nil, leaves its field unchanged; only `fieldsToNull` empties a field. In answers a
record's type and id come first, whatever was selected, and the selected fields follow in order, including the id
again: so does the platform. Records of the enterprise API have the order of their schema instead, on which generated
clients depend.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from xml.etree.ElementTree import Element

from tidewire.errors import BodyMalformed
from tidewire.events import Value
from tidewire.frontends.soap.wire import (
    Dialect,
    render_element,
    text_of,
    type_attribute,
)
from tidewire.frontends.soap.wsdl.shapes import ADDRESS, TYPES, element_names
from tidewire.gate.query_pages import AnswerPage
from tidewire.gate.requests import Rows
from tidewire.records.query import Cell, Children, Record, Related
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.values import render_compound, render_value
from tidewire.soql.bound import Selected, SelectedField
from tidewire.transport.xml_trees import is_nil, local_name

_DATETIME_SUFFIX = "Z"
_ZONED_DATE = re.compile(r"([0-9-]{10})(?:Z|[+-][0-9]{2}:[0-9]{2})")
_MOMENT = re.compile(r"[0-9-]{10}T[0-9:.]+(?:Z|[+-][0-9]{2}:[0-9]{2})")
_LOCAL_DATETIME = re.compile(r"[0-9-]{10}T[0-9:.]+")
_LITERAL_FLAGS = {"1": "true", "0": "false"}
_LOCATION_PARTS = element_names(TYPES["location"])
# The schema of an address extends that of a location, whose two parts therefore come first.
_ADDRESS_PARTS = (*_LOCATION_PARTS, *element_names(ADDRESS))


@dataclass(frozen=True, slots=True)
class SObject:
    """A record of a call: raw texts by field name, None for a field to be emptied.

    The value under a relationship's name is the external id of the related record.
    """

    entity: str
    record_id: str
    values: dict[str, object]


def parse_sobject(element: Element) -> SObject:
    """Parse an sObject. Raises BodyMalformed for one without a type."""
    entity, record_id = type_attribute(element), ""
    values: dict[str, object] = {}
    nulled: list[str] = []
    for child in element:
        name = local_name(child)
        if name == "type" and len(child) == 0:
            entity = text_of(child)
        elif name == "fieldsToNull":
            nulled.append(text_of(child))
        elif is_nil(child):
            continue
        elif name.lower() == "id":
            record_id = text_of(child) or record_id
        elif len(child):
            values[name] = _parse_reference(child)
        elif (child.text or "").strip():
            values[name] = child.text
    if not entity or entity == "sObject":
        raise BodyMalformed("Each sObject needs a type")
    return SObject(entity, record_id, values | dict.fromkeys(name for name in nulled if name))


def _parse_reference(element: Element) -> dict[str, object]:
    inner = parse_sobject(element) if _names_type(element) else _untyped(element)
    reference = dict(inner.values)
    if inner.record_id:
        reference["Id"] = inner.record_id
    return {"attributes": {"type": inner.entity}, **reference} if inner.entity else reference


def _names_type(element: Element) -> bool:
    named = type_attribute(element)
    return named not in ("", "sObject") or any(local_name(child) == "type" for child in element)


def _untyped(element: Element) -> SObject:
    given = {local_name(child): child.text for child in element if len(child) == 0 and text_of(child)}
    return SObject("", str(given.pop("Id", None) or ""), dict(given))


def typed_values(obj: ObjectType, values: Mapping[str, object], *, truncates: bool) -> dict[str, object]:
    """Convert raw texts to what fields accept: XML Schema has several spellings of booleans, dates and times.

    With `truncates`, text that is too long is truncated.
    """
    typed: dict[str, object] = {}
    for name, raw in values.items():
        field = obj.try_field(name)
        typed[name] = _typed(field, raw, truncates) if field is not None and isinstance(raw, str) else raw
    return typed


def _typed(field: Field, raw: str, truncates: bool) -> str:
    text = raw.strip()
    if field.type is FieldType.CHECKBOX:
        return _LITERAL_FLAGS.get(text, text)
    if field.type is FieldType.DATE:
        return _date_of(text)
    if field.type is FieldType.DATETIME and _LOCAL_DATETIME.fullmatch(text):
        return text + "Z"
    if truncates and field.length and field.type.row.is_truncatable:
        return text[: field.length]
    return raw


def _date_of(text: str) -> str:
    """Return the day of a date or datetime; clients without a date type send a datetime and mean its UTC day."""
    if zoned := _ZONED_DATE.fullmatch(text):
        return zoned[1]
    if not _MOMENT.fullmatch(text):
        return text
    try:
        return datetime.fromisoformat(text).astimezone(UTC).date().isoformat()
    except (ValueError, OverflowError):
        return text


def render_query_result(page: AnswerPage, dialect: Dialect) -> str:
    """Render the inside of a QueryResult: the rows of a page and the locator of the next."""
    records = "".join(render_row(page.rows, row, dialect) for row in page.rows.rows)
    return (
        render_element("done", not page.locator)
        + render_element("queryLocator", page.locator or None)
        + records
        + render_element("size", page.total)
    )


def render_row(rows: Rows, row: Record, dialect: Dialect, tag: str = "records") -> str:
    """Render one row of an answer, a record or a group."""
    if rows.is_aggregate:
        return _render_group(rows.columns, row, dialect, tag)
    return render_record(tag, rows.entity, rows.select or rows.columns, row, dialect)


def render_record(
    tag: str,
    entity: ObjectType,
    columns: Iterable[Field | Selected],
    row: Mapping[str, Cell],
    dialect: Dialect,
) -> str:
    """Render one record with its parents and children inside."""
    chosen = list(columns)
    has_id = any(column.name == "Id" for column in chosen)
    shown_id = render_element("sf:Id", str(row["Id"]) if has_id and row.get("Id") else None)
    if dialect.has_type_element:
        head = f'<{tag} xsi:type="sf:sObject">{render_element("sf:type", entity.name)}{shown_id}'
    else:
        head = f'<{tag} xsi:type="sf:{entity.name}">{shown_id if has_id else ""}'
        chosen = sorted((column for column in chosen if column.name != "Id"), key=lambda column: column.name)
    return head + "".join(_render_column(entity, column, row, dialect) for column in chosen) + f"</{tag}>"


def _render_column(
    entity: ObjectType, column: Field | Selected, row: Mapping[str, Cell], dialect: Dialect
) -> str:
    if isinstance(column, SelectedField) and not column.function:
        return _render_field(entity, column.name, column.field, row)
    if isinstance(column, Field):
        return _render_field(entity, column.name, column, row)
    return _render_cell(f"sf:{column.name}", row.get(column.name), dialect)


def _render_field(entity: ObjectType, name: str, field: Field, row: Mapping[str, Cell]) -> str:
    tag = f"sf:{name}"
    if not field.is_compound:
        return render_element(tag, render_value(field, _value(row.get(field.name)), _DATETIME_SUFFIX))
    parts = {part.name: _value(row.get(part.name)) for part in entity.components(field.name)}
    compound = render_compound(entity, field, parts, _DATETIME_SUFFIX)
    if not isinstance(compound, dict):
        return render_element(tag, compound)
    is_address = field.type is FieldType.ADDRESS
    # The schema requires every part, even those that we do not store.
    names = _ADDRESS_PARTS if is_address else _LOCATION_PARTS
    inner = "".join(render_element(part, compound.get(part)) for part in names)
    return f'<{tag} xsi:type="{field.type.row.word}">{inner}</{tag}>'


def _render_cell(tag: str, cell: Cell, dialect: Dialect) -> str:
    match cell:
        case Related(entity, select, row):
            return render_record(tag, entity, select, row, dialect)
        case Children():
            return _render_children(tag, cell, dialect)
        case _:
            return render_element(tag, cell)


def _render_children(tag: str, children: Children, dialect: Dialect) -> str:
    records = "".join(
        render_record("records", children.entity, children.select, row, dialect) for row in children.rows
    )
    return (
        f'<{tag} xsi:type="QueryResult">'
        + render_element("done", not children.locator)
        + render_element("queryLocator", children.locator or None)
        + f"{records}<size>{children.total}</size></{tag}>"
    )


def _render_group(columns: Iterable[Field], row: Record, dialect: Dialect, tag: str) -> str:
    if dialect.has_type_element:
        head = f'<{tag} xsi:type="sf:sObject"><sf:type>AggregateResult</sf:type><sf:Id xsi:nil="true"/>'
    else:
        head = f'<{tag} xsi:type="sf:AggregateResult">'
    inner = []
    for column in columns:
        value = _value(row[column.name])
        if value is None:
            inner.append(render_element(f"sf:{column.name}", None))
            continue
        soap_type = column.type.row.soap_type
        kind = soap_type if soap_type.startswith("xsd:") else "xsd:string"
        element = render_element(f"sf:{column.name}", render_value(column, value, _DATETIME_SUFFIX))
        inner.append(element.replace(">", f' xsi:type="{kind}">', 1))
    return head + "".join(inner) + f"</{tag}>"


def _value(cell: Cell) -> Value:
    return None if isinstance(cell, Related | Children) else cell
