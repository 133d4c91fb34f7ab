"""Checkboxes of users that change events carry as lists of the set ones.

Each list stands for one number in which the original stores all of its flags: when one of them changes, the
event names all that are set.
"""

from __future__ import annotations

from functools import lru_cache

from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType

FLAG_LISTS = ("UserPermissions", "EmailPreferences", "UserPreferences")


@lru_cache(maxsize=256)
def flag_lists(obj: ObjectType) -> dict[str, tuple[Field, ...]]:
    """Return the lists of an object's change events and their checkboxes, in order; empty except for User."""
    if obj.name != "User":
        return {}
    boxes = [f for f in obj.fields if f.type is FieldType.CHECKBOX and not f.in_change_events]
    return {name: tuple(f for f in boxes if f.name.startswith(name)) for name in FLAG_LISTS}
