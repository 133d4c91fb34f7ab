"""The catalog: every type of an org. Immutable; a change makes a new one with a higher version."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property

from tidewire.errors import ObjectUnknown
from tidewire.schema.channels import NOTHING_SELECTED, Selection
from tidewire.schema.model import EventType, ObjectType
from tidewire.schema.share_objects import with_shares
from tidewire.schema.standard.monitoring import STANDARD_EVENTS

_STANDARD_BY_NAME = {event.name.lower(): event for event in STANDARD_EVENTS}


@dataclass(frozen=True)
class Catalog:
    """Types by name. `selection` has the channels.

    `removed_fields` are deleted fields, as (object, field), that older events still carry.
    """

    version: int
    objects: tuple[ObjectType, ...]
    events: tuple[EventType, ...] = ()
    selection: Selection = NOTHING_SELECTED
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

    @property
    def captured(self) -> frozenset[str]:
        """The objects whose changes become change events: those on any channel."""
        return self.selection.entities

    def try_object(self, name: str) -> ObjectType | None:
        """Return the object of that name in any letter case, or None."""
        return self._objects_by_name.get(name.lower())

    def object(self, name: str) -> ObjectType:
        """Return the object of that name; raises ObjectUnknown."""
        found = self.try_object(name)
        if found is None:
            raise ObjectUnknown(f"sObject type '{name}' is not supported.", entity=name)
        return found

    def try_object_of_id(self, record_id: str) -> ObjectType | None:
        """Return the object whose records have ids like this one."""
        return self._objects_by_prefix.get(record_id[:3])

    def try_event(self, name: str) -> EventType | None:
        """Return the platform event of that name in any letter case, or None."""
        return self._events_by_name.get(name.lower())

    @property
    def all_events(self) -> tuple[EventType, ...]:
        """The org's platform events, and those that the server publishes itself."""
        return (*self.events, *STANDARD_EVENTS)

    def try_any_event(self, name: str) -> EventType | None:
        """Return the platform event of that name in any letter case, including the server's own, or None."""
        return self.try_event(name) or _STANDARD_BY_NAME.get(name.lower())

    def with_objects(self, objects: Iterable[ObjectType]) -> Catalog:
        """Return a new version in which these objects are added or replaced."""
        merged = {o.name: o for o in self.objects} | {o.name: o for o in objects}
        return replace(self, version=self.version + 1, objects=with_shares(merged.values()))

    def with_events(self, events: Iterable[EventType]) -> Catalog:
        """Return a new version in which these platform events are added or replaced."""
        merged = {e.name: e for e in self.events} | {e.name: e for e in events}
        return replace(self, version=self.version + 1, events=tuple(merged.values()))

    def with_captured(self, captured: Iterable[str]) -> Catalog:
        """Return a new version with exactly these objects on the standard channel."""
        return self.with_selection(self.selection.with_standard(captured))

    def with_selection(self, selection: Selection) -> Catalog:
        """Return a new version with other channels; members of unknown types and fields are dropped."""
        members = []
        for member in selection.members:
            obj = self.try_object(member.entity) if member.entity else None
            if obj is not None:
                kept = tuple(name for name in member.enriched if obj.try_field(name) is not None)
                members.append(member if kept == member.enriched else replace(member, enriched=kept))
            elif not member.entity and self.try_any_event(member.event) is not None:
                members.append(member)
        return replace(self, version=self.version + 1, selection=replace(selection, members=tuple(members)))

    def without(self, objects: Iterable[str]) -> Catalog:
        """Return a new version without these objects and their channel members."""
        gone = frozenset(objects)
        kept = tuple(o for o in self.objects if o.name not in gone and o.shares not in gone)
        return replace(self, objects=kept).with_selection(self.selection)

    def without_events(self, events: Iterable[str]) -> Catalog:
        """Return a new version without these platform events."""
        gone = frozenset(events)
        kept = tuple(e for e in self.events if e.name not in gone)
        return replace(self, events=kept).with_selection(self.selection)

    def removed_from(self, entity: str) -> frozenset[str]:
        """Return the names of an object's deleted fields, whose values nobody may see."""
        return frozenset(name for owner, name in self.removed_fields if owner == entity)
