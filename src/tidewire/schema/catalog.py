"""The catalog: every type of an org at one moment. Immutable; a change makes a new one with a higher version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from tidewire.errors import ObjectUnknown
from tidewire.schema.model import EventType, ObjectType
from tidewire.schema.shares import with_shares


@dataclass(frozen=True)
class Catalog:
    """Types by name. `captured` names the objects whose changes become change events; `removed_fields` are
    fields, by object, that are gone but that events of the past still carry.
    """

    version: int
    objects: tuple[ObjectType, ...]
    events: tuple[EventType, ...] = ()
    captured: frozenset[str] = frozenset()
    removed_fields: frozenset[tuple[str, str]] = frozenset()

    @cached_property
    def _objects_by_name(self) -> dict[str, ObjectType]:
        return {o.name.lower(): o for o in self.objects}

    @cached_property
    def _objects_by_prefix(self) -> dict[str, ObjectType]:
        return {o.key_prefix: o for o in self.objects}

    @cached_property
    def _events_by_name(self) -> dict[str, EventType]:
        return {e.name.lower(): e for e in self.events}

    def try_object(self, name: str) -> ObjectType | None:
        """The object of that name in any letter case, or None."""
        return self._objects_by_name.get(name.lower())

    def object(self, name: str) -> ObjectType:
        """The object of that name; raises ObjectUnknown."""
        found = self.try_object(name)
        if found is None:
            raise ObjectUnknown(f"sObject type '{name}' is not supported.", entity=name)
        return found

    def try_object_of_id(self, record_id: str) -> ObjectType | None:
        """The object whose records have ids like this one."""
        return self._objects_by_prefix.get(record_id[:3])

    def try_event(self, name: str) -> EventType | None:
        """The platform event of that name in any letter case, or None."""
        return self._events_by_name.get(name.lower())

    def with_objects(self, objects: Iterable[ObjectType]) -> Catalog:
        """A new version in which these objects are added or replaced."""
        merged = {o.name: o for o in self.objects} | {o.name: o for o in objects}
        return replace(self, version=self.version + 1, objects=with_shares(merged.values()))

    def with_events(self, events: Iterable[EventType]) -> Catalog:
        """A new version in which these platform events are added or replaced."""
        merged = {e.name: e for e in self.events} | {e.name: e for e in events}
        return replace(self, version=self.version + 1, events=tuple(merged.values()))

    def with_captured(self, captured: Iterable[str]) -> Catalog:
        """A new version with this selection for change data capture."""
        return replace(self, version=self.version + 1, captured=frozenset(captured))

    def without(self, objects: Iterable[str]) -> Catalog:
        """A new version without these objects, which are captured no more."""
        gone = frozenset(objects)
        kept = tuple(o for o in self.objects if o.name not in gone and o.shares not in gone)
        return replace(self, version=self.version + 1, objects=kept, captured=self.captured - gone)

    def without_events(self, events: Iterable[str]) -> Catalog:
        """A new version without these platform events."""
        gone = frozenset(events)
        kept = tuple(e for e in self.events if e.name not in gone)
        return replace(self, version=self.version + 1, events=kept)

    def removed_from(self, entity: str) -> frozenset[str]:
        """The names of fields that an object once had: nobody may see their values any more."""
        return frozenset(name for owner, name in self.removed_fields if owner == entity)
