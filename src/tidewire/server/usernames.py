"""The user names of all orgs: each belongs to one org of the server, to which its logins go.

The directory is in memory only. It is filled from the stores of the orgs and follows their changes. A name is
claimed inside the transaction that gives it to a user, so if two orgs want it at once, one of them fails.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

from tidewire.errors import DuplicateValue
from tidewire.events import Change, CommitContext, Value
from tidewire.records.service import ChangeHook
from tidewire.records.touched import changes_of
from tidewire.records.work import UnitOfWork
from tidewire.schema.standard.access import USER
from tidewire.schema.text_keys import fold_key
from tidewire.storage.store import Reader

_USERNAME = USER.by_name["username"]


class Usernames:
    """Case-folded user names and their orgs. Thread-safe: the writer threads of all orgs use it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._owners: dict[str, str] = {}

    def __len__(self) -> int:
        return len(self._owners)

    def try_find(self, username: str) -> str | None:
        """Return the org of the user with this name."""
        return self._owners.get(fold_key(username))

    def set_names(self, org_id: str, keys: Iterable[str]) -> int:
        """Set the names of an org from its store; returns how many of them belong to another org."""
        with self._lock:
            self._forget(org_id)
            taken = 0
            for key in keys:
                taken += self._owners.setdefault(key, org_id) != org_id
            return taken

    def drop_org(self, org_id: str) -> None:
        """Remove an org."""
        with self._lock:
            self._forget(org_id)

    def follow(self, org_id: str) -> ChangeHook:
        """Return a record hook that keeps the directory up to date and rejects names that are taken."""

        def on_changes(unit: UnitOfWork, changes: Sequence[Change], context: CommitContext) -> None:
            users = list(changes_of(changes, USER.name))
            if not users:
                return
            given = dict.fromkeys(key for change in users if (key := _key(change.after)))
            freed = {key for change in users if (key := _key(change.before))} - given.keys()
            for key in given:
                if self._claim(org_id, key):
                    unit.tx.after_undo(partial(self._release, org_id, key))
                # Another transaction of the same commit may release the name after this one has run.
                unit.tx.after_commit(partial(self._keep, org_id, key))
            for key in freed:
                unit.tx.after_commit(partial(self._release, org_id, key))

        return on_changes

    def _claim(self, org_id: str, key: str) -> bool:
        """Claim a name; returns whether it was free. Raises DuplicateValue if another org has it."""
        with self._lock:
            is_free = key not in self._owners
            if self._owners.setdefault(key, org_id) != org_id:
                raise DuplicateValue(
                    "Duplicate Username. The username already exists in this or another organization."
                    " Usernames must be unique across all organizations.",
                    fields=[_USERNAME.name],
                )
            return is_free

    def _keep(self, org_id: str, key: str) -> None:
        with self._lock:
            self._owners.setdefault(key, org_id)

    def _release(self, org_id: str, key: str) -> None:
        with self._lock:
            if self._owners.get(key) == org_id:
                del self._owners[key]

    def _forget(self, org_id: str) -> None:
        for key in [key for key, owner in self._owners.items() if owner == org_id]:
            del self._owners[key]


def read_username_keys(reader: Reader) -> list[str]:
    """Read the folded names of all users of an org. Works without its types: standard columns never move."""
    rows = reader.execute(
        f"SELECT {_USERNAME.key_column} FROM {USER.table} WHERE {_USERNAME.key_column} IS NOT NULL"  # noqa: S608  # constants
    )
    return [str(key) for (key,) in rows]


def _key(row: Mapping[str, Value] | None) -> str:
    value = row.get(_USERNAME.name) if row else None
    return fold_key(str(value)) if value else ""
