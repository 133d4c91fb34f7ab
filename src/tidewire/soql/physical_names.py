"""Names of columns and tables: the only words that a SQL statement takes from the catalog."""

from __future__ import annotations

import re

from tidewire.errors import FilterInvalid, InternalError
from tidewire.schema.field_types import FieldType
from tidewire.schema.model import Field

_IDENTIFIER = re.compile(r"[a-z][a-z0-9_]{0,62}", re.ASCII)


def column_of(field: Field) -> str:
    """Return the column that holds a field's value. Raises FilterInvalid if it is not stored."""
    if field.type is FieldType.ID:
        return "id"
    if not field.column:
        reason = f"field '{field.name}' can not be filtered in a query call"
        raise FilterInvalid(reason, field=field.name)
    return identifier(field.column)


def compared_column(field: Field) -> str:
    """Return the column for WHERE and ORDER BY: the folded key of a text, the value of anything else."""
    column = column_of(field)
    return identifier(field.key_column) if field.is_text else column


def identifier(name: str) -> str:
    """Return the name. Raises InternalError for one that is not a plain identifier."""
    if _IDENTIFIER.fullmatch(name) is None:
        raise InternalError("a physical name in the catalog is not an identifier")
    return name
