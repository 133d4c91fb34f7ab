"""Headers of change events, including gap and overflow events, which consist of a header only."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from tidewire.events import CommitContext
from tidewire.ids import EMPTY_ID
from tidewire.schema.bitmap import encode_bitmap
from tidewire.schema.codec import EventSchema

HEADER = "ChangeEventHeader"
GAP = "GAP_"
_OVERFLOW = "GAP_OVERFLOW"
_GAP_SEQUENCE = 1  # every gap event has this number, wherever it stands in the transaction


def change_header(
    context: CommitContext,
    entity: str,
    record_ids: Sequence[str],
    change_type: str,
    sequence: int,
) -> dict[str, Any]:
    """Return a header without changed fields."""
    return {
        "entityName": entity,
        "recordIds": record_ids,
        "changeType": change_type,
        "changeOrigin": context.origin,
        "transactionKey": context.transaction_key,
        "sequenceNumber": sequence,
        "commitTimestamp": context.commit_ms,
        "commitNumber": context.commit_number,
        "commitUser": context.user_id,
        "nulledFields": [],
        "diffFields": [],
        "changedFields": [],
    }


def gap_header(
    context: CommitContext,
    entity: str,
    record_ids: Sequence[str],
    change_type: str,
    transaction_key: str = "",
) -> dict[str, Any]:
    """Return the header of a gap event. A change made below the API has the database's `transaction_key`."""
    header = change_header(context, entity, record_ids, GAP + change_type, _GAP_SEQUENCE)
    header["changeOrigin"] = ""
    if transaction_key:
        header["transactionKey"] = transaction_key
    return header


def overflow_header(context: CommitContext, entity: str, sequence: int) -> dict[str, Any]:
    """Return the header of the one event for all further changes of an entity."""
    header = change_header(context, entity, [EMPTY_ID], _OVERFLOW, sequence)
    header["changeOrigin"] = ""
    return header


@lru_cache(maxsize=4096)
def bitmap_of(schema: EventSchema, names: tuple[str, ...]) -> list[str]:
    """Return the bitmap of these fields. The list is cached: do not modify it."""
    return encode_bitmap(schema, names)
