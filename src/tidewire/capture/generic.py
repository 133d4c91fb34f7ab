"""Generic streaming: channels that are records, and the events that users push to them.

A channel's topic in the log is its record id, so its events stay with it when it is renamed. An event for some users
only is a normal row of the log that names them; each subscription checks it for its user, live and replayed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import orjson

from tidewire.errors import FieldsInconsistent
from tidewire.events import Change, Event, EventDraft, Family, Value
from tidewire.names import is_generic_channel

CHANNEL_OBJECT = "StreamingChannel"
MAX_PAYLOAD = 3000
"""Characters of one event."""
# Always the first key, so that an event for everybody is recognized without parsing.
_FOR_SOME = b'{"userIds":['


class GenericChannels:
    """An org's channels that are not deleted, by name and by id.

    Changed on the writer thread after a commit and read on others, so each read is a single dict lookup.
    """

    def __init__(self) -> None:
        self._names: dict[str, str] = {}
        self._ids: dict[str, str] = {}
        self._folded: dict[str, str] = {}

    def try_name(self, record_id: str) -> str | None:
        """Return the name of a channel, if it exists."""
        return self._names.get(record_id)

    def try_id(self, name: str) -> str | None:
        """Return the record id of the channel with exactly this name, if it exists."""
        return self._ids.get(name)

    def is_variant(self, name: str) -> bool:
        """Return whether another channel has this name in different case."""
        return self._folded.get(name.lower(), name) != name

    def load(self, rows: Iterable[Mapping[str, Value]]) -> None:
        """Load stored channels."""
        for row in rows:
            if not row["IsDeleted"]:
                self._add(str(row["Id"]), str(row["Name"]))

    def follow(self, changes: Iterable[Change]) -> None:
        """Apply committed changes of channels. A channel that is not deleted can be found at any time meanwhile."""
        names = {c.record_id: None if c.after is None else str(c.after["Name"]) for c in changes}
        earlier = {record_id: self._names.get(record_id) for record_id in names}
        for record_id, name in names.items():
            if name is not None:
                self._add(record_id, name)
        for record_id, name in earlier.items():
            if names[record_id] is None:
                self._names.pop(record_id, None)
            if name is not None and name != names[record_id]:
                self._free(record_id, name)

    def _add(self, record_id: str, name: str) -> None:
        self._names[record_id] = name
        self._ids[name] = record_id
        self._folded[name.lower()] = name

    def _free(self, record_id: str, name: str) -> None:
        # Another channel may have taken the name, or a variant of it, in the same transaction.
        if self._ids.get(name) == record_id:
            del self._ids[name]
        if self._folded.get(name.lower()) == name and name not in self._ids:
            del self._folded[name.lower()]


def check_channel_name(name: str) -> None:
    """Raise FieldsInconsistent for an invalid channel name."""
    if not is_generic_channel(name):
        raise FieldsInconsistent(
            "Streaming Channel Name: must begin with /u/ and have letters, digits, _ and / only, at most 80"
            " characters",
            fields=["Name"],
        )


def generic_event(channel_id: str, payload: str, user_ids: Sequence[str], now_ms: int) -> EventDraft:
    """Return an event for these users, or for all subscribers if there are none."""
    body: dict[str, object] = {"userIds": list(dict.fromkeys(user_ids))} if user_ids else {}
    return EventDraft(channel_id, Family.GENERIC, orjson.dumps(body | {"payload": payload}), now_ms)


def is_meant_for(event: Event, user_id: str) -> bool:
    """Return whether a generic event is for this user: it names them, or nobody."""
    if not event.payload.startswith(_FOR_SOME):
        return True
    return user_id in orjson.loads(event.payload)["userIds"]
