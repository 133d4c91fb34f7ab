"""Upgrade an org to this release without serving it: its layout, standard tables and event schemas.

A server does the same when it starts. Doing it beforehand shows what changes and how long it takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tidewire.clock import Clock
from tidewire.config import Settings
from tidewire.eventlog.backends import make_event_log
from tidewire.server.core import open_core
from tidewire.server.org_locations import open_stored_org
from tidewire.storage.migrations import LAYOUT_VERSION
from tidewire.storage.store import Reader


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The changes made. `columns` counts the columns added to existing tables, by object."""

    org_id: str
    from_layout: int
    to_layout: int
    new_objects: tuple[str, ...]
    columns: Mapping[str, int]
    new_schemas: int

    @property
    def is_empty(self) -> bool:
        """Whether the org was up to date."""
        return self.from_layout == self.to_layout and not (
            self.new_objects or self.columns or self.new_schemas
        )


@dataclass(frozen=True, slots=True)
class _State:
    tables: Mapping[str, frozenset[str]]
    schemas: int


async def upgrade_org(settings: Settings, clock: Clock) -> Upgrade:
    """Upgrade the org. Raises StoreLocked while a server uses it, ConfigInvalid if there is none."""
    with open_stored_org(settings) as (reader, layout):
        before = _read_state(reader) if layout else _State({}, 0)
    core = await open_core(settings, clock)
    try:
        after = await core.store.read(_read_state)
        names = {obj.table: obj.name for obj in core.records.types.catalog.objects}
        org_id = core.logins.org_id
    finally:
        await core.close()
    added = {
        names.get(table, table): len(columns - before.tables[table])
        for table, columns in sorted(after.tables.items())
        if table in before.tables
    }
    return Upgrade(
        org_id=org_id,
        from_layout=layout,
        to_layout=LAYOUT_VERSION,
        new_objects=tuple(
            sorted(names.get(table, table) for table in after.tables.keys() - before.tables.keys())
        ),
        columns={name: count for name, count in added.items() if count},
        new_schemas=after.schemas - before.schemas,
    )


def _read_state(reader: Reader) -> _State:
    rows = reader.execute("SELECT name, definition FROM types WHERE kind = 'layout'")
    return _State(
        {name: frozenset(columns.split(",")) for name, columns in rows},
        make_event_log().count_schemas(reader),
    )
