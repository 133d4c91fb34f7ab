"""Retrieving components as a package; deploying its files again changes nothing."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from tidewire.access.principal import Principal
from tidewire.gate.metadata.archive import write_zip
from tidewire.gate.metadata.listing import Creators, Listed
from tidewire.gate.metadata.objects import render_event, render_object
from tidewire.gate.metadata.package import MANIFEST, render_manifest, version_number
from tidewire.gate.metadata.registry import METADATA_TYPES, Entry, MetadataType, Source
from tidewire.gate.metadata.service import Metadata
from tidewire.gate.metadata.stored_requests import store_request
from tidewire.gate.metadata.xml import render_file
from tidewire.gate.requests import Call
from tidewire.records.work import UnitOfWork
from tidewire.schema.catalog import Catalog
from tidewire.schema.values import render_datetime
from tidewire.storage.store import Reader

RETRIEVE_PREFIX = "09S"


@dataclass(frozen=True, slots=True)
class RetrieveOptions:
    """What to retrieve: members by type, `*` for all."""

    members: Mapping[str, Sequence[str]]
    version: str
    is_single_package: bool = False


@dataclass(slots=True)
class _Gathered:
    files: dict[str, bytes] = field(default_factory=dict)
    properties: list[Listed] = field(default_factory=list)
    messages: list[str] = field(default_factory=list)


class Retrieves:
    """Creates packages, and returns stored ones."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata

    async def retrieve(self, call: Call, options: RetrieveOptions) -> str:
        """Create and store a package; returns its id. Raises AccessDenied."""
        await self._metadata.check(call.principal)
        gate = self._metadata.gate
        catalog = gate.catalog
        gathered = await gate.records.read(partial(_gather, catalog, options))
        archive = await asyncio.to_thread(write_zip, gathered.files)

        def work(unit: UnitOfWork) -> str:
            user_id, result = call.principal.user_id, _render_result(gathered)
            return store_request(unit, RETRIEVE_PREFIX, "retrieve", user_id, result, archive)

        return await self._metadata.commit(call, work)

    async def result(self, principal: Principal, request_id: str) -> tuple[dict[str, object], bytes]:
        """Read the result of a retrieve and its archive. Raises RecordNotFound, AccessDenied."""
        kept = await self._metadata.request(principal, "retrieve", request_id)
        result: dict[str, object] = json.loads(kept.result)
        return result, kept.data


def _gather(catalog: Catalog, options: RetrieveOptions, reader: Reader) -> _Gathered:
    source = Source(reader, catalog, version_number(options.version))
    creators = Creators(source)
    out = _Gathered()
    folder = "" if options.is_single_package else "unpackaged/"
    packed: dict[str, list[str]] = {}
    fields: dict[str, list[str]] = {}
    for kind, members in options.members.items():
        type_ = METADATA_TYPES.get(kind)
        if type_ is None:
            out.messages.append(f"Unknown type name '{kind[:80]}' specified in {MANIFEST}")
            continue
        for entry in _chosen(source, type_, members, out.messages):
            packed.setdefault(kind, []).append(entry.full_name)
            path = folder + type_.path(entry.full_name)
            out.properties.append(creators.listed(entry, kind, path))
            if type_.is_nested:
                fields.setdefault(entry.full_name.partition(".")[0], []).append(entry.full_name)
            else:
                properties = type_.try_read(source, entry.full_name) or {}
                out.files[path] = render_file(kind, properties)
    for entity, names in fields.items():
        path = f"{folder}{METADATA_TYPES['CustomObject'].path(entity)}"
        if path not in out.files:
            out.files[path] = render_file("CustomObject", _partial_object(catalog, entity, names))
    out.files[folder + MANIFEST] = render_manifest(packed, options.version)
    return out


def _chosen(source: Source, type_: MetadataType, members: Iterable[str], messages: list[str]) -> list[Entry]:
    entries = {entry.full_name.lower(): entry for entry in type_.entries(source)}
    chosen: dict[str, Entry] = {}
    for name in members:
        if name == "*":
            # Only custom objects, which are those with an id.
            chosen |= {key: entry for key, entry in entries.items() if entry.component_id}
        elif name.lower() in entries:
            chosen[name.lower()] = entries[name.lower()]
        else:
            messages.append(f"Entity of type '{type_.name}' named '{name[:200]}' cannot be found")
    return sorted(chosen.values(), key=lambda entry: entry.full_name)


def _partial_object(catalog: Catalog, entity: str, names: Iterable[str]) -> dict[str, object]:
    """Render the file of an object with only some of its fields."""
    wanted = {name.partition(".")[2].lower() for name in names}
    event = catalog.try_event(entity)
    if event is not None:
        found = render_event(event, [f for f in event.fields if f.name.lower() in wanted])
    else:
        obj = catalog.object(entity)
        found = render_object(obj, (), [f for f in obj.fields if f.name.lower() in wanted])
    return {"fields": found["fields"]}


def render_listed(listed: Listed) -> dict[str, object]:
    """Render a component in a list, in schema order."""
    return {
        "createdById": listed.created_by[0],
        "createdByName": listed.created_by[1],
        "createdDate": render_datetime(listed.created_ms, "Z"),
        "fileName": listed.path,
        "fullName": listed.full_name,
        "id": listed.component_id,
        "lastModifiedById": listed.modified_by[0],
        "lastModifiedByName": listed.modified_by[1],
        "lastModifiedDate": render_datetime(listed.modified_ms, "Z"),
        "manageableState": "unmanaged",
        "type": listed.kind,
    }


def _render_result(gathered: _Gathered) -> dict[str, object]:
    return {
        "done": True,
        "fileProperties": [render_listed(each) for each in gathered.properties],
        "messages": [{"fileName": MANIFEST, "problem": problem} for problem in gathered.messages],
        "status": "Succeeded",
        "success": True,
    }
