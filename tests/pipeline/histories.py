"""Generated histories of an org: real Avro events, and the expected records beside them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import strategies as st

from tidewire.ids import make_id
from tidewire.pipeline.lake.columns import kinds_of, parse_column
from tidewire.pipeline.lake.files import DataFile
from tidewire.pipeline.lake.manifest import newest
from tidewire.pipeline.lake.schemas import append_schemas
from tidewire.pipeline.lake.tables import Lake, append_files, open_table
from tidewire.pipeline.replicas.replica import read_replica
from tidewire.pipeline.source.bronze_files import HeaderCache, render_bronze
from tidewire.pipeline.source.bus import BusSettings
from tidewire.pipeline.source.event_source import ROWS
from tidewire.schema.avro import change_event_schema
from tidewire.schema.bitmap import encode_bitmap
from tidewire.schema.codec import EventSchema
from tidewire.schema.fields import date, double, text
from tidewire.schema.layout import add_fields, custom_object
from tidewire.schema.model import ObjectType
from tidewire.schema.standard.accounts import ACCOUNT, CONTACT

INVOICE = custom_object(
    "Invoice__c", "Invoice", "Invoices", "a00", 1001, None, [double("Total__c", "Total", 18, 2)]
)
INVOICE_2 = add_fields(INVOICE, [date("Due__c", "Due"), text("Note__c", "Note", 255)])


def schema_of(obj: ObjectType) -> EventSchema:
    """The change event schema of an object."""
    return EventSchema(json.dumps(change_event_schema(obj)))


SCHEMAS = {"Account": [schema_of(ACCOUNT)], "Contact": [schema_of(CONTACT)]}
SCHEMAS["Invoice__c"] = [schema_of(INVOICE), schema_of(INVOICE_2)]
PREFIXES = {"Account": "001", "Contact": "003", "Invoice__c": "a00"}
FIELDS: dict[str, dict[str, st.SearchStrategy[Any]]] = {
    "Account": {
        "Name": st.text("abcdé ", min_size=1, max_size=8),
        "Phone": st.sampled_from(["1", "22", None]),
        "AnnualRevenue": st.one_of(st.none(), st.floats(-1e9, 1e9)),
        "NumberOfEmployees": st.one_of(st.none(), st.integers(0, 10_000)),
        "BillingAddress.City": st.sampled_from(["Bonn", "Lyon", None]),
        "BillingAddress.Latitude": st.one_of(st.none(), st.floats(-90, 90)),
        "ShippingAddress.City": st.sampled_from(["Oslo", None]),
        "LastModifiedDate": st.integers(1_600_000_000, 1_800_000_000).map(lambda s: s * 1000),
    },
    "Contact": {
        "Name.FirstName": st.sampled_from(["Ada", "Bo", None]),
        "Name.LastName": st.sampled_from(["Lee", "Kim"]),
        "Email": st.sampled_from(["a@b.example", None]),
    },
    "Invoice__c": {
        "Name": st.sampled_from(["I-1", "I-2"]),
        "Total__c": st.one_of(st.none(), st.floats(0, 1e6)),
        "Due__c": st.one_of(st.none(), st.integers(-20_000, 20_000).map(lambda d: d * 86_400_000)),
        "Note__c": st.sampled_from(["x", None]),
    },
}
NEW_FIELDS = frozenset({"Due__c", "Note__c"})


@dataclass
class BusEvent:
    """One event as the bus source gives it."""

    replay_id: int
    schema_id: str
    payload: bytes
    transaction_last: int | None
    header: Mapping[str, Any] = field(default_factory=dict)


@dataclass
class Truth:
    """What the records really are: (entity, id) -> flat non-null values, and which of them are deleted."""

    live: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    deleted: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)

    def copy(self) -> Truth:
        return Truth(
            {k: dict(v) for k, v in self.live.items()}, {k: dict(v) for k, v in self.deleted.items()}
        )


def flat(values: Mapping[str, Any]) -> dict[str, Any]:
    """Non-null values under replica column names."""
    return {name.replace(".", "_"): value for name, value in values.items() if value is not None}


class History:
    """Collects transactions: each makes events and changes the truth."""

    def __init__(self, first: int = 1000) -> None:
        self.events: list[BusEvent] = []
        self.truth = Truth()
        self.truths: list[tuple[int, Truth]] = []
        self.changes = 0
        self._position = first
        self._transactions = 0
        self._records = 0
        self._open: list[tuple[int, EventSchema, dict[str, Any]]] = []

    @property
    def position(self) -> int:
        """The last position given out."""
        return self._position

    def new_id(self, entity: str) -> str:
        self._records += 1
        return make_id(PREFIXES[entity], self._records)

    def create(self, entity: str, values: Mapping[str, Any], version: int = -1) -> str:
        record_id = self.new_id(entity)
        self.truth.live[entity, record_id] = flat(values)
        self.add(entity, "CREATE", [record_id], values, version=version)
        return record_id

    def update(self, entity: str, ids: list[str], values: Mapping[str, Any], version: int = -1) -> None:
        for record_id in ids:
            row = self.truth.live[entity, record_id]
            for name, value in values.items():
                row.pop(name.replace(".", "_"), None)
                row.update(flat({name: value}))
        self.add(entity, "UPDATE", ids, values, changed=list(values), version=version)

    def delete(self, entity: str, ids: list[str], version: int = -1) -> None:
        for record_id in ids:
            self.truth.deleted[entity, record_id] = self.truth.live.pop((entity, record_id))
        self.add(entity, "DELETE", ids, {}, version=version)

    def undelete(self, entity: str, record_id: str, values: Mapping[str, Any], version: int = -1) -> None:
        del self.truth.deleted[entity, record_id]
        self.truth.live[entity, record_id] = flat(values)
        self.add(entity, "UNDELETE", [record_id], values, version=version)

    def add(
        self,
        entity: str,
        change_type: str,
        ids: list[str],
        values: Mapping[str, Any],
        *,
        changed: Iterable[str] = (),
        diff: Iterable[str] = (),
        version: int = -1,
        key: str | None = None,
        is_ungrouped: bool = False,
    ) -> None:
        """Add any event to the open transaction, without touching the truth. `key` is a transaction key of its
        own, as gap events may have one; an ungrouped event shares the replay id of the one before.
        """
        schema = SCHEMAS[entity][version]
        if not is_ungrouped:
            self._position += 1 + len(self._open) % 2
        event: dict[str, Any] = {}
        for name, value in values.items():
            parent, _, component = name.partition(".")
            if component and value is not None:
                event.setdefault(parent, {})[component] = value
            elif not component:
                event[parent] = value
        changed = list(changed)
        event["ChangeEventHeader"] = {
            "entityName": entity,
            "recordIds": ids,
            "changeType": change_type,
            "changeOrigin": "com/example/test",
            "transactionKey": key or f"{self._transactions:036d}",
            "sequenceNumber": 1 if key else len(self._open) + 1,
            "commitTimestamp": 1_700_000_000_000 + self._transactions * 1000,
            "commitNumber": 10**18 + self._transactions,
            "commitUser": "005TW0000000001AAA",
            "nulledFields": encode_bitmap(schema, [name for name in changed if values.get(name) is None]),
            "diffFields": encode_bitmap(schema, diff),
            "changedFields": encode_bitmap(schema, changed),
        }
        self.changes += len(ids)
        self._open.append((self._position, schema, event))

    def commit(self, hidden: int = 0, *, has_last: bool = True) -> None:
        """Close the transaction; `hidden` positions at its end are not for this channel."""
        self._transactions += 1
        if self._open:
            last = self._position + hidden
            self.events += [
                BusEvent(
                    position,
                    schema.schema_id,
                    schema.encode(event),
                    last if has_last else None,
                    event["ChangeEventHeader"],
                )
                for position, schema, event in self._open
            ]
            self._open = []
        self._position += hidden
        self.truths.append((self._position, self.truth.copy()))


def write_bronze(lake: Lake, events: Iterable[BusEvent], through: int) -> None:
    """Archive events as the archive query would, without a bus. The lake then knows the log to `through`."""
    schemas = {schema.schema_id: schema.json for versions in SCHEMAS.values() for schema in versions}
    append_schemas(lake, {schema_id: (text, 0) for schema_id, text in schemas.items()}, 1)
    bronze = open_table(lake, "bronze")
    headers = HeaderCache(schemas, BusSettings("unused:1", "/data/ChangeEvents", token="unused"), None)
    rows = [
        {
            "replay_id": event.replay_id,
            "event_id": f"e-{event.replay_id}",
            "topic": "/data/ChangeEvents",
            "schema_id": event.schema_id,
            "payload": event.payload,
            "transaction_last": event.transaction_last,
        }
        for event in events
    ]
    batch = render_bronze(pa.RecordBatch.from_pylist(rows, schema=ROWS), bronze.floor, headers)
    actions = []
    if batch.num_rows:
        name = f"part-{through}.parquet"
        path = f"{lake.table('bronze')}/{name}"
        pq.write_table(pa.Table.from_batches([batch]), path)
        positions = batch.column("replay_id").to_pylist()
        ends = positions[0], positions[-1]
        actions = [DataFile(name, os.path.getsize(path), len(positions), *ends).add_action(0)]
    append_files(bronze, actions, through, epoch=1)


def read_replicas(lake: Lake, as_of: int | None = None) -> Truth:
    """The replicas at a row of the manifest, in the shape of the truth."""
    found = Truth()
    row = newest(lake, as_of)
    for entity in row.entities if row is not None else ():
        rows = read_replica(lake, entity, as_of=as_of, with_deleted=True)
        for record_id, is_deleted, values in native_rows(rows):
            side = found.deleted if is_deleted else found.live
            side[entity, record_id] = values
    return found


def native_rows(rows: pa.Table) -> Iterator[tuple[str, bool, dict[str, Any]]]:
    """(id, is deleted, non-null values as Avro sends them) of each row of a replica."""
    columns = {name: parse_column(rows[name], kind) for name, kind in kinds_of(rows.schema).items()}
    own = zip(rows["Id"].to_pylist(), rows["_deleted"].to_pylist(), strict=True)
    for i, (record_id, is_deleted) in enumerate(own):
        values = {name: column[i] for name, column in columns.items() if column[i] is not None}
        yield record_id, is_deleted, values


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Transactions of creates, merged updates, deletes and undeletes; three objects, two schema versions."""
    history = History(first=draw(st.integers(1, 10**15)))
    for _ in range(draw(st.integers(1, 8))):
        touched: set[str] = set()
        for _ in range(draw(st.integers(0, 5))):
            _draw_operation(draw, history, touched)
        history.commit(hidden=draw(st.integers(0, 2)))
    return history


def _draw_operation(draw: st.DrawFn, history: History, touched: set[str]) -> None:
    entity = draw(st.sampled_from(sorted(FIELDS)))
    version = draw(st.integers(0, len(SCHEMAS[entity]) - 1))
    names = [name for name in FIELDS[entity] if version or name not in NEW_FIELDS]
    full = {name: draw(FIELDS[entity][name]) for name in names}
    # One record changes once per transaction: several operations on it make one event.
    live = sorted(i for e, i in history.truth.live if e == entity and i not in touched)
    gone = sorted(i for e, i in history.truth.deleted if e == entity and i not in touched)
    match draw(st.sampled_from(["create", "update", "update", "delete", "undelete"])):
        case "update" if live:
            ids = draw(st.lists(st.sampled_from(live), min_size=1, max_size=3, unique=True))
            some = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
            history.update(entity, ids, {name: full[name] for name in some}, version)
        case "delete" if live:
            ids = [draw(st.sampled_from(live))]
            history.delete(entity, ids, version)
        case "undelete" if gone:
            ids = [draw(st.sampled_from(gone))]
            history.undelete(entity, ids[0], full, version)
        case _:
            ids = [history.create(entity, full, version)]
    touched.update(ids)
