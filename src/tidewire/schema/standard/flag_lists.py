"""Checkboxes of users that change events carry as lists: the names of those that are set.

Each list stands for one number in which the original keeps all of its flags: when one of them changes, all that
are set are told.
"""

from __future__ import annotations

from functools import lru_cache

from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType

FLAG_LISTS = ("UserPermissions", "EmailPreferences", "UserPreferences")


@lru_cache(maxsize=256)
def flag_lists(obj: ObjectType) -> dict[str, tuple[Field, ...]]:
    """The lists of an object's change events and the checkboxes in each, in order; empty for all but User."""
    if obj.name != "User":
        return {}
    boxes = [f for f in obj.fields if f.type is FieldType.CHECKBOX and not f.in_change_events]
    return {name: tuple(f for f in boxes if f.name.startswith(name)) for name in FLAG_LISTS}
