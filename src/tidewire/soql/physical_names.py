"""The names under which the store knows fields: all that a statement's text takes from a catalog."""

from __future__ import annotations

import re

from tidewire.errors import FilterInvalid, InternalError
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)


def column_of(field: Field) -> str:
    """The column that holds a field's value."""
    if field.type is FieldType.ID:
        return "id"
    if not field.column:
        reason = f"field '{field.name}' can not be filtered in a query call"
        raise FilterInvalid(reason, field=field.name)
    return identifier(field.column)


def compared_column(field: Field) -> str:
    """The column that WHERE and ORDER BY look at: the folded key of a text, the value of anything else."""
    column = column_of(field)
    return identifier(field.key_column) if field.is_text else column


def identifier(name: str) -> str:
    """The name itself. Raises InternalError for one that could be anything else in a statement."""
    if _IDENTIFIER.fullmatch(name) is None:
        raise InternalError("a physical name in the catalog is not an identifier")
    return name
