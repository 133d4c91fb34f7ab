"""A user's view of an org: the objects, fields and queries that their grants allow, cached.

A view belongs to one `Grants` and one `Catalog`, both immutable. `UserViews` replaces it as soon as either changes,
so nothing in a view is ever stale.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cached_property

from tidewire.access.grants import Grants, read_grants
from tidewire.access.principal import Principal
from tidewire.access.sharing import Sharing
from tidewire.access.user_record_access import RECORD_ACCESS, AccessRows
from tidewire.errors import ObjectUnknown
from tidewire.gate.publishing import reject_event
from tidewire.records.service import Records
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.ast import Query
from tidewire.soql.binder import bind_query
from tidewire.soql.bound import BoundQuery
from tidewire.soql.dates import COUNTED_DATES, RELATIVE_DATES
from tidewire.soql.parser import parse_query
from tidewire.soql.scope import Caller

_MAX_QUERIES = 128
_MAX_TEXT_LENGTH = 2_000
# May match inside a literal or a field name; that only means the query is bound again.
_RELATIVE_DATE = re.compile("|".join(sorted(RELATIVE_DATES | COUNTED_DATES)))


class UserView:
    """One user's grants over one catalog. Used on the loop only."""

    def __init__(self, grants: Grants, catalog: Catalog) -> None:
        self.grants = grants
        self.org_catalog = catalog
        self._hidden: dict[str, frozenset[str]] = {}
        self._columns: dict[str, tuple[Field, ...]] = {}
        self._names: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        self._described: dict[str, ObjectType] = {}
        self._readable: dict[str, bool] = {}
        self._queries: OrderedDict[str, BoundQuery] = OrderedDict()

    def is_current(self, grants: Grants, catalog: Catalog) -> bool:
        """Return whether the view was made from exactly these grants and types."""
        return self.grants is grants and self.org_catalog is catalog

    @cached_property
    def catalog(self) -> Catalog:
        """The types without objects that the user may not read."""
        can_read = self.grants.can_read
        return replace(
            self.org_catalog, objects=tuple(o for o in self.org_catalog.objects if can_read(o.name))
        )

    @cached_property
    def sharing(self) -> Sharing:
        """Which records the user may read and change."""
        return Sharing(self.grants, self.org_catalog)

    @cached_property
    def _caller(self) -> Caller:
        return replace(self.grants.caller, visibility=self.sharing)

    def can_read(self, obj: ObjectType) -> bool:
        """Return whether the user may read the object; one they may not read does not exist for them."""
        found = self._readable.get(obj.name)
        if found is None:
            found = self._readable[obj.name] = self.grants.can_read(obj.name)
        return found

    def open(self, entity: str, operation: str = "retrieve") -> ObjectType:
        """Return an object that the user may read. Raises ObjectUnknown for any other.

        `operation` is named in the error if `entity` is an event, which has no records.
        """
        obj = self.org_catalog.try_object(entity)
        if obj is None or not self.can_read(obj):
            reject_event(self.org_catalog, self.grants, entity, operation)
            raise ObjectUnknown(f"sObject type '{entity}' is not supported.", entity=entity)
        return obj

    def described(self, obj: ObjectType) -> ObjectType:
        """Return the object with its createable, updateable and deletable flags narrowed to the user's grants."""
        found = self._described.get(obj.name)
        if found is None:
            grant = self.grants.on(obj.name)
            narrowed = replace(
                obj,
                createable=obj.createable and grant.can_create,
                updateable=obj.updateable and (grant.can_edit or grant.can_modify_all),
                deletable=obj.deletable and (grant.can_delete or grant.can_modify_all),
                fields=tuple(self._narrowed(f) for f in obj.fields),
            )
            # The same instance if nothing is narrower: other caches are keyed by it.
            found = self._described[obj.name] = obj if narrowed == obj else narrowed
        return found

    def _narrowed(self, field: Field) -> Field:
        """Return the field without lookup targets that the user may not read."""
        known = tuple(name for name in field.reference_to if self.grants.can_read(name))
        return field if len(known) == len(field.reference_to) else replace(field, reference_to=known)

    def hidden_fields(self, obj: ObjectType) -> frozenset[str]:
        """Return the names of the fields that the user may not read."""
        hidden = self._hidden.get(obj.name)
        if hidden is None:
            hidden = self._hidden[obj.name] = self.grants.hidden_fields(obj)
        return hidden

    def columns(self, obj: ObjectType) -> tuple[Field, ...]:
        """Return the fields that the user may read, in the order of the object."""
        columns = self._columns.get(obj.name)
        if columns is None:
            can_read = self.grants.can_read_field
            columns = self._columns[obj.name] = tuple(f for f in obj.fields if can_read(obj, f))
        return columns

    def field_names(self, obj: ObjectType) -> tuple[frozenset[str], frozenset[str]]:
        """Return the names of the fields that the user may read, and of those they may edit."""
        names = self._names.get(obj.name)
        if names is None:
            described = self.described(obj)
            may_edit = described.createable or described.updateable
            can_edit = self.grants.can_edit_field
            editable = frozenset(f.name for f in obj.fields if may_edit and can_edit(obj, f))
            names = self._names[obj.name] = frozenset(f.name for f in self.columns(obj)), editable
        return names

    def bind(self, soql: str, now_ms: int) -> BoundQuery:
        """Bind a query to what the user may read; cached unless the query depends on the current date."""
        known = self._queries.get(soql)
        if known is not None:
            self._queries.move_to_end(soql)
            return known
        bound = self.bind_parsed(parse_query(soql), now_ms)
        if len(soql) <= _MAX_TEXT_LENGTH and _RELATIVE_DATE.search(soql.upper()) is None:
            self._queries[soql] = bound
            if len(self._queries) > _MAX_QUERIES:
                self._queries.popitem(last=False)
        return bound

    def bind_access_query(self, query: Query, rows: AccessRows, now_ms: int) -> BoundQuery:
        """Bind a query on UserRecordAccess to the rows that were computed for it."""
        catalog = replace(self.org_catalog, objects=(RECORD_ACCESS,))
        return bind_query(query, catalog, now_ms=now_ms, caller=replace(self.grants.caller, visibility=rows))

    def bind_parsed(self, query: Query, now_ms: int) -> BoundQuery:
        """Bind a parsed query to what the user may read, without caching."""
        can_read = self.grants.can_read_field
        return bind_query(query, self.catalog, can_read, now_ms=now_ms, caller=self._caller)


class UserViews:
    """The cached grants and views of an org's users. Used on the loop only."""

    def __init__(self, records: Records, generation: Callable[[], int]) -> None:
        self._records = records
        self._generation = generation
        self._grants: dict[str, tuple[int, Grants]] = {}
        self._views: dict[str, UserView] = {}

    def preload(self, grants: Mapping[str, tuple[int, Grants]]) -> None:
        """Add grants that were read elsewhere, by user id, each with its access generation."""
        self._grants.update(grants)

    async def grants(self, principal: Principal) -> Grants:
        """Return what the user may do now; reads the database only if the access generation changed."""
        found = self._grants.get(principal.user_id)
        if found is None or found[0] != self._generation():
            found = await self.current_grants(principal)
        return found[1]

    async def current_grants(self, principal: Principal) -> tuple[int, Grants]:
        """Return what the user may do now, and an access generation that it is no older than."""
        found = self._grants.get(principal.user_id)
        # Taken before the read: the snapshot may hold a commit that has not reached the catalog yet. What is
        # derived from both is then recomputed at the next generation.
        generation = self._generation()
        if found is None or found[0] != generation:
            grants = await self._records.read(
                lambda reader: read_grants(reader, self._records.types.catalog, principal.user_id)
            )
            found = self._grants[principal.user_id] = (generation, grants)
        return found

    async def view(self, principal: Principal) -> UserView:
        """Return what the user sees now."""
        grants, catalog = await self.grants(principal), self._records.types.catalog
        view = self._views.get(principal.user_id)
        if view is None or not view.is_current(grants, catalog):
            view = self._views[principal.user_id] = UserView(grants, catalog)
        return view
