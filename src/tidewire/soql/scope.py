"""Resolves names inside one query: fields of its object, and of the records that its lookups reach.

A field that the caller may not read, or a lookup to an object that the caller may not see, raises the same error
as one that does not exist, before any other check.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from tidewire.errors import FieldUnknown, ObjectUnknown, RequestError, SoqlSyntaxError
from tidewire.schema.catalog import Catalog
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.ast import FieldPath, FromAlias, Query
from tidewire.soql.bound import BoundQuery, Column, Step, Visibility
from tidewire.soql.caret import ErrorT, pointing_error
from tidewire.soql.dates import UTC_CALENDAR, Calendar

MAX_STEPS = 5
_FIELD_HINT = (
    "If you are attempting to use a custom field, be sure to append the '__c' after the custom field name. "
    "Please reference your WSDL or the describe call for the appropriate names."
)
_RELATIONSHIP_HINT = (
    "If you are attempting to use a custom relationship, be sure to append the '__r' after the custom "
    "relationship name. Please reference your WSDL or the describe call for the appropriate names."
)

Readable = Callable[[ObjectType, Field], bool]
TYPE_FIELD = Field(name="Type", label="Object Type", type=FieldType.TEXT)
"""`Type` of a lookup to several types: the name of the type of the record it points at."""


def relationship_of(lookup: Field) -> str:
    """Return the name by which paths follow a lookup: `Owner`, `Invoice__r`."""
    name = lookup.relationship_name
    return name + "__r" if lookup.custom and not name.endswith("__r") else name


def children_name_of(lookup: Field) -> str:
    """Return the name by which subqueries find the records whose lookup it is: `Contacts`, `Invoices__r`."""
    name = lookup.child_relationship_name
    return name + "__r" if name and lookup.custom and not name.endswith("__r") else name


@dataclass(frozen=True, slots=True)
class Caller:
    """The caller, as far as the meaning of a query depends on them.

    `queue_ids` are the queues they belong to; without `visibility` they see every record.
    """

    user_id: str = ""
    queue_ids: tuple[str, ...] = ()
    calendar: Calendar = UTC_CALENDAR
    visibility: Visibility | None = None


NOBODY = Caller()
"""For queries of the platform itself: days are those of UTC, and no record is owned by the caller."""


@dataclass(frozen=True, slots=True)
class Scope:
    """One query's names. `bind_inner` binds a query inside this one, on an object of its own."""

    query: Query
    entity: ObjectType
    catalog: Catalog
    readable: Readable | None
    now_ms: int | None
    bind_inner: Callable[[Query, Scope], BoundQuery]
    is_inner: bool = False
    child_level: int = 0  # how many child subqueries this one stands in, itself included
    caller: Caller = NOBODY

    def error(
        self,
        kind: type[ErrorT],
        position: int,
        reason: str,
        *,
        shows_place: bool = True,
        field: str = "",
    ) -> ErrorT:
        """Return an error that points at a place in the query."""
        details: dict[str, object] = {"field": field} if field else {}
        return pointing_error(
            kind,
            self.query.text,
            position,
            reason,
            shows_place=shows_place,
            entity=self.entity.name,
            **details,
        )

    def syntax_error(self, position: int, reason: str) -> SoqlSyntaxError:
        """Return the error for a query that is well-formed but not supported."""
        return self.error(SoqlSyntaxError, position, reason)

    def at(self, entity: ObjectType) -> Scope:
        """Return the same scope for a related record, which no alias names."""
        return replace(self, entity=entity, query=replace(self.query, alias="", joined=()))

    def is_readable(self, field: Field) -> bool:
        """Return whether the caller may see a field of this scope's object."""
        return self.readable is None or self.readable(self.entity, field)

    def own_names(self, path: FieldPath) -> tuple[str, ...]:
        """Return the names of a path, without the object's own name or alias and with other aliases resolved."""
        names = path.names
        aliases = {each.alias.lower(): each.path for each in self.query.joined}
        for _ in aliases:  # each leads to an earlier one
            if len(names) == 1 or names[0].lower() not in aliases:
                break
            names = (*aliases[names[0].lower()], *names[1:])
        is_prefixed = len(names) > 1 and names[0].lower() in self._own
        return names[1:] if is_prefixed else names

    @property
    def _own(self) -> set[str]:
        return {self.entity.name.lower(), self.query.alias.lower()} - {""}

    def check_aliases(self) -> None:
        """Raises ObjectUnknown for an entry of FROM that leads nowhere, SoqlSyntaxError for a name used twice."""
        known = set(self._own)
        for each in self.query.joined:
            if each.alias.lower() in known:
                raise self.syntax_error(each.position, f"duplicate alias: {each.alias}")
            is_known = each.path[0].lower() in known
            if not is_known or not (self._is_parent(each) or self._is_children(each)):
                raise self.from_error(each.path[-1], each.position)
            known.add(each.alias.lower())

    def _is_parent(self, alias: FromAlias) -> bool:
        path = FieldPath((*alias.path, "Id"), alias.position)
        try:
            self.column(path)
        except FieldUnknown:
            return False
        return True

    def _is_children(self, alias: FromAlias) -> bool:
        is_own = len(alias.path) == 2 and alias.path[0].lower() in self._own
        return is_own and self.try_children(alias.path[1]) is not None

    def child_relationship(self, query: Query) -> str:
        """Return the relationship that a child subquery names, by an alias perhaps. Raises ObjectUnknown."""
        if query.entity_prefix:
            if query.entity_prefix.lower() not in self._own:
                raise self.from_error(query.entity_prefix, query.entity_position)
            return query.entity
        aliased = [each.path for each in self.query.joined if each.alias.lower() == query.entity.lower()]
        return aliased[0][-1] if aliased else query.entity

    def try_children(self, name: str) -> tuple[ObjectType, Field] | None:
        """Return the object of a child relationship and its lookup to this one, if the caller may see both."""
        wanted = name.lower()
        for entity in self.catalog.objects:
            for field in entity.fields:
                is_meant = self.entity.name in field.reference_to
                if not is_meant or children_name_of(field).lower() != wanted:
                    continue
                if self.at(entity).is_readable(field):
                    return entity, field
        return None

    def from_error(self, name: str, position: int) -> ObjectUnknown:
        """Return the error for a name in FROM that is no relationship here."""
        reason = f"Didn't understand relationship '{name}' in FROM part of query call. {_RELATIONSHIP_HINT}"
        return self.error(ObjectUnknown, position, reason)

    def field(self, name: str, position: int) -> Field:
        """Return a field of the object itself. Raises FieldUnknown."""
        found = self.entity.try_field(name)
        if found is None or not self.is_readable(found):
            raise self.field_error(name, position)
        return found

    def try_common(self, name: str) -> Field | None:
        """Return a field that a lookup to several types may ask for: Name is whatever the type is known by."""
        found = self.entity.try_field(name)
        if found is None and name.lower() == "name":
            found = self.entity.name_field
        return found if found is not None and self.is_readable(found) else None

    def field_error(self, name: str, position: int) -> FieldUnknown:
        """Return the error for a name that is no field here."""
        reason = f"No such column '{name}' on entity '{self.entity.name}'. {_FIELD_HINT}"
        return self.error(FieldUnknown, position, reason, field=name)

    def lookup(self, name: str, position: int) -> tuple[Field, tuple[ObjectType, ...]]:
        """Return the lookup of that relationship name, and the types it leads to. Raises FieldUnknown."""
        wanted = name.lower()
        for field in self.entity.fields:
            is_meant = bool(field.relationship_name) and relationship_of(field).lower() == wanted
            if not is_meant or not self.is_readable(field):
                continue
            targets = [self.catalog.try_object(target) for target in field.reference_to]
            visible = tuple(target for target in targets if target is not None)
            if visible:
                return field, visible
        raise self.relationship_error(name, position)

    def relationship_error(self, name: str, position: int) -> RequestError:
        """Return the error for a name that is no relationship here."""
        reason = f"Didn't understand relationship '{name}' in field path. {_RELATIONSHIP_HINT}"
        return self.error(FieldUnknown, position, reason, field=name)

    def check_length(self, names: tuple[str, ...], position: int) -> None:
        """Raises SoqlSyntaxError for a path over more lookups than are followed."""
        if len(names) - 1 > MAX_STEPS:
            raise self.syntax_error(
                position, f"relationships can not be followed more than {MAX_STEPS} levels up"
            )

    def column(self, path: FieldPath) -> Column:
        """Resolve a path; `Type` behind a lookup to several types gives the lookup with TYPE_FIELD."""
        names = self.own_names(path)
        self.check_length(names, path.position)
        return self._column(names, path.position, ())

    def _column(self, names: tuple[str, ...], position: int, steps: tuple[Step, ...]) -> Column:
        if len(names) == 1:
            return Column(self.field(names[0], position), steps)
        lookup, targets = self.lookup(names[0], position)
        if len(lookup.reference_to) == 1:
            following = (*steps, Step(lookup, targets[0]))
            return self.at(targets[0])._column(names[1:], position, following)  # noqa: SLF001  our own
        if len(names) > 2:
            raise self.relationship_error(names[1], position)
        if names[1].lower() == "type":
            return Column(TYPE_FIELD, steps, (Column(lookup, steps),))
        found = [
            Column(field, (*steps, Step(lookup, target)))
            for target in targets
            if (field := self.at(target).try_common(names[1])) is not None
        ]
        if not found:
            raise self.at(targets[0]).field_error(names[1], position)
        first = found[0].field
        fit = [
            each for each in found if each.field.type is first.type or (first.is_text and each.field.is_text)
        ]
        return replace(fit[0], others=tuple(fit[1:]))


def is_type_of(column: Column) -> bool:
    """Whether a column is the type of the record that `others[0]`, a lookup to several types, points at."""
    return column.field is TYPE_FIELD
