"""What clients of older API versions call things that have other fields today.

Up to 28.0 a push topic says by NotifyForOperations which operations it is told of; since 29.0 each of them has a
field of its own, and NotifyForOperations only follows from two of these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tidewire.gate.requests import Write

_LAST_OF_OPERATIONS = 28
_OPERATIONS = "notifyforoperations"
_TOLD = {"All": (True, True), "Create": (True, False), "Update": (False, True), "Extended": (False, False)}
"""Whether creates and updates are told."""


def upgrade_write(write: Write, api_version: int | None) -> Write:
    """The write with today's fields in place of those that the caller's version has instead."""
    is_old = api_version is not None and api_version <= _LAST_OF_OPERATIONS
    if not is_old or write.values is None or write.entity.lower() != "pushtopic":
        return write
    return replace(write, values=_push_topic(write.values, is_create=write.record_id is None))


def _push_topic(values: Mapping[str, object], *, is_create: bool) -> Mapping[str, object]:
    given = next((name for name in values if name.lower() == _OPERATIONS), None)
    word = "All" if given is None else values[given]
    told = _TOLD.get(word) if isinstance(word, str) else None
    if told is None or (given is None and not is_create):
        return values
    own: dict[str, object] = {"NotifyForOperationCreate": told[0], "NotifyForOperationUpdate": told[1]}
    if is_create:
        # These versions know of no other operations, but for a topic that is told of nothing else.
        is_extended = word == "Extended"
        own |= {"NotifyForOperationDelete": is_extended, "NotifyForOperationUndelete": is_extended}
    return {**{name: value for name, value in values.items() if name != given}, **own}
