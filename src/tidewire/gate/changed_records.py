"""Which records of an object changed or were deleted in a time window, for clients that keep a copy.

Timestamps have whole seconds, and a transaction becomes visible a little after its timestamp. A result therefore holds
everything visible up to the end of the window, but reports the window as covered only up to a minute ago: a client
that continues from there sees some ids twice and misses none.
"""

from __future__ import annotations

from dataclasses import dataclass

from tidewire.access.principal import Principal
from tidewire.errors import ObjectUnknown, PlatformError, TooManyRecords, WindowInvalid
from tidewire.gate.gate import Gate
from tidewire.gate.requests import Rows
from tidewire.records.recycle_bin import BIN_RETENTION_MS, read_purged
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.schema.values import parse_value, render_datetime

MAX_IDS = 600_000
_MINUTE_MS = 60_000
_OLDEST_MS = 30 * 86_400_000
_TIME = Field(name="time", label="time", type=FieldType.DATETIME)


@dataclass(frozen=True, slots=True)
class Updated:
    """Ids of records that were created or changed and still exist."""

    ids: tuple[str, ...]
    latest_covered_ms: int


@dataclass(frozen=True, slots=True)
class Deleted:
    """Ids and times of deletes within the retention of the recycle bin, purged or not."""

    records: tuple[tuple[str, int], ...]
    earliest_available_ms: int
    latest_covered_ms: int


def parse_window_time(name: str, text: str) -> int:
    """Parse one end of a window; `name` is the parameter named in WindowInvalid."""
    try:
        parsed = parse_value(_TIME, text)
    except PlatformError:
        parsed = None
    if not isinstance(parsed, int):
        raise WindowInvalid(f"{name} must be a date and time")
    return parsed


async def read_updated(
    gate: Gate, principal: Principal, entity: str, start_ms: int, end_ms: int, now_ms: int
) -> Updated:
    """Read the records changed at or after `start_ms` and before `end_ms`. Raises WindowInvalid, TooManyRecords."""
    obj = await _replicated(gate, principal, entity)
    _check_window(start_ms, end_ms, now_ms)
    rows = await _read(gate, principal, obj, start_ms, end_ms, is_deleted=False)
    return Updated(tuple(str(row["Id"]) for row in rows.rows), _covered(start_ms, end_ms, now_ms))


async def read_deleted(
    gate: Gate, principal: Principal, entity: str, start_ms: int, end_ms: int, now_ms: int
) -> Deleted:
    """Read the records deleted at or after `start_ms` and before `end_ms`. Raises WindowInvalid, TooManyRecords."""
    obj = await _replicated(gate, principal, entity)
    _check_window(start_ms, end_ms, now_ms)
    records: tuple[tuple[str, int], ...] = ()
    if obj.try_field("IsDeleted") is not None:
        rows = await _read(gate, principal, obj, start_ms, end_ms, is_deleted=True)
        deleted = [(str(row["Id"]), int(str(row["SystemModstamp"]))) for row in rows.rows]
        records = (*deleted, *await _read_purged(gate, principal, obj, start_ms, end_ms))
        _check_count(len(records))
    return Deleted(records, now_ms - BIN_RETENTION_MS, _covered(start_ms, end_ms, now_ms))


async def _replicated(gate: Gate, principal: Principal, entity: str) -> ObjectType:
    obj, _, _ = await gate.visible_fields(principal, entity)
    if obj.try_field("SystemModstamp") is None:
        raise ObjectUnknown(f"entity type {obj.name} is not replicateable", entity=obj.name)
    return obj


def _check_window(start_ms: int, end_ms: int, now_ms: int) -> None:
    if start_ms > now_ms:
        raise WindowInvalid("startDate is in the future")
    if end_ms - start_ms < _MINUTE_MS:
        raise WindowInvalid("endDate must be at least one minute after startDate")
    if start_ms < now_ms - _OLDEST_MS:
        raise WindowInvalid("startDate is more than 30 days ago")


def _covered(start_ms: int, end_ms: int, now_ms: int) -> int:
    return max(start_ms, min(end_ms, now_ms - _MINUTE_MS))


async def _read(
    gate: Gate, principal: Principal, obj: ObjectType, start_ms: int, end_ms: int, *, is_deleted: bool
) -> Rows:
    start, end = render_datetime(start_ms - start_ms % 1000, "Z"), render_datetime(end_ms, "Z")
    condition = f"SystemModstamp >= {start} AND SystemModstamp < {end}"
    if is_deleted:
        condition += " AND IsDeleted = true"
    # Only catalog names and times that we rendered.
    soql = f"SELECT Id, SystemModstamp FROM {obj.name} WHERE {condition} LIMIT {MAX_IDS + 1}"  # noqa: S608
    rows = await gate.query(principal, soql, include_deleted=is_deleted)
    _check_count(len(rows.rows))
    return rows


async def _read_purged(
    gate: Gate, principal: Principal, obj: ObjectType, start_ms: int, end_ms: int
) -> list[tuple[str, int]]:
    # The shares of a purged record are gone: unless everybody sees every record, only its owner gets it.
    owner_id = None if await gate.sees_all_records(principal, obj.name) else principal.user_id
    start_ms -= start_ms % 1000
    return await gate.records.read(
        lambda reader: read_purged(reader, obj, start_ms, end_ms, MAX_IDS + 1, owner_id)
    )


def _check_count(count: int) -> None:
    if count > MAX_IDS:
        raise TooManyRecords(f"more than {MAX_IDS} records in this window; use a shorter one", limit=MAX_IDS)
