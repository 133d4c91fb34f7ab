"""The codec bench: reading, checking, writing and redacting Avro payloads, beside fastavro.

    python benchmarks/codec.py [--json] [--seconds 0.05] [--pairs 9]

Both sides work on the same payloads by the same schemas, and must agree on every result. The peer is fastavro's
compiled schemaless reader and writer. It has no call that checks a payload, reads only the fields that are set, or
redacts: there the peer decodes, and for redaction changes the values and encodes again. Turns alternate in one run.
"""

from __future__ import annotations

import io
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import orjson
from fastavro import schemaless_reader, schemaless_writer
from fastavro.schema import parse_schema
from measuring import Window
from reporting import bench_parser, show

from tidewire.events import Event, Family
from tidewire.frontends.bayeux.change_forms import ChangeWriter
from tidewire.ids import make_id
from tidewire.schema.avro import change_event_schema, platform_event_schema
from tidewire.schema.bitmap import decode_bitmap, encode_bitmap
from tidewire.schema.codec import EventSchema
from tidewire.schema.fields import checkbox, datetime, double, text
from tidewire.schema.layout import add_fields
from tidewire.schema.model import EventType
from tidewire.schema.redaction import redact_fields
from tidewire.schema.standard import STANDARD_OBJECTS
from tidewire.schema.values import render_datetime

PEER = "fastavro"
DURABILITY = "none: everything is in memory"
HIDDEN = frozenset({"Phone", "AnnualRevenue"})
_CHECKS_BEFORE = 5_000  # so that the schema has compiled its fast check
_ADDED = 200
_BITMAPS = ("nulledFields", "diffFields", "changedFields")
_DATETIMES = frozenset({"CreatedDate", "LastModifiedDate"})
CHANNEL = "/data/AccountChangeEvent"
Call = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Case:
    """One metric: what each side calls, which must give equal results."""

    metric: str
    ours: Call
    peer: Call


class Peer:
    """fastavro by one schema."""

    def __init__(self, schema: EventSchema) -> None:
        self._schema = schema
        self._parsed = parse_schema(json.loads(schema.json))

    def decode(self, payload: bytes) -> dict[str, Any]:
        value: Any = schemaless_reader(io.BytesIO(payload), self._parsed, None)
        return dict(value)

    def encode(self, value: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        schemaless_writer(out, self._parsed, value)
        return out.getvalue()

    def redact(self, payload: bytes) -> bytes:
        value = self.decode(payload)
        header = value["ChangeEventHeader"]
        for bitmap in _BITMAPS:
            if header[bitmap]:
                names = [name for name in decode_bitmap(self._schema, header[bitmap]) if name not in HIDDEN]
                header[bitmap] = encode_bitmap(self._schema, names)
        return self.encode({name: None if name in HIDDEN else held for name, held in value.items()})


def change_event(added: int = 0) -> tuple[EventSchema, dict[str, Any], dict[str, Any]]:
    """The schema of account changes; a new account of fourteen fields, and an update of three.

    The object has `added` custom fields besides, all of them null.
    """
    account = next(each for each in STANDARD_OBJECTS if each.name == "Account")
    account = add_fields(account, [text(f"Added_{n}__c", "Added", 80) for n in range(added)])
    schema = EventSchema(json.dumps(change_event_schema(account)))
    user, now_ms = make_id("005", 1), 1_800_000_000_000
    created = {
        "Name": "Acme 4711",
        "Phone": "+49 30 1234567",
        "Industry": "Energy",
        "AnnualRevenue": 1_250_000.0,
        "NumberOfEmployees": 250,
        "Website": "https://acme.example",
        "Description": "A customer since the first release",
        "BillingAddress": {"Street": "Main Street 1", "City": "Berlin", "PostalCode": "10115"},
        "OwnerId": user,
        "CreatedDate": now_ms,
        "CreatedById": user,
        "LastModifiedDate": now_ms,
        "LastModifiedById": user,
        "CleanStatus": "Pending",
    }
    updated = {"Phone": "+49 30 7654321", "AnnualRevenue": 1_300_000.0, "LastModifiedDate": now_ms}

    def header(change_type: str, body: dict[str, Any]) -> dict[str, Any]:
        names = [*(name for name in body if name != "BillingAddress")]
        names += [f"BillingAddress.{part}" for part in body.get("BillingAddress", ())]
        return {
            "entityName": "Account",
            "recordIds": [make_id("001", 4711)],
            "changeType": change_type,
            "changeOrigin": "com/salesforce/api/rest/67.0",
            "transactionKey": "00051a2b-3c4d-5e6f-7081-92a3b4c5d6e7",
            "sequenceNumber": 1,
            "commitTimestamp": now_ms,
            "commitNumber": 1_234_567_890,
            "commitUser": user,
            "nulledFields": [],
            "diffFields": [],
            "changedFields": encode_bitmap(schema, names) if change_type == "UPDATE" else [],
        }

    return (
        schema,
        {"ChangeEventHeader": header("CREATE", created), **created},
        {"ChangeEventHeader": header("UPDATE", updated), **updated},
    )


def platform_event() -> tuple[EventSchema, dict[str, Any]]:
    """The schema and values of a platform event of six fields."""
    fields = (
        text("Order__c", "Order", 80),
        text("Status__c", "Status", 40),
        double("Amount__c", "Amount", 18, 2),
        datetime("Shipped__c", "Shipped"),
        checkbox("Is_Express__c", "Express"),
        text("Note__c", "Note", 255),
    )
    event = EventType(
        name="Shipment__e", label="Shipment", label_plural="Shipments", key_prefix="e00", fields=fields
    )
    values = {
        "CreatedDate": 1_800_000_000_000,
        "CreatedById": make_id("005", 1),
        "Order__c": "A-2026-004711",
        "Status__c": "shipped",
        "Amount__c": 129.95,
        "Shipped__c": 1_799_999_990_000,
        "Is_Express__c": True,
        "Note__c": "Left at the front desk",
    }
    return EventSchema(json.dumps(platform_event_schema(event))), values


def make_cases() -> list[Case]:
    """Every operation on every kind of event."""
    plain, created, updated = change_event()
    wide_schema, _, wide = change_event(_ADDED)
    cases = []
    for name, schema, value in (
        ("create", plain, created),
        ("update", plain, updated),
        ("update, 200 more fields", wide_schema, wide),
    ):
        cases += _codec_cases(f"change event, {name}", schema, value)
        payload, peer = schema.encode(value), Peer(schema)
        cases.append(
            Case(
                f"change event, {name}: redact two fields",
                partial(redact_fields, schema, payload, HIDDEN),
                partial(peer.redact, payload),
            )
        )
        cases.append(_rendering(f"change event, {name}: render for Bayeux", schema, payload, peer))
    return cases + _codec_cases("platform event", *platform_event())


def _rendering(metric: str, schema: EventSchema, payload: bytes, peer: Peer) -> Case:
    """The JSON message of a change event; the peer decodes and builds it with orjson."""
    writer = ChangeWriter(schema, CHANNEL, frozenset(), names_changed=True)
    event = Event(7, "AccountChangeEvent", Family.CHANGE, payload, 0, schema.schema_id, "", 7)
    for _ in range(_CHECKS_BEFORE):
        writer.write(event)

    def decode_and_dump() -> bytes:
        body = {name: held for name, held in peer.decode(payload).items() if held is not None}
        stored = body.pop("ChangeEventHeader")
        header = {name: held for name, held in stored.items() if name not in _BITMAPS}
        header["changedFields"] = decode_bitmap(schema, stored["changedFields"])
        for name, held in body.items():
            if name in _DATETIMES:
                body[name] = render_datetime(held, "Z")
            elif isinstance(held, dict):
                body[name] = {part: value for part, value in held.items() if value is not None}
        message = {"ChangeEventHeader": header, **body}
        data = {"schema": schema.schema_id, "payload": message, "event": {"replayId": event.position}}
        return orjson.dumps({"data": data, "channel": CHANNEL})

    return Case(metric, partial(writer.write, event), decode_and_dump)


def _codec_cases(name: str, schema: EventSchema, value: dict[str, Any]) -> list[Case]:
    peer, payload = Peer(schema), schema.encode(value)
    for _ in range(_CHECKS_BEFORE):
        schema.check(payload)
    if peer.encode(value) != payload:
        raise AssertionError(f"{name}: the two sides write other bytes")

    def set_fields() -> dict[str, Any]:
        return {key: held for key, held in peer.decode(payload).items() if held is not None}

    def check() -> None:
        peer.decode(payload)

    cases = [
        Case(f"{name}: decode", partial(schema.decode, payload), partial(peer.decode, payload)),
        Case(f"{name}: check", partial(schema.check, payload), check),
        Case(f"{name}: encode", partial(schema.encode, value), partial(peer.encode, value)),
    ]
    if "ChangeEventHeader" in value:
        cases.append(Case(f"{name}: decode set fields", partial(schema.decode_non_null, payload), set_fields))
    return cases


def measure(call: Call, seconds: float) -> float:
    """Nanoseconds of CPU time of one call, from a turn of about that length."""
    count, spent = 16, 0.0
    while True:
        started = time.process_time()
        for _ in range(count):
            call()
        spent = time.process_time() - started
        if spent >= seconds:
            return spent / count * 1e9
        count = max(count * 2, int(count * seconds / max(spent, 1e-9)))


def run(seconds: float, pairs: int) -> dict[str, Any]:
    """Measure every case in alternating turns."""
    window = Window(())
    rows = []
    for case in make_cases():
        if case.ours() != case.peer():
            raise AssertionError(f"{case.metric}: the two sides differ")
        turns = [(measure(case.ours, seconds), measure(case.peer, seconds)) for _ in range(pairs)]
        ours, peer = (statistics.median(side) for side in zip(*turns, strict=True))
        # As everywhere, more is better: how much quicker ours is.
        ratio = statistics.median(b / a for a, b in turns)
        rows.append(
            {
                "metric": case.metric,
                "unit": "ns",
                "ours": round(ours),
                "peers": {PEER: round(peer)},
                "ratio": {PEER: round(ratio, 2)},
                "cpu_ratio": {},
            }
        )
    return {"bench": "codec", "results": rows, "durability": DURABILITY, "clean": window.close().is_clean}


def print_table(outcome: dict[str, Any]) -> None:
    """The figures for people."""
    print(f"{'CPU ns per call':<58}{'ours':>10}{PEER:>10}{'quicker':>9}")
    for row in outcome["results"]:
        print(f"{row['metric']:<58}{row['ours']:>10}{row['peers'][PEER]:>10}{row['ratio'][PEER]:>8}x")


def main() -> None:
    """Run the bench."""
    parser = bench_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=0.05, help="length of one turn")
    parser.add_argument("--pairs", type=int, default=9, help="turns of each side for each metric")
    arguments = parser.parse_args()
    show(run(arguments.seconds, arguments.pairs), print_table, as_json=arguments.json)


if __name__ == "__main__":
    main()
