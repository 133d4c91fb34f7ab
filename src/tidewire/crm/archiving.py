"""Archiving of old activities, which then only appear in queries that ask for all records.

Events are archived once they are over, closed tasks by their due date or, without one, by the date of their
creation. An open task is never archived, and a series not before its last occurrence. Archiving does not
count as a modification.
"""

from __future__ import annotations

from tidewire.crm.activity_rows import read_by
from tidewire.records.work import UnitOfWork


def archive_activities(unit: UnitOfWork, before_ms: int, limit: int = 500) -> dict[str, list[str]]:
    """Archive up to `limit` tasks and as many events from before this time; return their ids by entity.

    Both lists are empty when nothing is left to archive.
    """
    return {
        "Task": _archive(unit, "Task", _old_tasks(unit, before_ms, limit)),
        "Event": _archive(unit, "Event", _old_events(unit, before_ms, limit)),
    }


def _archive(unit: UnitOfWork, entity: str, ids: list[str]) -> list[str]:
    obj = unit.catalog.object(entity)
    for row in read_by(unit.tx, obj, "Id", ids):
        unit.store_copies(obj, row, {"IsArchived": True})
    return ids


def _old_tasks(unit: UnitOfWork, before_ms: int, limit: int) -> list[str]:
    obj = unit.catalog.object("Task")
    names = ("IsDeleted", "IsArchived", "IsClosed", "IsRecurrence", "ActivityDate", "CreatedDate")
    deleted, archived, closed, recurring, due, made = (obj.by_name[name.lower()].column for name in names)
    # Names come from the catalog.
    sql = (
        f"SELECT id FROM {obj.table} WHERE {deleted} = 0 AND {archived} = 0 AND {closed} = 1"  # noqa: S608
        f" AND {recurring} = 0 AND ({due} < ? OR ({due} IS NULL AND {made} < ?)) ORDER BY id LIMIT ?"
    )
    return [str(record_id) for (record_id,) in unit.tx.execute(sql, (before_ms, before_ms, limit))]


def _old_events(unit: UnitOfWork, before_ms: int, limit: int) -> list[str]:
    obj = unit.catalog.object("Event")
    names = ("IsDeleted", "IsArchived", "EndDateTime", "ParentEventId", "RecurrenceActivityId")
    deleted, archived, end, parent, series = (obj.by_name[name.lower()].column for name in names)
    later = (
        f" AND NOT EXISTS (SELECT 1 FROM {obj.table} other WHERE other.{link} = event.id"  # noqa: S608
        f" AND other.{deleted} = 0 AND other.{end} >= ?)"
        for link in (parent, series)
    )
    sql = (
        f"SELECT event.id FROM {obj.table} event WHERE event.{deleted} = 0 AND event.{archived} = 0"  # noqa: S608
        f" AND event.{end} < ?{''.join(later)} ORDER BY event.id LIMIT ?"
    )
    rows = unit.tx.execute(sql, (before_ms, before_ms, before_ms, limit))
    return [str(record_id) for (record_id,) in rows]
