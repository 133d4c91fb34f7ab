"""Collections: up to 200 records in one request, and in one transaction."""

from __future__ import annotations

from collections.abc import Sequence

from tidewire.access.gate import Write
from tidewire.errors import BodyMalformed, PlatformError, RequiredFieldMissing, ValueMalformed
from tidewire.frontends.rest.wire import without_attributes
from tidewire.frontends.rest.wire_errors import render_error_entry

MAX_RECORDS = 200
_ROLLED_BACK = {
    "statusCode": "ALL_OR_NONE_OPERATION_ROLLED_BACK",
    "message": "Record rolled back because not all records were valid and the request was using AllOrNone"
    " header",
    "fields": list[str](),
}


def parse_writes(body: dict[str, object], *, is_update: bool) -> tuple[list[Write], bool]:
    """The writes of a request body, and whether one failure undoes them all."""
    records = body.get("records")
    if not isinstance(records, list) or not records:
        raise RequiredFieldMissing("At least 1 record is required", fields=[])
    _check_count(len(records))
    return [_parse_write(record, is_update) for record in records], body.get("allOrNone") is True


def parse_deletes(ids: str, entity_of: dict[str, str]) -> list[Write]:
    """The deletes of `?ids=a,b`; `entity_of` maps key prefixes to objects."""
    names = [part.strip() for part in ids.split(",") if part.strip()]
    if not names:
        raise RequiredFieldMissing("At least 1 record is required", fields=[])
    _check_count(len(names))
    return [Write(entity_of.get(name[:3], ""), name, None) for name in names]


def render_results(results: Sequence[str | PlatformError], *, all_or_none: bool) -> list[dict[str, object]]:
    """One entry a record, in order."""
    is_undone = all_or_none and any(isinstance(r, PlatformError) for r in results)
    return [_render_result(result, is_undone) for result in results]


def _parse_write(record: object, is_update: bool) -> Write:
    if not isinstance(record, dict):
        raise BodyMalformed("records must be JSON objects")
    attributes = record.get("attributes")
    entity = attributes.get("type") if isinstance(attributes, dict) else None
    if not isinstance(entity, str):
        raise ValueMalformed("each record needs attributes with a type", fields=["attributes"])
    values = without_attributes(record)
    record_id: str | None = None
    if is_update:
        ids = [values.pop(name) for name in list(values) if name.lower() == "id"]
        # An id that is absent is the row's own error, told as such by the store.
        record_id = ids[0] if ids and isinstance(ids[0], str) else ""
    return Write(entity, record_id, values)


def _check_count(count: int) -> None:
    if count > MAX_RECORDS:
        raise ValueMalformed(f"at most {MAX_RECORDS} records may be sent at once, not {count}", fields=[])


def _render_result(result: str | PlatformError, is_undone: bool) -> dict[str, object]:
    if isinstance(result, PlatformError):
        entry = render_error_entry(result, "PATCH")
        error = {
            "statusCode": entry["errorCode"],
            "message": entry["message"],
            "fields": entry.get("fields", []),
        }
        return {"success": False, "errors": [error]}
    if is_undone:
        return {"success": False, "errors": [dict(_ROLLED_BACK)]}
    return {"id": result, "success": True, "errors": []}
