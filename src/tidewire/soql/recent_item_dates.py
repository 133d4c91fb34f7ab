"""LastViewedDate and LastReferencedDate: fields whose values belong to the caller, not to the record."""

from __future__ import annotations

from tidewire.schema.model import Field

RECENT_ITEMS_TABLE = "record_uses"
RECENT_ITEM_DATES = {"LastViewedDate": "viewed_ms", "LastReferencedDate": "referenced_ms"}
"""The columns of the table, which has a row per user and record, by field name."""
NO_DATE = "CAST(NULL AS INTEGER)"
"""Their value in queries without a caller."""


def is_recent_item_date(field: Field) -> bool:
    """Return whether a field holds when the caller last used the record."""
    return field.name in RECENT_ITEM_DATES


def join_recent_items(alias: str, record: str) -> str:
    """Return the join that finds the caller's recent item of a record; its one parameter is the caller's id."""
    return (
        f"LEFT JOIN {RECENT_ITEMS_TABLE} AS {alias} ON {alias}.record_id = {record} AND {alias}.user_id = ?"
    )
