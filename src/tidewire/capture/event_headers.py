"""The headers of change events, and events that are nothing but a header: gaps and overflows."""

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
_GAP_SEQUENCE = 1  # the same for every gap event, wherever in the transaction it stands


def change_header(
    context: CommitContext,
    entity: str,
    record_ids: Sequence[str],
    change_type: str,
    sequence: int,
) -> dict[str, Any]:
    """The header of an event that tells of no field."""
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
    """The header of a gap event. `transaction_key` is the database's own for a change made below the API."""
    header = change_header(context, entity, record_ids, GAP + change_type, _GAP_SEQUENCE)
    header["changeOrigin"] = ""
    if transaction_key:
        header["transactionKey"] = transaction_key
    return header


def overflow_header(context: CommitContext, entity: str, sequence: int) -> dict[str, Any]:
    """The header of the one event for all further changes of an entity."""
    header = change_header(context, entity, [EMPTY_ID], _OVERFLOW, sequence)
    header["changeOrigin"] = ""
    return header


@lru_cache(maxsize=4096)
def bitmap_of(schema: EventSchema, names: tuple[str, ...]) -> list[str]:
    """The bitmap of these fields. Shared: never change it."""
    return encode_bitmap(schema, names)
