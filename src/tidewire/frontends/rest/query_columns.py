"""The columns of a query, for clients that ask with `columns=true` instead of running it.

Parents and children are columns with the columns of their records inside. Children, and everything that a function
computes, are marked as aggregate.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tidewire.schema.model import Field
from tidewire.soql.bound import (
    BoundAggregate,
    BoundQuery,
    Selected,
    SelectedChildren,
    SelectedDistance,
    SelectedField,
    SelectedParent,
    SelectedType,
)

Column = dict[str, object]
_COMPLEX = "complexvaluetype"
_NUMBERS = frozenset({"Integer", "Double"})
_TEXTS = frozenset({"Id", "String"})


def render_columns(query: BoundQuery) -> dict[str, object]:
    """Render the columns of a query's rows, in order. A bare count has none."""
    aggregate = query.aggregate
    columns = _columns(query.select) if aggregate is None else _group_columns(aggregate)
    return {
        "columnMetadata": columns,
        "entityName": query.entity.name,
        "groupBy": aggregate is not None and bool(aggregate.groups),
        "idSelected": any(item.name == "Id" for item in query.select),
        "keyPrefix": query.entity.key_prefix,
    }


def _columns(select: Iterable[Selected]) -> list[Column]:
    return [_column(item) for item in select]


def _column(item: Selected) -> Column:
    match item:
        case SelectedField():
            return _field_column(item.name, item.field, is_computed=bool(item.function))
        case SelectedDistance():
            return _field_column(item.name, item.distance.field, is_computed=True)
        case SelectedType():
            return _render(item.name, item.name, "String")
        case SelectedParent():
            # The branches of TYPEOF share their columns.
            inner = {
                str(column["columnName"]): column
                for branch in item.branches
                for column in _columns(branch.select)
            }
            return _render(
                item.name,
                item.name,
                item.branches[0].entity.name if len(item.branches) == 1 else _COMPLEX,
                inside=list(inner.values()),
                foreign_key=item.lookup.name,
                is_custom=item.lookup.custom,
            )
        case SelectedChildren():
            inside = _columns(item.query.select)
            return _render(item.name, item.name, item.query.entity.name, inside=inside, is_aggregate=True)


def _group_columns(aggregate: BoundAggregate) -> list[Column]:
    groups = {group.name for group in aggregate.groups}
    return [
        _field_column(name, field, shown=field.name, is_computed=field.name not in groups)
        for name, field in aggregate.select
    ]


def _field_column(name: str, field: Field, *, shown: str = "", is_computed: bool = False) -> Column:
    return _render(
        name,
        shown or name,
        field.type.row.apex_type,
        is_aggregate=is_computed,
        is_custom=field.custom,
        is_insertable=field.createable and not is_computed,
        is_updatable=field.updateable and not is_computed,
    )


def _render(
    name: str,
    shown: str,
    apex_type: str,
    *,
    inside: Sequence[Column] = (),
    foreign_key: str | None = None,
    is_aggregate: bool = False,
    is_custom: bool = False,
    is_insertable: bool = False,
    is_updatable: bool = False,
) -> Column:
    return {
        "aggregate": is_aggregate,
        "apexType": apex_type,
        "booleanType": apex_type == "Boolean",
        "columnName": name,
        "custom": is_custom,
        "displayName": shown,
        "foreignKeyName": foreign_key,
        "insertable": is_insertable,
        "joinColumns": list(inside),
        "numberType": apex_type in _NUMBERS,
        "textType": apex_type in _TEXTS,
        "updatable": is_updatable,
    }
