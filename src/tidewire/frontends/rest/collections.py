"""Collections: up to 200 records in one request, and in one transaction.

Each record has its own result, in the order of the request. A fault of one row, such as a missing id, is that row's
error; a fault of the list itself fails the request.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tidewire.errors import (
    BodyMalformed,
    PlatformError,
    RequiredFieldMissing,
    TooManyRecords,
    ValueMalformed,
)
from tidewire.frontends.rest.calls import Api, ApiCall, Route, object_in_path, render_answer
from tidewire.frontends.rest.record_json import render_published, render_record
from tidewire.frontends.rest.wire import parse_json_object, without_attributes
from tidewire.frontends.rest.wire_errors import render_error_entry, render_protocol_error
from tidewire.gate.duplicate_upserts import reject_duplicate_keys
from tidewire.gate.editable_fields import unknown_column
from tidewire.gate.mixed_creates import Created, create_mixed
from tidewire.gate.publishing import Published
from tidewire.gate.requests import Upsert, Write
from tidewire.ids import normalise_id, try_normalise_id
from tidewire.schema.field_types import FieldType
from tidewire.transport.http import HttpResponse

MAX_RECORDS = 200
MAX_RETRIEVED = 2000
_MAX_CHUNKS = 10
_FIELD_PATH = re.compile(r"[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z][A-Za-z0-9_]*)*")
_ROLLED_BACK = {
    "statusCode": "ALL_OR_NONE_OPERATION_ROLLED_BACK",
    "message": "Record rolled back because not all records were valid and the request was using AllOrNone"
    " header",
    "fields": list[str](),
}

RowErrors = Mapping[int, tuple[str, str]]
"""Status code and message by row index, for faults of the request; they replace the error of the write."""


@dataclass(frozen=True, slots=True)
class Made:
    """A row that was written: the record's id, whether an upsert created it, and an event's uuid.

    A row that `survives_rollback`, such as an immediately published event, stays even if the others are rolled back.
    """

    record_id: str
    is_created: bool | None = None
    event_uuid: str = ""
    survives_rollback: bool = False


Result = Made | PlatformError


async def create_collection(api: Api, call: ApiCall) -> HttpResponse:
    """Create records, and publish platform events, in one transaction."""
    body = parse_json_object(call.request)
    writes = [Write(entity, None, values) for entity, values in _parse_records(body)]
    all_or_none = parse_flag(body, "allOrNone")
    created, is_undone = await create_mixed(api.gate, call.context, writes, all_or_none=all_or_none)
    results = [_made(each) for each in created]
    return render_answer(api, call, 200, render_results(results, all_or_none=is_undone))


async def update_collection(api: Api, call: ApiCall) -> HttpResponse:
    """Update records in one transaction."""
    body = parse_json_object(call.request)
    writes, row_errors = [], {}
    for index, (entity, values) in enumerate(_parse_records(body)):
        record_id = _take(values, "Id")
        if record_id is None:
            row_errors[index] = ("MISSING_ARGUMENT", "Id not specified in an update call")
        writes.append(Write(entity, record_id if isinstance(record_id, str) else "", values))
    return await _write(api, call, writes, row_errors, all_or_none=parse_flag(body, "allOrNone"))


async def delete_collection(api: Api, call: ApiCall) -> HttpResponse:
    """Move records to the recycle bin in one transaction."""
    ids = _split(call.request.query.get("ids", ""))
    _check_count(len(ids), MAX_RECORDS)
    writes, row_errors = [], {}
    for index, text in enumerate(ids):
        known = api.gate.catalog.try_object_of_id(text)
        if try_normalise_id(text) is None:
            row_errors[index] = ("MALFORMED_ID", f"malformed id {text[:80]}")
        elif known is None:
            row_errors[index] = ("INVALID_CROSS_REFERENCE_KEY", "invalid cross reference id")
        writes.append(Write("" if known is None else known.name, text, None))
    all_or_none = call.request.query.get("allOrNone", "").lower() == "true"
    return await _write(api, call, writes, row_errors, all_or_none=all_or_none)


async def upsert_collection(api: Api, call: ApiCall) -> HttpResponse:
    """Update or create records by external id in one transaction."""
    name, field_name = call.arguments
    with object_in_path:
        entity, readable, _ = await api.gate.visible_fields(call.principal, name, "upsert")
    key = entity.try_field(field_name)
    is_key = key is not None and key.name in entity.keys and key.name in readable
    if key is None or not is_key:
        message = f"Provided external ID field does not exist or is not accessible: {field_name[:80]}"
        return render_protocol_error(call.request, 404, "NOT_FOUND", message)
    body = parse_json_object(call.request)
    upserts, row_errors = [], {}
    for index, (given, values) in enumerate(_parse_records(body)):
        if given.lower() != entity.name.lower():
            raise ValueMalformed(f"all records must be of type {entity.name}", fields=["attributes"])
        value = _take(values, key.name)
        if value is None and key.type is not FieldType.ID:
            row_errors[index] = ("MISSING_ARGUMENT", f"{key.name} not specified")
        upserts.append(Upsert(entity.name, key.name, value, values))
    all_or_none = parse_flag(body, "allOrNone")
    upserts = reject_duplicate_keys(api.gate.catalog, upserts)
    done = await api.gate.upsert_together(call.context, upserts, all_or_none=all_or_none)
    results = [r if isinstance(r, PlatformError) else Made(*r) for r in done]
    rendered = render_results(results, row_errors, all_or_none=all_or_none, is_upsert=True)
    return render_answer(api, call, 200, rendered)


async def retrieve_by_query(api: Api, call: ApiCall) -> HttpResponse:
    """Return the records with the ids in `?ids=`, null for those not found."""
    query = call.request.query
    return await _retrieve(api, call, _split(query.get("ids", "")), _split(query.get("fields", "")))


async def retrieve_by_body(api: Api, call: ApiCall) -> HttpResponse:
    """Return the records with the ids in the body, null for those not found."""
    body = parse_json_object(call.request)
    return await _retrieve(api, call, _parse_texts(body, "ids"), _parse_texts(body, "fields"))


def _made(created: Created) -> Result:
    match created:
        case str():
            return Made(created)
        case Published(event_id, event_uuid, is_immediate):
            return Made(event_id, event_uuid=event_uuid, survives_rollback=is_immediate)
        case _:
            return created


async def _write(
    api: Api, call: ApiCall, writes: Sequence[Write], row_errors: RowErrors, *, all_or_none: bool
) -> HttpResponse:
    done = await api.gate.write_together(call.context, writes, all_or_none=all_or_none)
    results = [r if isinstance(r, PlatformError) else Made(r) for r in done]
    return render_answer(api, call, 200, render_results(results, row_errors, all_or_none=all_or_none))


async def _retrieve(api: Api, call: ApiCall, ids: list[str], fields: list[str]) -> HttpResponse:
    (name,) = call.arguments
    with object_in_path:
        entity, readable, _ = await api.gate.visible_fields(call.principal, name)
    _check_count(len(ids), MAX_RETRIEVED)
    if not fields:
        raise RequiredFieldMissing("At least 1 field is required", fields=[])
    for field in fields:
        if _FIELD_PATH.fullmatch(field) is None:
            raise ValueMalformed(f"{field[:80]} is not a field name", fields=[field[:80]])
        known = entity.try_field(field)
        if "." not in field and (known is None or known.name not in readable):
            raise unknown_column(field, entity)
    wanted = [normalise_id(record_id) for record_id in ids]
    names = {field.lower(): field for field in fields}
    # Names and ids were checked for their form, so neither can end the query's text.
    listed = ", ".join(f"'{record_id}'" for record_id in dict.fromkeys(wanted))
    rows = await api.gate.query(
        call.principal,
        f"SELECT {', '.join(names.values())} FROM {entity.name} WHERE Id IN ({listed})",  # noqa: S608
    )
    found: dict[str, dict[str, object]] = {}
    for row in rows.rows:
        record = render_record(rows.entity, rows.select or rows.columns, row, call.version)
        found[str(row["Id"])] = {**record, "Id": row["Id"]}
    return render_answer(api, call, 200, [found.get(record_id) for record_id in wanted])


def parse_flag(body: Mapping[str, object], name: str) -> bool:
    """Parse a boolean of a request body; absent means false. Raises BodyMalformed."""
    value = body.get(name)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if value is None or isinstance(value, bool):
        return value is True
    raise BodyMalformed(f"Cannot deserialize instance of boolean from the value of {name}")


def render_results(
    results: Sequence[Result],
    row_errors: RowErrors | None = None,
    *,
    all_or_none: bool,
    is_upsert: bool = False,
) -> list[dict[str, object]]:
    """Render one result per row, in order. Upserts also report whether each record was created."""
    is_undone = all_or_none and any(isinstance(r, PlatformError) for r in results)
    rendered = []
    for index, result in enumerate(results):
        if isinstance(result, PlatformError):
            entry: dict[str, object] = {
                "success": False,
                "errors": [render_row_error(result, (row_errors or {}).get(index))],
            }
        elif is_undone and not result.survives_rollback:
            entry = {"success": False, "errors": [dict(_ROLLED_BACK)]}
        elif result.event_uuid:
            entry = render_published(result.record_id, result.event_uuid)
        else:
            entry = {"id": result.record_id, "success": True, "errors": []}
        if is_upsert:
            entry["created"] = isinstance(result, Made) and result.is_created is True
        rendered.append(entry)
    return rendered


def render_row_error(error: PlatformError, own: tuple[str, str] | None = None) -> dict[str, object]:
    """Render the error of one row; `own`, a status code and message, replaces it."""
    if own is not None:
        return {"statusCode": own[0], "message": own[1], "fields": []}
    entry = render_error_entry(error, "PATCH")
    return {
        "statusCode": entry["errorCode"],
        "message": entry["message"],
        "fields": entry.get("fields", []),
    }


def _parse_records(body: Mapping[str, object]) -> list[tuple[str, dict[str, object]]]:
    """Return the records of a request body, each with its type."""
    records = body.get("records")
    _check_count(len(records) if isinstance(records, list) else 0, MAX_RECORDS)
    parsed = [_parse_record(record) for record in records] if isinstance(records, list) else []
    chunks = 1 + sum(a.lower() != b.lower() for (a, _), (b, _) in pairwise(parsed))
    if chunks > _MAX_CHUNKS:
        raise TooManyRecords(
            f"Cannot have more than {_MAX_CHUNKS} chunks in a single operation. Please rearrange the data to"
            " reduce chunking.",
            limit=_MAX_CHUNKS,
        )
    return parsed


def _parse_record(record: object) -> tuple[str, dict[str, object]]:
    if not isinstance(record, dict):
        raise BodyMalformed("records must be JSON objects")
    attributes = record.get("attributes")
    entity = attributes.get("type") if isinstance(attributes, dict) else None
    if not isinstance(entity, str):
        raise ValueMalformed("each record needs attributes with a type", fields=["attributes"])
    return entity, without_attributes(record)


def _take(values: dict[str, object], name: str) -> object:
    """Remove a field, in any letter case, from a record's values and return its value, or None."""
    taken = [values.pop(key) for key in list(values) if key.lower() == name.lower()]
    return taken[-1] if taken else None


def _parse_texts(body: Mapping[str, object], name: str) -> list[str]:
    texts = body.get(name)
    if texts is None:
        return []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise BodyMalformed(f"{name} must be a list of strings")
    return texts


def _split(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _check_count(count: int, limit: int) -> None:
    if count == 0:
        raise RequiredFieldMissing("At least 1 record is required", fields=[])
    if count > limit:
        raise too_many_records(limit)


def too_many_records(limit: int) -> TooManyRecords:
    """Return the error for a request with more records than it may carry."""
    return TooManyRecords(
        f"record limit reached. cannot submit more than {limit} records into this call", limit=limit
    )


ROUTES: tuple[Route[Api], ...] = (
    Route(
        ("composite", "sobjects"),
        {"POST": create_collection, "PATCH": update_collection, "DELETE": delete_collection},
        since=42,
    ),
    Route(("composite", "sobjects", "*"), {"GET": retrieve_by_query, "POST": retrieve_by_body}, since=42),
    Route(("composite", "sobjects", "*", "*"), {"PATCH": upsert_collection}, since=46),
)
