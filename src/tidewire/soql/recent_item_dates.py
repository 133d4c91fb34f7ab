"""When whoever asks used a record last: two fields whose values are not the record's but the reader's."""

from __future__ import annotations

from tidewire.schema.model import Field

RECENT_ITEMS_TABLE = "record_uses"
RECENT_ITEM_DATES = {"LastViewedDate": "viewed_ms", "LastReferencedDate": "referenced_ms"}
"""The columns that hold them, one row for each user and record, by the names of the fields."""
NO_DATE = "CAST(NULL AS INTEGER)"
"""Their value where nobody asks."""


def is_recent_item_date(field: Field) -> bool:
    """Whether a field tells when its reader used the record."""
    return field.name in RECENT_ITEM_DATES


def join_recent_items(alias: str, record: str) -> str:
    """The join that finds a reader's uses of a record; its one parameter is the reader's id."""
    return (
        f"LEFT JOIN {RECENT_ITEMS_TABLE} AS {alias} ON {alias}.record_id = {record} AND {alias}.user_id = ?"
    )
