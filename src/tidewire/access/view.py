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
from tidewire.schema.catalog import Catalog
from tidewire.schema.model import ObjectType
from tidewire.soql.binder import bind_query
from tidewire.soql.bound import BoundQuery
from tidewire.soql.condition_parser import COUNTED_DATES, RELATIVE_DATES
from tidewire.soql.parser import parse_query

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
        self._queries: OrderedDict[str, BoundQuery] = OrderedDict()

    def is_current(self, grants: Grants, catalog: Catalog) -> bool:
        """Whether the view is of these grants and these types."""
        return self.grants is grants and self._catalog is catalog

    @cached_property
    def catalog(self) -> Catalog:
        """The types without the objects whose records the user may not read."""
        can_read = self.grants.can_read
        return replace(self._catalog, objects=tuple(o for o in self._catalog.objects if can_read(o.name)))

    def hidden_fields(self, obj: ObjectType) -> frozenset[str]:
        """The fields of an object that this user must not see."""
        hidden = self._hidden.get(obj.name)
        if hidden is None:
            hidden = self._hidden[obj.name] = self.grants.hidden_fields(obj)
        return hidden

    def bind(self, soql: str, now_ms: int) -> BoundQuery:
        """The query tied to what the user sees. One that depends on the date is bound anew every time."""
        known = self._queries.get(soql)
        if known is not None:
            self._queries.move_to_end(soql)
            return known
        bound = bind_query(parse_query(soql), self.catalog, self.grants.can_read_field, now_ms=now_ms)
        if len(soql) <= _MAX_TEXT_LENGTH and _RELATIVE_DATE.search(soql.upper()) is None:
            self._queries[soql] = bound
            if len(self._queries) > _MAX_QUERIES:
                self._queries.popitem(last=False)
        return bound
