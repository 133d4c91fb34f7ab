"""Binds the SELECT list of a query over records: fields, paths, children, TYPEOF, FIELDS and functions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

from tidewire.errors import FilterInvalid, SoqlSyntaxError
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field, ObjectType
from tidewire.soql.ast import Aliased, FieldPath, FunctionCall, Query, SelectItem, Subquery, TypeOf
from tidewire.soql.bound import (
    BoundQuery,
    Branch,
    Selected,
    SelectedChildren,
    SelectedDistance,
    SelectedField,
    SelectedParent,
    SelectedType,
)
from tidewire.soql.caret import pointing_error
from tidewire.soql.dates import DATE_FUNCTIONS
from tidewire.soql.functions import (
    PRESENTATIONS,
    bind_distance,
    function_name,
    only_argument,
    unknown_function,
)
from tidewire.soql.scope import Scope, children_name_of, relationship_of
from tidewire.soql.zones import UTC

MAX_CHILDREN = 20
MAX_CHILD_LEVELS = 5
NESTED_CHILDREN_VERSION = 58  # older versions have children of the queried object only
MAX_PARENTS = 55
MAX_ALL_FIELDS = 200
_FIELD_SETS = frozenset({"ALL", "STANDARD", "CUSTOM"})


def bind_select(scope: Scope, items: Iterable[SelectItem]) -> tuple[Selected, ...]:
    """What is read of each record, in the order asked for; a parent stands where it was first named."""
    shape = _Shape(scope)
    for item in items:
        shape.add(item)
    if scope.child_level == 0 and _count_children(items) > MAX_CHILDREN:
        reason = f"more than {MAX_CHILDREN} child relationships in one query"
        raise scope.syntax_error(scope.query.position, reason)
    if shape.count_parents() > MAX_PARENTS:
        reason = f"more than {MAX_PARENTS} relationships in one query"
        raise scope.syntax_error(scope.query.position, reason)
    return shape.selected()


def check_child_levels(query: Query, version: int) -> None:
    """Raises SoqlSyntaxError for child subqueries deeper than this API version has them."""
    levels = MAX_CHILD_LEVELS if version >= NESTED_CHILDREN_VERSION else 1
    deep = _try_deep(query.select, levels)
    if deep is not None:
        raise pointing_error(SoqlSyntaxError, query.text, deep, _deep_reason(levels))


def _try_deep(items: Iterable[SelectItem], levels: int) -> int | None:
    """Where the first child subquery begins that stands in more others than allowed."""
    for item in items:
        if isinstance(item, Subquery):
            deep = item.position if levels == 0 else _try_deep(item.query.select, levels - 1)
            if deep is not None:
                return deep
    return None


def _deep_reason(levels: int) -> str:
    plural = "" if levels == 1 else "s"
    return (
        f"SOQL statements cannot query aggregate relationships more than {levels} level{plural} away "
        "from the root entity object."
    )


def _count_children(items: Iterable[SelectItem]) -> int:
    """How many child subqueries there are, those inside others included."""
    inner = [item.query.select for item in items if isinstance(item, Subquery)]
    return len(inner) + sum(_count_children(select) for select in inner)


@dataclass(slots=True)
class _Parent:
    """A parent while paths to it are being gathered: a shape for each type that its record may have."""

    lookup: Field
    shapes: tuple[_Shape, ...]
    is_by_type: bool = False  # TYPEOF: nothing may be added by a path


@dataclass(slots=True)
class _Shape:
    """What is read of one record, while it is being gathered. Keys are lower-case names in the answer."""

    scope: Scope
    items: dict[str, Selected | _Parent] = field(default_factory=dict)
    expressions: int = 0

    def selected(self) -> tuple[Selected, ...]:
        return tuple(_frozen(item) for item in self.items.values())

    def count_parents(self) -> int:
        parents = [item for item in self.items.values() if isinstance(item, _Parent)]
        return len(parents) + sum(shape.count_parents() for each in parents for shape in each.shapes)

    def add(self, item: SelectItem) -> None:
        match item:
            case FieldPath():
                self.add_path(item)
            case FunctionCall():
                self.add_call(item, "")
            case Aliased(inner, alias):
                if isinstance(inner, FieldPath):
                    reason = "only aggregate expressions use field aliasing"
                    raise self.scope.syntax_error(item.position, reason)
                self.add_call(inner, alias)
            case Subquery(query):
                self.add_children(query, item.position)
            case TypeOf():
                self.add_type_of(item)

    def put(self, name: str, item: Selected | _Parent, position: int) -> None:
        if name.lower() in self.items:
            raise self.scope.error(
                FilterInvalid, position, f"duplicate field selected: {name}", shows_place=False, field=name
            )
        self.items[name.lower()] = item

    # fields and paths

    def add_path(self, path: FieldPath) -> None:
        names = self.scope.own_names(path)
        self.scope.check_length(names, path.position)
        self.add_names(names, path.position)

    def add_names(self, names: tuple[str, ...], position: int) -> None:
        if len(names) == 1:
            self.add_field(self.scope.field(names[0], position), position)
            return
        parent = self.parent(names[0], position)
        if len(parent.shapes) == 1 and len(parent.lookup.reference_to) == 1:
            parent.shapes[0].add_names(names[1:], position)
            return
        if len(names) > 2:
            raise self.scope.relationship_error(names[1], position)
        self.add_to_any(parent, names[1], position)

    def add_to_any(self, parent: _Parent, name: str, position: int) -> None:
        """Add a field behind a lookup to several types, for each type that has it."""
        if name.lower() == "type":
            for shape in parent.shapes:
                shape.put("Type", SelectedType("Type"), position)
            return
        is_found = False
        for shape in parent.shapes:
            found = shape.scope.try_common(name)
            if found is not None:
                shape.add_field(found, position, "Name" if name.lower() == "name" else "")
                is_found = True
        if not is_found:
            raise parent.shapes[0].scope.field_error(name, position)

    def parent(self, relationship: str, position: int) -> _Parent:
        lookup, targets = self.scope.lookup(relationship, position)
        name = relationship_of(lookup)
        known = self.items.get(name.lower())
        if known is None:
            known = _Parent(lookup, tuple(_Shape(self.scope.at(target)) for target in targets))
            self.items[name.lower()] = known
        if not isinstance(known, _Parent) or known.is_by_type:
            reason = f"duplicate field selected: {name}"
            raise self.scope.error(FilterInvalid, position, reason, shows_place=False, field=name)
        return known

    def add_field(self, found: Field, position: int, name: str = "", function: str = "") -> None:
        zone = self.scope.caller.calendar.zone if function == "FORMAT" else UTC
        self.put(
            name or found.name,
            SelectedField(name or found.name, found, self.parts(found), function, zone),
            position,
        )

    def parts(self, found: Field) -> tuple[Field, ...]:
        if not found.is_compound:
            return (found,)
        parts = self.scope.entity.components(found.name)
        return tuple(part for part in parts if self.scope.is_readable(part))

    # functions

    def add_call(self, call: FunctionCall, alias: str) -> None:
        name = function_name(call)
        if alias and self.scope.entity.try_field(alias) is not None:
            raise self.scope.syntax_error(call.position, f"alias '{alias}' is the name of a field")
        if name == "FIELDS":
            self.add_field_set(call, alias)
        elif name == "DISTANCE":
            # Unnamed expressions are numbered from left to right.
            shown = alias or f"expr{self.expressions}"
            self.expressions += 0 if alias else 1
            distance = bind_distance(self.scope, call)
            self.put(shown, SelectedDistance(shown, distance), call.position)
        elif name in PRESENTATIONS:
            self.add_presented(call, name, alias)
        elif name in DATE_FUNCTIONS:
            raise self.scope.syntax_error(call.position, "date functions in SELECT need GROUP BY")
        else:
            raise unknown_function(self.scope, call)

    def add_presented(self, call: FunctionCall, name: str, alias: str) -> None:
        inner = call.arguments[0] if call.arguments else None
        if name == "FORMAT" and isinstance(inner, FunctionCall) and function_name(inner) == "CONVERTCURRENCY":
            call = replace(call, arguments=inner.arguments)
        path = only_argument(self.scope, call)
        names = self.scope.own_names(path)
        self.scope.check_length(names, path.position)
        shape = self
        for relationship in names[:-1]:
            parent = shape.parent(relationship, path.position)
            if len(parent.lookup.reference_to) > 1:
                raise shape.scope.relationship_error(names[-1], path.position)
            shape = parent.shapes[0]
        found = shape.scope.field(names[-1], path.position)
        is_label = name == "TOLABEL" and not found.type.row.has_choices
        is_money = name == "CONVERTCURRENCY" and found.type is not FieldType.CURRENCY
        if is_label or is_money or found.is_compound:
            reason = f"function '{call.name}' can not be applied to field '{found.name}'"
            raise self.scope.syntax_error(call.position, reason)
        # The org has one currency, so converting to the user's changes nothing.
        function = "" if name == "CONVERTCURRENCY" else name
        shape.add_field(found, call.position, alias, function)

    def add_field_set(self, call: FunctionCall, alias: str) -> None:
        argument = call.arguments[0] if len(call.arguments) == 1 else None
        chosen = argument.names[0].upper() if isinstance(argument, FieldPath) else ""
        if chosen not in _FIELD_SETS or alias:
            raise self.scope.syntax_error(call.position, "FIELDS takes ALL, STANDARD or CUSTOM")
        limit = self.scope.query.limit
        if chosen != "STANDARD" and (limit is None or limit > MAX_ALL_FIELDS):
            reason = f"The SOQL FIELDS function must have a LIMIT of at most {MAX_ALL_FIELDS}"
            raise self.scope.syntax_error(call.position, reason)
        for each in self.scope.entity.fields:
            is_meant = chosen == "ALL" or each.custom is (chosen == "CUSTOM")
            if is_meant and self.scope.is_readable(each):
                self.add_field(each, call.position)

    # children and TYPEOF

    def add_children(self, query: Query, position: int) -> None:
        level = self.scope.child_level
        if self.scope.is_inner and level == 0:
            raise self.scope.syntax_error(
                position, "a semi-join must select exactly one ID or reference field"
            )
        if level >= MAX_CHILD_LEVELS:
            raise self.scope.syntax_error(position, _deep_reason(MAX_CHILD_LEVELS))
        if query.is_count or query.group_by is not None:
            raise self.scope.syntax_error(query.position, "aggregates are not supported in subqueries")
        if query.offset is not None and self.scope.query.limit != 1:
            raise self.scope.syntax_error(
                query.position, "OFFSET in a subquery needs LIMIT 1 in the query around it"
            )
        child, lookup = self.child(query)
        name = children_name_of(lookup)
        inner = replace(query, entity=child.name, alias=query.alias or query.entity)
        bound: BoundQuery = self.scope.bind_inner(inner, replace(self.scope, child_level=level + 1))
        self.put(name, SelectedChildren(name, lookup, bound), position)

    def child(self, query: Query) -> tuple[ObjectType, Field]:
        name = self.scope.child_relationship(query)
        found = self.scope.try_children(name)
        if found is None:
            raise self.scope.from_error(name, query.entity_position)
        return found

    def add_type_of(self, item: TypeOf) -> None:
        path = item.relationship
        names = self.scope.own_names(path)
        if len(names) > 1:
            raise self.scope.syntax_error(path.position, "TYPEOF takes a lookup of the queried object")
        lookup, targets = self.scope.lookup(names[0], path.position)
        if len(lookup.reference_to) < 2:
            reason = f"TYPEOF needs a lookup to several types: '{names[0]}' has one"
            raise self.scope.syntax_error(path.position, reason)
        shapes = {target.name: _Shape(self.scope.at(target)) for target in targets}
        left = dict(shapes)
        for branch in item.branches:
            target = self.scope.catalog.try_object(branch.entity)
            shape = left.pop(target.name, None) if target is not None else None
            if shape is None:
                reason = f"'{branch.entity}' is not a type that '{names[0]}' can point at, or was named twice"
                raise self.scope.syntax_error(item.position, reason)
            for each in branch.fields:
                shape.add_path(each)
        for shape in left.values():
            for each in item.otherwise:
                # ELSE reads what the type has of these fields, as a path to several types does.
                name = each.names[0]
                found = shape.scope.try_common(name) if len(each.names) == 1 else None
                if found is not None:
                    shape.add_field(found, each.position, "Name" if name.lower() == "name" else "")
        if item.otherwise and left and not any(shape.items for shape in left.values()):
            first = next(iter(left.values()))
            raise first.scope.field_error(".".join(item.otherwise[0].names), item.otherwise[0].position)
        used = tuple(shape for shape in shapes.values() if shape.items)
        name = relationship_of(lookup)
        self.put(name, _Parent(lookup, used, is_by_type=True), item.position)


def _frozen(item: Selected | _Parent) -> Selected:
    if not isinstance(item, _Parent):
        return item
    branches = tuple(
        Branch(shape.scope.entity, shape.selected(), shape.scope.caller.visibility) for shape in item.shapes
    )
    return SelectedParent(relationship_of(item.lookup), item.lookup, branches)
