"""Maintain an exact copy of the records of some objects in an SQLite file, from the events on /data/ChangeEvents.

    python examples/replicate.py FILE ENTITY...

The first run reads every record; later runs resume after the last processed event. It can be stopped or killed at any
time. The entities must be selected for change data capture. Set TIDEWIRE_URL, TIDEWIRE_USERNAME and TIDEWIRE_PASSWORD
for a server other than that of `tidewire serve --dev`.

How a copy stays exact:

- The changes of one transaction are stored in one transaction of the file, together with the replay id of its last
  event. A transaction ends with an event of another transaction key, or when no event arrives for a while.
- A gap event has no field values. Its records become dirty: later events on them are ignored, and they are read again
  before the transaction is stored.
- An overflow event names no record. The program unsubscribes, reads the whole entity, removes missing records from the
  copy, and subscribes again after that event. It does the same after an event for all records of an entity, and when
  its events change to a schema with other fields.
- A read may be newer than the next events. They then set fields back until the events that the read was ahead of have
  arrived as well; an update of a record that is not in the copy is one of those.
- A text difference is applied and verified by its hash. If the hash does not match, the difference was computed from
  another text, and the record becomes dirty.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import re
import sqlite3
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tidewire.client.cometd import ALL_EVENTS, CometdClient
from tidewire.client.login import Credentials, Login, login
from tidewire.client.rest import RestClient
from tidewire.errors import ServerUnreachable

CHANNEL = "/data/ChangeEvents"
API = "/services/data/v67.0"
QUIET_S = 1.0
RETRY_S = 1.0
IDS_AT_A_TIME = 500
CREDENTIALS = Credentials(
    os.environ.get("TIDEWIRE_URL", "http://localhost:8080"),
    username=os.environ.get("TIDEWIRE_USERNAME", "admin@tidewire.local"),
    password=os.environ.get("TIDEWIRE_PASSWORD", "tidewire"),
    client_id="tidewire-dev",
    client_secret="tidewire-dev-secret",
)
LAYOUT = """
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
CREATE TABLE IF NOT EXISTS record (
    entity TEXT NOT NULL, id TEXT NOT NULL, fields TEXT NOT NULL, PRIMARY KEY (entity, id)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS progress (replay_id INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS unread (entity TEXT PRIMARY KEY);
"""
HUNK = re.compile(r"@@ -(\d+),(\d+) \+\d+,(\d+) @@")
LINE_BREAK = re.compile(r"\r\n|\r|\n")

Fields = dict[str, Any]


@dataclass(frozen=True)
class Layout:
    """The fields of an entity that its events carry: their types by name, and the parts of compound ones."""

    types: Mapping[str, str]
    parts: Mapping[str, Mapping[str, str]]

    def flat(self, payload: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """The record's own fields in an event: those of a compound one by one."""
        for name, value in payload.items():
            parts = self.parts.get(name)
            if parts is None:
                if name in self.types:
                    yield name, value
            elif isinstance(value, dict):
                yield from ((parts[part], item) for part, item in value.items() if part in parts)


def read_layout(rest: RestClient, entity: str) -> Layout:
    """Ask the server which fields an entity's change events have, and how they are called in its records."""
    stem = entity.removesuffix("c") if entity.endswith("__c") else entity
    event = rest.call("GET", f"{API}/sobjects/{stem}ChangeEvent/describe")
    carried = {field["name"] for field in event["fields"]} - {"Id", "ReplayId", "ChangeEventHeader"}
    own = rest.call("GET", f"{API}/sobjects/{entity}/describe")["fields"]
    parts: dict[str, dict[str, str]] = {}
    for field in own:
        compound = field["compoundFieldName"]
        if compound in carried and compound != field["name"]:
            prefix = compound.removesuffix("Address") if compound.endswith("Address") else ""
            prefix = compound.removesuffix("c") if compound.endswith("__c") else prefix
            part = field["name"].removeprefix(prefix).removesuffix("__s")
            parts.setdefault(compound, {})[part] = field["name"]
    known = {name for name in carried if name not in parts} | {
        n for group in parts.values() for n in group.values()
    }
    return Layout({f["name"]: f["type"] for f in own if f["name"] in known}, parts)


def stored_form(value: Any, kind: str | None) -> Any:
    """A value as the copy keeps it: queries and events spell the zone of a moment differently."""
    if kind == "datetime" and isinstance(value, str):
        return value.replace("+0000", "Z")
    return value


def try_rebuild(old: str | None, difference: str) -> str | None:
    """The text that a difference leads to from the old one, or None if it does not."""
    first, second, *lines = difference.split("\n")
    wanted = second.removeprefix("+++ ")
    if old is None or first != "--- ":
        return None
    found = LINE_BREAK.search(old)
    old_lines = LINE_BREAK.split(old)
    new_lines: list[str] = []
    copied = at = 0
    while at < len(lines):
        hunk = HUNK.fullmatch(lines[at])
        if hunk is None:
            return None
        start, taken, added = int(hunk[1]) - 1, int(hunk[2]), int(hunk[3])
        new_lines += old_lines[copied:start]
        new_lines += [line[1:] for line in lines[at + 1 + taken : at + 1 + taken + added]]
        copied = start + taken
        at += 1 + taken + added
    text = (found[0] if found else "\n").join(new_lines + old_lines[copied:])
    return text if hashlib.sha256(text.encode()).hexdigest() == wanted else None


class Copy:
    """The file. Nothing counts before `commit`."""

    def __init__(self, path: Path) -> None:
        self._db = sqlite3.connect(path)
        self._db.executescript(LAYOUT)

    @property
    def replay_id(self) -> int | None:
        """The last event dealt with; None in a new file."""
        found = self._db.execute("SELECT replay_id FROM progress").fetchone()
        return None if found is None else int(found[0])

    @property
    def unread(self) -> list[str]:
        """The entities that have to be read whole."""
        return [str(entity) for (entity,) in self._db.execute("SELECT entity FROM unread")]

    def mark_unread(self, entity: str) -> None:
        """Note that an entity has to be read whole."""
        self._db.execute("INSERT OR IGNORE INTO unread VALUES (?)", (entity,))

    def mark_read(self, entity: str) -> None:
        """Note that it was."""
        self._db.execute("DELETE FROM unread WHERE entity = ?", (entity,))

    def try_get(self, entity: str, record_id: str) -> Fields | None:
        """The fields of a record."""
        row = self._db.execute(
            "SELECT fields FROM record WHERE entity = ? AND id = ?", (entity, record_id)
        ).fetchone()
        return None if row is None else json.loads(row[0])

    def ids(self, entity: str) -> set[str]:
        """Every record of an entity."""
        return {str(i) for (i,) in self._db.execute("SELECT id FROM record WHERE entity = ?", (entity,))}

    def put(self, entity: str, record_id: str, fields: Fields) -> None:
        """Store a record whole."""
        self._db.execute(
            "INSERT OR REPLACE INTO record VALUES (?, ?, ?)", (entity, record_id, json.dumps(fields))
        )

    def drop(self, entity: str, record_id: str) -> None:
        """Take a record out."""
        self._db.execute("DELETE FROM record WHERE entity = ? AND id = ?", (entity, record_id))

    def commit(self, replay_id: int) -> None:
        """Make everything since the last commit count, together with the place it leads to."""
        self._db.execute("DELETE FROM progress")
        self._db.execute("INSERT INTO progress VALUES (?)", (replay_id,))
        self._db.commit()

    def roll_back(self) -> None:
        """Forget everything since the last commit."""
        self._db.rollback()


class Source:
    """Reads records and types from the server."""

    def __init__(self, signed_in: Login) -> None:
        self._rest = RestClient(signed_in)
        self._layouts: dict[str, Layout] = {}

    def layout(self, entity: str) -> Layout:
        """The entity's fields, as the server last described them."""
        if entity not in self._layouts:
            self._layouts[entity] = read_layout(self._rest, entity)
        return self._layouts[entity]

    def has_changed(self, entity: str) -> bool:
        """Whether the server describes the entity's fields differently now."""
        before = self._layouts.pop(entity, None)
        return before is not None and self.layout(entity) != before

    def read(self, entity: str, record_ids: Iterable[str]) -> dict[str, Fields | None]:
        """Some records as they are now, None for those that are deleted."""
        wanted = list(record_ids)
        names = ["Id", *self.layout(entity).types]
        found: dict[str, Fields | None] = dict.fromkeys(wanted)
        for start in range(0, len(wanted), IDS_AT_A_TIME):
            body = {"ids": wanted[start : start + IDS_AT_A_TIME], "fields": names}
            for record in self._rest.call("POST", f"{API}/composite/sobjects/{entity}", body):
                if record is not None:
                    found[record["Id"]] = self._fields(entity, record)
        return found

    def read_all(self, entity: str) -> Iterator[tuple[str, Fields]]:
        """Every living record, archived ones among them."""
        names = ", ".join(["Id", *self.layout(entity).types])
        soql = f"SELECT {names} FROM {entity} WHERE IsDeleted = false"  # noqa: S608  # a query for the server, by names of its own
        page = self._rest.call("GET", f"{API}/queryAll?q={soql.replace(' ', '+')}")
        while True:
            for record in page["records"]:
                yield record["Id"], self._fields(entity, record)
            if page["done"]:
                return
            page = self._rest.call("GET", page["nextRecordsUrl"])

    def _fields(self, entity: str, record: Mapping[str, Any]) -> Fields:
        return {name: stored_form(record[name], kind) for name, kind in self.layout(entity).types.items()}


class Replicator:
    """Follows the channel and keeps the copy."""

    def __init__(self, copy: Copy, source: Source, entities: Iterable[str]) -> None:
        self._copy = copy
        self._source = source
        self._entities = frozenset(entities)
        self._schemas: dict[str, str] = {}
        self._dirty: dict[tuple[str, str], None] = {}
        self._transaction = ""
        self._replay_id = 0
        if copy.replay_id is None:
            for entity in sorted(self._entities):
                copy.mark_unread(entity)
            # Whatever happens between this and the end of the reading is told by events, some of them twice.
            copy.commit(ALL_EVENTS)

    async def follow(self) -> None:
        """Keep the copy exact for as long as the server can be reached. Raises ServerUnreachable."""
        while True:
            for entity in self._copy.unread:
                self._read_whole(entity)
            async with CometdClient(lambda: login(CREDENTIALS)) as client:
                start = self._copy.replay_id
                await client.subscribe(CHANNEL, ALL_EVENTS if start is None else start)
                await self._take_events(client)

    def _read_whole(self, entity: str) -> None:
        gone = self._copy.ids(entity)
        for record_id, fields in self._source.read_all(entity):
            self._copy.put(entity, record_id, fields)
            gone.discard(record_id)
        for record_id in gone:
            self._copy.drop(entity, record_id)
        self._copy.mark_read(entity)
        self._copy.commit(self._copy.replay_id or ALL_EVENTS)

    async def _take_events(self, client: CometdClient) -> None:
        """Deal with events until an entity has to be read whole."""
        self._transaction = ""
        while not self._copy.unread:
            try:
                event = await asyncio.wait_for(client.receive(), QUIET_S)
            except TimeoutError:
                await self._store_transaction()
                print(f"caught up at replay id {self._copy.replay_id}", flush=True)
                continue
            header = event.data["payload"]["ChangeEventHeader"]
            if header["transactionKey"] != self._transaction:
                await self._store_transaction()
                self._transaction = header["transactionKey"]
            self._replay_id = event.replay_id or self._replay_id
            if header["entityName"] in self._entities:
                self._take(header, event.data)
        await self._store_transaction()

    async def _store_transaction(self) -> None:
        """Read what is dirty, and make the transaction count."""
        if not self._transaction:
            return
        by_entity: dict[str, list[str]] = {}
        for entity, record_id in self._dirty:
            by_entity.setdefault(entity, []).append(record_id)
        self._dirty.clear()
        for entity, record_ids in by_entity.items():
            found = await asyncio.to_thread(self._source.read, entity, record_ids)
            for record_id, fields in found.items():
                if fields is None:
                    self._copy.drop(entity, record_id)
                else:
                    self._copy.put(entity, record_id, fields)
        self._copy.commit(self._replay_id)
        self._transaction = ""

    def _take(self, header: Mapping[str, Any], data: Mapping[str, Any]) -> None:
        entity, kind, record_ids = header["entityName"], header["changeType"], header["recordIds"]
        known = self._schemas.setdefault(entity, data["schema"])
        if known != data["schema"]:
            self._schemas[entity] = data["schema"]
            if self._source.has_changed(entity):
                self._copy.mark_unread(entity)
        if kind == "GAP_OVERFLOW" or record_ids[0].endswith("*"):
            self._copy.mark_unread(entity)
        elif kind.startswith("GAP_"):
            self._dirty.update(dict.fromkeys((entity, record_id) for record_id in record_ids))
        else:
            for record_id in record_ids:
                if (entity, record_id) not in self._dirty:
                    self._apply(header, data["payload"], record_id)

    def _apply(self, header: Mapping[str, Any], payload: Mapping[str, Any], record_id: str) -> None:
        entity, kind = header["entityName"], header["changeType"]
        if kind == "DELETE":
            self._copy.drop(entity, record_id)
            return
        layout = self._source.layout(entity)
        fields: Fields | None = dict.fromkeys(layout.types)
        if kind == "UPDATE":
            fields = self._copy.try_get(entity, record_id)
        if fields is None:
            return
        for name, value in layout.flat(payload):
            if isinstance(value, dict) and "diff" in value:
                text = try_rebuild(fields[name], value["diff"])
                if text is None:
                    self._dirty[entity, record_id] = None
                    return
                fields[name] = text
            else:
                fields[name] = stored_form(value, layout.types[name])
        if payload.get("IsConverted"):
            # The event of a lead's conversion does not tell when it was changed, and no other tells it later.
            self._dirty[entity, record_id] = None
        self._copy.put(entity, record_id, fields)


async def main(path: Path, entities: list[str]) -> None:
    """Keep the copy until Ctrl-C."""
    copy = Copy(path)
    while True:
        try:
            source = Source(await asyncio.to_thread(login, CREDENTIALS))
            await Replicator(copy, source, entities).follow()
        except ServerUnreachable:
            copy.roll_back()
            await asyncio.sleep(RETRY_S)


if __name__ == "__main__":
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2:]))
