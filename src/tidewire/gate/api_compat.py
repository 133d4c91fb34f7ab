"""Compatibility with older API versions: translate fields that have other names today.

Up to API version 28.0 the field NotifyForOperations of a push topic selects its operations. Since 29.0 each operation
has its own field, and NotifyForOperations is derived from two of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidewire.gate.requests import Write

_LAST_WITH_OPERATIONS = 28
_OPERATIONS = "notifyforoperations"
_NOTIFIES = {
    "All": (True, True),
    "Create": (True, False),
    "Update": (False, True),
    "Extended": (False, False),
}
"""Whether creates and updates are notified, by the value of NotifyForOperations."""


def upgrade_write(write: Write, api_version: int | None) -> Write:
    """Return the write with today's fields in place of those of the caller's API version."""
    is_old = api_version is not None and api_version <= _LAST_WITH_OPERATIONS
    if not is_old or write.values is None or write.entity.lower() != "pushtopic":
        return write
    return replace(write, values=_push_topic(write.values, is_create=write.record_id is None))


def _push_topic(values: Mapping[str, object], *, is_create: bool) -> Mapping[str, object]:
    old_name = next((name for name in values if name.lower() == _OPERATIONS), None)
    word = "All" if old_name is None else values[old_name]
    notifies = _NOTIFIES.get(word) if isinstance(word, str) else None
    if notifies is None or (old_name is None and not is_create):
        return values
    new: dict[str, object] = {
        "NotifyForOperationCreate": notifies[0],
        "NotifyForOperationUpdate": notifies[1],
    }
    if is_create:
        # These versions know no deletes and undeletes, except in topics that notify of nothing else.
        is_extended = word == "Extended"
        new |= {"NotifyForOperationDelete": is_extended, "NotifyForOperationUndelete": is_extended}
    return {**{name: value for name, value in values.items() if name != old_name}, **new}
