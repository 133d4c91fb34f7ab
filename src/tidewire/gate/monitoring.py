"""Real-time monitoring: events that the server itself publishes about logins, logouts and reads.

An org gets only the events that its settings name; where there are none, the test costs one lookup in a tuple. The
event of a login or logout commits together with it, that of a read before the response is sent. No event holds a
password or a token; keys that tie the events of a session together are digests of the session id.
"""

from __future__ import annotations

import base64
import hashlib
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import orjson

from tidewire.access.principal import Principal
from tidewire.access.sessions import Origin
from tidewire.clock import Clock
from tidewire.errors import PlatformError
from tidewire.eventlog.log import EventLog
from tidewire.events import EventDraft, Family, Value
from tidewire.records.query import Cell, Children, Record, Related
from tidewire.records.service import Records
from tidewire.schema.standard.monitoring import (
    API,
    LIST_VIEW,
    LOGIN,
    LOGOUT,
    MAX_QUERY,
    MAX_RECORDS_TEXT,
)
from tidewire.storage.store import Transaction

_KEY_BYTES = 12
_MAX_AGENT = 1000
_MAX_NAMES = 1000
_MAX_NAME = 255
# The API and the login type by kind of session.
_LOGIN_KINDS = {
    "SOAP": ("SOAP", "Other Apex API"),
    "OAuth": ("REST API", "Remote Access 2.0"),
    "UI": ("N/A", "Application"),
}
_STATUSES = {
    "LOGIN_MUST_USE_SECURITY_TOKEN": "API security token required",
    "API_DISABLED_FOR_ORG": "API access is disabled",
}


@dataclass(frozen=True, slots=True)
class ApiReader:
    """Who reads, and through which API: `peer` is an address, `client` the name that a program gives itself."""

    principal: Principal
    api_type: str
    api_version: int | None
    peer: str = ""
    user_agent: str = ""
    client: str = ""


@dataclass(frozen=True, slots=True)
class QueryRead:
    """One page of query results."""

    operation: str
    query: str
    entity: str
    rows: Sequence[Record]
    total: int
    elapsed_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ListRead:
    """One page of a list view."""

    list_view_id: str
    developer_name: str
    name: str
    entity: str
    columns: Sequence[str]
    order_by: str
    scope: str
    rows: Sequence[Record]


class Monitor:
    """Publishes monitoring events, if the settings of the org enable them."""

    def __init__(self, records: Records, log: EventLog, clock: Clock) -> None:
        self._records = records
        self._log = log
        self._clock = clock

    def is_enabled(self, event: str) -> bool:
        """Return whether the org's settings enable the event."""
        return event in self._records.types.settings.monitoring_events

    def note_login(
        self, tx: Transaction, principal: Principal, origin: Origin, refusal: PlatformError | None
    ) -> None:
        """Publish a login, or a rejected login of a known user, as part of its transaction."""
        if not principal.user_id or not self.is_enabled(LOGIN):
            return
        api_type, login_type = _LOGIN_KINDS.get(origin.kind, ("N/A", origin.kind))
        keys = _keys(principal, origin.peer)
        if refusal is not None:
            keys |= {"SessionKey": None, "LoginKey": None, "SessionLevel": None}
        self._append(
            tx,
            LOGIN,
            principal.user_id,
            keys
            | {
                "ApiType": api_type,
                "ApiVersion": "Unknown",
                "Application": self._app_label(tx, origin.client_id),
                "LoginType": login_type,
                "Status": _status(refusal),
            },
        )

    def note_logout(self, tx: Transaction, principal: Principal, peer: str) -> None:
        """Publish a logout, as part of the transaction that ends the session."""
        if self.is_enabled(LOGOUT):
            self._append(tx, LOGOUT, principal.user_id, _keys(principal, peer))

    async def publish_query(self, reader: ApiReader, read: QueryRead) -> None:
        """Publish a page of results before it is sent; returns once the event is durable."""
        if self.is_enabled(API):
            await self._records.write_plain(
                lambda tx: self.append_query(tx, reader, read), survives_rollback=True
            )

    def append_query(self, tx: Transaction, reader: ApiReader, read: QueryRead) -> None:
        """Publish a page of results as part of a transaction."""
        if not self.is_enabled(API):
            return
        values = _keys(reader.principal, reader.peer) | {
            "ApiType": reader.api_type,
            "ApiVersion": None if reader.api_version is None else float(reader.api_version),
            "Client": reader.client[:_MAX_NAME] or None,
            "UserAgent": reader.user_agent[:_MAX_AGENT] or None,
            "ElapsedTime": read.elapsed_ms,
            "Operation": read.operation,
            "Query": read.query[:MAX_QUERY] or None,
            "QueriedEntities": ",".join(_entities(read.entity, read.rows))[:_MAX_NAMES],
            "Records": _records_text(read.entity, read.rows),
            "RowsProcessed": float(read.total),
            "RowsReturned": float(len(read.rows)),
        }
        self._append(tx, API, reader.principal.user_id, values)

    async def publish_list_view(self, reader: ApiReader, read: ListRead) -> None:
        """Publish a read of a list view before it is sent; returns once the event is durable."""
        if not self.is_enabled(LIST_VIEW):
            return
        values = _keys(reader.principal, reader.peer) | {
            "EventSource": "API",
            "ListViewId": read.list_view_id,
            "DeveloperName": read.developer_name,
            "Name": read.name,
            "QueriedEntities": read.entity,
            "ColumnHeaders": ",".join(read.columns)[:_MAX_NAMES],
            "NumberOfColumns": len(read.columns),
            "OrderBy": read.order_by,
            "Scope": read.scope,
            "Records": _records_text(read.entity, read.rows),
            "RowsProcessed": float(len(read.rows)),
            "Sequence": 1,
        }
        user_id = reader.principal.user_id
        await self._records.write_plain(
            lambda tx: self._append(tx, LIST_VIEW, user_id, values), survives_rollback=True
        )

    def _append(self, tx: Transaction, name: str, user_id: str, values: dict[str, Value]) -> None:
        now_ms = self._clock.now_ms()
        identifier = str(uuid.uuid4())
        schema = self._records.types.schemas[name]
        body = {
            "CreatedDate": now_ms,
            "CreatedById": user_id,
            "EventIdentifier": identifier,
            "EventDate": now_ms,
            **values,
        }
        draft = EventDraft(name, Family.PLATFORM, schema.encode(body), now_ms, schema.schema_id, identifier)
        self._log.append(tx, [draft], now_ms)

    def _app_label(self, tx: Transaction, client_id: str) -> str | None:
        rows = (
            tx.execute("SELECT label FROM connected_apps WHERE client_id = ?", (client_id,))
            if client_id
            else []
        )
        return str(rows[0][0])[:_MAX_NAME] if rows else None


def _keys(principal: Principal, peer: str) -> dict[str, Value]:
    return {
        "UserId": principal.user_id,
        "Username": principal.username,
        "SessionKey": _digest("session", principal.session_id),
        "LoginKey": _digest("login", principal.session_id),
        "SessionLevel": "STANDARD",
        "SourceIp": peer[:_MAX_NAME] or None,
    }


def _digest(purpose: str, session_id: str) -> str | None:
    """Derive a key that cannot be used as the session id."""
    if not session_id:
        return None
    digest = hashlib.sha256(f"{purpose}:{session_id}".encode()).digest()
    return base64.urlsafe_b64encode(digest[:_KEY_BYTES]).decode()


def _status(refusal: PlatformError | None) -> str:
    if refusal is None:
        return "Success"
    status = _STATUSES.get(str(refusal.details.get("exception_code")))
    return status or str(refusal.details.get("login_status", "Login refused"))


def _entities(entity: str, rows: Iterable[Record]) -> list[str]:
    """Return the objects that rows come from, the object of the query first."""
    found = {entity: None}
    for row in rows:
        for cell in row.values():
            if isinstance(cell, Children):
                found |= dict.fromkeys(_entities(cell.entity.name, cell.rows))
            elif isinstance(cell, Related):
                found |= dict.fromkeys(_entities(cell.entity.name, [cell.row]))
    return list(found)


def _records_text(entity: str, rows: Sequence[Record]) -> str | None:
    """Render the ids of the records that were read as JSON, no more than the field holds."""
    ids = [_id(row.get("Id")) for row in rows]
    listed = [{"attributes": {"type": entity}, "Id": record_id} for record_id in ids if record_id]
    if not listed:
        return None
    room = max(1, MAX_RECORDS_TEXT // 100)
    body = {"totalSize": len(rows), "done": len(listed) <= room, "records": listed[:room]}
    return orjson.dumps(body).decode()


def _id(cell: Cell) -> str:
    return cell if isinstance(cell, str) else ""
