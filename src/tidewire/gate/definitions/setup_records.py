"""Sections that are records of setup objects: push topics, and the record types of objects."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from tidewire.errors import RequestError
from tidewire.events import Value
from tidewire.gate.definitions.custom_fields import check_keys, mapping
from tidewire.gate.definitions.document import flag_of, refuse, text_of
from tidewire.gate.definitions.plan import Step
from tidewire.names import is_api_name
from tidewire.records.table import read_all_rows, read_rows, try_find_by_value
from tidewire.records.work import UnitOfWork
from tidewire.schema.model import ObjectType
from tidewire.schema.values import parse_value

_NEWEST_API = 67.0


def push_topic_steps(unit: UnitOfWork, document: Mapping[str, object]) -> list[Step]:
    """A step for each push topic that is missing or differs in a field that the document names."""
    steps: list[Step] = []
    topics = unit.catalog.object("PushTopic")
    for name, value in mapping(document.get("push_topics"), "push_topics").items():
        path = f"push_topics.{name}"
        spec = mapping(value, path)
        stored = _stored_values(topics, {"Name": name, **spec}, path)
        topic_id = try_find_by_value(unit.tx, topics, topics.by_name["name"], name)
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
            refuse(f"{path}.{name}", f"{obj.name} has no field {name}")
        try:
            values[f.name] = parse_value(f, raw)
        except RequestError as error:
            refuse(f"{path}.{name}", error.message)
    return values


def record_type_steps(unit: UnitOfWork, document: Mapping[str, object]) -> list[Step]:
    """A step for each record type that is missing or differs."""
    steps: list[Step] = []
    for entity, value in mapping(document.get("objects"), "objects").items():
        path = f"objects.{entity}.record_types"
        specs = mapping(mapping(value, f"objects.{entity}").get("record_types"), path)
        if specs:
            obj = unit.catalog.object(entity)
            steps += _record_types(unit, obj, specs, path)
    return steps


def _record_types(unit: UnitOfWork, obj: ObjectType, specs: Mapping[str, Any], path: str) -> list[Step]:
    types = unit.catalog.object("RecordType")
    held = {
        str(r["DeveloperName"]): r
        for r in read_all_rows(unit.tx, types)
        if r["SobjectType"] == obj.name and not r.get("IsDeleted")
    }
    steps: list[Step] = []
    for name, value in specs.items():
        own_path = f"{path}.{name}"
        spec = mapping(value, own_path)
        check_keys(spec, ("label", "description", "active", "person"), own_path)
        if not is_api_name(name):
            refuse(own_path, "not a name")
        row = held.get(name)
        wanted: dict[str, object] = {"Name": text_of(spec, "label", name.replace("_", " "), own_path)}
        wanted["IsActive"] = flag_of(spec, "active", True, own_path)
        if flag_of(spec, "person", False, own_path):
            if obj.name != "Account" or obj.try_field("IsPersonAccount") is None:
                refuse(f"{own_path}.person", "only Account has them, in an org with person accounts")
            wanted["IsPersonType"] = True
        if "description" in spec:
            wanted["Description"] = text_of(spec, "description", "", own_path) or None
        if row is None:
            values = {**wanted, "DeveloperName": name, "SobjectType": obj.name}
            steps.append(Step(f"create record type {obj.name}.{name}", partial(unit.create, types, values)))
            continue
        given = wanted if "label" in spec else {k: v for k, v in wanted.items() if k != "Name"}
        differing = {k: v for k, v in given.items() if row.get(k) != v}
        if differing:
            line = f"update record type {obj.name}.{name}"
            steps.append(Step(line, partial(unit.update, types, str(row["Id"]), differing)))
    return steps
