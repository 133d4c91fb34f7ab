"""Results of deploys and retrieves, stored in the org's database for a while.

Both finish before their id is returned, so a stored result is final; clients poll for it by the id.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from tidewire.ids import make_id
from tidewire.records.numbers import take_number
from tidewire.records.work import UnitOfWork
from tidewire.storage.store import Reader

_KEPT_MS = 7 * 24 * 3_600_000
_KEPT_ROWS = 200


@dataclass(frozen=True, slots=True)
class StoredRequest:
    """A finished deploy or retrieve: its result as JSON, and the archive of a retrieve or check."""

    request_id: str
    kind: str
    result: str
    data: bytes = b""


def store_request(
    unit: UnitOfWork, prefix: str, kind: str, user_id: str, result: Mapping[str, object], data: bytes
) -> str:
    """Store a result under a new id, which is added to it and returned, and delete old ones."""
    tx, now_ms = unit.tx, unit.now_ms
    request_id = make_id(prefix, take_number(tx, "metadata requests"))
    # In schema order, which is alphabetical.
    text = json.dumps(dict(sorted({**result, "id": request_id}.items())))
    tx.execute("DELETE FROM metadata_requests WHERE created_ms < ?", (now_ms - _KEPT_MS,))
    rows = tx.execute(
        "SELECT request_id FROM metadata_requests ORDER BY created_ms DESC, request_id DESC LIMIT 1000 OFFSET ?",
        (_KEPT_ROWS - 1,),
    )
    for (old,) in rows:
        tx.execute("DELETE FROM metadata_requests WHERE request_id = ?", (old,))
    tx.execute(
        "INSERT INTO metadata_requests (request_id, kind, user_id, created_ms, result, data)"
        " VALUES (?, ?, ?, ?, ?, ?)",
        (request_id, kind, user_id, now_ms, text, data),
    )
    return request_id


def try_read_request(reader: Reader, request_id: str) -> StoredRequest | None:
    """Read a result by id, or None."""
    rows = reader.execute(
        "SELECT request_id, kind, result, data FROM metadata_requests WHERE request_id = ?", (request_id,)
    )
    return StoredRequest(rows[0][0], rows[0][1], rows[0][2], bytes(rows[0][3])) if rows else None
