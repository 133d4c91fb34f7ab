"""The record types of an object, for describe and layouts."""

from __future__ import annotations

from dataclasses import dataclass

from tidewire.gate.gate import Gate
from tidewire.records.table import read_all_rows
from tidewire.schema.model import ObjectType

MASTER_ID = "012000000000000AAA"


@dataclass(frozen=True, slots=True)
class RecordType:
    """One record type. Every object has the master, which applies to records without a record type."""

    record_type_id: str
    developer_name: str
    name: str
    is_active: bool = True

    @property
    def is_master(self) -> bool:
        """Whether it is the master."""
        return self.record_type_id == MASTER_ID


MASTER = RecordType(MASTER_ID, "Master", "Master")


async def read_record_types(gate: Gate, entity: ObjectType) -> tuple[RecordType, ...]:
    """Read the record types of an object, sorted by name, the master last."""
    if "recordtypeid" not in entity.by_name:
        return (MASTER,)
    table = gate.catalog.object("RecordType")
    rows = await gate.records.read(lambda reader: read_all_rows(reader, table))
    found = [
        RecordType(str(r["Id"]), str(r["DeveloperName"]), str(r["Name"]), bool(r["IsActive"]))
        for r in rows
        if r["SobjectType"] == entity.name and not r.get("IsDeleted")
    ]
    return (*sorted(found, key=lambda each: each.developer_name), MASTER)
