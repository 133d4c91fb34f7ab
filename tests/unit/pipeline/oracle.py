"""A made-up org that tells its changes in every way the guide knows, and a plain applier beside it.

`Org` holds the records as they really are and turns each operation into events, some of which tell less than
what happened: gaps, overflows, text differences, conversions, corrupt payloads. `Oracle` applies what was
told, and what was read in between, to one dict per record; it shares no code with the pipeline.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.pipeline.histories import PREFIXES, SCHEMAS, BusEvent, History, schema_of
from tidewire.capture.text_differences import try_difference
from tidewire.ids import EMPTY_ID
from tidewire.schema.codec import EventSchema
from tidewire.schema.fields import checkbox, date, double, text
from tidewire.schema.layout import add_fields, custom_object
from tidewire.schema.model import Field


def _bill(amount: Field, size: Field, *more: Field) -> EventSchema:
    bill = custom_object("Bill__c", "Bill", "Bills", "a01", 1002, None, [amount, size])
    return schema_of(add_fields(bill, list(more)) if more else bill)


_AMOUNTS = text("Amount__c", "Amount", 80), double("Amount__c", "Amount", 18, 2)
_SIZES = double("Size__c", "Size", 18, 2), text("Size__c", "Size", 80), text("Bulk__c", "Bulk", 80)
_DUE, _PAID = date("Due__c", "Due"), checkbox("Paid__c", "Paid")
SCHEMAS["Bill__c"] = [
    _bill(_AMOUNTS[0], _SIZES[0]),
    _bill(_AMOUNTS[1], _SIZES[0]),
    _bill(_AMOUNTS[1], _SIZES[0], _DUE),
    _bill(_AMOUNTS[1], _SIZES[1], _DUE),
    _bill(_AMOUNTS[1], _SIZES[2], _DUE),
    _bill(_AMOUNTS[1], _SIZES[2], _DUE, _PAID),
]
"""An amount that is text, then a number (values are lost); then one field more; then a size that was a number
and becomes text (values are kept); then the size is renamed; then there is a checkbox, which every record has.
"""
RENAMED, CHECKED = 4, 5
PREFIXES["Bill__c"] = "a01"
ENTITIES = ("Account", "Contact", "Invoice__c", "Bill__c")
COLUMNS = {
    "Account": (
        "Name",
        "Phone",
        "BillingAddress.Street",
        "BillingAddress.City",
        "BillingAddress.Latitude",
        "AnnualRevenue",
        "Description",
        "LastModifiedDate",
    ),
    "Contact": ("Name.LastName", "Name.FirstName", "Email"),
    "Invoice__c": ("Name", "Total__c"),
    "Bill__c": ("Name", "Amount__c", "Size__c"),
}
LINES = [
    f"Line {n} of a description that is long enough to be told by what differs in it." for n in range(16)
]

Values = dict[str, Any]


@dataclass(frozen=True)
class Told:
    """One event, or one read, as the oracle takes it."""

    position: int
    sequence: int
    kind: str
    entity: str
    ids: tuple[str, ...]
    values: Mapping[str, Any] = field(default_factory=dict)
    settled: int = 0
    version: int = 0


@dataclass(frozen=True)
class TextChange:
    """A text that was told by its difference."""

    old: str
    new: str


@dataclass
class State:
    """A record as far as it was told."""

    values: Values = field(default_factory=dict)
    exists: bool = False
    is_deleted: bool = False
    is_stale: bool = False


def column(name: str) -> str:
    return name.replace(".", "_")


class Oracle:
    """Applies everything told, in order, to one dict per record."""

    def __init__(self) -> None:
        self.told: list[Told] = []

    def at(self, position: int) -> dict[tuple[str, str], State]:
        """Every record that has a row, as of a position."""
        states: dict[tuple[str, str], State] = {}
        seen = [t for t in self.told if t.position <= position and t.settled <= position]
        for told in sorted(seen, key=lambda t: (t.position, t.kind in ("read", "missing"), t.sequence)):
            if told.kind == "version":
                _retype(states, told.entity, told.values["version"])
                continue
            if told.kind in ("overflow", "wildcard"):
                for (entity, _), state in states.items():
                    if entity == told.entity and state.exists and not state.is_deleted:
                        _apply_to_all(state, told)
                continue
            for record_id in told.ids:
                state = states.setdefault((told.entity, record_id), State())
                _retype({(told.entity, record_id): state}, "Bill__c", told.version)
                states[told.entity, record_id] = _apply(state, told)
        return {key: state for key, state in states.items() if state.exists}


def _apply_to_all(state: State, told: Told) -> None:
    if told.kind == "overflow":
        state.is_stale = True
    else:
        for name in told.values:
            state.values.pop(name, None)


def _apply(state: State, told: Told) -> State:
    match told.kind:
        case "full" | "read":
            # What an older type held is no field of the record any more, so no later row tells of it.
            kept = {k: v for k, v in state.values.items() if k == OLD_TEXT and told.version}
            return State({**kept, **{k: v for k, v in told.values.items() if v is not None}}, exists=True)
        case "delete":
            return replace(state, exists=True, is_deleted=True, is_stale=False)
        case "missing":
            return replace(state, is_deleted=True, is_stale=False)
        case "update" if state.exists and not state.is_deleted:
            values, is_stale = dict(state.values), state.is_stale
            if not told.version and "Amount__c" in told.values:
                values.pop(OLD_TEXT, None)
            for name, value in told.values.items():
                if isinstance(value, TextChange):
                    if values.get(name) in (value.old, value.new):
                        values[name] = value.new
                    else:
                        is_stale = True
                elif value is None:
                    values.pop(name, None)
                else:
                    values[name] = value
            return replace(state, values=values, is_stale=is_stale)
        case _:
            return replace(state, is_stale=True)


OLD_TEXT = f"Amount__c__old_{SCHEMAS['Bill__c'][0].schema_id[:8]}"


def _retype(states: Mapping[tuple[str, str], State], entity: str, version: int) -> None:
    """What a change of Bill__c's schema does to values already told."""
    for (other, _), state in states.items():
        amount, size = state.values.get("Amount__c"), state.values.get("Size__c")
        if other != entity:
            continue
        if version > 0 and isinstance(amount, str):
            state.values[OLD_TEXT] = amount
            del state.values["Amount__c"]
            if amount[:1].isdigit():
                state.values["Amount__c"] = float(amount)
        if version > 2 and isinstance(size, float):
            state.values["Size__c"] = text_of(size)


def text_of(number: float) -> str:
    return str(int(number)) if number.is_integer() else repr(number)


class Org:
    """The records of an org, its log, and what the log tells. One that `conceals` makes some records without an
    event. Some orgs are on a server that does not tell where transactions end.
    """

    def __init__(self, seed: int, *, conceals: bool = False) -> None:
        self.random = random.Random(seed)
        self.conceals = conceals
        self.tells_ends = self.random.random() < 0.7
        self.history = History()
        self.oracle = Oracle()
        self.live: dict[str, dict[str, Values]] = {entity: {} for entity in ENTITIES}
        self.bin: dict[str, dict[str, Values]] = {entity: {} for entity in ENTITIES}
        self.version = {"Bill__c": 0, "Invoice__c": 0}
        self.versions: list[tuple[int, int]] = []
        self.past: list[tuple[int, dict[str, dict[str, Values]]]] = []
        self.corrupt: set[int] = set()
        self._sequence = 0
        self._touched: set[str] = set()

    def transact(self) -> None:
        """A transaction of some random operations."""
        self._sequence = 0
        self._touched = set()
        for _ in range(self.random.randint(1, 5)):
            entity = self.random.choice(ENTITIES)
            operation = self.random.choices(
                [
                    self.create,
                    self.update,
                    self.delete,
                    self.undelete,
                    self.overflow,
                    self.convert,
                    self.conceal,
                ],
                [6, 8, 2, 2, 1, 1, 1],
            )[0]
            operation(entity)
        first = len(self.history.events)
        hidden = self.random.randint(0, 2) if self.tells_ends else 1
        self.history.commit(hidden=hidden, has_last=self.tells_ends)
        self._spoil(self.history.events[first:])
        self.versions.append((self.history.position, self.version["Bill__c"]))
        self.past.append((self.history.position, {e: dict(rows) for e, rows in self.live.items()}))

    def create(self, entity: str) -> None:
        """A new record; sometimes only its gap is told."""
        record_id = self.history.new_id(entity)
        values = self._values(entity, self._columns(entity))
        self.live[entity][record_id] = _flat(values)
        self._touched.add(record_id)
        self._tell_full(entity, record_id, values, "CREATE")

    def conceal(self, entity: str) -> None:
        """A new record that no event tells of."""
        if self.conceals:
            record_id = self.history.new_id(entity)
            self.live[entity][record_id] = _flat(self._values(entity, self._columns(entity)))
            self._touched.add(record_id)

    def update(self, entity: str) -> None:
        """New values for one record or several alike."""
        ids = self._some(self.live[entity], 3)
        if not ids:
            return
        columns = self._columns(entity)
        names = self.random.sample(columns, self.random.randint(1, len(columns)))
        values = self._values(entity, names)
        texts = {i: self.live[entity][i].get("Description") for i in ids}
        for record_id in ids:
            row = dict(self.live[entity][record_id])
            for name, value in values.items():
                row.pop(column(name), None)
                row.update(_flat({name: value}))
            self.live[entity][record_id] = row
        if self.random.random() < 0.12:
            self._tell_gap(entity, "GAP_UPDATE", ids)
            return
        told, diff = dict(values), []
        old, new = texts[ids[0]], values.get("Description")
        difference = try_difference(old, new) if len(ids) == 1 and old and new else None
        if difference is not None:
            told["Description"], diff = difference, ["Description"]
        enriched = {"Site": "enriched"} if entity == "Account" and self.random.random() < 0.3 else {}
        # Enriched events of several records are told one by one, under one replay id.
        for i, part in enumerate([[each] for each in ids] if enriched else [ids]):
            more = {"changed": list(values), "diff": diff, "is_ungrouped": i > 0}
            self._add(entity, "UPDATE", part, {**told, **enriched}, **more)
        seen: Values = {column(name): value for name, value in values.items()}
        if diff and old:
            seen["Description"] = TextChange(old, str(new))
        self._note("update", entity, ids, seen)

    def delete(self, entity: str) -> None:
        """One or more records go to the bin."""
        ids = self._some(self.live[entity], 2)
        if not ids:
            return
        for record_id in ids:
            self.bin[entity][record_id] = self.live[entity].pop(record_id)
        self._add(entity, self.random.choice(["DELETE", "DELETE", "GAP_DELETE"]), ids, {})
        self._note("delete", entity, ids, {})

    def undelete(self, entity: str) -> None:
        """A record comes back, with all its fields told."""
        ids = self._some(self.bin[entity], 1)
        if ids:
            del self.bin[entity][ids[0]]
            values = self._values(entity, self._columns(entity))
            self.live[entity][ids[0]] = _flat(values)
            self._tell_full(entity, ids[0], values, "UNDELETE")

    def overflow(self, entity: str) -> None:
        """Changes too many to be told one by one."""
        for record_id in self._some(self.live[entity], 3):
            self.live[entity][record_id] = _flat(self._values(entity, self._columns(entity)))
        record_id = self.history.new_id(entity)
        self.live[entity][record_id] = _flat(self._values(entity, self._columns(entity)))
        self._touched.add(record_id)
        self._add(entity, "GAP_OVERFLOW", [EMPTY_ID], {})
        self._note("overflow", entity, [], {})

    def convert(self, _entity: str) -> None:
        """The next schema of Bill__c."""
        version = self.version["Bill__c"] + 1
        if version >= len(SCHEMAS["Bill__c"]) or self._touched & {
            *self.live["Bill__c"],
            *self.bin["Bill__c"],
        }:
            return
        self.version["Bill__c"] = version
        for rows in (self.live["Bill__c"], self.bin["Bill__c"]):
            for record_id, row in rows.items():
                if version == 1:
                    rows[record_id] = {name: value for name, value in row.items() if name != "Amount__c"}
                elif version == 3 and "Size__c" in row:
                    rows[record_id] = {**row, "Size__c": text_of(row["Size__c"])}
                elif version == RENAMED:
                    rows[record_id] = {
                        "Bulk__c" if name == "Size__c" else name: value for name, value in row.items()
                    }
                elif version == CHECKED:
                    rows[record_id] = {**row, "Paid__c": False}
        if version == 1:
            self._add("Bill__c", "UPDATE", ["a01*"], {}, changed=["Amount__c"])
            self._note("wildcard", "Bill__c", [], {"Amount__c": None})
        # An event by the new schema, so that everybody knows of it from here on.
        record_id = self.history.new_id("Bill__c")
        values = self._values("Bill__c", self._columns("Bill__c"))
        self.live["Bill__c"][record_id] = _flat(values)
        self._touched.add(record_id)
        self._add("Bill__c", "CREATE", [record_id], values)
        self._note("full", "Bill__c", [record_id], _flat(values))

    def read(self, entity: str, record_id: str, fence: int, settled: int, now: int) -> None:
        """Tell the oracle what a read of a record finds; `now` lies between the two."""
        rows = self.rows_at(entity, now)
        kind = "read" if record_id in rows else "missing"
        version = SCHEMAS[entity].index(self.schema_at(entity, now)) if entity == "Bill__c" else 0
        values = rows.get(record_id, {})
        self.oracle.told.append(Told(fence, 0, kind, entity, (record_id,), values, settled, version))

    def rows_at(self, entity: str, position: int) -> dict[str, Values]:
        """The living records of an object as they really were at a position."""
        found: dict[str, Values] = {}
        for at, rows in self.past:
            if at <= position:
                found = rows[entity]
        return found

    def schema_at(self, entity: str, position: int) -> EventSchema:
        """The schema by which a record is read at a position."""
        version = -1 if entity != "Bill__c" else 0
        for at, then in self.versions if entity == "Bill__c" else ():
            if at <= position:
                version = then
        return SCHEMAS[entity][version]

    def _columns(self, entity: str) -> tuple[str, ...]:
        version = self.version["Bill__c"]
        if entity != "Bill__c" or version < RENAMED:
            return COLUMNS[entity]
        return ("Name", "Amount__c", "Bulk__c", "Paid__c")[: 3 if version < CHECKED else 4]

    def _tell_full(self, entity: str, record_id: str, values: Values, change_type: str) -> None:
        if self.random.random() < 0.1:
            self._tell_gap(entity, f"GAP_{change_type}", [record_id])
            return
        self._add(entity, change_type, [record_id], values)
        self._note("full", entity, [record_id], _flat(values))

    def _tell_gap(self, entity: str, change_type: str, ids: list[str]) -> None:
        key = f"{self.random.getrandbits(128):036d}"[:36] if self.random.random() < 0.5 else None
        self._add(entity, change_type, ids, {}, key=key)
        self._note("gap", entity, ids, {})

    def _add(self, entity: str, change_type: str, ids: list[str], values: Values, **more: Any) -> None:
        self._sequence += not more.get("is_ungrouped")
        version = self.version.get(entity, -1)
        if entity == "Invoice__c":  # both of its schemas, in any order
            version = self.random.randint(0, 1)
        self.history.add(entity, change_type, ids, values, version=version, **more)
        if entity == "Bill__c":
            self.oracle.told.append(
                Told(self.history.position, 0, "version", entity, (), {"version": version})
            )

    def _note(self, kind: str, entity: str, ids: Iterable[str], values: Values) -> None:
        version = self.version["Bill__c"] if entity == "Bill__c" else 0
        told = Told(self.history.position, self._sequence, kind, entity, tuple(ids), values, version=version)
        self.oracle.told.append(told)

    def _spoil(self, events: list[BusEvent]) -> None:
        """Damage the end of some payloads, but not of an object's first event: a moment when nothing of an object was
        understood has no columns for what is read of it later."""
        positions = [event.replay_id for event in events]
        first = {e.header["entityName"]: e.replay_id for e in reversed(self.history.events)}
        for event in events:
            if positions.count(event.replay_id) > 1:
                continue
            notes = [t for t in self.oracle.told if t.position == event.replay_id and t.kind != "version"]
            if (
                self.random.random() < 0.04
                and notes[0].kind in ("update", "full")
                and notes[0].entity != "Bill__c"
                and event.replay_id > first[notes[0].entity]
            ):
                event.payload = event.payload[:-1]
                self.oracle.told = [t for t in self.oracle.told if t.position != event.replay_id]
                self.oracle.told.append(replace(notes[0], kind="gap", values={}))
                self.corrupt.add(event.replay_id)

    def _some(self, rows: Mapping[str, Any], most: int) -> list[str]:
        """Some records that this transaction has not touched, which it then has."""
        free = sorted(set(rows) - self._touched)
        found = self.random.sample(free, min(len(free), self.random.randint(1, most)))
        self._touched.update(found)
        return found

    def _values(self, entity: str, names: Iterable[str]) -> Values:
        return {name: self._value(entity, name) for name in names}

    def _value(self, entity: str, name: str) -> Any:
        pick = self.random
        match name:
            case "AnnualRevenue" | "Total__c" | "BillingAddress.Latitude":
                return pick.choice([None, pick.randint(0, 9) / 4])
            case "LastModifiedDate":
                return 1_700_000_000_000 + pick.randint(0, 9) * 1000
            case "Description":
                lines = [line + "!" * (pick.random() < 0.1) for line in LINES]
                return pick.choice([None, "\r\n".join(lines), "\n".join(lines), "\n".join(lines)])
            case "Amount__c":
                return pick.choice(
                    [None, 7.0, 2.5] if self.version["Bill__c"] else [None, "many", "7", "2.5"]
                )
            case "Size__c":
                return pick.choice([None, 4.0, 0.5] if self.version["Bill__c"] < 3 else [None, "wide", "4"])
            case "Bulk__c" | "Name.FirstName" | "BillingAddress.Street":
                return pick.choice([None, "wide", "4"])
            case "Paid__c":
                return pick.choice([False, True])
            case _:
                return pick.choice([f"{name} {pick.randint(0, 9)}", "é" * 3])


def _flat(values: Mapping[str, Any]) -> Values:
    return {column(name): value for name, value in values.items() if value is not None}
