"""What one user sees of an org, worked out once and kept for as long as grants and types stay as they are.

A view belongs to one `Grants` and one `Catalog`, both immutable; whoever holds it asks `is_current` before using
it, so nothing in here is ever out of date.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from dataclasses import replace
from functools import cached_property

from tidewire.access.grants import Grants
from tidewire.access.sharing import Sharing
from tidewire.access.user_record_access import RECORD_ACCESS, AccessRows
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.ast import Query
from tidewire.soql.binder import bind_query
from tidewire.soql.bound import BoundQuery
from tidewire.soql.condition_parser import COUNTED_DATES, RELATIVE_DATES
from tidewire.soql.parser import parse_query
from tidewire.soql.scope import Caller

_MAX_QUERIES = 128
_MAX_TEXT_LENGTH = 2_000
# Names that only look like one, in a text or as a part of a field's name, cost no more than binding anew.
_RELATIVE_DATE = re.compile("|".join(sorted(RELATIVE_DATES | COUNTED_DATES)))


class View:
    """One user's grants over one catalog. Used on the loop only."""

    def __init__(self, grants: Grants, catalog: Catalog) -> None:
        self.grants = grants
        self._catalog = catalog
        self._hidden: dict[str, frozenset[str]] = {}
        self._columns: dict[str, tuple[Field, ...]] = {}
        self._names: dict[str, tuple[frozenset[str], frozenset[str]]] = {}
        self._described: dict[str, ObjectType] = {}
        self._readable: dict[str, bool] = {}
        self._queries: OrderedDict[str, BoundQuery] = OrderedDict()

    def is_current(self, grants: Grants, catalog: Catalog) -> bool:
        """Whether the view is of these grants and these types."""
        return self.grants is grants and self._catalog is catalog

    @cached_property
    def catalog(self) -> Catalog:
        """The types without the objects whose records the user may not read."""
        can_read = self.grants.can_read
        return replace(self._catalog, objects=tuple(o for o in self._catalog.objects if can_read(o.name)))

    @cached_property
    def sharing(self) -> Sharing:
        """Which records the user may read and change."""
        return Sharing(self.grants, self._catalog)

    @cached_property
    def _caller(self) -> Caller:
        return replace(self.grants.caller, visibility=self.sharing)

    def can_read(self, obj: ObjectType) -> bool:
        """Whether the user may read records of the object, and so know of it."""
        found = self._readable.get(obj.name)
        if found is None:
            found = self._readable[obj.name] = self.grants.can_read(obj.name)
        return found

    def described(self, obj: ObjectType) -> ObjectType:
        """The object with what may be done to its records narrowed to what the user may do."""
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
            # The object itself where nothing is narrower: much is remembered by it.
            found = self._described[obj.name] = obj if narrowed == obj else narrowed
        return found

    def _narrowed(self, field: Field) -> Field:
        """The field without the objects it may point at that the user may not know of."""
        known = tuple(name for name in field.reference_to if self.grants.can_read(name))
        return field if len(known) == len(field.reference_to) else replace(field, reference_to=known)

    def hidden_fields(self, obj: ObjectType) -> frozenset[str]:
        """The fields of an object that this user must not see."""
        hidden = self._hidden.get(obj.name)
        if hidden is None:
            hidden = self._hidden[obj.name] = self.grants.hidden_fields(obj)
        return hidden

    def columns(self, obj: ObjectType) -> tuple[Field, ...]:
        """The fields of an object that this user sees, in order."""
        columns = self._columns.get(obj.name)
        if columns is None:
            can_read = self.grants.can_read_field
            columns = self._columns[obj.name] = tuple(f for f in obj.fields if can_read(obj, f))
        return columns

    def field_names(self, obj: ObjectType) -> tuple[frozenset[str], frozenset[str]]:
        """The names of the fields of an object that this user may read, and edit."""
        names = self._names.get(obj.name)
        if names is None:
            described = self.described(obj)
            may_edit = described.createable or described.updateable
            can_edit = self.grants.can_edit_field
            editable = frozenset(f.name for f in obj.fields if may_edit and can_edit(obj, f))
            names = self._names[obj.name] = frozenset(f.name for f in self.columns(obj)), editable
        return names

    def bind(self, soql: str, now_ms: int) -> BoundQuery:
        """The query tied to what the user sees. One that depends on the date is bound anew every time."""
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

    def bind_over(self, query: Query, rows: AccessRows, now_ms: int) -> BoundQuery:
        """A query on UserRecordAccess over the rows that were made for it."""
        catalog = replace(self._catalog, objects=(RECORD_ACCESS,))
        return bind_query(query, catalog, now_ms=now_ms, caller=replace(self.grants.caller, visibility=rows))

    def bind_parsed(self, query: Query, now_ms: int) -> BoundQuery:
        """A query that is parsed already, tied to what the user sees; nothing of it is kept."""
        can_read = self.grants.can_read_field
        return bind_query(query, self.catalog, can_read, now_ms=now_ms, caller=self._caller)
