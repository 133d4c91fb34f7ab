"""Sections that are records of setup objects: push topics, and the record types of objects."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from tidewire.errors import RequestError
from tidewire.events import Value
from tidewire.gate.definitions.document import (
    check_name,
    flag_of,
    iter_entries,
    iter_object_entries,
    reject,
    text_of,
)
from tidewire.gate.definitions.plan import Step, try_find, update_steps
from tidewire.records.table import read_all_rows, read_rows
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import ObjectType
from tidewire.schema.values import parse_value

_NEWEST_API = 67.0
_RECORD_TYPE_KEYS = ("label", "description", "active", "person")


def push_topic_steps(unit: UnitOfWork, document: Mapping[str, object]) -> list[Step]:
    """Return a step for each push topic that is missing or differs in a field that the document names."""
    steps: list[Step] = []
    topics = unit.catalog.object("PushTopic")
    for name, path, spec in iter_entries(document, "push_topics"):
        stored = _stored_values(topics, {"Name": name, **spec}, path)
        topic_id = try_find(unit, "PushTopic", "Name", name)
        if topic_id is None:
            values = {"ApiVersion": _NEWEST_API, **spec, "Name": name}
            steps.append(Step(f"create push topic {name}", partial(unit.create, topics, values)))
            continue
        (row,) = read_rows(unit.tx, topics, "Id", [topic_id])
        if any(row.get(n) != v for n, v in stored.items() if n != "Name"):
            steps.append(
                Step(f"update push topic {name}", partial(unit.update, topics, topic_id, dict(spec)))
            )
    return steps


def _stored_values(obj: ObjectType, spec: Mapping[str, object], path: str) -> dict[str, Value]:
    values: dict[str, Value] = {}
    for name, raw in spec.items():
        f = obj.try_field(name)
        if f is None:
            reject(f"{path}.{name}", f"{obj.name} has no field {name}")
        try:
            values[f.name] = parse_value(f, raw)
        except RequestError as error:
            reject(f"{path}.{name}", error.message)
    return values


def record_type_steps(unit: UnitOfWork, document: Mapping[str, object]) -> list[Step]:
    """Return a step for each record type that is missing or differs."""
    types = unit.catalog.object("RecordType")
    stored: dict[tuple[str, str], Mapping[str, Value]] | None = None
    steps: list[Step] = []
    for entity, name, path, spec in iter_object_entries(document, "record_types", _RECORD_TYPE_KEYS):
        obj = unit.catalog.object(entity)
        check_name(name, path)
        wanted: dict[str, object] = {"IsActive": flag_of(spec, "active", True, path)}
        if flag_of(spec, "person", False, path):
            if obj.name != "Account" or obj.try_field("IsPersonAccount") is None:
                reject(f"{path}.person", "only Account can have it, in an org with person accounts")
            wanted["IsPersonType"] = True
        if "label" in spec:
            wanted["Name"] = text_of(spec, "label", "", path)
        if "description" in spec:
            wanted["Description"] = text_of(spec, "description", "", path) or None
        if stored is None:
            rows = [r for r in read_all_rows(unit.tx, types) if not r.get("IsDeleted")]
            stored = {(str(r["SobjectType"]), str(r["DeveloperName"])): r for r in rows}
        what = f"record type {obj.name}.{name}"
        row = stored.get((obj.name, name))
        if row is not None:
            steps += update_steps(unit, types, row, wanted, what)
            continue
        values = {"Name": name.replace("_", " "), **wanted, "DeveloperName": name, "SobjectType": obj.name}
        steps.append(Step(f"create {what}", partial(unit.create, types, values)))
    return steps
